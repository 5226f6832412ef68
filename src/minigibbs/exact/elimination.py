"""Exact marginals and log Z of graphs of small treewidth, by variable elimination.

Each variable, in its turn, takes the factors and messages that hold it, sums itself out, and sends
the rest on as a message (a bucket tree). Going back, every variable learns what the rest of the
graph says about its clique, so that two passes give all marginals. Tables hold logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minigibbs.exact.ordering import Order, order_variables, refuse_dense
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.layout import EQUAL, TABLE
from minigibbs.system import memory

Table = NDArray[np.float64]


def exact_marginals(graph: FactorGraph) -> NDArray[np.float64]:
    """Exact marginals [variable, value], 0 beyond a variable's domain.

    By variable elimination, for graphs of small treewidth: chains, trees and narrow grids of any
    length, or anything small. Time and memory grow exponentially with the treewidth; a graph that
    would need too much is refused before any memory is taken.

    Examples
    --------
    A chain of 1,000 spins, far too many states to enumerate:

    >>> import minigibbs as mg
    >>> chain = mg.FactorGraph([2] * 1000, [mg.Ising(range(999), range(1, 1000), 0.7)])
    >>> exact_marginals(chain.condition({0: 1}))[1].round(4)
    array([0.1978, 0.8022])
    """
    tree = _BucketTree.of(graph)
    memory.require(
        8 * (len(graph) * int(graph.sizes.max()) + 2 * tree.entries()),
        f"exact marginals of {len(graph):,} variables",
        "use mg.sample",
    )
    tree.upward(keep=True)
    result = np.zeros((len(graph), int(graph.sizes.max())))
    clamped = graph.evidence != FREE
    result[clamped, graph.evidence[clamped]] = 1.0
    result[~clamped & (graph.sizes == 1), 0] = 1.0
    for variable, marginal in tree.downward():
        result[variable, : len(marginal)] = marginal
    return result


def log_partition(graph: FactorGraph) -> float:
    """Log Z: the logarithm of the sum of exp(energy) over all states that agree with the evidence.

    By variable elimination, as `exact_marginals`.

    >>> import minigibbs as mg
    >>> round(log_partition(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])), 6)
    1.506409
    """
    return _BucketTree.of(graph).upward()


def treewidth_bound(graph: FactorGraph) -> int:
    """The width of the elimination order that `exact_marginals` would use.

    >>> import minigibbs as mg
    >>> treewidth_bound(mg.models.ising_lattice(side=5, beta=0.4, periodic=False))
    5
    """
    return _BucketTree.of(graph).order.width


@dataclass
class _BucketTree:
    """One bucket per variable, which holds a table over the variable's clique."""

    graph: FactorGraph
    order: Order
    buckets: dict[int, Table]  # by variable; kept on the way up
    messages: dict[int, Table]  # sent by each variable on the way up

    @classmethod
    def of(cls, graph: FactorGraph) -> _BucketTree:
        implicit = graph.implicit
        if implicit is not None and (graph.evidence == FREE).all():
            refuse_dense(int(implicit.degrees().sum()) // 2, graph.sizes)
        whole = graph if implicit is None else graph.stored()
        model, free = whole.packed, whole.evidence == FREE
        sizes = np.where(free, whole.sizes, 1).astype(np.int32)
        slots = np.where(free[model.slots["variable"]], model.slots["variable"], -1)
        arity = model.factors["scope_end"] - model.factors["scope_start"]
        scopes = [np.where(free[model.pair], model.pair, -1)]
        for count in np.unique(arity):
            start = model.factors["scope_start"][arity == count]
            scopes.append(slots[start[:, None] + np.arange(count)])
        return cls(whole, order_variables(sizes, scopes), {}, {})

    def entries(self) -> int:
        """Entries of all tables together."""
        sizes = self.graph.sizes.astype(object)
        return sum(int(np.prod(sizes[list(clique)])) for clique in self.order.cliques)

    def upward(self, keep: bool = False) -> float:
        """Sum the variables out one by one; returns log Z. `keep` what the way back needs."""
        position = {v: k for k, v in enumerate(self.order.variables)}
        held: dict[int, list[tuple[tuple[int, ...], Table]]] = {v: [] for v in position}
        log_z = self._deal(held, position)
        for variable, clique in zip(self.order.variables, self.order.cliques, strict=True):
            table = np.zeros([self.graph.sizes[v] for v in clique])
            for scope, part in held.pop(variable):
                table += _spread(part, scope, clique)
            message = _log_sum(table, (0,))
            if keep:
                self.buckets[variable], self.messages[variable] = table, message
            if len(clique) == 1:
                log_z += float(message)
            else:
                held[clique[1]].append((clique[1:], message))
        return log_z

    def downward(self) -> list[tuple[int, NDArray[np.float64]]]:
        """Complete the buckets from the last to the first; returns each variable's marginal."""
        cliques = dict(zip(self.order.variables, self.order.cliques, strict=True))
        marginals = []
        for variable in reversed(self.order.variables):
            clique, table = cliques[variable], self.buckets[variable]
            if len(clique) > 1:
                parent = cliques[clique[1]]
                outside = tuple(k for k, v in enumerate(parent) if v not in clique)
                rest = _log_sum(self.buckets[clique[1]], outside) - self.messages[variable]
                table += rest  # over all of the clique but the variable, which is axis 0
            own = _log_sum(table, tuple(range(1, table.ndim)))
            weights = np.exp(own - own.max())
            marginals.append((variable, weights / weights.sum()))
        return marginals

    def _deal(
        self,
        held: dict[int, list[tuple[tuple[int, ...], Table]]],
        position: dict[int, int],
    ) -> float:
        """Give each factor to the first of its variables to go; returns the constant ones."""
        constant = self.graph.offset
        for scope, table in self._factors():
            if not scope:
                constant += float(table)
                continue
            axes = sorted(range(len(scope)), key=lambda k: position[scope[k]])
            ordered = tuple(scope[k] for k in axes)
            held[ordered[0]].append((ordered, table.transpose(axes)))
        return constant

    def _factors(self) -> list[tuple[tuple[int, ...], Table]]:
        """Every factor as a table over those of its variables that are not settled."""
        model = self.graph.packed
        found = [
            self._cut((i, j), np.eye(self.graph.sizes[i], self.graph.sizes[j]) * weight)
            for (i, j), weight in zip(model.pair.tolist(), model.pair_weight, strict=True)
        ]
        for factor in model.factors:
            slots = model.slots[factor["scope_start"] : factor["scope_end"]]
            found.append(self._general(factor, slots))
        return found

    def _cut(self, scope: tuple[int, ...], table: Table) -> tuple[tuple[int, ...], Table]:
        """Fix the clamped axes of a table, and drop those of one value."""
        index = tuple(
            slice(None) if self._open(v) else max(int(self.graph.evidence[v]), 0) for v in scope
        )
        return tuple(v for v in scope if self._open(v)), np.asarray(table[index])

    def _general(self, factor: np.void, slots: NDArray[np.void]) -> tuple[tuple[int, ...], Table]:
        """A table or a formula, written out over its open variables."""
        scope = tuple(v for v in slots["variable"].tolist() if self._open(v))
        place, true = np.int64(factor["table_start"]), np.int64(0)
        for variable, key in slots.tolist():
            values = np.array(max(int(self.graph.evidence[variable]), 0))
            if self._open(variable):
                axis = scope.index(variable)
                values = np.arange(self.graph.sizes[variable])
                values = values.reshape([-1 if k == axis else 1 for k in range(len(scope))])
            place, true = place + key * values, true + (values == key)
        if factor["form"] == TABLE:
            return scope, factor["weight"] * self.graph.packed.table[place]
        holds = true == len(slots)
        if factor["form"] == EQUAL:
            holds = holds | (true == 0)
        return scope, factor["weight"] * np.asarray(holds, dtype=np.float64)

    def _open(self, variable: int) -> bool:
        return bool(self.graph.evidence[variable] == FREE and self.graph.sizes[variable] > 1)


def _spread(table: Table, scope: tuple[int, ...], clique: tuple[int, ...]) -> Table:
    """A table over some of a clique's variables, in its order, shaped to be added to all."""
    own = dict(zip(scope, table.shape, strict=True))
    return table.reshape([own.get(v, 1) for v in clique])


def _log_sum(table: Table, axes: tuple[int, ...]) -> Table:
    """The logarithm of the sum of exp over some axes."""
    if not axes:
        return table
    top = table.max(axis=axes, keepdims=True)
    total: Table = np.log(np.exp(table - top).sum(axis=axes)) + top.squeeze(axis=axes)
    return total
