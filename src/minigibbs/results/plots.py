"""Plots of runs."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import MinigibbsError, MissingDependencyError, SampleError
from minigibbs.results.observed import Estimate
from minigibbs.system import files
from minigibbs.system.boundary import shown

if TYPE_CHECKING:
    from minigibbs.results.run import Run


def figure(columns: int, width: float = 11.0, height: float = 4.2) -> Any:
    """A Matplotlib figure with a row of `columns` axes, made without touching global state."""
    whole, rows = grid(1, columns, width, height)
    return whole, rows[0]


def check_axes(axes: Any, error: type[MinigibbsError]) -> None:
    """Raise `error` unless `axes` are Matplotlib axes or None."""
    if axes is not None and not (hasattr(axes, "errorbar") and hasattr(axes, "figure")):
        raise error(f"axes must be those of Matplotlib, got {shown(axes)}")


def grid(rows: int, columns: int, width: float, height: float) -> Any:
    """Create a figure like `figure`, with `rows` rows of axes."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError(
            'plots need Matplotlib: pip install "minigibbs[plot]"'
        ) from None
    whole = Figure(figsize=(width, height), layout="constrained")
    return whole, whole.subplots(rows, columns, squeeze=False)


def save(whole: Any, path: str | os.PathLike[str]) -> None:
    """Write a figure to a file atomically; the ending of its name determines the format."""
    buffer = io.BytesIO()
    whole.savefig(buffer, format=picture_format(path), dpi=150)
    files.write_whole(path, lambda stream: stream.write(buffer.getvalue()))


def picture_format(path: str | os.PathLike[str]) -> str:
    """Return the format given by the ending of a file name; PNG without an ending."""
    ending = os.path.splitext(path)[1].lstrip(".").lower() or "png"
    known = figure(1)[0].canvas.get_supported_filetypes()
    if ending not in known:
        raise SampleError(
            f"cannot draw {path}: expected a name that ends in one of "
            f"{', '.join(sorted(known))}; got {ending!r}"
        )
    return ending


def plot_error(run: Run, axes: Any) -> None:
    """Plot the marginals' error against updates: one line per chain, a thick line for the mean."""
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
    """Plot the marginals of all variables as a map: one column per variable, one row per value.

    Colors show the deviation from `expected` if it is given.
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


_COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown")
_MOST_LINES = 8  # chains drawn
_MOST_POINTS = 2000  # per line


def done(whole: Any, path: str | os.PathLike[str] | None) -> Any:
    """Write the figure to a file if a path is given; return it."""
    if path is not None:
        save(whole, path)
    return whole


def _nothing(what: str) -> SampleError:
    return SampleError(f"there is nothing to draw: this run kept no {what}")


def trace(run: Run, names: Sequence[str], path: str | os.PathLike[str] | None = None) -> Any:
    """See `Run.plot_trace`."""
    lines = _traced(run, names)
    whole, rows = grid(len(lines), 1, 9.0, 0.6 + 2.2 * len(lines))
    for (label, updates, series), (axes,) in zip(lines, rows, strict=True):
        step = -(-len(updates) // _MOST_POINTS) or 1
        for chain, values in enumerate(series[:_MOST_LINES]):
            color = _COLORS[chain % len(_COLORS)]
            axes.plot(updates[::step], values[::step], color=color, linewidth=0.7, alpha=0.8)
        axes.set(ylabel=label)
        axes.grid(alpha=0.25)
        axes.margins(x=0.01)
    rows[-1][0].set(xlabel="updates of each chain")
    shown = min(len(lines[0][2]), _MOST_LINES)
    left = "" if len(lines[0][2]) <= shown else f" of {len(lines[0][2]):,}"
    rows[0][0].set_title(f"Traces of {shown}{left} chains", loc="left", fontsize="medium")
    return done(whole, path)


def _traced(run: Run, names: Sequence[str]) -> list[tuple[str, Any, Any]]:
    """Return the label, updates and series [chain, record] of each trace."""
    every = list(names) or (["energy"] if run.energy is not None else []) + [
        name for name, one in run.observables.items() if one.scalar and one.series is not None
    ]
    lines: list[tuple[str, Any, Any]] = []
    for name in every:
        if name == "energy" and name not in run.observables:
            if run.energy is None:
                raise _nothing("energy")
            lines.append((name, run.energy_updates, run.energy))
            continue
        one = run.observables[name]
        if one.series is None:
            raise _nothing(f"series of {name!r}, only moments")
        for k, part in enumerate(one.labels):
            updates = run.record_updates
            lines.append((f"{name} {part}".strip(), updates, one.data.series[:, :, k]))  # type: ignore[index]
    lines = [line for line in lines if len(line[1])]
    if not lines:
        raise _nothing('energies and no observables: record=("energy",) or observe={...}')
    return lines


def marginals(
    run: Any,
    value: int = 1,
    shape: Sequence[int] | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Any:
    """See `Run.plot_marginals`."""
    known = shape if shape is not None else (run.model or {}).get("shape")
    if known is None or len(known) != 2:
        whole, (axes,) = figure(1, 9.0, 3.6)
        plot_marginals(run, axes)
        return done(whole, path)
    rows, columns = (int(side) for side in known)
    if rows * columns != len(run.domains):
        raise SampleError(f"shape must be that of {len(run.domains)} variables, got {shape!r}")
    largest = int(run.domains.sizes.max())
    if not 0 <= value < largest:
        raise SampleError(f"value must be 0 to {largest - 1}, got {value!r}")
    whole, (axes,) = figure(1, 1.2 + 4.4 * min(columns / rows, 2.5), 4.2)
    picture = run.marginals[:, value].reshape(rows, columns)
    image = axes.imshow(picture, cmap="viridis", vmin=0.0, vmax=1.0, interpolation="nearest")
    axes.set(xlabel="column", ylabel="row", title=f"Probability of value {value}")
    whole.colorbar(image, ax=axes, shrink=0.85)
    return done(whole, path)


def autocorrelation(
    run: Run, names: Sequence[str], lags: int | None, path: str | os.PathLike[str] | None = None
) -> Any:
    """See `Run.plot_autocorrelation`."""
    lines = _traced(run, names)
    whole, (axes,) = figure(1, 7.5, 3.8)
    if lags is None:
        lags = max(len(correlations(series)) - 1 for _, _, series in lines)
    for number, (label, _, series) in enumerate(lines):
        values = correlations(series, lags)
        color = _COLORS[number % len(_COLORS)]
        axes.plot(range(len(values)), values, ".-", color=color, markersize=3, label=label)
    axes.axhline(0.0, color="gray", linewidth=0.8)
    axes.set(xlabel="records apart", ylabel="autocorrelation", ylim=(None, 1.02))
    axes.set_title("How long chains remember", loc="left", fontsize="medium")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return done(whole, path)


def correlations(series: NDArray[np.float64], lags: int | None = None) -> NDArray[np.float64]:
    """Return the autocorrelation of series [chain, record] at lags 0, 1, ..., from all chains.

    Deviations are from the mean of all chains. By default lags end with Sokal's window of five
    autocorrelation times, or at a quarter of the records.
    """
    away = series - series.mean()
    records = series.shape[1]
    spectrum = np.abs(np.fft.rfft(away, 2 * records, axis=1)) ** 2
    sums = np.fft.irfft(spectrum.mean(axis=0))[:records] / np.arange(records, 0, -1)
    whole: NDArray[np.float64] = sums / sums[0] if sums[0] > 0 else np.ones(records)
    if lags is None:
        times = 2.0 * np.cumsum(whole) - 1.0
        window = np.flatnonzero(np.arange(records) >= 5.0 * times)
        lags = int(window[0]) if len(window) else records // 4
    return whole[: max(min(lags, records - 1), 1) + 1]


def observable(run: Run, name: str, path: str | os.PathLike[str] | None = None) -> Any:
    """See `Run.plot_observable`."""
    one = run.observables[name]
    if one.scalar:
        if one.series is None:
            raise _nothing(f"series of {name!r}, only moments: {one!r}")
        whole, (left, right) = figure(2, 10.0, 3.4)
        step = -(-one.series.shape[1] // _MOST_POINTS) or 1
        for chain, values in enumerate(one.series[:_MOST_LINES]):
            color = _COLORS[chain % len(_COLORS)]
            left.plot(run.record_updates[::step], values[::step], color=color, linewidth=0.7)
        left.set(xlabel="updates of each chain", ylabel=name)
        right.hist(one.series.ravel(), bins=40, color="tab:blue", alpha=0.75, density=True)
        right.axvline(one.mean, color="black", linewidth=1)
        right.axvspan(*one.interval(), color="black", alpha=0.15, linewidth=0)
        right.set(xlabel=name, ylabel="density", title=f"{one.mean:.6g} ± {one.error:.2g}")
    else:
        whole, (axes,) = figure(1, 8.0, 3.6)
        places = np.arange(len(one.labels))
        axes.errorbar(places, one.mean, one.error, fmt="o-", markersize=4, capsize=2)
        axes.set(ylabel=f"mean of {name}")
        step = -(-len(places) // 12)
        axes.set_xticks(places[::step], one.labels[::step], rotation=30 if step > 1 else 0)
        axes.grid(alpha=0.25)
    return done(whole, path)


def plot_estimates(
    at: NDArray[Any],
    estimates: Sequence[Estimate],
    name: str,
    path: str | os.PathLike[str] | None = None,
    axes: Any = None,
    curve: str = "",
) -> Any:
    """Plot estimates with their errors against the values `at`, as a curve on `axes`."""
    check_axes(axes, SampleError)
    whole, (axes,) = figure(1, 7.0, 4.0) if axes is None else (axes.figure, (axes,))
    values = np.array([one.value for one in estimates], dtype=np.float64)
    errors = np.array([one.error for one in estimates], dtype=np.float64)
    places = np.arange(len(values)) if at.dtype.kind not in "iuf" else at
    for part in range(1 if values.ndim == 1 else values.shape[1]):
        own = (values, errors) if values.ndim == 1 else (values[:, part], errors[:, part])
        line = axes.errorbar(places, *own, fmt="o-", markersize=4, capsize=2, linewidth=1)
        if curve and not part:
            line.set_label(curve)
            axes.legend()
    if at.dtype.kind not in "iuf":
        axes.set_xticks(places, [str(one) for one in at])
    axes.set(ylabel=name)
    axes.grid(alpha=0.25)
    return done(whole, path)


def against_beta(
    points: tuple[NDArray[np.float64], Estimate],
    curve: tuple[NDArray[np.float64], Estimate],
    label: str,
    path: str | os.PathLike[str] | None = None,
) -> Any:
    """See `Temperatures.plot`: estimates at a ladder's temperatures, and a curve between them."""
    whole, (axes,) = figure(1, 7.0, 4.0)
    columns = np.asarray(points[1].value).reshape(len(points[0]), -1).shape[1]
    for part in range(columns):
        color = _COLORS[part % len(_COLORS)]
        for betas, estimate in (curve, points):
            value, error = (
                np.asarray(own).reshape(len(betas), -1)[:, part]
                for own in (estimate.value, estimate.error)
            )
            if betas is points[0]:
                axes.errorbar(betas, value, error, fmt=".", color=color, markersize=5, capsize=2)
            else:
                axes.plot(betas, value, color=color, linewidth=1)
                axes.fill_between(
                    betas, value - error, value + error, color=color, alpha=0.2, linewidth=0
                )
    axes.set(xlabel="inverse temperature beta (1: the model)", ylabel=label)
    axes.grid(alpha=0.25)
    return done(whole, path)


def overlaps(
    found: Sequence[tuple[float, NDArray[np.float64], Estimate]],
    path: str | os.PathLike[str] | None = None,
) -> Any:
    """See `Temperatures.plot_overlaps`."""
    whole, (axes,) = figure(1, 7.0, 4.0)
    for number, (beta, edges, density) in enumerate(found):
        color = _COLORS[number % len(_COLORS)]
        middle = 0.5 * (edges[1:] + edges[:-1])
        axes.stairs(density.value, edges, color=color, label=f"beta {beta:g}")
        axes.errorbar(middle, density.value, density.error, fmt="none", ecolor=color, alpha=0.6)
    axes.set(xlabel="overlap q", ylabel="P(q)", ylim=(0, None))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return done(whole, path)
