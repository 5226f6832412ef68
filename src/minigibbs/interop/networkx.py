"""Conversion of networkx graphs: weighted edges are couplings, node attributes are fields."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.checks import as_array
from minigibbs.graph.factors import Ising, Potts, Unary
from minigibbs.graph.factors.base import FREE, LARGEST
from minigibbs.graph.factors.unary import unary_groups
from minigibbs.graph.graph import FactorGraph
from minigibbs.interop.common import read_beta, unique_names
from minigibbs.system.boundary import checked
from minigibbs.system.optional import optional

KINDS = ("ising", "potts")
NOTES = "minigibbs"  # graph attribute for data that edges and nodes cannot represent


@checked(GraphError)
def from_networkx(
    G: Any,  # noqa: N803 - networkx's own name for it
    kind: str | None = None,
    states: int | None = None,
    weight: str = "weight",
    field: str = "field",
    beta: float = 1.0,
) -> FactorGraph:
    """Build an Ising or Potts model on an undirected networkx graph.

    The log-potential is beta times the sum of all couplings and fields. An edge contributes weight
    * s_i * s_j (Ising) or weight * [x_i == x_j] (Potts). Couplings of parallel edges are added.

    Parameters
    ----------
    G : networkx.Graph
        The graph. A node that is not a string is named by its printed form, such as `(0, 1)`.
    kind : str, optional
        "ising" or "potts". By default the kind that `to_networkx` stored in the graph, or "ising".
    states : int, optional
        Number of values of each variable of a Potts model. Ising models have 2.
    weight : str, default "weight"
        The edge attribute that holds the coupling. An edge without it has coupling 1.
    field : str, default "field"
        The node attribute that holds the field: for Ising a number, which multiplies the spin (-1
        or +1); for Potts one number per value. A node without it has no field.
    beta : float, default 1.0
        The inverse temperature.

    Returns
    -------
    FactorGraph
        One variable per node, with the names of the nodes.

    Raises
    ------
    GraphError
        If the graph is directed, or an attribute is not a number.

    Examples
    --------
    >>> import minigibbs as mg, networkx as nx
    >>> graph = mg.from_networkx(nx.grid_2d_graph(2, 2), kind="potts", states=3)
    >>> graph.names
    ('(0, 0)', '(0, 1)', '(1, 0)', '(1, 1)')
    >>> graph.log_potential([2, 2, 0, 2])
    2.0
    """
    beta = read_beta(beta)
    _check_graph(G)
    notes = G.graph.get(NOTES, {})
    kind = kind or notes.get("kind", "ising")
    values = _states(kind, states or notes.get("states"))
    number = {node: k for k, node in enumerate(G)}
    edges = [
        (number[u], number[v], _weight(u, v, w)) for u, v, w in G.edges(data=weight, default=1)
    ]
    i, j, coupling = zip(*edges, strict=True) if edges else ((), (), ())
    pairs = {"ising": Ising, "potts": Potts}[kind](
        np.array(i, dtype=np.int64), np.array(j, dtype=np.int64), beta * np.array(coupling)
    )
    rows = np.zeros((len(G), values))
    for node, given in G.nodes(data=field):
        if given is not None:
            rows[number[node]] = beta * _field(node, given, kind, values)
    groups = [pairs, *unary_groups(rows, beta * notes.get("offset", 0.0))]
    graph = FactorGraph(np.full(len(G), values), groups, unique_names(G))
    evidence = notes.get("evidence", {})
    return graph.condition({number[node]: x for node, x in evidence.items() if node in number})


@checked(GraphError)
def to_networkx(graph: FactorGraph, bipartite: bool = False) -> Any:
    """Convert a model of pairs to a networkx graph; `from_networkx` is the inverse.

    The model must have `Ising` and unary factors, or `Potts` and unary factors. Nodes are the names
    of the variables. Several factors on one pair are added. `G.graph["minigibbs"]` stores the data
    that edges and nodes cannot represent: `kind`, `states`, `evidence`, and `offset`, the constant
    of the log-potential. Labels and grids are not kept.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    bipartite : bool, default False
        Whether to return only the structure, which is possible for any model. It has one node per
        variable (`bipartite=0`), one node `(group, factor)` per factor (`bipartite=1`, `kind`), and
        an edge between each factor and its variables.

    Returns
    -------
    networkx.Graph
        The graph with weights and fields.

    Raises
    ------
    GraphError
        If the model has factors that are neither pairs nor unary.

    Examples
    --------
    >>> import minigibbs as mg
    >>> G = mg.to_networkx(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)], names=["a", "b"]))
    >>> list(G.edges(data="weight"))
    [('a', 'b', 0.5)]
    """
    networkx = optional("networkx", "networkx")
    names = [graph.domains.name(variable) for variable in range(len(graph))]
    if graph.implicits:
        raise GraphError(
            f"{graph.implicits[0].kind}: a networkx graph lists every factor, but this group is "
            "implicit; convert graph.stored() if it is small"
        )
    graph = graph.with_pairs()
    if bipartite:
        return _bipartite(networkx.Graph(), graph, names)
    kind, states = _kind(graph)
    rows = _fields(graph, states)
    _refuse_zeros(graph, rows)
    offset = 0.0
    if kind == "ising":
        offset, rows = float(rows.mean(axis=1).sum()), (rows[:, 1:] - rows[:, :1]) / 2
    clamped = np.flatnonzero(graph.evidence != FREE)
    evidence = {names[variable]: int(graph.evidence[variable]) for variable in clamped}
    notes = {"kind": kind, "states": states, "offset": offset, "evidence": evidence}
    result = networkx.Graph(**{NOTES: notes})
    result.add_nodes_from(names)
    for variable in np.flatnonzero(rows.any(axis=1)):
        row = rows[variable].tolist()
        result.nodes[names[variable]]["field"] = row[0] if kind == "ising" else row
    pairs = _pair_sums(graph).items()
    result.add_weighted_edges_from((names[a], names[b], weight) for (a, b), weight in pairs)
    return result


def _pair_sums(graph: FactorGraph) -> dict[tuple[int, int], float]:
    sums: dict[tuple[int, int], float] = defaultdict(float)
    for group in graph.factors:
        if isinstance(group, Ising | Potts):
            strength = group.coupling if isinstance(group, Ising) else group.weight
            scope = np.sort(group.scope, axis=1).tolist()
            for (a, b), weight in zip(scope, strength.tolist(), strict=True):
                sums[a, b] += weight
    return sums


def _check_graph(given: Any) -> None:
    if not (hasattr(given, "is_directed") and hasattr(given, "edges")):
        raise GraphError(f"expected a networkx graph, got {type(given).__name__}")
    if given.is_directed():
        raise GraphError("expected an undirected graph, got a directed one; use G.to_undirected()")
    if not len(given):
        raise GraphError("the graph has no nodes; a model needs at least one variable")


def _states(kind: Any, states: int | None) -> int:
    if kind not in KINDS:
        raise GraphError(f'kind must be "ising" or "potts", got {kind!r}')
    if kind == "ising":
        if states not in (None, 2):
            raise GraphError(
                f'an Ising model has 2 states, got states={states!r}; use kind="potts"'
            )
        return 2
    whole = isinstance(states, int | np.integer) and not isinstance(states, bool)
    if not whole or states < 1:  # type: ignore[operator]
        raise GraphError(f"a Potts model needs states, an integer of at least 1; got {states!r}")
    return int(states)  # type: ignore[arg-type]


def _weight(u: Any, v: Any, given: Any) -> float:
    where = f"edge ({u!r}, {v!r})"
    if u == v:
        raise GraphError(f"{where}: a node joined to itself adds a constant; remove the edge")
    if isinstance(given, int | float) and abs(given) <= LARGEST:  # the usual case, and fast
        return float(given)
    return float(_finite(given, where, "its weight must be a finite number", ()))


def _field(node: Any, given: Any, kind: str, states: int) -> NDArray[np.float64]:
    """Return one node's log-potentials."""
    where = f"node {node!r}"
    if kind == "potts":
        rule = f"its field must hold {states} finite numbers, one per value"
        return _finite(given, where, rule, (states,))
    number = _finite(given, where, "its field must be a finite number", ())
    return np.array([-number, number])


def _finite(given: Any, where: str, rule: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    array = as_array(given, "iufb", f"{where}: {rule}").astype(np.float64)
    if array.shape != shape or not (np.abs(array) <= LARGEST).all():
        raise GraphError(f"{where}: {rule}; got {given!r}")
    return array


def _kind(graph: FactorGraph) -> tuple[str, int]:
    """Return the kind and the domain size of a model that a networkx graph can represent."""
    kinds = {group.kind for group in graph.factors if len(group)}
    states = np.unique(graph.sizes)
    if len(states) > 1:
        raise GraphError(
            f"a networkx graph of couplings needs domains of one size, got sizes from {states[0]} "
            f"to {states[-1]}; bipartite=True gives the structure alone"
        )
    if not (kinds <= {"ising", "unary"} or kinds <= {"potts", "unary"}):
        raise GraphError(
            f"a networkx graph of couplings holds Ising and unary factors, or Potts and unary "
            f"ones, got {', '.join(sorted(kinds))}; bipartite=True gives the structure alone"
        )
    return ("ising" if "ising" in kinds else "potts"), int(states[0])


def _fields(graph: FactorGraph, states: int) -> NDArray[np.float64]:
    rows = np.zeros((len(graph), states))
    for group in graph.factors:
        if isinstance(group, Unary) and len(group):
            np.add.at(rows, group.scope[:, 0], group.log_potential)
    return rows


def _refuse_zeros(graph: FactorGraph, rows: NDArray[np.float64]) -> None:
    """Raise for a forbidden value, since fields are finite."""
    if np.isinf(rows).any():
        variable = int(np.argwhere(np.isinf(rows))[0][0])
        raise GraphError(
            f"{graph.domains.describe(variable)}: a field cannot forbid a value, as "
            "a log-potential of -inf does; clamp the variable (graph.condition), or give "
            "bipartite=True"
        )


def _bipartite(result: Any, graph: FactorGraph, names: list[str]) -> Any:
    result.add_nodes_from(names, bipartite=0)
    for number, group in enumerate(graph.factors):
        for factor, row in enumerate(group.scope.tolist()):
            node = (number, factor)
            result.add_node(node, bipartite=1, kind=group.kind)
            result.add_edges_from((names[variable], node) for variable in row)
    return result
