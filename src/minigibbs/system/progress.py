"""What a call is doing, shown on stderr where somebody can see it."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Any, ClassVar, Self

_PATIENCE = 2.0  # seconds after which a call that shows no bar says what it does


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
    active: ClassVar[int] = 0  # bars and lines that are shown now

    def __enter__(self) -> Self:
        if self._progress:
            self._progress.start()
            Shown.active += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress:
            self._progress.stop()
            Shown.active -= 1


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


class Delayed:
    """A `Stage` that is shown only if its `with` block takes longer than two seconds.

    It serves calls that are usually short and have no argument `progress`. Nothing is shown beside
    the bar of a longer call. Where nobody can see a line, no thread is started.
    """

    def __init__(self, text: str) -> None:
        self._text, self._stage, self._over = text, Stage("", False), False
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> None:
        if sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            self._timer = threading.Timer(_PATIENCE, self._show)
            self._timer.daemon = True
            self._timer.start()

    def _show(self) -> None:
        with self._lock:
            if not (self._over or Shown.active):
                self._stage = Stage(self._text, True)
                self._stage.__enter__()

    def __exit__(self, *failure: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._over = True
            self._stage.__exit__(None, None, None)
