"""Where segments run: on threads of this process, or on any executor, near or far."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from minigibbs.job import Job


class Threads:
    """Segments on threads of this process, in the chains' own arrays."""

    in_place = True

    def __init__(self, workers: int) -> None:
        self._pool = ThreadPoolExecutor(workers)

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def submit(self, job: Job) -> Future[Any]:
        """Run a job's next segment."""
        return self._pool.submit(job.run_segment)

    def collect(self, job: Job, future: Future[Any]) -> int:
        """The updates made; everything else is in place."""
        return int(future.result())

    def rest(self, running: Collection[Future[Any]]) -> None:
        """Drop what has not begun, and wait for the rest."""
        for future in running:
            future.cancel()
        wait(running)
