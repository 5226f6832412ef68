"""A run as a task of the driver: groups of chains advance segment by segment, on any runner."""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.driver import drive
from minigibbs.errors import StoppedError
from minigibbs.observables.own import ObservableError
from minigibbs.results.run import Run
from minigibbs.running.backends import BACKENDS
from minigibbs.running.checkpoint.folder import Checkpoint
from minigibbs.running.checkpoint.saver import Saver
from minigibbs.running.executors.base import Runner
from minigibbs.running.goal import Goal, Round
from minigibbs.running.group import Collected, Counted, Group
from minigibbs.running.halves import first_part, save_halves
from minigibbs.running.plan import CONVERGED, LENGTH, STOPPED, Plan
from minigibbs.running.progress import Bar
from minigibbs.running.result import result
from minigibbs.system.watch import TIME, Watch

_PATIENCE = 0.5  # seconds to wait for a segment before the driver looks at the clock again
_SHARE_OF_SEGMENT = 0.1  # of the time left: other processes make a longer segment even longer
_GATHERED = 1e-7  # seconds to gather a row's counts of one value, and to compute its error
_MOST_AFTERWARDS = 0.5  # of the time left, which saving and gathering may take


@dataclass
class Loop:
    """A run in progress: its groups, and the seconds that they have run."""

    plan: Plan
    groups: list[Group]
    goal: Goal | None = None
    seconds: float = 0.0
    ended: str = ""
    halves: dict[int, Counted] = field(default_factory=dict)  # the first half of each group
    length: int = field(init=False)  # length of each chain, in updates
    _begun: float | None = None  # when the present stretch of sampling began
    _running: dict[Future[Any], Group] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.length = self.plan.length
        self._mark()

    def _mark(self) -> None:
        """Let every group end a segment in the middle of the run, where its counts are stored.

        A goal stores counts itself. A group beyond the middle of an extended run keeps its stored
        counts.
        """
        middle = self.length // 2 // self.plan.unit * self.plan.unit
        if self.goal is not None or "marginals" not in self.plan.kept:
            return
        for group in self.groups:
            if group.clock <= middle:
                group.middle = middle
                self.halves.pop(group.number, None)
                self._note(group)

    def _note(self, group: Group) -> None:
        """Store the counts of a group that is in the middle of the run."""
        if 0 < group.middle == group.clock and group.number not in self.halves:
            self.halves[group.number] = group.counted()

    def grow(self, updates: int) -> None:
        """Extend every chain by `updates`; no segment may be running."""
        self.length += updates
        for group in self.groups:
            group.grow(self.length)
        if updates:
            self._mark()

    def run(
        self,
        runner: Runner,
        progress: bool,
        watch: Watch,
        checkpoint: Checkpoint | None = None,
        every: float | None = None,
    ) -> Run:
        """Run to the end, and save along the way if there is a checkpoint.

        Parameters
        ----------
        runner : Runner
            Executor of segments.
        progress : bool
            Whether to show a progress bar.
        watch : Watch
            Deadline and signals of the call.
        checkpoint : Checkpoint or None
            Checkpoint in which to save the run.
        every : float or None
            Seconds between two checkpoints; None for the default.

        Returns
        -------
        Run
            Recorded results, however the run ended.
        """
        total = None if self.goal else self._total()
        with Bar(total, sum(group.made for group in self.groups), progress) as bar:
            if runner.in_place:
                for group in self.groups:
                    group.compile()
            if self.goal:
                self.goal.prepare()
            self._runner, self._bar, self._watch = runner, bar, watch
            self._saver = None
            if checkpoint is not None:
                self._saver = Saver(checkpoint, self.groups, every, self._header)
            try:
                self._save_now()
                with Watch(watch.left - self._afterwards()) as self._watch:
                    bar.deadline(self._watch.left if watch.limited else None)
                    bar.begin()
                    self.ended = drive(self, self._watch)
                self._watch = watch
                self._save_now()
            except StoppedError as error:
                self.ended = STOPPED
                if isinstance(error, ObservableError):  # no valid state to resume from
                    error.run = replace(self.result(), observed=None)
                    raise
                with suppress(StoppedError):
                    self._save_now()
                error.run = self.result()
                raise
            return self.result()

    def _afterwards(self) -> float:
        """Predict the seconds of what follows the last segment: saving, and gathering counts."""
        saving = self._saver.seconds if self._saver else 0.0
        gathering = _GATHERED * self.plan.rows * self.plan.values
        return float(min(saving + gathering, max(_MOST_AFTERWARDS * self._watch.left, 0.0)))

    def _total(self) -> int:
        """Return the updates of all chains, including warm-up."""
        return self.plan.chains * (self.plan.warmup + self.length)

    def segment(self) -> str:
        """Wait for a finished segment, and submit its group's next; check the goal at the end.

        Returns
        -------
        str
            How the run ended, or "".
        """
        if self._begun is None:
            self._begun = time.monotonic()
            self._submit(self.groups)
        if self._running:
            patience = min(_PATIENCE, max(self._watch.left, 0.0))
            finished = wait(self._running, patience, FIRST_COMPLETED).done
            self._runner.check()
            groups = [self._running.pop(future) for future in finished]
            for group, future in zip(groups, finished, strict=True):
                self._bar.advance(self._runner.collect(group, future))
                self._note(group)
            self._bar.show(self.groups)
            if self._saver:
                self._saver.save_if_due(self._resting)
            if not self._watch.ended:
                self._submit(groups)
        if self._running or not all(group.done for group in self.groups):
            return ""
        self._pause()
        return self._check_goal() if self.goal else LENGTH

    def _submit(self, groups: list[Group]) -> None:
        """Submit the next segment of the groups that have one."""
        for group in groups:
            if not group.done:
                group.hurry(_SHARE_OF_SEGMENT * self._watch.left)
                self._running[self._runner.submit(group)] = group

    def keep(self) -> None:
        """Write a checkpoint if one is due and all groups were collected between segments."""
        if self._saver:
            self._saver.write_if_ready()

    def rest(self) -> None:
        """Wait for segments that run in place, and cancel the others."""
        self._runner.rest(self._running)
        self._running = {}
        self._pause()

    def _save_now(self) -> None:
        if self._saver:
            with self._watch.noted():
                self._saver.write_now()

    def _pause(self) -> None:
        """Stop the clock of sampling."""
        self.seconds, self._begun = self._seconds(), None

    def _check_goal(self) -> str:
        """Check the goal; return how the run ended, or "" after extending it.

        A check that was canceled has changed nothing; a resumed run repeats it.
        """
        assert self.goal is not None
        with self._watch.raised():
            parts = [group.collect() for group in self.groups]
            looked = self.goal.check(self._gathered(parts, search=False), _round(parts))
        if looked is None:
            return TIME
        self.goal = looked
        if looked.met:
            return CONVERGED
        self._bar.goal = looked.note()
        self._lengthen(looked)
        return ""

    def _lengthen(self, goal: Goal) -> None:
        """Extend every chain by another round."""
        more = goal.more(self.length, self.plan.thin * self.plan.energy_every)
        try:
            longer = replace(self.plan, length=self.length + more)
            BACKENDS[self.plan.backend].check_memory(longer)
            self.grow(more)
        except MemoryError as error:  # a `TooLargeError`, or from an allocation
            reached = f"{goal.note()} after {self.length:,} updates of each chain"
            raise StoppedError(f"{reached}; to run longer: {error}") from error

    def _resting(self) -> list[Group]:
        """Return the groups whose arrays no segment uses."""
        if not self._runner.in_place:
            return self.groups
        busy = {group.number for group in self._running.values()}
        return [group for group in self.groups if group.number not in busy]

    def result(self, search: bool = True) -> Run:
        """Return the recorded results; `search` looks for modes that all chains missed."""
        return self._gathered([group.collect() for group in self.groups], search)

    def _gathered(self, parts: list[Collected], search: bool) -> Run:
        early = first_part(self.halves, self.goal, parts)
        clock = np.concatenate([part.clock for part in parts])
        begin = None if self.goal is None else self.goal.begin(clock)
        ended = self.ended or LENGTH
        return result(self.plan, parts, self.seconds, ended, search, early, begin)

    def _seconds(self) -> float:
        """Return the seconds of sampling so far, without checks of the goal."""
        running = 0.0 if self._begun is None else time.monotonic() - self._begun
        return self.seconds + running

    def _header(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what a checkpoint stores in addition to the groups."""
        header, arrays = self.goal.save() if self.goal else ({}, {})
        own = {"length": self.length, "seconds": self._seconds(), "ended": self.ended}
        return {**own, **header}, {**arrays, **save_halves(self.halves)}


def _round(parts: list[Collected]) -> Round:
    """Return the counts at the end of a round."""
    counts, visits, clock = zip(
        *((one.counts, one.visits, one.clock) for one in parts), strict=True
    )
    return Round(np.concatenate(counts), np.concatenate(visits), np.concatenate(clock))
