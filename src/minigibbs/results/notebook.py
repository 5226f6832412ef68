"""Runs as notebooks show them: a small table, and what is wrong with it in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minigibbs.results.report.markup import element, join, table

if TYPE_CHECKING:
    from minigibbs.results.run import Run


def run_html(run: Run) -> str:
    """The summary of a run as HTML."""
    summary = run.summary()
    rows: list[list[object]] = [[label, value] for label, value in summary.rows()]
    warnings = [element("p", element("b", "warning: "), text) for text in summary.warnings]
    return str(join(element("p", repr(run)), table(["", ""], rows), *warnings))
