"""Discretization of numeric columns: quantiles, given edges, or the points of a `Grid`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.graph.domains import Grid

MOST_VALUES = 20  # a column of at most this many distinct numbers is not binned by default

Bins = int | Sequence[float] | NDArray[np.float64] | Grid


class Cuts:
    """The bins of one numeric column.

    Parameters
    ----------
    edges : array
        Inner edges, increasing. A number x is in bin k if edges[k-1] <= x < edges[k].
    grid : Grid or None
        If not None, each bin is a point of this grid and has the numbers nearest to it.
    """

    def __init__(self, edges: NDArray[np.float64], grid: Grid | None = None) -> None:
        self.edges, self.grid = edges, grid

    def __len__(self) -> int:
        return len(self.edges) + 1

    def codes(self, cells: NDArray[Any]) -> NDArray[np.int64]:
        """Return the bin of each cell."""
        return np.searchsorted(self.edges, cells, side="right")

    def labels(self) -> tuple[Hashable, ...]:
        """Return the labels of the bins: their intervals."""
        for digits in (6, 9, 17):
            ends = [f"{edge:.{digits}g}" for edge in self.edges.tolist()]
            if len(set(ends)) == len(ends):
                break
        lows, highs = ["-inf", *ends], [*ends, "inf"]
        return tuple(f"[{low}, {high})" for low, high in zip(lows, highs, strict=True))


def read_cuts(name: str, cells: NDArray[Any], bins: Bins) -> Cuts:
    """Return the bins of a column with these cells, none of them missing."""
    if isinstance(bins, Grid):
        points = bins.values
        return Cuts((points[1:] + points[:-1]) / 2, bins)
    if isinstance(bins, int | np.integer):
        if bins < 2:
            raise LearnError(f"bins: column {name!r} needs at least 2 bins, got {bins}")
        finite = cells[np.isfinite(cells)].astype(np.float64)
        if not len(finite):
            raise LearnError(f"bins: column {name!r} has no finite number to find quantiles of")
        edges = np.unique(np.quantile(finite, np.arange(1, bins) / bins))
        return Cuts(edges[edges > finite.min()])
    try:
        edges = np.asarray(bins, dtype=np.float64)
    except (TypeError, ValueError):
        raise LearnError(f"bins: column {name!r} needs numbers as edges, got {bins!r}") from None
    if edges.ndim != 1 or not len(edges) or not (np.diff(edges) > 0).all():
        raise LearnError(f"bins: column {name!r} needs increasing edges, got {list(bins)}")
    return Cuts(edges)


def bins_of(bins: Bins | Mapping[str, Bins], name: str, default: int) -> tuple[Bins, bool]:
    """The bins requested for a column, and whether they were requested by its name."""
    if isinstance(bins, Mapping):
        return (bins[name], True) if name in bins else (default, False)
    return bins, False
