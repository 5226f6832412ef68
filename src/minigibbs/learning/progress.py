"""A progress bar for learning, on stderr, quiet where nobody watches."""

from __future__ import annotations

from types import TracebackType
from typing import Any


class StepBar:
    """Counts gradient steps, and shows how far the moments are from the data's."""

    def __init__(self, total: int, made: int, shown: bool) -> None:
        self._progress: Any = None
        if not shown:
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        if console.is_terminal or console.is_jupyter:
            self._progress = Progress(
                TextColumn("learning"),
                BarColumn(),
                TextColumn("{task.completed:,.0f} of {task.total:,.0f} steps"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=console,
            )
            self._task = self._progress.add_task("learning", total=total, completed=made, note="")

    def __enter__(self) -> StepBar:
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

    def show(self, step: int, error: float) -> None:
        """So many steps are made, and the moments are so far off."""
        if self._progress:
            self._progress.update(self._task, completed=step, note=f"moment error {error:.4f}")
