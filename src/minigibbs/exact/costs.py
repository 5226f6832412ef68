"""Graphs as cost function networks, the input of weighted constraint solvers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from minigibbs.exact.elimination import EliminationTree
from minigibbs.graph.graph import FactorGraph

CostFunction = tuple[tuple[int, ...], NDArray[np.float64]]  # variables, and one axis per variable


def cost_functions(graph: FactorGraph) -> tuple[float, list[CostFunction]]:
    """Return a constant, and tables of costs of at least 0: the log-potential is constant - costs.

    Every table covers the full domains of its variables. An infinite cost forbids a state. Evidence
    becomes a cost function too.

    >>> import minigibbs as mg
    >>> cost_functions(mg.FactorGraph([2], [mg.Unary([0], [[0.0, 1.5]])]))
    (1.5, [((0,), array([1.5, 0. ]))])
    """
    whole = graph.stored() if graph.implicits else graph
    free = EliminationTree.written(FactorGraph(whole.domains, whole.factors))
    model, found = free.graph.packed, list[CostFunction]()
    constant = free.graph.offset
    for number in range(len(model.pair) + len(model.factors)):
        scope, logs = free.factor(number)
        top = float(logs.max())
        if top == -math.inf:  # no state is possible
            found.append(((0,), np.full(int(graph.sizes[0]), math.inf)))
            continue
        constant += top
        if (logs != top).any():
            found.append((scope, top - logs))
    for variable in np.flatnonzero(graph.evidence >= 0).tolist():
        cost = np.full(int(graph.sizes[variable]), math.inf)
        cost[graph.evidence[variable]] = 0.0
        found.append(((variable,), cost))
    return constant, found


def top_cost(costs: list[CostFunction]) -> float:
    """Return a cost that no allowed state reaches: 1 plus the sum of the largest finite costs."""
    finite = (float(table.max(initial=0.0, where=np.isfinite(table))) for _, table in costs)
    return 1.0 + sum(finite)
