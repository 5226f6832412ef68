"""Exact marginals, log Z and independent draws of graphs of small treewidth.

By variable elimination. Each variable, in its turn, takes the factors and messages that hold it,
sums itself out, and sends the rest on as a message (a bucket tree). Going back, every variable
learns what the rest of the graph says about its clique, so that two passes give all marginals. The
table over a clique is never written down: its entries are products that are made where they are
summed, so that memory holds messages alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.exact.ordering import Order, order_variables, refuse_dense
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.layout import EQUAL, TABLE
from minigibbs.kernels.tables import log_sum_products, sum_products
from minigibbs.system import memory as machine

Table = NDArray[np.float64]
DEFAULT_MEMORY = 4 * 2**30  # bytes, or half of what is free if that is less
# Where the factors at a message's variables have a range of e^1300 at most, either those below or
# those above have e^650 at most. An entry that is lost as less than 1e-308 of the largest is then
# worth less than e^-58 of the whole: plain numbers will do.
_LARGEST = 1300.0
_SMALL = 1 << 10  # entries of tables that are put together beforehand
_SPLIT = 1 << 16  # entries of a message that are worth a thread of their own
_AT_ONCE = 1 << 22  # entries summed between two looks at Ctrl-C
_DRAWS = 1 << 16  # independent draws made at a time


def exact_marginals(graph: FactorGraph, memory: float | None = None) -> NDArray[np.float64]:
    """Exact marginals [variable, value], 0 beyond a variable's domain.

    By variable elimination, for graphs of small treewidth: chains, trees and narrow grids of any
    length, or anything small. Time and memory grow exponentially with the treewidth; a graph that
    would need too much is refused before any memory is taken.

    Parameters
    ----------
    graph
        The model, conditioned on evidence or not.
    memory
        Bytes that may be used; by default 4 GiB, or half of what is free if that is less.

    Examples
    --------
    A chain of 1,000 spins, far too many states to enumerate:

    >>> import minigibbs as mg
    >>> chain = mg.FactorGraph([2] * 1000, [mg.Ising(range(999), range(1, 1000), 0.7)])
    >>> exact_marginals(chain.condition({0: 1}))[1].round(4)
    array([0.1978, 0.8022])
    """
    tree = BucketTree.of(graph, memory)
    tree.upward()
    result = np.zeros((len(graph), int(graph.sizes.max())))
    clamped = graph.evidence != FREE
    result[clamped, graph.evidence[clamped]] = 1.0
    result[~clamped & (graph.sizes == 1), 0] = 1.0
    for variable, marginal in tree.downward():
        result[variable, : len(marginal)] = marginal
    return result


def log_partition(graph: FactorGraph, memory: float | None = None) -> float:
    """Log Z: the logarithm of the sum of exp(energy) over all states that agree with the evidence.

    By variable elimination, as `exact_marginals`.

    >>> import minigibbs as mg
    >>> round(log_partition(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])), 6)
    1.506409
    """
    return BucketTree.of(graph, memory).upward()


def exact_draws(
    graph: FactorGraph, count: int, seed: int | None = None, memory: float | None = None
) -> NDArray[np.unsignedinteger]:
    """Independent draws from the model, [draw, variable]: no chain, nothing to converge.

    By variable elimination, as `exact_marginals`; then each draw costs O(variables).

    >>> import minigibbs as mg
    >>> grid = mg.models.ising_lattice(side=8, beta=0.4, periodic=False)
    >>> exact_draws(grid, 1000, seed=1).shape
    (1000, 64)
    """
    tree = BucketTree.of(graph, memory)
    tree.upward()
    rng = np.random.default_rng(seed)
    states = np.empty((count, len(graph)), dtype=graph.state_type)
    states[:] = np.maximum(graph.evidence, 0)  # what is not clamped and not drawn has one value
    for first in range(0, count, _DRAWS):
        tree.draw(states[first : first + _DRAWS], rng)
    return states


def treewidth_bound(graph: FactorGraph) -> int:
    """The width of the elimination order that `exact_marginals` would use.

    >>> import minigibbs as mg
    >>> treewidth_bound(mg.models.ising_lattice(side=5, beta=0.4, periodic=False))
    5
    """
    return BucketTree.of(graph).order.width


class Part(NamedTuple):
    """A factor, or a message, over some variables in the order of elimination."""

    scope: tuple[int, ...]
    table: Table  # of numbers, or of their logarithms: see `BucketTree.logs`


@dataclass
class BucketTree:
    """One bucket per variable: the factors and messages that it takes in its turn."""

    graph: FactorGraph
    order: Order
    logs: bool  # whether tables hold logarithms, since numbers might leave the range of doubles
    parts: dict[int, list[Part]] = field(default_factory=dict)  # by variable
    messages: dict[int, Table] = field(default_factory=dict)  # sent by each variable

    @classmethod
    def of(cls, graph: FactorGraph, memory: float | None = None) -> BucketTree:
        """The tree of a graph, or `TooLargeError` if it does not fit."""
        budget = min(DEFAULT_MEMORY, machine.available() / 2) if memory is None else memory
        most = max(budget / 8, 1.0)  # entries
        if graph.implicits and (graph.evidence == FREE).all():
            most_pairs = max(int(group.degrees().sum()) // 2 for group in graph.implicits)
            refuse_dense(most_pairs, graph.sizes, most)
        whole = graph.stored() if graph.implicits else graph
        order = order_variables(*_scopes(whole), most)
        strong = max(
            (float(whole.local_energies[list(clique[1:])].sum()) for clique in order.cliques),
            default=0.0,
        )
        return cls(whole, order, logs=strong > _LARGEST)

    def upward(self) -> float:
        """Sum the variables out one by one; returns log Z."""
        position = {v: k for k, v in enumerate(self.order.variables)}
        self.parts = {v: [] for v in position}
        log_z = self._deal(position)
        for variable, clique in zip(self.order.variables, self.order.cliques, strict=True):
            self.parts[variable] = self._merged(clique, self.parts[variable])
            message = self._sum(clique, self.parts[variable], clique[1:])
            message, scale = self._scaled(message)
            log_z += scale
            if len(clique) > 1:
                self.messages[variable] = message
                self.parts[clique[1]].append(Part(clique[1:], message))
        return log_z

    def downward(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Tell every bucket of the rest of the graph, the last first; gives each marginal."""
        children: dict[int, list[int]] = {v: [] for v in self.order.variables}
        cliques = dict(zip(self.order.variables, self.order.cliques, strict=True))
        for variable, clique in cliques.items():
            if len(clique) > 1:
                children[clique[1]].append(variable)
        told: dict[int, Part] = {}  # what the parent says about all of a clique but its variable
        for variable in reversed(self.order.variables):
            clique, parts = cliques[variable], self.parts.pop(variable)
            if variable in told:
                parts.append(told.pop(variable))
            flow: Table | None = None
            axes: tuple[int, ...] = (variable,)
            for child in children[variable]:
                axes = cliques[child][1:]
                flow = self._sum(clique, parts, axes)
                told[child] = Part(axes, self._divided(flow, self.messages.pop(child)))
            if flow is None:
                flow = self._sum(clique, parts, axes)
            yield variable, self._marginal(flow)

    def draw(self, states: NDArray[np.unsignedinteger], rng: np.random.Generator) -> None:
        """Fill rows with independent draws, the last variable first, after `upward`."""
        cliques = dict(zip(self.order.variables, self.order.cliques, strict=True))
        for variable in reversed(self.order.variables):
            weights: Table = np.zeros((len(states), int(self.graph.sizes[cliques[variable][0]])))
            for scope, table in self.parts[variable]:
                index: tuple[Any, ...] = (slice(None), *(states[:, v] for v in scope[1:]))
                rows = table[index].reshape(len(table), -1).T
                with np.errstate(divide="ignore"):
                    weights += rows if self.logs else np.log(rows)
            weights -= weights.max(axis=1, keepdims=True)
            totals = np.exp(weights, out=weights).cumsum(axis=1)
            marks = rng.random(len(states)) * totals[:, -1]
            states[:, variable] = (totals[:, :-1] <= marks[:, None]).sum(axis=1)

    def _sum(self, clique: tuple[int, ...], parts: list[Part], kept: tuple[int, ...]) -> Table:
        """The product of parts over a clique, summed over all but the `kept` variables."""
        axes = (*kept, *(v for v in clique if v not in kept))
        sizes = np.array([self.graph.sizes[v] for v in axes], dtype=np.int64)
        out = np.empty(math.prod(sizes[: len(kept)].tolist()))
        if not parts:
            parts = [Part((), np.zeros(()) if self.logs else np.ones(()))]
        strides = np.array([_strides(part, axes) for part in parts], dtype=np.int64)
        starts = np.cumsum([0, *(part.table.size for part in parts[:-1])])
        values = np.concatenate([part.table.ravel() for part in parts])
        summed = log_sum_products if self.logs else sum_products

        def fill(first: int, last: int) -> None:
            digits = np.zeros(len(axes), dtype=np.int64)
            digits[: len(kept)] = np.unravel_index(first, sizes[: len(kept)]) if kept else 0
            offsets = starts + strides @ digits
            summed(values, offsets, strides, sizes, digits, len(kept), out[first:last])

        _in_pieces(fill, len(out))
        return out.reshape(sizes[: len(kept)])

    def _merged(self, clique: tuple[int, ...], parts: list[Part]) -> list[Part]:
        """The same product in fewer parts: small tables become one, if that is small too."""
        small = [part for part in parts if part.table.size <= _SMALL]
        joint = {v for part in small for v in part.scope}
        scope = tuple(v for v in clique if v in joint)
        shape = [int(self.graph.sizes[v]) for v in scope]
        if len(small) < 2 or math.prod(shape) > _SMALL:
            return parts
        table = np.zeros(shape) if self.logs else np.ones(shape)
        for part in small:
            own = dict(zip(part.scope, part.table.shape, strict=True))
            spread = part.table.reshape([own.get(v, 1) for v in scope])
            table = table + spread if self.logs else table * spread
        return [Part(scope, table), *(part for part in parts if part.table.size > _SMALL)]

    def _scaled(self, message: Table) -> tuple[Table, float]:
        """A message with its largest entry at 1, and the logarithm that it was scaled by."""
        top = float(message.max())
        if self.logs:
            return message - top, top
        return message / top, math.log(top)

    def _divided(self, flow: Table, message: Table) -> Table:
        """What the rest of the graph says: the flow without the child's own message."""
        if self.logs:
            return self._scaled(np.where(message > -np.inf, flow - message, -np.inf))[0]
        told = np.divide(flow, message, out=np.zeros_like(flow), where=message > 0)
        return self._scaled(told)[0]

    def _marginal(self, flow: Table) -> NDArray[np.float64]:
        """The marginal of the first axis."""
        rows = flow.reshape(len(flow), -1)
        if self.logs:
            rows = np.exp(rows - rows.max())
        weights = rows.sum(axis=1)
        return weights / weights.sum()  # type: ignore[no-any-return]

    def _deal(self, position: dict[int, int]) -> float:
        """Give each factor to the first of its variables to go; returns the constant ones.

        Tables are shifted so that none overflows; what they are shifted by counts as constant.
        """
        constant = self.graph.offset
        for scope, table in self._factors():
            if not scope:
                constant += float(table)
                continue
            axes = sorted(range(len(scope)), key=lambda k: position[scope[k]])
            ordered = tuple(scope[k] for k in axes)
            top = float(table.max())
            constant += top
            shifted = np.ascontiguousarray((table - top).transpose(axes))
            self.parts[ordered[0]].append(Part(ordered, shifted if self.logs else np.exp(shifted)))
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


def _scopes(graph: FactorGraph) -> tuple[NDArray[np.int32], list[NDArray[np.int32]]]:
    """Domains, 1 where the evidence fixes a variable, and the scopes of all factors."""
    model, free = graph.packed, graph.evidence == FREE
    sizes = np.where(free, graph.sizes, 1).astype(np.int32)
    slots = np.where(free[model.slots["variable"]], model.slots["variable"], -1)
    arity = model.factors["scope_end"] - model.factors["scope_start"]
    scopes = [np.where(free[model.pair], model.pair, -1)]
    for count in np.unique(arity):
        start = model.factors["scope_start"][arity == count]
        scopes.append(slots[start[:, None] + np.arange(count)])
    return sizes, scopes


def _strides(part: Part, axes: tuple[int, ...]) -> list[int]:
    """How far an axis moves a part's flat table; 0 for axes that it does not have."""
    step = dict(zip(part.scope, (s // 8 for s in part.table.strides), strict=True))
    return [step.get(v, 0) for v in axes]


def _in_pieces(fill: Callable[[int, int], None], count: int) -> None:
    """Call fill(first, last) over a range: on threads if it is long, and never for long at once."""
    if count <= _SPLIT:
        fill(0, count)
        return
    workers = os.cpu_count() or 1
    piece = min(-(-count // workers), _AT_ONCE)
    with ThreadPoolExecutor(workers) as pool:
        firsts = range(0, count, piece)
        list(pool.map(lambda first: fill(first, min(first + piece, count)), firsts))
