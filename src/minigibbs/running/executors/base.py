"""Protocol of a runner, which executes the segments of the run loop."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Protocol

from minigibbs.running.group import Group


class Runner(Protocol):
    """Executor of segments; a context that releases its workers at the end."""

    in_place: bool  # whether a running segment uses the group's own arrays

    def __enter__(self) -> Runner: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def submit(self, group: Group) -> Future[Any]:
        """Submit a group's next segment."""

    def collect(self, group: Group, future: Future[Any]) -> int:
        """Store a segment's result in the group; return the updates made, 0 if it was lost."""

    def check(self) -> None:
        """Raise an error if no result can arrive any more."""

    def rest(self, running: Collection[Future[Any]]) -> None:
        """Cancel segments that have not begun, and wait for those that run in place."""
