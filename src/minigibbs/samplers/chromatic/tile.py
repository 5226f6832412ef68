"""Base class of tiles: vectorized chains of one run on a CPU, with sweeps spread over threads.

A tile has one chain, with inner loops over the variables of a color, or 64 chains, with inner loops
over chains. Draws do not depend on the choice.
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

LANES = 64  # chains of a tile, or replicas of a ladder in a word, that are updated together
QUADS = LANES // 4  # groups of four chains whose random words come from one call
_WORTH = 1 << 16  # minimum number of updates per thread between two barriers
FEW = 255  # sweeps that a byte can count
MANY = 2**32 - 1  # sweeps that a 32-bit word can count


def columns(chains: int) -> NDArray[np.int64]:
    """Return the columns of a tile's chains among 64: chain 4 q + w has column 16 w + q.

    So the sixteen calls that 64 chains need give four vectors of sixteen words.
    """
    chain = np.arange(chains)
    where: NDArray[np.int64] = QUADS * (chain % 4) + chain // 4
    return where


class Counters:
    """Counters that grow by at most 1 per sweep, for runs of any length.

    Compiled code adds to the bytes `few`, which `flush` adds to words of 32 bits. Before a word can
    overflow, all words are added to totals of 64 bits, which are allocated at that time.
    """

    def __init__(self, shape: int | tuple[int, ...]) -> None:
        self._shape = shape
        self.own = [slice(None)]  # entries that can grow: the others occupy no memory
        self.clear()

    def clear(self) -> None:
        """Set all to 0."""
        self.few = np.zeros(self._shape, np.uint8)
        self.many = np.zeros(self._shape, np.uint32)
        self.flushed = 0  # upper bound of the words
        self.totals: NDArray[np.int64] | None = None

    def flush(self) -> None:
        """Add the bytes to the words, so that `FEW` more sweeps can be counted."""
        if self.flushed > MANY - FEW:
            if self.totals is None:
                self.totals = np.zeros(self._shape, np.int64)
            for own in self.own:
                self.totals[own] += self.many[own]
                self.many[own] = 0
            self.flushed = 0
        for own in self.own:
            self.many[own] += self.few[own]
            self.few[own] = 0
        self.flushed += FEW

    def arrays(self) -> list[NDArray[Any]]:
        """Return the arrays that store the counts up to the last flush."""
        return [self.many] if self.totals is None else [self.many, self.totals]

    def values(self) -> NDArray[Any]:
        """Return the counts up to the last flush, read-only."""
        return self.many if self.totals is None else self.many + self.totals


Spread = Callable[["Tile", int, int, bool], None]  # makes sweeps in place of a tile's own threads


class Tile(ABC):
    """A set of chains, from number `first`, started at states [chain, variable]."""

    spins: ClassVar[bool] = False  # whether it implements `spin_sums`

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
        """Replace the states [chain, variable]."""

    @abstractmethod
    def states(self) -> NDArray[Any]:
        """Return the states [chain, variable], clamped variables included."""

    def spin_sums(self, terms: NDArray[np.int32], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Compute sums over spins [chain, sum], if `spins` is true. See `spin_sums`."""
        raise NotImplementedError

    @abstractmethod
    def _ends(self) -> NDArray[np.int64]:
        """Return the first unit of work of each color and the end, in blocks or places."""

    @abstractmethod
    def _sweep(
        self, begin: int, end: int, sweep: int, sweeps: int, counting: bool
    ) -> NDArray[np.int64]:
        """Do some units of work of sweeps `sweep` onward; return changes, and draws, by lane."""

    @abstractmethod
    def tally(self, chains: int) -> NDArray[np.int64]:
        """Return the tally of the first chains since `clear`; see `kernels.layout.EVALUATIONS`."""

    @abstractmethod
    def counts(self, sweeps: int) -> NDArray[np.int64]:
        """Return the number of sweeps that ended at each value: [chain, sum of sizes]."""

    @abstractmethod
    def clear(self) -> None:
        """Reset the counts and the tally."""
        self.noted[:] = 0
        self.swept = self._since = 0

    @abstractmethod
    def _flush(self) -> None:
        """Make space to count `FEW` more sweeps."""

    def energies(self) -> NDArray[np.float64]:
        """Compute the states' energies, up to the graph's offset."""
        out = np.empty(self.chains)
        energies(self.graph.packed, self.states(), out)
        return out

    def compile(self) -> None:
        """Compile the sweep, or load its compiled code."""
        self._sweep(0, 0, 0, 0, True)

    def advance(self, sweep: int, sweeps: int, counting: bool) -> None:
        """Make sweeps `sweep` to `sweep + sweeps - 1`."""
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
        """Return the array ranges that the units of work from `begin` to `end` write to.

        Parameters
        ----------
        begin, end : int
            Units, all of one color.

        Returns
        -------
        list of (array, first, last)
            States [.., place] first, then counters. Only tiles that processes can share have them.
        """
        raise NotImplementedError

    def hold(self, parts: list[tuple[int, int]]) -> None:
        """Count only in these ranges of units; other counts then occupy no memory."""
        spans = [slice(*share[1:]) for part in parts for share in self.shares(*part)[1:2]]
        for own in self.counters():
            own.own = spans

    def counters(self) -> list[Counters]:
        """Return the counters of a tile that processes can share."""
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
        """Divide a color's work into equal parts; do the first of them in the calling thread."""
        cuts = [begin + (end - begin) * k // threads for k in range(threads + 1)]
        parts = list(pairwise(cuts))
        others = [_pool().submit(self._sweep, *part, sweep, 1, counting) for part in parts[1:]]
        self.noted += self._sweep(*parts[0], sweep, 1, counting)
        for other in others:
            self.noted += other.result()


class VisitTile(Tile):
    """A tile that updates its chains one after another and counts in 64-bit integers."""

    visits: NDArray[np.int64]  # [chain, sum of sizes]

    def tally(self, chains: int) -> NDArray[np.int64]:
        """Return the sum over chains."""
        tally: NDArray[np.int64] = self.noted[:chains].sum(axis=0)
        return tally

    def _flush(self) -> None:
        """Do nothing: the counters are 64-bit integers."""

    def counts(self, sweeps: int) -> NDArray[np.int64]:
        """Return the counts; a clamped variable has its value after every sweep."""
        counts, first = self.visits.copy(), self.graph.first
        clamped = np.flatnonzero(self.graph.evidence >= 0)
        counts[:, first[clamped] + self.graph.evidence[clamped]] = sweeps
        return counts

    def clear(self) -> None:
        """Reset the counts."""
        super().clear()
        self.visits[:] = 0


@cache
def _pool() -> ThreadPoolExecutor:
    """Return the threads that help to advance tiles; idle ones cost nothing."""
    return ThreadPoolExecutor(thread_name_prefix="minigibbs-colors")
