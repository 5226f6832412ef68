"""The unit of a run: a group of chains that advance together, segment by segment.

On the CPU a group is one chain, or up to 64 chains of a chromatic scan. On a GPU it is all chains.
The run loop, executors, checkpoints and the progress bar use groups only through this interface.
"""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.ensemble import Ensemble, State
from minigibbs.running.plan import Plan

__all__ = ["RECORDED", "Collected", "Counted", "Group", "State", "share_threads"]

RECORDED = ("draws", "energy", "error", "observed", "levels")  # arrays with one row per record
_LEAST_SECONDS = 0.01  # of a segment near a deadline
_GROWTH = 8.0  # most growth of a segment over the one before


class Collected(NamedTuple):
    """Records of a group; see `Run`. One row per recorded chain."""

    clock: NDArray[np.int64]  # [row] recorded updates
    counts: NDArray[np.int64]  # [row, sum of sizes]; [row, 0] if not recorded
    visits: NDArray[np.int64]  # [row]
    draws: NDArray[Any]  # [row, record, variable]
    energy: NDArray[
        np.float64
    ]  # [row, record] log-potential without the offset; `result` negates it
    error: NDArray[np.float64]  # [row, record]
    observed: NDArray[np.float64]  # [row, record, number]; [row, 0, ..] without series
    observed_count: NDArray[np.int64]  # [row] see `running.observed`
    observed_moments: NDArray[np.float64]  # [row, 2, number]
    observed_sums: NDArray[np.float64]  # [row, batch, number]
    tally: NDArray[np.int64]  # [5] over all chains
    carried: NDArray[np.float64]  # [chain, ...] auxiliary state of samplers
    state: NDArray[Any]  # [chain, variable]
    warmed: int  # updates of each chain's warm-up
    levels: NDArray[np.float64] | None = None  # [row, record, number] see `running.tempered`


class Counted(NamedTuple):
    """Counts of values up to a clock, by row."""

    counts: NDArray[np.int64]  # [row, sum of sizes]
    visits: NDArray[np.int64]  # [row] divisor of the row's counts


class Group(Ensemble):
    """Some chains of a plan, with their arrays, clocks and records."""

    first_segment: int = 16  # updates
    segment_seconds: float = 0.2  # between two checks of Ctrl-C and updates of the progress bar

    def __init__(self, plan: Plan, number: int, chains: int) -> None:
        self.plan, self.number, self.chains = plan, number, chains
        self.length = plan.length
        self.warmed = 0  # updates of each chain's warm-up so far
        self.middle = 0  # a clock at which a segment ends; 0 for none
        self.segment = self.first_segment
        self._wanted = self.segment_seconds  # of the next segments

    @property
    @abstractmethod
    def clock(self) -> int:
        """Number of recorded updates of each chain so far."""

    @abstractmethod
    def compile(self) -> None:
        """Compile, or load compiled code, before the first segment."""

    def follow(self, before: Any) -> None:
        """Continue the chains of a group whose graph has other weights.

        Parameters
        ----------
        before : Group
            A group of the same kind, with the same chains. Random numbers continue, and the
            sampler converts its auxiliary state if it can.

        Raises
        ------
        NotImplementedError
            If chains of this kind cannot change their weights.
        """
        raise NotImplementedError(f"{type(self).__name__} has no weights that change")

    @abstractmethod
    def recorded(self) -> dict[str, NDArray[Any]]:
        """Return the arrays with one row per record, by name, including space for later records."""

    def rows(self, first: int) -> dict[str, NDArray[Any]]:
        """Return the records from index `first` on, by name: [record, ...]."""
        return {name: array[first : self.records] for name, array in self.recorded().items()}

    def put_rows(self, first: int, rows: dict[str, NDArray[Any]]) -> None:
        """Store records that were made elsewhere."""
        recorded = self.recorded()
        for name, array in rows.items():
            recorded[name][first : first + len(array)] = array

    @abstractmethod
    def grow(self, length: int) -> None:
        """Extend the run to a larger number of updates; present records are kept."""

    @abstractmethod
    def energies(self) -> NDArray[np.float64]:
        """Return the energies recorded so far, up to a constant: [row, record]."""

    @abstractmethod
    def counted(self) -> Counted:
        """Return copies of the counts of values so far."""

    @abstractmethod
    def collect(self) -> Collected:
        """Return everything that was recorded."""

    def share(self, threads: int) -> None:
        """Set the number of threads that advance the group, if it can use several."""

    @property
    def warmup_left(self) -> int:
        """Number of warm-up updates yet to make."""
        return self.plan.warmup - self.warmed

    @property
    def left(self) -> int:
        """Number of updates yet to record."""
        return self.length - self.clock

    @property
    def done(self) -> bool:
        """Whether every update has been made."""
        return self.warmup_left == 0 and self.left == 0

    @property
    def made(self) -> int:
        """Number of updates of all chains so far, including warm-up."""
        return self.chains * (self.warmed + self.clock)

    @property
    def records(self) -> int:
        """Number of records so far."""
        return self.clock // self.plan.thin

    def next_segment(self) -> tuple[int, bool]:
        """Return the updates of the next segment, and whether they are recorded."""
        recording = self.warmup_left == 0
        left = self.left if recording else self.warmup_left
        if recording and self.clock < self.middle:
            left = min(left, self.middle - self.clock)
        return min(self.whole(self.segment), left), recording

    def whole(self, updates: int) -> int:
        """Round down to a multiple of the unit, but at least one unit."""
        return max(updates // self.unit, 1) * self.unit

    def run_segment(self) -> int:
        """Make one segment of updates; return their number over all chains."""
        updates, recording = self.next_segment()
        before = time.perf_counter()
        self.advance(updates, recording)
        if not recording:
            self.warmed += updates
        self.pace(time.perf_counter() - before, self._wanted)
        return updates * self.chains

    def hurry(self, seconds: float) -> None:
        """Let segments take at most `seconds`, but not so little that Python dominates."""
        self._wanted = min(self.segment_seconds, max(seconds, _LEAST_SECONDS))

    def pace(self, took: float, wanted: float) -> None:
        """Adapt the segment length after `took` seconds; the next one should take `wanted`."""
        growth = wanted / max(took, 1e-9)
        self.segment = max(1, int(self.segment * min(growth, _GROWTH)))


def share_threads(groups: list[Group], threads: int | None) -> None:
    """Distribute threads over groups if there are fewer groups than threads."""
    for group in groups:
        group.share(max((threads or os.cpu_count() or 1) // max(len(groups), 1), 1))
