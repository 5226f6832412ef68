"""Energy estimates and their distribution, and MIN-Gibbs with several blocks of draws."""

import math

import numpy as np
import pytest
from numba import njit
from scipy import stats

import minigibbs as mg
from minigibbs.kernels.jit import entry
from minigibbs.kernels.layout import CHANGES, Chain
from minigibbs.samplers.estimators import estimate
from tests import naive
from tests.harness import FALSE_ALARM, advance_each, chi_square, state_numbers
from tests.samplers.test_distribution import STARTS, exact_starts
from tests.settings import poisson_energy


@entry
def _estimates(data, model, chain, out):
    for k in range(len(out)):
        out[k] = estimate(data, model, chain)


def estimates(graph, estimator, state, count):
    """Return many estimates of the energy of one state."""
    chain = Chain(
        x=np.asarray(state).astype(graph.state_type),
        stream=np.random.SeedSequence(71).generate_state(4, np.uint64),
        carried=np.zeros(0),
        weights=np.zeros(2 * graph.stats.max_domain),
        scratch=np.zeros(estimator.scratch(graph), np.int64),
        tally=np.zeros(CHANGES + 1, np.int64),
    )
    out = np.empty(count)
    _estimates(estimator.prepare(graph), graph.packed, chain, out)
    return out


@pytest.mark.parametrize("batch", [60.0, 125.0, 500.0, 900.0])
def test_poisson_estimates_of_pairs_are_poisson_counts(batch):
    """For weak pairs, the estimate is log(1 + Psi / lambda) times Poisson(lambda * on / Psi)."""
    graph = mg.models.curie_weiss(50, 0.5)  # 1,225 pairs with rates below 1
    state = np.arange(50) % 3 == 0
    total = graph.stats.total_energy
    spins = 2.0 * state - 1.0
    on = (np.triu(np.outer(spins, spins), 1) > 0).sum() * total / graph.stats.factors
    gain = math.log1p(total / batch)
    counts = estimates(graph, mg.PoissonEstimator(batch), state, 20_000) / gain
    np.testing.assert_allclose(counts, np.rint(counts), atol=1e-9)
    mean = batch * on / total
    low, high = stats.poisson.ppf([1e-6, 1 - 1e-6], mean).astype(int)
    chances = stats.poisson.pmf(np.arange(low, high + 1), mean)
    chances[0], chances[-1] = stats.poisson.cdf(low, mean), stats.poisson.sf(high - 1, mean)
    cells = np.clip(np.rint(counts).astype(int), low, high) - low
    assert chi_square(cells, chances) > FALSE_ALARM


def test_min_gibbs_with_hundreds_of_weak_draws():
    """Four hundred weak pairs of four spins need more draws than three blocks."""
    rng = np.random.default_rng(72)
    i = rng.integers(0, 4, 400)
    j = (i + rng.integers(1, 4, 400)) % 4
    graph = mg.FactorGraph([2] * 4, [mg.Ising(i, j, rng.choice([-0.02, 0.03], 400))])
    sampler = mg.MinGibbs(batch=390)
    assert graph.stats.factors == 400
    starts = exact_starts(graph, STARTS, seed=73)
    carried = poisson_energy(390)(graph, starts, seed=74)
    states, _, _ = advance_each(graph, sampler, starts, 8, seed=75, carried=carried)
    assert chi_square(state_numbers(graph, states), naive.distribution(graph)) > FALSE_ALARM
    assert (states != starts).any(axis=1).mean() > 0.3


@pytest.mark.parametrize("kind", [mg.MinGibbs, mg.DoubleMinGibbs])
def test_weights_whose_squares_are_0_have_a_batch(kind):
    graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 1e-300)])
    assert kind().estimator_for(graph).batch == 1e-9


def test_masked_parameters_of_an_estimator_are_refused():
    masked = np.ma.array([0.5, 1.0], mask=[False, True])
    with pytest.raises(mg.SampleError, match="masked"):
        mg.CustomEstimator(njit(lambda *_: 0.0), masked)
