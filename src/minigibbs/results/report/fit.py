"""Report of a fit as one page: parameters, agreement of the moments, and course of learning."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minigibbs._version import __version__
from minigibbs.results.report import page, pictures
from minigibbs.results.report.markup import Html, element, join, table
from minigibbs.results.report.markup import name as named
from minigibbs.results.report.sections import MARKS
from minigibbs.system import files

if TYPE_CHECKING:
    from minigibbs.results.fit import Fit

_MOST_ROWS = 200  # rows of the table of parameters
_BINS = 40  # per axis of the map of moments
_TITLES = {
    "error": "Largest error of a moment",
    "pearson": "Correlation of connected moments",
    "objective": "Objective",
    "held_out": "Pseudo-likelihood of the rows held out",
}


def write_fit(fit: Fit, path: str | os.PathLike[str], title: str = "A fit") -> None:
    """Write the report of a fit to an HTML file atomically."""
    files.check_target(path)
    text = render_fit(fit, title).encode("utf-8", "xmlcharrefreplace")
    files.write_whole(path, lambda stream: stream.write(text))


def render_fit(fit: Fit, title: str = "A fit") -> str:
    """Return the report of a fit as HTML."""
    count = int(np.count_nonzero(~fit.graph.frame.fixed))
    about = f"{count:,} parameters learned from {fit.rows:,} rows, by {fit.method}"
    return page(
        title,
        about,
        __version__,
        _verdict(fit),
        _facts(fit),
        _moments(fit),
        _history(fit),
        _parameters(fit),
    )


def _verdict(fit: Fit) -> Html:
    level = "good" if not fit.warnings and fit.ended == "converged" else "warning"
    told = f"Ended: {dict(fit.summary_rows())['ended']}. The largest error of a moment is "
    words = [element("p", f"{told}{fit.error:.4g} of its range.")]
    words += [element("p", warning) for warning in fit.warnings]
    return element(
        "section",
        element("span", MARKS[level], class_="mark", aria_hidden="true"),
        element("div", element("h2", "What was learned"), *words),
        class_=f"finding {level}",
    )


def _facts(fit: Fit) -> Html:
    tiles = [
        element("div", element("dt", label), element("dd", value))
        for label, value in [*fit.summary_rows(), ("seed", str(fit.seed))]
    ]
    return element("dl", *tiles, class_="facts")


def _moments(fit: Fit) -> Html:
    """Moments of the model against those of the data, as a map of counts."""
    free, (low, high) = ~fit.graph.frame.fixed, fit.graph.frame.ranges
    span = np.where(high > low, high - low, 1.0)

    def share(moments: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.clip(((moments - low) / span)[free], 0.0, 1.0)

    counts = np.histogram2d(
        share(fit.model_moments), share(fit.data_moments), bins=_BINS, range=[[0, 1], [0, 1]]
    )[0]
    logs = np.log1p(counts[::-1])
    label = "moments of the model, upwards, against those of the data, each as a share of its range"
    return join(
        element("h2", "Moments"),
        element("p", "On the diagonal the model's moments are the data's."),
        pictures.heat(logs, 0.0, float(logs.max()), label),
    )


def _history(fit: Fit) -> Html:
    parts: list[Html] = []
    steps = fit.history.get("step", np.empty(0))
    for name, title in _TITLES.items():
        series = fit.history.get(name)
        if series is None:
            continue
        known = np.isfinite(series)
        if np.count_nonzero(known) > 1:
            x, y = steps[known], series[known]
            ends = (f"{x[0]:,.0f}", "step", f"{x[-1]:,.0f}")
            parts += [element("h3", title), pictures.lines(x, y[None], title, ends, _tick)]
    return join(element("h2", "The way there"), *parts) if parts else join()


def _tick(value: float) -> str:
    return f"{value:.4g}"


def _parameters(fit: Fit) -> Html:
    """Return a table of the first entries of all parameters."""
    rows: list[list[Any]] = []
    frame, values = fit.graph.frame, fit.graph.frame.flat(fit.graph.factors)
    for number in range(min(frame.size, _MOST_ROWS)):
        error = "" if fit.deviations is None else f"{fit.deviations[number]:.3g}"
        told = "fixed" if frame.fixed[number] else error
        rows.append([named(frame.where(number)), f"{values[number]:.5g}", told])
    more = ""
    if frame.size > _MOST_ROWS:
        more = f"The first {_MOST_ROWS} of {frame.size:,}; fit.parameters has them all."
    whole = table(["parameter", "value", "standard error"], rows)
    return join(element("h2", "Parameters"), whole, element("p", more))
