"""Marginals, and how far to trust them: the one place where they are computed.

A run stores how often each value was seen, in rows, with what each row is to be divided by. A row
is a chain, or on a GPU a group of chains. Summary, tables, files, report and progress bar all ask
the class below.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.system import memory

if TYPE_CHECKING:
    from minigibbs.results.run import Run

RHAT_LIMIT = 1.01  # Vehtari et al. 2021, doi:10.1214/20-BA1221
LEVEL = 0.95  # of intervals, unless told otherwise
LEAST_SWEEPS = 4  # of a chain, for R-hat
_AT_ONCE = 1 << 22  # draws counted at a time


def check_level(level: float) -> None:
    """Raise unless a level is a probability that an interval can have."""
    real = isinstance(level, Real) and not isinstance(level, bool)
    if not (real and 0 < level < 1):
        raise SampleError(f"level must lie between 0 and 1, such as 0.95 for 95%, got {level!r}")


class Marginal(NamedTuple):
    """One variable's distribution.

    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2], [mg.Unary([0], [0.0, 1.0])], ["rain"], [["no", "yes"]])
    >>> mg.sample(graph, seed=1, progress=False).marginal("rain").values
    ('no', 'yes')
    """

    values: tuple[Any, ...]  # labels, grid points or numbers
    probability: NDArray[np.float64]


class Worst(NamedTuple):
    """On what the rows disagree most."""

    variable: int  # with the largest R-hat
    rhat: float  # the largest over all values of all variables
    apart: int  # how many variables have an R-hat above `RHAT_LIMIT`


class Shares(ABC):
    """Probabilities of every value of every variable, and what follows from them alone.

    Flat arrays hold a stretch per variable, one place per value.
    """

    sizes: NDArray[np.integer]  # [variable]

    @property
    @abstractmethod
    def pooled(self) -> NDArray[np.float64]:
        """[value] the probabilities."""

    @property
    @abstractmethod
    def standard_errors(self) -> NDArray[np.float64]:
        """[value] their standard errors."""

    @property
    @abstractmethod
    def degrees(self) -> float:
        """The degrees of freedom of the standard errors; infinite where they are certain."""

    @property
    @abstractmethod
    def rows(self) -> NDArray[np.float64]:
        """[row, value] the probabilities by row."""

    @property
    @abstractmethod
    def spread(self) -> NDArray[np.float64]:
        """[variable] the largest difference between two rows' probabilities of a value."""

    def intervals(self, level: float = LEVEL) -> NDArray[np.float64]:
        """[value, 2] intervals that cover the truth with a chance of `level`, where chains mix.

        With few rows the standard errors are themselves uncertain: Student's t with as many degrees
        of freedom as there are rows, less 1. NaN for a single row.
        """
        from scipy.special import ndtri, stdtrit

        check_level(level)
        share, width = 0.5 + level / 2, math.nan
        if self.degrees > 0:
            width = ndtri(share) if math.isinf(self.degrees) else stdtrit(self.degrees, share)
        reach = width * self.standard_errors
        ends = np.stack([self.pooled - reach, self.pooled + reach], axis=1)
        return np.clip(ends, 0.0, 1.0)  # type: ignore[no-any-return]

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """Where each variable's stretch begins."""
        ends: NDArray[np.int64] = np.cumsum(self.sizes, dtype=np.int64)
        return ends - self.sizes

    @cached_property
    def entropy(self) -> NDArray[np.float64]:
        """[variable] of the pooled marginals, in nats."""
        terms = -self.pooled * np.log(np.where(self.pooled > 0, self.pooled, 1.0))
        return np.add.reduceat(terms, self.first)

    @cached_property
    def top(self) -> NDArray[np.float64]:
        """[variable] the probability of its most probable value."""
        return np.maximum.reduceat(self.pooled, self.first)  # type: ignore[no-any-return]

    @cached_property
    def likeliest(self) -> NDArray[np.int64]:
        """[variable] its most probable value."""
        return self.likeliest_in(self.pooled)

    def of_variable(self, variable: int) -> slice:
        """A variable's stretch."""
        begin = int(self.first[variable])
        return slice(begin, begin + int(self.sizes[variable]))

    def likeliest_in(self, flat: NDArray[np.float64]) -> NDArray[np.int64]:
        """[variable] the value with the largest number, the first of equals."""
        largest = np.repeat(np.maximum.reduceat(flat, self.first), self.sizes)
        places = np.flatnonzero(flat == largest)
        owners = np.searchsorted(self.first, places, side="right") - 1
        found: NDArray[np.int64] = places[np.unique(owners, return_index=True)[1]]
        return found - self.first


@dataclass(frozen=True, eq=False)
class Known(Shares):
    """Probabilities as they are given: exact, or with standard errors."""

    given: NDArray[np.float64]  # [sum of sizes]
    errors: NDArray[np.float64]  # [sum of sizes]
    sizes: NDArray[np.integer]
    freedom: float = math.inf

    @property
    def pooled(self) -> NDArray[np.float64]:
        """[value] the probabilities."""
        return self.given

    @property
    def standard_errors(self) -> NDArray[np.float64]:
        """[value] their standard errors, 0 where they are exact."""
        return self.errors

    @property
    def degrees(self) -> float:
        """As given."""
        return self.freedom

    @property
    def rows(self) -> NDArray[np.float64]:
        """One row."""
        return self.given[None]

    @property
    def spread(self) -> NDArray[np.float64]:
        """There is nothing to differ."""
        return np.zeros(len(self.sizes))


@dataclass(frozen=True, eq=False)
class Marginals(Shares):
    """Visits to every value of every variable, and all that follows from them.

    Flat arrays hold a stretch per variable, one place per value.
    """

    counts: NDArray[np.int64]  # [row, sum of sizes]
    visits: NDArray[np.int64]  # [row] what a row's counts are divided by
    sizes: NDArray[np.integer]  # [variable]
    chains: float  # in a row
    sweeps: float  # of each chain, on average; no more than were counted
    fixed: NDArray[np.bool_]  # [variable] whether it has one value only, as by evidence

    @classmethod
    def of(cls, run: Run) -> Marginals:
        """The marginals of a run, from every update or else from its draws.

        Rows that recorded nothing are left away.
        """
        if run.counts is not None:
            counts, visits, chains = run.counts, run.visits, run.info.chains / len(run.clock)
        elif run.kept_draws is not None and len(run.drawn) == len(run.domains):
            counts, visits = count_draws(run)
            chains = 1.0  # of a row's chains one is drawn
        else:
            raise SampleError('this run kept no marginals; sample with record=("marginals",)')
        some = np.flatnonzero(visits)
        if not len(some):
            raise SampleError("this run has no marginals: it made no updates after its warm-up")
        clamped = 0 if run.model is None else int(run.model["clamped"])
        free = max(len(run.domains) - clamped, 1)
        sweeps = min(float(run.clock[some].mean()) / free, float(visits[some].mean()) / chains)
        return cls(
            counts=counts[some] if len(some) < len(counts) else counts,
            visits=visits[some],
            sizes=run.domains.sizes,
            chains=chains,
            sweeps=sweeps,
            fixed=run.clamped | (run.domains.sizes == 1),
        )

    @cached_property
    def rows(self) -> NDArray[np.float64]:
        """[row, value] the marginals of each row."""
        shares: NDArray[np.float64] = self.counts / self.visits[:, None]
        return shares

    @cached_property
    def pooled(self) -> NDArray[np.float64]:
        """[value] the marginals of all rows together."""
        share: NDArray[np.float64] = self.counts.sum(axis=0) / int(self.visits.sum())
        return share

    @cached_property
    def _variances(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The variance of each value's indicator between rows, and within them.

        Row by row, since there may be very many values (Welford's sums).
        """
        mean, squares, within = (np.zeros(self.counts.shape[1]) for _ in range(3))
        for row, (count, visits) in enumerate(zip(self.counts, self.visits.tolist(), strict=True)):
            share = count / visits
            step = share - mean
            mean += step / (row + 1)
            squares += step * (share - mean)
            within += share * (1 - share)
        return squares / max(len(self.counts) - 1, 1), within / len(self.counts)

    @property
    def comparable(self) -> bool:
        """Whether there are several rows, long enough to be compared."""
        return len(self.counts) > 1 and self.sweeps >= LEAST_SWEEPS

    @cached_property
    def rhat(self) -> NDArray[np.float64]:
        """[value] R-hat of the series that is 1 where the variable has the value, else 0.

        Counts are enough to know it, so that every variable is looked at and no draws are needed.
        Means over a row of G chains vary G times less than the chains do. NaN where nothing ever
        moved, infinite where every row is stuck at a value of its own.
        """
        between, within = self._variances
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.sqrt(1 + self.chains * between / within)  # type: ignore[no-any-return]

    @cached_property
    def worst(self) -> Worst | None:
        """On what the rows disagree most; None where that tells nothing, as after few sweeps."""
        if not self.comparable:
            return None
        by_variable = np.fmax.reduceat(self.rhat, self.first)
        if np.isnan(by_variable).all():
            return None
        variable = int(np.nanargmax(by_variable))
        apart = int(np.count_nonzero(by_variable > RHAT_LIMIT))
        return Worst(variable, float(by_variable[variable]), apart)

    @cached_property
    def standard_errors(self) -> NDArray[np.float64]:
        """[value] the standard errors of the pooled marginals, from how the rows differ.

        NaN for a single row. Rows that all miss a value agree on it, and it is possible all the
        same: added is the variance that Agresti and Coull (1998) give a value never seen. They
        count two visits more, of as many independent draws as variables picked at random can give:
        one in two sweeps of each chain. For a value that was seen often it is next to nothing.
        """
        rows = len(self.counts)
        if rows < 2:
            return np.full(self.counts.shape[1], np.nan)
        between, _ = self._variances
        draws = rows * self.chains * self.sweeps / 2 + 4
        unseen = 2 / draws * (1 - 2 / draws) / draws
        possible = np.repeat(~self.fixed, self.sizes)
        return np.sqrt(between / rows + possible * unseen)  # type: ignore[no-any-return]

    @property
    def degrees(self) -> float:
        """One less than there are rows."""
        return len(self.counts) - 1.0

    @cached_property
    def spread(self) -> NDArray[np.float64]:
        """[variable] the largest difference between two rows' probabilities of a value."""
        if len(self.counts) < 2:
            return np.zeros(len(self.sizes))
        return np.maximum.reduceat(np.ptp(self.rows, axis=0), self.first)  # type: ignore[no-any-return]


def count_draws(run: Run) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How often each value was drawn, [row, sum of sizes], and how many draws there are."""
    draws, sizes = run.kept_draws, run.domains.sizes
    assert draws is not None
    ends = np.cumsum(sizes, dtype=np.int64)
    starts = (ends - sizes)[run.drawn]
    what = f"counts of {int(ends[-1]):,} values"
    memory.require(16 * len(draws) * int(ends[-1]), what, "record marginals of fewer values")
    counts = np.zeros((len(draws), int(ends[-1])), dtype=np.int64)
    step = max(1, _AT_ONCE // len(sizes))
    for row, states in enumerate(draws):
        for begin in range(0, len(states), step):
            places = (starts + states[begin : begin + step].astype(np.int64)).ravel()
            counts[row] += np.bincount(places, minlength=counts.shape[1])
    return counts, np.full(len(draws), draws.shape[1], dtype=np.int64)


def mean_distance(
    counts: NDArray[np.int64],
    visits: NDArray[np.int64],
    reference: NDArray[np.float64],
    first: NDArray[np.int64],
) -> NDArray[np.float64]:
    """How far marginals are off: the mean l2 distance to the reference over the variables.

    This is the error that the paper plots. `counts` [row, sum of sizes] are divided by `visits`
    [row]; a variable's values begin at `first`.
    """
    off = counts * (1.0 / np.maximum(visits, 1))[:, None]
    off -= reference  # in place from here on: this may run at every sweep
    off *= off
    means: NDArray[np.float64] = np.sqrt(np.add.reduceat(off, first, axis=1)).mean(axis=1)
    return means


def split_rhat(late: Marginals, early: Marginals) -> float:
    """The greatest R-hat over all values, with every row cut where `early` was taken."""
    after = (late.counts - early.counts) / (late.visits - early.visits)[:, None]
    share = np.concatenate([early.rows, after])
    within = (share * (1.0 - share)).mean(axis=0)
    between = share.var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        rhat = np.sqrt(1.0 + late.chains * between / within)  # infinite where stuck apart
    return float(np.fmax.reduce(rhat, initial=math.nan))
