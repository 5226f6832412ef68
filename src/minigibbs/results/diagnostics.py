"""R-hat and effective sample sizes of series.

The definitions are those of Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021),
"Rank-normalization, folding, and localization: an improved R-hat". ArviZ computes the same numbers
up to rounding, but takes a second to import and one call per series. This module computes all
series in one call.

`results.marginals` has the diagnostics that need only marginals and no series.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.system.quantiles import normal

if TYPE_CHECKING:
    from minigibbs.results.run import Run

MOST_JUDGED = 100  # variables whose draws are checked
LEAST_RECORDS = 4  # per chain, so that each half of a chain has two
_MOST_VALUES = 10  # most frequent values that are checked per variable


def ess(series: ArrayLike) -> Any:
    """Return the bulk effective sample size of series [chain, draw] or [chain, draw, ...].

    It is NaN for a series that never changes or is too short.
    """
    return _apply(_bulk_ess, series)


def ess_of_mean(series: ArrayLike) -> Any:
    """Return the effective sample size of the mean, which determines its standard error."""
    return _apply(_mean_ess, series)


def ess_within(series: ArrayLike) -> Any:
    """Return the sum of the bulk effective sample sizes of the single chains.

    It does not depend on differences between chains.
    """
    return sum(ess(chain[None]) for chain in np.asarray(series))


def rhat(series: ArrayLike) -> Any:
    """Return the rank-normalized split R-hat of series [chain, draw] or [chain, draw, ...].

    It is NaN for a series that never changes or is too short. It is infinite if every chain is
    stuck and their values differ.
    """
    values = np.asarray(series, dtype=np.float64)
    result = np.asarray(_apply(_rank_rhat, values))
    if values.shape[1] >= LEAST_RECORDS:
        stuck = (values == values[:, :1]).all(axis=(0, 1))
        apart = (values[:, 0] != values[:1, 0]).any(axis=0)
        result = np.where(stuck & apart, np.inf, result)
    return result[()]


def of_energy(run: Run, most: int | None = None) -> tuple[float | None, float | None]:
    """Return R-hat and effective sample size of the energy; None if they cannot be computed.

    About `most` evenly spaced records per chain are used; None for all.
    """
    energy = run.energy
    if energy is None or energy.shape[1] == 0 or not np.isfinite(energy).all():
        return None, None
    step = 1 if most is None else max(1, energy.shape[1] // most)
    return _known(float(rhat(energy[:, ::step]))), _known(float(ess(energy[:, ::step])))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


class Judged(NamedTuple):
    """Convergence of one variable, from the indicators of its values; NaN if undefined."""

    variable: int
    rhat: float  # largest over the values
    ess: float  # smallest over the values


def judge(run: Run, most: int = MOST_JUDGED, within: bool = False) -> list[Judged]:
    """Return R-hat and ESS of the variables whose draws differ most between chains, worst first.

    At most `most` variables are checked. The list is empty if the run kept no draws. With `within`,
    the ESS is the sum over single chains.
    """
    draws, drawn = run.kept_draws, run.drawn
    if draws is None or draws.shape[1] == 0:
        return []
    moving = np.flatnonzero((draws != draws[:1, :1]).any(axis=(0, 1)))
    means = draws[:, :, moving].mean(axis=1)
    places = moving[largest(np.ptp(means, axis=0) / run.domains.sizes[drawn[moving]], most)]
    size = ess_within if within else ess
    found = [_judge(int(drawn[place]), draws[:, :, place], size) for place in places]
    return sorted(found, key=lambda one: -np.nan_to_num(one.rhat, nan=0.0, posinf=1e300))


def _judge(
    variable: int, draws: NDArray[np.unsignedinteger], size: Callable[[ArrayLike], Any]
) -> Judged:
    values, counts = np.unique(draws, return_counts=True)
    values = values[np.argsort(-counts, kind="stable")]
    values = values[:1] if len(values) == 2 else values[:_MOST_VALUES]
    indicators = draws[:, :, None] == values
    return Judged(
        variable,
        float(np.fmax.reduce(np.atleast_1d(rhat(indicators)))),  # ignores NaN
        float(np.fmin.reduce(np.atleast_1d(size(indicators)))),
    )


def least(sizes: Sequence[float | None]) -> float | None:
    """Return the smallest of some effective sample sizes, ignoring None and NaN."""
    known = [size for size in sizes if size is not None and not math.isnan(size)]
    return min(known, default=None)


def largest(values: NDArray[Any], most: int) -> NDArray[np.int64]:
    """Return the positions of the `most` largest values, in descending order; ties keep order."""
    chosen = np.arange(len(values))
    if len(values) > most:
        chosen = np.sort(np.argpartition(-values, most)[:most])
    order: NDArray[np.int64] = chosen[np.argsort(-values[chosen], kind="stable")]
    return order


Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]
_TOGETHER = 2**21  # entries of series processed at a time


def _apply(statistic: Statistic, series: ArrayLike) -> Any:
    """Compute a statistic of series [chain, draw, ...]; NaN for constant or too short ones."""
    values = np.asarray(series, dtype=np.float64)
    flat: NDArray[np.float64] = values.reshape(*values.shape[:2], math.prod(values.shape[2:]))
    result = np.full(flat.shape[2], np.nan)
    if flat.shape[1] >= LEAST_RECORDS and flat.size:
        usable = (flat != flat[:1, :1]).any(axis=(0, 1)) & ~np.isnan(flat).any(axis=(0, 1))
        columns = np.flatnonzero(usable)
        width = max(1, _TOGETHER // (flat.shape[0] * flat.shape[1]))
        with np.errstate(all="ignore"):
            for first in range(0, len(columns), width):
                some = columns[first : first + width]
                result[some] = statistic(_halves(flat[:, :, some]))
    return result.reshape(values.shape[2:])[()]


def _bulk_ess(halves: NDArray[np.float64]) -> NDArray[np.float64]:
    return _mean_ess(_normal_scores(halves))


def _rank_rhat(halves: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the larger of the R-hats of ranks and of ranks of distances from the median."""
    if len(halves) < 4:  # one chain
        return np.full(halves.shape[2], np.nan)
    distances = np.abs(halves - np.median(halves, axis=(0, 1)))
    bulk, tail = (_plain_rhat(_normal_scores(part)) for part in (halves, distances))
    return np.where(tail > bulk, tail, bulk)  # the bulk's R-hat if distances do not vary


def _halves(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Split each chain into two halves; the middle draw of an odd number is omitted."""
    half = series.shape[1] // 2
    return np.concatenate([series[:, :half], series[:, -half:]])


def _normal_scores(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace the values of each series by the normal quantiles of their ranks."""
    flat = series.reshape(-1, series.shape[2])
    ranks = np.empty_like(flat)
    for k in range(flat.shape[1]):
        _, place, counts = np.unique(flat[:, k], return_inverse=True, return_counts=True)
        mean_ranks = np.cumsum(counts) - 0.5 * (counts - 1)
        ranks[:, k] = mean_ranks[place.ravel()]
    return normal((ranks - 0.375) / (len(flat) + 0.25)).reshape(series.shape)


def _plain_rhat(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compare the variances between and within rows; `series` is [row, draw, series]."""
    draws = series.shape[1]
    between = draws * series.mean(axis=1).var(axis=0, ddof=1)
    within = series.var(axis=1, ddof=1).mean(axis=0)
    ratio: NDArray[np.float64] = np.sqrt((between / within + draws - 1) / draws)
    return ratio


def _mean_ess(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the effective sample size of the mean from autocorrelations; [row, draw, series].

    Autocorrelations are added in pairs of neighboring lags while the sums are positive. Each sum is
    limited to the one before it (Geyer's initial monotone sequence).
    """
    rows, draws, _ = series.shape
    total = rows * draws
    covariances = _autocovariances(series)
    within = covariances[0] * draws / (draws - 1.0)
    variance = covariances[0].copy()
    if rows > 1:
        variance += series.mean(axis=1).var(axis=0, ddof=1)
    rho = 1.0 - (within - covariances) / variance
    rho[0] = 1.0
    pairs = rho[: draws // 2 * 2].reshape(-1, 2, rho.shape[1])
    sums = pairs.sum(axis=1)
    ends = sums <= 0.0
    ends[max(0, -(-(draws - 4) // 2)) :] = True  # the last pairs are noise
    last = np.argmax(ends, axis=0)  # the pair at which the sum ends
    added = np.minimum.accumulate(sums, axis=0)
    before = np.where(np.arange(len(sums))[:, None] < last, added, 0.0).sum(axis=0)
    columns = np.arange(rho.shape[1])
    even = pairs[last, 0, columns]
    even = np.where((even > 0.0) | (sums[last, columns] >= 0.0), even, 0.0)
    time = np.maximum(-1.0 + 2.0 * before + even, 1.0 / np.log10(total))
    constant = np.ptp(series, axis=(0, 1)) < np.finfo(float).resolution
    sizes: NDArray[np.float64] = np.where(constant, float(total), total / time)
    return sizes


def _autocovariances(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the autocovariances averaged over rows: [lag, series]."""
    draws = series.shape[1]
    length = 1 << (2 * draws - 1).bit_length()
    spectrum = np.fft.rfft(series - series.mean(axis=1, keepdims=True), length, axis=1)
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=0)
    lags: NDArray[np.float64] = np.fft.irfft(power, length, axis=0)[:draws] / draws
    return lags
