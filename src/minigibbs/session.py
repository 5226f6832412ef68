"""A run from its first segment, or from a checkpoint's, to its end."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from minigibbs.checkpoint import Checkpoint
from minigibbs.errors import StoppedError
from minigibbs.job import Job
from minigibbs.loop import Runner, run_jobs
from minigibbs.plan import LENGTH, STOPPED, Plan
from minigibbs.progress import Bar
from minigibbs.record import Run
from minigibbs.saver import Saver


@dataclass
class Session:
    """The chains of a plan, and how long they have run already."""

    plan: Plan
    jobs: list[Job]
    entropy: int
    seconds: float = 0.0
    ended: str = ""
    length: int = field(init=False)  # of each chain, in updates

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
            self._begun = time.monotonic()
            deadline = None if max_time is None else self._begun + max_time
            try:
                if saver:
                    saver.write_now()
                bar.begin()
                self.ended = run_jobs(jobs, runner, bar, saver, deadline)
                if saver:
                    saver.write_now()
            except StoppedError as error:
                self.ended = STOPPED
                if saver:
                    with suppress(StoppedError):
                        saver.write_now()
                error.run = self.result()
                raise
            self.seconds = self._seconds()
        return self.result()

    def result(self) -> Run:
        """What the chains have recorded."""
        return self.plan.result(self.jobs, self.entropy, self.seconds, self.ended or LENGTH)

    def _seconds(self) -> float:
        return self.seconds + time.monotonic() - self._begun

    def _header(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a checkpoint keeps beside the chains."""
        return {"length": self.length, "seconds": self._seconds(), "ended": self.ended}, {}
