"""Marginals, and how far to trust them: the one place where they are computed.

A run stores how often each value was seen, in rows, with what each row is to be divided by. A row
is a chain, or on a GPU a group of chains. Summary, tables, files, report and progress bar all ask
the class below.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.system import memory
from minigibbs.system.boundary import check_level
from minigibbs.system.quantiles import chi_square, fisher, student

if TYPE_CHECKING:
    from minigibbs.results.run import Run

RHAT_LIMIT = 1.01  # Vehtari et al. 2021, doi:10.1214/20-BA1221
LEVEL = 0.95  # of intervals, unless told otherwise
LEAST_SWEEPS = 4  # of a chain, for R-hat
WANTED_CHAINS = 4  # chains, of which each is to be worth 100 independent draws
FALSE_ALARM = 0.01  # of a warning, for chains that are just long enough
_EVEN = 0.5  # a chance that stops runs well before the verdict would warn of them
_RATIO_FALSE_ALARM = 0.001  # the same, of chains that differ by more than their halves
_MOST_TOLERATED = 0.2  # square of R-hat, less 1, of series of many chains
_LEAST_RATIO = 4.0  # of variances, from which many chains disagree; it is 1 for chains that mix
_AT_ONCE = 1 << 22  # draws counted at a time


class Marginal(NamedTuple):
    """The marginal distribution of one variable.

    Attributes
    ----------
    values : tuple
        Labels, grid points or numbers of the values.
    probability : ndarray
        The probability of each value.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2], [mg.Unary([0], [0.0, 1.0])], ["rain"], [["no", "yes"]])
    >>> marginal = mg.infer(graph).marginal("rain")
    >>> marginal.values, marginal.probability.round(3)
    (('no', 'yes'), array([0.269, 0.731]))
    """

    values: tuple[Any, ...]
    probability: NDArray[np.float64]


class Worst(NamedTuple):
    """On what the rows disagree most."""

    variable: int  # with the largest R-hat
    rhat: float  # the largest over all values of all variables
    apart: int  # how many variables have an R-hat above `RHAT_LIMIT`


class Doubt(NamedTuple):
    """An R-hat that is larger than chance explains."""

    variable: int
    rhat: float
    limit: float
    variables: int  # how many variables exceed the limit


class _Spread(NamedTuple):
    """Variances of the indicator of each value."""

    between: NDArray[np.float64]  # of the means of rows
    within: NDArray[np.float64]  # of single draws, within parts of rows
    parts: NDArray[np.float64]  # of the means of the parts of rows; of rows where none are split
    inside: NDArray[np.float64] | None  # of the mean of half a row, from its two parts alone


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
        """[value, 2] intervals that cover the truth with probability `level`, where chains mix.

        With few rows the standard errors are themselves uncertain: Student's t with as many degrees
        of freedom as there are rows, less 1. NaN for a single row.
        """
        check_level(level)
        share, width = 0.5 + level / 2, math.nan
        if self.degrees > 0:
            width = student(self.degrees, share)
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
    early_counts: NDArray[np.int64] | None = None  # [row, sum of sizes] of the first part of a row
    early_visits: NDArray[np.int64] | None = None  # [row] visits of that part

    @classmethod
    def of(cls, run: Run) -> Marginals:
        """The marginals of a run, from every update or else from its draws.

        Rows that recorded nothing are left away.
        """
        early_counts, early_visits = run.early_counts, run.early_visits
        if run.counts is not None:
            counts, visits, chains = run.counts, run.visits, run.info.chains / len(run.clock)
        elif run.kept_draws is not None and len(run.drawn) == len(run.domains):
            draws = run.kept_draws
            counts, visits = count_draws(run, draws)
            chains = 1.0  # of a row's chains one is drawn
            if draws.shape[1] >= LEAST_SWEEPS:
                half = draws[:, : draws.shape[1] // 2]
                early_counts, early_visits = count_draws(run, half)
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
            early_counts=None if early_counts is None else early_counts[some],
            early_visits=None if early_visits is None else early_visits[some],
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
    def _spread(self) -> _Spread:
        """The variances of each value's indicator.

        Row by row, since there may be very many values (Welford's sums).
        """
        rows, size = len(self.counts), self.counts.shape[1]
        means, parts, within = _Moments(size), _Moments(size), np.zeros(size)
        inside = None if self.early_counts is None else np.zeros(size)
        for row, (count, visits) in enumerate(zip(self.counts, self.visits.tolist(), strict=True)):
            means.add(count / visits)
            shares = [count / visits]
            if self.early_counts is not None and self.early_visits is not None:
                assert inside is not None
                early, first = self.early_counts[row], int(self.early_visits[row])
                last = visits - first
                shares = [early / first, (count - early) / last]
                scale = 2.0 / visits / (1.0 / first + 1.0 / last)
                inside += (shares[1] - shares[0]) ** 2 * (scale / rows)
            for share in shares:
                parts.add(share)
                within += share * (1 - share) / (rows * len(shares))
        return _Spread(means.variance, within, parts.variance, inside)

    @property
    def comparable(self) -> bool:
        """Whether there are several rows, long enough to be compared."""
        return len(self.counts) > 1 and self.sweeps >= LEAST_SWEEPS

    @cached_property
    def rhat(self) -> NDArray[np.float64]:
        """[value] Split R-hat of the series that is 1 where the variable has the value, else 0.

        The ranks of such a series are the series itself, so that this is the rank-normalized R-hat.
        Counts of two parts of each row are enough to compute it. Means over a row of G chains vary
        G times less than the chains do. NaN where nothing ever moved, infinite where every row is
        stuck at a value of its own.
        """
        spread = self._spread
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.sqrt(1 + self.chains * spread.parts / spread.within)  # type: ignore[no-any-return]

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

    @property
    def tolerated(self) -> float:
        """The square of R-hat, less 1, of chains that are long enough."""
        return tolerated(len(self.counts) * self.chains)

    @cached_property
    def slow(self) -> Doubt | None:
        """The value whose two halves of each chain differ most, where that is not chance.

        It compares halves of the same chain and nothing else. So it does not depend on how the
        chains differ, by which errors are estimated: runs that pass are not those whose errors look
        small by chance.
        """
        spread = self._spread
        if not self.comparable or spread.inside is None:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = np.where(spread.within > 0, self.chains * spread.inside / spread.within, 0.0)
        limit = self.tolerated * chance_factor(len(self.counts), self.compared)
        return self._doubt(excess > limit, np.sqrt(1 + excess), math.sqrt(1 + limit))

    @cached_property
    def apart(self) -> Doubt | None:
        """The value on which chains differ most, if by more than their halves explain.

        A ratio of variances: of the means of chains, and of the halves of each. Its denominator is
        at least the median of all values, since that of a single value may be small by chance.
        """
        spread, rows = self._spread, len(self.counts)
        if not self.comparable:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = self.chains * 2 * spread.between / spread.within
            if spread.inside is None:
                limit = self.tolerated * chance_factor(rows - 1, self.compared)
                found = excess / 2 > limit
            else:
                limit = self.tolerated
                share = self.chains * spread.inside / spread.within
                usual = np.nanmedian(share) if np.isfinite(share).any() else 0.0
                ratio = excess / np.fmax(share, usual)
                found = (excess > limit) & (ratio > ratio_limit(rows, self.compared))
        found |= (spread.within == 0) & (spread.between > 0)
        return self._doubt(found, self.rhat, math.sqrt(1 + limit))

    @cached_property
    def ess(self) -> float:
        """The effective sample size of all values together; NaN where it cannot be told.

        It compares sums over values: of the variances of halves of chains, and of draws. So it is
        small where all variables depend on one slow one, even if no single value stands out among
        many. The sum scatters as much as a single value where all values depend on one, and less
        otherwise.
        """
        spread = self._spread
        inside, parts = float(spread.within.sum()), float(spread.parts.sum())
        if not self.comparable or inside == 0.0:
            return math.nan
        return self._parts * inside / parts if parts > 0.0 else math.inf

    @property
    def least_ess(self) -> float:
        """The effective sample size below which chains are too short, not just by chance.

        NaN for a single row that is not split.
        """
        return self._wanted / chance_factor(self._parts - 1, 1) if self._parts > 1 else math.nan

    @cached_property
    def ess_if_uniform(self) -> float:
        """The same where all values of a variable are known to be equally probable.

        It compares the marginals with these probabilities instead of chains with each other.
        """
        free = np.repeat(~self.fixed, self.sizes)
        chance = 1.0 / np.repeat(self.sizes, self.sizes)[free]
        off = float(((self.pooled[free] - chance) ** 2).sum())
        return float((chance * (1.0 - chance)).sum()) / off if off > 0.0 else math.inf

    @property
    def least_ess_if_uniform(self) -> float:
        """The number below which that is not just chance, even if all values depend on one."""
        return self._wanted / chance_factor(1, 1)

    @property
    def _wanted(self) -> float:
        """The effective sample size of chains that are just long enough."""
        return self._parts * self.chains / self.tolerated

    @property
    def _parts(self) -> int:
        """How many parts of rows are compared: halves, or rows where none are split."""
        return len(self.counts) * (1 if self._spread.inside is None else 2)

    @property
    def compared(self) -> int:
        """How many values can vary on their own: one less than there are, of each variable."""
        return max(int((self.sizes - 1)[~self.fixed].sum()), 1)

    def _doubt(
        self, found: NDArray[np.bool_], rhat: NDArray[np.float64], limit: float
    ) -> Doubt | None:
        if not found.any():
            return None
        by_variable = np.maximum.reduceat(np.where(found, rhat, 0.0), self.first)
        variable = int(by_variable.argmax())
        return Doubt(variable, float(by_variable[variable]), limit, int((by_variable > 0).sum()))

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
        between = self._spread.between
        return np.asarray(np.sqrt(between / rows + self.unseen), dtype=np.float64)

    @cached_property
    def unseen(self) -> NDArray[np.float64]:
        """[value] the variance that is added for values that may never have been seen."""
        draws = len(self.counts) * self.chains * self.sweeps / 2 + 4
        unseen = 2 / draws * (1 - 2 / draws) / draws
        return np.where(np.repeat(~self.fixed, self.sizes), unseen, 0.0)

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


class _Moments:
    """The running variance of arrays."""

    def __init__(self, size: int) -> None:
        self.count, self.mean, self.squares = 0, np.zeros(size), np.zeros(size)

    def add(self, values: NDArray[np.float64]) -> None:
        """Add one array."""
        self.count += 1
        step = values - self.mean
        self.mean += step / self.count
        self.squares += step * (values - self.mean)

    @property
    def variance(self) -> NDArray[np.float64]:
        """Of all arrays so far."""
        return self.squares / max(self.count - 1, 1)


def tolerated(chains: float) -> float:
    """Return the square of R-hat, less 1, that this number of chains may have.

    It is that of 1.01 for four chains. An effective sample size of 400 in all gives it. More chains
    than four may each be shorter: R-hat is nested, that of four groups of chains
    (Margossian et al. 2024, doi:10.1214/24-BA1453).
    """
    return (RHAT_LIMIT**2 - 1) * max(1.0, chains / WANTED_CHAINS)


def chance_factor(degrees: float, values: int, alarm: float = FALSE_ALARM) -> float:
    """Return how far a variance exceeds its mean by chance, the largest of `values`.

    With probability `alarm`, of Gaussian means with these degrees of freedom, by Bonferroni.
    """
    return chi_square(degrees, alarm / max(values, 1)) / degrees


def rhat_limit(chains: int, values: int) -> float:
    """Return the R-hat of chains, split in half, from which they disagree on one of `values`."""
    wanted = min(tolerated(chains), _MOST_TOLERATED)
    return math.sqrt(1 + wanted * chance_factor(max(2 * chains - 1, 1), values))


def ratio_limit(rows: int, values: int) -> float:
    """Return the ratio of variances between and within rows that is not chance."""
    single = fisher(rows - 1, rows, 1 - _RATIO_FALSE_ALARM)
    more = chance_factor(rows - 1, values) / chance_factor(rows - 1, 1)
    return max(single * more, _LEAST_RATIO)


def count_draws(
    run: Run, draws: NDArray[np.unsignedinteger]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How often each value was drawn, [row, sum of sizes], and how many draws there are."""
    sizes = run.domains.sizes
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


class Within(NamedTuple):
    """What parts of the same chain tell about marginals."""

    rhat: float  # the largest, minus the expected effect of comparing many
    error: float  # the largest standard error of a pooled marginal


def within_rows(
    marginals: Marginals, edges: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]
) -> Within:
    """Return R-hat and the error by how parts of the same row differ, and nothing else.

    Parameters
    ----------
    marginals : Marginals
        Those of all parts together.
    edges : sequence of pairs
        Counts and visits at the beginning, at the ends of inner parts, and at the end.
    """
    (first, before), (last, after) = edges[0], edges[-1]
    rows, parts, length = len(before), len(edges) - 1, (after - before)[:, None]
    whole, squares = (last - first) / length, np.zeros(first.shape[1])
    for (counts, visits), (more, later) in pairwise(edges):
        size = (later - visits)[:, None]
        squares += (size * ((more - counts) / size - whole) ** 2 / length).sum(axis=0)
    variance = squares / (rows * max(parts - 1, 1))  # of the mean of a row
    within = (whole * (1 - whole)).mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.where(within > 0, 2 * marginals.chains * variance / within, np.nan)
    degrees = rows * max(parts - 1, 1)
    nested = max(1.0, rows * marginals.chains / WANTED_CHAINS)
    chance = chance_factor(degrees, marginals.compared, _EVEN) * nested
    rhat = math.sqrt(1 + float(np.fmax.reduce(excess, initial=math.nan)) / chance)
    error = float(np.sqrt(variance / rows + marginals.unseen).max(initial=0.0))
    return Within(rhat, error)
