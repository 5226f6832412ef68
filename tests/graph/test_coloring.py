"""Colors: proper, few, deterministic, and none for clamped variables."""

import itertools

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.errors import SampleError


def is_proper(graph):
    """Return whether no two free variables of a factor share a color."""
    color = graph.colors.color
    for group in graph.factors:
        for scope in group.scope:
            own = [color[v] for v in scope if graph.evidence[v] < 0]
            if len(set(own)) < len(own):
                return False
    return bool(((color < 0) == (graph.evidence >= 0)).all())


def random_graph(n, m, seed, evidence=None):
    rng = np.random.default_rng(seed)
    i = rng.integers(0, n, m)
    j = (i + rng.integers(1, n, m)) % n
    return mg.FactorGraph([2] * n, [mg.Ising(i, j, rng.normal(size=m))], evidence=evidence)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("n", "m"), [(10, 20), (50, 40), (50, 300), (400, 1500)])
def test_random_graphs(n, m, seed):
    graph = random_graph(n, m, seed)
    assert is_proper(graph)
    assert set(graph.colors.color) == set(range(graph.colors.count))
    again = random_graph(n, m, seed).colors.color
    assert (again == graph.colors.color).all()


def test_lattices_and_trees_have_two():
    assert mg.models.ising_lattice(6, 0.3).colors.count == 2
    n = 100
    parents = np.random.default_rng(1).integers(0, np.arange(1, n))
    tree = mg.FactorGraph([3] * n, [mg.Potts(np.arange(1, n), parents, 1.0)])
    assert tree.colors.count == 2
    assert is_proper(tree)


def test_at_most_one_more_than_the_degeneracy():
    """A complete graph of 5 with long tails has degeneracy 4, so 5 colors, for all tails."""
    pairs = list(itertools.combinations(range(5), 2)) + [(k, k + 1) for k in range(4, 60)]
    i, j = np.array(pairs).T
    graph = mg.FactorGraph([2] * 61, [mg.Ising(i, j, 1.0)])
    assert graph.colors.count == 5
    assert is_proper(graph)


def test_complete_graphs_have_a_color_a_variable():
    graph = mg.models.ising_rbf(3)
    assert graph.colors.count == 9
    assert sorted(graph.colors.color) == list(range(9))
    assert graph.colors.sizes().tolist() == [1] * 9


def test_factors_of_any_arity():
    rng = np.random.default_rng(2)
    scope = np.stack([rng.choice(30, 4, replace=False) for _ in range(20)])
    graph = mg.FactorGraph([2] * 30, [mg.Table(scope, rng.normal(size=(2, 2, 2, 2)))])
    assert is_proper(graph)
    assert graph.colors.count >= 4


def test_clamped_variables_have_none_and_join_nobody():
    star = mg.FactorGraph([2] * 4, [mg.Ising([0, 0, 0, 1], [1, 2, 3, 2], 1.0)])
    assert star.colors.count == 3
    clamped = star.condition({0: 1})
    assert is_proper(clamped)
    assert clamped.colors.count == 2
    everything = star.condition({0: 1, 1: 0, 2: 0, 3: 1})
    assert everything.colors.count == 0


def test_isolated_variables_share_one():
    assert mg.FactorGraph([2, 3, 4], []).colors.count == 1
    assert mg.FactorGraph([2], [mg.Unary([0], [0.0, 1.0])]).colors.count == 1


def test_implicit_factors_are_refused():
    graph = mg.FactorGraph([2] * 4, [mg.Complete(4, 1.0)])
    with pytest.raises(SampleError, match="colors need stored factors"):
        _ = graph.colors
