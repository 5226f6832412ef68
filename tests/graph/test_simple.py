"""A simplified graph has the same energies, for any evidence."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.graph.simple import lighter, neighbors, simplified
from minigibbs.kernels.energy import factor_values
from tests.zoo import ZOO


def _spin_tables():
    rng = np.random.default_rng(5)
    pairs = rng.integers(0, 6, (14, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]  # some of them twice, and in both orders
    return mg.FactorGraph(
        [2] * 6,
        [
            mg.Table(pairs, rng.normal(0, 1, (len(pairs), 2, 2))),
            mg.Ising([0, 1, 0], [1, 2, 1], [0.3, -0.8, 0.4]),
            mg.Unary([2, 2, 5], rng.normal(0, 1, (3, 2))),
        ],
    )


def one_valued(size, rest=()):
    """Return a graph whose variables 1 and 3 have one value and are in factors of every kind."""
    rng = np.random.default_rng(7)
    sizes = [size, 1, size, 1]
    return mg.FactorGraph(
        sizes,
        [
            mg.Unary([1, 3], [[2.5], [-1.5]]),
            mg.Table([[0, 1]], rng.normal(3, 1, (1, size, 1))),
            mg.Table([[1, 2, 3]], rng.normal(-2, 1, (1, 1, size, 1))),
            mg.Table([[1, 3]], [[[4.0]]]),
            mg.Potts([0, 1, 3], [2, 2, 1], [0.7, -0.9, 1.2]),
            *rest,
        ],
    )


GRAPHS = {
    **ZOO,
    "spin-tables": _spin_tables(),
    "one-valued-spins": one_valued(2),
    "one-valued": one_valued(3),
}


def simple_energy(graph, simple, x):
    """Compute the energy by definition."""
    model, free = graph.packed, np.flatnonzero(graph.evidence < 0)
    values = np.zeros((len(model.pair) + len(model.factors), 1))
    factor_values(model, x[None], values)
    equal = x[simple.pair[:, 0]] == x[simple.pair[:, 1]]
    return (
        simple.constant
        + simple.unary[model.first[free] + x[free]].sum()
        + simple.pair_weight[equal].sum()
        + values[len(model.pair) + simple.rest].sum()
    )


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("clamped", [0, 1, 2, 5])
def test_energies_stay(name, clamped):
    graph, rng = GRAPHS[name], np.random.default_rng(clamped)
    if clamped and (graph.evidence < 0).all():
        some = rng.permutation(len(graph))[:clamped]
        graph = graph.condition({int(v): int(rng.integers(graph.sizes[v])) for v in some})
    simple, fixed = simplified(graph), graph.evidence >= 0
    for _ in range(30):
        x = (rng.random(len(graph)) * graph.sizes).astype(graph.state_type)
        x[fixed] = graph.evidence[fixed]
        wanted = graph.log_potential(x) - graph.offset
        assert simple_energy(graph, simple, x) == pytest.approx(wanted, abs=1e-10)


def test_there_is_less_to_look_at():
    graph = GRAPHS["spin-tables"]
    simple = simplified(graph)
    assert not len(simple.rest)
    assert len(simple.pair) < len(graph.packed.factors)
    assert len(np.unique(simple.pair, axis=0)) == len(simple.pair)
    assert (simple.pair[:, 0] < simple.pair[:, 1]).all()
    clamped = simplified(graph.condition({0: 1}))
    assert not (clamped.pair == 0).any()


@pytest.mark.parametrize("name", ["one-valued-spins", "one-valued"])
def test_variables_of_one_value_are_left_out(name):
    simple, first = simplified(GRAPHS[name]), GRAPHS[name].packed.first
    assert (simple.unary[first[[1, 3]]] == 0.0).all()
    assert simple.pair.tolist() == [[0, 2]]
    assert not len(simple.rest)


def test_neighbors_share_a_factor():
    graph = GRAPHS["tables"]
    start, target = neighbors(graph, simplified(graph))
    found = {(i, int(j)) for i in range(len(graph)) for j in target[start[i] : start[i + 1]]}
    scopes = [(0, 1, 2), (1, 3), (2, 0)]
    assert found == {(i, j) for scope in scopes for i in scope for j in scope if i != j}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_lighter_graph_has_the_same_distribution(name):
    graph = GRAPHS[name]
    light = lighter(graph)
    np.testing.assert_allclose(mg.exact_marginals(light), mg.exact_marginals(graph), atol=1e-12)
    assert (light is graph) == bool(len(simplified(graph).rest))


def test_neighbors_of_wide_factors_with_evidence_and_repeated_scopes():
    """The reference is a list of pairs."""
    scopes = [[0, 1, 2, 3], [3, 2, 1, 0], [1, 4, 5, 6], [2, 6, 4, 0]]
    graph = mg.FactorGraph([2] * 7, [mg.Logical("or", scopes, 1.0), mg.Potts([0], [6], 1.0)])
    graph = graph.condition({1: 0})
    start, target = neighbors(graph, simplified(graph))
    pairs = {(0, 6)} | {(a, b) for s in scopes for a in s for b in s if 1 not in (a, b)}
    for i in range(7):
        own = {b for a, b in pairs if a == i} | {a for a, b in pairs if b == i}
        assert target[start[i] : start[i + 1]].tolist() == sorted(own - {i})
