"""The one run loop: groups of chains go segment by segment, wherever their segments are run."""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from minigibbs.errors import StoppedError
from minigibbs.results.run import Run
from minigibbs.running.backends import BACKENDS
from minigibbs.running.checkpoint.folder import Checkpoint
from minigibbs.running.checkpoint.saver import Saver
from minigibbs.running.executors.base import Runner
from minigibbs.running.goal import Goal
from minigibbs.running.group import Group
from minigibbs.running.plan import CONVERGED, INTERRUPTED, LENGTH, STOPPED, TIME, Plan
from minigibbs.running.progress import Bar
from minigibbs.running.result import result
from minigibbs.running.signals import Signals

_LOOK = 0.5  # seconds between two looks at the clock while no segment ends


@dataclass
class Loop:
    """A run under way: its groups, and how long they have run already."""

    plan: Plan
    groups: list[Group]
    goal: Goal | None = None
    seconds: float = 0.0
    ended: str = ""
    length: int = field(init=False)  # of each chain, in updates
    _begun: float | None = None  # when the present round began

    def __post_init__(self) -> None:
        self.length = self.plan.length

    def grow(self, updates: int) -> None:
        """Let every chain run so many updates longer; none may be running."""
        self.length += updates
        for group in self.groups:
            group.grow(self.length)

    def run(
        self,
        runner: Runner,
        progress: bool,
        checkpoint: Checkpoint | None = None,
        every: float | None = None,
        max_time: float | None = None,
    ) -> Run:
        """Run to the end, and save along the way if there is a checkpoint."""
        total = None if self.goal else self._total()
        with Bar(total, sum(group.made for group in self.groups), progress) as bar:
            if runner.in_place:
                for group in self.groups:
                    group.compile()
            if self.goal:
                self.goal.prepare()
            saver = None
            if checkpoint is not None:
                saver = Saver(checkpoint, self.groups, every, self._header)
            deadline = None if max_time is None else time.monotonic() + max_time
            bar.deadline(max_time)
            with Signals() as signals:
                try:
                    if saver:
                        saver.write_now()
                    bar.begin()
                    self.ended = self._rounds(runner, bar, saver, deadline, signals)
                    if saver:
                        saver.write_now()
                except StoppedError as error:
                    self.ended = STOPPED
                    if saver:
                        with suppress(StoppedError):
                            saver.write_now()
                    error.run = self.result()
                    raise
                return self.result()

    def _total(self) -> int:
        """Updates of all chains, warm-up included."""
        return self.plan.chains * (self.plan.warmup + self.length)

    def _rounds(
        self,
        runner: Runner,
        bar: Bar,
        saver: Saver | None,
        deadline: float | None,
        signals: Signals,
    ) -> str:
        """Run until all updates are made, and longer until the goal is met, if there is one."""
        while True:
            self._begun = time.monotonic()
            try:
                ended = self._segments(runner, bar, saver, deadline, signals)
            finally:
                self.seconds, self._begun = self._seconds(), None
            if ended != LENGTH or self.goal is None:
                return ended
            looked = self._look(self.goal, deadline, signals)
            if looked is None:
                return signals.ended or TIME
            self.goal = looked
            if looked.met:
                return CONVERGED
            bar.goal = looked.note()
            self._lengthen(looked)

    def _look(self, goal: Goal, deadline: float | None, signals: Signals) -> Goal | None:
        """The goal after a look at it; None if there is no time for one, or a signal ends it.

        A look that was dropped has changed nothing: a resumed run makes it again.
        """
        try:
            with signals.raised():
                return goal.look(self.result(), deadline)
        except KeyboardInterrupt:
            signals.ended = signals.ended or INTERRUPTED
            return None

    def _lengthen(self, goal: Goal) -> None:
        """Give every chain another round."""
        more = goal.more(self.length, self.plan.thin)
        try:
            longer = replace(self.plan, length=self.length + more)
            BACKENDS[self.plan.backend].check_memory(longer)
            self.grow(more)
        except MemoryError as error:  # a `TooLargeError`, or that of an allocation
            reached = f"{goal.note()} after {self.length:,} updates of each chain"
            raise StoppedError(f"{reached}; to run longer: {error}") from error

    def _segments(
        self,
        runner: Runner,
        bar: Bar,
        saver: Saver | None,
        deadline: float | None,
        signals: Signals,
    ) -> str:
        """Run all groups to their ends, to a signal or to the deadline; returns which."""
        running: dict[Future[Any], Group] = {}
        ended = ""
        try:
            waiting = [group for group in self.groups if not group.done]
            while (waiting or running) and not ended:
                running.update({runner.submit(group): group for group in waiting})
                if saver:
                    saver.write_if_ready()
                finished = wait(running, _patience(deadline), FIRST_COMPLETED).done
                runner.check()
                waiting = [running.pop(future) for future in finished]
                for group, future in zip(waiting, finished, strict=True):
                    bar.advance(runner.collect(group, future))
                if saver:
                    saver.look(lambda: self._resting(running, runner))
                bar.look(self.groups)
                waiting = [group for group in waiting if not group.done]
                if signals.ended:
                    ended = signals.ended
                elif deadline is not None and time.monotonic() > deadline:
                    ended = TIME if waiting or running else LENGTH
        except KeyboardInterrupt:
            ended = INTERRUPTED
        finally:
            runner.rest(running)
        return ended or LENGTH

    def _resting(self, running: dict[Future[Any], Group], runner: Runner) -> list[Group]:
        """The groups whose arrays nobody works on."""
        if not runner.in_place:
            return self.groups
        busy = {group.number for group in running.values()}
        return [group for group in self.groups if group.number not in busy]

    def result(self) -> Run:
        """What the chains have recorded."""
        parts = [group.collect() for group in self.groups]
        return result(self.plan, parts, self.seconds, self.ended or LENGTH)

    def _seconds(self) -> float:
        """Of sampling so far, looks at the goal left out."""
        running = 0.0 if self._begun is None else time.monotonic() - self._begun
        return self.seconds + running

    def _header(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a checkpoint keeps beside the groups."""
        header, arrays = self.goal.save() if self.goal else ({}, {})
        own = {"length": self.length, "seconds": self._seconds(), "ended": self.ended}
        return {**own, **header}, arrays


def _patience(deadline: float | None) -> float:
    """Seconds to wait for a segment to end before the clock is looked at."""
    left = _LOOK if deadline is None else deadline - time.monotonic()
    return min(_LOOK, max(left, 0.0))
