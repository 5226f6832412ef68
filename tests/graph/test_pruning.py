"""Pruning: no possible value is lost, the result is arc consistent, and a fixed point."""

import itertools

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.graph.pruning import prune
from tests import naive
from tests.hard import HARD, ZERO, random_hard


def sets(graph, alive):
    first = graph.packed.first
    return [
        set(np.flatnonzero(alive[first[v] : first[v] + graph.sizes[v]]).tolist())
        for v in range(len(graph))
    ]


def by_hand(graph):
    """Compute the same by definition: sweep over all factors and values until nothing changes."""
    left = [
        set(range(size)) if fixed < 0 else {int(fixed)}
        for size, fixed in zip(graph.sizes.tolist(), graph.evidence.tolist(), strict=True)
    ]
    factors, before = list(naive.factor_functions(graph)), None
    while before != left:
        before = [set(values) for values in left]
        for scope, function in factors:
            for variable in scope:
                for value in sorted(left[variable]):
                    ranges = [left[v] if v != variable else {value} for v in scope]
                    if all(function(*own) == ZERO for own in itertools.product(*ranges)):
                        left[variable].discard(value)
            if any(not values for values in left):
                return None
    return left


@pytest.mark.parametrize("seed", range(150))
def test_random_graphs(seed):
    rng = np.random.default_rng(seed)
    graph = random_hard(rng, share=rng.choice([0.15, 0.25, 0.4]))
    if seed % 3 == 0:
        graph = graph.condition({0: int(graph.sizes[0]) - 1, 3: 0})
    alive, expected = prune(graph), by_hand(graph)
    assert (alive is None) == (expected is None)
    possible = np.array([x for x in naive.states(graph) if naive.log_potential(graph, x) > ZERO])
    if alive is None:
        assert not len(possible)
        return
    assert sets(graph, alive) == expected
    for variable, values in enumerate(expected):
        assert set(np.unique(possible[:, variable]) if len(possible) else []) <= values


def test_the_random_graphs_are_of_all_sorts():
    made = [random_hard(np.random.default_rng(k), share=0.25) for k in range(150)]
    pruned = [prune(graph) for graph in made]
    assert sum(alive is None for alive in pruned) > 5
    assert sum(alive is not None and not alive.all() for alive in pruned) > 20
    assert sum(alive is not None and alive.all() for alive in pruned) > 5


def test_without_zeros_evidence_alone_counts():
    graph = mg.FactorGraph([2, 3], [mg.Potts([0], [1], 1.0)]).condition({1: 2})
    assert prune(graph).astype(int).tolist() == [1, 1, 0, 0, 1]


def test_a_long_chain_of_rules_is_followed_to_its_end():
    n = 2000
    implies = mg.Table([[k, k + 1] for k in range(n - 1)], [[0.0, 0.0], [ZERO, 0.0]])
    graph = mg.FactorGraph([2] * n, [implies])
    assert prune(graph).all()
    assert (prune(graph.condition({0: 1})).reshape(n, 2) == [False, True]).all()
    assert (prune(graph.condition({n - 1: 0})).reshape(n, 2) == [True, False]).all()
    assert prune(graph.condition({0: 1, n - 1: 0})) is None


def test_hard_factors_and_their_names():
    graph = HARD["tables"]
    assert graph.hard.tolist() == [0, 1, 3]
    assert graph.where(0) == "table factor 0 of group 0 (variables 0, 1, 2)"
    assert graph.where(3) == "unary factor 0 of group 3 (variables 3)"
    stats = graph.stats
    assert stats.local_energy == stats.total_energy == np.inf
    assert np.isinf(graph.local_energies).all()
    described = graph.describe()
    assert (described["zeros"], described["local_energy"], described["total_energy"]) == (
        3,
        None,
        None,
    )


def test_spans_under_evidence():
    table = mg.Table([[0, 1]], [[1.0, 3.0], [ZERO, ZERO]], weight=2.0)
    graph = mg.FactorGraph([2, 2], [table])
    factor = graph.packed.factors[0]
    assert (factor["low"], factor["span"]) == (2.0, np.inf)
    factor = graph.condition({0: 0}).packed.factors[0]
    assert (factor["low"], factor["span"]) == (2.0, 4.0)
    factor = graph.condition({0: 1}).packed.factors[0]
    assert (factor["low"], factor["span"]) == (0.0, np.inf)
    unary = mg.FactorGraph([3], [mg.Unary([0], [[ZERO, 1.0, -2.0]])])
    assert unary.packed.factors[0]["low"] == -2.0
    assert unary.hard.tolist() == [0]
    assert unary.condition({0: 0}).hard.tolist() == [0]
    assert unary.condition({0: 1}).hard.tolist() == []
