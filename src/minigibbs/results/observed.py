"""Observables of a run and their errors.

A run stores the whole series of its observables or, if that would be long, running moments and sums
of batches. Both are divided into blocks of consecutive records, long enough to be nearly
independent. Errors come from the differences between blocks, by the jackknife. If chains are too
short for such blocks, or differ by more than their blocks do, errors come from the differences
between chains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import SampleError
from minigibbs.kernels.observe import BATCHES, batch_size
from minigibbs.results import diagnostics
from minigibbs.results.marginals import LEVEL
from minigibbs.system.boundary import check_level, checked
from minigibbs.system.caller import warn
from minigibbs.system.quantiles import fisher, student

BLOCK_TIMES = 10.0  # least length of a block in autocorrelation times
_MOST_BLOCKS = 32  # blocks per row
_LEAST_BLOCKS = 4  # blocks in all rows together, even of slow chains
_LEAST_BATCHES = 32  # batches in all rows together, to estimate an autocorrelation time
_RESAMPLED = 1000  # samples of the bootstrap
_ENOUGH = 8  # blocks of 10 autocorrelation times per row that make blocks reliable
_MANY_ROWS = 16  # rows whose differences alone determine the error well
_FALSE_ALARM = 0.001  # false-alarm rate of the test for rows that differ by more than their blocks

COLUMNS = ("observable", "part", "mean", "error", "ess", "rhat", "autocorrelation_time")
Number = Any  # a float, or an array of them


@checked(SampleError, init=False)
@dataclass(frozen=True)
class Estimate:
    """A number or several numbers with standard errors, estimated from blocks of records.

    Attributes
    ----------
    value : float or ndarray
        The estimate.
    error : float or ndarray
        Its standard error.
    blocks : int
        Number of blocks of records.

    Examples
    --------
    >>> import minigibbs as mg
    >>> estimate = mg.observables.Estimate(1.25, 0.5, 9)
    >>> [round(end, 2) for end in estimate.interval()]
    [0.1, 2.4]
    """

    value: Number
    error: Number
    blocks: int

    def __str__(self) -> str:
        if np.ndim(self.value):
            return f"{self.value} +- {self.error}"
        return f"{self.value:.6g} +- {self.error:.2g}"

    def interval(self, level: float = LEVEL) -> tuple[Number, Number]:
        """Compute Student's confidence interval with `blocks - 1` degrees of freedom.

        Parameters
        ----------
        level : float, default 0.95
            Coverage of the interval.

        Returns
        -------
        tuple
            Lower and upper end.
        """
        check_level(level)
        reach = student(max(self.blocks - 1, 1), (1 + level) / 2) * self.error
        return self.value - reach, self.value + reach


@dataclass(frozen=True)
class Blocks:
    """Sums over blocks of consecutive records of all rows."""

    sums: NDArray[np.float64]  # [block, number]
    sizes: NDArray[np.int64]  # [block] records
    row: NDArray[np.int64] | None = None  # [block] row of each block; None: a single row
    enough: bool = True  # whether blocks are long and numerous enough to be treated as independent

    def jackknife(self, function: Callable[[NDArray[np.float64]], ArrayLike]) -> Estimate:
        """Estimate a function of the means, with the error from leaving out one block at a time."""
        total, count = self.sums.sum(axis=0), int(self.sizes.sum())
        blocks = len(self.sizes)
        value = _applied(function, _divided(total, count))
        if blocks < 2:
            return Estimate(_number(value), _number(np.full(value.shape, np.nan)), blocks)
        with np.errstate(invalid="ignore"):  # observables may be infinite
            left = (total - self.sums) / (count - self.sizes)[:, None]
            values = np.array([_applied(function, one) for one in left])
            spread = ((values - values.mean(axis=0)) ** 2).sum(axis=0)
        error = np.sqrt(spread * (blocks - 1) / blocks)
        return Estimate(_number(value), _number(error), blocks)

    def bootstrap(
        self, function: Callable[[NDArray[np.float64]], ArrayLike], seed: int = 0
    ) -> Estimate:
        """Estimate a function of the means, with the error from 1,000 samples of the blocks."""
        total, count = self.sums.sum(axis=0), int(self.sizes.sum())
        blocks = len(self.sizes)
        value = _applied(function, _divided(total, count))
        if blocks < 2:
            return Estimate(_number(value), _number(np.full(value.shape, np.nan)), blocks)
        drawn = np.random.default_rng(seed).integers(blocks, size=(_RESAMPLED, blocks))
        means = self.sums[drawn].sum(axis=1) / self.sizes[drawn].sum(axis=1)[:, None]
        values = np.array([_applied(function, one) for one in means])
        error = values.std(axis=0, ddof=1) * math.sqrt(blocks / (blocks - 1))
        return Estimate(_number(value), _number(error), blocks)

    @property
    def by_row(self) -> Blocks | None:
        """One block per row; None for a single row."""
        if self.row is None or len(np.unique(self.row)) < 2:
            return None
        edges = np.flatnonzero(np.diff(self.row, prepend=-1))
        return Blocks(np.add.reduceat(self.sums, edges, axis=0), np.add.reduceat(self.sizes, edges))

    def trusted(
        self, function: Callable[[NDArray[np.float64]], ArrayLike], method: str = "jackknife"
    ) -> Estimate:
        """Estimate a function of the means, with an error from blocks or from rows.

        Blocks are used if rows are few, each has enough long blocks, and rows do not differ by more
        than their blocks explain. Rows are independent even if chains mix slowly.
        """

        def estimated(blocks: Blocks) -> Estimate:
            if method == "bootstrap":
                return blocks.bootstrap(function)
            return blocks.jackknife(function)

        rows = self.by_row
        if rows is None:
            return estimated(self)
        between = estimated(rows)
        if not self.enough or len(rows.sizes) >= _MANY_ROWS:
            return between
        pooled = estimated(self)
        share = 1.0 - _FALSE_ALARM / max(np.size(pooled.error), 1)
        limit = fisher(len(rows.sizes) - 1, len(self.sizes) - 1, share)
        with np.errstate(invalid="ignore"):
            differ = np.square(between.error) > limit * np.square(pooled.error)
        return between if np.any(differ) else pooled

    def estimate(
        self, function: Callable[[NDArray[np.float64]], ArrayLike], method: str = "jackknife"
    ) -> Estimate:
        """Estimate a function of the means as `trusted` does; warn if the result has NaN."""
        if method not in ("jackknife", "bootstrap"):
            raise SampleError(f"method must be jackknife or bootstrap, got {method!r}")
        found = self.trusted(function, method)
        several = len(self.sizes) > 1  # one block has no error
        if np.isnan(found.value).any() or (several and np.isnan(found.error).any()):
            warn(
                "this estimate, or its error, is NaN: the function has no value at the means of "
                "all records or of some blocks of them; run longer"
            )
        return found


def _applied(
    function: Callable[[NDArray[np.float64]], ArrayLike], means: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return a user's function of the means as an array."""
    try:
        return np.asarray(function(means), dtype=np.float64)
    except Exception as error:
        called = getattr(function, "__name__", type(function).__name__)
        raise SampleError(
            f"function must return a number, or an array of numbers, for an array of "
            f"{len(means)} means; {called} failed: {type(error).__name__}: {error}"
        ) from error


def _number(value: Any) -> Number:
    """Return a scalar as a float; return other arrays unchanged."""
    return float(value) if np.ndim(value) == 0 else value


def _divided(total: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return the mean; NaN without records."""
    return total / count if count else np.full(total.shape, np.nan)


@checked(SampleError, init=False)
@dataclass(frozen=True, eq=False)
class Observed:
    """Observables of a run: every record, or running moments and sums of batches.

    A row is a chain, or on a GPU the mean over about `chains` chains.
    """

    names: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]  # labels of each observable's numbers; ("",) for a scalar
    series: NDArray[np.float64] | None  # [row, record, number]
    count: NDArray[np.int64]  # [row] records
    moments: NDArray[np.float64] | None = None  # [row, 2, number] means and squared deviations
    sums: NDArray[np.float64] | None = None  # [row, batch, number]
    chains: int = 1  # largest number of chains whose mean is a row
    by_rows: bool = False  # whether errors come from rows alone: parts of rows stopped the run

    def columns(self, name: str) -> slice:
        """The position of an observable's numbers."""
        if name not in self.names:
            known = ", ".join(self.names) or "none"
            raise SampleError(f"this run did not observe {name!r}; it observed: {known}")
        at = self.names.index(name)
        first = sum(map(len, self.labels[:at]))
        return slice(first, first + len(self.labels[at]))

    def part(self, columns: slice) -> Observed:
        """Return some of the numbers as an observable without a name."""

        def some(array: NDArray[Any] | None) -> NDArray[Any] | None:
            return None if array is None else array[..., columns]

        width = columns.stop - columns.start
        return Observed(
            ("",),
            (("",) * width,),
            some(self.series),
            self.count,
            some(self.moments),
            some(self.sums),
            self.chains,
            self.by_rows,
        )

    @property
    def records(self) -> int:
        """Number of records of all rows together."""
        return int(self.count.sum())

    @cached_property
    def means(self) -> NDArray[np.float64]:
        """[number] means over all rows."""
        if not self.records:
            return np.full(sum(map(len, self.labels)), np.nan)
        return self._weighted(self.row_means)

    @cached_property
    def row_means(self) -> NDArray[np.float64]:
        """[row, number] means of each row."""
        if self.series is not None:
            whole = self.series.sum(axis=1)
            return np.asarray(whole / max(self.series.shape[1], 1))
        assert self.moments is not None
        return np.asarray(self.moments[:, 0])

    @cached_property
    def variances(self) -> NDArray[np.float64]:
        """[number] variances of single records about the mean of all rows."""
        if self.records < 2:
            return np.full(len(self.means), np.nan)
        if self.series is not None:
            with np.errstate(invalid="ignore"):
                squares = ((self.series - self.means) ** 2).sum(axis=(0, 1))
        else:
            assert self.moments is not None
            away = self.count[:, None] * (self.row_means - self.means) ** 2
            squares = (self.moments[:, 1] + away).sum(axis=0)
        return np.asarray(squares / (self.records - 1))

    def _weighted(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        shares = self.count / self.count.sum()
        # Rows without records contain NaN or 0, and have weight 0.
        return np.asarray(np.where(shares[:, None] > 0, rows * shares[:, None], 0.0).sum(axis=0))

    @cached_property
    def ess(self) -> NDArray[np.float64]:
        """[number] bulk effective sample sizes; those of the mean if only batches are stored."""
        if self.series is not None:
            return np.atleast_1d(diagnostics.ess(self.series))
        return self._records_over_times()

    @cached_property
    def rhat(self) -> NDArray[np.float64]:
        """[number] split R-hat, rank-normalized if there is a series."""
        if self.series is not None:
            return np.atleast_1d(diagnostics.rhat(self.series))
        return self._split_rhat()

    @cached_property
    def times(self) -> NDArray[np.float64]:
        """[number] autocorrelation times in records; NaN for constant observables."""
        if self.series is not None:
            with np.errstate(invalid="ignore", divide="ignore"):
                return self.records / np.atleast_1d(diagnostics.ess_of_mean(self.series))
        return self._batch_times()

    def _records_over_times(self) -> NDArray[np.float64]:
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.records / self.times

    def _batch_times(self) -> NDArray[np.float64]:
        """Return autocorrelation times from the variances of batch means and of single records.

        Batches shorter than the autocorrelation time underestimate it. Therefore neighboring
        batches are joined while enough of them remain, and the longest time is returned.
        """
        if not self.records:
            return np.full(len(self.means), np.nan)
        sums, sizes = self._pieces()
        size = max((int(z.max(initial=0)) for z in sizes), default=0)
        rows_ = [s[z == size] / size for s, z in zip(sums, sizes, strict=True)]
        found = np.full(len(self.means), np.nan)
        while sum(map(len, rows_)) >= _LEAST_BATCHES:
            means = np.concatenate(rows_)
            spread = ((means - self.means) ** 2).sum(axis=0) / (len(means) - 1)
            with np.errstate(invalid="ignore", divide="ignore"):
                found = np.fmax(found, size * spread / self.variances)
            rows_ = [0.5 * (row[0 : len(row) - 1 : 2] + row[1::2]) for row in rows_]
            size *= 2
        return np.where(self.variances > 0, found, np.nan)

    def _split_rhat(self) -> NDArray[np.float64]:
        sums, sizes = self._pieces()
        halves = []
        for s, z in zip(sums, sizes, strict=True):
            if len(z) < 2:
                return np.full(s.shape[1], np.nan)
            middle = len(z) // 2
            halves += [s[:middle].sum(axis=0) / z[:middle].sum()]
            halves += [s[middle:].sum(axis=0) / z[middle:].sum()]
        assert self.moments is not None
        length = float(self.count.min()) / 2
        between = np.var(halves, axis=0, ddof=1)
        within = (self.moments[:, 1] / np.maximum(self.count - 1, 1)[:, None]).mean(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            rhat = np.sqrt((length - 1) / length + between / within)
        return np.where(within > 0, rhat, np.where(between > 0, np.inf, np.nan))

    def _pieces(self) -> tuple[list[NDArray[np.float64]], list[NDArray[np.int64]]]:
        """Return the finest available sums of consecutive records, and their sizes, by row."""
        if self.series is not None:
            ones = np.ones(self.series.shape[1], np.int64)
            return list(self.series), [ones] * len(self.series)
        assert self.sums is not None
        sums, sizes = [], []
        for row, count in zip(self.sums, self.count.tolist(), strict=True):
            size = batch_size(count)
            pieces = -(-count // size)
            own = np.full(pieces, size)
            own[-1:] = count - size * (pieces - 1) if pieces else 0
            sums.append(row[:pieces])
            sizes.append(own)
        return sums, sizes

    @cached_property
    def blocks(self) -> Blocks:
        """Blocks of at least 10 autocorrelation times, if there are enough records."""
        sums, sizes = self._pieces()
        slowest = self._slowest
        least = -(-_LEAST_BLOCKS // max(len(sizes), 1))
        found_sums, found_sizes, found_rows, enough = [], [], [], not self.by_rows
        for row, (s, z) in enumerate(zip(sums, sizes, strict=True)):
            wanted = int(z.sum() / (BLOCK_TIMES * slowest))
            enough &= wanted >= _ENOUGH
            blocks = min(max(wanted, least), _MOST_BLOCKS, len(z))
            edges = np.linspace(0, len(z), blocks + 1).astype(np.int64)[:-1]
            if blocks:
                found_sums.append(np.add.reduceat(s, edges, axis=0))
                found_sizes.append(np.add.reduceat(z, edges))
                found_rows.append(np.full(blocks, row))
        if not found_sums:
            return Blocks(np.zeros((0, len(self.means))), np.zeros(0, np.int64))
        return Blocks(
            np.concatenate(found_sums),
            np.concatenate(found_sizes),
            np.concatenate(found_rows),
            enough,
        )

    @property
    def _slowest(self) -> float:
        """Longest autocorrelation time in records: of all rows together, or the mean over rows.

        The time of all rows together is too short if rows agree by chance.
        """
        times = self.times
        if self.series is not None and len(self.series) > 1:
            with np.errstate(invalid="ignore", divide="ignore"):
                each = [len(one) / diagnostics.ess_of_mean(one[None]) for one in self.series]
            alone = np.array(each)
            known = np.isfinite(alone).any(axis=0)  # others are constant in every row
            times = np.append(times, np.nanmean(alone[:, known], axis=0))
        return max(float(times[np.isfinite(times)].max(initial=1.0)), 1.0)


@checked(SampleError, init=False)
class Observation:
    """One observable of a run: `run.observables["m"]`.

    Properties are floats if the observable is one number, else arrays with one axis.

    Attributes
    ----------
    name : str
        The name given in `observe=`.
    labels : tuple of str
        Labels of its numbers; `("",)` for a single number.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=8, beta=0.3)
    >>> run = mg.sample(graph, sweeps=1000, seed=1, progress=False,
    ...                 observe={"up": lambda x: x.mean()})
    >>> up = run.observables["up"]
    >>> abs(up.mean - 0.5) < 5 * up.error, up.series.shape
    (True, (4, 1000))
    """

    def __init__(self, name: str, labels: tuple[str, ...], data: Observed) -> None:
        self.name, self.labels, self.data = name, labels, data

    @property
    def scalar(self) -> bool:
        """Whether the observable is one number."""
        return self.labels == ("",)

    def _shaped(self, values: NDArray[np.float64]) -> Number:
        return float(values[0]) if self.scalar else values

    @property
    def mean(self) -> Number:
        """The mean over all records of all chains."""
        return self._shaped(self.data.means)

    @cached_property
    def estimate(self) -> Estimate:
        """The mean with its error."""
        return self.data.blocks.trusted(lambda mean: mean)

    @property
    def error(self) -> Number:
        """The standard error of the mean, from differences between blocks or chains."""
        return self._shaped(np.atleast_1d(self.estimate.error))

    @property
    def variance(self) -> Number:
        """The variance of single records; on a GPU, of means over the chains of a row."""
        return self._shaped(self.data.variances)

    @property
    def ess(self) -> Number:
        """The effective sample size; NaN for an observable that never varies."""
        return self._shaped(self.data.ess)

    @property
    def rhat(self) -> Number:
        """R-hat with chains split in half; NaN for an observable that never varies."""
        return self._shaped(self.data.rhat)

    @property
    def autocorrelation_time(self) -> Number:
        """The number of records equivalent to one independent draw."""
        return self._shaped(self.data.times)

    @property
    def series(self) -> NDArray[np.float64] | None:
        """[row, record] or [row, record, number] values; None if only moments were stored."""
        series = self.data.series
        return series[:, :, 0] if series is not None and self.scalar else series

    def interval(self, level: float = LEVEL) -> tuple[Number, Number]:
        """Compute Student's confidence interval for the mean.

        Parameters
        ----------
        level : float, default 0.95
            Coverage of the interval.

        Returns
        -------
        tuple
            Lower and upper end.
        """
        low, high = self.estimate.interval(level)
        return self._shaped(np.atleast_1d(low)), self._shaped(np.atleast_1d(high))

    def apply(
        self, function: Callable[[NDArray[np.float64]], ArrayLike], method: str = "jackknife"
    ) -> Estimate:
        """Compute a function of the means, with its error.

        Parameters
        ----------
        function : callable
            A function of an array with the mean of each number.
        method : str, default "jackknife"
            "jackknife" or "bootstrap", over blocks of records.

        Returns
        -------
        Estimate
            The value of the function and its error.

        Raises
        ------
        SampleError
            If the function fails or the method is unknown.
        """
        return self.data.blocks.estimate(function, method)

    def __repr__(self) -> str:
        if not self.scalar:
            return f"<{self.name}: {len(self.labels)} numbers>"
        return f"<{self.name}: {self.mean:.6g} +- {self.error:.2g}>"


class ExactObservation(Observation):
    """An observable whose mean is known exactly, without records."""

    def __init__(self, name: str, value: float) -> None:
        moments = np.array([[[value], [np.nan]]])
        data = Observed((name,), (("",),), None, np.ones(1, np.int64), moments)
        super().__init__(name, ("",), data)

    @cached_property
    def estimate(self) -> Estimate:
        """The mean, with an error of 0."""
        return Estimate(float(self.data.means[0]), 0.0, 1)

    @property
    def ess(self) -> Number:
        """NaN, because nothing was sampled."""
        return np.nan

    rhat = autocorrelation_time = variance = ess


class Observations(Mapping[str, Observation]):
    """The observables of a run by name: `run.observables`.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> mg.infer(pair, observe="magnetization").observables
    <observables: magnetization>
    """

    def __init__(self, data: Observed | None, exact: Mapping[str, float] | None = None) -> None:
        self._data = data
        self._known: dict[str, Observation] = {
            name: ExactObservation(name, value) for name, value in (exact or {}).items()
        }
        self._names = (*self._known, *(() if data is None else data.names))

    def __getitem__(self, name: str) -> Observation:
        if name not in self._names:
            known = ", ".join(self) or "nothing: sample with observe={...}"
            raise SampleError(f"this run did not observe {name!r}; it observed {known}")
        if name not in self._known:
            assert self._data is not None
            labels = self._data.labels[self._data.names.index(name)]
            part = self._data.part(self._data.columns(name))
            self._known[name] = Observation(name, labels, part)
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def to_pandas(self) -> Any:
        """Convert the observables to a pandas frame.

        Returns
        -------
        pandas.DataFrame
            One row per number: mean, error, ESS, R-hat, autocorrelation time.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        from minigibbs.system.optional import optional

        return optional("pandas", "pandas").DataFrame(rows(self), columns=list(COLUMNS))

    def __repr__(self) -> str:
        return f"<observables: {', '.join(self) or 'none'}>"


def rows(observations: Mapping[str, Observation]) -> list[dict[str, Any]]:
    """Return one row per number of each observable, for tables and frames."""
    return [
        {
            "observable": one.name,
            "part": label,
            "mean": mean,
            "error": error,
            "ess": ess,
            "rhat": rhat,
            "autocorrelation_time": time,
        }
        for one in observations.values()
        for label, mean, error, ess, rhat, time in zip(
            one.labels,
            one.data.means.tolist(),
            *(
                np.atleast_1d(numbers).tolist()
                for numbers in (one.error, one.ess, one.rhat, one.autocorrelation_time)
            ),
            strict=True,
        )
    ]


def of_series(name: str, series: NDArray[np.float64], labels: Sequence[str] = ("",)) -> Observation:
    """Create an observation from a series [row, record] or [row, record, number]."""
    whole = series[:, :, None] if series.ndim == 2 else series
    count = np.full(len(whole), whole.shape[1])
    return Observation(name, tuple(labels), Observed((name,), (tuple(labels),), whole, count))


def check_observed(data: Observed, rows_: int) -> None:
    """Raise `ValueError` if the parts are inconsistent."""
    width = sum(map(len, data.labels))
    if len(data.names) != len(data.labels) or len(set(data.names)) != len(data.names):
        raise ValueError("observables: names and labels do not fit")
    if data.count.shape != (rows_,) or data.count.dtype != np.int64 or (data.count < 0).any():
        raise ValueError("observed count: expected a number of records for each row")
    shapes: list[tuple[str, Any, tuple[int, ...]]] = []
    if data.series is not None:
        records = int(data.count[0])
        if (data.count != records).any() or data.moments is not None or data.sums is not None:
            raise ValueError("observed: expected a series, or moments and sums")
        shapes.append(("series", data.series, (rows_, records, width)))
    else:
        shapes.append(("moments", data.moments, (rows_, 2, width)))
        shapes.append(("sums", data.sums, (rows_, BATCHES, width)))
    for name, array, shape in shapes:
        if array is None or array.shape != shape or array.dtype != np.float64:
            raise ValueError(f"observed {name}: expected doubles in shape {shape}")


def encode_observed(data: Observed) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return a header and arrays for a file."""
    parts = {"series": data.series, "count": data.count, "moments": data.moments, "sums": data.sums}
    header = {"names": data.names, "labels": data.labels, "chains": data.chains}
    header["by_rows"] = data.by_rows
    return header, {f"observed.{key}": a for key, a in parts.items() if a is not None}


def decode_observed(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Observed:
    """Decode the output of `encode_observed`; invalid data raise `ValueError` or `KeyError`."""
    if type(header["chains"]) is not int or header["chains"] < 1:
        raise ValueError(f"observed: expected a number of chains, got {header['chains']!r}")
    return Observed(
        tuple(str(name) for name in header["names"]),
        tuple(tuple(str(label) for label in labels) for labels in header["labels"]),
        arrays.get("observed.series"),
        arrays["observed.count"],
        arrays.get("observed.moments"),
        arrays.get("observed.sums"),
        header["chains"],
        bool(header.get("by_rows", False)),  # missing in files before 0.3
    )
