"""Elimination orders: heuristics, random restarts and local improvement.

A search starts with a few heuristics: least fill-in, least table, numerical order, and sweeps that
grow one eliminated region. It then repeats them with noise, often keeping a prefix of the best
order so far. It ends when more search would cost more than it can save. Its length is counted in
steps, not in seconds, so that the same graph always gets the same order.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import TooLargeError
from minigibbs.kernels.orders import greedy_order
from minigibbs.system import memory
from minigibbs.system.watch import current

_ROUNDING = 1e-9
_ENOUGH = 2.0  # factors per variable and bit of memory, of which edges are counted first
SEARCHED = 4096  # variables up to which orders are searched for
_WORD_SECONDS = 2e-9  # of the search, per word of bits read
_PRODUCT_SECONDS = 1.5e-9  # of elimination, per product: what a better order can save
_SLACK = 2.0**16  # messages of an order may have this many times the entries of its plan
_PAYS = 0.1  # search for this share of the time that elimination takes
_RESTART_WORDS = 20_000  # worth of every restart, beside the words it reads
_STALE = 200  # restarts without improvement after which the search may end
_LEAST_SECONDS = 0.003  # least time of a search
_MOST_SECONDS = 0.5  # largest time of a search
_HOPE_SECONDS = 0.5  # largest time of a search for an order that fits into memory
_HOPELESS_BITS = 24.0  # missing bits of memory at which an order is abandoned half-made
_HOPE_BITS = 3.0  # missing bits of memory that halve this time
_KEPT = 0.5  # share of restarts that keep a prefix of the best order
_SWEEPS = 0.3  # share of restarts that grow one region
_WEIGHTS = (1.0, 0.9, 0.5, 0.0)  # weights of fill-in in the score, in restarts
_NOISES = (0.2, 0.5, 1.0, 2.0)
_SWEEP_NOISES = (0.0, 0.001, 0.2, 0.5)


@dataclass(frozen=True)
class Order:
    """An elimination order.

    Attributes
    ----------
    variables
        The variables with several possible values, in order of elimination.
    width
        The induced width: the size of the largest clique, minus one.
    products
        Sum over cliques of the product of their domain sizes.
    entries
        The same sum for messages, which lack the eliminated variable.
    """

    variables: tuple[int, ...]
    width: int
    products: float
    entries: float


def order_variables(
    sizes: NDArray[np.integer],
    scopes: Iterable[NDArray[np.int32]],
    most: float,
    known: Order | None = None,
    kept: Collection[int] = (),
) -> Order:
    """Find a good elimination order.

    Parameters
    ----------
    sizes
        The domain size of each variable. Variables with one value are ignored.
    scopes
        Arrays [factor, variable]; -1 for no variable.
    most
        Largest number of entries of all tables together.
    known
        A good order of a similar graph, such as one with other evidence.
    kept
        Variables that are not eliminated.

    Raises
    ------
    TooLargeError
        If the tables of every order found have far more than `most` entries.
    """
    bits = np.log2(sizes.astype(np.float64))
    members = np.flatnonzero(sizes > 1)
    scopes = list(scopes)
    enough = math.ceil(_ENOUGH * math.log2(max(most, 2.0))) * max(len(members), 1)
    for scope in scopes:  # some factors may show that all are hopeless
        if len(scope) > 2 * enough:
            some = scope[:: len(scope) // enough]
            refuse_dense(len(_neighbors(sizes, [some], most)), sizes, most)
    pairs = _neighbors(sizes, scopes, most)
    refuse_dense(len(pairs), sizes, most)
    if len(members) <= SEARCHED and not kept:
        found = _Search(members, pairs, bits, _SLACK * most, known).best
    else:
        found = _listed(members, pairs, bits, _SLACK * most, kept)
    if found.entries > _SLACK * most:
        refuse(found.width + 1, math.log2(found.entries), most)
    return found


class Scratch(NamedTuple):
    """Arrays that `greedy_order` overwrites."""

    some: NDArray[np.int64]
    others: NDArray[np.int64]
    touched: NDArray[np.int64]  # the step at which a neighbor was first eliminated
    dirty: NDArray[np.bool_]  # whether a score must be recomputed
    gone: NDArray[np.bool_]
    score: NDArray[np.float64]


class _Search:
    """Search for an order of one graph; `best` is the result."""

    def __init__(
        self,
        members: NDArray[np.intp],
        pairs: NDArray[np.int64],
        bits: NDArray[np.float64],
        most: float,
        known: Order | None,
    ) -> None:
        n = len(members)
        self.members, self.bits, self.most = members, np.ascontiguousarray(bits[members]), most
        self.near = _bit_rows(np.searchsorted(members, pairs), n)
        self.scratch = Scratch(
            np.empty(n, np.int64),
            np.empty(n, np.int64),
            np.empty(n, np.int64),
            np.empty(n, np.bool_),
            np.empty(n, np.bool_),
            np.empty(n),
        )
        self.order, self.tables = np.empty(n, np.int64), np.empty(n)
        self.totals = np.zeros(3)
        self.improved = 0  # the restart that found the best order
        self.stream: NDArray[Any] = np.random.SeedSequence(n).generate_state(4, np.uint64)
        self.kept, self.best = np.arange(n), Order((), 0, math.inf, math.inf)
        self.hopeless = self.most * 2.0 ** (_HOPELESS_BITS + self.bits.max(initial=0.0))
        self._run(known)
        if len(self.best.variables) == n:
            self.best = replace(self.best, width=self._width())

    def _run(self, known: Order | None) -> None:
        n = len(self.members)
        if n == 0:
            self.best = Order((), 0, 0.0, 0.0)
            return
        if known is not None:
            place = np.full(int(self.members[-1]) + 1, -1)
            place[self.members] = np.arange(n)
            old = np.array([v for v in known.variables if v < len(place)], dtype=np.int64)
            old = place[old][place[old] >= 0]
            self._try(np.append(old, np.setdiff1d(np.arange(n), old)), n)
        for weight in (1.0, 0.0):
            self._try(self.kept, 0, fill_weight=weight)
            current().check()
        self._try(np.arange(n), n)
        self._try(self.kept, 0, fill_weight=0.0, sweep=True)
        rng = np.random.default_rng(n)
        tried = 0
        while self.totals[2] * _WORD_SECONDS < self._worth():
            current().check()
            tried += 1
            if tried > 2 * self.improved + _STALE:
                break
            self.totals[2] += _RESTART_WORDS
            before = self.best
            sweep = rng.random() < _SWEEPS
            kept = int(rng.integers(n)) if rng.random() < _KEPT else 0
            weight = 0.0 if sweep else _WEIGHTS[rng.integers(len(_WEIGHTS))]
            noise = (_SWEEP_NOISES if sweep else _NOISES)[rng.integers(4)]
            self._try(self.kept, kept, weight, noise, sweep)
            if self.best is not before:
                self.improved = tried

    def _worth(self) -> float:
        """Return the time limit of the whole search in seconds."""
        best = self.best
        if best.entries > self.most:
            beyond = min(math.log2(best.entries / self.most), 1000.0)
            return float(_HOPE_SECONDS * 2.0 ** (-beyond / _HOPE_BITS))
        pays = _PAYS * _PRODUCT_SECONDS * best.products
        return min(max(pays, _LEAST_SECONDS), _MOST_SECONDS)

    def _try(
        self,
        given: NDArray[np.int64],
        kept: int,
        fill_weight: float = 1.0,
        noise: float = 0.0,
        sweep: bool = False,
    ) -> None:
        """Run one greedy elimination; keep its order if it is better than the best.

        Of orders that are all hopeless, the costs of a part are kept, for the error.
        """
        self.tables[:] = 0.0
        done = greedy_order(
            self.near.copy(),
            self.bits,
            fill_weight,
            noise,
            sweep,
            given,
            kept,
            min(self.best.products, self.hopeless),
            self.stream,
            self.order,
            self.tables,
            self.scratch,
            self.totals,
        )
        if not done:
            if self.best.products == math.inf:
                width = math.ceil(self.tables.max() / self.bits.max()) - 1
                self.best = Order((), width, float(self.totals[0]), float(self.totals[1]))
            return
        self.kept = self.order.copy()
        self.best = Order(
            tuple(self.members[self.order].tolist()),
            0,  # see `__init__`
            float(self.totals[0]),
            float(self.totals[1]),
        )

    def _width(self) -> int:
        """The largest number of neighbors of the best order."""
        if not len(self.members):
            return 0
        largest, near = 0, [set(_bits_of(row)) for row in self.near]
        for v in self.kept.tolist():
            around = near[v]
            largest = max(largest, len(around))
            for u in around:
                near[u] |= around
                near[u] -= {u, v}
        return largest


def _bit_rows(pairs: NDArray[np.int64], count: int) -> NDArray[np.uint64]:
    """Return the neighbors as sets of bits, [variable, word]."""
    rows = np.zeros((count, max(-(-count // 64), 1)), dtype=np.uint64)
    for one, other in (pairs.T, pairs.T[::-1]):
        np.bitwise_or.at(rows, (one, other >> 6), np.uint64(1) << (other & 63).astype(np.uint64))
    return rows


def _bits_of(row: NDArray[np.uint64]) -> list[int]:
    """Return the positions of the set bits of a row."""
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()  # type: ignore[no-any-return]


def _listed(
    members: NDArray[np.intp],
    pairs: NDArray[np.int64],
    bits: NDArray[np.float64],
    most: float,
    kept: Collection[int],
) -> Order:
    """Return the better of two orders of a large graph: by fill-in, and by number."""
    limit = math.log2(most) + _ROUNDING
    tried = [
        _Elimination(members.tolist(), pairs, bits.tolist(), limit, by_fill, kept)
        for by_fill in (True, False)
    ]
    best = min(tried, key=lambda one: (one.largest > limit, one.products))
    width = max(map(len, best.cliques.values()), default=0)
    if best.largest > limit:
        return Order((), best.variables - 1, math.inf, 2.0 ** min(best.largest, 1000.0))
    return Order(tuple(best.cliques), width, best.products, best.entries)


def _neighbors(
    sizes: NDArray[np.integer], scopes: Iterable[NDArray[np.int32]], most: float
) -> NDArray[np.int64]:
    """Return [edge, 2] all pairs of variables that share a factor, without repetition."""
    variables = len(sizes)
    found = [np.empty(0, dtype=np.int64)]
    for scope in scopes:
        rows = np.where((scope >= 0) & (sizes[scope] > 1), scope, -1)
        wide = np.where(rows >= 0, np.log2(sizes[rows]), 0.0).sum(axis=1).max(initial=0.0)
        if wide > math.log2(most) + _ROUNDING:
            refuse(int((rows >= 0).sum(axis=1).max()), wide, most)
        rows = rows[:, (rows >= 0).any(axis=0)]
        for first in range(rows.shape[1]):
            for second in range(first + 1, rows.shape[1]):
                low = np.minimum(rows[:, first], rows[:, second]).astype(np.int64)
                high = np.maximum(rows[:, first], rows[:, second])
                found.append(np.unique((low * variables + high)[low >= 0]))
    edges = np.unique(np.concatenate(found))
    return np.stack([edges // variables, edges % variables], axis=1)


def refuse_dense(edges: int, sizes: NDArray[np.integer], most: float) -> None:
    """Reject hopeless graphs early: with treewidth w there are fewer than w edges per variable."""
    bits = np.sort(np.log2(sizes[sizes > 1].astype(np.float64)))
    least = math.ceil(edges / max(len(bits), 1)) + 1  # variables in some clique
    entries = float(bits[:least].sum())
    if least > 2 and entries - bits[least - 1 : least].sum() > math.log2(most) + _ROUNDING:
        refuse(least, entries, most)


def refuse(variables: int, bits: float, most: float) -> None:
    """Raise `TooLargeError` for tables of 2^bits entries."""
    from minigibbs.exact.enumeration import readable_count

    entries = readable_count(round(2**bits)) if bits < 1000 else f"2^{bits:.0f}"
    raise TooLargeError(
        f"exact answers for this graph would need {entries} numbers or more, with {variables:,} "
        f"variables at once; {memory.readable(8 * most)} hold {readable_count(round(most))}. Its "
        "treewidth is too large: sample it (mg.sample), clamp variables with graph.condition, or "
        "allow more memory (memory=...)"
    )


class _Elimination:
    """Elimination of all variables but some, up to the first whose table is too large."""

    def __init__(
        self,
        variables: list[int],
        pairs: NDArray[np.int64],
        bits: list[float],
        limit: float,
        by_fill: bool,
        kept: Collection[int],
    ) -> None:
        self.around: dict[int, set[int]] = {v: set() for v in variables}
        for a, b in pairs.tolist():
            self.around[a].add(b)
            self.around[b].add(a)
        self.bits, self.limit, self.by_fill, self.kept = bits, limit, by_fill, set(kept)
        self.table = {v: bits[v] + sum(bits[u] for u in near) for v, near in self.around.items()}
        self.heap: list[tuple[float, float, int]] = []
        self.rank: dict[int, tuple[float, float]] = {}
        self.cliques: dict[int, set[int]] = {}  # in the order of elimination
        self.entries, self.products = 0.0, 0.0  # total sizes of messages and of cliques
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
                continue  # its neighborhood has changed since
            if self.by_fill and table > self.limit:  # all other tables are too large as well
                v = min(self.rank, key=self.table.__getitem__)
            message = self.table[v] - self.bits[v]
            if message > self.largest:
                self.largest, self.variables = message, len(self.around[v]) + 1
            self.entries += 2.0 ** min(self.table[v] - self.bits[v], 1000.0)
            self.products += 2.0 ** min(self.table[v], 1000.0)
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
        """Rank a variable by the edges missing between its neighbors, or by its number.

        A variable whose table is too large comes last. Its missing edges are not counted, because
        it may have many neighbors.
        """
        if v in self.kept:
            return
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
