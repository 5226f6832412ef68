"""One update with 4 to 20 neighbors, in every layout, against the conditional distribution.

The neighbors are clamped, so the distribution is known for every degree. An update must preserve
it. Unary factors balance the pairs, so that no value is rare and each pair matters.
"""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.samplers.registry import choose_variant
from tests.harness import FALSE_ALARM, advance_each, chi_square

DEGREES = range(4, 21)
STARTS = 100_000


def balanced(values, weights, clamped, rng):
    """Return unary factors that nearly cancel the sum of pairs with clamped variables."""
    energy = rng.normal(0, 0.3, values)
    return energy - np.bincount(clamped, weights, minlength=values), energy


def graph_for(layout, values, degree):
    """Return a graph with one free variable, and the log weights of its values."""
    rng = np.random.default_rng([values, degree])
    weights = rng.uniform(0.3, 0.7, degree) * rng.choice([-1, 1], degree)
    clamped = rng.integers(0, min(values, 4), degree)
    unary, energy = balanced(values, weights, clamped, rng)
    pairs = mg.Potts(np.zeros(degree, int), np.arange(1, degree + 1), weights)
    sizes, factors = [values] * (degree + 1), [pairs, mg.Unary([0], [unary])]
    evidence = dict(enumerate(clamped.tolist(), start=1))
    if layout == "general":
        columns = rng.normal(0, 0.3, (values, 2))
        energy = energy + columns[:, 1]
        factors.append(mg.Table([[0, degree + 1]], [columns]))
        sizes, evidence = [*sizes, 2], evidence | {degree + 1: 1}
    if layout == "strong":  # two strong pairs that cancel
        factors.append(mg.Potts([0, 0], [degree + 1, degree + 2], [900.0, -900.0]))
        sizes, evidence = [*sizes, values, values], evidence | {degree + 1: 0, degree + 2: 0}
    return mg.FactorGraph(sizes, factors).condition(evidence), energy


def check_update(graph, energy, sampler, free=0):
    """Check that an update preserves the distribution."""
    distribution = np.exp(energy - energy.max())
    distribution /= distribution.sum()
    starts = np.repeat(np.maximum(graph.evidence, 0)[None], STARTS, axis=0)
    starts[:, free] = np.random.default_rng(61).choice(
        len(distribution), size=STARTS, p=distribution
    )
    states, _, _ = advance_each(graph, sampler, starts, 1, seed=62)
    assert chi_square(states[:, free].astype(int), distribution) > FALSE_ALARM
    assert (states != starts).any(axis=1).mean() > 0.1


LAYOUTS = {"spins": 2, "small": 3, "large": 18, "general": 3, "strong": 3}


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_update_keeps_the_conditional_distribution(layout, degree):
    """Test 2 to 18 heavy pairs, in blocks of four, and two minibatched pairs."""
    graph, energy = graph_for(layout, LAYOUTS[layout], degree)
    sampler = mg.PoissonGibbs(heavy=int(graph.stats.max_degree) - 3, theta=0.5)
    assert choose_variant(graph, sampler.split(graph)).name == layout
    check_update(graph, energy, sampler)


@pytest.mark.parametrize("degree", [4, 9, 20])
@pytest.mark.parametrize("values", [2, 3, 18])
def test_plain_gibbs_keeps_it_too(values, degree):
    graph, energy = graph_for("small", values, degree)
    check_update(graph, energy, mg.Gibbs())


@pytest.mark.parametrize("degree", range(4, 21, 2))
@pytest.mark.parametrize("values", [2, 3, 18])
@pytest.mark.parametrize("heavy", [0, 2, 20])
def test_kernels(heavy, values, degree):
    """The graph is a chain whose middle variable is free."""
    rng = np.random.default_rng([values, degree])
    clamped, middle = rng.integers(0, min(values, 4), degree + 1), degree // 2
    sizes = np.abs(np.arange(degree + 1) - middle)
    weights = rng.uniform(0.3, 0.7, degree) * rng.choice([-1, 1], degree)
    weight = np.vectorize(lambda d: weights[int(abs(d)) - 1] if 1 <= abs(d) <= middle else 0.0)
    others = np.arange(degree + 1) != middle
    unary, energy = balanced(values, weights[sizes[others] - 1], clamped[others], rng)
    factors = [mg.Kernel((degree + 1,), weight), mg.Unary([middle], [unary])]
    graph = mg.FactorGraph([values] * (degree + 1), factors)
    graph = graph.condition({int(i): int(clamped[i]) for i in np.flatnonzero(others)})
    check_update(graph, energy, mg.PoissonGibbs(heavy=min(heavy, degree), theta=2.0), middle)
