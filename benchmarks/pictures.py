"""Draws a results table: every measured ratio, and the bar it is held against."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from minigibbs.results import plots

RATIO = re.compile(r"^(-?[\d.]+)x")
BAR = re.compile(r"(at least|at most|under) ([\d.]+)x")


def draw(table: Path) -> None:
    """Write `table`'s ratios as a picture beside it, if it has any."""
    rows = [line.strip("|").split(" | ") for line in table.read_text().splitlines()]
    found, group = [], ""
    for cells in rows:
        if len(cells) < 4:
            continue
        if cells[0].startswith("   "):  # indented under the row before
            cells[0] = f"{group}: {cells[0].strip()}"
        else:
            group = cells[0].strip()
        ratio, bar = RATIO.match(cells[1].strip()), BAR.search(cells[2])
        if ratio and bar and float(ratio[1]) > 0:
            found.append((cells[0].strip(), float(ratio[1]), bar[1], float(bar[2])))
    if not found:
        return
    whole, (axes,) = plots.figure(1, width=14, height=1.2 + 0.38 * len(found))
    for place, (_, ratio, side, bar) in enumerate(reversed(found)):
        good = ratio >= bar if side == "at least" else ratio <= bar
        axes.plot([bar, ratio], [place, place], color="0.8", linewidth=2, zorder=1)
        axes.scatter([bar], [place], marker="|", s=160, color="0.3", zorder=2)
        axes.scatter([ratio], [place], color="tab:blue" if good else "tab:red", zorder=3)
        axes.annotate(f" {ratio:.3g}x", (ratio, place), xytext=(6, 4), textcoords="offset points")
    labels = [
        f"{textwrap.shorten(what, 100)} ({side} {bar:g}x)" for what, _, side, bar in reversed(found)
    ]
    axes.set_yticks(range(len(found)), labels)
    axes.set(xscale="log", xlabel="ratio: measured (dot) against the bar (stroke)")
    axes.margins(x=0.2, y=0.12)
    axes.grid(alpha=0.25, axis="x", which="both")
    plots.save(whole, table.with_suffix(".png"))
