"""Live progress bar on stderr, shown only on a terminal or in a notebook."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from minigibbs.results import diagnostics
from minigibbs.running.group import Group
from minigibbs.system.progress import Shown, watched

_INTERVAL = 1.0  # least seconds between two computations of R-hat
_SHARE = 0.01  # largest share of the time for computing R-hat
_MOST = 2000  # most records per chain for R-hat


class Bar(Shown):
    """Counts updates over all chains; shows speed, time left and R-hat on a terminal.

    A run of known length has a `total`, of which a resumed run has made a part. A run with a goal
    has none: its bar shows the share of the time limit, or only that the run is alive.
    """

    counted = "updates/s"  # unit of the speed
    goal = ""  # progress of a run with a goal at its last check

    def __init__(self, total: int | None, made: int, shown: bool) -> None:
        self._total, self._before, self._made = total, made, 0
        self._begun, self._next_rhat, self._computed = time.perf_counter(), 0.0, False
        self._limit: float | None = None
        console = watched(shown)
        if console is not None:
            self._progress = self._start(console)

    def _start(self, console: Any) -> Any:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        progress = Progress(
            TextColumn("sampling"),
            BarColumn(),
            TextColumn("{task.fields[share]}"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
        )
        self._task = progress.add_task(
            "sampling", total=None, completed=0, rate="compiling", note="", share=""
        )
        return progress

    def deadline(self, seconds: float | None) -> None:
        """Set the time limit of the run."""
        self._limit = seconds

    def begin(self) -> None:
        """Start to measure the speed of sampling."""
        self._begun = time.perf_counter()
        self._next_rhat = self._begun + _INTERVAL
        self._show()

    def advance(self, updates: int) -> None:
        """Add a number of updates."""
        self._made += updates
        self._show()

    def share(self) -> float | None:
        """Return the finished share of the run, from 0 to 1; None if unknown."""
        if self._total is not None:
            return (self._before + self._made) / max(self._total, 1)
        if self._limit:
            return min((time.perf_counter() - self._begun) / self._limit, 1.0)
        return None

    def _show(self) -> None:
        if not self._progress:
            return
        rate = self._made / max(time.perf_counter() - self._begun, 1e-9)
        share = self.share()
        self._progress.update(
            self._task,
            total=None if share is None else 1.0,
            completed=share or 0.0,
            share="" if share is None else f"{share:>4.0%}",
            rate=f"{rate:,.0f} {self.counted}" if rate >= 10 else f"{rate:.2f} {self.counted}",
        )

    def show(self, groups: list[Group]) -> None:
        """Show the R-hat of the energies recorded so far; rarely, because it takes some time."""
        now = time.perf_counter()
        if not self._progress or now < self._next_rhat:
            return
        self._progress.update(self._task, note=self.goal or rhat_note(groups))
        took = time.perf_counter() - now if self._computed else 0.0  # the first call imports ArviZ
        self._computed = True
        self._next_rhat = time.perf_counter() + max(_INTERVAL, took / _SHARE)


def rhat_note(groups: list[Group]) -> str:
    """Return the R-hat of the energy as text, if several chains record it; else ""."""
    series = [group.energies() for group in groups]
    records = min(one.shape[1] for one in series)
    rows = sum(len(one) for one in series)
    if rows < 2 or records < diagnostics.LEAST_RECORDS:
        return ""
    step = -(-records // _MOST)
    rhat = float(diagnostics.rhat(np.concatenate([one[:, :records:step] for one in series])))
    return "" if math.isnan(rhat) else f"energy R-hat {rhat:.3f}"


class Job:
    """Progress bar of several sequential runs."""

    def __init__(self, total: int, shown: bool) -> None:
        self._bar = Bar(total, 0, shown)
        self._bar.counted = "models/s"

    def __enter__(self) -> Job:
        self._bar.__enter__()
        self._bar.begin()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.__exit__(*error)

    def step(self) -> None:
        """Count a finished run."""
        self._bar.advance(1)
