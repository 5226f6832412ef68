"""Large domains: with clamped neighbors, a variable is drawn from a known distribution."""

import numpy as np
import pytest
from scipy import stats

import minigibbs as mg
from minigibbs.samplers.gibbs.sampler import GibbsData
from minigibbs.samplers.poisson_gibbs.updates.large import LargeData
from tests.harness import sample

FALSE_ALARM = 1e-6  # per test
SIZE = 20


def star(weights, values, unary=None, size=SIZE):
    """Return one free variable of `size` values, with neighbors that are clamped to `values`."""
    count = len(weights)
    factors = [mg.Potts(np.zeros(count, int), np.arange(1, count + 1), weights)]
    if unary is not None:
        factors.append(mg.Unary([0], [unary]))
    graph = mg.FactorGraph([size] + [SIZE] * count, factors)
    return graph.condition(dict(enumerate(map(int, values), start=1)))


def energies(weights, values, unary, size=SIZE):
    inside = values < size
    sums = np.bincount(values[inside], weights[inside], minlength=size)
    return sums if unary is None else sums + unary


def pvalue(graph, sampler, energy):
    """Return the p-value of a chi-square test of nearly independent draws; merge rare values."""
    chance = np.exp(energy - energy.max())
    chance /= chance.sum()
    draws, options = 100_000, {"record": "draws", "chains": 1, "seed": 4, "progress": False}
    run = sample(graph, sampler, updates=10 * draws, thin=10, **options)
    counts = np.bincount(run.draws[0, :, 0], minlength=len(chance))
    common = chance * draws > 10
    seen = np.append(counts[common], counts[~common].sum())
    expected = np.append(chance[common], chance[~common].sum()) * draws
    if expected[-1] < 10:
        assert seen[-1] < 40  # false alarm: below 1e-11
        seen, expected = seen[:-1], expected[:-1] * (seen[:-1].sum() / expected[:-1].sum())
    return stats.chisquare(seen, expected).pvalue


@pytest.mark.parametrize("with_unary", [False, True])
@pytest.mark.parametrize("count", [3, 300])  # the list of touched values has a capacity of 40
@pytest.mark.parametrize(
    ("sampler", "kind"), [(mg.Gibbs(), GibbsData), (mg.PoissonGibbs(heavy=250, theta=2.0), None)]
)
def test_the_conditional_distribution(sampler, kind, count, with_unary):
    rng = np.random.default_rng(count)
    weights, values = rng.normal(0, 0.4, count), rng.integers(0, SIZE, count)
    weights[:3], values[:3] = (0.3, -0.3, 1.0), (7, 7, 8)  # the first two cancel
    unary = rng.normal(0, 1.0, SIZE) if with_unary else None
    graph = star(weights, values, unary)
    if kind is None and count == 300:
        kind = LargeData
    if kind is not None:
        assert isinstance(sampler.prepare(graph), kind)
    energy = energies(weights, values, unary)
    assert pvalue(graph, sampler, energy) > FALSE_ALARM
    assert pvalue(graph, sampler, 1.2 * energy) < FALSE_ALARM  # the test can fail


@pytest.mark.parametrize("sampler", [mg.Gibbs(), mg.PoissonGibbs(heavy=3, theta=1.0)])
def test_repulsion_everywhere(sampler):
    """All values lose so much weight that the envelope fails repeatedly."""
    rng = np.random.default_rng(1)
    values = np.tile(np.arange(SIZE), 3)
    weights = rng.normal(-3.0, 0.2, len(values)) if isinstance(sampler, mg.Gibbs) else None
    weights = rng.normal(-0.2, 0.02, len(values)) if weights is None else weights
    graph = star(weights, values)
    assert pvalue(graph, sampler, energies(weights, values, None)) > FALSE_ALARM


@pytest.mark.parametrize("each", [33.0, 60.0])
@pytest.mark.parametrize("sampler", [mg.Gibbs(), mg.PoissonGibbs(heavy=SIZE, theta=1.0)])
def test_strong_repulsion_everywhere(sampler, each):
    """All values keep so little of their weight that 1 - loss is 0, or a few units of rounding."""
    rng = np.random.default_rng(3)
    values = np.append(np.arange(SIZE), 0)
    weights = np.append(rng.normal(-each, 1.0, SIZE), 0.05)
    graph, energy = star(weights, values), energies(weights, values, None)
    assert pvalue(graph, sampler, energy) > FALSE_ALARM


@pytest.mark.parametrize("sampler", [mg.Gibbs(), mg.PoissonGibbs(heavy=2, theta=1.0)])
def test_repulsion_from_what_the_unary_factors_favor(sampler):
    """The only value with base weight loses it."""
    unary = np.random.default_rng(4).normal(0, 0.5, SIZE)
    unary[3] = 800.0
    weights, values = np.array([-500.0, -400.0, 0.05, 0.04]), np.array([3, 3, 5, 6])
    energy = energies(weights, values, unary)
    assert pvalue(star(weights, values, unary), sampler, energy) > FALSE_ALARM


def test_a_small_domain_beside_large_ones():
    rng = np.random.default_rng(2)
    weights, values = rng.normal(0, 0.4, 40), rng.integers(0, SIZE, 40)
    graph = star(weights, values, size=3)
    sampler = mg.PoissonGibbs(heavy=2, theta=1.0)
    assert isinstance(sampler.prepare(graph), LargeData)
    assert pvalue(graph, sampler, energies(weights, values, None, 3)) > FALSE_ALARM


def test_energies_that_would_overflow():
    """exp(1500) is infinite; the value with the largest sum must be drawn nevertheless."""
    weights = np.array([1500.0, 1501.0, 400.0, 2.0])
    values = np.array([3, 5, 3, 5])
    run = sample(
        star(weights, values), mg.Gibbs(), updates=500, record="draws", thin=1, progress=False
    )
    assert (run.draws[:, :, 0] == 3).all()  # 1900 against 1503
