"""Periodic writes of a run to its checkpoint, between segments of its groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError, StoppedError
from minigibbs.running.group import RECORDED, Group

if TYPE_CHECKING:
    from minigibbs.running.checkpoint.folder import Checkpoint

EVERY = 30.0  # seconds
SHARE = 100.0  # at the default interval, writing takes at most 1/100 of the time

# Returns a header and further arrays to store; called at each write.
Describe = Callable[[], tuple[dict[str, Any], dict[str, NDArray[Any]]]]


def stacked(groups: list[Group]) -> dict[str, NDArray[Any]]:
    """Stack the states of all groups, with one row per group."""
    states = [group.state() for group in groups]
    return {name: np.stack([state[name] for state in states]) for name in states[0]}


class Saver:
    """Collects the states of all groups between their segments, and writes a complete set.

    Groups may be at different clocks, because each needs only its own state to continue.
    """

    def __init__(
        self, checkpoint: Checkpoint, groups: list[Group], every: float | None, describe: Describe
    ) -> None:
        self._checkpoint, self._groups, self._every = checkpoint, groups, every
        self._describe = describe
        self._written = np.array([group.records for group in groups])  # records on disk, by group
        self._states = stacked(groups)
        self._rows: dict[int, dict[str, NDArray[Any]]] = {}  # groups collected for the next write
        self._due = time.monotonic()
        self._collecting = False
        self.seconds = 0.0  # that the last `write_now` took

    def save_if_due(self, resting: Callable[[], Collection[Group]]) -> None:
        """Collect the groups that are between two segments, if a write is due."""
        if not self._collecting and time.monotonic() < self._due:
            return
        self._collecting = True
        for group in resting():
            if group.number not in self._rows:
                self._collect(group)

    def _collect(self, group: Group) -> None:
        for name, array in group.state().items():
            self._states[name][group.number] = array
        rows = group.rows(self._written[group.number])
        self._rows[group.number] = {name: array.copy() for name, array in rows.items()}

    def write_if_ready(self) -> None:
        """Write if every group has been collected."""
        if len(self._rows) == len(self._groups):
            self._write()

    def write_now(self) -> None:
        """Write every group as it is; none may be running."""
        begun = time.monotonic()
        self._rows.clear()
        for group in self._groups:
            self._collect(group)
        self._write()
        self.seconds = time.monotonic() - begun

    def _write(self) -> None:
        begun = time.monotonic()
        header, arrays = self._describe()
        try:
            if self._checkpoint.lost_records():
                self._collect_again()
            chunk, count = self._chunk()
            self._checkpoint.write(header, {**self._states, **arrays}, chunk)
        except (OSError, SampleError) as error:
            raise _cannot_write(self._checkpoint, error) from error
        self._written += count
        self._rows.clear()
        self._collecting = False
        now = time.monotonic()
        wait = max(EVERY, SHARE * (now - begun)) if self._every is None else self._every
        self._due = now + wait

    def _collect_again(self) -> None:
        """Collect all records of the groups, up to the clocks at which they were collected."""
        for group in self._groups:
            own = self._rows[group.number]
            count = self._written[group.number] + max(len(array) for array in own.values())
            whole = {name: array[:count].copy() for name, array in group.rows(0).items()}
            self._rows[group.number] = whole
        self._written[:] = 0

    def _chunk(self) -> tuple[dict[str, NDArray[Any]] | None, NDArray[np.int64]]:
        """Return the records since the last write, concatenated over groups, and their counts."""
        rows = [self._rows[number] for number in range(len(self._groups))]
        count = np.array([max(len(array) for array in own.values()) for own in rows])
        if not count.any():
            return None, count
        chunk: dict[str, NDArray[Any]] = {"count": count}
        for name in RECORDED:
            some = [own[name] for own in rows if name in own]
            if some and len(whole := np.concatenate(some)):
                chunk[name] = whole
        return chunk, count


def _cannot_write(checkpoint: Checkpoint, error: Exception) -> StoppedError:
    folder = checkpoint.folder
    if isinstance(error, FileNotFoundError) or not folder.is_dir():
        what = f"the checkpoint folder {folder} is gone, or parts of it, and the run was stopped"
        return StoppedError(f"{what}; what was sampled is in this error's `run`")
    way_out = (
        f"mg.resume({str(folder)!r}) continues from the last checkpoint"
        if checkpoint.generation
        else "nothing was sampled yet"
    )
    why = getattr(error, "strerror", None) or error
    first = "" if isinstance(error, SampleError) else "free some space, then "
    return StoppedError(
        f"the checkpoint {folder} could not be written ({why}), and the run was "
        f"stopped; {first}{way_out}. What was sampled is also in this error's `run`"
    )
