"""The flat arrays against a plain adjacency list."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

import minigibbs as mg
from minigibbs.kernels.layout import AND, EQUAL, TABLE
from tests import naive
from tests.graph.test_graph import graphs
from tests.zoo import ZOO


def ranges(graph, scope):
    return [
        range(graph.sizes[v]) if graph.evidence[v] < 0 else [int(graph.evidence[v])] for v in scope
    ]


def naive_rows(graph):
    """Return for each variable its factors as (arity, variables, M), sorted."""
    rows = [[] for _ in range(len(graph))]
    for scope, f in naive.factor_functions(graph):
        values = [f(*point) for point in itertools.product(*ranges(graph, scope))]
        span = max(values) - min(values)
        if span > 0:
            for v in scope:
                if graph.evidence[v] < 0:
                    rows[v].append((len(scope), tuple(sorted(scope)), round(span, 9)))
    return [sorted(row) for row in rows]


def packed_rows(graph):
    model, rows = graph.packed, []
    for i, row in enumerate(model.rows):
        found = []
        for place in range(row["start"], row["end"]):
            target = model.target[place]
            if place < row["pair_end"]:
                scope, span = [i, int(target)], abs(model.weight[place])
            else:
                factor = model.factors[target]
                slots = model.slots[factor["scope_start"] : factor["scope_end"]]
                scope, span = slots["variable"].tolist(), factor["span"]
                assert model.weight[place] == factor["weight"]
                assert (place >= row["unary_begin"]) == (len(scope) == 1)
            found.append((len(scope), tuple(sorted(scope)), round(float(span), 9)))
        rows.append(sorted(found))
    return rows


def general_value(model, factor, x):
    """Return a packed factor's value, as `kernels.layout` defines its form."""
    slots = model.slots[factor["scope_start"] : factor["scope_end"]]
    values = [x[v] for v in slots["variable"]]
    if factor["form"] == TABLE:
        place = factor["table_start"] + int(np.dot(slots["key"], values))
        return factor["weight"] * model.table[place]
    true = [value == key for value, key in zip(values, slots["key"], strict=True)]
    holds = {AND: all(true), EQUAL: all(true) or not any(true)}[int(factor["form"])]
    return factor["weight"] if holds else 0.0


@settings(max_examples=100, deadline=None, derandomize=True)
@given(graphs())
def test_rows_are_the_adjacency_of_what_varies(graph):
    want = naive_rows(graph)
    assert packed_rows(graph) == want
    model = graph.packed
    assert len(model.target) == len(model.weight) == sum(map(len, want))
    assert model.rows["start"].tolist() == [0, *model.rows["end"][:-1]]
    assert model.rows["domain"].tolist() == graph.sizes.tolist()
    assert model.first.tolist() == [sum(graph.sizes[:i]) for i in range(len(graph))]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(graphs())
def test_general_factors_know_their_least_value_and_span(graph):
    model, states = graph.packed, naive.states(graph)
    for factor in model.factors:
        values = [general_value(model, factor, x) for x in states]
        assert factor["span"] == pytest.approx(max(values) - min(values), abs=1e-12)
        if factor["span"] > 0:
            assert factor["low"] == pytest.approx(min(values), abs=1e-12)


@pytest.mark.parametrize("model", ZOO)
def test_rows_of_the_zoo(model):
    assert packed_rows(ZOO[model]) == naive_rows(ZOO[model])


def test_the_zoo_has_every_kind_of_entry():
    """Pairs, general and unary entries must all occur, so that the tests above cover them."""
    rows = np.concatenate([graph.packed.rows for graph in ZOO.values()])
    assert (rows["pair_end"] > rows["start"]).any()
    assert (rows["unary_begin"] > rows["pair_end"]).any()
    assert (rows["end"] > rows["unary_begin"]).any()


def test_factors_with_span_0_vanish():
    graph = mg.FactorGraph(
        [2, 2, 1],
        [
            mg.Potts([0, 0], [1, 2], [0.0, 1.0]),
            mg.Unary([0, 1], [[0.5, 0.5], [0.0, 0.0]]),
            mg.Table([[0, 1]], [[[2.0, 2.0], [2.0, 2.0]]]),
            mg.Table([[0, 1]], [[[2.0, 3.0], [2.0, 2.0]]], weight=0.0),
            mg.Logical("equal", [[0]], 1.0),
            mg.Unary([2], [[7.0]]),
        ],
    )
    # only the pair of variables 0 and 2 varies, and variable 2 (one value) has its entry, too
    assert graph.packed.target.tolist() == [2, 0]
    assert graph.stats.factors == 1
    # constants still contribute to the energy: 0.5 + 2 + 1 + 7 and the pair's 1 at x0 = 0
    assert graph.log_potential([[0, 1, 0], [1, 0, 0]]).tolist() == [11.5, 10.5]


def test_clamped_variables_have_empty_rows():
    graph = ZOO["evidence"]
    length = graph.packed.rows["end"] - graph.packed.rows["start"]
    assert (length[graph.evidence >= 0] == 0).all()
    assert (length[graph.evidence < 0] > 0).all()


def test_packed_arrays_are_read_only():
    for array in ZOO["mixed"].packed:
        assert not array.flags.writeable


def test_a_million_pairs():
    rng = np.random.default_rng(0)
    n, count = 5_000, 1_000_000
    i = rng.integers(0, n, count)
    j = (i + rng.integers(1, n, count)) % n
    weight = rng.normal(size=count)
    graph = mg.FactorGraph(np.full(n, 3), [mg.Potts(i, j, weight)])
    ends, twice = np.concatenate([i, j]), np.abs(np.concatenate([weight, weight]))
    stats, rows = graph.stats, graph.packed.rows
    assert stats.factors == count
    assert (rows["end"] - rows["start"]).tolist() == np.bincount(ends, minlength=n).tolist()
    assert stats.max_degree == np.bincount(ends).max()
    # sums of a few hundred terms in another order: relative rounding errors far below 1e-12
    np.testing.assert_allclose(graph.local_energies, np.bincount(ends, twice), rtol=1e-12)
    assert stats.total_energy == pytest.approx(np.abs(weight).sum(), rel=1e-9)
    x = rng.integers(0, 3, n)
    assert graph.log_potential(x) == pytest.approx(weight[x[i] == x[j]].sum(), abs=1e-6)
    place = slice(rows["start"][7], rows["end"][7])
    neighbors = np.concatenate([j[i == 7], i[j == 7]])
    assert sorted(graph.packed.target[place]) == sorted(neighbors)
