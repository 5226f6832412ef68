"""Pictures of runs."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np

from minigibbs.errors import MissingDependencyError, SampleError
from minigibbs.results.run import Run
from minigibbs.system import files


def figure(columns: int, width: float = 11.0, height: float = 4.2) -> Any:
    """A Matplotlib figure with `columns` axes side by side, made without touching global state."""
    whole, rows = grid(1, columns, width, height)
    return whole, rows[0]


def grid(rows: int, columns: int, width: float, height: float) -> Any:
    """The same with `rows` rows of axes."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError(
            'plots need Matplotlib: pip install "minigibbs[plot]"'
        ) from None
    whole = Figure(figsize=(width, height), layout="constrained")
    return whole, whole.subplots(rows, columns, squeeze=False)


def save(whole: Any, path: str | os.PathLike[str]) -> None:
    """Write a figure to a file, whole or not at all; the name's ending gives the format."""
    buffer = io.BytesIO()
    whole.savefig(buffer, format=picture_format(path), dpi=150)
    files.write_whole(path, lambda stream: stream.write(buffer.getvalue()))


def picture_format(path: str | os.PathLike[str]) -> str:
    """The format that a file name's ending asks for; PNG without one."""
    ending = os.path.splitext(path)[1].lstrip(".").lower() or "png"
    known = figure(1)[0].canvas.get_supported_filetypes()
    if ending not in known:
        raise SampleError(
            f"cannot draw {path}: expected a name that ends in one of "
            f"{', '.join(sorted(known))}; got {ending!r}"
        )
    return ending


def plot_error(run: Run, axes: Any) -> None:
    """The marginals' error against updates: a thin line per chain, a thick one for their mean."""
    if run.error is None:
        raise SampleError("this run kept no error; sample with reference=...")
    updates = run.record_updates
    if not len(updates):
        raise SampleError(
            f"nothing to draw: a record is made every {run.info.thin} updates of a chain, and "
            "none was reached; use more updates"
        )
    axes.plot(updates, run.error.T, color="tab:blue", alpha=0.35, linewidth=1)
    axes.plot(
        updates, run.error.mean(axis=0), color="tab:blue", linewidth=2, label="mean of chains"
    )
    axes.plot([], [], color="tab:blue", alpha=0.35, linewidth=1, label="one chain")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="updates",
        ylabel="mean $\\ell_2$ error of the marginals",
        title="The running marginals converge",
    )
    axes.grid(alpha=0.25, which="both")
    axes.legend(frameon=False)


def plot_marginals(run: Run, axes: Any, expected: float | None = None) -> None:
    """The marginals of all variables as a map: a column per variable, a row per value.

    Colours show the deviation from `expected` where one is given.
    """
    marginals = run.marginals.T
    if expected is None:
        options: dict[str, Any] = {"cmap": "viridis", "vmin": 0.0}
    else:
        reach = max(float(np.abs(marginals - expected).max()), 0.2 * expected)
        options = {"cmap": "RdBu_r", "vmin": expected - reach, "vmax": expected + reach}
    image = axes.imshow(
        marginals, aspect="auto", interpolation="nearest", origin="lower", **options
    )
    title = "Marginals, pooled over the chains"
    title += "" if expected is None else f" (the truth: {expected:g} throughout)"
    axes.set(xlabel="variable", ylabel="value", title=title)
    if marginals.shape[0] <= 20:
        axes.set_yticks(range(marginals.shape[0]))
    axes.figure.colorbar(image, ax=axes, label="probability")
