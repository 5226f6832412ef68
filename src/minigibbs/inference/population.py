"""Population annealing: replicas that are resampled and swept while a model is cooled.

Hukushima and Iba 2003, doi:10.1063/1.1632130; Machta 2010, doi:10.1103/PhysRevE.82.026704. At
inverse temperature beta a population of R replicas represents exp(-beta energy). A step to beta'
gives replica i the weight exp(-(beta' - beta) E_i). The mean weight estimates Z(beta') / Z(beta).
The replicas are resampled in proportion to their weights and swept at beta'.

The overlap of the populations before and after a step determines its length (Barash et al. 2017,
doi:10.1016/j.cpc.2017.06.020). It is the mean of min(1, w_i / mean w). Resampling is systematic, so
that families, the descendants of one initial replica, remain contiguous. Errors treat families as
independent: the relative variance of Z is the sum of squared shares of families (Lee and Whiteley
2018, doi:10.1093/biomet/asy028). With several populations the spread between them is a second
error, and the larger one is used.

The replicas are chains of a chromatic scan (`samplers.chromatic`), whose layout is scaled by beta.
A population has no stationary distribution: its answers are consistent in its size, not in the
number of sweeps. It is therefore an option of `mg.infer` and not a sampler of `mg.sample`.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.driver import drive
from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph
from minigibbs.results.marginals import Known
from minigibbs.results.population import Population
from minigibbs.running.request import entropy_of
from minigibbs.samplers import Gibbs
from minigibbs.samplers.chromatic.tile import LANES
from minigibbs.samplers.registry import make_tile, scaled_layout
from minigibbs.system import memory
from minigibbs.system.boundary import checked
from minigibbs.system.watch import Watch

POPULATIONS = 4  # default number of populations
_FIRST_SIZE, _GROWTH = 1024, 4  # first number of replicas if none is given, and its growth factor
_TOGETHER = 8  # replicas whose random numbers are drawn together
_LONGER = 1.5  # times as long as by their number, that more replicas are predicted to take
_HALVINGS = 40  # of the interval that contains the next temperature
_COLUMNS = 1 << 23  # numbers of sums over families at a time
ANNEALED = "annealed"  # how a task ended


@checked(SampleError)
@dataclass(frozen=True)
class PopulationAnnealing:
    """Population annealing, a method of `mg.infer` for rough energy landscapes.

    Independent populations are cooled from infinite temperature to the model. They give log Z and
    marginals with errors. `answer.population` states how many families survived. Models must have
    variables of few values, joined by stored pairs and tables of two variables, without hard
    constraints. It is an alternative to `mg.Tempering` if thousands of replicas fit into memory.

    Parameters
    ----------
    population : int, optional
        Replicas per population, rounded up to a multiple of 8. By default 1,024, then four times
        as many while there is time and the errors are larger than requested. The answer is that
        of the largest populations.
    sweeps : int, default 10
        Sweeps of every replica per temperature.
    overlap : float, default 0.85
        Required overlap of the energies of neighboring temperatures, between 0 and 1. A larger
        overlap needs more temperatures.

    Raises
    ------
    SampleError
        If a number is out of its range.

    Examples
    --------
    >>> import minigibbs as mg
    >>> glass = mg.models.spin_glass(side=4, dimensions=2, seed=1)
    >>> annealing = mg.PopulationAnnealing(population=1000)
    >>> answer = mg.infer(glass, exact=False, sampler=annealing, seed=1, progress=False)
    >>> bool(abs(answer.log_z - mg.infer(glass).log_z) < 5 * answer.log_z_error)
    True
    """

    population: int | None = None
    sweeps: int = 10
    overlap: float = 0.85

    def __post_init__(self) -> None:
        if self.population is not None and self.population < 2:
            raise SampleError(
                f"PopulationAnnealing: population must be at least 2, got {self.population!r}"
            )
        if self.sweeps < 1:
            raise SampleError(
                f"PopulationAnnealing: sweeps must be at least 1, got {self.sweeps!r}"
            )
        if not 0.0 < self.overlap < 1.0:
            raise SampleError(
                f"PopulationAnnealing: overlap must be between 0 and 1, got {self.overlap!r}"
            )


def anneal(
    graph: FactorGraph,
    settings: PopulationAnnealing,
    populations: int,
    error: float,
    seed: int | None,
    threads: int | None,
    watch: Watch,
) -> tuple[Known, Population]:
    """Anneal populations of a graph, and larger ones while there is time.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    settings : PopulationAnnealing
        Options of the user.
    populations : int
        Number of independent populations.
    error : float
        Standard error of a marginal below which populations do not grow.
    seed, threads : int or None
        As in `mg.sample`.
    watch : Watch
        Deadline and signals of the call.

    Returns
    -------
    Known
        The marginals.
    Population

    Raises
    ------
    SampleError
        If the model has no layout that can be scaled.
    StopError, KeyboardInterrupt
        If the call ends before the first populations are annealed.
    """
    sequence = np.random.SeedSequence(entropy_of(seed))
    size, found = settings.population or _FIRST_SIZE, None
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        while True:
            begun = watch.spent
            task = _Annealing(graph, settings, populations, size, sequence.spawn(1)[0], pool)
            if drive(task, watch) != ANNEALED:
                if found is None:
                    watch.check()  # raises: there is nothing to return
                    raise KeyboardInterrupt
                return found
            found = task.result()
            spent = _LONGER * _GROWTH * (watch.spent - begun)
            good = float(found[0].errors.max(initial=0.0)) <= error
            fits = task.bytes(_GROWTH * size) < memory.available() / 2
            if settings.population is not None or good or spent > watch.left or not fits:
                return found
            size *= _GROWTH


class _Annealing:
    """Populations that are cooled together; a task of the driver."""

    def __init__(
        self,
        graph: FactorGraph,
        settings: PopulationAnnealing,
        populations: int,
        size: int,
        sequence: np.random.SeedSequence,
        pool: ThreadPoolExecutor,
    ) -> None:
        layout = scaled_layout(Gibbs(), graph)
        if layout is None or layout.scaled is None:
            raise SampleError(
                "population annealing is for variables of few values, joined by stored pairs and "
                "tables of two without hard constraints; use mg.Tempering()"
            )
        self._graph, self._settings, self._pool = graph, settings, pool
        self._scaled, self._data = layout.scaled, layout.lay_out(Gibbs(), graph)
        self.populations, self.size = populations, -(-size // _TOGETHER) * _TOGETHER
        total = self.populations * self.size
        memory.require(self.bytes(self.size), f"{total:,} replicas", "use a smaller population")
        chains, words = sequence.spawn(2)
        seed = int(words.generate_state(1, np.uint64)[0])
        self._rng = np.random.default_rng(chains)
        self._cuts = [*range(0, total, LANES), total]
        self._tiles = [
            make_tile(Gibbs(), graph, self._data, first, self._random(last - first), seed)
            for first, last in pairwise(self._cuts)
        ]
        self._family = np.tile(np.arange(self.size), (populations, 1))
        self._beta, self._swept, self._left = 0.0, 0, 0
        sizes = graph.sizes[graph.evidence < 0]
        first_log_z = float(np.log(sizes).sum()) + graph.offset
        self._log_z = np.full(populations, first_log_z)  # log Z of each population
        self._noted: list[tuple[float, ...]] = []

    def bytes(self, size: int) -> float:
        """Return the approximate memory for this number of replicas per population."""
        return 6.0 * self.populations * size * len(self._graph) * self._graph.state_type.itemsize

    def _random(self, count: int) -> NDArray[Any]:
        """Return states of independent uniform values."""
        graph = self._graph
        states = (self._rng.random((count, len(graph))) * graph.sizes).astype(graph.state_type)
        clamped = graph.evidence >= 0
        states[:, clamped] = graph.evidence[clamped]
        return states

    def segment(self) -> str:
        """Sweep all replicas once, or step to the next temperature."""
        if self._left:
            list(self._pool.map(lambda tile: tile.advance(self._swept, 1, False), self._tiles))
            self._swept += 1
            self._left -= 1
            return ""
        energies = self._energies()
        self._note(energies)
        if self._beta == 1.0:
            return ANNEALED
        self._cool(energies)
        self._left = self._settings.sweeps
        return ""

    def keep(self) -> None:
        """Do nothing, because there is no checkpoint."""

    def rest(self) -> None:
        """Do nothing, because no replica is swept between two segments."""

    def _energies(self) -> NDArray[np.float64]:
        """Return the energies [population, replica], without the graph's offset."""
        parts = list(self._pool.map(lambda tile: tile.energies(), self._tiles))
        return -np.concatenate(parts).reshape(self.populations, self.size)

    def _states(self) -> NDArray[Any]:
        """Return all states [replica, variable]."""
        return np.concatenate(list(self._pool.map(lambda tile: tile.states(), self._tiles)))

    def _cool(self, energies: NDArray[np.float64]) -> None:
        """Resample the replicas for the next temperature."""
        step = min(_next_step(own, 1.0 - self._beta, self._settings.overlap) for own in energies)
        beta = 1.0 if step >= 1.0 - self._beta else self._beta + step
        parents = np.empty(energies.shape, np.int64)
        for number, own in enumerate(energies):
            logs = -(beta - self._beta) * own
            top = float(logs.max())
            weights = np.exp(logs - top)
            self._log_z[number] += top + math.log(float(weights.mean()))
            parents[number] = systematic(weights, float(self._rng.random()))
        self._family = np.take_along_axis(self._family, parents, axis=1)
        states = self._states()
        parents += self.size * np.arange(self.populations)[:, None]
        self._beta, data = beta, self._scaled(self._data, beta)

        def load(number: int) -> None:
            tile, own = self._tiles[number], slice(*self._cuts[number : number + 2])
            tile.load(states[parents.ravel()[own]])
            tile.data = data

        list(self._pool.map(load, range(len(self._tiles))))

    def _shares(self) -> NDArray[np.float64]:
        """Return the weight of each population: its Z, divided by the sum over all."""
        weights = np.exp(self._log_z - self._log_z.max())
        return np.asarray(weights / weights.sum())

    def _note(self, energies: NDArray[np.float64]) -> None:
        """Record the estimates at this temperature, after its sweeps."""
        shares, graph = self._shares(), self._graph
        own = energies - graph.offset
        means = own.mean(axis=1)
        energy = float(shares @ means)
        counts = [np.bincount(family) / self.size for family in self._family]
        squares = np.array([float(np.square(share).sum()) for share in counts])
        resampled = np.maximum(squares - 1.0 / self.size, 0.0)
        spread = np.array(
            [
                np.square(np.bincount(family, row - mean)).sum() / self.size**2
                for family, row, mean in zip(self._family, own, means, strict=True)
            ]
        )
        log_z = float(np.log(np.exp(self._log_z - self._log_z.max()).mean()) + self._log_z.max())
        ones = np.ones(self.populations)
        self._noted.append(
            (
                self._beta,
                log_z,
                _combined(shares, resampled, ones, 1.0 / self.populations),
                energy,
                _combined(shares, spread, means - energy),
                float(self.size * squares.mean()),
                float(sum(np.count_nonzero(share) for share in counts)),
            )
        )

    def result(self) -> tuple[Known, Population]:
        """Return the marginals and the final population."""
        columns = [np.array(column) for column in zip(*self._noted, strict=True)]
        states, shares = self._states(), self._shares()
        names = ("betas", "log_z", "log_z_error", "energy", "energy_error", "family_size")
        population = Population(
            size=self.size,
            families=columns[-1].astype(np.int64),
            states=states,
            weights=np.repeat(shares / self.size, self.size),
            family=self._family.ravel(),
            **dict(zip(names, columns, strict=False)),
        )
        sizes, first = self._graph.sizes, self._graph.first
        given, errors = np.zeros(int(sizes.sum())), np.zeros(int(sizes.sum()))
        whole = states.reshape(self.populations, self.size, -1)
        for value in range(int(sizes.max())):
            which = np.flatnonzero(sizes > value)
            mean, error = self._marginals(whole, which, value, shares)
            given[first[which] + value], errors[first[which] + value] = mean, error
        independent = self.populations * self.size / population.family_size[-1]
        return Known(given, errors, sizes, max(independent - 1.0, 1.0)), population

    def _marginals(
        self,
        states: NDArray[Any],
        which: NDArray[np.int64],
        value: int,
        shares: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return how often some variables have a value, and the standard errors."""
        means = np.stack([(own[:, which] == value).mean(axis=0) for own in states])
        spread = np.empty_like(means)
        for number, family in enumerate(self._family):
            begins = np.flatnonzero(np.diff(family, prepend=-1))
            members = np.diff(np.append(begins, self.size))
            step = max(_COLUMNS // len(begins), 1)
            for a in range(0, len(which), step):
                some = slice(a, a + step)
                held = (states[number][:, which[some]] == value).astype(np.int32)
                away = np.add.reduceat(held, begins) - members[:, None] * means[number, some]
                spread[number, some] = np.square(away).sum(axis=0) / self.size**2
        mean = shares @ means
        return mean, _combined(shares, spread, means - mean)


def _combined(
    shares: NDArray[np.float64],
    within: NDArray[np.float64],
    away: NDArray[np.float64],
    expected: float = 0.0,
) -> Any:
    """Return the standard error of an average over populations, by families or by populations.

    `within` contains the variances of the populations, `away` their deviations from the average.
    The error of log Z has `away` 1 and `expected` shares 1 / populations.
    """
    by_family = np.tensordot(shares**2, within, 1)
    if len(shares) < 2:
        return np.sqrt(by_family)
    weight = (shares - expected) if expected else shares
    column = weight.reshape(-1, *[1] * (away.ndim - 1))
    between = np.square(column * away).sum(axis=0) * len(shares) / (len(shares) - 1)
    return np.sqrt(np.maximum(by_family, between))


def _next_step(energies: NDArray[np.float64], most: float, overlap: float) -> float:
    """Return the largest step of beta, up to `most`, at which a population overlaps enough."""
    away = energies - energies.min()

    def overlaps(step: float) -> bool:
        weights = np.exp(-step * away)
        return float(np.minimum(1.0, weights / weights.mean()).mean()) >= overlap

    if overlaps(most):
        return most
    low, high = 0.0, most
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if overlaps(middle) else (low, middle)
    return high


def systematic(weights: NDArray[np.float64], offset: float) -> NDArray[np.int64]:
    """Resample systematically: return as many indices as weights, in order, by one uniform number.

    Index i occurs floor or ceil of R * weight_i / sum times, with this quantity as its mean.

    Parameters
    ----------
    weights : array
        Nonnegative weights, not all 0.
    offset : float
        Uniform number from 0 to 1.

    Returns
    -------
    array of int
    """
    ends = np.cumsum(weights)
    points = (np.arange(len(weights)) + offset) * (ends[-1] / len(weights))
    found = np.searchsorted(ends, points, side="right")
    return np.asarray(np.minimum(found, int(np.flatnonzero(weights)[-1])))
