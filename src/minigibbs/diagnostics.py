"""Convergence diagnostics, through ArviZ."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

RHAT_LIMIT = 1.01  # Vehtari et al. 2021, doi:10.1214/20-BA1221
_LEAST_DRAWS = 4  # per chain; ArviZ needs them to split chains in half


def ess(series: ArrayLike) -> Any:
    """The bulk effective sample size of series [chain, draw] or [chain, draw, ...].

    A series that never changes, or is too short, gives NaN.
    """
    return _apply("ess", series)


def rhat(series: ArrayLike) -> Any:
    """The rank-normalised split R-hat of series [chain, draw] or [chain, draw, ...].

    NaN where a series never changes or is too short; infinite where every chain is stuck at a
    value of its own.
    """
    values = np.asarray(series, dtype=np.float64)
    result = np.asarray(_apply("rhat", values))
    if values.shape[1] >= _LEAST_DRAWS:
        stuck = (values == values[:, :1]).all(axis=(0, 1))
        apart = (values[:, 0] != values[:1, 0]).any(axis=0)
        result = np.where(stuck & apart, np.inf, result)
    return result[()]


def _apply(name: str, series: ArrayLike) -> Any:
    from arviz_stats.base import array_stats  # type: ignore[attr-defined]

    values = np.asarray(series, dtype=np.float64)
    flat: NDArray[np.float64] = values.reshape(*values.shape[:2], -1)
    result = np.full(flat.shape[2], np.nan)
    if flat.shape[1] >= _LEAST_DRAWS:
        varies = np.flatnonzero((flat != flat[:1, :1]).any(axis=(0, 1)))
        function = getattr(array_stats, name)
        with np.errstate(all="ignore"):
            for k in varies:
                result[k] = function(flat[:, :, k], chain_axis=0, draw_axis=1)
    return result.reshape(values.shape[2:])[()]
