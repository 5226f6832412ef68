"""Marginals, their errors and their convergence diagnostics.

A run stores how often each value was visited, by row, with the divisors of each row. A row is a
chain, or on a GPU a group of chains. Summary, tables, files, report and progress bar all use the
class `Marginals`.
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
LEVEL = 0.95  # default coverage of intervals
LEAST_SWEEPS = 4  # sweeps per chain required for R-hat
WANTED_CHAINS = 4  # chains for which RHAT_LIMIT is meant, each worth 100 independent draws
FALSE_ALARM = 0.01  # probability of a warning for chains that are just long enough
_EVEN = 0.5  # for stopping: stricter than FALSE_ALARM, so that stopped runs rarely get warnings
_RATIO_FALSE_ALARM = 0.001  # false-alarm rate of the comparison of chains with their halves
_MOST_TOLERATED = 0.2  # limit of R-hat squared minus 1 for series of many chains
_LEAST_RATIO = 4.0  # variance ratio from which many chains disagree; it is 1 for chains that mix
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
    """Largest R-hat, and the number of variables with a large one."""

    variable: int  # variable with the largest R-hat
    rhat: float  # largest over all values of all variables
    apart: int  # number of variables with an R-hat above `RHAT_LIMIT`


class Disagreement(NamedTuple):
    """An R-hat that is larger than chance explains."""

    variable: int
    rhat: float
    limit: float
    variables: int  # number of variables that exceed the limit


class _Spread(NamedTuple):
    """Variances of the indicator of each value; all arrays are [value]."""

    between: NDArray[np.float64]  # variance of the means of rows
    within: NDArray[np.float64]  # variance of single draws, within parts of rows
    parts: NDArray[np.float64]  # of the means of parts of rows, or of rows that are not split
    inside: NDArray[np.float64] | None  # of the mean of half a row, from its two parts; or None


class Shares(ABC):
    """Probabilities of every value of every variable, and statistics computed from them alone.

    Flat arrays have one entry per value, ordered by variable.
    """

    sizes: NDArray[np.integer]  # [variable]

    @property
    @abstractmethod
    def pooled(self) -> NDArray[np.float64]:
        """[value] probabilities."""

    @property
    @abstractmethod
    def standard_errors(self) -> NDArray[np.float64]:
        """[value] standard errors of the probabilities."""

    @property
    @abstractmethod
    def degrees(self) -> float:
        """Degrees of freedom of the standard errors; infinite if these are exact."""

    @property
    @abstractmethod
    def rows(self) -> NDArray[np.float64]:
        """[row, value] probabilities by row."""

    @property
    @abstractmethod
    def spread(self) -> NDArray[np.float64]:
        """[variable] largest difference between two rows' probabilities of a value."""

    def intervals(self, level: float = LEVEL) -> NDArray[np.float64]:
        """Return [value, 2] intervals that cover the truth with probability `level` if chains mix.

        With few rows the standard errors are themselves uncertain. The intervals therefore use
        Student's t with one degree of freedom less than there are rows. They are NaN for a single
        row.
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
        """[variable] index of its first value in flat arrays."""
        ends: NDArray[np.int64] = np.cumsum(self.sizes, dtype=np.int64)
        return ends - self.sizes

    @cached_property
    def entropy(self) -> NDArray[np.float64]:
        """[variable] entropy of the pooled marginals, in nats."""
        terms = -self.pooled * np.log(np.where(self.pooled > 0, self.pooled, 1.0))
        return np.add.reduceat(terms, self.first)

    @cached_property
    def top(self) -> NDArray[np.float64]:
        """[variable] probability of its most probable value."""
        return np.maximum.reduceat(self.pooled, self.first)  # type: ignore[no-any-return]

    @cached_property
    def likeliest(self) -> NDArray[np.int64]:
        """[variable] its most probable value."""
        return self.likeliest_in(self.pooled)

    def of_variable(self, variable: int) -> slice:
        """Return the slice of a variable's values in flat arrays."""
        begin = int(self.first[variable])
        return slice(begin, begin + int(self.sizes[variable]))

    def likeliest_in(self, flat: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return [variable] the value with the largest entry of `flat`, the first one in a tie."""
        largest = np.repeat(np.maximum.reduceat(flat, self.first), self.sizes)
        places = np.flatnonzero(flat == largest)
        owners = np.searchsorted(self.first, places, side="right") - 1
        found: NDArray[np.int64] = places[np.unique(owners, return_index=True)[1]]
        return found - self.first


@dataclass(frozen=True, eq=False)
class Known(Shares):
    """Given probabilities: exact, or with standard errors."""

    given: NDArray[np.float64]  # [sum of sizes]
    errors: NDArray[np.float64]  # [sum of sizes]
    sizes: NDArray[np.integer]
    freedom: float = math.inf

    @property
    def pooled(self) -> NDArray[np.float64]:
        """[value] probabilities."""
        return self.given

    @property
    def standard_errors(self) -> NDArray[np.float64]:
        """[value] standard errors, 0 if exact."""
        return self.errors

    @property
    def degrees(self) -> float:
        """Given degrees of freedom of the standard errors."""
        return self.freedom

    @property
    def rows(self) -> NDArray[np.float64]:
        """[row, value] the probabilities as a single row."""
        return self.given[None]

    @property
    def spread(self) -> NDArray[np.float64]:
        """[variable] zeros, because there is only one row."""
        return np.zeros(len(self.sizes))


@dataclass(frozen=True, eq=False)
class Marginals(Shares):
    """Numbers of visits to every value of every variable, and statistics computed from them.

    Flat arrays have one entry per value, ordered by variable.
    """

    counts: NDArray[np.int64]  # [row, sum of sizes]
    visits: NDArray[np.int64]  # [row] divisors of the counts
    sizes: NDArray[np.integer]  # [variable]
    chains: float  # per row
    sweeps: float  # per chain, on average; at most the number of sweeps counted
    fixed: NDArray[np.bool_]  # [variable] whether it has only one possible value, as with evidence
    early_counts: NDArray[np.int64] | None = None  # [row, sum of sizes] of the first part of a row
    early_visits: NDArray[np.int64] | None = None  # [row] visits of that part

    @classmethod
    def of(cls, run: Run) -> Marginals:
        """Return the marginals of a run, from every update or else from its draws.

        Rows without records are omitted.
        """
        early_counts, early_visits = run.early_counts, run.early_visits
        if run.counts is not None:
            counts, visits, chains = run.counts, run.visits, run.info.chains / len(run.clock)
        elif run.kept_draws is not None and len(run.drawn) == len(run.domains):
            draws = run.kept_draws
            counts, visits = count_draws(run, draws)
            chains = 1.0  # draws come from one chain per row
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
        """[row, value] marginals of each row."""
        shares: NDArray[np.float64] = self.counts / self.visits[:, None]
        return shares

    @cached_property
    def pooled(self) -> NDArray[np.float64]:
        """[value] marginals of all rows together."""
        share: NDArray[np.float64] = self.counts.sum(axis=0) / int(self.visits.sum())
        return share

    @cached_property
    def _spread(self) -> _Spread:
        """Variances of each value's indicator.

        They are computed row by row, because there may be many values (Welford's algorithm).
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
        """Whether there are several rows that are long enough to be compared."""
        return len(self.counts) > 1 and self.sweeps >= LEAST_SWEEPS

    @cached_property
    def rhat(self) -> NDArray[np.float64]:
        """[value] split R-hat of the value's indicator.

        An indicator has two values, so its rank-normalized R-hat is the same. Counts of two parts
        of each row suffice. Means over a row of G chains vary G times less than single chains.
        R-hat is NaN if no row ever moved. It is infinite if every row is stuck and their values
        differ.
        """
        spread = self._spread
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.sqrt(1 + self.chains * spread.parts / spread.within)  # type: ignore[no-any-return]

    @cached_property
    def worst(self) -> Worst | None:
        """Largest R-hat; None if it is not informative, for example after few sweeps."""
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
        """Tolerated R-hat squared minus 1, that of chains that are just long enough."""
        return tolerated(len(self.counts) * self.chains)

    @cached_property
    def slow(self) -> Disagreement | None:
        """Value whose two halves of each chain differ most, if by more than chance explains.

        Only halves of the same chain are compared. The result is therefore independent of
        differences between chains, from which errors are estimated. Runs that pass are not selected
        for errors that are small by chance.
        """
        spread = self._spread
        if not self.comparable or spread.inside is None:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = np.where(spread.within > 0, self.chains * spread.inside / spread.within, 0.0)
        limit = self.tolerated * chance_factor(len(self.counts), self.compared)
        return self._doubt(excess > limit, np.sqrt(1 + excess), math.sqrt(1 + limit))

    @cached_property
    def apart(self) -> Disagreement | None:
        """Value on which chains differ most, if by more than their halves explain.

        The test statistic is a ratio of variances: of the means of chains and of the halves of
        each. Its denominator is at least the median over all values, because that of one value may
        be small by chance.
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
        """Effective sample size of all values together; NaN if it is undefined.

        It compares sums over values: of the variances of halves of chains, and of draws. It is
        therefore small if all variables depend on one slow variable, even if no single value is
        conspicuous among many. The sum varies as much as a single value if all values depend on
        one, and less otherwise.
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
        """Number of compared parts of rows: halves, or whole rows if they are not split."""
        return len(self.counts) * (1 if self._spread.inside is None else 2)

    @property
    def compared(self) -> int:
        """Number of values that can vary independently: the domain size minus 1, per variable."""
        return max(int((self.sizes - 1)[~self.fixed].sum()), 1)

    def _doubt(
        self, found: NDArray[np.bool_], rhat: NDArray[np.float64], limit: float
    ) -> Disagreement | None:
        if not found.any():
            return None
        by_variable = np.maximum.reduceat(np.where(found, rhat, 0.0), self.first)
        variable = int(by_variable.argmax())
        return Disagreement(
            variable, float(by_variable[variable]), limit, int((by_variable > 0).sum())
        )

    @cached_property
    def standard_errors(self) -> NDArray[np.float64]:
        """[value] standard errors of the pooled marginals, from differences between rows.

        They are NaN for a single row. Rows that never visited a possible value agree on it.
        Therefore the variance of an unseen value by Agresti and Coull (1998) is added: two visits
        more in four more draws. It assumes one independent draw per two sweeps of each chain, the
        most that a random scan can give. It is negligible for values that were visited often.
        """
        rows = len(self.counts)
        if rows < 2:
            return np.full(self.counts.shape[1], np.nan)
        between = self._spread.between
        return np.asarray(np.sqrt(between / rows + self.unseen), dtype=np.float64)

    @cached_property
    def unseen(self) -> NDArray[np.float64]:
        """[value] variance that is added for values that may be unseen."""
        draws = len(self.counts) * self.chains * self.sweeps / 2 + 4
        unseen = 2 / draws * (1 - 2 / draws) / draws
        return np.where(np.repeat(~self.fixed, self.sizes), unseen, 0.0)

    @property
    def degrees(self) -> float:
        """Degrees of freedom: the number of rows minus 1."""
        return len(self.counts) - 1.0

    @cached_property
    def spread(self) -> NDArray[np.float64]:
        """[variable] largest difference between two rows' probabilities of a value."""
        if len(self.counts) < 2:
            return np.zeros(len(self.sizes))
        return np.maximum.reduceat(np.ptp(self.rows, axis=0), self.first)  # type: ignore[no-any-return]


class _Moments:
    """Running mean and variance of arrays (Welford's algorithm)."""

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
        """Variance of all arrays so far."""
        return self.squares / max(self.count - 1, 1)


def tolerated(chains: float) -> float:
    """Return the R-hat squared minus 1 that this number of chains may have.

    For four chains it is that of R-hat 1.01, which a total effective sample size of 400 gives. With
    more than four chains, each may be shorter: R-hat is nested, that of four groups of chains
    (Margossian et al. 2024, doi:10.1214/24-BA1453).
    """
    return (RHAT_LIMIT**2 - 1) * max(1.0, chains / WANTED_CHAINS)


def chance_factor(degrees: float, values: int, alarm: float = FALSE_ALARM) -> float:
    """Return the factor by which the largest of `values` variances exceeds its mean by chance.

    The probability of a larger one is at most `alarm` (Bonferroni), for Gaussian means with these
    degrees of freedom.
    """
    return chi_square(degrees, alarm / max(values, 1)) / degrees


def rhat_limit(chains: int, values: int) -> float:
    """Return the split R-hat from which chains disagree on one of `values` values."""
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
    """Return the counts of each value, [row, sum of sizes], and the number of draws by row."""
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
    """Return the mean l2 distance of marginals to the reference, averaged over the variables.

    The paper plots this error. `counts` [row, sum of sizes] are divided by `visits` [row]; `first`
    has the index of each variable's first value.
    """
    off = counts * (1.0 / np.maximum(visits, 1))[:, None]
    off -= reference  # in place from here on, because this may run at every sweep
    off *= off
    means: NDArray[np.float64] = np.sqrt(np.add.reduceat(off, first, axis=1)).mean(axis=1)
    return means


class Within(NamedTuple):
    """Convergence of marginals, from parts of the same chain."""

    rhat: float  # the largest, minus the expected effect of comparing many
    error: float  # the largest standard error of a pooled marginal


def within_rows(
    marginals: Marginals, edges: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]
) -> Within:
    """Return R-hat and the error from differences between parts of the same row only.

    Parameters
    ----------
    marginals : Marginals
        Marginals of all parts together.
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
