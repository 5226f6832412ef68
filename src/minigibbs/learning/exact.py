"""Exact expectations of statistics, and log Z, given evidence: for graphs of low treewidth."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.exact.elimination import EliminationTree
from minigibbs.graph.data import Data
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.statistics import add_statistics
from minigibbs.system.watch import current

_MOST = 20_000_000  # most values of the statistics of all states


class Expectations(ABC):
    """Log Z and expected statistics of a graph's parameters, under any evidence."""

    @abstractmethod
    def of(
        self, values: NDArray[np.float64], evidence: NDArray[np.int32]
    ) -> tuple[float, NDArray[np.float64]]:
        """Return log Z and the mean statistics with these parameters and this evidence."""

    def of_data(self, values: NDArray[np.float64], data: Data) -> tuple[float, NDArray[np.float64]]:
        """Return the means over rows of log Z and statistics given each row.

        Raise `StopError` if the present call must end.
        """
        watch = current()
        log_z, total = 0.0, np.zeros(len(values))
        rows = [data.evidence(row) for row in range(len(data))]
        distinct, which = np.unique(np.array(rows), axis=0, return_inverse=True)
        share = np.bincount(which.ravel(), data.weight) / data.weight.sum()
        for row, part in zip(distinct.astype(np.int32), share.tolist(), strict=True):
            if part:
                watch.check()
                one, means = self.of(values, row)
                if one == -math.inf:
                    raise LearnError(f"data: a row has probability 0 in this graph: {row.tolist()}")
                log_z, total = log_z + part * one, total + part * means
        return log_z, total


class Enumerated(Expectations):
    """Expectations over all states, whose statistics are stored."""

    def __init__(self, graph: FactorGraph) -> None:
        """Enumerate all states that match the graph's evidence."""
        choices = [
            range(int(size)) if fixed == FREE else (int(fixed),)
            for size, fixed in zip(graph.sizes, graph.evidence, strict=True)
        ]
        self.states = np.array(list(itertools.product(*choices)), dtype=graph.state_type)
        self.rows = graph.frame.statistics(self.states)
        values = graph.frame.flat(graph.factors)
        finite = np.where(np.isfinite(values), values, 0.0)
        rest = graph.with_flat(finite).log_potential(self.states) - self.rows @ finite
        self.rest = np.asarray(rest)

    def log_potential(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the log-potential of every state; entries of tables may be -inf."""
        infinite = np.isinf(values)
        whole: NDArray[np.float64] = self.rows @ np.where(infinite, 0.0, values) + self.rest
        if infinite.any():
            whole[self.rows[:, infinite].any(axis=1)] = -math.inf
        return whole

    @staticmethod
    def possible(graph: FactorGraph) -> bool:
        """Return whether the statistics of all states can be stored."""
        free = graph.sizes[graph.evidence == FREE].tolist()
        return bool(math.prod(free) * (graph.frame.size + len(graph)) <= _MOST)

    def of(
        self, values: NDArray[np.float64], evidence: NDArray[np.int32]
    ) -> tuple[float, NDArray[np.float64]]:
        """Sum over the states that match the evidence."""
        clamped = np.flatnonzero(evidence != FREE)
        agree = (self.states[:, clamped] == evidence[clamped]).all(axis=1)
        rows, energy = self.rows[agree], self.log_potential(values)[agree]
        top = energy.max(initial=-math.inf)
        if top == -math.inf:
            return -math.inf, np.zeros(len(values))
        distribution = np.exp(energy - top)
        return float(top + math.log(distribution.sum())), (distribution / distribution.sum()) @ rows


class Eliminated(Expectations):
    """Expectations by variable elimination: joint marginals of every factor's variables."""

    def __init__(self, graph: FactorGraph) -> None:
        """Check that the graph's treewidth is low enough; raise `TooLargeError` if not."""
        self.graph = graph
        EliminationTree.of(graph)

    def of(
        self, values: NDArray[np.float64], evidence: NDArray[np.int32]
    ) -> tuple[float, NDArray[np.float64]]:
        """Make two passes over the elimination tree."""
        graph = self.graph.with_flat(values)
        known = np.where(self.graph.evidence == FREE, evidence, self.graph.evidence)
        if (known != self.graph.evidence).any():
            graph = FactorGraph(graph.domains, graph.factors, evidence=known)
        tree = EliminationTree.of(graph)
        with tree.reserved():
            log_z = tree.upward()
            if log_z == -math.inf:
                return log_z, np.zeros(len(values))
            return log_z, _expected(self.graph, tree)


def _expected(graph: FactorGraph, tree: EliminationTree) -> NDArray[np.float64]:
    """Return the mean statistics, from the joint marginals of each scope."""
    frame = graph.frame
    scopes: dict[frozenset[int], list[int]] = {}
    model, pairs = frame.structure, len(frame.structure.pair)
    for number in _learned(graph):
        if number < pairs:
            scope = model.pair[number].tolist()
        else:
            factor = model.factors[number - pairs]
            slots = model.slots[factor["scope_start"] : factor["scope_end"]]
            scope = slots["variable"].tolist()
        open_ones = frozenset(v for v in scope if tree.sizes[v] > 1)
        scopes.setdefault(open_ones, []).append(number)
    settled = np.array([tree.values(v)[0] for v in range(len(graph))], dtype=graph.state_type)
    total = frame.constant.copy()
    for scope_, joint in ((), np.ones(())), *tree.leaf_marginals():
        numbers = scopes.pop(frozenset(scope_), [])
        _add_expected(graph, tree, scope_, joint, settled, numbers, total)
    assert not scopes, "every factor has a leaf"
    return total


def _learned(graph: FactorGraph) -> list[int]:
    """Return the indices of the factors that have parameters, pairs first."""
    ties = graph.frame.ties
    general = len(ties.pair) + np.flatnonzero(ties.factor >= 0)
    return [*np.flatnonzero(ties.pair >= 0).tolist(), *general.tolist()]


def _add_expected(
    graph: FactorGraph,
    tree: EliminationTree,
    scope: tuple[int, ...],
    joint: NDArray[np.float64],
    settled: NDArray[Any],
    numbers: list[int],
    total: NDArray[np.float64],
) -> None:
    """Add the mean statistics of the factors over one scope."""
    columns = np.repeat(settled[:, None], joint.size, axis=1)
    for variable, places in zip(scope, np.indices(joint.shape), strict=True):
        columns[variable] = tree.values(variable)[places.ravel()]
    distribution, frame = np.ascontiguousarray(joint.ravel()), graph.frame
    for number in numbers:
        add_statistics(
            frame.structure, frame.ties, columns, distribution, number, number + 1, total
        )
