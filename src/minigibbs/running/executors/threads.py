"""Segments in this process: on threads, or one after the other."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from minigibbs.running.group import Group


class Inline:
    """Segments one after the other in the calling thread, as a GPU wants them."""

    in_place = True

    def __enter__(self) -> Inline:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to let go of."""

    def submit(self, group: Group) -> Future[Any]:
        """Run a group's next segment, here and now."""
        done: Future[Any] = Future()
        done.set_result(group.run_segment())
        return done

    def collect(self, group: Group, future: Future[Any]) -> int:
        """The updates made; everything else is in place."""
        return int(future.result())

    def check(self) -> None:
        """Nothing is lost here."""

    def rest(self, running: Collection[Future[Any]]) -> None:
        """Nothing is under way here."""


class Threads(Inline):
    """Segments on threads of this process, in the groups' own arrays."""

    def __init__(self, pool: ThreadPoolExecutor, own: bool) -> None:
        self._pool, self._own = pool, own

    def __exit__(self, *_: object) -> None:
        if self._own:
            self._pool.shutdown()

    def submit(self, group: Group) -> Future[Any]:
        """Run a group's next segment."""
        return self._pool.submit(group.run_segment)

    def rest(self, running: Collection[Future[Any]]) -> None:
        """Drop what has not begun, and wait for the rest."""
        for future in running:
            future.cancel()
        wait(running)
