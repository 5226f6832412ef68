"""The one run loop: chains go segment by segment, wherever their segments are run."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Collection
from concurrent.futures import FIRST_COMPLETED, Future, wait
from types import FrameType, TracebackType
from typing import Any, Protocol

from minigibbs.running.checkpoint.saver import Saver
from minigibbs.running.group import Job
from minigibbs.running.plan import INTERRUPTED, LENGTH, TIME
from minigibbs.running.progress import Bar

_LOOK = 0.5  # seconds between two looks at the clock while no segment ends


class Runner(Protocol):
    """Where segments are run."""

    in_place: bool  # whether a running segment works on the job's own arrays

    def submit(self, job: Job) -> Future[Any]:
        """Run a job's next segment."""

    def collect(self, job: Job, future: Future[Any]) -> int:
        """Put a segment's results into the job; returns the updates made, 0 if it was lost."""

    def check(self) -> None:
        """Raise if nothing can come back any more."""

    def rest(self, running: Collection[Future[Any]]) -> None:
        """Drop segments that have not begun, and wait for those that work in place."""


def run_jobs(
    jobs: list[Job],
    runner: Runner,
    bar: Bar,
    saver: Saver | None = None,
    deadline: float | None = None,
) -> str:
    """Run all chains to their ends, to Ctrl-C or to the deadline; returns which."""
    running: dict[Future[Any], Job] = {}
    ended = ""
    with _CtrlC() as ctrl_c:
        try:
            waiting = [job for job in jobs if not job.done]
            while (waiting or running) and not ended:
                running.update({runner.submit(job): job for job in waiting})
                if saver:
                    saver.write_if_ready()
                finished = wait(running, _LOOK, FIRST_COMPLETED).done
                runner.check()
                waiting = [running.pop(future) for future in finished]
                for job, future in zip(waiting, finished, strict=True):
                    bar.advance(runner.collect(job, future))
                if saver:
                    saver.look(lambda: _resting(jobs, running, runner))
                bar.look(jobs)
                waiting = [job for job in waiting if not job.done]
                if ctrl_c.pressed:
                    ended = INTERRUPTED
                elif deadline is not None and time.monotonic() > deadline:
                    ended = TIME if waiting or running else LENGTH
        except KeyboardInterrupt:
            ended = INTERRUPTED
        finally:
            runner.rest(running)
    return ended or LENGTH


def _resting(jobs: list[Job], running: dict[Future[Any], Job], runner: Runner) -> list[Job]:
    """The chains whose arrays nobody works on."""
    if not runner.in_place:
        return jobs
    busy = {job.number for job in running.values()}
    return [job for job in jobs if job.number not in busy]


class _CtrlC:
    """While it lasts, Ctrl-C is noted, not raised: results are never half put in their place.

    A second one is raised as usual.
    """

    pressed = False

    def __enter__(self) -> _CtrlC:
        main = threading.current_thread() is threading.main_thread()
        self._ours = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._ours:
            signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
