"""A live progress bar on stderr, quiet where nobody watches."""

from __future__ import annotations

from types import TracebackType


class Bar:
    """Counts updates over all chains; shows speed and time left on a terminal."""

    def __init__(self, total: int, shown: bool) -> None:
        self._progress = None
        if shown:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            console = Console(stderr=True)
            if console.is_terminal or console.is_jupyter:
                self._progress = Progress(
                    TextColumn("sampling"),
                    BarColumn(),
                    TextColumn("{task.percentage:>3.0f}%"),
                    TextColumn("{task.fields[rate]}"),
                    TimeRemainingColumn(),
                    console=console,
                )
                self._task = self._progress.add_task("sampling", total=total, rate="compiling")

    def __enter__(self) -> Bar:
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

    def advance(self, done: int, rate: float) -> None:
        """Move on by `done` updates; `rate` is the speed over all chains so far."""
        if self._progress:
            self._progress.update(self._task, advance=done, rate=f"{rate:,.0f} updates/s")
