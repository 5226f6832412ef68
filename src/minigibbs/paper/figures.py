"""The paper's figures: error of the marginals against updates, and against seconds."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.paper.curves import FIGURES, Curve, Result
from minigibbs.results import plots
from minigibbs.system import files

TITLES = {
    "fig1": "Figure 1: MIN-Gibbs on the Ising model",
    "fig2a": "Figure 2a: Local Minibatch Gibbs (biased) on the Ising model",
    "fig2b": "Figure 2b: MGPMH on the Potts model",
    "fig2c": "Figure 2c: DoubleMIN-Gibbs on the Potts model",
    "neighbors": "Neighbors of the paper on the Potts model",
}
ERROR = "mean $\\ell_2$ error of the marginals"
# Colors of Okabe and Ito, which people of every color vision can tell apart.
BATCHES = ("#E69F00", "#56B4E9", "#009E73", "#0072B2")
TOP = 1.0  # of every error axis, so that figures can be compared
GIBBS, OURS = "#000000", "#D55E00"


def draw(name: str, results: Mapping[str, Result], folder: Path) -> list[Path]:
    """Draw a figure against updates and against seconds, and write its numbers."""
    written = []
    for suffix, figure in (
        ("", _against_updates(name, results)),
        ("-seconds", _against_seconds(name, results)),
    ):
        for ending in ("png", "svg"):
            path = folder / f"{name}{suffix}.{ending}"
            plots.save(figure, path)
            written.append(path)
    path = folder / f"{name}.csv"
    files.write_text(path, _csv(name, results))
    return [*written, path]


def _against_updates(name: str, results: Mapping[str, Result]) -> Any:
    """The paper's form on the left, both axes logarithmic on the right."""
    whole, (left, right) = plots.figure(2, width=10.0, height=4.6)
    for axes in (left, right):
        for curve, style in _styles(name):
            result = results[curve.name]
            if not curve.seconds_only:
                _line(axes, result.updates, result, curve, style)
    left.set(xlabel="updates", ylabel=ERROR, xlim=(0, None), ylim=(0, TOP))
    right.set(xlabel="updates, logarithmic", xscale="log")
    _logarithmic_errors(right)
    _thousands(left)
    _finish(whole, name, results)
    return whole


def _against_seconds(name: str, results: Mapping[str, Result]) -> Any:
    whole, (axes,) = plots.figure(1, width=7.0, height=4.8)
    for curve, style in _styles(name):
        result = results[curve.name]
        _line(axes, result.seconds, result, curve, style)
    axes.set(xlabel="processor seconds of one chain", ylabel=ERROR, xscale="log")
    _logarithmic_errors(axes)
    _finish(whole, name, results)
    return whole


def _logarithmic_errors(axes: Any) -> None:
    """A logarithmic error axis that starts at a power of ten, in plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    least = min(float(line.get_ydata().min()) for line in axes.lines)
    axes.set_ylim(10.0 ** np.floor(np.log10(least)), TOP)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _thousands(axes: Any) -> None:
    """Numbers of updates as 500k and 1M."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _styles(name: str) -> list[tuple[Curve, dict[str, Any]]]:
    """Plain Gibbs is black and our samplers are red; batches go from orange to blue."""
    *others, gibbs, ours = FIGURES[name]
    batches = [curve for curve in others if not curve.seconds_only]
    styles: list[tuple[Curve, dict[str, Any]]] = [
        (curve, {"color": color, "linewidth": 1.6})
        for curve, color in zip(batches, BATCHES[-len(batches) :], strict=True)
    ]
    for curve in others:
        if curve.seconds_only:
            styles.append((curve, {"color": GIBBS, "linewidth": 1.6, "linestyle": ":"}))
    styles.append((gibbs, {"color": GIBBS, "linewidth": 2.0}))
    styles.append((ours, {"color": OURS, "linewidth": 1.8, "linestyle": (0, (4, 1.5))}))
    return styles


def _line(axes: Any, x: Any, result: Result, curve: Curve, style: dict[str, Any]) -> None:
    """The mean over seeds, with the range of the seeds behind it."""
    low, high = result.error.min(axis=0), result.error.max(axis=0)
    axes.fill_between(x, low, high, color=style["color"], alpha=0.12, linewidth=0)
    axes.plot(x, result.error.mean(axis=0), label=curve.label, **style)


def _finish(whole: Any, name: str, results: Mapping[str, Result]) -> None:
    seeds = len(next(iter(results.values())).error)
    for axes in whole.axes:
        axes.grid(alpha=0.25, which="major")
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = whole.axes[0].get_legend_handles_labels()
    columns = 3 if len(labels) > 4 else len(labels)
    whole.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    whole.suptitle(f"{TITLES[name]}\nmean of {seeds} seeds, and their range", fontsize=11)


def _csv(name: str, results: Mapping[str, Result]) -> str:
    """Every curve at every record: mean, range and each seed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    seeds = len(next(iter(results.values())).error)
    columns = ["curve", "updates", "seconds", "mean", "low", "high"]
    writer.writerow([*columns, *(f"seed_{k}" for k in range(seeds))])
    for curve in FIGURES[name]:
        result = results[curve.name]
        mean = result.error.mean(axis=0)
        low, high = result.error.min(axis=0), result.error.max(axis=0)
        for k, updates in enumerate(result.updates.tolist()):
            numbers = [mean[k], low[k], high[k], *result.error[:, k]]
            seconds = f"{result.seconds[k]:.6g}"
            writer.writerow([curve.name, updates, seconds, *(f"{x:.6g}" for x in numbers)])
    return text.getvalue()


def summarize(name: str, results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """The end of every curve in numbers: error, speed, log-potential and changes."""
    rows = []
    for curve in FIGURES[name]:
        result = results[curve.name]
        half = result.log_potential[:, result.log_potential.shape[1] // 2 :].mean(axis=1)
        rows.append(
            {
                "curve": curve.name,
                "error": float(result.error[:, -1].mean()),
                "low": float(result.error[:, -1].min()),
                "high": float(result.error[:, -1].max()),
                "microseconds": result.seconds_per_update * 1e6,
                "changed": result.changed,
                "acceptance": result.acceptance,
                "log_potential": float(half.mean()),
                "log_potential_error": _standard_error(half),
            }
        )
    return rows


def _standard_error(values: NDArray[np.float64]) -> float | None:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
