"""Annealed importance sampling (Neal, 2001, doi:10.1023/A:1008923215028): log Z with an error.

Each chain starts with independent variables, drawn from the unary factors alone. It sweeps while
the strength of the other factors rises from 0 to 1. The mean of the chains' weights estimates Z.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.driver import drive
from minigibbs.errors import LearnError
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.kernels.energy import add_stored, total_energy
from minigibbs.kernels.jit import entry, kernel
from minigibbs.kernels.random import streams, uniform
from minigibbs.samplers.gibbs.sampler import sum_unary
from minigibbs.system.watch import Watch

_CHAINS = 128
_FIRST_SWEEPS, _MOST = 128, 2**17  # sweeps per chain in the first and in the longest round
_SEGMENT = 0.1  # target time between two checks of the clock, in seconds
_GROWTH = 8  # largest ratio of the lengths of consecutive segments
_ANNEALED = "annealed"  # how a round ended that reached the model


class LogZ(NamedTuple):
    """An estimate of log Z."""

    value: float
    error: float  # standard error
    sweeps: int  # per chain, in the last round


def annealed_log_z(graph: FactorGraph, error: float, seed: int, threads: int, watch: Watch) -> LogZ:
    """Estimate log Z in rounds that double the sweeps until the error is small or time is up.

    Parameters
    ----------
    graph : FactorGraph
        A model with explicit factors and without hard constraints.
    error : float
        The standard error to reach.
    seed, threads : int
        Seed and number of threads of the chains.
    watch : Watch
        Deadline and signals of the call.
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
    sweeps, found = _FIRST_SWEEPS, LogZ(base, math.inf, 0)
    with ThreadPoolExecutor(threads) as pool:
        while True:
            begun = watch.spent
            task = _Annealing(graph, unary, order, start, own, sweeps)
            task.begin(pool, threads, watch)
            if drive(task, watch) != _ANNEALED:
                if not found.sweeps:
                    watch.check()  # raises: there is nothing to return
                    raise KeyboardInterrupt
                return found
            found = _estimate(base, task.weights, sweeps)
            taken = watch.spent - begun
            if found.error <= error or sweeps >= _MOST or watch.ended or 2 * taken > watch.left:
                return found
            sweeps *= 2


class _Annealing:
    """The chains of one round, which advance together; a task of the driver."""

    def __init__(
        self,
        graph: FactorGraph,
        unary: NDArray[np.float64],
        order: NDArray[np.int32],
        start: NDArray[Any],
        own: NDArray[np.uint64],
        sweeps: int,
    ) -> None:
        self._model, self._unary, self._order, self._own = graph.packed, unary, order, own
        self._states = np.tile(start, (len(own), 1))
        self._values = int(graph.sizes.max())
        self._rest = np.zeros(len(own))  # [chain] log-potential without unary factors
        self.weights = np.zeros(len(own))  # [chain] logarithms
        self._betas, self._sweeps = _schedule(sweeps), sweeps
        self._made = self._next = 0  # sweeps; the first segment draws the first states

    def begin(self, pool: ThreadPoolExecutor, threads: int, watch: Watch) -> None:
        """Set what segments use: threads of a pool, and a clock for their lengths."""
        cuts = np.linspace(0, len(self._own), threads + 1).astype(int).tolist()
        self._pool, self._cuts, self._watch = pool, cuts, watch

    def segment(self) -> str:
        """Anneal all chains for some sweeps."""
        before, count = self._watch.spent, self._next
        here = self._betas[self._made : self._made + count + 1]
        some = self._cuts[:-1], self._cuts[1:]
        list(self._pool.map(lambda begin, end: self._advance(begin, end, here), *some))
        self._made += count
        pace = max(self._watch.spent - before, 1e-6) / max(count, 1)
        most = min(_GROWTH * max(count, 1), self._sweeps - self._made)
        self._next = int(min(max(_SEGMENT / pace, 1), most))
        return _ANNEALED if self._made == self._sweeps else ""

    def keep(self) -> None:
        """Do nothing, because an estimate has no checkpoint."""

    def rest(self) -> None:
        """Do nothing, because no chain runs between two segments."""

    def _advance(self, begin: int, end: int, betas: NDArray[np.float64]) -> None:
        """Anneal chains `begin` to `end` along `betas`; one strength draws the first states."""
        some = slice(begin, end)
        arrays = self._states[some], self._own[some], self._rest[some], self.weights[some]
        step = _anneal if len(betas) > 1 else _begin
        step(self._model, self._unary, self._order, *arrays, betas, np.zeros(2 * self._values))


def _schedule(sweeps: int) -> NDArray[np.float64]:
    """Return the strengths of the factors, denser at both ends."""
    at = np.linspace(-3.0, 3.0, sweeps + 1)
    rising = 1 / (1 + np.exp(-at))
    return np.asarray((rising - rising[0]) / (rising[-1] - rising[0]))


def _estimate(base: float, weights: NDArray[np.float64], sweeps: int) -> LogZ:
    """Estimate log Z from logarithms of weights, with the standard error of their mean."""
    top = weights.max()
    shares = np.exp(weights - top)
    mean = shares.mean()
    error = shares.std(ddof=1) / mean / math.sqrt(len(weights))
    return LogZ(base + float(top + np.log(mean)), float(error), sweeps)


@kernel
def _draw(weights, size, stream):
    """Draw a value from its log-weights."""
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
    return size - 1  # reached only by rounding


@entry
def _begin(model, unary, order, states, own, rest, total, betas, space):
    """Draw each chain's first state from the unary factors alone."""
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
    """Sweep each chain at strengths betas[1:]; add the log-weights to `total`."""
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
