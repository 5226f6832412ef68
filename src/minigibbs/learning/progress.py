"""Progress bar of learning on stderr, shown only on a terminal or in a notebook."""

from __future__ import annotations

from minigibbs.system.progress import Shown, watched


class StepBar(Shown):
    """Counts gradient steps, and shows the difference between the moments of model and data."""

    def __init__(self, total: int, made: int, shown: bool) -> None:
        console = watched(shown)
        if console is not None:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("learning"),
                BarColumn(),
                TextColumn("{task.completed:,.0f} of {task.total:,.0f} steps"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=console,
            )
            self._task = self._progress.add_task("learning", total=total, completed=made, note="")

    def show(self, step: int, error: float, tempered: bool = False) -> None:
        """Show the number of steps, the difference of the moments, and whether chains temper."""
        if self._progress:
            note = f"moment error {error:.4f}" + (", tempered chains" if tempered else "")
            self._progress.update(self._task, completed=step, note=note)
