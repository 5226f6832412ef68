"""Simulated annealing without preparations, and the climb that ends every search.

One state per chain cools from hot to cold, then takes the best value of one variable after another.
Nothing is copied or laid out, so that this works for graphs whose temperature ladders would not fit
into the memory or the time of a call.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.inference.fields import begin_fields, prepare_fields, room_for, visit
from minigibbs.inference.temperatures import largest_range
from minigibbs.running.progress import Bar
from minigibbs.system.watch import Watch

ROUNDS = "rounds"  # how a search ended: all rounds were made
_COOLING = 0.8  # share of a search in which temperatures fall; then single variables climb
_SEGMENT = 0.1  # seconds between two looks at the clock
_GROWTH = 8  # of a segment over the one before, at the most
_BEYOND = 0.5  # seconds of climbing that are allowed after the time or a signal
_ROUNDED = 1e-12  # of the largest range: gains that may be rounding


class _Walker(NamedTuple):
    """One chain: its state, and what its updates write."""

    x: NDArray[Any]
    stream: NDArray[np.uint64]
    room: NDArray[np.float64]
    weights: NDArray[np.float64]


class _Walk:
    """Updates of single variables on a graph as it is."""

    def __init__(self, graph: FactorGraph, order: NDArray[np.int32]) -> None:
        self.graph, self.order, self.values = graph, order, int(graph.sizes.max())
        self._model, self._groups = graph.packed, prepare_fields(graph.implicits)
        self._least = _ROUNDED * largest_range(graph)

    def walker(self, state: NDArray[Any], stream: NDArray[np.uint64]) -> _Walker:
        """A chain at a state, which it changes."""
        room = room_for(self.graph.implicits, self.values)
        begin_fields(self._groups, state, room, self.values)
        return _Walker(state, stream, room, np.zeros(2 * self.values))

    def advance(self, walker: _Walker, beta: float, first: int, count: int) -> int:
        """Update `count` variables of the order from place `first` on; returns how many changed."""
        return int(
            visit(
                self._model,
                self._groups,
                walker.room,
                self.order,
                walker.x,
                walker.stream,
                walker.weights,
                beta,
                self._least,
                first,
                count,
            )
        )


class Annealing:
    """All chains of an annealing, which advance together: a task of the driver.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    order : array
        The variables to update.
    states : array
        The first state of each chain.
    rows : array
        The random stream of each chain.
    betas : (float, float)
        The hottest and the coldest inverse temperature.
    rounds : int or None
        How many sweeps to make; None to go by the time that is left.
    """

    def __init__(
        self,
        graph: FactorGraph,
        order: NDArray[np.int32],
        states: NDArray[Any],
        rows: NDArray[np.uint64],
        betas: tuple[float, float],
        rounds: int | None,
    ) -> None:
        self.states = states.copy()
        self._walk, self._rows = _Walk(graph, order), rows
        self._cold = betas[1]
        self._hot = max(betas[0], betas[1] * 1e-6)  # cooling is geometric
        self._updates = None if rounds is None else rounds * len(order)
        self.total = None if self._updates is None else self._updates * len(states)
        self._made, self._next, self._still = 0, 1, 0

    @property
    def rounds(self) -> int:
        """Sweeps that each chain has made."""
        return self._made // len(self._walk.order)

    def begin(self, pool: ThreadPoolExecutor, bar: Bar, watch: Watch) -> None:
        """Compile; segments will run in the pool."""
        self._pool, self._bar, self._watch = pool, bar, watch
        pairs = zip(self.states, self._rows, strict=True)
        self._walkers = [self._walk.walker(state, stream) for state, stream in pairs]
        self._walk.advance(self._walkers[0], self._hot, 0, 0)
        self._begun, self._time = watch.spent, watch.left

    def segment(self) -> str:
        """Update some variables of every chain at one temperature."""
        share, before = self._share(), time.monotonic()
        beta = self._hot * (self._cold / self._hot) ** (share / _COOLING)
        if share >= _COOLING:
            beta = math.inf
        changes = sum(self._pool.map(lambda one: self._step(one, beta), self._walkers))
        pace = max(time.monotonic() - before, 1e-6) / self._next
        self._made += self._next
        self._still = self._still + self._next if changes == 0 and beta == math.inf else 0
        self._bar.advance(self._next * len(self._walkers))
        fit = min(_SEGMENT / pace, _GROWTH * self._next, max(self._watch.left / pace, 1.0))
        if self._updates is not None:
            fit = min(fit, self._updates - self._made)
        self._next = int(max(fit, 0 if self._updates is not None else 1))
        done = self._next == 0 or self._still >= len(self._walk.order)
        return ROUNDS if done else ""

    def _step(self, walker: _Walker, beta: float) -> int:
        return self._walk.advance(walker, beta, self._made, self._next)

    def _share(self) -> float:
        """How much of the search is done, from 0 to 1."""
        if self._updates is not None:
            return self._made / self._updates
        return min((self._watch.spent - self._begun) / max(self._time, 1e-9), 1.0)

    def keep(self) -> None:
        """A search has no checkpoint."""

    def rest(self) -> None:
        """No chain runs between two segments."""


def climb(graph: FactorGraph, order: NDArray[np.int32], states: NDArray[Any], watch: Watch) -> bool:
    """Improve states, one variable after another, until no change of one variable helps.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    order : array
        The variables that may change.
    states : array
        One state per row; changed in place.
    watch : Watch
        The call's; climbing may take half a second beyond its end.

    Returns
    -------
    bool
        Whether there was time to do so for all states.
    """
    walk, until = _Walk(graph, order), time.monotonic() + max(watch.left, _BEYOND)
    walkers = [walk.walker(state, np.zeros(4, np.uint64)) for state in states]
    still, made, count = [0] * len(walkers), 0, 1
    while climbing := [k for k, quiet in enumerate(still) if quiet < len(order)]:
        before = time.monotonic()
        if watch.signal:
            until = min(until, before + _BEYOND)
        if before >= until:
            return False
        for k in climbing:
            changed = walk.advance(walkers[k], math.inf, made, count)
            still[k] = still[k] + count if changed == 0 else 0
        made += count
        pace = max(time.monotonic() - before, 1e-6) / count
        count = int(max(1, min(_SEGMENT / pace, _GROWTH * count, len(order))))
    return True
