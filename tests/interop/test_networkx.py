"""networkx: conversion in both directions, and rejected graphs."""

import itertools

import numpy as np
import pytest

import minigibbs as mg
from tests.zoo import ZOO

nx = pytest.importorskip("networkx")


def weighted(seed=1):
    rng = np.random.default_rng(seed)
    G = nx.Graph()
    G.add_node("lone", field=0.3)
    for u, v in [((0, 0), (0, 1)), ((0, 1), "b"), ("b", (0, 0))]:
        G.add_edge(u, v, weight=rng.normal())
    G.add_edge("b", 7)  # no weight: 1
    G.nodes["b"]["field"] = -0.8
    return G


def test_energies_of_ising_by_definition():
    G = weighted()
    graph = mg.from_networkx(G, beta=0.5)
    assert graph.names == ("lone", "(0, 0)", "(0, 1)", "b", "7")
    for x in itertools.product(range(2), repeat=5):
        s = dict(zip(G, (2 * value - 1 for value in x), strict=True))
        energy = sum(w * s[u] * s[v] for u, v, w in G.edges(data="weight", default=1.0))
        energy += sum(h * s[node] for node, h in G.nodes(data="field", default=0.0))
        assert graph.log_potential(x) == pytest.approx(0.5 * energy)


def test_energies_of_potts_by_definition():
    G = weighted()
    fields = {"lone": [0.1, 0.2, 0.3], "b": np.array([0.0, -1.0, 1.0])}
    nx.set_node_attributes(G, fields, "bias")
    nx.set_edge_attributes(G, {("b", 7): 0.25}, "strength")
    graph = mg.from_networkx(G, kind="potts", states=3, weight="strength", field="bias")
    for x in itertools.product(range(3), repeat=5):
        v = dict(zip(G, x, strict=True))
        edges = G.edges(data="strength", default=1.0)
        energy = sum(w * (v[a] == v[b]) for a, b, w in edges)
        energy += sum(row[v[node]] for node, row in fields.items())
        assert graph.log_potential(x) == pytest.approx(energy)


def test_parallel_edges_add_up():
    G = nx.MultiGraph([("a", "b", {"weight": 0.5}), ("b", "a", {"weight": 0.25})])
    assert mg.from_networkx(G).log_potential([1, 1]) == 0.75


def same_energies(a, b):
    np.testing.assert_array_equal(a.evidence, b.evidence)
    rng = np.random.default_rng(0)
    x = rng.integers(a.sizes, size=(50, len(a)))
    np.testing.assert_allclose(a.log_potential(x), b.log_potential(x), atol=1e-12)


def fields(states):
    return mg.Unary([0, 2, 0], np.arange(3.0 * states).reshape(3, states))


ROUND_TRIPS = {
    "ising": ZOO["ising"],
    "potts": ZOO["potts"],
    "fields": mg.FactorGraph([2] * 3, [mg.Ising([0, 1, 1], [1, 2, 0], [1.0, -2, 3]), fields(2)]),
    "potts fields": mg.FactorGraph([4] * 3, [mg.Potts([0, 1], [1, 2], [1.0, -2.0]), fields(4)]),
    "evidence": mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], 0.5)]).condition({1: 1}),
    "fields alone": mg.FactorGraph([3] * 3, [fields(3)]),
    "nothing": mg.FactorGraph([2] * 2, []),
}


@pytest.mark.parametrize("case", ROUND_TRIPS)
def test_round_trips(case):
    graph = ROUND_TRIPS[case]
    back = mg.from_networkx(mg.to_networkx(graph))
    same_energies(graph, back)
    assert back.names == tuple(graph.domains.name(k) for k in range(len(graph)))
    np.testing.assert_allclose(mg.exact_marginals(graph), mg.exact_marginals(back), atol=1e-12)


def test_the_structure_of_any_model():
    graph = ZOO["mixed"]
    G = mg.to_networkx(graph, bipartite=True)
    factors = {node for node, side in G.nodes(data="bipartite") if side == 1}
    assert nx.is_bipartite(G)
    assert len(factors) == sum(len(group) for group in graph.factors)
    for number, group in enumerate(graph.factors):
        for k, row in enumerate(group.scope):
            assert set(G[number, k]) == {graph.domains.name(v) for v in row}


def loop():
    G = weighted()
    G.add_edge("b", "b")
    return G


def with_edge(weight):
    return nx.Graph([("a", "b", {"weight": weight})])


def with_field(value):
    G = nx.path_graph(2)
    G.nodes[1]["field"] = value
    return G


BAD = {
    "no graph": (lambda: mg.from_networkx([(0, 1)]), ["networkx graph", "list"]),
    "directed": (lambda: mg.from_networkx(nx.DiGraph([(0, 1)])), ["directed", "to_undirected"]),
    "empty": (lambda: mg.from_networkx(nx.Graph()), ["no nodes"]),
    "a loop": (lambda: mg.from_networkx(loop()), ["('b', 'b')", "itself", "constant"]),
    "NaN weight": (lambda: mg.from_networkx(with_edge(np.nan)), ["('a', 'b')", "weight", "nan"]),
    "text as weight": (lambda: mg.from_networkx(with_edge("x")), ["('a', 'b')", "weight"]),
    "infinite field": (lambda: mg.from_networkx(with_field(np.inf)), ["node 1", "field", "inf"]),
    "fields for a spin": (lambda: mg.from_networkx(with_field([0, 1])), ["node 1", "a finite"]),
    "one field for Potts": (
        lambda: mg.from_networkx(with_field(1.0), kind="potts", states=3),
        ["node 1", "3 finite numbers", "1.0"],
    ),
    "unknown kind": (lambda: mg.from_networkx(with_edge(1), kind="xy"), ["kind", "potts", "'xy'"]),
    "Potts without states": (
        lambda: mg.from_networkx(with_edge(1), kind="potts"),
        ["states", "None"],
    ),
    "Ising of three": (lambda: mg.from_networkx(with_edge(1), states=3), ["2 states", "potts"]),
    "tables": (lambda: mg.to_networkx(ZOO["tables"]), ["bipartite=True"]),
    "two kinds of pairs": (
        lambda: mg.to_networkx(
            mg.FactorGraph([2, 2], [mg.Ising([0], [1], 1.0), mg.Potts([0], [1], 1.0)])
        ),
        ["ising, potts", "bipartite=True"],
    ),
    "an implicit model": (
        lambda: mg.to_networkx(mg.FactorGraph([2] * 4, [mg.Complete(4, 0.1)])),
        ["implicit", "graph.stored()"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_graphs(case):
    make, pieces = BAD[case]
    with pytest.raises(mg.GraphError) as caught:
        make()
    missing = [piece for piece in pieces if piece not in str(caught.value)]
    assert not missing, f"{missing} not in {caught.value}"


@pytest.mark.parametrize("size", [2, 3])
def test_fields_hold_no_zeros(size):
    zero = np.zeros((1, size))
    zero[0, 1] = -np.inf
    pair = mg.Ising([0], [1], 0.5) if size == 2 else mg.Potts([0], [1], 0.5)
    graph = mg.FactorGraph([size] * 2, [pair, mg.Unary([1], zero)])
    with pytest.raises(mg.GraphError, match=r"variable 1.*cannot forbid a value.*bipartite"):
        mg.to_networkx(graph)
    assert len(mg.to_networkx(graph, bipartite=True)) == 4
