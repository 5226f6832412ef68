"""Records of all temperatures of a tempered run: means, specific heat, Binder's cumulant, P(q).

The records of all temperatures together estimate every quantity at every inverse temperature from 0
to 1. The method is multi-histogram reweighting, MBAR (Shirts and Chodera 2008,
doi:10.1063/1.2978177). With the same number of records at K temperatures, f_k = -log Z(beta_k)
solves

    sum_n p_n(k) = records per temperature,  p_n(k) = exp(f_k - beta_k E_n) / D_n,
    D_n = sum_j exp(f_j - beta_j E_n),

over the records n of all temperatures. A record has weight exp(-beta E_n) / D_n at beta. Errors
come from a jackknife over blocks of records, or over chains (`results.observed`). When a block is
left out, f changes by one Newton step from the solution, and weights to first order in that step.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.checks import as_array
from minigibbs.results.observed import Blocks, Estimate, Observed
from minigibbs.system import memory
from minigibbs.system.boundary import checked

OVERLAP, ENERGY = "overlap", "energy"
_MOST_STEPS = 200  # steps of Newton's method
_SOLVED = 1e-10  # largest relative error of a count that counts as solved
_UNSOLVED = 1e-4  # relative error of a count from which there is no solution
_LEAST_SHARED = 1.0  # least number of records shared by neighboring temperatures
_LEAST_STEP = 1e-4  # smallest fraction of a Newton step
_MOST_SHARES = 1 << 26  # number of p_n(k); longer runs are reweighted from every m-th record
_ROUNDING = 1e-13  # relative, of the convex function that f minimizes
_BINS = 50  # bins of P(q)
_CURVE = 81  # inverse temperatures of a plotted curve
PARTS = ("value", "error")

Function = Callable[[float, NDArray[np.float64], float], Any]  # (beta, means [number], log Z)


@checked(SampleError, init=False)
@dataclass(frozen=True, eq=False)
class Temperatures:
    """The records of all temperatures of a tempered run: `run.temperatures`.

    An inverse temperature beta is relative to the model: the distribution at beta is proportional
    to exp(-beta energy), uniform at 0 and the model's at 1. Methods take any betas from 0 to 1, and
    by default those of the ladder. Their values and errors are arrays with one entry per beta.

    Attributes
    ----------
    betas : ndarray
        [temperature] inverse temperatures of the ladder, from 0 to 1.
    twins : int
        Ladders per chain: 2 if Houdayer moves connect pairs of ladders.

    Examples
    --------
    >>> import minigibbs as mg
    >>> glass = mg.models.spin_glass(side=4, dimensions=2, seed=1)
    >>> run = mg.sample(glass, mg.Tempering(), sweeps=500, seed=1, progress=False,
    ...                 record=mg.Record(temperatures=True))
    >>> exact = mg.infer(glass)
    >>> log_z = run.temperatures.log_z([0.5, 1.0])
    >>> bool(abs(log_z.value[1] - exact.log_z) < 5 * log_z.error[1])
    True
    >>> run.temperatures.specific_heat().value.shape == run.temperatures.betas.shape
    True
    """

    betas: NDArray[np.float64]
    twins: int
    names: tuple[str, ...]  # names of the observables
    labels: tuple[tuple[str, ...], ...]  # labels of each observable's numbers
    series: NDArray[np.float64]  # [chain, record, number], see `running.tempered`
    variables: int  # number of free variables
    log_states: float  # log Z at beta 0
    by_rows: bool = False  # whether errors come from chains alone: parts of them stopped the run

    def __repr__(self) -> str:
        chains, records = self.series.shape[:2]
        kept = ", ".join([ENERGY, *self.names, *([OVERLAP] if self.twins == 2 else [])])
        return (
            f"<Temperatures: {len(self.betas)} temperatures, {chains * self.twins} ladders, "
            f"{records:,} records of {kept}>"
        )

    @property
    def energy(self) -> NDArray[np.float64]:
        """The energies [temperature, ladder, record]; ladders of chain c start at c * twins."""
        return self._by_ladder(self._energies)

    def observed(self, name: str) -> NDArray[np.float64]:
        """Return one observable at all temperatures.

        Parameters
        ----------
        name : str
            The name as in `observe=`.

        Returns
        -------
        ndarray
            [temperature, ladder, record, number], without the last axis if the observable is one
            number.
        """
        columns = self._columns(name)
        found = np.moveaxis(
            np.stack([self._by_ladder(self._of_slots[..., k]) for k in columns]), 0, -1
        )
        return found[..., 0] if self.labels[self.names.index(name)] == ("",) else found

    @property
    def overlap(self) -> NDArray[np.float64]:
        """The overlaps of the two ladders of each chain [temperature, chain, record].

        The overlap is the mean of s_i s_i' over the free variables if all have two values, else the
        share of these variables with equal values.

        Raises
        ------
        SampleError
            If chains have one ladder.
        """
        return np.ascontiguousarray(np.moveaxis(self._overlaps, 2, 0))

    @property
    def _overlaps(self) -> NDArray[np.float64]:
        """The overlaps [chain, record, level]."""
        if self.twins != 2:
            raise SampleError(
                "overlaps need two ladders per chain; sample with mg.Tempering(houdayer=True)"
            )
        return self.series[:, :, -len(self.betas) :]

    @property
    def _energies(self) -> NDArray[np.float64]:
        """The energies [chain, record, slot]."""
        return self.series[:, :, : self.twins * len(self.betas)]

    @property
    def _of_slots(self) -> NDArray[np.float64]:
        """The observables [chain, record, slot, number]."""
        slots, width = self.twins * len(self.betas), sum(map(len, self.labels))
        own = self.series[:, :, slots : slots * (1 + width)]
        return own.reshape(*own.shape[:2], slots, width)

    def _by_ladder(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rearrange values [chain, record, slot] to [temperature, ladder, record]."""
        chains, records = values.shape[:2]
        whole = values.reshape(chains, records, self.twins, len(self.betas))
        return whole.transpose(3, 0, 2, 1).reshape(len(self.betas), chains * self.twins, records)

    def _columns(self, name: str) -> range:
        if name not in self.names:
            known = ", ".join((ENERGY, *self.names)) + (", overlap" if self.twins == 2 else "")
            raise SampleError(f"all temperatures have records of {known}; got {name!r}")
        at = self.names.index(name)
        first = sum(map(len, self.labels[:at]))
        return range(first, first + len(self.labels[at]))

    def _values(self, name: str) -> NDArray[np.float64]:
        """Return the records of a name: [chain, record, slot or level, number]."""
        if name == ENERGY:
            return self._energies[..., None]
        if name == OVERLAP and name not in self.names:
            return self._overlaps[..., None]
        return self._of_slots[..., list(self._columns(name))]

    def log_z(self, betas: ArrayLike | None = None) -> Estimate:
        """Estimate the logarithm of the partition function.

        Parameters
        ----------
        betas : array-like, optional
            Inverse temperatures from 0 to 1; by default those of the ladder.

        Returns
        -------
        Estimate
            Value and error [beta].
        """
        none = np.empty((*self._energies.shape, 0))
        return self._estimate(none, self._read(betas), lambda beta, means, log_z: log_z)

    def mean(self, name: str = ENERGY, betas: ArrayLike | None = None) -> Estimate:
        """Estimate the mean of the energy, of an observable or of the overlap.

        Parameters
        ----------
        name : str, default "energy"
            "energy", "overlap", or the name of an observable.
        betas : array-like, optional
            Inverse temperatures from 0 to 1; by default those of the ladder.

        Returns
        -------
        Estimate
            Value and error [beta], or [beta, number] if the observable is several numbers.
        """
        scalar = name not in self.names or self.labels[self.names.index(name)] == ("",)

        def mean(beta: float, means: NDArray[np.float64], log_z: float) -> Any:
            return means[0] if scalar else means

        return self._estimate(self._values(name), self._read(betas), mean, self._of_pairs(name))

    def specific_heat(self, betas: ArrayLike | None = None) -> Estimate:
        """Estimate the specific heat per variable in units of k: beta^2 Var(energy) / n.

        Parameters
        ----------
        betas : array-like, optional
            Inverse temperatures from 0 to 1; by default those of the ladder.

        Returns
        -------
        Estimate
            Value and error [beta]. n is the number of free variables.
        """
        energy = self._energies
        away = energy - energy.mean()

        def heat(beta: float, means: NDArray[np.float64], log_z: float) -> float:
            return float(beta**2 * (means[1] - means[0] ** 2) / self.variables)

        return self._estimate(np.stack([away, away**2], axis=-1), self._read(betas), heat)

    def binder(self, name: str = OVERLAP, betas: ArrayLike | None = None) -> Estimate:
        """Estimate Binder's cumulant 1 - <q^4> / (3 <q^2>^2).

        The Binder ratio (3 - <q^4> / <q^2>^2) / 2 of the spin glass literature is 3/2 of it.

        Parameters
        ----------
        name : str, default "overlap"
            The overlap of two ladders, or an observable that is one number.
        betas : array-like, optional
            Inverse temperatures from 0 to 1; by default those of the ladder.

        Returns
        -------
        Estimate
            Value and error [beta].
        """
        values = self._values(name)
        if values.shape[-1] != 1:
            raise SampleError(f"binder: {name!r} gives {values.shape[-1]} numbers; it needs one")
        powers = np.concatenate([values**2, values**4], axis=-1)

        def cumulant(beta: float, means: NDArray[np.float64], log_z: float) -> float:
            return float(1.0 - means[1] / (3.0 * means[0] ** 2)) if means[0] else math.nan

        return self._estimate(powers, self._read(betas), cumulant, self._of_pairs(name))

    def overlap_distribution(
        self, beta: float = 1.0, bins: int | None = None
    ) -> tuple[NDArray[np.float64], Estimate]:
        """Estimate P(q), the distribution of the overlap of two independent states.

        Parameters
        ----------
        beta : float, default 1.0
            An inverse temperature from 0 to 1.
        bins : int, optional
            By default, at most 50 bins with the same number of possible overlaps. The first and the
            last may have fewer.

        Returns
        -------
        edges : ndarray
            Ends of the bins.
        density : Estimate
            Value and error [bin].
        """
        at, overlap = self._read([beta]), self._overlaps
        low = -1.0 if overlap.min(initial=0.0) < 0.0 else 0.0
        if bins is not None and bins < 1:
            raise SampleError(f"overlap_distribution: bins must be at least 1, got {bins!r}")
        between = _between_overlaps(self.variables, low)
        count = len(between) - 1 if bins is None else bins
        what = f"overlap_distribution: {count:,} bins of {overlap.size:,} overlaps"
        memory.require(8 * count * (overlap.size + 4), what, "use fewer bins")
        edges = between if bins is None else np.linspace(low, 1.0, count + 1)
        place = np.clip(np.searchsorted(edges, overlap, side="right") - 1, 0, count - 1)
        inside = (place[..., None] == np.arange(count)).astype(np.float64)
        width = np.diff(edges)
        found = self._estimate(inside, at, lambda beta, means, log_z: means / width, pairs=True)
        return edges, Estimate(found.value[0], found.error[0], found.blocks)

    def plot(self, name: str = ENERGY, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw a quantity against beta: points at the ladder's temperatures, a curve between them.

        Parameters
        ----------
        name : str, default "energy"
            "energy", "specific_heat", "binder", "log_z", "overlap", or an observable.
        path : path, optional
            File to write the figure to.

        Returns
        -------
        Figure
            A Matplotlib figure.
        """
        from minigibbs.results import plots

        quantities: dict[str, Callable[[ArrayLike | None], Estimate]] = {
            "specific_heat": self.specific_heat,
            "binder": lambda betas: self.binder(betas=betas),
            "log_z": self.log_z,
        }
        estimate = quantities.get(name, lambda betas: self.mean(name, betas))
        curve = np.linspace(self.betas[0], self.betas[-1], _CURVE)
        lines = (self.betas, estimate(None)), (curve, estimate(curve))
        return plots.against_beta(*lines, name.replace("_", " "), path)

    def plot_overlaps(
        self, betas: Sequence[float] = (1.0,), path: str | os.PathLike[str] | None = None
    ) -> Any:
        """Draw P(q), the distribution of the overlap, at some inverse temperatures.

        Parameters
        ----------
        betas : sequence of float, default (1.0,)
            Inverse temperatures from 0 to 1.
        path : path, optional
            File to write the figure to.

        Returns
        -------
        Figure
            A Matplotlib figure.
        """
        from minigibbs.results import plots

        return plots.overlaps([(b, *self.overlap_distribution(b)) for b in betas], path)

    def _of_pairs(self, name: str) -> bool:
        """Return whether a quantity depends on pairs of ladders."""
        return name == OVERLAP and name not in self.names

    @staticmethod
    def _checked(betas: ArrayLike) -> NDArray[np.float64]:
        rule = "betas must be numbers from 0 to 1, the range of the ladder"
        at = np.atleast_1d(as_array(betas, "iuf", rule, SampleError)).astype(np.float64)
        if at.ndim != 1 or not at.size or not ((at >= 0.0) & (at <= 1.0)).all():
            raise SampleError(f"{rule}; got {betas!r}")
        return at

    def _read(self, betas: ArrayLike | None) -> NDArray[np.float64]:
        return self.betas if betas is None else self._checked(betas)

    @cached_property
    def _cuts(self) -> Blocks:
        """Nearly independent blocks of records: their sizes and rows."""
        chains, records = self.series.shape[:2]
        if not records:
            raise SampleError("this run has no records; use more sweeps, or a smaller thin")
        shape = (chains, records, self.twins, len(self.betas))
        parts = [self._energies.reshape(shape).mean(axis=2)]
        if self.twins == 2:
            parts.append(np.square(self._overlaps))
        if self.names:
            each = self._of_slots.reshape(*shape, -1).mean(axis=2)
            parts.append(each.reshape(chains, records, -1))
        whole = np.concatenate(parts, axis=-1)
        labels, count = ("",) * whole.shape[2], np.full(chains, records)
        return Observed(("",), (labels,), whole, count, by_rows=self.by_rows).blocks

    @cached_property
    def _alone(self) -> _Mixture:
        """Records of single ladders."""
        return _Mixture(self._energies, self.betas, self.log_states, self._cuts)

    @cached_property
    def _paired(self) -> _Mixture:
        """Records of pairs of ladders, whose energies add up."""
        levels = len(self.betas)
        both = self._energies[..., :levels] + self._energies[..., levels:]
        return _Mixture(both, self.betas, 2.0 * self.log_states, self._cuts)

    def _estimate(
        self,
        values: NDArray[np.float64],
        betas: NDArray[np.float64],
        function: Function,
        pairs: bool = False,
    ) -> Estimate:
        """Estimate a function of reweighted means of `values` [chain, record, slot, number]."""
        mixture = self._paired if pairs else self._alone
        found = [mixture.estimate(values, beta, function) for beta in betas.tolist()]
        value, error = (np.array([getattr(one, part) for one in found]) for part in PARTS)
        return Estimate(value, error, min(one.blocks for one in found))


class _Mixture:
    """The records of all temperatures as draws from one mixture, and estimates from them."""

    def __init__(
        self,
        energy: NDArray[np.float64],
        betas: NDArray[np.float64],
        log_states: float,
        cuts: Blocks,
    ) -> None:
        """Solve for f, from energies [chain, record, slot] and blocks of records."""
        _, records, slots = energy.shape
        self.step = -(-energy.size * len(betas) // _MOST_SHARES)  # interval between used records
        self.each = slots // len(betas)  # samples per record and temperature
        self.cuts, ends, row = [], np.cumsum(cuts.sizes), cuts.row
        for number, end in enumerate(ends.tolist()):
            chain = 0 if row is None else int(row[number])
            first, last = end - int(cuts.sizes[number]) - chain * records, end - chain * records
            first += -first % self.step
            self.cuts.append((chain, slice(first, last, self.step)))
        sizes = np.array([len(range(records)[some]) for _, some in self.cuts])
        self.blocks = Blocks(np.empty((len(sizes), 0)), sizes, row, cuts.enough)
        self.energy = energy
        used = np.concatenate([energy[chain, some].ravel() for chain, some in self.cuts])
        self.f = _solve(used.reshape(-1, self.each, len(betas)), betas, log_states)
        self.shares, self.log_density = [], []  # by block: p_n(k) and log D_n
        levels = len(betas)
        counts, curvature = np.empty((len(self.cuts), levels)), np.zeros((levels, levels))
        for number, (chain, some) in enumerate(self.cuts):
            shares, log_density = _shares(energy[chain, some].ravel(), betas, self.f)
            self.shares.append(shares)
            self.log_density.append(log_density)
            counts[number] = shares.sum(axis=0)
            curvature += np.diag(counts[number]) - shares.T @ shares
        self.counts = counts
        self.inverse = np.zeros((levels, levels))  # f at beta 0 is fixed
        self.inverse[1:, 1:] = np.linalg.pinv(curvature[1:, 1:] / sizes.sum(), hermitian=True)

    def estimate(self, values: NDArray[np.float64], beta: float, function: Function) -> Estimate:
        """Estimate a function of means [number] and log Z at one beta."""
        levels, numbers = len(self.f), values.shape[-1] + 1
        logs = [
            -beta * self.energy[chain, some].ravel() - log_density
            for (chain, some), log_density in zip(self.cuts, self.log_density, strict=True)
        ]
        shift = max(float(own.max()) for own in logs)
        sums = np.empty((len(self.cuts), numbers * (1 + levels)))
        for number, (chain, some) in enumerate(self.cuts):
            weight = np.exp(logs[number] - shift)
            whole = np.ones((len(weight), numbers))
            whole[:, 1:] = values[chain, some].reshape(len(weight), -1)
            whole *= weight[:, None]
            sums[number, :numbers] = whole.sum(axis=0)
            # For such small matrix products, the threads of a BLAS would wait for each other.
            sums[number, numbers:] = np.einsum("na,nk->ak", whole, self.shares[number]).ravel()

        def reweighted(mean: NDArray[np.float64]) -> Any:
            step = self.inverse @ (self.each - mean[:levels])
            own = mean[levels + numbers :].reshape(numbers, levels)
            found = mean[levels : levels + numbers] - own @ step
            with np.errstate(invalid="ignore", divide="ignore"):
                log_z = float(np.log(found[0] / self.each)) + shift
                return function(beta, found[1:] / found[0], log_z)

        every = np.concatenate([self.counts, sums], axis=1)
        blocks = Blocks(every, self.blocks.sizes, self.blocks.row, self.blocks.enough)
        return blocks.trusted(reweighted)


def _shares(
    energy: NDArray[np.float64], betas: NDArray[np.float64], f: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the shares p_n(k) [record, level] and log D_n [record]."""
    logs = f - betas * energy[:, None]
    top = logs.max(axis=1)
    shares = np.exp(logs - top[:, None])
    total = shares.sum(axis=1)
    shares /= total[:, None]
    return shares, top + np.log(total)


def _solve(
    energy: NDArray[np.float64], betas: NDArray[np.float64], log_states: float
) -> NDArray[np.float64]:
    """Return f_k = -log Z(beta_k) from energies [record, ladder, level], by damped Newton steps.

    The start is the integral of the mean energy over beta, by the trapezoidal rule. Without it,
    distant levels would share no records, and a step would have no information about them.

    Equal energies are merged, with their counts. A step is halved until the convex function that f
    minimizes does not increase.
    """
    means = energy.mean(axis=(0, 1))
    f = np.append(0.0, np.cumsum(np.diff(betas) * 0.5 * (means[1:] + means[:-1])))
    energy, count = np.unique(energy, return_counts=True)
    records = count.sum() / len(betas)

    def gradient(f: NDArray[np.float64]) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        shares, log_density = _shares(energy, betas, f)
        value = float(count @ log_density - records * f.sum())
        return value, count @ shares - records, shares

    value, away, shares = gradient(f)
    for _ in range(_MOST_STEPS):
        if np.abs(away).max() <= _SOLVED * records:
            break
        weighted = shares * count[:, None]
        curvature = np.diag(weighted.sum(axis=0)) - shares.T @ weighted
        step = np.zeros(len(f))
        step[1:] = np.linalg.lstsq(curvature[1:, 1:], away[1:], rcond=None)[0]
        length = 1.0
        while True:
            found = gradient(f - length * step)
            if found[0] <= value + _ROUNDING * abs(value) or length < _LEAST_STEP:
                break
            length *= 0.5
        f = f - length * step
        value, away, shares = found
    shared = (shares[:, 1:] * shares[:, :-1] * count[:, None]).sum(axis=0)  # by pairs of neighbors
    if np.abs(away).max() > _UNSOLVED * records or shared.min() < _LEAST_SHARED:
        raise SampleError(
            "the energies of neighboring temperatures do not overlap, so that they cannot be "
            "reweighted; use more levels: mg.Tempering(levels=...)"
        )
    return np.asarray(f - f[0] - log_states)


def check_temperatures(data: Temperatures, chains: int, records: int) -> None:
    """Raise `ValueError` if parts are inconsistent, or do not fit this number of records."""
    levels, width = len(data.betas), sum(map(len, data.labels))
    betas = data.betas
    if betas.dtype != np.float64 or betas.ndim != 1 or levels < 2 or not (np.diff(betas) > 0).all():
        raise ValueError("temperatures: expected betas that rise")
    if betas[0] != 0.0 or betas[-1] != 1.0 or data.twins not in (1, 2):
        raise ValueError("temperatures: expected betas from 0 to 1, and one or two ladders")
    if len(data.names) != len(data.labels) or len(set(data.names)) != len(data.names):
        raise ValueError("temperatures: names and labels do not fit")
    numbers = data.twins * levels * (1 + width) + (data.twins - 1) * levels
    if data.series.shape != (chains, records, numbers) or data.series.dtype != np.float64:
        raise ValueError(f"temperatures: expected doubles in shape {(chains, records, numbers)}")
    if data.variables < 1 or not math.isfinite(data.log_states):
        raise ValueError("temperatures: expected a number of variables and of states")


_PLAIN: dict[str, type] = {"twins": int, "variables": int, "log_states": float, "by_rows": bool}


def encode_temperatures(data: Temperatures) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return a header and arrays for a file."""
    header = {name: getattr(data, name) for name in (*_PLAIN, "names", "labels")}
    arrays = {"betas": data.betas, "series": data.series}
    return header, {f"temperatures.{name}": array for name, array in arrays.items()}


def decode_temperatures(
    header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> Temperatures:
    """Decode the output of `encode_temperatures`; invalid data raise `ValueError` or `KeyError`."""
    for name, kind in _PLAIN.items():
        if type(header[name]) is not kind:
            raise ValueError(f"temperatures: {name} must be {kind.__name__}, got {header[name]!r}")
    return Temperatures(
        betas=arrays["temperatures.betas"],
        names=tuple(str(name) for name in header["names"]),
        labels=tuple(tuple(str(label) for label in labels) for labels in header["labels"]),
        series=arrays["temperatures.series"],
        **{name: header[name] for name in _PLAIN},
    )


def _between_overlaps(variables: int, low: float) -> NDArray[np.float64]:
    """Edges of bins that hold the same number of possible overlaps, but for the outer two bins.

    Bins of another width hold one overlap more or less, and P(q) oscillates from bin to bin.
    """
    possible = variables + 1  # the overlaps, evenly spaced from `low` to 1
    each = -(-possible // _BINS)
    count = -(-possible // each)
    ends = np.arange(count + 1) * each - (count * each - possible) // 2
    spacing = (1.0 - low) / variables
    return np.asarray(low + (np.clip(ends, 0, possible) - 0.5) * spacing, dtype=np.float64)
