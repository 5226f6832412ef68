"""Observables composed of another: its powers, and its histogram."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import kernel
from minigibbs.observables.base import Measure, Observable, need_number
from minigibbs.observables.magnetization import Magnetization
from minigibbs.observables.own import as_observable
from minigibbs.system import memory
from minigibbs.system.boundary import checked

_BIN_BYTES = 200.0  # label and edges of a bin
MOMENTS = ("1", "abs", "2", "4")  # labels of `Moments`


@checked(SampleError)
@dataclass(frozen=True)
class Moments(Observable):
    """Powers (v, |v|, v^2, v^4) of a number v, for `binder` and `susceptibility`.

    If the whole series of v is stored, v alone suffices. `Moments` also work for long runs that
    store no series, and on a GPU, where rows are means over chains.

    Parameters
    ----------
    of : Observable or function, optional
        The number.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=8, beta=0.3)
    >>> moments = mg.observables.Moments(mg.observables.Magnetization())
    >>> run = mg.sample(graph, sweeps=500, seed=1, observe={"m": moments}, progress=False)
    >>> run.observables["m"].labels
    ('1', 'abs', '2', '4')
    """

    name = "moments"
    of: Observable | Callable[..., Any] = field(default_factory=Magnetization)

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", as_observable(self.of))

    def bind(self, graph: FactorGraph) -> Measure:
        """Bind the inner observable, and return its powers."""
        inner = as_observable(self.of).bind(graph)
        need_number(inner, self.name)
        return _moments(inner)


def _moments(inner: Measure) -> Measure:
    def evaluate(states: NDArray[Any], out: NDArray[np.float64]) -> None:
        value = np.empty((len(states), 1))
        inner.evaluate(states, value)
        square = value * value
        out[:] = np.hstack([value, np.abs(value), square, square * square])

    function = None if inner.function is None else _moments_of(inner.function)
    sums = inner.sums and replace(inner.sums, of=_moments(inner.sums.of))
    return Measure(MOMENTS, evaluate, function, inner.parameters, sums)


@lru_cache(maxsize=64)
def _moments_of(function: Any) -> Any:
    @kernel
    def moments(x, parameters, out):  # type: ignore[no-untyped-def]
        function(x, parameters, out)
        value = out[0]
        out[1] = abs(value)
        out[2] = value * value
        out[3] = value * value * (value * value)

    return moments


@checked(SampleError)
@dataclass(frozen=True)
class Histogram(Observable):
    """Share of records in which a number is in each of `bins` equal parts of [low, high].

    The last part includes `high`. Values outside are not counted.

    Parameters
    ----------
    of : Observable or function, optional
        The number.
    low : float, default -1.0
        Lower end.
    high : float, default 1.0
        Upper end.
    bins : int, default 20
        Number of parts.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=4, beta=0.2)
    >>> shares = mg.observables.Histogram(mg.observables.Magnetization(), -1.0, 1.0, bins=4)
    >>> run = mg.sample(graph, sweeps=500, seed=1, observe={"m": shares}, progress=False)
    >>> float(run.observables["m"].mean.sum().round(12))
    1.0
    """

    name = "histogram"
    of: Observable | Callable[..., Any] = field(default_factory=Magnetization)
    low: float = -1.0
    high: float = 1.0
    bins: int = 20

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", as_observable(self.of))
        if not -math.inf < self.low < self.high < math.inf:
            raise SampleError(f"histogram: low must be below high, got {self.low}, {self.high}")
        if isinstance(self.bins, bool) or self.bins != int(self.bins) or self.bins < 1:
            raise SampleError(f"histogram: bins must be at least 1, got {self.bins!r}")

    def bind(self, graph: FactorGraph) -> Measure:
        """Bind the inner observable, and return its histogram."""
        memory.require(_BIN_BYTES * self.bins, f"histogram: bins={self.bins:,}", "use fewer bins")
        inner = as_observable(self.of).bind(graph)
        need_number(inner, self.name)
        return self._distribution(inner)

    def _distribution(self, inner: Measure) -> Measure:
        low, high, bins = float(self.low), float(self.high), int(self.bins)
        scale = bins / (self.high - self.low)

        def evaluate(states: NDArray[Any], out: NDArray[np.float64]) -> None:
            value = np.empty((len(states), 1))
            inner.evaluate(states, value)
            inside = np.flatnonzero((value[:, 0] >= low) & (value[:, 0] <= high))
            place = ((value[inside, 0] - low) * scale).astype(np.int64)
            out[:] = 0.0
            out[inside, np.minimum(place, bins - 1)] = 1.0

        edges = np.linspace(low, high, bins + 1)
        labels = tuple(f"{a:g} to {b:g}" for a, b in itertools.pairwise(edges))
        function = None if inner.function is None else _histogram_of(inner.function)
        sums = inner.sums and replace(inner.sums, of=self._distribution(inner.sums.of))
        return Measure(labels, evaluate, function, (inner.parameters, low, high, scale), sums)


@lru_cache(maxsize=64)
def _histogram_of(function: Any) -> Any:
    @kernel
    def histogram(x, parameters, out):  # type: ignore[no-untyped-def]
        inner, low, high, scale = parameters
        function(x, inner, out)
        value = out[0]
        for k in range(len(out)):
            out[k] = 0.0
        if low <= value <= high:
            out[min(int((value - low) * scale), len(out) - 1)] = 1.0

    return histogram
