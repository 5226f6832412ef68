"""Exact queries: joint marginals, probabilities of evidence, mean log-potentials, MAP values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError
from minigibbs.exact.contraction import LARGEST
from minigibbs.exact.elimination import EliminationTree, possible
from minigibbs.graph.factors import Table
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.rounding import warn_of_rounding


def joint_marginal(
    graph: FactorGraph, variables: Sequence[int], memory: float | None = None
) -> NDArray[np.float64]:
    """Return the joint marginal of some variables, with one axis per variable and full domains.

    >>> import minigibbs as mg
    >>> chain = mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], 0.5)])
    >>> joint_marginal(chain, (0, 2)).round(3)
    array([[0.303, 0.197],
           [0.197, 0.303]])
    """
    if len(set(variables)) != len(variables):
        raise GraphError(f"a joint marginal needs different variables, got {list(variables)}")
    tree = EliminationTree.of(graph, memory, joint=(tuple(variables),))
    result = np.zeros([int(graph.sizes[v]) for v in variables])
    with tree.reserved():
        possible(tree)
        open_ones = [v for v in variables if tree.sizes[v] > 1]
        table, scope = np.ones(()), tuple[int, ...]()
        if open_ones:
            scope, table = next(
                (some, joint)
                for some, joint in tree.leaf_marginals()
                if set(some) == set(open_ones)
            )
    table = table.transpose([scope.index(v) for v in open_ones])
    places = np.ix_(*(tree.values(v) for v in variables))
    result[places] = table.reshape([int(tree.sizes[v]) for v in variables])
    return result


def most_probable_values(
    graph: FactorGraph, variables: Sequence[int], memory: float | None = None
) -> tuple[list[int], float]:
    """Return the most probable joint values of some variables, and the logarithm of their weight.

    All other variables are summed out first. The tables that are left are those of a graph over the
    given variables, which max-product elimination maximizes.

    >>> import minigibbs as mg
    >>> chain = mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], 0.5)])
    >>> most_probable_values(chain.condition({0: 1}), (0, 2))[0]
    [1, 1]
    """
    if len(set(variables)) != len(variables):
        raise GraphError(f"a query needs different variables, got {list(variables)}")
    tree = EliminationTree.of(graph, memory, kept=variables)
    with tree.reserved():
        constant, tables = tree.rest()
    place = {v: k for k, v in enumerate(variables)}
    groups = [Table([[place[v] for v in scope]], logs) for scope, logs in tables]
    state, weight = best_state(FactorGraph(tree.sizes[list(variables)], groups), memory)
    found = [int(tree.values(v)[k]) for v, k in zip(variables, state.tolist(), strict=True)]
    return found, constant + weight


def log_evidence(
    graph: FactorGraph, evidence: Mapping[int | str, Any], log_z: float, memory: float | None = None
) -> float:
    """Return the logarithm of the probability of evidence in a graph with a known log Z."""
    warn_of_rounding(graph, log_z)
    tree = EliminationTree.of(graph.condition(evidence), memory)
    with tree.reserved():
        return min(tree.upward() - log_z, 0.0)


def log_likelihood(
    graph: FactorGraph,
    logs: Mapping[int, NDArray[np.float64]],
    log_z: float,
    memory: float | None = None,
) -> float:
    """The logarithm of the expected product of likelihoods, given as one logarithm per value."""
    warn_of_rounding(graph, log_z)
    tree = EliminationTree.of(graph, memory, joint=tuple((v,) for v in logs))
    with tree.reserved():
        left = {v: some[tree.values(v)] for v, some in logs.items()}
        settled = sum(float(some[0]) for v, some in left.items() if tree.sizes[v] == 1)
        if settled == -math.inf:
            return settled
        weights = {v: some[None] for v, some in left.items() if tree.sizes[v] > 1}
        return settled + float(tree.upward_rows(weights)[0]) - log_z


def mean_log_potential(graph: FactorGraph, memory: float | None = None) -> float:
    """Return the expected log-potential, from the joint marginals of all factors."""
    tree = EliminationTree.of(graph, memory)
    with tree.reserved():
        possible(tree)
        constant, tables = tree.tables()
        total = constant
        for table, (_, joint) in zip(tables, tree.leaf_marginals(), strict=True):
            total += float((table[0] * joint).sum(where=joint > 0))
        return total


def best_state(graph: FactorGraph, memory: float | None = None) -> tuple[NDArray[Any], float]:
    """Return the most probable state and its log-potential, by max-product elimination.

    >>> import minigibbs as mg
    >>> chain = mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], [1.0, -1.0])])
    >>> best_state(chain.condition({0: 1}))[0].tolist()
    [1, 1, 0]
    """
    tree = EliminationTree.of(graph, memory)
    with tree.reserved():
        if tree.upward(LARGEST) == -math.inf:
            possible(tree)
        states = np.zeros((1, len(graph)), dtype=graph.state_type)
        tree.most_probable(states)
    return states[0], float(graph.log_potential(states[0]))
