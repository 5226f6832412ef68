"""A live progress bar on stderr, quiet where nobody watches."""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Any

import numpy as np

from minigibbs.results import diagnostics
from minigibbs.running.group import Job

_LOOK = 1.0  # seconds between two looks at the chains, at the least
_SHARE = 0.01  # of the time that looking may take
_MOST = 2000  # records a chain that are looked at


class Bar:
    """Counts updates over all chains; shows speed, time left and R-hat on a terminal."""

    goal = ""  # how far a run with a goal was at its last look

    def __init__(self, total: int, shown: bool) -> None:
        self._progress: Any = None
        self._made, self._begun, self._next_look = 0, time.perf_counter(), 0.0
        if shown:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            console = Console(stderr=True)
            if console.is_terminal or console.is_jupyter:
                self._progress = Progress(
                    TextColumn("sampling"),
                    BarColumn(),
                    TextColumn("{task.percentage:>3.0f}%"),
                    TextColumn("{task.fields[rate]}"),
                    TimeRemainingColumn(),
                    TextColumn("{task.fields[note]}"),
                    console=console,
                )
                self._task = self._progress.add_task(
                    "sampling", total=total, rate="compiling", note=""
                )

    def __enter__(self) -> Bar:
        if self._progress:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress:
            self._progress.stop()

    def begin(self) -> None:
        """Sampling begins: the speed is measured from here."""
        self._begun = time.perf_counter()
        self._next_look = self._begun + _LOOK

    def advance(self, done: int) -> None:
        """Move on by `done` updates."""
        self._made += done
        if self._progress:
            rate = self._made / max(time.perf_counter() - self._begun, 1e-9)
            self._progress.update(self._task, advance=done, rate=f"{rate:,.0f} updates/s")

    def look(self, jobs: list[Job]) -> None:
        """Show the R-hat of the energies recorded so far; rarely, since it costs some time."""
        now = time.perf_counter()
        if self._progress and now >= self._next_look:
            self._progress.update(self._task, note=self.goal or _rhat_note(jobs))
            took = time.perf_counter() - now
            self._next_look = now + max(_LOOK, took / _SHARE)

    def lengthen(self, updates: int) -> None:
        """There are so many more updates to make."""
        if self._progress:
            (task,) = self._progress.tasks
            self._progress.update(self._task, total=task.total + updates)


def _rhat_note(jobs: list[Job]) -> str:
    """R-hat of the energy, if several chains record it; nothing otherwise."""
    records = min(job.records for job in jobs)
    if len(jobs) < 2 or not len(jobs[0].recorder.energy) or records < 4:
        return ""
    step = -(-records // _MOST)
    series = np.stack([job.recorder.energy[:records:step] for job in jobs])
    rhat = float(diagnostics.rhat(series))
    return "" if math.isnan(rhat) else f"energy R-hat {rhat:.3f}"
