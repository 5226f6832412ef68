"""A tile: chains of one run vectorized on a CPU, and how sweeps of them are spread over threads.

A tile is one chain, whose inner loops go over the variables of a color, or 64, whose inner loops
go over chains. Draws depend on neither.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.energy import energies
from minigibbs.kernels.philox import key_of

LANES = 64
QUADS = LANES // 4  # chains whose bits are the words of one call
_WORTH = 1 << 16  # updates of a thread, at least, between two meetings with the others
FEW = 255  # sweeps that a byte counts
MANY = 2**32 - 1  # and that a word of 32 bits counts


def columns(chains: int) -> NDArray[np.int64]:
    """Where the chains of a tile of 64 lie: chain 4 q + w in column 16 w + q.

    So the sixteen calls that 64 chains need give four vectors of sixteen words.
    """
    chain = np.arange(chains)
    where: NDArray[np.int64] = QUADS * (chain % 4) + chain // 4
    return where


class Counters:
    """Numbers that grow by at most 1 per sweep, of any length of run.

    Compiled code adds to `few`, bytes that `flush` adds to words of 32 bits. Before a word can
    wrap, all of them are added to totals of 64 bits, which exist from then on.
    """

    def __init__(self, shape: int | tuple[int, ...]) -> None:
        self.few = np.zeros(shape, np.uint8)
        self.many = np.zeros(shape, np.uint32)
        self.clear()

    def clear(self) -> None:
        """Set all to 0."""
        self.few[:] = 0
        self.many[:] = 0
        self.flushed = 0  # no word is larger
        self.totals: NDArray[np.int64] | None = None

    def flush(self) -> None:
        """Make space for `FEW` more sweeps."""
        if self.flushed > MANY - FEW:
            before = np.int64(0) if self.totals is None else self.totals
            self.totals = self.many + before
            self.many[:] = 0
            self.flushed = 0
        self.many += self.few
        self.few[:] = 0
        self.flushed += FEW

    def arrays(self) -> list[NDArray[Any]]:
        """What holds the counts up to the last flush."""
        return [self.many] if self.totals is None else [self.many, self.totals]

    def values(self) -> NDArray[Any]:
        """What was counted up to the last flush, to be read."""
        return self.many if self.totals is None else self.many + self.totals


Spread = Callable[["Tile", int, int, bool], None]  # makes sweeps instead of a tile's own threads


class Tile(ABC):
    """Some chains, from number `first` on, at their first states [chain, variable]."""

    spins: ClassVar[bool] = False  # whether sums over them can be counted without copies

    def __init__(
        self, graph: FactorGraph, data: Any, first: int, states: NDArray[Any], seed: int
    ) -> None:
        self.graph, self.data, self.first = graph, data, first
        self.chains, self.key = len(states), key_of(seed)
        self.threads = 1
        self.spread: Spread | None = None  # over processes
        self.noted: NDArray[np.int64] = np.zeros(1, np.int64)  # [lane, ...]
        self.swept = 0  # sweeps since `clear`
        self._since = 0  # sweeps counted since the last flush
        self._free = graph.free

    @abstractmethod
    def load(self, states: NDArray[Any]) -> None:
        """Take up states [chain, variable]."""

    @abstractmethod
    def states(self) -> NDArray[Any]:
        """The states [chain, variable], clamped variables included."""

    def spin_sums(self, terms: NDArray[np.int32], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sums over spins [chain, sum]: of tiles that have `spins` alone. See `spin_sums`."""
        raise NotImplementedError

    @abstractmethod
    def _ends(self) -> NDArray[np.int64]:
        """Where the work of each color begins, and the last one's ends, in blocks or places."""

    @abstractmethod
    def _sweep(
        self, begin: int, end: int, sweep: int, sweeps: int, counting: bool
    ) -> NDArray[np.int64]:
        """Do a part of some sweeps, from number `sweep` on; returns what is noted by lane."""

    @abstractmethod
    def tally(self, chains: int) -> NDArray[np.int64]:
        """What the first chains did since `clear`; see `kernels.layout.EVALUATIONS`."""

    @abstractmethod
    def counts(self, sweeps: int) -> NDArray[np.int64]:
        """After how many of the sweeps each value was there: [chain, sum of sizes]."""

    @abstractmethod
    def clear(self) -> None:
        """Forget the counts, and what was noted."""
        self.noted[:] = 0
        self.swept = self._since = 0

    @abstractmethod
    def _flush(self) -> None:
        """Make space for `FEW` more sweeps to be counted."""

    def energies(self) -> NDArray[np.float64]:
        """The states' energies, up to the graph's offset."""
        out = np.empty(self.chains)
        energies(self.graph.packed, self.states(), out)
        return out

    def compile(self) -> None:
        """Compile, or load compiled code."""
        self._sweep(0, 0, 0, 0, True)

    def advance(self, sweep: int, sweeps: int, counting: bool) -> None:
        """Make this number of sweeps, from number `sweep` on."""
        while sweeps:
            some = min(sweeps, FEW - self._since) if counting else sweeps
            self._advance(sweep, some, counting)
            self.swept += some
            sweep, sweeps = sweep + some, sweeps - some
            self._since += some if counting else 0
            if self._since == FEW:
                self._flush()
                self._since = 0

    def advance_colors(self, first: int, last: int, sweep: int) -> None:
        """Update the variables of the colors from `first` up to `last`, as in sweep `sweep`."""
        ends = self._ends()
        self.noted += self._sweep(int(ends[first]), int(ends[last]), sweep, 1, False)

    def shares(self, begin: int, end: int) -> list[tuple[NDArray[Any], int, int]]:
        """What the units of work from `begin` to `end` of `_ends` write to.

        Parameters
        ----------
        begin, end : int
            Units, all of one color.

        Returns
        -------
        list of (array, first, last)
            States first, [.., place]; then counters. Tiles that processes can share have them.
        """
        raise NotImplementedError

    def _advance(self, sweep: int, sweeps: int, counting: bool) -> None:
        ends = self._ends()
        if self.spread is not None:
            self.spread(self, sweep, sweeps, counting)
            return
        threads = min(self.threads, self._free * self._width() // (_WORTH * max(len(ends) - 1, 1)))
        if threads < 2:
            self.noted += self._sweep(0, int(ends[-1]), sweep, sweeps, counting)
            return
        for number in range(sweep, sweep + sweeps):
            for begin, end in pairwise(ends.tolist()):
                self._spread(begin, end, number, counting, threads)

    def _width(self) -> int:
        return LANES if self.chains > 1 else 1

    def _spread(self, begin: int, end: int, sweep: int, counting: bool, threads: int) -> None:
        """A color's work in equal parts, the first of them in the calling thread."""
        cuts = [begin + (end - begin) * k // threads for k in range(threads + 1)]
        parts = list(pairwise(cuts))
        others = [_pool().submit(self._sweep, *part, sweep, 1, counting) for part in parts[1:]]
        self.noted += self._sweep(*parts[0], sweep, 1, counting)
        for other in others:
            self.noted += other.result()


class VisitTile(Tile):
    """Chains that go one by one, and count in whole numbers."""

    visits: NDArray[np.int64]  # [chain, sum of sizes]

    def tally(self, chains: int) -> NDArray[np.int64]:
        """The sum over chains."""
        tally: NDArray[np.int64] = self.noted[:chains].sum(axis=0)
        return tally

    def _flush(self) -> None:
        """Counts are whole numbers from the start."""

    def counts(self, sweeps: int) -> NDArray[np.int64]:
        """As they were counted; a clamped variable was always where it is."""
        counts, first = self.visits.copy(), self.graph.first
        clamped = np.flatnonzero(self.graph.evidence >= 0)
        counts[:, first[clamped] + self.graph.evidence[clamped]] = sweeps
        return counts

    def clear(self) -> None:
        """Forget the counts."""
        super().clear()
        self.visits[:] = 0


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads that help the one that advances a tile; idle ones cost nothing."""
    return ThreadPoolExecutor(thread_name_prefix="minigibbs-colors")
