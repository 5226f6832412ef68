"""Report of a reproduction in text and tables."""

from __future__ import annotations

from typing import Any

from minigibbs.paper import table, theorems
from minigibbs.paper.figures import TITLES
from minigibbs.paper.reproduce import Reproduction


def report(made: Reproduction) -> str:
    """Return all results as Markdown."""
    parts = [f"## {TITLES[name]}\n\n{figure_table(rows)}" for name, rows in made.figures.items()]
    if made.table:
        parts.append(f"## Table 1: what an update costs\n\n{table.report(made.table)}")
    if made.theorems:
        parts.append(f"## Theorems\n\n{theorems.report(made.theorems)}")
    listed = "\n".join(f"* {path}" for path in made.files)
    parts.append(f"## Files, in {made.seconds:.0f} s\n\n{listed}\n")
    return "\n".join(parts)


def figure_table(rows: list[dict[str, Any]]) -> str:
    """Return the final numbers of a figure's curves as a table."""
    lines = [
        "| curve | last error (range of seeds) | µs per update | accepted | changed "
        "| mean log-potential |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        error = row["log_potential_error"]
        spread = "" if error is None else f" ± {error:.1f}"
        lines.append(
            f"| {row['curve']} | {row['error']:.4f} ({row['low']:.4f} to {row['high']:.4f}) | "
            f"{row['microseconds']:.3g} | {row['acceptance']:.0%} | {row['changed']:.0%} | "
            f"{row['log_potential']:.1f}{spread} |"
        )
    return "\n".join(lines) + "\n"
