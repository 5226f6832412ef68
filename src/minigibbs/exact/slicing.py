"""Exact answers beyond the memory: variables are fixed at each of their values in turn.

A slice is the graph with some variables observed. The sum of Z over all slices is Z of the graph,
and its marginals are those of the slices, weighted by their Z. Every slice follows the same tree of
products with smaller tables. Work that does not depend on the observed variables is repeated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError, TooLargeError
from minigibbs.exact.device import Card
from minigibbs.exact.elimination import EliminationTree, budget_of, exact_answer
from minigibbs.exact.plan import Plan
from minigibbs.graph.graph import FactorGraph
from minigibbs.system.watch import current

_MOST = 1 << 12  # slices
_MARGIN = 0.9  # share of the memory that a slice may take


@dataclass(frozen=True)
class Slices:
    """A graph, the variables that are fixed, and the tree of the first slice."""

    graph: FactorGraph
    variables: tuple[int, ...]
    values: list[list[int]]
    first: EliminationTree
    memory: float | None
    card: Card | None

    @property
    def count(self) -> int:
        """Number of slices."""
        return math.prod(map(len, self.values))

    @property
    def seconds(self) -> float:
        """Predicted seconds of all slices on this machine."""
        return self.count * self.first.seconds

    def trees(self) -> Iterator[EliminationTree]:
        """Yield the tree of every slice."""
        for number, values in enumerate(itertools.product(*self.values)):
            current().check()
            if number == 0:
                yield self.first
                continue
            evidence: dict[int | str, Any] = dict(zip(self.variables, values, strict=True))
            yield EliminationTree.of(self.graph.condition(evidence), self.memory, card=self.card)


def sliced(graph: FactorGraph, memory: float | None = None, card: Card | None = None) -> Slices:
    """Choose variables to fix, so that the tables of every slice fit into memory.

    Raises `TooLargeError` if more than 4,096 slices are needed.

    >>> import minigibbs as mg
    >>> grid = mg.models.ising_lattice(side=9, beta=0.4, periodic=False)
    >>> sliced(grid, memory=2e4).count > 1
    True
    """
    budget = budget_of(memory, card)
    tree = EliminationTree.ordered(graph, _MOST * max(budget / 8, 1.0))
    chosen = _chosen(tree.plan, tree.sizes, _MARGIN * budget)
    values = [tree.values(v).tolist() for v in chosen]
    evidence: dict[int | str, Any] = {v: own[0] for v, own in zip(chosen, values, strict=True)}
    first = EliminationTree.of(tree.graph.condition(evidence), memory, card=card)
    return Slices(tree.graph, chosen, values, first, memory, card)


def _chosen(plan: Plan, sizes: NDArray[np.int64], budget: float) -> tuple[int, ...]:
    """Choose the variables one by one: the one whose values leave the least work in all."""
    arrays, bits = plan.arrays, np.log2(sizes)
    node = np.repeat(np.arange(len(plan.scopes)), np.diff(arrays.start))
    wide = np.bincount(node, bits[arrays.variable], minlength=len(plan.scopes))
    chosen = list[int]()
    while True:
        tables = np.exp2(wide)
        if EliminationTree.bytes(tables.sum(), tables.max(initial=1.0)) <= budget:
            return tuple(chosen)
        inside = np.bincount(arrays.variable, tables[node], minlength=len(sizes))
        left = sizes * (tables.sum() - inside) + inside  # entries in all slices together
        left[chosen] = np.inf
        best = int(np.where((sizes > 1) & (inside > 0), left, np.inf).argmin())
        useless = inside[best] == 0 or best in chosen
        if useless or math.prod(sizes[[*chosen, best]].tolist()) > _MOST:
            raise TooLargeError("exact answers would need too many slices; sample the graph")
        chosen.append(best)
        wide[node[arrays.variable == best]] -= bits[best]


def sliced_answer(slices: Slices) -> tuple[NDArray[np.float64], float]:
    """Return marginals [sum of sizes] and log Z; raise `GraphError` if no state is possible."""
    total, log_z, impossible = np.zeros(int(slices.graph.sizes.sum())), -math.inf, None
    for tree in slices.trees():
        try:
            flat, own = exact_answer(tree)
        except GraphError as error:  # no state has these values
            impossible = error
            continue
        both = float(np.logaddexp(log_z, own))
        total = total * math.exp(log_z - both) + flat * math.exp(own - both)
        log_z = both
    if log_z == -math.inf and impossible is not None:
        raise impossible
    return total, log_z
