"""What runs segments: the protocol that the run loop asks for."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Protocol

from minigibbs.running.group import Group


class Runner(Protocol):
    """Where segments are run; a context that lets go of its workers at the end."""

    in_place: bool  # whether a running segment works on the group's own arrays

    def __enter__(self) -> Runner: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def submit(self, group: Group) -> Future[Any]:
        """Run a group's next segment."""

    def collect(self, group: Group, future: Future[Any]) -> int:
        """Put a segment's results into the group; returns the updates made, 0 if it was lost."""

    def check(self) -> None:
        """Raise if nothing can come back any more."""

    def rest(self, running: Collection[Future[Any]]) -> None:
        """Drop segments that have not begun, and wait for those that work in place."""
