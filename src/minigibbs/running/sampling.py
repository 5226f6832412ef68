"""A run from its first segment, or from a checkpoint's, to its end."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from minigibbs.errors import StoppedError, TooLargeError
from minigibbs.results.run import Run
from minigibbs.running.checkpoint.folder import Checkpoint
from minigibbs.running.checkpoint.saver import Saver
from minigibbs.running.goal import Goal
from minigibbs.running.group import Job
from minigibbs.running.loop import Runner, run_jobs
from minigibbs.running.plan import CONVERGED, LENGTH, STOPPED, Plan
from minigibbs.running.progress import Bar


@dataclass
class Sampling:
    """The chains of a plan, and how long they have run already."""

    plan: Plan
    jobs: list[Job]
    entropy: int
    seconds: float = 0.0
    ended: str = ""
    goal: Goal | None = None
    length: int = field(init=False)  # of each chain, in updates
    _begun: float | None = None  # when the present round began

    def __post_init__(self) -> None:
        self.length = self.plan.length

    def grow(self, updates: int) -> None:
        """Let every chain run so many updates longer; none may be running."""
        self.length += updates
        for job in self.jobs:
            job.grow(updates, self.plan.recorder(self.length))

    def run(
        self,
        runner: Runner,
        progress: bool,
        checkpoint: Checkpoint | None = None,
        every: float | None = None,
        max_time: float | None = None,
    ) -> Run:
        """Run to the end, and save along the way if there is a checkpoint."""
        jobs, saver = self.jobs, None
        with Bar(sum(job.warmup_left + job.left for job in jobs), progress) as bar:
            if runner.in_place:
                for job in jobs:
                    job.compile()
            if checkpoint is not None:
                saver = Saver(checkpoint, jobs, every, self._header)
            deadline = None if max_time is None else time.monotonic() + max_time
            try:
                if saver:
                    saver.write_now()
                bar.begin()
                self.ended = self._rounds(runner, bar, saver, deadline)
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

    def _rounds(self, runner: Runner, bar: Bar, saver: Saver | None, deadline: float | None) -> str:
        """Run until all updates are made, and longer until the goal is met, if there is one."""
        while True:
            self._begun = time.monotonic()
            try:
                ended = run_jobs(self.jobs, runner, bar, saver, deadline)
            finally:
                self.seconds, self._begun = self._seconds(), None
            if ended != LENGTH or self.goal is None:
                return ended
            if self.goal.met(self.result()):
                return CONVERGED
            bar.goal = self.goal.note()
            more = self.goal.more(self.length, self.plan.thin)
            try:
                replace(self.plan, length=self.length + more).check_memory(len(self.jobs))
            except TooLargeError as error:
                reached = f"{self.goal.note()} after {self.length:,} updates of each chain"
                raise StoppedError(f"{reached}; to run longer: {error}") from error
            self.grow(more)
            bar.lengthen(more * len(self.jobs))

    def result(self) -> Run:
        """What the chains have recorded."""
        return self.plan.result(self.jobs, self.entropy, self.seconds, self.ended or LENGTH)

    def _seconds(self) -> float:
        """Of sampling so far, looks at the goal left out."""
        running = 0.0 if self._begun is None else time.monotonic() - self._begun
        return self.seconds + running

    def _header(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a checkpoint keeps beside the chains."""
        header, arrays = self.goal.save() if self.goal else ({}, {})
        own = {"length": self.length, "seconds": self._seconds(), "ended": self.ended}
        return {**own, **header}, arrays
