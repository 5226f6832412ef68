"""The laws of estimates and minibatches, enumerated; Poisson tails are cut at 1e-12."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import poisson as poisson_law

from minigibbs.errors import SampleError, TooLargeError
from minigibbs.exact.enumeration import MOST_STATES, Enumeration
from minigibbs.graph.graph import FactorGraph
from minigibbs.samplers import Estimator, ExactEstimator, PoissonEstimator, SubsetEstimator

_TAIL = 1e-12
_SAME = 1e-9  # energies closer than this are one point of an estimator's law

Law = tuple[NDArray[np.float64], NDArray[np.float64]]  # points and their probabilities


@dataclass(frozen=True)
class TruncatedEstimator(Estimator):
    """An estimator given that it is within `delta` of the energy, as Theorems 2 and 6 ask.

    It exists on paper only: to draw from it one would have to know the energy.
    """

    estimator: Estimator
    delta: float

    def prepare(self, graph: FactorGraph) -> Any:
        """Refuse: there is nothing to run."""
        raise SampleError("TruncatedEstimator exists on paper only: use it with mg.theory")

    def work(self, graph: FactorGraph) -> float:
        """As many factors as the estimator it is made from."""
        return self.estimator.work(graph)

    def describe(self) -> str:
        """Say what it is."""
        return f"{self.estimator.describe()}, given that it is within {self.delta:g}"


def estimate_law(everything: Enumeration, estimator: Estimator, state: int) -> Law:
    """The paper's mu_x: the points of an estimator's law in a state, and their probabilities.

    Energies are on the scale on which every factor has least value 0.
    """
    phi = everything.phi[:, state]
    if isinstance(estimator, ExactEstimator):
        return np.array([phi.sum()]), np.ones(1)
    if isinstance(estimator, SubsetEstimator):
        members = list(itertools.combinations(range(len(phi)), estimator.size))
        sums = np.array([phi[list(m)].sum() for m in members]) * len(phi) / estimator.size
        return merge(sums, np.full(len(sums), 1.0 / len(sums)))
    if isinstance(estimator, PoissonEstimator):
        ratio = everything.spans.sum() / estimator.batch
        points, chances = np.zeros(1), np.ones(1)
        for value, span in zip(phi, everything.spans, strict=True):
            if value > 0:
                counts, own = poisson_points(span / ratio, value)
                gains = counts * math.log1p(ratio * value / span)
                points, chances = merge(
                    (points[:, None] + gains).ravel(), (chances[:, None] * own).ravel()
                )
        return points, chances
    if isinstance(estimator, TruncatedEstimator):
        points, chances = estimate_law(everything, estimator.estimator, state)
        near = np.abs(points - phi.sum()) <= estimator.delta
        if not near.any():
            raise SampleError(
                f"TruncatedEstimator: no estimate of state {state} is within {estimator.delta:g} "
                "of its energy; use a larger delta or batch"
            )
        return points[near], chances[near] / chances[near].sum()
    raise TypeError(f"no law is known for {type(estimator).__name__}")


def merge(points: NDArray[np.float64], chances: NDArray[np.float64]) -> Law:
    """Points that are the same but for rounding become one."""
    order = np.argsort(points)
    points, chances = points[order], chances[order]
    group = np.cumsum(np.append(0, np.diff(points) > _SAME))
    first = np.append(True, np.diff(group) > 0)
    return points[first], np.bincount(group, chances).astype(np.float64)


def poisson_points(rate: float, tilt: float = 0.0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Counts and their probabilities, up to where less than `_TAIL` is left.

    Where counts enter through exp(estimate), what is left must be small under that tilt too,
    which makes them Poisson(rate + tilt).
    """
    counts = np.arange(int(poisson_law.isf(_TAIL, rate + tilt)) + 2)
    chances = poisson_law.pmf(counts, rate)
    return counts, chances / chances.sum()


def poisson_grid(rates: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """All vectors of counts [vector, rate] that matter, and their probabilities."""
    points = [poisson_points(float(rate)) for rate in rates]
    size = math.prod(len(counts) for counts, _ in points)
    if size > MOST_STATES:
        raise TooLargeError(
            f"{size:,} minibatches are too many to enumerate; the limit is {MOST_STATES:,}: use "
            "smaller batches, or fewer factors at a variable"
        )
    grids = [np.meshgrid(*axes, indexing="ij") for axes in zip(*points, strict=True)]
    chances = np.ones(1)
    for axis in grids[1] if grids else ():
        chances = chances * axis.ravel()
    keep = chances > _TAIL * 1e-4
    counts = [axis.ravel()[keep] for axis in grids[0]] if grids else []
    vectors = np.stack(counts, axis=1).astype(np.float64) if counts else np.zeros((1, 0))
    return vectors, chances[keep] / chances[keep].sum()
