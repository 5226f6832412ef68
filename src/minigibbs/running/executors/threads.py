"""Segments in this process: on threads, or sequentially."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from minigibbs.running.group import Group


class Inline:
    """Sequential segments in the calling thread, for GPUs."""

    in_place = True

    def __enter__(self) -> Inline:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there are no workers."""

    def submit(self, group: Group) -> Future[Any]:
        """Run a group's next segment immediately."""
        done: Future[Any] = Future()
        done.set_result(group.run_segment())
        return done

    def collect(self, group: Group, future: Future[Any]) -> int:
        """Return the updates made; the group's arrays are already up to date."""
        return int(future.result())

    def check(self) -> None:
        """Do nothing: no segment can be lost."""

    def rest(self, running: Collection[Future[Any]]) -> None:
        """Do nothing: no segment is running."""


class Threads(Inline):
    """Segments on threads of this process, in the groups' own arrays."""

    def __init__(self, pool: ThreadPoolExecutor, own: bool) -> None:
        self._pool, self._own = pool, own

    def __exit__(self, *_: object) -> None:
        if self._own:
            self._pool.shutdown()

    def submit(self, group: Group) -> Future[Any]:
        """Submit a group's next segment to the pool."""
        return self._pool.submit(group.run_segment)

    def rest(self, running: Collection[Future[Any]]) -> None:
        """Cancel segments that have not begun, and wait for the others."""
        for future in running:
            future.cancel()
        wait(running)
