"""Quantities derived from observables, with errors by jackknife or bootstrap."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.checks import as_array
from minigibbs.observables.composed import MOMENTS
from minigibbs.results.observed import Blocks, Estimate, Observation, Observed, of_series
from minigibbs.results.run import Run
from minigibbs.system.boundary import checked

_LEAST_SHARE = 0.01  # smallest effective share of reweighted records

__all__ = [
    "Estimate",
    "binder",
    "correlation_length",
    "overlap",
    "reweight",
    "specific_heat",
    "susceptibility",
]


@checked(SampleError)
def binder(run: Run, name: str = "m", method: str = "jackknife") -> Estimate:
    """Compute Binder's cumulant 1 - <m^4> / (3 <m^2>^2).

    Parameters
    ----------
    run : Run
        A run that measured the observable.
    name : str, default "m"
        An observable that is a number, or `Moments`.
    method : str, default "jackknife"
        "jackknife" or "bootstrap", over blocks of records.

    Returns
    -------
    Estimate
        The cumulant and its error.

    Raises
    ------
    SampleError
        If the run did not measure the observable.

    Examples
    --------
    >>> import minigibbs as mg
    >>> cold = mg.models.ising_lattice(side=6, beta=0.9)
    >>> run = mg.sample(cold, sweeps=500, seed=1, observe={"m": "magnetization"}, progress=False)
    >>> mg.observables.binder(run).value > 0.6
    True
    """
    blocks = _powers(run, name, (2, 4))
    return blocks.estimate(lambda mean: 1.0 - mean[1] / (3.0 * mean[0] ** 2), method)


@checked(SampleError)
def susceptibility(
    run: Run, name: str = "m", connected: bool = True, method: str = "jackknife"
) -> Estimate:
    """Compute the susceptibility n (<m^2> - <|m|>^2) of a mean over n variables.

    In physics it is multiplied by beta.

    Parameters
    ----------
    run : Run
        A run that measured the observable.
    name : str, default "m"
        An observable that is a number, or `Moments`.
    connected : bool, default True
        Whether to subtract the square of the mean. False is usual above the critical temperature.
    method : str, default "jackknife"
        "jackknife" or "bootstrap", over blocks of records.

    Returns
    -------
    Estimate
        The susceptibility and its error.

    Raises
    ------
    SampleError
        If the run did not measure the observable.

    Examples
    --------
    >>> import minigibbs as mg
    >>> free = mg.FactorGraph([2] * 50, [mg.Unary(range(50), [0.0, 0.0])])
    >>> run = mg.sample(free, sweeps=2000, seed=1, observe={"m": "magnetization"}, progress=False)
    >>> chi = mg.observables.susceptibility(run, connected=False)
    >>> abs(chi.value - 1.0) < 5 * chi.error
    True
    """
    blocks, n = _powers(run, name, (2, "abs")), len(run.domains)
    square = 1.0 if connected else 0.0
    return blocks.estimate(lambda mean: n * (mean[0] - square * mean[1] ** 2), method)


@checked(SampleError)
def specific_heat(run: Run, name: str | None = None, method: str = "jackknife") -> Estimate:
    """Compute the specific heat per variable in units of k: the variance of the energy over n.

    The energy is minus the log-potential and includes beta.

    Parameters
    ----------
    run : Run
        A run with energies.
    name : str, optional
        An observable that is the energy, a number or `Moments`. By default `run.energy`.
    method : str, default "jackknife"
        "jackknife" or "bootstrap", over blocks of records.

    Returns
    -------
    Estimate
        The specific heat and its error.

    Raises
    ------
    SampleError
        If the run has no energies.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> run = mg.sample(pair, sweeps=4000, seed=1, progress=False)
    >>> heat = mg.observables.specific_heat(run)
    >>> abs(heat.value - 0.5 * 0.25 / 1.1276**2) < 5 * heat.error
    True
    """
    n = len(run.domains)
    if name is not None and run.observables[name].labels == MOMENTS:
        blocks = _powers(run, name, (1, 2))
    else:
        energy = _energy(run, name)
        away = energy - energy.mean()
        blocks = _blocks(run, np.stack([away, away**2], axis=-1))
    return blocks.estimate(lambda mean: (mean[1] - mean[0] ** 2) / n, method)


@checked(SampleError)
def correlation_length(
    run: Run, name: str, side: int | None = None, method: str = "jackknife"
) -> Estimate:
    """Compute the second-moment correlation length of a periodic lattice.

    It is sqrt(S(0) / S(k) - 1) / (2 sin(k / 2)) with k = 2 pi / side. It is NaN if S(0) is below
    S(k).

    Parameters
    ----------
    run : Run
        A run that measured the structure factor.
    name : str
        The name of a `StructureFactor`.
    side : int, optional
        Side of the lattice. By default read from the observable.
    method : str, default "jackknife"
        "jackknife" or "bootstrap", over blocks of records.

    Returns
    -------
    Estimate
        The length and its error, in sites.

    Raises
    ------
    SampleError
        If the run did not measure the observable.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=8, beta=0.35)
    >>> waves = mg.observables.StructureFactor((8, 8))
    >>> run = mg.sample(graph, sweeps=2000, seed=1, observe={"s": waves}, progress=False)
    >>> 1.0 < mg.observables.correlation_length(run, "s", side=8).value < 4.0
    True
    """
    one = run.observables[name]
    if one.labels[:2] != ("m=0", "m=1"):
        raise SampleError(
            f"correlation_length needs a StructureFactor with m = 0 and 1; {name!r} is not one"
        )
    length = side if side is not None else _square_side(len(run.domains))
    factor = 2.0 * math.sin(math.pi / length)

    def xi(mean: NDArray[np.float64]) -> float:
        ratio = float(mean[0] / mean[1]) - 1.0
        return math.sqrt(ratio) / factor if ratio >= 0.0 else math.nan

    return one.apply(xi, method)


def _square_side(n: int) -> int:
    side = math.isqrt(n)
    if side * side != n:
        raise SampleError(
            f"correlation_length: give the lattice's side; {n} variables are not a square"
        )
    return side


@checked(SampleError)
def reweight(
    run: Run,
    name: str,
    scale: float | Sequence[float],
    energy: str | None = None,
    function: Callable[[NDArray[np.float64]], ArrayLike] | None = None,
    method: str = "jackknife",
) -> Estimate:
    """Estimate the mean of an observable at a different temperature.

    All energies are multiplied by `scale`: 1.02 is a beta that is 2% larger. Records are weighted
    by exp((1 - scale) energy). Both series must be recorded, and the scale must be near 1.

    Parameters
    ----------
    run : Run
        A run that measured the observable.
    name : str
        The observable.
    scale : float or sequence of float
        One scale, or several; value and error are then arrays.
    energy : str, optional
        The name of an observable that is the energy. By default `run.energy`.
    function : callable, optional
        A function of the means, an array with one axis. By default the means themselves.
    method : str, default "jackknife"
        "jackknife" or "bootstrap", over blocks of records.

    Returns
    -------
    Estimate
        The mean and its error.

    Raises
    ------
    SampleError
        If a series is missing, or the effective number of records is below 1% of them.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=6, beta=0.3)
    >>> run = mg.sample(graph, sweeps=4000, seed=1, progress=False,
    ...                 observe={"m2": mg.observables.Magnetization(power=2), "e": "energy"})
    >>> later = mg.observables.reweight(run, "m2", 1.1, energy="e")
    >>> later.value > run.observables["m2"].mean
    True
    """
    one = run.observables[name]
    values, logs = _single(one), -_energy(run, energy)  # log-potentials
    if logs.shape != values.shape[:2]:
        raise SampleError(
            f"reweight needs the energy at each of {values.shape[1]:,} records, and has "
            f'{logs.shape[1]:,}: sample with observe={{..., "e": "energy"}} and energy="e"'
        )
    rule = "reweight: scale must be a finite number, or several"
    scales = np.atleast_1d(as_array(scale, "iuf", rule, SampleError)).astype(np.float64)
    if scales.ndim != 1 or not scales.size or not np.isfinite(scales).all():
        raise SampleError(f"{rule}; got {scale!r}")
    parts, shift = [], logs.max()
    for number in scales.tolist():
        low = shift if number >= 1.0 else logs.min()
        weight = np.exp((number - 1.0) * (logs - low))
        worth = weight.sum() ** 2 / (weight**2).sum()
        if not worth >= _LEAST_SHARE * weight.size:
            raise SampleError(
                f"reweight: at scale {number:g} the records are worth {worth:,.1f} of "
                f"{weight.size:,}; sample nearer to it"
            )
        parts.append(np.concatenate([weight[..., None], weight[..., None] * values], axis=-1))
    width = values.shape[2] + 1
    single = np.ndim(scale) == 0

    def answer(mean: NDArray[np.float64]) -> Any:
        ratios = mean.reshape(len(scales), width)
        means = ratios[:, 1:] / ratios[:, :1]
        found = means if function is None else np.array([function(row) for row in means])
        found = found[:, 0] if function is None and one.scalar else found
        return found[0] if single else found

    return _blocks(run, np.concatenate(parts, axis=-1)).estimate(answer, method)


@checked(SampleError)
def overlap(run: Run) -> Observation:
    """Compute the overlap of pairs of chains: first and second, third and fourth, ...

    Chains are compared at the same record. The overlap is the mean of s_i s_i' over variables with
    two values, else the share of variables with equal values.

    Parameters
    ----------
    run : Run
        A run with recorded draws. The last of an odd number of chains is not used.

    Returns
    -------
    Observation
        The mean, its error and the series, one row per pair of chains.

    Raises
    ------
    SampleError
        If the run has no draws or a single chain.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=6, beta=0.2)
    >>> run = mg.sample(graph, sweeps=200, seed=1, record="draws", progress=False)
    >>> mg.observables.overlap(run).series.shape
    (2, 200)
    """
    draws = run.draws
    if len(draws) < 2:
        raise SampleError("overlap needs two chains or more; this run has one")
    pairs = len(draws) // 2
    same = np.stack([(draws[2 * k] == draws[2 * k + 1]).mean(axis=1) for k in range(pairs)])
    spins = bool((run.domains.sizes[run.drawn] == 2).all())
    return of_series("overlap", 2.0 * same - 1.0 if spins else same)


def _powers(run: Run, name: str, powers: tuple[int | str, ...]) -> Blocks:
    """Return blocks of powers of an observable, from `Moments` or from the series of a number."""
    one = run.observables[name]
    if one.labels == MOMENTS:
        columns = [MOMENTS.index(str(power)) for power in powers]
        whole = one.data.blocks
        return replace(whole, sums=whole.sums[:, columns])
    series = _single(one)
    if not one.scalar:
        raise SampleError(f"{name!r} gives {len(one.labels)} numbers; this needs one, or Moments")
    parts = [np.abs(series) if isinstance(power, str) else series**power for power in powers]
    return _blocks(run, np.concatenate(parts, axis=-1))


def _single(one: Observation) -> NDArray[np.float64]:
    """Return the series of single chains: [row, record, number]."""
    way_out = "sample with mg.observables.Moments(...) of it"
    if one.data.series is None:
        raise SampleError(f"{one.name!r}: this run kept moments and no series; {way_out}")
    if one.data.chains > 1:
        raise SampleError(
            f"{one.name!r}: rows of this run are means over up to {one.data.chains} chains, whose "
            f"powers are not those of a chain; {way_out}, or run as many rows as chains"
        )
    return one.data.series


def _energy(run: Run, name: str | None) -> NDArray[np.float64]:
    """Return the energies: [row, record]."""
    if name is None:
        return run._need(run.energy, "energy")
    one = run.observables[name]
    if not one.scalar:
        raise SampleError(f"{name!r} is no energy: it gives {len(one.labels)} numbers")
    return _single(one)[:, :, 0]


def _blocks(run: Run, series: NDArray[np.float64]) -> Blocks:
    """Return the blocks of a series [row, record, number] of a run."""
    labels, count = ("",) * series.shape[2], np.full(len(series), series.shape[1])
    by_rows = run.info.ended == "converged"
    return Observed(("",), (labels,), series, count, by_rows=by_rows).blocks
