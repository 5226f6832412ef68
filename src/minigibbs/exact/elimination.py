"""Exact marginals, log Z and independent draws of graphs of small treewidth.

By variable elimination. Each variable, in its turn, takes the factors and messages that hold it,
sums itself out, and sends the rest on as a message (a bucket tree). Going back, every variable
learns what the rest of the graph says about its clique, so that two passes give all marginals. The
table over a clique is never written down: its entries are products that are made where they are
summed, so that memory holds messages alone.

Values that zeros and evidence exclude (`graph.pruning`) are left out, which makes models narrower.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError, SampleError
from minigibbs.exact.ordering import Order, order_variables, refuse_dense
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.factors.implicit.base import Implicit
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.pruning import prune
from minigibbs.graph.rounding import warn_of_rounding
from minigibbs.kernels.layout import EQUAL, TABLE
from minigibbs.kernels.tables import log_sum_products, place_of, sum_products
from minigibbs.system import memory as machine
from minigibbs.system.boundary import checked
from minigibbs.system.watch import current

Table = NDArray[np.float64]
DEFAULT_MEMORY = 4 * 2**30  # bytes, or half of what is free if that is less
# Tables of plain numbers lose products below e^-708, the least normal double; they are scaled to a
# maximum of 1. Where the factors at a message's variables have a range of e^S together, those below
# or those above have at most e^(S/2). A lost entry is worth less than e^-58 of the whole, and plain
# numbers suffice, if the largest entry of a message is at least e^(S/2 - 650) before it is scaled.
# On the way back, sums hold what entries are worth in the whole, and S is 0.
_SPARE = 650.0
_LARGEST = 1200.0  # of S; beyond, tables hold logarithms
_FAINT = (
    1e-20  # of the largest entry of a product of small tables, which is then made of logarithms
)
# With zeros there is no such bound, and products are kept above the least normal double instead.
_LEAST = -700.0  # of the logarithm of a product
_SMALL = 1 << 12  # entries of tables that are put together beforehand
_BLOCK = 1 << 10  # entries whose products are made together
_SUMMED = 1 << 6  # entries that are summed at once
_SPLIT = 1 << 16  # entries of a message that are worth a thread of their own
_AT_ONCE = 1 << 22  # entries summed between two looks at Ctrl-C
_DRAWS = 1 << 16  # independent draws made at a time
_WEIGHTS = 1 << 20  # weights of values that are looked up at a time
_VARIABLE_BYTES = 2000  # Python objects of the order and the buckets, per variable
_FACTOR_BYTES = 300  # and per factor
_SECONDS_PER_VARIABLE = 3e-4  # of the two passes, about
_SECONDS_PER_PRODUCT = 6e-9  # on one processor


_WRITTEN = 5  # arrays of a factor's size while it is written out
_DIVIDED = 4  # arrays of a message's size while it is divided and scaled
_SMALL_BUDGET = 2**24  # bytes that are never worth a refusal
_MORE_MEMORY = "sample the graph (mg.sample), or allow more memory (memory=...)"


@checked(SampleError)
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
    warn_of_rounding(graph)
    return graph.domains.square(exact_answer(BucketTree.of(graph, memory))[0])


def exact_answer(tree: BucketTree) -> tuple[NDArray[np.float64], float]:
    """Marginals [sum of sizes] and log Z by a tree's two passes; `GraphError` for no state."""
    with tree.reserved():
        log_z, graph = possible(tree), tree.graph
        first = np.cumsum(graph.sizes, dtype=np.int64) - graph.sizes
        result = np.zeros(int(first[-1] + graph.sizes[-1]))
        for variable in np.flatnonzero(tree.sizes == 1).tolist():
            result[first[variable] + tree.values(variable)] = 1.0
        for variable, marginal in tree.marginals():
            result[first[variable] + tree.values(variable)] = marginal
    return result, log_z


@checked(SampleError)
def log_partition(graph: FactorGraph, memory: float | None = None) -> float:
    """Log Z: the logarithm of the sum of exp(energy) over all states that agree with the evidence.

    By variable elimination, as `exact_marginals`. It is -inf where no state is possible.

    >>> import minigibbs as mg
    >>> round(log_partition(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])), 6)
    1.506409
    """
    tree = BucketTree.of(graph, memory)
    with tree.reserved():
        return tree.upward()


@checked(SampleError)
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
    for name, number in (("count", count), ("seed", seed)):
        if number is not None and (number < 0 or isinstance(number, bool)):
            raise SampleError(f"{name} must be an integer of at least 0, got {number!r}")
    size = min(count, 2**62) * len(graph) * graph.state_type.itemsize
    machine.require(size, f"{count:,} draws of {len(graph):,} variables", "use a smaller count")
    warn_of_rounding(graph)
    tree = BucketTree.of(graph, memory)
    with tree.reserved():
        possible(tree)
        rng = np.random.default_rng(seed)
        states = np.empty((count, len(graph)), dtype=graph.state_type)
        for first in range(0, count, _DRAWS):
            tree.draw(states[first : first + _DRAWS], lambda rows, _: rng.random(rows))
    return states


@checked(SampleError)
def treewidth_bound(graph: FactorGraph) -> int:
    """The width of the elimination order that `exact_marginals` would use.

    >>> import minigibbs as mg
    >>> treewidth_bound(mg.models.ising_lattice(side=5, beta=0.4, periodic=False))
    5
    """
    return BucketTree.of(graph).order.width


def possible(tree: BucketTree) -> float:
    """Log Z, by a tree's upward pass, or `GraphError` if no state is possible."""
    log_z = tree.upward()
    if log_z == -math.inf:
        clamped = (tree.graph.evidence != FREE).any()
        what = "the evidence" if clamped else "every state"
        why = "its zeros exclude it" if clamped else "its zeros contradict each other"
        raise GraphError(f"{what} has probability 0 in this graph: {why}; there are no marginals")
    return log_z


class _UnderflowError(Exception):
    """A product of plain numbers might be too small for a double."""


class Part(NamedTuple):
    """A factor, or a message, over some variables in the order of elimination."""

    scope: tuple[int, ...]
    table: Table  # of numbers, or of their logarithms: see `BucketTree.logs`
    least: float = 0.0  # the logarithm of the least number that is not 0, with zeros in the graph


@dataclass
class BucketTree:
    """One bucket per variable: the factors and messages that it takes in its turn."""

    graph: FactorGraph
    order: Order
    logs: bool  # whether tables hold logarithms, since numbers might leave the range of doubles
    sizes: NDArray[np.int64]  # how many values each variable may take
    alive: NDArray[np.bool_] | None = None  # [sum of sizes] which ones, in a graph with zeros
    possible: bool = True  # False where pruning found that no state is
    strengths: dict[int, float] = field(default_factory=dict)  # S of each variable's message
    parts: dict[int, list[Part]] = field(default_factory=dict)  # by variable
    messages: dict[int, Table] = field(default_factory=dict)  # sent by each variable
    log_scale: float = 0.0  # sum of the logarithms that merged tables were scaled by

    @classmethod
    def of(cls, graph: FactorGraph, memory: float | None = None) -> BucketTree:
        """The tree of a graph, or `TooLargeError` if its two passes need too much memory."""
        free = machine.available()
        budget = min(DEFAULT_MEMORY, free / 2) if memory is None else min(memory, free)
        stored = sum(len(one) for one in graph.factors if not isinstance(one, Implicit))
        objects = _VARIABLE_BYTES * (graph.evidence == FREE).sum() + _FACTOR_BYTES * stored
        if objects > max(budget, _SMALL_BUDGET):
            raise machine.too_large(objects, budget, "exact elimination", _MORE_MEMORY)
        tree = cls.ordered(graph, max(budget / 8, 1.0))
        if tree.size > max(budget, _SMALL_BUDGET):
            raise machine.too_large(tree.size, budget, "exact elimination", _MORE_MEMORY)
        return tree

    @classmethod
    def ordered(cls, graph: FactorGraph, most: float) -> BucketTree:
        """The tree of a graph, or `TooLargeError` if messages have more than `most` entries."""
        if graph.implicits and (graph.evidence == FREE).all():
            most_pairs = max(int(group.degrees().sum()) // 2 for group in graph.implicits)
            refuse_dense(most_pairs, graph.sizes, most)
        whole = graph.stored() if graph.implicits else graph
        if len(whole.hard):
            return cls._pruned(whole, most)
        sizes = np.where(whole.evidence == FREE, whole.sizes, 1).astype(np.int64)
        order = order_variables(sizes, _scopes(whole, sizes), most)
        local = whole.local_energies
        strengths = {one[0]: float(local[list(one[1:])].sum()) for one in order.cliques}
        strong = max(strengths.values(), default=0.0) > _LARGEST
        return cls(whole, order, strong, sizes, strengths=strengths)

    @classmethod
    def _pruned(cls, graph: FactorGraph, most: float) -> BucketTree:
        """The tree of a graph with zeros, over the values that they leave."""
        alive = prune(graph)
        if alive is None:
            nothing = np.ones(len(graph), dtype=np.int64)
            return cls(graph, Order([], []), False, nothing, None, possible=False)
        sizes = np.add.reduceat(alive, graph.packed.first, dtype=np.int64)
        return cls(graph, order_variables(sizes, _scopes(graph, sizes), most), False, sizes, alive)

    @cached_property
    def size(self) -> float:
        """Bytes that the two passes need: factors, messages, and the tables made on the way."""
        factors, largest = 0.0, 1.0
        wide = np.append(self.sizes, 1).astype(np.float64)  # the last for no variable
        for scope in _scopes(self.graph, self.sizes):
            tables = wide[scope].prod(axis=1)
            factors += float(tables.sum())
            largest = max(largest, float(tables.max(initial=0.0)))
        messages, working = 0.0, _WRITTEN * largest
        for variable, *others in self.order.cliques:
            message = float(wide[others].prod())
            spread = min(float(wide[[variable, *others]].max()) / _SUMMED, 1.0)
            messages += message
            working = max(working, _DIVIDED * message + message * float(wide[variable]) * spread)
        return 8.0 * (factors + messages + working)

    def reserved(self) -> AbstractContextManager[None]:
        """Reserve what the two passes need, or `TooLargeError` if that much is not left."""
        what = "an exact answer for this graph, beside other work under way,"
        return machine.reserved(self.size, what, "wait for the other work, or sample the graph")

    @property
    def seconds(self) -> float:
        """About how long the two passes take, by how many products they sum."""
        received = dict.fromkeys(self.order.variables, 0)
        for clique in self.order.cliques:
            if len(clique) > 1:
                received[clique[1]] += 1
        products = 0.0
        for variable, clique in zip(self.order.variables, self.order.cliques, strict=True):
            entries = math.prod(float(self.sizes[v]) for v in clique)
            products += entries * (1 + max(received[variable], 1))
        threads = os.cpu_count() or 1
        return _SECONDS_PER_VARIABLE * len(received) + _SECONDS_PER_PRODUCT * products / threads

    def values(self, variable: int) -> NDArray[np.int64]:
        """The values that a variable may take."""
        if self.alive is not None:
            first = int(self.graph.packed.first[variable])
            return np.flatnonzero(self.alive[first : first + int(self.graph.sizes[variable])])
        fixed = int(self.graph.evidence[variable])
        return np.arange(self.graph.sizes[variable]) if fixed == FREE else np.array([fixed])

    def upward(self) -> float:
        """Sum the variables out one by one; returns log Z, -inf where no state is possible."""
        if not self.possible:
            return -math.inf
        try:
            return self._upward()
        except _UnderflowError:
            self.logs = True
            return self._upward()

    def _upward(self) -> float:
        position = {v: k for k, v in enumerate(self.order.variables)}
        self.parts, self.messages, self.log_scale = {v: [] for v in position}, {}, 0.0
        log_z = self._deal(position)
        for variable, clique in zip(self.order.variables, self.order.cliques, strict=True):
            current().check()
            if log_z == -math.inf:
                return log_z
            self.parts[variable] = self._merged(clique, self.parts[variable])
            strength = self.strengths.get(variable, 0.0)
            message = self._sum(clique, self.parts[variable], clique[1:], strength)
            message, scale = self._scaled(message)
            log_z += scale
            if len(clique) > 1:
                self.messages[variable] = message
                self.parts[clique[1]].append(self._part(clique[1:], message))
        return log_z + self.log_scale

    def marginals(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Each variable's marginal, over the values that it may take, after `upward`."""
        try:
            yield from self.downward()
        except _UnderflowError:  # begin anew: what was given is given again
            self.logs = True
            self._upward()
            yield from self.downward()

    def joint(
        self, wanted: Mapping[int, Sequence[tuple[int, ...]]]
    ) -> dict[tuple[int, ...], Table]:
        """The joint marginals of variables that share a clique, after `upward`.

        By the first of them to go, `wanted` holds which; each lies in that one's clique. The
        tables are over the values that the variables may take.
        """
        found: dict[tuple[int, ...], Table] = {}

        def note(clique: tuple[int, ...], parts: list[Part]) -> None:
            for scope in wanted.get(clique[0], ()):
                table = self._sum(clique, parts, scope)
                table = np.exp(table - table.max()) if self.logs else table
                found[scope] = table / table.sum()

        try:
            for _ in self.downward(note):
                pass
        except _UnderflowError:
            self.logs = True
            self._upward()
            for _ in self.downward(note):
                pass
        return found

    def downward(
        self, note: Callable[[tuple[int, ...], list[Part]], None] | None = None
    ) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Tell every bucket of the rest of the graph, the last first; gives each marginal.

        `note` gets each clique, with all that is known about it.
        """
        children: dict[int, list[int]] = {v: [] for v in self.order.variables}
        cliques = dict(zip(self.order.variables, self.order.cliques, strict=True))
        for variable, clique in cliques.items():
            if len(clique) > 1:
                children[clique[1]].append(variable)
        told: dict[int, Part] = {}  # what the parent says about all of a clique but its variable
        for variable in reversed(self.order.variables):
            current().check()
            clique, parts = cliques[variable], self.parts.pop(variable)
            if variable in told:
                parts.append(told.pop(variable))
            if note is not None:
                note(clique, parts)
            flow: Table | None = None
            axes: tuple[int, ...] = (variable,)
            for child in children[variable]:
                axes = cliques[child][1:]
                flow = self._sum(clique, parts, axes)
                told[child] = self._part(axes, self._divided(flow, self.messages.pop(child)))
            if flow is None:
                flow = self._sum(clique, parts, axes)
            yield variable, self._marginal(flow)

    def draw(
        self,
        states: NDArray[np.unsignedinteger],
        marks: Callable[[int, int], NDArray[np.float64]],
    ) -> None:
        """Fill rows with independent draws, the last variable first, after `upward`.

        `marks(rows, variable)` gives a uniform number for each row.
        """
        for variable in np.flatnonzero(self.sizes == 1).tolist():
            states[:, variable] = self.values(variable)[0]
        for variable in reversed(self.order.variables):
            uniform = marks(len(states), variable)
            step = max(1, _WEIGHTS // int(self.sizes[variable]))
            for first in range(0, len(states), step):
                some = slice(first, first + step)
                self._draw_value(variable, states[some], uniform[some])
        if self.alive is not None:  # from places among the values that are left to values
            for variable in self.order.variables:
                states[:, variable] = self.values(variable)[states[:, variable]]

    def _draw_value(
        self, variable: int, states: NDArray[Any], uniform: NDArray[np.float64]
    ) -> None:
        """Draw one variable's place among its values in some rows, given what is drawn already."""
        weights: Table = np.zeros((len(states), int(self.sizes[variable])))
        for scope, table, _ in self.parts[variable]:
            index: tuple[Any, ...] = (slice(None), *(states[:, v] for v in scope[1:]))
            rows = table[index].reshape(len(table), -1).T
            with np.errstate(divide="ignore"):
                weights += rows if self.logs else np.log(rows)
        weights -= weights.max(axis=1, keepdims=True)
        totals = np.exp(weights, out=weights).cumsum(axis=1)
        marked = uniform * totals[:, -1]
        states[:, variable] = (totals[:, :-1] <= marked[:, None]).sum(axis=1)

    def _part(self, scope: tuple[int, ...], table: Table) -> Part:
        """A part that knows its least number, where that matters."""
        if self.alive is None or self.logs:
            return Part(scope, table)
        return Part(scope, table, math.log(table.min(initial=1.0, where=table > 0)))

    def _sum(
        self,
        clique: tuple[int, ...],
        parts: list[Part],
        kept: tuple[int, ...],
        strength: float = 0.0,
    ) -> Table:
        """The product of parts over a clique, summed over all but the `kept` variables.

        `strength` is that of a message on the way up. Sums that are too small for plain numbers are
        made of logarithms and scaled; the scale is added to `log_scale`.
        """
        axes = (*kept, *(v for v in clique if v not in kept))
        sizes = np.array([self.sizes[v] for v in axes], dtype=np.int64)
        if sum(part.least for part in parts) < _LEAST:
            raise _UnderflowError
        out = np.empty(math.prod(sizes[: len(kept)].tolist()))
        if not parts:
            parts = [Part((), np.zeros(()) if self.logs else np.ones(()))]
        strides = np.array([_strides(part, axes) for part in parts], dtype=np.int64)
        starts = np.array([place_of(part.table) for part in parts])
        fill = self._fill_logs if self.logs else self._fill_products
        fill(starts, strides, sizes, len(kept), out)
        if self.alive is None and not self.logs and out.max() < math.exp(strength / 2 - _SPARE):
            if not _lossless(parts):
                raise _UnderflowError
            logs = [np.log(part.table) for part in parts]
            starts = np.array([place_of(table) for table in logs])
            self._fill_logs(starts, strides, sizes, len(kept), out)
            out = self._exponentials(out)
        return out.reshape(sizes[: len(kept)])

    @staticmethod
    def _fill_products(
        starts: NDArray[np.int64],
        strides: NDArray[np.int64],
        sizes: NDArray[np.int64],
        kept: int,
        out: Table,
    ) -> None:
        """Sum products of numbers: blocks of the last kept axes, one after the other.

        Where much is summed, all but the last axes are summed afterwards.
        """
        first = kept
        while math.prod(sizes[first:].tolist()) > _SUMMED:
            first += 1
        whole = out if first == kept else np.empty(math.prod(sizes[:first].tolist()))
        begin, block = first, 1
        while begin > 0 and block * int(sizes[begin - 1]) <= _BLOCK:
            begin -= 1
            block *= int(sizes[begin])
        index = _places(strides[:, begin:first], sizes[begin:first])
        summed = _places(strides[:, first:], sizes[first:])
        outer, steps = sizes[:begin], np.ascontiguousarray(strides[:, :begin])

        def fill(low: int, high: int) -> None:
            digits = np.array(np.unravel_index(low, outer) if begin else (), dtype=np.int64)
            offsets, where = starts + steps @ digits, whole[low * block : high * block]
            sum_products(offsets, steps, outer, digits, index, summed, np.empty(block), where)

        _in_pieces(fill, len(whole) // block, block)
        if first > kept:
            np.sum(whole.reshape(len(out), -1), axis=1, out=out)

    @staticmethod
    def _fill_logs(
        starts: NDArray[np.int64],
        strides: NDArray[np.int64],
        sizes: NDArray[np.int64],
        kept: int,
        out: Table,
    ) -> None:
        """The same for logarithms, entry by entry."""

        def fill(first: int, last: int) -> None:
            digits = np.zeros(len(sizes), dtype=np.int64)
            digits[:kept] = np.unravel_index(first, sizes[:kept]) if kept else 0
            offsets = starts + strides @ digits
            log_sum_products(offsets, strides, sizes, digits, kept, out[first:last])

        _in_pieces(fill, len(out), 1)

    def _merged(self, clique: tuple[int, ...], parts: list[Part]) -> list[Part]:
        """The same product in fewer parts: small tables become one, as long as that is small."""
        small = [part for part in parts if part.table.size <= _SMALL]
        merged = [part for part in parts if part.table.size > _SMALL]
        while small:
            joint, some = set(small[0].scope), [small.pop(0)]
            for part in list(small):
                both = joint | set(part.scope)
                if math.prod(int(self.sizes[v]) for v in both) <= _SMALL:
                    joint = both
                    some.append(part)
                    small.remove(part)
            merged.append(some[0] if len(some) == 1 else self._joined(clique, joint, some))
        return merged

    def _joined(self, clique: tuple[int, ...], joint: set[int], parts: list[Part]) -> Part:
        """The product of parts as one table over the variables that they have together."""
        scope = tuple(v for v in clique if v in joint)
        shape = [int(self.sizes[v]) for v in scope]
        spread = []
        for part in parts:
            own = dict(zip(part.scope, part.table.shape, strict=True))
            spread.append(part.table.reshape([own.get(v, 1) for v in scope]))
        if self.logs:
            return self._part(scope, sum(spread, np.zeros(shape)))
        table = math.prod(spread, start=np.ones(shape))
        if self.alive is None:
            rescale = table.max() < _FAINT and _lossless(parts)
        else:
            rescale = sum(part.least for part in parts) < _LEAST
        if rescale:
            with np.errstate(divide="ignore"):
                table = self._exponentials(sum(map(np.log, spread), np.zeros(shape)))
        return self._part(scope, table)

    def _exponentials(self, logs: Table) -> Table:
        """Numbers with a maximum of 1, given their logarithms; adds the scale to `log_scale`."""
        top = float(logs.max())
        if top == -math.inf:  # the graph's zeros exclude everything
            return np.zeros_like(logs)
        self.log_scale += top
        logs = logs - top
        if self.alive is not None:
            self._refuse_underflow(logs)
        return np.exp(logs)  # type: ignore[no-any-return]

    def _scaled(self, message: Table) -> tuple[Table, float]:
        """A message with its largest entry at 1, and the logarithm that it was scaled by."""
        top = float(message.max())
        if top == (-math.inf if self.logs else 0.0):  # nothing is possible
            return message, -math.inf
        if self.logs:
            return message - top, top
        return message / top, math.log(top)

    def _divided(self, flow: Table, message: Table) -> Table:
        """What the rest of the graph says: the flow without the child's own message."""
        if self.logs:
            told = np.subtract(
                flow, message, out=np.full_like(flow, -np.inf), where=message > -np.inf
            )
            return self._scaled(told)[0]
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
            if top == -math.inf:  # nothing is possible
                return constant
            shifted = np.ascontiguousarray((table - top).transpose(axes))
            plain = shifted if self.logs else np.exp(shifted)
            if self.alive is not None and not self.logs and shifted.min() < _LEAST:
                self._refuse_underflow(shifted)
            self.parts[ordered[0]].append(self._part(ordered, plain))
        return constant

    @staticmethod
    def _refuse_underflow(logs: Table) -> None:
        """Raise if a number that is not 0 is too small for a double."""
        if logs.min(initial=0.0, where=logs > -np.inf) < _LEAST:
            raise _UnderflowError

    def _factors(self) -> Iterator[tuple[tuple[int, ...], Table]]:
        """Every factor as a table over those of its variables that are not settled."""
        model = self.graph.packed
        for (i, j), weight in zip(model.pair.tolist(), model.pair_weight.tolist(), strict=True):
            yield self._pair(i, j, weight)
        for factor in model.factors:
            slots = model.slots[factor["scope_start"] : factor["scope_end"]]
            yield self._general(factor, slots)

    def _pair(self, i: int, j: int, weight: float) -> tuple[tuple[int, ...], Table]:
        """A weight where two variables agree, over the values that are left to them."""
        equal = self.values(i)[:, None] == self.values(j)
        scope = tuple(v for v in (i, j) if self.sizes[v] > 1)
        return scope, weight * equal.reshape([int(self.sizes[v]) for v in scope])

    def _general(self, factor: np.void, slots: NDArray[np.void]) -> tuple[tuple[int, ...], Table]:
        """A table or a formula, written out over its open variables."""
        scope = tuple(v for v in slots["variable"].tolist() if self.sizes[v] > 1)
        place, true = np.int64(factor["table_start"]), np.int64(0)
        for variable, key in slots.tolist():
            values = self.values(variable)
            if len(values) > 1:
                axis = scope.index(variable)
                values = values.reshape([-1 if k == axis else 1 for k in range(len(scope))])
            else:
                values = values[0]
            place, true = place + key * values, true + (values == key)
        if factor["form"] == TABLE:
            return scope, factor["weight"] * self.graph.packed.table[place]
        holds = true == len(slots)
        if factor["form"] == EQUAL:
            holds = holds | (true == 0)
        return scope, factor["weight"] * np.asarray(holds, dtype=np.float64)


def _scopes(graph: FactorGraph, sizes: NDArray[np.int64]) -> list[NDArray[np.int32]]:
    """The scopes of all factors, -1 for variables that may take one value only."""
    model, wide = graph.packed, sizes > 1
    slots = np.where(wide[model.slots["variable"]], model.slots["variable"], -1)
    arity = model.factors["scope_end"] - model.factors["scope_start"]
    scopes = [np.where(wide[model.pair], model.pair, -1)]
    for count in np.unique(arity):
        start = model.factors["scope_start"][arity == count]
        scopes.append(slots[start[:, None] + np.arange(count)])
    return scopes


def _lossless(parts: list[Part]) -> bool:
    """Whether no entry of the parts' tables is too small for a double."""
    return all(float(part.table.min()) > math.exp(_LEAST) for part in parts)


def _strides(part: Part, axes: tuple[int, ...]) -> list[int]:
    """How far an axis moves a part's flat table; 0 for axes that it does not have."""
    step = dict(zip(part.scope, (s // 8 for s in part.table.strides), strict=True))
    return [step.get(v, 0) for v in axes]


def _places(strides: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """[part, entry]: how far each entry of some axes, the last one fastest, lies from the first."""
    places = np.zeros((len(strides), 1), dtype=np.int64)
    for axis, size in enumerate(sizes.tolist()):
        moved = np.arange(size) * strides[:, axis, None]
        places = (places[:, :, None] + moved[:, None, :]).reshape(len(strides), -1)
    return places


def _in_pieces(fill: Callable[[int, int], None], count: int, size: int) -> None:
    """Call fill(first, last) over a range of blocks of so many entries each.

    On threads if it is long, and never for long at once. Raises `StopError` if the call under way
    must end.
    """
    if count * size <= _SPLIT:
        fill(0, count)
        return
    workers, watch = os.cpu_count() or 1, current()
    piece = max(1, min(-(-count // workers), _AT_ONCE // size))

    def work(first: int) -> None:
        watch.check()
        fill(first, min(first + piece, count))

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(0, count, piece)))
