"""Evaluation of a plan: products of tables in an upward pass, messages in a downward pass.

A table contains plain numbers, scaled by powers of two, or logarithms if numbers might leave the
range of doubles. Its first axis is that of rows: evidence sets that are processed together. A table
that is equal for all rows has one row.

In the upward pass every step multiplies two tables and sums out variables. In the downward pass
every node gets a table over its own scope. It is the product of all leaves that are not below the
node, summed over all other variables. The product of a node's two tables is its joint marginal, so
that no table is divided.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from minigibbs.exact.device import Card, offsets
from minigibbs.exact.plan import Plan, Step, natural_scope, product_seconds
from minigibbs.kernels.tables import (
    gather,
    max_products,
    place_of,
    small_products,
)
from minigibbs.system.watch import current

Numbers = NDArray[np.float64]

SUM, LOGS, LARGEST = "sum", "logs", "largest"  # operation of a step on the products

_LOST = 1e-290  # products of scaled numbers that may have lost digits
LEAST = -690.0  # logarithm of the least product that is not lost
SPARE = 650.0  # see `Contraction._harmless`
SCALED = 2.0**100  # numbers beyond it, or below its inverse, are scaled
_BLAS = 4  # rows and columns from which on matrices are left to BLAS
_AT_ONCE = 1 << 31  # products between two looks at the clock
_AT_ONCE_LOGS = 1 << 20  # the same for entries of tables of logarithms
_THREADED = 1 << 20  # products that are worth several threads
_THREADED_BLAS = 1 << 25  # the same for BLAS
_SLOWNESS = (0.5, 20.0)  # within which machines are believed to be
_TINY = 1 << 12  # products for which NumPy's own loops are fast enough
_CACHED = 1 << 14  # entries that fit into a cache
_COLUMNS = 1 << 10  # entries that are copied with one table of places
_STACKS = ((0, 1, 2), (0, 2, 1), (2, 0, 1), (1, 0, 2))  # axes of stacks of matrices for BLAS


# choose(variables, rows, weights): the joint value of each row, given log-weights [row, value]
Choose = Callable[[tuple[int, ...], slice, Numbers], NDArray[np.int64]]


class UnderflowError(Exception):
    """A product of plain numbers might underflow."""


class Contraction:
    """The tables of a plan and their products.

    Parameters
    ----------
    plan
        The products to compute.
    sizes
        Number of possible values of each variable.
    leaves
        A table of logarithms per leaf: [row, ...], with one axis per variable of its scope.
    mode
        SUM for plain numbers, LOGS for logarithms, LARGEST for logarithms of the largest products.
    ranges
        Sum of the ranges of the factors at each variable, or None if factors contain -inf.
    card
        The card that multiplies plain numbers; None for the processor.
    """

    def __init__(
        self,
        plan: Plan,
        sizes: NDArray[np.int64],
        leaves: Sequence[Numbers],
        mode: str = SUM,
        ranges: NDArray[np.float64] | None = None,
        card: Card | None = None,
    ) -> None:
        self._card = card if mode == SUM else None
        self.plan, self.sizes, self.mode, self._ranges = plan, sizes, mode, ranges
        self._sizes: list[int] = sizes.tolist()  # faster to look up one by one
        self._scopes = list(plan.scopes)  # axes of every node, which `_arrange` permutes
        self._nodes: list[Numbers] = []
        self._low: list[float] = []  # lower bound of the logarithms of entries that are not 0
        self._scale: list[Numbers] = []  # [row] logarithm of the divisor of the leaves below
        for scope, leaf in zip(plan.scopes, leaves, strict=False):
            self._add(*self._leaf(scope, leaf))

    def _add(self, table: Numbers, low: float, scale: Numbers) -> None:
        self._nodes.append(table)
        self._low.append(low)
        self._scale.append(scale)

    def _node(self, node: int) -> Numbers:
        """The numbers of a node."""
        return self._nodes[node]

    def _table(self, node: int) -> tuple[tuple[int, ...], Numbers, float]:
        """A node's scope, its numbers, and a lower bound of their logarithms."""
        return self._scopes[node], self._nodes[node], self._low[node]

    def scope(self, node: int) -> tuple[int, ...]:
        """Return the variables of a node in the order of its axes."""
        return self._scopes[node]

    def _replace(self, node: int, table: Numbers) -> None:
        """Store the same numbers of a node in another order."""
        self._nodes[node] = table

    def _movable(self, node: int) -> bool:
        """Return whether the axes of a node may be permuted; those of leaves may not."""
        return node >= self.plan.leaves and self._node(node).size > _COLUMNS

    def _arrange(self, step: Step) -> None:
        """Permute the axes of two large tables so that all products of a step use them as they are.

        The three products of a step, one upward and two downward, then copy no table.
        """
        if self.mode == LARGEST or self._card is not None or step.right < 0:
            return
        left, right = self._scopes[step.left], self._scopes[step.right]
        both, rows, columns, depth = _groups(left, right, set(step.scope))
        for node, groups in (
            (step.left, (both, rows, depth)),
            (step.right, (both, depth, columns)),
        ):
            scope, wanted = self._scopes[node], tuple(chain.from_iterable(groups))
            if self._movable(node) and len(wanted) == len(scope) and not _stacked(scope, groups):
                self._replace(node, _permuted(scope, self._node(node), wanted))
                self._scopes[node] = wanted

    def _leaf(self, scope: tuple[int, ...], logs: Numbers) -> tuple[Numbers, float, Numbers]:
        """The numbers of a leaf, a lower bound of their logarithms, and their scale."""
        top = logs.reshape(len(logs), -1).max(axis=1)
        top = np.where(np.isfinite(top), top, 0.0)
        shifted = logs - top.reshape(-1, *[1] * len(scope))
        low = float(shifted.min(initial=0.0, where=shifted > -np.inf))
        if self.mode == SUM:
            if low < LEAST and not self._harmless(scope, 0.0):
                raise UnderflowError
            low = max(low, LEAST)
            shifted = np.exp(shifted)
        if self._card is not None:
            shifted = self._card.put(shifted)
        return shifted, low, top

    def upward(self) -> Numbers:
        """Make all products; returns log Z of each row, -inf where no state is possible."""
        with own_threads():
            return self._upward()

    def _upward(self) -> Numbers:
        for number, step in enumerate(self.plan.steps):
            current().check()
            out, low, scale = self._made(number)
            scale = scale + self._scale[step.left]
            if step.right >= 0:
                scale = scale + self._scale[step.right]
            self._add(out, low, scale)
        total = np.zeros(1)
        for root in self.plan.roots:
            total = total + self.logs(root) + self._scale[root]
        return total

    def _made(self, number: int) -> tuple[Numbers, float, Numbers]:
        """The product of a step, a lower bound of its logarithms, and its own scale."""
        step = self.plan.steps[number]
        self._arrange(step)
        right = None if step.right < 0 else self._table(step.right)
        left = self._table(step.left)
        natural = natural_scope(left[0], () if right is None else right[0], set(step.scope))
        self._scopes[self.plan.leaves + number] = natural
        out, scale, low = self._product(left, right, natural)
        return out, low, scale

    def joints(self) -> Callable[[int], Numbers]:
        """Make the downward pass, after `upward`; returns each leaf's joint marginal [row, ...].

        Tables are determined up to a factor. Products of steps are freed on the way.
        """
        with own_threads():
            told = self._downward()
        return lambda leaf: self._joint(leaf, told[leaf])

    def _downward(self) -> dict[int, tuple[tuple[int, ...], Numbers]]:
        one: Any = (np.zeros if self.mode != SUM else np.ones)((1,))
        one = one if self._card is None else self._card.put(one)
        known: tuple[tuple[int, ...], Numbers, float] = ((), one, 0.0)
        told = dict.fromkeys(self.plan.roots, known)
        first = self.plan.leaves
        for number in range(len(self.plan.steps) - 1, -1, -1):
            current().check()
            step, above = self.plan.steps[number], told.pop(first + number)
            self._nodes[first + number] = one  # nobody needs it any more
            told.update(self._told_below(step, above))
        return {leaf: told[leaf][:2] for leaf in range(first) if leaf in told}

    def _told_below(
        self, step: Step, above: tuple[tuple[int, ...], Numbers, float]
    ) -> dict[int, tuple[tuple[int, ...], Numbers, float]]:
        """What the rest says of the nodes that a step multiplies."""
        if step.right < 0:
            return {step.left: above}
        left, right = self._table(step.left), self._table(step.right)
        scope, table = above[:2]
        groups = _groups(left[0], right[0], set(scope))[:3]
        both, rows, columns = (tuple(v for v in some if v in scope) for some in groups)
        large = self._card is None and table.size > _COLUMNS
        if large and not _stacked(scope, (both, rows, columns)):  # for both products
            wanted = (*both, *rows, *columns)
            above = (wanted, _permuted(scope, table, wanted), above[2])
        return {
            step.left: self._told(above, right, left[0]),
            step.right: self._told(above, left, right[0]),
        }

    def _told(
        self,
        above: tuple[tuple[int, ...], Numbers, float],
        beside: tuple[tuple[int, ...], Numbers, float],
        wanted: tuple[int, ...],
    ) -> tuple[tuple[int, ...], Numbers, float]:
        """Return the message to one side of a step, over the variables on which it depends."""
        known = set(above[0]) | set(beside[0])
        scope = tuple(v for v in wanted if v in known)
        left, right = above, beside
        if right[1].size > left[1].size:
            left, right = right, left
        natural = natural_scope(left[0], right[0], set(scope))
        out, _, low = self._product(left, right, natural)
        return natural, out, low

    def logs(self, node: int) -> Numbers:
        """Return the logarithms of a node's table."""
        with np.errstate(divide="ignore"):
            table = self._host(self._node(node), self._scopes[node])
            return table if self.mode != SUM else np.log(table)

    def unscaled(self, node: int) -> Numbers:
        """Return the logarithms of a node's table, with its scale."""
        logs = self.logs(node)
        return logs + self._scale[node].reshape(-1, *[1] * (logs.ndim - 1))

    def _host(self, table: Any, scope: tuple[int, ...]) -> Numbers:
        """Return a table in the memory of the processor, with one axis per variable."""
        if self._card is None:
            return table  # type: ignore[no-any-return]
        return self._card.get(table).reshape(-1, *(self._sizes[v] for v in scope))

    def _joint(self, leaf: int, told: tuple[tuple[int, ...], Numbers]) -> Numbers:
        """[row, ...] The joint marginal of a leaf's variables."""
        scope, known, table = self.plan.scopes[leaf], told[0], self._host(told[1], told[0])
        with np.errstate(divide="ignore"):
            rest = table if self.mode != SUM else np.log(table)
        order = [0, *(1 + known.index(v) for v in scope if v in known)]
        rest = rest.transpose(order)
        shape = [int(self.sizes[v]) if v in known else 1 for v in scope]
        logs = self.logs(leaf) + rest.reshape(len(rest), *shape)
        flat = logs.reshape(len(logs), -1)
        top = flat.max(axis=1, keepdims=True)
        flat = np.exp(flat - np.where(np.isfinite(top), top, 0.0))
        with np.errstate(invalid="ignore"):
            flat /= flat.sum(axis=1, keepdims=True)
        return flat.reshape(logs.shape)

    def trace(self, states: NDArray[Any], choose: Choose, most: int) -> None:
        """Set the variables of all states in reverse order of elimination, after `upward`.

        Parameters
        ----------
        states
            [state, variable], overwritten.
        choose
            Function that chooses joint values given log-weights.
        most
            Number of weights evaluated at a time.
        """
        for step in reversed(self.plan.steps):
            if not step.summed:
                continue
            shape = [int(self.sizes[v]) for v in step.summed]
            count = math.prod(shape)
            length = max(1, most // count)
            for first in range(0, len(states), length):
                rows = slice(first, min(first + length, len(states)))
                some = states[rows]
                weights = np.zeros((len(some), count))
                for node in (step.left, step.right):
                    if node >= 0:
                        self._add_weights(node, step.summed, some, weights)
                chosen = np.unravel_index(choose(step.summed, rows, weights), shape)
                for variable, places in zip(step.summed, chosen, strict=True):
                    some[:, variable] = places

    def _add_weights(
        self, node: int, summed: tuple[int, ...], states: NDArray[Any], weights: Numbers
    ) -> None:
        scope = self._scopes[node]
        index: list[Any] = [0 if len(self._node(node)) == 1 else np.arange(len(states))[:, None]]
        shape = [int(self.sizes[v]) for v in summed]
        places = dict(zip(summed, np.indices(shape).reshape(len(shape), -1), strict=True))
        for v in scope:
            index.append(places[v] if v in places else states[:, v, None].astype(np.int64))
        with np.errstate(divide="ignore"):
            rows = self._host(self._node(node), scope)[tuple(index)]
            weights += rows if self.mode != SUM else np.log(rows)

    def _product(
        self,
        a: tuple[tuple[int, ...], Numbers, float],
        b: tuple[tuple[int, ...], Numbers, float] | None,
        scope: tuple[int, ...],
    ) -> tuple[Numbers, Numbers, float]:
        """Return the product of two tables over a scope, its scale [row], and a lower bound."""
        if self.mode != SUM:
            if self.mode == LOGS:
                out = multiply_logs(self._sizes, a[0], a[1], b and b[0], b and b[1], scope)
            else:
                out = _largest_product(self.sizes, a, b, scope)
            top = out.reshape(len(out), -1).max(axis=1)
            top = np.where(np.isfinite(top), top, 0.0)
            out -= top.reshape(-1, *[1] * len(scope))
            return out, top, 0.0
        times, least, largest = multiply, _least, _largest_of_rows
        if self._card is not None:
            times, least, largest = self._card.multiply, self._card.least, self._card.largest
        out = times(self._sizes, a[0], a[1], b and b[0], b and b[1], scope)
        low = a[2] + (0.0 if b is None else b[2])
        tops = largest(out)
        if low < LEAST:  # the bounds may be too low: look
            low = least(a[1]) + (0.0 if b is None else least(b[1]))
            if low < LEAST:
                top = math.log(tops.min()) if tops.min() > 0 else -math.inf
                if not self._harmless(scope, top):
                    raise UnderflowError
                low = LEAST
        scale = np.zeros(len(tops))
        if not (tops.min() > 1 / SCALED and tops.max() < SCALED):
            beyond = (tops > 0) & ((tops > SCALED) | (tops < 1 / SCALED))
            exponent = np.where(beyond, np.frexp(np.where(beyond, tops, 1.0))[1], 0)
            scale = exponent * math.log(2.0)
            factor = np.ldexp(1.0, -exponent).reshape(-1, *[1] * (out.ndim - 1))
            out = out * (factor if self._card is None else self._card.put(factor))
            low -= float(scale.max())
        return out, scale, low

    def _harmless(self, scope: tuple[int, ...], top: float) -> bool:
        """Return whether products below the range of doubles are negligible, given the largest.

        The factors at the variables of a scope have a total range of e^S. Either those below or
        those above have a range of at most e^(S/2). If the largest entry is at least e^(S/2 - 650),
        an entry below e^-708 therefore contributes less than e^-58 of the total.
        """
        if self._ranges is None:
            return False
        strength = float(self._ranges[list(scope)].sum())
        return top >= strength / 2 - SPARE


@cache
def slowness() -> float:
    """Return the ratio of the measured to the predicted time of products on this machine.

    One product is measured once per process, of a table with 2^18 entries and permuted axes.
    """
    sizes, left = [2] * 21, tuple(range(18))
    right = (3, 7, 11, 18, 19, 20)
    scope = natural_scope(left, right, set(range(21)) - {3, 7, 11})
    a, b = np.ones((1, *[2] * 18)), np.ones((1, *[2] * 6))
    seconds = []
    with own_threads():
        for _ in range(4):  # the first may compile
            begun = time.perf_counter()
            multiply(sizes, left, a, right, b, scope).max()
            seconds.append(time.perf_counter() - begun)
    predicted = product_seconds(1, 1 << 15, 1 << 3, 1 << 3, a.size, b.size, 1 << 18)
    return float(np.clip(min(seconds) / predicted, *_SLOWNESS))


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def own_threads() -> AbstractContextManager[Any]:
    """Let BLAS use one thread: its threads wait actively for each other, ours do not."""
    return _libraries().limit(limits=1, user_api="blas")  # type: ignore[no-any-return]


def _least(table: Numbers) -> float:
    """Return a lower bound of the logarithms of entries that are not 0, at most 0.

    The bits of doubles that are not negative have the order of their values.
    """
    flat, one = table.reshape(-1).view(np.uint64), np.uint64(1)
    parts = (flat[k : k + _CACHED] for k in range(0, len(flat), _CACHED))
    bits = min((part - one).min() for part in parts)  # those of 0 become the largest
    least = float(np.array(bits).view(np.float64))  # the next lower double
    return math.log(least) if 0.0 < least < 1.0 else 0.0


def _largest_of_rows(table: Numbers) -> Numbers:
    """Return the largest entry of each row."""
    return table.reshape(len(table), -1).max(axis=1)  # type: ignore[no-any-return]


def multiply(
    sizes: Sequence[int],
    left: tuple[int, ...],
    a: Numbers,
    right: tuple[int, ...] | None,
    b: Numbers | None,
    scope: tuple[int, ...],
) -> Numbers:
    """Multiply two tables and sum over all variables outside a scope.

    The scope must be in the order of `natural_scope`.
    """
    kept = set(scope)
    other = set(right or ())
    left, a = _summed(left, a, kept | other)
    if b is None or right is None:
        return a
    right, b = _summed(right, b, kept | set(left))
    both, rows, columns, depth = _groups(left, right, kept)
    first = _matrices(sizes, left, a, both, rows, depth)
    second = _matrices(sizes, right, b, both, depth, columns)
    out = _matmul(first, second)
    return out.reshape(len(out), *(sizes[v] for v in (*both, *rows, *columns)))


def multiply_logs(
    sizes: Sequence[int],
    left: tuple[int, ...],
    a: Numbers,
    right: tuple[int, ...] | None,
    b: Numbers | None,
    scope: tuple[int, ...],
) -> Numbers:
    """Multiply two tables of logarithms as `multiply` does.

    Every row of the first matrices and every column of the second is divided by its largest entry,
    so that plain numbers can be multiplied. The few results that still underflow are computed one
    by one.
    """
    kept = set(scope)
    other = set(right or ())
    left, a = _summed_logs(left, a, kept | other)
    if b is None or right is None:
        return a
    right, b = _summed_logs(right, b, kept | set(left))
    both, rows, columns, depth = _groups(left, right, kept)
    first = _matrices(sizes, left, a, both, rows, depth)
    second = _matrices(sizes, right, b, both, depth, columns)
    out = np.empty((max(len(a), len(b)), first.shape[1], first.shape[2], second.shape[3]))
    if first.size >= second.size:
        _log_matmul(first, second, out)
    else:
        _log_matmul(second.swapaxes(2, 3), first.swapaxes(2, 3), out.swapaxes(2, 3))
    return out.reshape(len(out), *(sizes[v] for v in (*both, *rows, *columns)))


def _log_matmul(first: Numbers, second: Numbers, out: Numbers) -> None:
    """Multiply stacks of matrices of logarithms; the first stack is the larger one."""
    top = _largest(second, 2)
    numbers = np.exp(second - top)

    def work(some: tuple[int, int, int, int]) -> None:
        begin, end, low, high = some
        part, target = first[:, begin:end, low:high], out[:, begin:end, low:high]
        own = _largest(part, 3)
        plain = np.exp(part - own)
        if min(*plain.shape[2:], numbers.shape[3]) < _BLAS:
            products = np.empty(target.shape)
            _thin_matmul(plain, numbers[:, begin:end], products)
        else:
            products = np.matmul(plain, numbers[:, begin:end])
        lost = np.nonzero(products < _LOST)
        with np.errstate(divide="ignore"):
            np.log(products, out=target)
        target += own
        target += top[:, begin:end]
        _sum_one_by_one(part, second[:, begin:end], lost, target)

    count = -(-(first.size + out.size) // _AT_ONCE_LOGS)
    in_pieces(work, _pieces(first.shape[1], first.shape[2], _AT_ONCE * count, math.inf))


def _largest(table: Numbers, axis: int | tuple[int, ...]) -> Numbers:
    """Return the largest entries along some axes, which are kept; 0 if no entry is finite."""
    top = table.max(axis=axis, keepdims=True)
    return np.where(np.isfinite(top), top, 0.0)


def _sum_one_by_one(
    first: Numbers, second: Numbers, places: tuple[NDArray[np.intp], ...], out: Numbers
) -> None:
    """Compute some entries of the product of stacks of matrices of logarithms."""
    length = max(1, _AT_ONCE_LOGS // first.shape[3])
    for begin in range(0, len(places[0]), length):
        e, b, i, k = (some[begin : begin + length] for some in places)
        logs = first[e % len(first), b, i] + second[e % len(second), b, :, k]
        out[e, b, i, k] = _summed_logs((0,), logs, set())[1]


def _summed_logs(
    scope: tuple[int, ...], table: Numbers, kept: set[int]
) -> tuple[tuple[int, ...], Numbers]:
    """Sum a table of logarithms over the variables that are not kept."""
    axes = tuple(1 + k for k, v in enumerate(scope) if v not in kept)
    if not axes:
        return scope, table
    top = _largest(table, axes)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(table - top).sum(axis=axes)) + top.squeeze(axes)
    return tuple(v for v in scope if v in kept), total


def _summed(
    scope: tuple[int, ...], table: Numbers, kept: set[int]
) -> tuple[tuple[int, ...], Numbers]:
    """Sum a table over the variables that are not kept."""
    axes = tuple(1 + k for k, v in enumerate(scope) if v not in kept)
    if not axes:
        return scope, table
    return tuple(v for v in scope if v in kept), table.sum(axis=axes)


def _matrices(
    sizes: Sequence[int],
    scope: tuple[int, ...],
    table: Numbers,
    both: tuple[int, ...],
    rows: tuple[int, ...],
    columns: tuple[int, ...],
) -> Numbers:
    """Return a table as matrices [row of evidence, matrix, row, column], a view if possible."""
    shape = [math.prod(sizes[v] for v in some) for some in (both, rows, columns)]
    parts = (both, rows, columns)
    for order in _STACKS:
        if scope == tuple(chain.from_iterable(parts[k] for k in order)):
            stack = table.reshape(len(table), *(shape[k] for k in order))
            return stack.transpose(0, *(1 + order.index(k) for k in range(3)))
    return _permuted(scope, table, (*both, *rows, *columns)).reshape(len(table), *shape)


def _groups(
    left: tuple[int, ...], right: tuple[int, ...], kept: Set[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the matrices, the rows, the columns and the depth of a product of two tables.

    Every variable of only one table is in the result.
    """
    one, other = set(left), set(right)
    return (
        tuple(v for v in left if v in other and v in kept),
        tuple(v for v in left if v not in other),
        tuple(v for v in right if v not in one),
        tuple(v for v in left if v in other and v not in kept),
    )


def _stacked(scope: tuple[int, ...], groups: Sequence[tuple[int, ...]]) -> bool:
    """Return whether a table is a stack of matrices without a copy, given its three groups."""
    return any(scope == tuple(chain.from_iterable(groups[k] for k in order)) for order in _STACKS)


def _permuted(scope: tuple[int, ...], table: Numbers, wanted: tuple[int, ...]) -> Numbers:
    """Permute the axes of a table; the result is contiguous."""
    axes = [0, *(1 + scope.index(v) for v in wanted)]
    view = table.transpose(axes)
    if table.size <= _COLUMNS or not table.flags.c_contiguous:
        return np.ascontiguousarray(view)
    steps = [s // 8 for s in view.strides]
    split, inner = len(axes), 1
    while split > 0 and inner * view.shape[split - 1] <= _COLUMNS:
        split -= 1
        inner *= view.shape[split]
    out = np.empty(view.shape)
    gather(
        table.reshape(-1),
        offsets(view.shape[:split], steps[:split]),
        offsets(view.shape[split:], steps[split:]),
        out.reshape(-1, inner),
    )
    return out


def _matmul(a: Numbers, b: Numbers) -> Numbers:
    """Multiply stacks of matrices, with BLAS if they are large enough."""
    rows, matrices = max(len(a), len(b)), a.shape[1]
    shape = (rows, matrices, a.shape[2], b.shape[3])
    products = math.prod(shape) * a.shape[3]
    if products <= _TINY:
        return np.matmul(a, b)  # type: ignore[no-any-return]
    thin = min(a.shape[2], a.shape[3], b.shape[3]) < _BLAS
    if not thin and products <= _THREADED_BLAS:
        return np.matmul(a, b)  # type: ignore[no-any-return]
    out = np.empty(shape)
    if thin and a.shape[2] > b.shape[3] and b.shape[3] < _BLAS:  # the long axis innermost
        left, right, target = (x.swapaxes(2, 3) for x in (b, a, out))
    else:
        left, right, target = a, b, out

    def work(some: tuple[int, int, int, int]) -> None:
        begin, end, top, bottom = some
        if thin:
            _thin_matmul(
                left[:, begin:end],
                right[:, begin:end, :, top:bottom],
                target[:, begin:end, :, top:bottom],
            )
        else:
            np.matmul(a[:, begin:end, top:bottom], b[:, begin:end], out[:, begin:end, top:bottom])

    length = target.shape[3] if thin else a.shape[2]
    most = _THREADED if thin else _THREADED_BLAS
    in_pieces(work, _pieces(matrices, length, products, most))
    return out


def _thin_matmul(a: Numbers, b: Numbers, out: Numbers) -> None:
    """Multiply stacks of matrices that are too small for BLAS."""
    shape = np.array([*out.shape, a.shape[3]], dtype=np.int64)
    steps = [_steps(view) for view in (a, b, out)]
    small_products(_flat(a), _flat(b), _flat(out), steps[0], steps[1], steps[2], shape)


def _flat(view: Numbers) -> Numbers:
    """Return the memory from the first to the last entry of a view, as a flat array."""
    last = sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)) // 8
    return np.lib.stride_tricks.as_strided(view, (last + 1,), (8,))


def _steps(view: Numbers) -> NDArray[np.int64]:
    steps = np.array(view.strides, dtype=np.int64) // 8
    return np.where(np.array(view.shape) == 1, 0, steps)


def _pieces(
    matrices: int, length: int, products: int, most: float
) -> list[tuple[int, int, int, int]]:
    """Return ranges of matrices, or of one of their axes, with bounded work."""
    count = -(-products // _AT_ONCE)
    if products > most:
        count = max(count, os.cpu_count() or 1)
    if count == 1:
        return [(0, matrices, 0, length)]
    if matrices >= count:
        edges = np.linspace(0, matrices, count + 1).astype(int).tolist()
        return [(a, b, 0, length) for a, b in pairwise(edges)]
    edges = np.linspace(0, length, min(count, length) + 1).astype(int).tolist()
    return [(0, matrices, a, b) for a, b in pairwise(edges)]


def in_pieces(work: Callable[[Any], None], pieces: Sequence[Any]) -> None:
    """Call `work` on every piece, on threads if there are several.

    Raises `StopError` if the current call must end.
    """
    if len(pieces) == 1:
        work(pieces[0])
        return
    watch = current()

    def one(piece: Any) -> None:
        watch.check()
        work(piece)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(one, pieces))


def _largest_product(
    sizes: NDArray[np.int64],
    a: tuple[tuple[int, ...], Numbers, float],
    b: tuple[tuple[int, ...], Numbers, float] | None,
    scope: tuple[int, ...],
) -> Numbers:
    """Multiply two tables of logarithms and maximize over all variables outside a scope."""
    parts = [a] if b is None else [a, b]
    rows = max(len(part[1]) for part in parts)
    inner = [v for v in dict.fromkeys(v for part in parts for v in part[0]) if v not in scope]
    axes = (*scope, *inner)
    shape = np.array([rows, *(sizes[v] for v in axes)], dtype=np.int64)
    tables = [np.ascontiguousarray(part[1]) for part in parts]
    strides = np.array(
        [_strides(part[0], table, axes) for part, table in zip(parts, tables, strict=True)]
    )
    starts = np.array([place_of(table) for table in tables])
    outer = 1 + len(scope)
    out = np.empty(math.prod(shape[:outer].tolist()))

    def work(piece: tuple[int, int]) -> None:
        first, last = piece
        digits = np.zeros(len(shape), dtype=np.int64)
        digits[:outer] = np.unravel_index(first, shape[:outer])
        max_products(starts + strides @ digits, strides, shape, digits, outer, out[first:last])

    summed = math.prod(shape[outer:].tolist())
    step = max(1, min(len(out), (_AT_ONCE >> 8) // summed))
    if len(out) * summed > _THREADED >> 4:
        step = min(step, -(-len(out) // (os.cpu_count() or 1)))
    in_pieces(work, [(k, min(k + step, len(out))) for k in range(0, len(out), step)])
    return out.reshape(shape[:outer])


def _strides(scope: tuple[int, ...], table: Numbers, axes: Iterable[int]) -> list[int]:
    """Return the strides of a flat table along axes; 0 for axes that it does not have."""
    step = dict(zip(scope, (s // 8 for s in table.strides[1:]), strict=True))
    return [table.strides[0] // 8 if len(table) > 1 else 0, *(step.get(v, 0) for v in axes)]
