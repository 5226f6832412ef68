"""Claims on random graphs: failure counts, the worst case found, plots and numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.paper.claims import CLAIMS, Claim
from minigibbs.paper.search import Trial, climb, fresh
from minigibbs.results import plots
from minigibbs.system import files
from minigibbs.theory.bounds import AT_LEAST, AT_MOST, EQUAL

GRAPHS, QUICK_GRAPHS = 400, 30
TOLERANCE = 1e-9  # Poisson tails are cut at 1e-12, eigenvalues are accurate to about 1e-14


@dataclass(frozen=True, eq=False)
class Evidence:
    """Comparisons of a claim on random graphs, and the worst case of a search from them."""

    sense: str
    graphs: NDArray[np.int64]  # [point] index of the graph
    claimed: NDArray[np.float64]  # [point]
    true: NDArray[np.float64]  # [point]
    worst: Trial
    margins: NDArray[np.float64] = field(repr=False)  # [graph] see `Comparison.margin`

    @property
    def failures(self) -> int:
        """Number of graphs on which the claim is false."""
        return int(np.count_nonzero(self.margins < -TOLERANCE))

    @property
    def holds(self) -> bool:
        """Whether neither the graphs nor the search found a counterexample."""
        return self.failures == 0 and self.worst.comparison.holds(TOLERANCE)


def gather(name: str, graphs: int) -> Evidence:
    """Test a claim on random graphs, then search for as many steps from the worst of them.

    There is no search for distributions, which are equal up to rounding or clearly different.
    """
    make = CLAIMS[name].make
    trials = [fresh(make, number) for number in range(graphs)]
    found = [trial.comparison for trial, _ in trials]
    worst, tape = max(trials, key=lambda pair: pair[0].comparison.strain)
    return Evidence(
        sense=found[0].sense,
        graphs=np.repeat(np.arange(graphs), [len(c.true) for c in found]),
        claimed=np.concatenate([c.claimed for c in found]),
        true=np.concatenate([c.true for c in found]),
        worst=worst if found[0].sense == EQUAL else climb(make, worst, tape, graphs),
        margins=np.array([c.margin for c in found]),
    )


def draw(evidence: Mapping[str, Evidence], folder: Path) -> list[Path]:
    """Plot claim against truth, one panel per claim, and write the numbers."""
    lines = -(-len(evidence) // 4)
    whole, rows = plots.grid(lines, 4, width=13.0, height=3.4 * lines)
    for axes, (name, found) in zip(rows.ravel(), evidence.items(), strict=False):
        _panel(axes, CLAIMS[name], found)
    for axes in rows.ravel()[len(evidence) :]:
        axes.set_axis_off()
    graphs = len(next(iter(evidence.values())).margins)
    whole.suptitle(
        f"What is claimed against what is true, on {graphs} random graphs each\n"
        "Distributions belong on the line, gaps above, probabilities below. Red: wrong side.",
        fontsize=13,
    )
    written = []
    for ending in ("png", "svg"):
        plots.save(whole, folder / f"theorems.{ending}")
        written.append(folder / f"theorems.{ending}")
    files.write_text(folder / "theorems.csv", _csv(evidence))
    return [*written, folder / "theorems.csv"]


def _panel(axes: Any, claim: Claim, found: Evidence) -> None:
    low = float(min(found.claimed.min(), found.true.min()))
    high = float(max(found.claimed.max(), found.true.max()))
    if found.sense == AT_MOST:
        low, high = low / 1.5, 1.5
        axes.set(xscale="log", yscale="log")
    elif found.sense == AT_LEAST:
        low, high = 0.0, max(1.05, 1.02 * high)
    else:
        margin = 0.04 * (high - low)
        low, high = low - margin, high + margin
    ends = np.array([low, high])
    if found.sense == AT_LEAST:
        axes.fill_between(ends, ends, low, color="0.92", linewidth=0)
    elif found.sense == AT_MOST:
        axes.fill_between(ends, ends, high, color="0.92", linewidth=0)
    axes.plot(ends, ends, color="black", linewidth=1)
    wrong = (found.margins < -TOLERANCE)[found.graphs]
    for points, color, size in ((~wrong, "#0072B2", 12), (wrong, "#D55E00", 20)):
        axes.scatter(
            found.claimed[points],
            found.true[points],
            s=size,
            alpha=0.55,
            color=color,
            linewidths=0,
            rasterized=True,
        )
    axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set(xlabel=claim.axes[0], ylabel=claim.axes[1])
    axes.set_title(claim.title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def _csv(evidence: Mapping[str, Evidence]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["claim", "graph", "sense", "claimed", "true"])
    for name, found in evidence.items():
        for graph, claimed, true in zip(found.graphs, found.claimed, found.true, strict=True):
            writer.writerow([name, graph, found.sense, f"{claimed:.12g}", f"{true:.12g}"])
    return text.getvalue()


def worst_in_words(found: Evidence) -> str:
    """Describe the worst case in numbers: the claimed and the true value."""
    worst = found.worst.comparison
    if found.sense == EQUAL:
        return f"off by {-worst.margin:.1e}"
    ratio = np.log(worst.true) - np.log(worst.claimed)
    place = int((ratio if found.sense == AT_LEAST else -ratio).argmin())
    return f"claimed {worst.claimed[place]:.6g}, true {worst.true[place]:.6g}"


def report(evidence: Mapping[str, Evidence]) -> str:
    """Return a Markdown table: claim, graphs, failures, and the worst case found."""
    lines = [
        "| claim | in words | graphs | failures | worst found | where |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in evidence.items():
        claim = CLAIMS[name]
        counts = f"{len(found.margins)} | {found.failures}"
        lines.append(
            f"| {claim.title} | {claim.words} | {counts} | {worst_in_words(found)} | "
            f"{found.worst} |"
        )
    return "\n".join(lines) + "\n"
