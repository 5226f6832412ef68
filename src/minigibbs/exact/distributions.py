"""Finite distributions: softmax, Poisson counts, vectors of counts, merging of equal points."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import TooLargeError
from minigibbs.exact.enumeration import MOST_STATES, softmax

TAIL = 1e-12  # Poisson counts are cut where less than this probability remains, above and below
_SAME = 1e-9  # closer energies are merged to one point of an estimator's distribution

Distribution = tuple[NDArray[np.float64], NDArray[np.float64]]  # points and their probabilities


def merge(points: NDArray[np.float64], chances: NDArray[np.float64]) -> Distribution:
    """Merge points that are equal up to rounding."""
    order = np.argsort(points)
    points, chances = points[order], chances[order]
    group = np.cumsum(np.append(0, np.diff(points) > _SAME))
    first = np.append(True, np.diff(group) > 0)
    return points[first], np.bincount(group, chances).astype(np.float64)


def poisson_points(rate: float, tilt: float = 0.0) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return counts and their probabilities, cut where less than `TAIL` remains on either side.

    If counts enter through exp(estimate), the upper tail must also be small under that tilt, which
    makes the counts Poisson(rate + tilt).

    >>> counts, chances = poisson_points(0.5)
    >>> counts[:3], chances[:3].round(3)
    (array([0, 1, 2]), array([0.607, 0.303, 0.076]))
    """
    top = rate + tilt
    low = max(0, math.floor(rate - 10 * math.sqrt(rate) - 50))
    counts = np.arange(low, math.ceil(top + 10 * math.sqrt(top) + 50) + 1)
    chances = _poisson(rate, counts)
    first = int(np.searchsorted(np.cumsum(chances), TAIL))
    last = len(counts) - int(np.searchsorted(np.cumsum(_poisson(top, counts)[::-1]), TAIL))
    chances = chances[first : last + 1]
    return counts[first : last + 1], chances / chances.sum()


def _poisson(rate: float, counts: NDArray[Any]) -> NDArray[np.float64]:
    """Return the probabilities of consecutive counts with all but a negligible probability."""
    if rate == 0:
        return np.where(counts == 0, 1.0, 0.0)
    logs = np.concatenate([[0.0], np.cumsum(math.log(rate) - np.log(counts[1:]))])
    return softmax(logs)


def check_minibatches(size: int) -> None:
    """Raise `TooLargeError` for more minibatches than can be enumerated."""
    if size > MOST_STATES:
        raise TooLargeError(
            f"{size:,} minibatches are too many to enumerate; the limit is {MOST_STATES:,}: use "
            "smaller batches, or fewer factors at a variable"
        )


def poisson_grid(rates: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return all vectors of counts [vector, rate] that matter, and their probabilities."""
    points = [poisson_points(float(rate)) for rate in rates]
    size = math.prod(len(counts) for counts, _ in points)
    check_minibatches(size)
    grids = [np.meshgrid(*axes, indexing="ij") for axes in zip(*points, strict=True)]
    chances = np.ones(1)
    for axis in grids[1] if grids else ():
        chances = chances * axis.ravel()
    keep = chances > TAIL * 1e-4
    counts = [axis.ravel()[keep] for axis in grids[0]] if grids else []
    vectors = np.stack(counts, axis=1).astype(np.float64) if counts else np.zeros((1, 0))
    return vectors, chances[keep] / chances[keep].sum()
