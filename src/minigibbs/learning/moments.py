"""Distance of the model's moments from the data's: largest error and Pearson correlation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.parameters import Frame
from minigibbs.kernels.counts import count_values


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean statistics of data and model, and the same minus those of independent variables."""

    data: NDArray[np.float64]
    model: NDArray[np.float64]
    connected_data: NDArray[np.float64]
    connected_model: NDArray[np.float64]

    def error(self, frame: Frame) -> float:
        """Return the largest difference of a learned parameter, as a share of its range."""
        return float(scaled_difference(frame, self.data, self.model).max(initial=0.0))

    def pearson(self, frame: Frame) -> float:
        """Return the correlation of connected moments; NaN if there are fewer than two."""
        chosen = joint(frame) & ~frame.fixed
        a, b = self.connected_data[chosen], self.connected_model[chosen]
        if len(a) < 2 or not a.std() > 0 or not b.std() > 0:
            return float("nan")
        return float(np.corrcoef(a, b)[0, 1])


def scaled_difference(
    frame: Frame, data: NDArray[np.float64], model: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the difference of each learned parameter's moments, as a share of its range."""
    low, high = frame.ranges
    span = np.where(high > low, high - low, 1.0)
    difference: NDArray[np.float64] = np.abs(data - model)[~frame.fixed] / span[~frame.fixed]
    return difference


def joint(frame: Frame) -> NDArray[np.bool_]:
    """[parameter] whether it belongs to factors of two variables or more."""
    chosen = np.zeros(frame.size, dtype=np.bool_)
    chosen[frame.ties.pair[frame.ties.pair >= 0]] = True
    factors = frame.structure.factors
    several = (frame.ties.factor >= 0) & (factors["scope_end"] - factors["scope_start"] > 1)
    starts = frame.ties.factor[several]
    entries = frame.ties.entries[several]
    chosen[starts[~entries]] = True
    sizes = frame.table_sizes(np.flatnonzero(several)[entries])
    for size in np.unique(sizes).tolist():
        chosen[(starts[entries][sizes == size][:, None] + np.arange(size)).ravel()] = True
    return chosen


def marginals_of(
    frame: Frame, states: NDArray[Any], weights: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return the share of each value of each variable among states, with optional weights."""
    first, total = frame.structure.first, int(frame.sizes.sum(dtype=np.int64))
    if weights is None:
        counts = np.zeros(total, np.int64)
        count_values(first, states, counts)
        return counts / len(states)
    places = (first + states).ravel()
    sums = np.bincount(places, np.repeat(weights, states.shape[1]), minlength=total)
    shares: NDArray[np.float64] = sums / weights.sum()
    return shares
