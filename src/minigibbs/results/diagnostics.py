"""Convergence diagnostics, through ArviZ."""

from __future__ import annotations

from typing import Any, NamedTuple

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


class Spread(NamedTuple):
    """What the marginals of several chains say about each other."""

    variable: int  # with the largest R-hat
    rhat: float  # the largest over all values of all variables
    apart: int  # variables whose R-hat is above `RHAT_LIMIT`
    error: float  # the largest standard error of a pooled marginal


def spread(
    counts: NDArray[np.int64], clock: NDArray[np.int64], sizes: NDArray[np.integer]
) -> Spread | None:
    """Compare the marginals of the chains; None where that tells nothing, as after few sweeps.

    R-hat of a value is that of the series that is 1 where the variable has the value, else 0: the
    chains' counts are enough to know it, so every variable is looked at, and no draws are needed.

    Parameters
    ----------
    counts
        Updates that each chain spent in each value, [chain, sum of sizes].
    clock
        Updates of each chain.
    sizes
        The variables' domain sizes.
    """
    if len(counts) < 2 or clock.min() < _LEAST_DRAWS * len(sizes):
        return None
    between, within = _variances(counts, clock)
    with np.errstate(divide="ignore", invalid="ignore"):
        rhat = np.sqrt(1 + between / within)  # NaN where no chain ever moved
    worst = np.fmax.reduceat(rhat, _first(sizes))
    if np.isnan(worst).all():
        return None
    variable = int(np.nanargmax(worst))
    apart = int(np.count_nonzero(worst > RHAT_LIMIT))
    return Spread(
        variable, float(worst[variable]), apart, float(standard_errors(counts, clock, sizes).max())
    )


def standard_errors(
    counts: NDArray[np.int64], clock: NDArray[np.int64], sizes: NDArray[np.integer]
) -> NDArray[np.float64]:
    """The standard error of each pooled marginal, [sum of sizes], from how the chains differ.

    Takes what `spread` takes, of two chains at least. A few chains may agree on a value by luck;
    so none gets a larger effective sample size than the tenth of the values that has the least,
    nor more than one in two sweeps, the best that updates of variables picked at random can give.
    And since a rare value may be missed by all chains, each counts as if it had been seen, and not
    seen, 4 times more. On real models errors stay within 5 of these (`benchmarks/results/uai.md`).
    """
    between, within = _variances(counts, clock)
    moved = int(np.count_nonzero(np.add.reduceat(within + between, _first(sizes))))
    seen = within > 0
    slow = float(np.quantile(between[seen] / within[seen], 0.9)) if seen.any() else 0.0
    per_sample = min(max(slow, 2 * moved / float(clock.mean())), 1.0)
    samples = len(counts) / per_sample
    pooled = (counts.sum(axis=0) / clock.sum() * samples + 4) / (samples + 8)  # Agresti, Coull 1998
    variance: NDArray[np.float64] = np.maximum(between, per_sample * pooled * (1 - pooled))
    return np.sqrt(variance / len(counts))  # type: ignore[no-any-return]


def _variances(
    counts: NDArray[np.int64], clock: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The variance of each value's indicator between chains, and within them.

    Chain by chain, since there may be very many values (Welford's sums).
    """
    mean, squares, within = (np.zeros(counts.shape[1]) for _ in range(3))
    for chain, (count, updates) in enumerate(zip(counts, clock.tolist(), strict=True)):
        share = count / updates
        step = share - mean
        mean += step / (chain + 1)
        squares += step * (share - mean)
        within += share * (1 - share)
    return squares / (len(counts) - 1), within / len(counts)


def _first(sizes: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.cumsum(sizes, dtype=np.int64) - sizes


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
