"""Exact answers on graphs small enough to enumerate: laws, transition matrices, spectral gaps.

Everything here follows the paper's definitions, not the kernels: minibatches are enumerated, and
Poisson tails cut off where less than 1e-12 of their mass is left.

>>> import minigibbs as mg
>>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
>>> mg.theory.exact_marginals(pair)
array([[0.5, 0.5],
       [0.5, 0.5]])
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax
from scipy.stats import poisson as poisson_law

from minigibbs.errors import TooLargeError
from minigibbs.graph import FactorGraph
from minigibbs.kernels.energy import factor_values
from minigibbs.packed import entry_spans, free_variables
from minigibbs.samplers import (
    MGPMH,
    DoubleMinGibbs,
    Estimator,
    ExactEstimator,
    Gibbs,
    LocalMinibatchGibbs,
    MinGibbs,
    PoissonEstimator,
    PoissonGibbs,
    Sampler,
    SubsetEstimator,
)
from minigibbs.samplers.recipes import SLOWDOWN, local_batches

MOST_STATES = 2**22
MOST_MATRIX = 20_000  # rows of a dense transition matrix
_TAIL = 1e-12
_SAME = 1e-9  # energies closer than this are one point of an estimator's law

Law = tuple[NDArray[np.float64], NDArray[np.float64]]  # points and their probabilities


@dataclass(frozen=True, eq=False)
class Enumeration:
    """All states of a graph that agree with its evidence, in lexicographic order."""

    graph: FactorGraph

    def __post_init__(self) -> None:
        count = math.prod(int(size) for size in self.graph.sizes[self.free])
        if count > MOST_STATES:
            raise TooLargeError(
                f"this graph has {float(count):.3g} states; enumeration stops at {MOST_STATES:,}"
            )

    @cached_property
    def free(self) -> NDArray[np.int32]:
        """The variables that the evidence leaves."""
        return free_variables(self.graph.evidence)

    @cached_property
    def states(self) -> NDArray[Any]:
        """[state, variable]."""
        ranges = [
            np.arange(size) if fixed < 0 else np.array([fixed])
            for size, fixed in zip(self.graph.sizes, self.graph.evidence, strict=True)
        ]
        grid = np.meshgrid(*ranges, indexing="ij")
        return np.stack([axis.ravel() for axis in grid], axis=1).astype(self.graph.state_type)

    @cached_property
    def strides(self) -> NDArray[np.int64]:
        """How far a state's number moves when a variable's value goes up by one."""
        sizes = np.where(self.graph.evidence < 0, self.graph.sizes, 1).astype(np.int64)
        return np.append(np.cumprod(sizes[::-1])[-2::-1], 1)

    @cached_property
    def energy(self) -> NDArray[np.float64]:
        """The log-potential of each state."""
        energy: NDArray[np.float64] = self.graph.energy(self.states)
        return energy

    @cached_property
    def law(self) -> NDArray[np.float64]:
        """The probability of each state."""
        law: NDArray[np.float64] = softmax(self.energy)
        return law

    @cached_property
    def phi(self) -> NDArray[np.float64]:
        """[factor, state]: the factors that vary, each shifted to min 0."""
        model = self.graph.packed
        values = np.empty((len(model.pair) + len(model.factors), len(self.states)))
        factor_values(model, self.states, values)
        values -= values.min(axis=1, keepdims=True)
        varying: NDArray[np.float64] = values[values.max(axis=1) > 0]
        return varying

    @cached_property
    def spans(self) -> NDArray[np.float64]:
        """The paper's M of each factor."""
        spans: NDArray[np.float64] = self.phi.max(axis=1)
        return spans

    @cached_property
    def adjacent(self) -> list[NDArray[np.int64]]:
        """For each variable the paper's A[i]: the factors that depend on it."""
        found = []
        for i in range(len(self.graph)):
            varies = np.zeros(len(self.phi), dtype=bool)
            if self.graph.evidence[i] < 0:
                lines = self.lines(i)
                varies = (np.ptp(self.phi[:, lines], axis=2) > 0).any(axis=1)
            found.append(np.flatnonzero(varies))
        return found

    def lines(self, i: int) -> NDArray[np.int64]:
        """[line, value]: state numbers that differ in variable `i` only."""
        first = np.flatnonzero(self.states[:, i] == 0)
        numbers: NDArray[np.int64] = (
            first[:, None] + np.arange(self.graph.sizes[i]) * self.strides[i]
        )
        return numbers


def exact_distribution(graph: FactorGraph) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """All states and their probabilities.

    >>> import minigibbs as mg
    >>> states, law = exact_distribution(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)]))
    >>> law.round(3)
    array([0.366, 0.134, 0.134, 0.366])
    """
    everything = Enumeration(graph)
    return everything.states, everything.law


def exact_marginals(graph: FactorGraph) -> NDArray[np.float64]:
    """Exact marginals [variable, value], by enumeration.

    >>> import minigibbs as mg
    >>> exact_marginals(mg.FactorGraph([2], [mg.Unary([0], [0.0, 1.0])])).round(3)
    array([[0.269, 0.731]])
    """
    everything = Enumeration(graph)
    result = np.zeros((len(graph), int(graph.sizes.max())))
    for variable in range(len(graph)):
        counts = np.bincount(everything.states[:, variable], everything.law)
        result[variable, : len(counts)] = counts
    return result


def log_partition(graph: FactorGraph) -> float:
    """Log Z: the logarithm of the sum of exp(energy) over all states.

    >>> import minigibbs as mg
    >>> round(log_partition(mg.FactorGraph([2, 2], [])), 4)  # log 4
    1.3863
    """
    return float(logsumexp(Enumeration(graph).energy))


@dataclass(frozen=True, eq=False)
class Transition:
    """A sampler's one-update transition matrix, with the law it should leave as it is.

    Samplers that carry an energy estimate live on pairs (state, energy); `energy` is 0 for the
    others.
    """

    matrix: NDArray[np.float64]
    state: NDArray[np.int64]  # [row] the number of the row's state
    energy: NDArray[np.float64]  # [row]
    law: NDArray[np.float64] | None  # [row]; None where the paper gives none
    enumeration: Enumeration

    def marginal(self, law: NDArray[np.float64]) -> NDArray[np.float64]:
        """A law over rows summed to a law over states."""
        count = len(self.enumeration.states)
        return np.bincount(self.state, law, minlength=count).astype(np.float64)

    def stationary(self) -> NDArray[np.float64]:
        """The law over rows that the matrix keeps, solved for, whatever it should be."""
        count = len(self.matrix)
        system = np.vstack([self.matrix.T - np.eye(count), np.ones(count)])
        answer, *_ = np.linalg.lstsq(system, np.append(np.zeros(count), 1.0), rcond=None)
        return answer  # type: ignore[no-any-return]

    def spectral_gap(self) -> float:
        """1 minus the second eigenvalue, for a chain that is reversible under `law`."""
        if self.law is None:
            raise ValueError("the spectral gap needs a law under which the chain is reversible")
        root = np.sqrt(self.law)
        symmetric = root[:, None] * self.matrix / root
        return float(1.0 - np.linalg.eigvalsh((symmetric + symmetric.T) / 2)[-2])


def transition(graph: FactorGraph, sampler: Sampler) -> Transition:
    """The transition matrix of one update at a uniformly random variable.

    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> round(transition(pair, mg.Gibbs()).spectral_gap(), 4)
    0.2689
    """
    everything = Enumeration(graph)
    builders: dict[type[Sampler], Callable[..., Transition]] = {
        Gibbs: _gibbs,
        LocalMinibatchGibbs: _local,
        MGPMH: _mgpmh,
        PoissonGibbs: _poisson_gibbs,
        MinGibbs: _min_gibbs,
        DoubleMinGibbs: _double_min,
    }
    return builders[type(sampler)](everything, sampler)


def _gibbs(everything: Enumeration, sampler: Gibbs) -> Transition:
    """Algorithm 1."""

    def conditionals(i: int, line: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.tile(softmax(everything.energy[line]), (len(line), 1))

    return _on_states(everything, conditionals, everything.law)


def _local(everything: Enumeration, sampler: LocalMinibatchGibbs) -> Transition:
    """Algorithm 3, and its variant with the weights of equation (2)."""
    batch = sampler.batch_for(everything.graph)

    def conditionals(i: int, line: NDArray[np.int64]) -> NDArray[np.float64]:
        around = everything.adjacent[i]
        phi = everything.phi[np.ix_(around, line)]
        if sampler.adjusted:
            spans = everything.spans[around]
            step = everything.graph.stats.local_energy / batch
            counts, chance = _poisson_grid(spans / step)
            energies = counts @ np.log1p(step * phi / spans[:, None])
        else:
            size = min(int(batch), len(around))
            members = list(itertools.combinations(range(len(around)), size))
            chance = np.full(len(members), 1.0 / len(members))
            energies = np.array([phi[list(m)].sum(axis=0) for m in members])
            energies *= len(around) / max(size, 1)
        return np.tile(chance @ softmax(energies, axis=1), (len(line), 1))

    return _on_states(everything, conditionals, None)


def _mgpmh(everything: Enumeration, sampler: MGPMH) -> Transition:
    """Algorithm 4."""
    density = local_batches(everything.graph, sampler.batch, sampler.slowdown or SLOWDOWN)

    def conditionals(i: int, line: NDArray[np.int64]) -> NDArray[np.float64]:
        chance, estimates = _proposals(everything, i, line, density[i])
        psi, exact = softmax(estimates, axis=1), everything.energy[line]
        rows = np.empty((len(line), len(line)))
        for old in range(len(line)):
            log_a = exact - exact[old] + estimates[:, [old]] - estimates
            rows[old] = chance @ (psi * np.exp(np.minimum(log_a, 0.0)))
            rows[old, old] += 1.0 - rows[old].sum()
        return rows

    return _on_states(everything, conditionals, everything.law)


def _poisson_gibbs(everything: Enumeration, sampler: PoissonGibbs) -> Transition:
    """Gibbs sampling on (state, counts), with the counts redrawn each time."""
    split = sampler.split(everything.graph)
    rows, spans = everything.graph.packed.rows, entry_spans(everything.graph.packed)

    def conditionals(i: int, line: NDArray[np.int64]) -> NDArray[np.float64]:
        around = everything.adjacent[i]
        own = slice(rows["start"][i], rows["end"][i])
        light = np.sort(spans[own][~split.heavy[own]])  # the tail, by its energies
        tail = around[np.isin(everything.spans[around], light)]
        exact = np.setdiff1d(around, tail)
        phi, m, theta = everything.phi[np.ix_(tail, line)], everything.spans[tail], split.theta[i]
        heavy = everything.phi[np.ix_(exact, line)].sum(axis=0)
        gain = np.log1p(phi / (theta * m[:, None]))
        rows_out = np.empty((len(line), len(line)))
        for old in range(len(line)):
            counts, chance = _poisson_grid(theta * m + phi[:, old])
            rows_out[old] = chance @ softmax(heavy + counts @ gain, axis=1)
        return rows_out

    return _on_states(everything, conditionals, everything.law)


def _proposals(
    everything: Enumeration, i: int, line: NDArray[np.int64], density: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Minibatches' probabilities, and for each the estimates eps_u of Algorithm 4."""
    around = everything.adjacent[i]
    spans = everything.spans[around]
    counts, chance = _poisson_grid(spans * density)
    share = everything.phi[np.ix_(around, line)] / spans[:, None]
    return chance, counts @ share / density


def _on_states(
    everything: Enumeration,
    conditionals: Callable[[int, NDArray[np.int64]], NDArray[np.float64]],
    law: NDArray[np.float64] | None,
) -> Transition:
    """A matrix over states, from each variable's [old value, new value] on each line."""
    count = _check_matrix(len(everything.states))
    matrix = np.zeros((count, count))
    for i in everything.free:
        for line in everything.lines(i):
            matrix[np.ix_(line, line)] += conditionals(int(i), line) / len(everything.free)
    return Transition(matrix, np.arange(count), np.zeros(count), law, everything)


def _min_gibbs(everything: Enumeration, sampler: MinGibbs) -> Transition:
    """Algorithm 2, on pairs (state, energy)."""
    joint = _Joint(everything, sampler.estimator_for(everything.graph))
    matrix = joint.empty()
    for i in everything.free:
        for line in everything.lines(i):
            for old, new in itertools.permutations(range(len(line)), 2):
                others = [s for k, s in enumerate(line) if k not in (old, new)]
                mass, chance = joint.sum_exp(others)
                a, b = joint.points(line[old]), joint.points(line[new])
                top = np.maximum(a[:, None], b)
                odds = np.exp(b - top) / (
                    np.exp(a[:, None] - top)[..., None]
                    + np.exp(b - top)[..., None]
                    + mass * np.exp(joint.shift - top)[..., None]
                )[..., :].transpose(2, 0, 1)
                flow = np.tensordot(chance, odds, axes=1) * joint.chances(line[new])
                matrix[joint.block(line[old], line[new])] += flow / len(everything.free)
    return joint.finish(matrix)


def _double_min(everything: Enumeration, sampler: DoubleMinGibbs) -> Transition:
    """Algorithm 5, on pairs (state, energy)."""
    graph = everything.graph
    joint = _Joint(everything, sampler.estimator_for(graph))
    density = local_batches(graph, sampler.batch, math.sqrt(sampler.slowdown or SLOWDOWN))
    matrix = joint.empty()
    for i in everything.free:
        for line in everything.lines(i):
            chance, estimates = _proposals(everything, int(i), line, density[i])
            psi = softmax(estimates, axis=1)
            for old, new in itertools.product(range(len(line)), repeat=2):
                a, b = joint.points(line[old]), joint.points(line[new])
                drift = (estimates[:, old] - estimates[:, new])[:, None, None]
                accept = np.exp(np.minimum(b - a[:, None] + drift, 0.0))
                flow = np.tensordot(chance * psi[:, new], accept, axes=1)
                flow *= joint.chances(line[new])
                matrix[joint.block(line[old], line[new])] += flow / len(everything.free)
    return joint.finish(matrix)


class _Joint:
    """The space of pairs (state, energy estimate), with the law of Theorems 1 and 5."""

    def __init__(self, everything: Enumeration, estimator: Estimator) -> None:
        self.everything = everything
        self.laws = [estimate_law(everything, estimator, s) for s in range(len(everything.states))]
        self.starts = np.cumsum([0] + [len(points) for points, _ in self.laws])
        self.shift = max(float(points.max()) for points, _ in self.laws)

    def points(self, state: int) -> NDArray[np.float64]:
        return self.laws[state][0]

    def chances(self, state: int) -> NDArray[np.float64]:
        return self.laws[state][1]

    def block(self, old: int, new: int) -> tuple[slice, slice]:
        cut = [slice(self.starts[s], self.starts[s + 1]) for s in (old, new)]
        return cut[0], cut[1]

    def sum_exp(self, states: list[int]) -> Law:
        """The law of the sum of exp(energy - shift) over independent estimates of some states."""
        mass, chance = np.zeros(1), np.ones(1)
        for state in states:
            points, own = self.laws[state]
            mass = (mass[:, None] + np.exp(points - self.shift)).ravel()
            chance = (chance[:, None] * own).ravel()
        return mass, chance

    def empty(self) -> NDArray[np.float64]:
        count = _check_matrix(int(self.starts[-1]))
        return np.zeros((count, count))

    def finish(self, matrix: NDArray[np.float64]) -> Transition:
        """What is left of each row stays where it is."""
        matrix[np.diag_indices_from(matrix)] += 1.0 - matrix.sum(axis=1)
        energy = np.concatenate([points for points, _ in self.laws])
        law = np.concatenate([own for _, own in self.laws]) * np.exp(energy - self.shift)
        state = np.repeat(np.arange(len(self.laws)), np.diff(self.starts))
        return Transition(matrix, state, energy, law / law.sum(), self.everything)


def estimate_law(everything: Enumeration, estimator: Estimator, state: int) -> Law:
    """The paper's mu_x: the points of an estimator's law in a state, and their probabilities.

    Energies are on the scale on which every factor has least value 0.

    >>> import minigibbs as mg
    >>> pair = Enumeration(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)]))
    >>> points, chances = estimate_law(pair, mg.ExactEstimator(), state=0)
    >>> points.tolist(), chances.tolist()
    ([1.0], [1.0])
    """
    phi = everything.phi[:, state]
    if isinstance(estimator, ExactEstimator):
        return np.array([phi.sum()]), np.ones(1)
    if isinstance(estimator, SubsetEstimator):
        members = list(itertools.combinations(range(len(phi)), estimator.size))
        sums = np.array([phi[list(m)].sum() for m in members]) * len(phi) / estimator.size
        return _merge(sums, np.full(len(sums), 1.0 / len(sums)))
    if isinstance(estimator, PoissonEstimator):
        ratio = everything.spans.sum() / estimator.batch
        points, chances = np.zeros(1), np.ones(1)
        for value, span in zip(phi, everything.spans, strict=True):
            if value > 0:
                counts, own = _poisson_points(span / ratio, value)
                gains = counts * math.log1p(ratio * value / span)
                points, chances = _merge(
                    (points[:, None] + gains).ravel(), (chances[:, None] * own).ravel()
                )
        return points, chances
    raise TypeError(f"no law is known for {type(estimator).__name__}")


def _merge(points: NDArray[np.float64], chances: NDArray[np.float64]) -> Law:
    """Points that are the same but for rounding become one."""
    order = np.argsort(points)
    points, chances = points[order], chances[order]
    group = np.cumsum(np.append(0, np.diff(points) > _SAME))
    first = np.append(True, np.diff(group) > 0)
    return points[first], np.bincount(group, chances).astype(np.float64)


def _poisson_points(rate: float, tilt: float = 0.0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Counts and their probabilities, up to where less than `_TAIL` is left.

    Where counts enter through exp(estimate), what is left must be small under that tilt too,
    which makes them Poisson(rate + tilt).
    """
    counts = np.arange(int(poisson_law.isf(_TAIL, rate + tilt)) + 2)
    chances = poisson_law.pmf(counts, rate)
    return counts, chances / chances.sum()


def _poisson_grid(rates: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """All vectors of counts [vector, rate] that matter, and their probabilities."""
    laws = [_poisson_points(float(rate)) for rate in rates]
    size = math.prod(len(counts) for counts, _ in laws)
    if size > MOST_STATES:
        raise TooLargeError(f"{size:,} minibatches are too many to enumerate")
    counts = np.array(list(_grid(laws, 0)), dtype=np.float64).reshape(size, len(rates))
    chances = np.array([math.prod(point) for point in _grid(laws, 1)])
    keep = chances > _TAIL * 1e-4
    return counts[keep], chances[keep] / chances[keep].sum()


def _grid(laws: list[tuple[Any, Any]], which: int) -> Iterator[tuple[Any, ...]]:
    return itertools.product(*(law[which] for law in laws))


def _check_matrix(rows: int) -> int:
    if rows > MOST_MATRIX:
        raise TooLargeError(
            f"the transition matrix would have {rows:,} rows; the limit is {MOST_MATRIX:,}"
        )
    return rows
