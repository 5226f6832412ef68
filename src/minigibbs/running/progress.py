"""A live progress bar on stderr, quiet where nobody watches."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from minigibbs.results import diagnostics
from minigibbs.running.group import Group
from minigibbs.system.progress import Shown, watched

_LOOK = 1.0  # seconds between two looks at the chains, at least
_SHARE = 0.01  # of the time that looking may take
_MOST = 2000  # records a chain that are looked at


class Bar(Shown):
    """Counts updates over all chains; shows speed, time left and R-hat on a terminal.

    A run of a known length has a `total`, of which a resumed one has made some already. One with a
    goal has none: its bar fills with the time it may take, or shows no more than that it moves.
    """

    counted = "updates/s"  # what its speed is in
    goal = ""  # how far a run with a goal was at its last look

    def __init__(self, total: int | None, made: int, shown: bool) -> None:
        self._total, self._before, self._made = total, made, 0
        self._begun, self._next_look, self._looked = time.perf_counter(), 0.0, False
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
        """The run may take so long."""
        self._limit = seconds

    def begin(self) -> None:
        """Sampling begins: the speed is measured from here."""
        self._begun = time.perf_counter()
        self._next_look = self._begun + _LOOK
        self._show()

    def advance(self, updates: int) -> None:
        """Advance by a number of updates."""
        self._made += updates
        self._show()

    def share(self) -> float | None:
        """How much of the run is done, from 0 to 1; None where nobody can know."""
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
        """Show the R-hat of the energies recorded so far; rarely, since it costs some time."""
        now = time.perf_counter()
        if not self._progress or now < self._next_look:
            return
        self._progress.update(self._task, note=self.goal or rhat_note(groups))
        took = time.perf_counter() - now if self._looked else 0.0  # the first one imports ArviZ
        self._looked = True
        self._next_look = time.perf_counter() + max(_LOOK, took / _SHARE)


def rhat_note(groups: list[Group]) -> str:
    """R-hat of the energy, if several chains record it; nothing otherwise."""
    series = [group.energies() for group in groups]
    records = min(one.shape[1] for one in series)
    rows = sum(len(one) for one in series)
    if rows < 2 or records < diagnostics.LEAST_RECORDS:
        return ""
    step = -(-records // _MOST)
    rhat = float(diagnostics.rhat(np.concatenate([one[:, :records:step] for one in series])))
    return "" if math.isnan(rhat) else f"energy R-hat {rhat:.3f}"


class Job:
    """A bar for several runs, one after the other; quiet where nobody watches."""

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
        """A run has ended."""
        self._bar.advance(1)
