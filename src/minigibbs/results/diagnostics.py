"""R-hat and effective sample sizes of series, through ArviZ; the one place that computes them.

What marginals alone tell, without any series, is in `results.marginals`.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from minigibbs.results.run import Run

MOST_JUDGED = 100  # variables whose draws are judged
LEAST_RECORDS = 4  # per chain; ArviZ needs them to split chains in half
_MOST_VALUES = 10  # of a variable, whose draws are judged: the most frequent ones


def ess(series: ArrayLike) -> Any:
    """The bulk effective sample size of series [chain, draw] or [chain, draw, ...].

    A series that never changes, or is too short, gives NaN.
    """
    return _apply("ess", series)


def ess_of_mean(series: ArrayLike) -> Any:
    """The effective sample size for the mean: what its standard error goes by."""
    return _apply("ess", series, method="mean")


def ess_within(series: ArrayLike) -> Any:
    """The bulk effective sample sizes of single chains, added up.

    How chains differ from each other does not enter.
    """
    return sum(ess(chain[None]) for chain in np.asarray(series))


def rhat(series: ArrayLike) -> Any:
    """The rank-normalised split R-hat of series [chain, draw] or [chain, draw, ...].

    NaN where a series never changes or is too short; infinite where every chain is stuck at a
    value of its own.
    """
    values = np.asarray(series, dtype=np.float64)
    result = np.asarray(_apply("rhat", values))
    if values.shape[1] >= LEAST_RECORDS:
        stuck = (values == values[:, :1]).all(axis=(0, 1))
        apart = (values[:, 0] != values[:1, 0]).any(axis=0)
        result = np.where(stuck & apart, np.inf, result)
    return result[()]


def of_energy(run: Run, most: int | None = None) -> tuple[float | None, float | None]:
    """R-hat and effective sample size of the energy; None where there is nothing to tell from.

    At most `most` records of each chain are looked at, evenly spaced.
    """
    energy = run.energy
    if energy is None or energy.shape[1] == 0 or not np.isfinite(energy).all():
        return None, None
    step = 1 if most is None else max(1, energy.shape[1] // most)
    return _known(float(rhat(energy[:, ::step]))), _known(float(ess(energy[:, ::step])))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


class Judged(NamedTuple):
    """One variable's convergence, by the indicators of its values; NaN where it cannot be told."""

    variable: int
    rhat: float  # the greatest over the values
    ess: float  # the least over the values


def judge(run: Run, most: int = MOST_JUDGED, within: bool = False) -> list[Judged]:
    """R-hat and ESS of the variables whose draws differ most between chains, the worst first.

    Looks at `most` variables at the most; empty if the run kept no draws. With `within` the ESS is
    that of single chains, added up.
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
        float(np.fmax.reduce(np.atleast_1d(rhat(indicators)))),  # which passes over NaN
        float(np.fmin.reduce(np.atleast_1d(size(indicators)))),
    )


def least(sizes: Sequence[float | None]) -> float | None:
    """The least of some effective sample sizes, None and NaN passed over."""
    known = [size for size in sizes if size is not None and not math.isnan(size)]
    return min(known, default=None)


def largest(values: NDArray[Any], most: int) -> NDArray[np.int64]:
    """Where the largest values stand, at most so many, the largest first, equals in order."""
    chosen = np.arange(len(values))
    if len(values) > most:
        chosen = np.sort(np.argpartition(-values, most)[:most])
    order: NDArray[np.int64] = chosen[np.argsort(-values[chosen], kind="stable")]
    return order


@cache
def _arviz() -> Any:
    """ArviZ's statistics, also where it cannot be imported or called as it is.

    It asks for the working directory, which may have been removed, and appends to docstrings,
    which `python -OO` leaves out.
    """
    with _existing_directory():
        from arviz_stats.base import array_stats, stats_utils  # type: ignore[attr-defined]
    if sys.flags.optimize >= 2 and hasattr(stats_utils, "update_docstring"):
        stats_utils.update_docstring = lambda *_, **__: None
    return array_stats


@contextmanager
def _existing_directory() -> Iterator[None]:
    """Be in the root directory for a while, where the working directory has been removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        here = os.open(".", os.O_RDONLY)
        os.chdir("/")
        try:
            yield
        finally:
            os.fchdir(here)
            os.close(here)
    else:
        yield


def _apply(name: str, series: ArrayLike, **options: Any) -> Any:
    array_stats = _arviz()
    values = np.asarray(series, dtype=np.float64)
    flat: NDArray[np.float64] = values.reshape(*values.shape[:2], math.prod(values.shape[2:]))
    result = np.full(flat.shape[2], np.nan)
    if flat.shape[1] >= LEAST_RECORDS:
        varies = np.flatnonzero((flat != flat[:1, :1]).any(axis=(0, 1)))
        function = getattr(array_stats, name)
        with np.errstate(all="ignore"):
            for k in varies:
                result[k] = function(flat[:, :, k], chain_axis=0, draw_axis=1, **options)
    return result.reshape(values.shape[2:])[()]
