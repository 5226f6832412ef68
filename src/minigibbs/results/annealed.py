"""Annealed importance sampling (Neal, 2001, doi:10.1023/A:1008923215028): log Z with an error.

Chains begin with independent variables, by the unary factors alone, and sweep while the other
factors grow from 0 to their strength. The weights that the chains collect average to Z.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.kernels.energy import add_stored, total_energy
from minigibbs.kernels.jit import entry, kernel
from minigibbs.kernels.random import streams, uniform
from minigibbs.samplers.gibbs.sampler import sum_unary
from minigibbs.system.watch import Watch

_CHAINS = 128
_FIRST, _MOST = 128, 2**17  # sweeps of a round
_SEGMENT = 0.1  # seconds between two looks at the clock
_GROWTH = 8  # of a segment over the one before, at most


class LogZ(NamedTuple):
    """An estimate of log Z."""

    value: float
    error: float  # standard error
    sweeps: int  # of each chain, in the last round


def annealed_log_z(graph: FactorGraph, error: float, seed: int, threads: int, watch: Watch) -> LogZ:
    """Estimate log Z: rounds of twice as many sweeps until the error is small or time is up.

    Parameters
    ----------
    graph : FactorGraph
        A model with explicit factors and without hard constraints.
    error : float
        The standard error to reach.
    seed, threads : int
        Of the chains.
    watch : Watch
        The deadline and the signals of the call.
    """
    if graph.implicits:
        raise LearnError("log Z by annealing needs explicit factors; use graph.stored()")
    if len(graph.hard):
        raise LearnError("log Z by annealing needs a model without hard constraints")
    model, order = graph.packed, free_variables(graph.evidence).astype(np.int32)
    unary = sum_unary(model)
    if not len(unary):
        unary = np.zeros(int(model.rows["domain"].sum()))
    fields = [
        unary[model.first[i] : model.first[i] + model.rows["domain"][i]] for i in order.tolist()
    ]
    base = float(sum(np.logaddexp.reduce(own) for own in fields)) + graph.offset
    start = np.where(graph.evidence >= 0, graph.evidence, 0).astype(graph.state_type)
    clamped = np.flatnonzero(graph.evidence >= 0)
    base += float(unary[model.first[clamped] + start[clamped]].sum())
    own = streams(seed, _CHAINS)
    sweeps, found = _FIRST, LogZ(base, math.inf, 0)
    with ThreadPoolExecutor(threads) as pool:
        while True:
            begun = watch.spent
            weights = _Annealed(graph, unary, order, start, own).run(sweeps, pool, threads, watch)
            if weights is None:
                if not found.sweeps:
                    watch.check()  # there is nothing to return
                return found
            found = _estimate(base, weights, sweeps)
            taken = watch.spent - begun
            if found.error <= error or sweeps >= _MOST or watch.ended or 2 * taken > watch.left:
                return found
            sweeps *= 2


class _Annealed:
    """The chains of one round."""

    def __init__(
        self,
        graph: FactorGraph,
        unary: NDArray[np.float64],
        order: NDArray[np.int32],
        start: NDArray[Any],
        own: NDArray[np.uint64],
    ) -> None:
        self._model, self._unary, self._order, self._own = graph.packed, unary, order, own
        self._states = np.tile(start, (len(own), 1))
        self._values = int(graph.sizes.max())
        self._rest = np.zeros(len(own))  # [chain] the log-potential without unary factors
        self._total = np.zeros(len(own))  # [chain] the logarithm of the weight

    def run(
        self, sweeps: int, pool: ThreadPoolExecutor, threads: int, watch: Watch
    ) -> NDArray[np.float64] | None:
        """Anneal all chains; the logarithms of their weights, or None if the call must end."""
        cuts = np.linspace(0, len(self._own), threads + 1).astype(int).tolist()
        betas, first, count = _schedule(sweeps), 0, 0
        while first < sweeps:
            before = watch.spent
            here = betas[first : first + count + 1]
            list(pool.map(lambda a, b, here=here: self._advance(a, b, here), cuts[:-1], cuts[1:]))
            first += count
            if watch.ended:
                return None
            pace = max(watch.spent - before, 1e-6) / max(count, 1)
            count = int(min(max(_SEGMENT / pace, 1), _GROWTH * max(count, 1), sweeps - first))
        return self._total

    def _advance(self, begin: int, end: int, betas: NDArray[np.float64]) -> None:
        """Anneal some chains from one strength to another; a single strength begins them."""
        some = slice(begin, end)
        arrays = self._states[some], self._own[some], self._rest[some], self._total[some]
        step = _anneal if len(betas) > 1 else _begin
        step(self._model, self._unary, self._order, *arrays, betas, np.zeros(2 * self._values))


def _schedule(sweeps: int) -> NDArray[np.float64]:
    """Strengths of the factors, denser at both ends."""
    at = np.linspace(-3.0, 3.0, sweeps + 1)
    rising = 1 / (1 + np.exp(-at))
    return np.asarray((rising - rising[0]) / (rising[-1] - rising[0]))


def _estimate(base: float, weights: NDArray[np.float64], sweeps: int) -> LogZ:
    """Log Z from logarithms of weights, with the error of their mean."""
    top = weights.max()
    shares = np.exp(weights - top)
    mean = shares.mean()
    error = shares.std(ddof=1) / mean / math.sqrt(len(weights))
    return LogZ(base + float(top + np.log(mean)), float(error), sweeps)


@kernel
def _draw(weights, size, stream):
    """A value by its log-weight."""
    top = weights[0]
    for value in range(1, size):
        top = max(top, weights[value])
    total = 0.0
    for value in range(size):
        weights[value] = math.exp(weights[value] - top)
        total += weights[value]
    left = uniform(stream) * total
    for value in range(size):
        left -= weights[value]
        if left < 0.0:
            return value
    return size - 1  # by rounding


@entry
def _begin(model, unary, order, states, own, rest, total, betas, space):
    """Draw each chain's first state: independent variables, by the unary factors alone."""
    for chain in range(len(states)):
        x, stream = states[chain], own[chain]
        for k in range(len(order)):
            i = order[k]
            size = model.rows[i].domain
            for value in range(size):
                space[value] = unary[model.first[i] + value]
            x[i] = _draw(space, size, stream)
        rest[chain] = total_energy(model, x)
        for i in range(len(x)):
            rest[chain] -= unary[model.first[i] + x[i]]
        total[chain] = 0.0


@entry
def _anneal(model, unary, order, states, own, rest, total, betas, space):
    """Sweep each chain at strengths betas[1:]; total gets the logarithms of the weights."""
    half = len(space) // 2
    weights, joint = space[:half], space[half:]
    for chain in range(len(states)):
        x, stream = states[chain], own[chain]
        for step in range(1, len(betas)):
            total[chain] += (betas[step] - betas[step - 1]) * rest[chain]
            for k in range(len(order)):
                i = order[k]
                size, old = model.rows[i].domain, x[i]
                for value in range(size):
                    joint[value] = 0.0
                add_stored(model, x, i, joint)
                for value in range(size):
                    weights[value] = unary[model.first[i] + value] + betas[step] * joint[value]
                new = _draw(weights, size, stream)
                if new != old:
                    rest[chain] += joint[new] - joint[np.int64(old)]
                    x[i] = new
