"""What a call is doing, shown on stderr where somebody can see it."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self


def watched(shown: bool) -> Any:
    """Rich's console on stderr if progress is to be shown and somebody can see it, else None."""
    if not shown:
        return None
    from rich.console import Console

    console = Console(stderr=True)
    return console if console.is_terminal or console.is_jupyter else None


class Shown:
    """A bar of Rich's that is shown within a `with`, or none."""

    _progress: Any = None

    def __enter__(self) -> Self:
        if self._progress:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress:
            self._progress.stop()


class Stage(Shown):
    """A line that says what a call prepares and for how long, before it has a bar to show.

    It is shown at once and removed at the end.
    """

    def __init__(self, text: str, shown: bool) -> None:
        console = watched(shown)
        if console is not None:
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            columns = (SpinnerColumn(), TextColumn(text), TimeElapsedColumn())
            self._progress = Progress(*columns, console=console, transient=True)
            self._progress.add_task(text, total=None)
