"""Result of `mg.learn`: parameters with errors, the course of learning, and quality of fit."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs._version import __version__
from minigibbs.errors import LearnError
from minigibbs.graph.data import read_data
from minigibbs.graph.encoding import decode, encode
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.parameters import Frame
from minigibbs.results.likelihood import LogLikelihood, log_likelihood
from minigibbs.system import files
from minigibbs.system.boundary import checked
from minigibbs.system.progress import Stage
from minigibbs.system.text import printable
from minigibbs.system.watch import Watch

FORMAT = "minigibbs-fit-1"
_GRAPH = "graph."  # prefix of the names of a graph's arrays
_SAME = 1e-6  # share of a contrast along undetermined directions that is attributed to rounding
_ENDS = {  # texts for some values of `ended`; others are texts themselves
    "steps": "after all {} steps",
    "time": "time limit after {} steps",
    "held-out": "held-out rows after {} steps",
}
_OTHERS = {  # endings of files that `save` does not write, and what writes them
    ".csv": "the dictionary fit.parameters",
    ".html": "report(path)",
    ".json": "json.dump with to_dict()",
}
_SHOWN = 8  # entries of a parameter that are displayed


@checked(LearnError, init=False)
@dataclass(frozen=True, eq=False)
class Fit:
    """The result of `mg.learn`.

    Attributes
    ----------
    graph : FactorGraph
        The graph with the learned parameters.
    method : str
        "pcd", "cd", "pseudo" or "exact".
    ended : str
        Reason for the end: "converged", "steps", "time", "held-out", "interrupted" or "terminated".
    steps : int
        Number of steps.
    seconds : float
        Time of learning.
    seed : int
        The seed.
    rows : int
        Rows of data.
    history : dict
        Recorded quantities by name, such as "error"; one number per check.
    data_moments : ndarray
        [parameter] moments of the data.
    model_moments : ndarray
        [parameter] moments of the model.
    deviations : ndarray or None
        [parameter] standard errors.
    warnings : tuple of str
        Possible problems with the fit.
    covariance : ndarray or None
        [parameter, parameter] covariance of the estimates.
    error_kind : str
        Method by which errors were computed; empty without errors.
    tempered : int or None
        The step at which tempered chains replaced plain ones, which did not move between the modes
        of the model. None without such a step.

    Examples
    --------
    >>> import minigibbs as mg
    >>> coins = mg.FactorGraph([2] * 3, [mg.Unary([0, 1, 2], [0.0, 0.0], name="bias")])
    >>> fit = mg.learn(coins, [[1, 1, 0], [1, 1, 1]], method="exact")
    >>> bias = fit.parameters["bias"]
    >>> float(round(bias[1] - bias[0], 4)), fit.ended
    (1.6094, 'converged')
    """

    graph: FactorGraph
    method: str
    ended: str
    steps: int
    seconds: float
    seed: int
    rows: int
    history: dict[str, NDArray[np.float64]] = field(repr=False)
    data_moments: NDArray[np.float64] = field(repr=False)
    model_moments: NDArray[np.float64] = field(repr=False)
    deviations: NDArray[np.float64] | None = field(default=None, repr=False)
    warnings: tuple[str, ...] = ()
    covariance: NDArray[np.float64] | None = field(default=None, repr=False)
    undetermined: NDArray[np.float64] | None = field(default=None, repr=False)  # [.., parameter]
    error_kind: str = ""
    tempered: int | None = None

    @property
    def parameters(self) -> dict[str, NDArray[np.float64]]:
        """Learned parameters by name; fixed entries keep their values."""
        return self.graph.parameters

    @cached_property
    def errors(self) -> dict[str, NDArray[np.float64]] | None:
        """Standard errors by name, 0 for fixed entries; None if there are too many parameters.

        `error_kind` names the method that computed them. The data do not determine some directions,
        such as a constant added to a table. Errors exclude these directions. Use `contrast` for
        differences of parameters.
        """
        return None if self.deviations is None else self.graph.frame.named(self.deviations)

    def contrast(self, weights: Mapping[str, ArrayLike]) -> tuple[float, float]:
        """Return a weighted sum of parameters and its standard error.

        Parameters
        ----------
        weights : mapping from a name to numbers
            Weights in the shape of the parameter; omitted parameters have weight 0.

        Returns
        -------
        (float, float)
            The sum and its error. The error is infinite if the data do not determine the sum, and
            NaN if the fit has no covariance.

        Examples
        --------
        >>> import minigibbs as mg
        >>> coins = mg.FactorGraph([2] * 3, [mg.Unary([0, 1, 2], [0.0, 0.0], name="bias")])
        >>> fit = mg.learn(coins, [[1, 1, 0], [1, 1, 1]], method="exact")
        >>> value, error = fit.contrast({"bias": [-1, 1]})
        >>> round(value, 4), round(error, 4)
        (1.6094, 1.0954)
        >>> fit.contrast({"bias": [0, 1]})[1]
        inf
        """
        frame = self.graph.frame
        flat = frame.read(weights, np.zeros(frame.size))
        values = np.where(flat == 0, 0.0, frame.flat(self.graph.factors))
        value = float(flat @ values)
        if self.covariance is None or self.undetermined is None:
            return value, float("nan")
        length = float(np.linalg.norm(flat))
        if np.linalg.norm(self.undetermined @ flat) > _SAME * length:
            return value, float("inf")
        variance = float(flat @ self.covariance @ flat)
        return value, math.sqrt(max(variance, 0.0))

    def log_likelihood(
        self,
        rows: Any,
        *,
        columns: Sequence[int | str] | None = None,
        weights: ArrayLike | None = None,
        standard_error: float = 0.05,
        max_time: float | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> LogLikelihood:
        """Compute the mean log-likelihood of rows under the learned model, in nats.

        Missing values of a row are summed out. log Z is exact if elimination fits into memory, else
        estimated by annealed importance sampling.

        Parameters
        ----------
        rows : array, mapping or frame
            Data as in `mg.learn`.
        columns : sequence of int or str, optional
            The variables of the columns of an array.
        weights : array-like, optional
            Weight of each row. By default all rows have the same weight.
        standard_error : float, default 0.05
            Standard error to reach if log Z is sampled.
        max_time : float, optional
            Time limit of sampling in seconds; sampling then ends with its current error.
        seed : int, default 0
            Seed of the draws.
        progress : bool, default True
            Whether to show progress if stderr is a terminal.

        Returns
        -------
        LogLikelihood
            `mean` per row, its `error` (0 if exact), the `rows` and the `method`.

        Raises
        ------
        LearnError
            If the rows do not fit the graph.

        Examples
        --------
        >>> import minigibbs as mg
        >>> coins = mg.FactorGraph([2] * 3, [mg.Unary([0, 1, 2], [0.0, 0.0], name="bias")])
        >>> fit = mg.learn(coins, [[1, 1, 0], [1, 1, 1]], method="exact")
        >>> round(fit.log_likelihood([[1, 1, 1]]).mean, 4)
        -0.547
        """
        if not 0 < standard_error < math.inf:
            raise LearnError(f"standard_error must be positive, got {standard_error}")
        if seed < 0:
            raise LearnError(f"seed must not be negative, got {seed}")
        with Stage("computing log-likelihoods", progress), Watch(max_time) as watch:
            data = read_data(self.graph, rows, columns, weights)
            with watch.noted():
                return log_likelihood(self.graph, data, standard_error, seed, watch)

    @cached_property
    def not_determined(self) -> list[str]:
        """The directions that the data do not determine, in words."""
        if self.undetermined is None:
            return []
        return named_directions(self.graph.frame, self.undetermined)

    @property
    def error(self) -> float:
        """Largest difference between moments of data and model, relative to its range."""
        return float(self._differences.max(initial=0.0))

    @cached_property
    def _differences(self) -> NDArray[np.float64]:
        frame = self.graph.frame
        low, high = frame.ranges
        span = np.where(high > low, high - low, 1.0)
        scaled: NDArray[np.float64] = np.abs(self.data_moments - self.model_moments) / span
        return np.where(frame.fixed, 0.0, scaled)

    @property
    def pearson(self) -> float:
        """Correlation of connected moments of data and model; NaN if there are too few."""
        series = self.history.get("pearson", np.empty(0))
        return float(series[-1]) if len(series) else float("nan")

    def _repr_html_(self) -> str:
        """Return the result as HTML tables, for notebooks."""
        from minigibbs.results.notebook import fit_html

        return fit_html(self)

    def __str__(self) -> str:
        lines = [f"{label:<12}{value}" for label, value in self.summary_rows()]
        lines += [f"{label:<12}{value}" for label, value in self.parameter_rows()]
        return "\n".join(lines) + "".join(f"\nwarning: {text}" for text in self.warnings)

    def summary_rows(self) -> list[tuple[str, str]]:
        """Return the rows of the displayed table: label and value."""
        how, steps = _ENDS.get(self.ended), f"{self.steps:,}"
        ended = how.format(steps) if how else f"{self.ended} after {steps} steps"
        rows = [
            ("method", self.method),
            ("ended", printable(ended)),
            ("seconds", f"{self.seconds:.2f}"),
            ("error", f"{self.error:.4g} (largest, of moments as shares of their range)"),
        ]
        if np.isfinite(self.pearson):
            rows.append(("Pearson", f"{self.pearson:.4f} (connected moments)"))
        if self.tempered is not None:
            where = f"plain to step {self.tempered:,}, where they did not move between modes"
            rows.append(("chains", f"{where}; then tempered"))
        if self.error_kind:
            rows.append(("errors are", self.error_kind))
        if self.not_determined:
            rows.append(("redundant", printable("; ".join(self.not_determined))))
        return rows

    def parameter_rows(self) -> list[tuple[str, str]]:
        """Return the first entries of each parameter, with errors."""
        rows = []
        for name, values in self.parameters.items():
            numbers = values.ravel()[:_SHOWN].tolist()
            shown = [f"{number:.4g}" for number in numbers]
            if self.errors is not None:
                spread = self.errors[name].ravel().tolist()
                shown = [f"{a} ± {b:.2g}" for a, b in zip(shown, spread, strict=False)]
            dots = ", ..." if values.size > _SHOWN else ""
            rows.append((printable(name), ", ".join(shown) + dots))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return all fields except the graph as numbers and text for JSON.

        Returns
        -------
        dict
            The fields by name.
        """
        errors = self.errors or {}
        return {
            "method": self.method,
            "ended": self.ended,
            "steps": self.steps,
            "seconds": self.seconds,
            "seed": self.seed,
            "rows": self.rows,
            "error": self.error,
            "pearson": None if np.isnan(self.pearson) else self.pearson,
            "parameters": {name: values.tolist() for name, values in self.parameters.items()},
            "errors": {name: values.tolist() for name, values in errors.items()} or None,
            "error_kind": self.error_kind,
            "tempered": self.tempered,
            "not_determined": self.not_determined,
            "warnings": list(self.warnings),
        }

    def plot_moments(self, path: str | os.PathLike[str] | None = None, *, axes: Any = None) -> Any:
        """Draw the moments of the model against those of the data.

        Parameters
        ----------
        path : str or path, optional
            File to write the figure to.
        axes : matplotlib.axes.Axes, optional
            Axes to draw on. By default new ones.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, which notebooks show.
        """
        from minigibbs.results import plots

        plots.check_axes(axes, LearnError)
        if axes is None:
            axes = plots.figure(1, width=5.0, height=4.6)[1][0]
        free = ~self.graph.frame.fixed
        low, high = self.graph.frame.ranges
        span = np.where(high > low, high - low, 1.0)
        x = ((self.data_moments - low) / span)[free]
        y = ((self.model_moments - low) / span)[free]
        axes.plot([0, 1], [0, 1], color="0.6", linewidth=1)
        axes.plot(x, y, ".", markersize=4, alpha=0.6, color="tab:blue")
        axes.set(
            xlabel="moment in the data, as a share of its range",
            ylabel="moment in the model",
            title=f"Moments match to {self.error:.2g}",
        )
        axes.grid(alpha=0.25)
        return plots.done(axes.figure, path)

    def report(self, path: str | os.PathLike[str], title: str = "A fit") -> None:
        """Write a standalone HTML page with the parameters, the moments and the course of learning.

        Parameters
        ----------
        path : str or path
            The file to write.
        title : str, default "A fit"
            Title of the page.
        """
        from minigibbs.results.report.fit import write_fit

        write_fit(self, path, title)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fit to a file; `mg.load` reads it. An interrupted write leaves no partial file.

        Parameters
        ----------
        path : str or path
            The file.

        Raises
        ------
        LearnError
            If the name has the ending of another format, such as .json.
        """
        ending = Path(path).suffix.lower()
        if ending in _OTHERS:
            raise LearnError(f"{path}: save does not write {ending} files; use {_OTHERS[ending]}")
        header, arrays = encode(self.graph)
        plain = {
            name: getattr(self, name) for name in ("method", "ended", "steps", "seconds", "rows")
        }
        own: dict[str, NDArray[Any]] = {
            "data_moments": self.data_moments,
            "model_moments": self.model_moments,
            **{f"history.{name}": series for name, series in self.history.items()},
        }
        for name in ("deviations", "covariance", "undetermined"):
            if getattr(self, name) is not None:
                own[name] = getattr(self, name)
        files.write_arrays(
            path,
            {
                "format": FORMAT,
                "version": __version__,
                **plain,
                "seed": str(self.seed),
                "warnings": list(self.warnings),
                "error_kind": self.error_kind,
                "tempered": self.tempered,
                "graph": header,
            },
            own | {f"{_GRAPH}{name}": array for name, array in arrays.items()},
        )


def named_directions(frame: Frame, directions: NDArray[np.float64]) -> list[str]:
    """Describe the directions that data do not determine: constants, and the number of others."""
    if not len(directions):
        return []
    found, left = [], len(directions)
    for name, parameter in frame.parameters.items():
        shape = frame.named(np.zeros(frame.size))[name].shape
        numbers = np.arange(frame.size)[parameter.place].reshape(shape)
        rows = numbers.reshape(-1, shape[-1]) if len(shape) else numbers.reshape(1, 1)
        free = ~frame.fixed
        constant = 0
        for row in rows:
            one = np.zeros(frame.size)
            one[row[free[row]]] = 1.0
            length = np.linalg.norm(one)
            if length and np.linalg.norm(one - directions.T @ (directions @ one)) < _SAME * length:
                constant += 1
        if constant:
            each = f"each of {constant:,} rows of " if len(rows) > 1 else ""
            found.append(f"a constant added to {each}{name}")
            left -= constant
    if left > 0:
        found.append(f"{left:,} combinations of parameters, in fit.undetermined")
    return found


def load(path: str | os.PathLike[str]) -> Fit:
    """Read a fit written by `Fit.save`."""
    header, arrays = files.read_arrays(path, FORMAT)
    with files.refusing_damage(path):
        inner = {k.removeprefix(_GRAPH): v for k, v in arrays.items() if k.startswith(_GRAPH)}
        graph = decode(header["graph"], inner)
        before = "history."
        history = {k.removeprefix(before): v for k, v in arrays.items() if k.startswith(before)}
        fit = Fit(
            graph,
            str(header["method"]),
            str(header["ended"]),
            int(header["steps"]),
            float(header["seconds"]),
            int(header["seed"]),
            int(header["rows"]),
            history,
            arrays["data_moments"],
            arrays["model_moments"],
            arrays.get("deviations"),
            tuple(map(str, header["warnings"])),
            arrays.get("covariance"),
            arrays.get("undetermined"),
            str(header.get("error_kind", "")),  # missing in files before 0.3
            None if header.get("tempered") is None else int(header["tempered"]),
        )
        _check(fit)
    return fit


def _check(fit: Fit) -> None:
    """Raise `ValueError` if the parts are inconsistent."""
    shape = (fit.graph.frame.size,)
    for name in ("data_moments", "model_moments", "deviations"):
        array = getattr(fit, name)
        if array is not None and (array.shape != shape or array.dtype != np.float64):
            raise ValueError(f"{name}: expected {shape[0]} doubles, got {array.shape}")
    for name, rows in (("covariance", fit.graph.frame.size), ("undetermined", None)):
        array = getattr(fit, name)
        if array is None:
            continue
        if array.dtype != np.float64 or array.ndim != 2 or array.shape[1:] != shape:
            raise ValueError(f"{name}: expected doubles in {shape[0]} columns")
        if rows is not None and len(array) != rows:
            raise ValueError(f"{name}: expected {rows} rows")
    lengths = {series.shape for series in fit.history.values()}
    flat = all(len(shape) == 1 for shape in lengths)
    if len(lengths) > 1 or not flat or any(s.dtype != np.float64 for s in fit.history.values()):
        raise ValueError("history: expected series of doubles of one length")
    if not 0 <= (fit.tempered or 0) <= fit.steps:
        raise ValueError("tempered: expected a step of the fit")
    if fit.steps < 0 or not fit.seconds >= 0 or fit.rows < 1 or fit.seed < 0:
        raise ValueError("steps, seconds, rows and seed must not be negative")
