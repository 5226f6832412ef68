"""When a run is written to its checkpoint: between a chain's segments, every so often."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError, StoppedError
from minigibbs.running.checkpoint.folder import Checkpoint
from minigibbs.running.group import RECORDED, Job, State

EVERY = 30.0  # seconds
SHARE = 100.0  # at the default interval, writing takes at most 1/100 of the time

# What else is kept: a header and arrays, asked for at each write.
Describe = Callable[[], tuple[dict[str, Any], dict[str, NDArray[Any]]]]


class Saver:
    """Collects a consistent state of every chain, and writes when it has them all.

    Chains may be at different clocks: each needs only its own state to go on.
    """

    def __init__(
        self, checkpoint: Checkpoint, jobs: list[Job], every: float | None, describe: Describe
    ) -> None:
        self._checkpoint, self._jobs, self._every = checkpoint, jobs, every
        self._describe = describe
        self._written = np.array([job.records for job in jobs])  # records on disk, by chain
        self._states: dict[str, NDArray[Any]] = {
            name: np.stack([getattr(job.state(), name) for job in jobs]) for name in State._fields
        }
        self._rows: dict[int, dict[str, NDArray[Any]]] = {}  # chains collected for the next write
        self._due = time.monotonic()
        self._collecting = False

    def look(self, resting: Callable[[], Collection[Job]]) -> None:
        """Collect chains that are between two segments, if it is time."""
        if not self._collecting and time.monotonic() < self._due:
            return
        self._collecting = True
        for job in resting():
            if job.number not in self._rows:
                self._collect(job)

    def _collect(self, job: Job) -> None:
        for name, array in job.state()._asdict().items():
            self._states[name][job.number] = array
        rows = job.rows(self._written[job.number])
        self._rows[job.number] = {name: array.copy() for name, array in rows.items()}

    def write_if_ready(self) -> None:
        """Write if every chain has been collected."""
        if len(self._rows) == len(self._jobs):
            self._write()

    def write_now(self) -> None:
        """Write every chain as it is; none may be running."""
        self._rows.clear()
        for job in self._jobs:
            self._collect(job)
        self._write()

    def _write(self) -> None:
        begun = time.monotonic()
        header, arrays = self._describe()
        chunk, count = self._chunk()
        try:
            self._checkpoint.write(header, {**self._states, **arrays}, chunk)
        except (OSError, SampleError) as error:
            raise _cannot_write(self._checkpoint, error) from error
        self._written += count
        self._rows.clear()
        self._collecting = False
        now = time.monotonic()
        wait = max(EVERY, SHARE * (now - begun)) if self._every is None else self._every
        self._due = now + wait

    def _chunk(self) -> tuple[dict[str, NDArray[Any]] | None, NDArray[np.int64]]:
        """The records since the last write, all chains in one array, and how many each has."""
        rows = [self._rows[number] for number in range(len(self._jobs))]
        count = np.array([max(len(array) for array in own.values()) for own in rows])
        if not count.any():
            return None, count
        chunk: dict[str, NDArray[Any]] = {"count": count}
        for name in RECORDED:
            whole = np.concatenate([own[name] for own in rows])
            if len(whole):
                chunk[name] = whole
        return chunk, count


def _cannot_write(checkpoint: Checkpoint, error: Exception) -> StoppedError:
    folder = checkpoint.folder
    if isinstance(error, FileNotFoundError) or not folder.is_dir():
        what = f"the checkpoint folder {folder} is gone, or parts of it, and the run was stopped"
        return StoppedError(f"{what}; what was sampled is in this error's `run`")
    way_out = (
        f"mg.resume({str(folder)!r}) goes on from the last checkpoint"
        if checkpoint.generation
        else "nothing was sampled yet"
    )
    why = getattr(error, "strerror", None) or error
    return StoppedError(
        f"the checkpoint {folder} could not be written ({why}), and the run was "
        f"stopped; make room, then {way_out}. What was sampled is also in this error's `run`"
    )
