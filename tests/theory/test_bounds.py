"""The paper's lemmas and theorems by hand; tests/paper/test_search.py uses random graphs."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

import minigibbs as mg
from minigibbs import theory
from minigibbs.samplers import bounds
from minigibbs.theory.bounds import AT_LEAST, AT_MOST, EQUAL, Comparison
from tests import naive


def test_strain_is_1_where_a_claim_is_just_true():
    one, half = np.array([0.25]), np.array([0.5])
    assert Comparison(AT_LEAST, one, one).strain == pytest.approx(1)
    assert Comparison(AT_LEAST, one, half).strain == pytest.approx(0.5)
    assert Comparison(AT_LEAST, half, one).strain == pytest.approx(2)
    assert Comparison(AT_MOST, half, one).strain == pytest.approx(0.5)
    assert Comparison(AT_MOST, one, half).strain == pytest.approx(2)
    assert Comparison(EQUAL, half, half + 1e-9).strain == pytest.approx(1)


# Theorem 2


def min_gibbs_gap_by_hand(delta):
    """Compute the gap for one uniform spin, estimates +-delta with chance 1/2: four states."""
    pairs = list(itertools.product((0, 1), (-delta, delta)))
    matrix = np.zeros((4, 4))
    for row, (x, energy) in enumerate(pairs):
        for column, (y, other) in enumerate(pairs):
            if y != x:  # the other value gets a fresh estimate, which is stored if it is chosen
                matrix[row, column] = 0.5 * math.exp(other) / (math.exp(other) + math.exp(energy))
        matrix[row, row] = 1 - matrix[row].sum()
    return 1 - np.sort(np.linalg.eigvals(matrix).real)[-2]


@pytest.mark.parametrize("delta", [1e-3, 0.1])
def test_theorem_2_is_false_as_stated(delta):
    """For one uniform spin, Gibbs is independent, but MIN-Gibbs keeps every other estimate."""
    spin, estimator = mg.FactorGraph([2], []), theory.TwoPointEstimator(delta)
    found = theory.theorem_2(spin, estimator)
    assert found.true[0] == pytest.approx(min_gibbs_gap_by_hand(delta), abs=1e-12)
    assert found.true[0] == pytest.approx(0.5, abs=delta)
    assert found.claimed[0] == pytest.approx(math.exp(-6 * delta))
    assert not found.holds()
    assert theory.theorem_2_repaired(spin, estimator).holds()


def test_the_repaired_theorem_2_is_attained():
    """As delta goes to 0, the gap is min(gamma, 1 - T(x, x)), which is 1 - T(x, x) here."""
    graph = mg.FactorGraph([2, 3], [mg.Unary([0], [[0.0, 2.0]]), mg.Unary([1], [[0.0, 0.0, 3.0]])])
    found = theory.theorem_2_repaired(graph, theory.TwoPointEstimator(1e-5))
    assert found.true[0] == pytest.approx(found.claimed[0], rel=1e-4)
    assert found.claimed[0] < 0.3
    assert found.claimed[1] < found.claimed[0]  # the bound without enumeration is weaker


def test_redraw_slowdown_is_exact_for_one_uniform_spin():
    assert bounds.redraw_slowdown(mg.FactorGraph([2], [])) == 2


def test_unbounded_estimates_have_no_gap():
    """The gap decreases with the range of Poisson counts, to 0 in the limit."""
    spin = mg.FactorGraph([2], [mg.Unary([0], [[0.0, 1.0]])])
    for kind in (mg.MinGibbs, lambda estimator: mg.DoubleMinGibbs(batch=2.0, estimator=estimator)):
        gaps = []
        for delta in (2.0, 6.0, 12.0):
            estimator = theory.TruncatedEstimator(mg.PoissonEstimator(1.0), delta)
            gaps.append(theory.transition(spin, kind(estimator=estimator)).spectral_gap())
        assert gaps[0] > 30 * gaps[1] > 30**2 * gaps[2]


# Lemma 2


def test_lemma_2_is_false_far_above_psi():
    """With Psi = 1e-4, delta = 0.01, a = 9e-5 any draw deviates, 89 times too often."""
    spin = mg.FactorGraph([2], [mg.Unary([0], [[0.0, 1e-4]])])
    found = theory.lemma_2(spin, 0.01, 9e-5)
    batch = 8 * 1e-8 / 1e-4 * math.log(2 / 9e-5)
    assert math.log1p(1e-4 / batch) > 0.01  # any draw deviates
    assert found.true[0] == pytest.approx(1 - math.exp(-batch), rel=1e-9)
    assert found.true[0] / found.claimed[0] == pytest.approx(89, abs=0.5)
    assert theory.lemma_2_repaired(spin, 0.01, 9e-5).holds()


@pytest.mark.parametrize("seed", range(20))
def test_the_sharper_lemma_2_on_random_graphs(seed):
    rng = np.random.default_rng(seed)
    scale, delta, failure = 10 ** rng.uniform([-3, -1.5, -5], [0.5, 0.5, -0.3])
    tables = [mg.Table([[0, 1]], rng.normal(0, scale, (2, 3))), mg.Potts([0], [1], scale)]
    graph = mg.FactorGraph([2, 3], tables)
    found = theory.lemma_2_sharper(graph, delta, failure)
    assert found.holds()
    assert bounds.estimator_batch(graph.stats.total_energy, delta, failure) <= (
        bounds.bernstein_batch(graph.stats.total_energy, delta, failure)
    )


@pytest.mark.parametrize(("total", "delta"), [(10.0, 0.1), (400.0, 0.1), (1000.0, 0.135)])
def test_the_sharper_lemma_2_needs_a_fifth_of_the_draws(total, delta):
    ratio = bounds.bernstein_batch(total, delta, 0.01) / bounds.estimator_batch(total, delta, 0.01)
    assert 5 < ratio < 6


def test_weights_grow_in_the_convex_order_with_the_energy():
    """In the proof, E (W - c)+ and E (c - W)+ are largest with every factor at its maximum."""
    rate, u = 3.0, np.array([0.0, 0.1, 0.4, 1.0])
    s = np.arange(120)
    chance = stats.poisson.pmf(s, rate)
    weights = (1 + u[:, None]) ** s * np.exp(-rate * u[:, None])
    np.testing.assert_allclose(weights @ chance, 1.0)
    for c in (0.3, 0.9, 1.0, 1.2, 3.0):
        assert (np.diff(np.maximum(weights - c, 0) @ chance) >= -1e-15).all()


# Poisson-Gibbs, Poisson-MH and TunaMH


@pytest.mark.parametrize(
    "sampler",
    [
        mg.PoissonGibbs(heavy=0, theta=0.7),
        mg.MGPMH(slowdown=1.5),
        mg.PoissonMH(batch=2.0),
        mg.TunaMH(chi=0.5),
    ],
    ids=lambda sampler: sampler.name,
)
def test_promises_hold_and_nothing_much_stronger_does(sampler):
    """Negative control: a bound with a tenth of the exponent fails."""
    graph = mg.FactorGraph([2, 2], [mg.Potts([0], [1], 0.3)])
    found = theory.promise(graph, sampler)
    assert found.holds()
    assert not Comparison(AT_LEAST, found.claimed**0.1, found.true).holds()


@pytest.mark.parametrize("coupling", [1.0, 10.0, 20.0, 100.0])
def test_small_gaps_keep_their_digits(coupling):
    """For two spins the gap is 1 / (1 + e^(2J)), far below the rounding errors of eigenvalues."""
    pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], coupling)])
    gap = theory.transition(pair, mg.Gibbs()).spectral_gap()
    assert gap == pytest.approx(1 / (1 + math.exp(2 * coupling)), rel=1e-9)


def test_promises_of_strong_couplings_are_compared_with_true_digits():
    pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 20.0)])
    found = theory.promise(pair, mg.PoissonGibbs(heavy=0, theta=0.5))
    assert found.holds()
    assert found.true[0] == pytest.approx(1.0, abs=1e-3)  # both wait for the same rare flips


def test_a_chain_that_is_not_connected_has_gap_0():
    everything = theory.Enumeration(mg.FactorGraph([4], []))
    matrix = np.kron(np.eye(2), np.full((2, 2), 0.5))
    distribution = np.full(4, 0.25)
    assert (
        theory.Transition(
            matrix, np.arange(4), np.zeros(4), distribution, everything
        ).spectral_gap()
        == 0
    )


def test_a_sampler_that_promises_nothing_is_refused():
    with pytest.raises(mg.SampleError, match="no guaranteed slowdown"):
        theory.promise(mg.FactorGraph([2], []), mg.MinGibbs())


def test_poisson_gibbs_bound_is_nearly_attained_by_one_weak_pair():
    found = theory.poisson_gibbs_bound(mg.FactorGraph([2, 2], [mg.Potts([0], [1], 0.01)]), 3.0)
    assert 0.99 < found.strain <= 1


# Theorem 1


def test_a_biased_estimator_does_not_keep_the_models_distribution():
    graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5), mg.Unary([0], [[0.0, 0.9]])])
    found = theory.theorem_1(graph, mg.SubsetEstimator(1))
    assert found.holds()
    assert np.abs(found.claimed - naive.distribution(graph)).max() > 0.01
    unbiased = theory.theorem_1(graph.condition({1: 0}), mg.PoissonEstimator(1.0))
    distribution = naive.distribution(graph.condition({1: 0}))
    np.testing.assert_allclose(unbiased.true, distribution, atol=1e-11)


def by_hand(energy, batch):
    """Compute MGPMH's spectral gap for one spin with one factor of that energy, as a sum over s."""
    total, chance = 0.0, math.exp(-batch)
    for s in range(900):
        estimate = min(s * energy / batch, 700.0)
        up = min(math.exp(estimate), math.exp(energy)) / (1 + math.exp(estimate))
        down = min(1.0, math.exp(estimate - energy)) / (1 + math.exp(estimate))
        total += chance * (up + down)
        chance *= batch / (s + 1)
    return total


def test_theorem_4_is_too_strong_as_stated():
    """For one spin and factor, L = 0.2 and lambda = 1 promise 0.9608, but the ratio is 0.9273."""
    graph = mg.FactorGraph([2], [mg.Unary([0], [[0.0, 0.2]])])
    found = theory.theorem_4(graph, 1.0)
    assert found.true[0] == pytest.approx(by_hand(0.2, 1.0), abs=1e-11)
    assert found.true[0] == pytest.approx(0.9273, abs=5e-5)
    assert found.claimed[0] == pytest.approx(math.exp(-0.04))
    assert not found.holds()
    assert theory.theorem_4_repaired(graph, 1.0).holds()


@pytest.mark.parametrize("ratio", [0.001, 0.01, 0.1, 1.0])
@pytest.mark.parametrize("energy", [0.01, 0.2, 2.0])
def test_the_repair_of_theorem_4_holds_for_one_spin(energy, ratio):
    """The bound of docs/theory.md holds down to lambda = L."""
    batch = max(energy, min(energy**2 / ratio, 500.0))
    r = energy**2 / batch
    assert by_hand(energy, batch) >= 1 / bounds.mgpmh_slowdown(r)
    assert bounds.mgpmh_slowdown(r) == pytest.approx(
        math.exp(0.42888194 * math.sqrt(r) + 0.14872127 * r)
    )


@pytest.mark.parametrize("slowdown", [1.001, 1.5, 4.0, 50.0])
def test_recipes_of_mgpmh_use_the_repaired_theorem_4_to_the_full(slowdown):
    ratio = bounds.mgpmh_ratio(slowdown)
    assert bounds.mgpmh_slowdown(ratio) == pytest.approx(slowdown)
    assert 1 / bounds.mgpmh_ratio(1.5) == pytest.approx(1.776, abs=1e-3)  # lambda / L^2
    graph = mg.models.potts_rbf(side=6)
    sampler = mg.MGPMH(slowdown=slowdown)
    assert sampler.guaranteed_slowdown(graph) <= slowdown * (1 + 1e-12)


def test_mgpmh_promises_nothing_below_lambda_of_l():
    graph = mg.FactorGraph([2, 2], [mg.Potts([0], [1], 0.8)])
    assert mg.MGPMH(batch=0.8).guaranteed_slowdown(graph) is not None
    assert mg.MGPMH(batch=0.79).guaranteed_slowdown(graph) is None
    assert "lambda of at least L" in mg.MGPMH(batch=0.79).describe(graph)


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


def test_stationary_distributions_are_right_where_chains_hardly_move():
    """With a rate of 1e-12 between two wells, solving a linear system would lose the digits."""
    rare = 1e-12
    matrix = np.array([[0.5, 0.5 - rare, rare], [0.5, 0.5, 0.0], [3 * rare, 0.0, 1 - 3 * rare]])
    everything = theory.Enumeration(mg.FactorGraph([3], []))
    chain = theory.Transition(matrix, np.arange(3), np.zeros(3), None, everything)
    # flows: pi_0 * rare = pi_2 * 3 rare, and pi_1 / 2 = pi_0 (1/2 - rare)
    expected = np.array([1.0, 1 - 2 * rare, 1 / 3])
    np.testing.assert_allclose(chain.stationary(), expected / expected.sum(), rtol=1e-12)


def test_a_chain_with_two_distributions_is_refused():
    everything = theory.Enumeration(mg.FactorGraph([2], []))
    chain = theory.Transition(np.eye(2), np.arange(2), np.zeros(2), None, everything)
    with pytest.raises(ValueError, match="more than one stationary distribution"):
        chain.stationary()


def test_distributions_that_take_too_long_are_refused(monkeypatch):
    monkeypatch.setattr("minigibbs.theory.bounds._TRIED", 0.0)
    monkeypatch.setattr("minigibbs.theory.bounds._MOST_SECONDS", 1e-6)
    with pytest.raises(mg.TooLargeError, match="would take about"):
        mg.theory.lemma_2_repaired(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)]), 0.3, 0.05)


def test_a_gap_of_zero_is_no_baseline():
    locked = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 1e3)])
    with pytest.raises(mg.SampleError, match="do not connect all states"):
        mg.theory.promise(locked, mg.PoissonGibbs(slowdown=1.5))


@pytest.mark.parametrize("lemma", ["lemma_2", "lemma_2_repaired", "lemma_2_sharper"])
@pytest.mark.parametrize("delta", [1e-200, 1e-320])
def test_a_tiny_deviation_needs_an_infinite_batch(lemma, delta):
    graph = mg.FactorGraph([2, 3], [mg.Potts([0], [1], 0.5)])
    with pytest.raises(mg.SampleError, match="batch must be a finite number, got inf"):
        getattr(theory, lemma)(graph, delta, 0.1)
