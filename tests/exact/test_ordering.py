"""Elimination orders and plans: good, reproducible, and cached with the graph."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.exact import contraction, elimination, ordering, preparation
from minigibbs.exact.elimination import EliminationTree
from minigibbs.exact.ordering import Order, order_variables
from minigibbs.exact.plan import make_plan


def grid(side):
    return mg.models.ising_lattice(side, 0.3, periodic=False)


def width_of(order, pairs, count):
    """Compute the induced width of an order by elimination with Python sets."""
    near = {v: set() for v in range(count)}
    for a, b in pairs:
        near[a].add(b)
        near[b].add(a)
    widest = 0
    for v in order:
        around = near.pop(v)
        widest = max(widest, len(around))
        for u in around:
            near[u] |= around
            near[u] -= {u, v}
    return widest


@pytest.mark.parametrize("sizes", [[2] * 30, [2, 3, 5] * 10])
def test_an_order_has_the_width_and_the_cost_that_it_states(sizes):
    rng = np.random.default_rng(3)
    pairs = np.array([rng.choice(30, 2, replace=False) for _ in range(60)], dtype=np.int32)
    order = order_variables(np.array(sizes), [pairs], 1e12)
    assert sorted(order.variables) == list(range(30))
    assert order.width == width_of(order.variables, pairs.tolist(), 30)
    alone = order_variables(np.array([4, 4]), [np.array([[0, 1]], dtype=np.int32)], 1e3)
    assert (alone.products, alone.entries) == (16 + 4, 4 + 1)


def test_a_sweep_from_a_corner_is_found_on_grids():
    """Row by row needs 400 * 2^21 products; a diagonal sweep needs a fifth of them."""
    order = EliminationTree.of(grid(20)).order
    assert order.width == 20
    assert order.products < 2**27.5


def test_restarts_improve_an_order(monkeypatch):
    glass = mg.models.ising_lattice(10, 0.3)  # a torus
    found = EliminationTree.of(glass).order.products
    monkeypatch.setattr(ordering, "_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(ordering, "_PAYS", 0.0)
    other = mg.models.ising_lattice(10, 0.3)
    assert found < EliminationTree.of(other).order.products


def test_the_same_graph_has_the_same_order():
    assert EliminationTree.of(grid(9)).order == EliminationTree.of(grid(9)).order


def test_large_graphs_are_ordered_without_a_search(monkeypatch):
    monkeypatch.setattr(ordering, "SEARCHED", 10)
    chain = mg.FactorGraph([2] * 50, [mg.Ising(range(49), range(1, 50), 0.5)])
    tree = EliminationTree.of(chain)
    assert tree.order.width == 1
    assert tree.upward() == pytest.approx(50 * np.log(2) + 49 * np.log(np.cosh(0.5)))


def test_other_weights_and_evidence_reuse_the_plan(monkeypatch):
    pairs = mg.Ising([0, 1, 2, 3], [1, 2, 3, 0], 0.5, name="J")
    graph = mg.FactorGraph([2] * 4, [pairs])
    made = []

    def noted(*arguments):
        made.append(arguments)
        return order_variables(*arguments)

    monkeypatch.setattr(preparation, "order_variables", noted)
    first = EliminationTree.of(graph)
    assert EliminationTree.of(graph.with_parameters({"J": [1.0, 2.0, 3.0, 4.0]})).plan is first.plan
    one = EliminationTree.of(graph.condition({0: 1}))
    assert EliminationTree.of(graph.condition({0: 0})).plan is one.plan
    assert len(made) == 1  # the second plan follows the tree of the first


def test_a_search_begins_with_the_latest_order(monkeypatch):
    made = []

    def noted(*arguments):
        made.append(arguments)
        return order_variables(*arguments)

    monkeypatch.setattr(preparation, "order_variables", noted)
    monkeypatch.setattr(preparation, "_ALIKE", 0.0)
    graph = grid(4)
    first = EliminationTree.of(graph)
    EliminationTree.of(graph.condition({0: 1}))
    assert made[1][3] == first.order


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_that_follows_another_gives_the_same_answers(seed):
    """Other evidence removes some variables and restores others."""
    rng = np.random.default_rng(seed)
    tables = [rng.choice(12, 3, replace=False) for _ in range(14)]
    factors = [mg.Table([scope], rng.normal(size=(1, 2, 2, 2))) for scope in tables]
    graph = mg.FactorGraph([2] * 12, factors)
    EliminationTree.of(graph.condition({0: 1, 1: 0, 2: 0}))
    for evidence in ({0: 0, 1: 0, 2: 1}, {3: 1, 0: 0}, {}):
        given = graph.condition(evidence)
        alone = mg.FactorGraph([2] * 12, factors).condition(evidence)
        tree = EliminationTree.of(given)
        assert tree.upward() == pytest.approx(EliminationTree.of(alone).upward())
        assert sorted(tree.order.variables) == sorted(set(range(12)) - set(evidence))


def test_a_known_order_is_used_where_the_search_finds_none_better():
    sizes, scopes = np.full(6, 2), [np.array([[k, k + 1] for k in range(5)], dtype=np.int32)]
    known = Order((9, 5, 4, 3, 2, 1, 0), 1, 0.0, 0.0)  # from a graph with more variables
    assert order_variables(sizes, scopes, 1e6, known).variables == (5, 4, 3, 2, 1, 0)


def test_small_tables_are_collected_before_a_large_one_is_multiplied():
    """On a grid of 16 x 16, most steps must avoid tables of the full width."""
    plan = EliminationTree.of(grid(16)).plan
    large = [step for step in plan.steps if len(step.scope) >= 14]
    assert any(len(step.summed) > 2 for step in large)
    assert len(large) < 40


def test_a_plan_ends_with_a_root_for_every_component():
    sizes = np.full(5, 3)
    plan = make_plan((0, 1, 2, 3, 4), ((0, 1), (2, 3), (4,)), sizes)
    assert len(plan.roots) == 3
    assert sorted(v for step in plan.steps for v in step.summed) == [0, 1, 2, 3, 4]


def test_predictions_are_scaled_to_the_machine(monkeypatch):
    tree = EliminationTree.of(grid(8))
    monkeypatch.setattr(elimination, "slowness", lambda: 3.0)
    assert tree.seconds == pytest.approx(3.0 * tree.plan.seconds)
    assert 0.5 <= contraction.slowness() <= 20.0


def test_hopeless_orders_are_abandoned(monkeypatch):
    """A cubic glass of 10^3 spins has tables of over 2^100 entries: the search ends early."""
    glass = mg.models.spin_glass(side=10, seed=1)
    pairs, bits = glass.factors[0].scope.astype(np.int64), np.ones(len(glass))
    words = {}
    for name, missing in (("abandoned", ordering._HOPELESS_BITS), ("whole", 900.0)):
        monkeypatch.setattr(ordering, "_HOPELESS_BITS", missing)
        search = ordering._Search(np.arange(len(glass)), pairs, bits, 2.0**40, None)
        assert search.best.entries > 2.0**60
        assert search.best.width > 60
        words[name] = search.totals[2]
    assert words["abandoned"] < words["whole"] / 3
