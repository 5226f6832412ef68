"""The transition matrix of every sampler, its law and its spectral gap, by enumeration.

Everything here follows the paper's definitions, not the kernels: minibatches are enumerated, and
Poisson tails cut off where less than 1e-12 of their mass is left.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from minigibbs.errors import TooLargeError
from minigibbs.exact.enumeration import Enumeration
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import entry_spans
from minigibbs.samplers import (
    MGPMH,
    DoubleMinGibbs,
    Estimator,
    Gibbs,
    LocalMinibatchGibbs,
    MinGibbs,
    PoissonGibbs,
    Sampler,
)
from minigibbs.samplers.bounds import SLOWDOWN, local_batches
from minigibbs.theory.laws import Law, estimate_law, poisson_grid

MOST_MATRIX = 20_000  # rows of a dense transition matrix


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
        """The law over rows that the matrix keeps, solved for, whatever it should be.

        By state reduction (Grassmann, Taksar and Heyman 1985, doi:10.1287/opre.33.5.1107), which
        never subtracts: the answer is right to rounding even where chains hardly move.
        """
        reduced = self.matrix.copy()
        for last in range(len(reduced) - 1, 0, -1):
            leaving = reduced[last, :last].sum()
            if leaving <= 0:
                raise ValueError(f"row {last} is never left: the chain keeps more than one law")
            reduced[:last, last] /= leaving
            reduced[:last, :last] += np.outer(reduced[:last, last], reduced[last, :last])
        law = np.ones(len(reduced))
        for row in range(1, len(reduced)):
            law[row] = law[:row] @ reduced[:row, row]
        return law / law.sum()  # type: ignore[no-any-return]

    def spectral_gap(self) -> float:
        """1 minus the second eigenvalue, for a chain that is reversible under `law`."""
        if self.law is None:
            raise ValueError("the spectral gap needs a law under which the chain is reversible")
        root = np.sqrt(self.law)
        symmetric = root[:, None] * self.matrix / root
        return float(1.0 - np.linalg.eigvalsh((symmetric + symmetric.T) / 2)[-2])


def transition(graph: FactorGraph, sampler: Sampler) -> Transition:
    """The transition matrix of one update at a uniformly random variable."""
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
            counts, chance = poisson_grid(spans / step)
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
            counts, chance = poisson_grid(theta * m + phi[:, old])
            rows_out[old] = chance @ softmax(heavy + counts @ gain, axis=1)
        return rows_out

    return _on_states(everything, conditionals, everything.law)


def _proposals(
    everything: Enumeration, i: int, line: NDArray[np.int64], density: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Minibatches' probabilities, and for each the estimates eps_u of Algorithm 4."""
    around = everything.adjacent[i]
    spans = everything.spans[around]
    counts, chance = poisson_grid(spans * density)
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


def _check_matrix(rows: int) -> int:
    if rows > MOST_MATRIX:
        raise TooLargeError(
            f"the transition matrix would have {rows:,} rows; the limit is {MOST_MATRIX:,}"
        )
    return rows
