"""The paper's lemmas and theorems on small graphs, beside claims that must fail."""

import math

import numpy as np
import pytest

import minigibbs as mg
from minigibbs import theory
from minigibbs.paper import theorems
from minigibbs.theory.bounds import AT_LEAST, AT_MOST, EQUAL, Comparison
from tests import naive

HOLD = [name for name in theorems.CLAIMS if name != theorems.STATED]


@pytest.fixture(scope="module")
def evidence():
    return {name: theorems.gather(name, 15) for name in theorems.CLAIMS}


@pytest.mark.parametrize("name", HOLD)
def test_claims_hold_on_random_graphs(evidence, name):
    """But for rounding: 1e-9, where Poisson tails are cut at 1e-12."""
    assert evidence[name].failures == 0
    assert evidence[name].worst >= -1e-9


@pytest.mark.parametrize("name", ["theorem-2", "theorem-4-repaired", "theorem-6", "ours"])
def test_a_bound_that_is_too_strong_is_caught(evidence, name):
    """The negative control: the same truth against a bound hardly below 1."""
    found = evidence[name]
    assert Comparison(AT_LEAST, found.claimed, found.true).holds()
    assert not Comparison(AT_LEAST, found.claimed**0.02, found.true).holds()


def test_an_allowance_that_is_too_small_is_caught(evidence):
    found = evidence["lemma-2"]
    assert Comparison(AT_MOST, found.claimed, found.true).holds()
    assert not Comparison(AT_MOST, found.claimed**20, found.true).holds()


@pytest.mark.parametrize("name", ["theorem-1", "theorem-5"])
def test_a_law_that_is_slightly_off_is_caught(evidence, name):
    found = evidence[name]
    assert not Comparison(EQUAL, found.claimed * (1 + 1e-6), found.true).holds()


def test_a_biased_estimator_does_not_keep_the_models_law():
    graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5), mg.Unary([0], [[0.0, 0.9]])])
    found = theory.theorem_1(graph, mg.SubsetEstimator(1))
    assert found.holds()
    assert np.abs(found.claimed - naive.distribution(graph)).max() > 0.01
    unbiased = theory.theorem_1(graph.condition({1: 0}), mg.PoissonEstimator(1.0))
    law = naive.distribution(graph.condition({1: 0}))
    np.testing.assert_allclose(unbiased.true, law, atol=1e-11)


def by_hand(energy, batch):
    """MGPMH's spectral gap for one spin with one factor of that energy, summed over s."""
    total, chance = 0.0, math.exp(-batch)
    for s in range(900):
        estimate = s * energy / batch
        up = min(math.exp(estimate), math.exp(energy)) / (1 + math.exp(estimate))
        down = min(1.0, math.exp(estimate - energy)) / (1 + math.exp(estimate))
        total += chance * (up + down)
        chance *= batch / (s + 1)
    return total


def test_theorem_4_is_too_strong_as_stated():
    """One spin, one factor: L = 0.2 and lambda = 1 promise 0.9608; the gap is 0.9273 of Gibbs's."""
    graph = mg.FactorGraph([2], [mg.Unary([0], [[0.0, 0.2]])])
    found = theory.theorem_4(graph, 1.0)
    assert found.true[0] == pytest.approx(by_hand(0.2, 1.0), abs=1e-11)
    assert found.true[0] == pytest.approx(0.9273, abs=5e-5)
    assert found.claimed[0] == pytest.approx(math.exp(-0.04))
    assert not found.holds()
    assert theory.theorem_4_repaired(graph, 1.0).holds()


@pytest.mark.parametrize("ratio", [0.001, 0.01, 0.1, 1.0])
@pytest.mark.parametrize("energy", [0.01, 0.2, 2.0])
def test_the_repairs_of_theorem_4_hold_for_one_spin(energy, ratio):
    """The two bounds of docs/paper.md; the second asks for lambda of at least 2 L."""
    batch = max(2 * energy, min(energy**2 / ratio, 500.0))
    r = energy**2 / batch
    gap = by_hand(energy, batch)
    assert gap >= math.exp(-r) / 2
    assert gap >= 1 / (math.exp(r) + math.sqrt((math.exp(4 * r) - 1) / 2))


def test_lemma_1_needs_the_adjustment():
    """Without it, estimates s * (Psi / lambda) have another mean exponential."""
    graph = mg.FactorGraph([2, 2], [mg.Potts([0], [1], 0.8)])
    found = theory.lemma_1(graph, 2.0)
    assert found.holds()
    plain = 2.0 * (math.exp(0.8 / 2.0) - 1)  # log E exp of Poisson(2) * 0.4
    assert abs(plain - found.true.max()) > 0.1


def test_truncated_estimates_stay_within_delta():
    graph = mg.FactorGraph([2, 2], [mg.Potts([0], [1], 0.8)])
    kept = theory.TruncatedEstimator(mg.PoissonEstimator(8.0), 0.3)
    assert 0 < theory.largest_deviation(graph, kept) <= 0.3
    with pytest.raises(mg.SampleError, match="paper only"):
        mg.sample(graph, mg.MinGibbs(estimator=kept), sweeps=1, progress=False)
    narrow = theory.TruncatedEstimator(mg.PoissonEstimator(0.3), 1e-6)
    with pytest.raises(mg.SampleError, match="larger delta"):
        theory.largest_deviation(graph, narrow)


def test_stationary_laws_are_right_where_chains_hardly_move():
    """Two wells with 1e-12 between them: solving a linear system would lose the digits."""
    rare = 1e-12
    matrix = np.array([[0.5, 0.5 - rare, rare], [0.5, 0.5, 0.0], [3 * rare, 0.0, 1 - 3 * rare]])
    everything = theory.Enumeration(mg.FactorGraph([3], []))
    chain = theory.Transition(matrix, np.arange(3), np.zeros(3), None, everything)
    # flows: pi_0 * rare = pi_2 * 3 rare, and pi_1 / 2 = pi_0 (1/2 - rare)
    expected = np.array([1.0, 1 - 2 * rare, 1 / 3])
    np.testing.assert_allclose(chain.stationary(), expected / expected.sum(), rtol=1e-12)


def test_a_chain_with_two_laws_is_refused():
    everything = theory.Enumeration(mg.FactorGraph([2], []))
    chain = theory.Transition(np.eye(2), np.arange(2), np.zeros(2), None, everything)
    with pytest.raises(ValueError, match="more than one law"):
        chain.stationary()
