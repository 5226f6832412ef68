"""In which order to eliminate variables, so that the tables on the way stay small."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import TooLargeError
from minigibbs.system import memory
from minigibbs.system.watch import current

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Order:
    """An elimination order: each variable with the clique that it leaves behind."""

    variables: list[int]
    cliques: list[tuple[int, ...]]  # the variable first, the others in the order's order

    @property
    def width(self) -> int:
        """The induced width: the size of the largest clique, less one."""
        return max((len(clique) for clique in self.cliques), default=1) - 1


def order_variables(
    sizes: NDArray[np.integer], scopes: Iterable[NDArray[np.int32]], most: float
) -> Order:
    """The better of two orders: least fill-in first, and as the variables are numbered.

    The first is good for most graphs, the second for grids and chains that are numbered along
    their length. Raises `TooLargeError` if the messages of both have more than `most` entries.

    Parameters
    ----------
    sizes
        The domain of each variable; those of one value take no part.
    scopes
        Arrays [factor, variable]; -1 for no variable.
    most
        Entries of all messages together.
    """
    bits = np.log2(sizes.astype(np.float64))
    limit = math.log2(most) + _ROUNDING
    taking_part = np.flatnonzero(sizes > 1)
    pairs = _neighbours(sizes, scopes, most)
    refuse_dense(len(pairs), sizes, most)
    tried = [
        _Elimination(taking_part.tolist(), pairs, bits.tolist(), limit, by_fill=by_fill)
        for by_fill in (True, False)
    ]
    best = min(tried, key=lambda one: (one.largest > limit, one.entries))
    if best.largest > limit or best.entries > most * (1 + _ROUNDING):
        _refuse(best.variables, max(best.largest, math.log2(max(best.entries, 1.0))), most)
    position = {variable: k for k, variable in enumerate(best.cliques)}
    cliques = [
        (variable, *sorted(near, key=position.__getitem__))
        for variable, near in best.cliques.items()
    ]
    return Order(list(position), cliques)


def _neighbours(
    sizes: NDArray[np.integer], scopes: Iterable[NDArray[np.int32]], most: float
) -> NDArray[np.int64]:
    """[edge, 2]: every two variables that share a factor, once."""
    variables = len(sizes)
    found = [np.empty(0, dtype=np.int64)]
    for scope in scopes:
        rows = np.where((scope >= 0) & (sizes[scope] > 1), scope, -1)
        wide = np.where(rows >= 0, np.log2(sizes[rows]), 0.0).sum(axis=1).max(initial=0.0)
        if wide > math.log2(most) + _ROUNDING:
            _refuse(int((rows >= 0).sum(axis=1).max()), wide, most)
        rows = rows[:, (rows >= 0).any(axis=0)]
        for first in range(rows.shape[1]):
            for second in range(first + 1, rows.shape[1]):
                low = np.minimum(rows[:, first], rows[:, second]).astype(np.int64)
                high = np.maximum(rows[:, first], rows[:, second])
                found.append(np.unique((low * variables + high)[low >= 0]))
    edges = np.unique(np.concatenate(found))
    return np.stack([edges // variables, edges % variables], axis=1)


def refuse_dense(edges: int, sizes: NDArray[np.integer], most: float) -> None:
    """Refuse at once what is hopeless: a graph of treewidth w has fewer than w edges a variable."""
    bits = np.sort(np.log2(sizes[sizes > 1].astype(np.float64)))
    least = math.ceil(edges / max(len(bits), 1)) + 1  # variables in some clique
    entries = float(bits[:least].sum())
    if least > 2 and entries - bits[least - 1 : least].sum() > math.log2(most) + _ROUNDING:
        _refuse(least, entries, most)


def _refuse(variables: int, bits: float, most: float) -> None:
    from minigibbs.exact.enumeration import readable_count

    entries = readable_count(round(2**bits)) if bits < 1000 else f"2^{bits:.0f}"
    raise TooLargeError(
        f"exact answers for this graph would need {entries} numbers or more, with {variables:,} "
        f"variables at once; {memory.readable(8 * most)} hold {readable_count(round(most))}. Its "
        "treewidth is too large: sample it (mg.sample), clamp variables with graph.condition, or "
        "allow more memory (memory=...)"
    )


class _Elimination:
    """Eliminates all variables, or stops at the first whose table would be too large."""

    def __init__(
        self,
        variables: list[int],
        pairs: NDArray[np.int64],
        bits: list[float],
        limit: float,
        by_fill: bool,
    ) -> None:
        self.around: dict[int, set[int]] = {v: set() for v in variables}
        for a, b in pairs.tolist():
            self.around[a].add(b)
            self.around[b].add(a)
        self.bits, self.limit, self.by_fill = bits, limit, by_fill
        self.table = {v: bits[v] + sum(bits[u] for u in near) for v, near in self.around.items()}
        self.heap: list[tuple[float, float, int]] = []
        self.rank: dict[int, tuple[float, float]] = {}
        self.cliques: dict[int, set[int]] = {}  # in the order of elimination
        self.entries = 0.0  # of all messages together
        self.largest, self.variables = 0.0, 0  # log2 of the largest message, and its variables
        for v in variables:
            current().check()
            self._place(v)
        self._run()

    def _run(self) -> None:
        while self.heap and self.largest <= self.limit:
            current().check()
            fill, table, v = heapq.heappop(self.heap)
            if self.rank.get(v) != (fill, table):
                continue  # its neighbourhood has changed since
            if self.by_fill and table > self.limit:  # so are all others
                v = min(self.rank, key=self.table.__getitem__)
            message = self.table[v] - self.bits[v]
            if message > self.largest:
                self.largest, self.variables = message, len(self.around[v]) + 1
            self.entries += 2.0 ** min(self.table[v] - self.bits[v], 1000.0)
            self._eliminate(v)

    def _eliminate(self, v: int) -> None:
        near = self.around.pop(v)
        self.cliques[v] = near
        if self.largest > self.limit:
            return
        del self.rank[v]
        changed = set(near)
        for a in near:
            self.around[a].discard(v)
            self.table[a] -= self.bits[v]
        for a in near:
            for b in near - self.around[a]:
                if a < b:
                    self._join(a, b)
                    changed |= self.around[a] & self.around[b]
        for u in changed:
            self._place(u)

    def _join(self, a: int, b: int) -> None:
        self.around[a].add(b)
        self.around[b].add(a)
        self.table[a] += self.bits[b]
        self.table[b] += self.bits[a]

    def _place(self, v: int) -> None:
        """Rank a variable by the edges that its neighbours lack, or by its number.

        One whose table is too large comes last, uncounted: it may have many neighbours.
        """
        near, table = self.around[v], self.table[v]
        rank = (math.inf, table)
        if not self.by_fill:
            rank = (float(v), 0.0)
        elif table <= self.limit:
            missing = sum(len(near) - 1 - len(self.around[u] & near) for u in near)
            rank = (missing / 2, table)
        if self.rank.get(v) != rank:
            self.rank[v] = rank
            heapq.heappush(self.heap, (*rank, v))
