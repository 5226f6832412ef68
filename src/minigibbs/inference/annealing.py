"""Simulated annealing without preparation, and the local search that ends every MAP search.

One state per chain cools from hot to cold. Then each variable in turn gets its best value. No
copies or layouts are needed, so that this works for graphs whose temperature ladders would not fit
into the memory or the time of a call.

A search anneals several times, each time twice as long as before, and keeps each chain's best
state. The first cycle covers all temperatures that may matter. The others cool between the
temperatures at which variables changed often and almost never.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.inference.fields import (
    begin_fields,
    caching_seconds,
    prepare_fields,
    room_for,
    room_size,
    visit,
)
from minigibbs.inference.rounds import ROUNDS
from minigibbs.inference.temperatures import largest_range
from minigibbs.kernels.random import streams
from minigibbs.running.progress import Bar
from minigibbs.system import memory
from minigibbs.system.watch import Watch, current

_COOLING = 0.8  # share of a cycle with falling temperatures; then single variables climb
_CYCLES = 4  # largest number of cycles, each twice as long as the one before
_LEAST_SWEEPS = 8  # sweeps of the first cycle
_TRIAL = 0.005  # seconds of timed updates that determine the number of cycles
_SEGMENT = 0.1  # target time between two checks of the clock, in seconds
_STEPS = 64  # least number of temperatures per cycle, if there is time
_GROWTH = 8  # largest ratio of the lengths of consecutive segments
_CHECKED = 50  # sweeps after which a climbing state must have a higher log-potential
_BEYOND = 0.5  # seconds of climbing allowed after the time limit or a signal
_ROUNDED = 1e-12  # share of the largest range: smaller gains may be rounding errors
_CACHING = 0.25  # share of the remaining time that may be spent on cached fields
_TWINS, _PAST, _FORGOTTEN = 2, 8, 0.3  # states, sweeps, and a correlation after these sweeps
_FORGETTING, _MOST_VARIABLES = 0.05, 50_000  # limits of that test: share of the time, variables
_MOBILE, _FROZEN = 0.5, 1e-4  # share of the highest flip rate; a flip rate


class _Walker(NamedTuple):
    """One chain: its state, and the arrays that its updates write."""

    x: NDArray[Any]
    stream: NDArray[np.uint64]
    room: NDArray[np.float64]
    weights: NDArray[np.float64]
    gain: NDArray[np.float64]  # [1] increase of the log-potential since the first state


class _Walk:
    """Updates of single variables on a packed graph.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    order : array
        The variables to update.
    walkers : int, default 1
        Number of states.
    left : float, default inf
        Seconds left. Fields are cached if that takes at most a quarter of them.
    """

    def __init__(
        self,
        graph: FactorGraph,
        order: NDArray[np.int32],
        walkers: int = 1,
        left: float = math.inf,
    ) -> None:
        self.graph, self.order, self.values = graph, order, int(graph.sizes.max())
        rows, width = room_size(graph.implicits, self.values, cached=True)
        fits = 8 * rows * width * walkers < memory.available() / 2
        self.cached = fits and walkers * caching_seconds(graph.implicits) <= _CACHING * left
        self._model, self._groups = graph.packed, prepare_fields(graph.implicits, self.cached)
        self._least = _ROUNDED * largest_range(graph)

    def walker(self, state: NDArray[Any], stream: NDArray[np.uint64]) -> _Walker:
        """Create a chain at a state, which is changed in place."""
        room = room_for(self.graph.implicits, self.values, self.cached)
        begin_fields(self._groups, state, room, self.values)
        return _Walker(state, stream, room, np.zeros(2 * self.values), np.zeros(1))

    def advance(self, walker: _Walker, beta: float, first: int, count: int) -> int:
        """Update `count` variables of the order from index `first`; return how many changed."""
        return int(
            visit(
                self._model,
                self._groups,
                walker.room,
                self.order,
                walker.x,
                walker.stream,
                walker.weights,
                walker.gain,
                beta,
                self._least,
                first,
                count,
            )
        )


def hottest_level(graph: FactorGraph, order: NDArray[np.int32], beta: NDArray[np.float64]) -> int:
    """Return the coldest of the levels up to which states forget their past in a few sweeps.

    Hotter levels are of no use to a search. At each level some states are compared with
    themselves a few sweeps later, and with each other. If that takes more than a small share of the
    time limit, a hotter level is returned.

    Parameters
    ----------
    graph : FactorGraph
        A model without hard constraints.
    order : array
        The variables to update.
    beta : array
        Ascending inverse temperatures.

    Returns
    -------
    int
        The index of the level.
    """
    until = current().spent + _FORGETTING * current().left
    if len(order) > _MOST_VARIABLES:
        return 0
    walk, rng = _Walk(graph, order, _TWINS), np.random.default_rng(0)
    states = np.tile(np.maximum(graph.evidence, 0).astype(graph.state_type), (_TWINS, 1))
    states[:, order] = rng.random((_TWINS, len(order))) * graph.sizes[order]
    walkers = [walk.walker(x, row) for x, row in zip(states, streams(0, _TWINS), strict=True)]
    for level, own in enumerate(beta.tolist()):
        for walker in walkers:
            walk.advance(walker, own, 0, _PAST * len(order))
        before = states[:, order].copy()
        for walker in walkers:
            walk.advance(walker, own, 0, _PAST * len(order))
        after = states[:, order]
        chance = float((after[0] == after[1]).mean())
        remembered = float((after == before).mean()) - chance > _FORGOTTEN * (1.0 - chance)
        if remembered or current().spent > until:
            return max(level - 1, 0)
    return len(beta) - 1


class _Cooling:
    """The inverse temperatures of a cycle, and the flip rates observed at them."""

    def __init__(self, hot: float, cold: float) -> None:
        self._hot, self._cold = hot, cold
        self._seen: dict[float, list[int]] = {}  # beta: [changes, updates]

    def beta(self, share: float) -> float:
        """Return the inverse temperature after a share of a cycle."""
        if share >= _COOLING:
            return math.inf
        return float(self._hot * (self._cold / self._hot) ** (share / _COOLING))

    def note(self, beta: float, changes: int, updates: int) -> None:
        """Record the changes among some updates."""
        seen = self._seen.setdefault(beta, [0, 0])
        seen[0] += changes
        seen[1] += updates

    def next(self) -> _Cooling:
        """Return the next cycle, between temperatures with frequent and with almost no changes."""
        finite = sorted(beta for beta in self._seen if beta < math.inf)
        rates = np.array([self._seen[beta][0] / self._seen[beta][1] for beta in finite])
        if len(finite) < 3 or not rates.any():
            return _Cooling(self._hot, self._cold)
        hot = finite[int(np.flatnonzero(rates >= _MOBILE * rates.max())[-1])]
        mobile = np.flatnonzero(rates >= _FROZEN)
        cold = finite[min(int(mobile[-1]) + 1, len(finite) - 1)] if len(mobile) else finite[-1]
        return _Cooling(hot, max(cold, 4.0 * hot))


class Annealing:
    """All chains of an annealing, which advance together; a task of the driver.

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
        Number of sweeps; None for as many as the time allows. With a number, the seed determines
        the result, because temperatures change only between sweeps.
    workers : int, default 1
        Threads of the pool.
    """

    def __init__(
        self,
        graph: FactorGraph,
        order: NDArray[np.int32],
        states: NDArray[Any],
        rows: NDArray[np.uint64],
        betas: tuple[float, float],
        rounds: int | None,
        workers: int = 1,
    ) -> None:
        self.states = states.copy()
        self._graph, self._order, self._rows, self._workers = graph, order, rows, workers
        self._cooling = _Cooling(max(betas[0], betas[1] * 1e-6), betas[1])  # geometric
        self._updates = None if rounds is None else rounds * len(order)
        self.total = None if self._updates is None else self._updates * len(states)
        self._made, self._next, self._still, self._cycle = 0, 1, 0, 0
        self._best, self._quiet = np.full(len(states), -math.inf), np.zeros(len(states), bool)
        self._cycles = 1 if rounds is None else _cycles_of(rounds)
        self._from, self._until = 0.0, 1.0  # start and end of this cycle, as shares of the search

    @property
    def rounds(self) -> int:
        """Number of sweeps of each chain so far."""
        return self._made // len(self._order)

    @property
    def settled(self) -> bool:
        """Whether no change of one variable improves any of the states."""
        return bool(self._quiet.all())

    def begin(self, pool: ThreadPoolExecutor, bar: Bar, watch: Watch) -> None:
        """Compile, and evaluate the first fields; segments run in the pool."""
        self._pool, self._bar, self._watch = pool, bar, watch
        chains = len(self.states)
        self._walk = _Walk(self._graph, self._order, chains, watch.left)
        first = self._walk.walker(self.states[0].copy(), self._rows[0])
        self._walk.advance(first, 1.0, 0, 0)
        pairs = zip(self.states[1:], self._rows[1:], strict=True)
        others = pool.map(lambda pair: self._walk.walker(pair[0].copy(), pair[1]), pairs)
        self._walkers = [first, *others]
        if self._updates is None:
            pace = self._pace(first) * -(-chains // self._workers)
            self._cycles = _cycles_of(watch.left / (pace * len(self._order)))
        self._begun, self._time = watch.spent, watch.left
        self._start_cycle()

    def _pace(self, walker: _Walker) -> float:
        """Return the seconds per update, measured at the hottest temperature."""
        begun, made, count = time.monotonic(), 0, 1
        while (spent := time.monotonic() - begun) < _TRIAL and made < len(self._order):
            self._walk.advance(walker, self._cooling.beta(0.0), made, count)
            made, count = made + count, 2 * count
        return max(spent, 1e-9) / max(made, 1)

    def _start_cycle(self) -> None:
        """Assign the next cycle its part of the remaining search."""
        self._from, self._still = self._share(), 0
        part = 2.0**self._cycle / (2.0**self._cycles - 2.0**self._cycle)
        self._until = self._from + (1.0 - self._from) * part

    def segment(self) -> str:
        """Update some variables of every chain at one temperature."""
        share = (self._share() - self._from) / max(self._until - self._from, 1e-9)
        before = time.monotonic()
        beta = self._cooling.beta(share)
        changes = sum(self._pool.map(lambda one: self._step(one, beta), self._walkers))
        pace = max(time.monotonic() - before, 1e-6) / self._next
        self._cooling.note(beta, changes, self._next * len(self._walkers))
        self._made += self._next
        self._still = self._still + self._next if changes == 0 and beta == math.inf else 0
        self._bar.advance(self._next * len(self._walkers))
        still = self._updates is None and self._still >= len(self._order)
        if still or self._share() >= self._until - 1e-9:
            self._keep_best()
            self._cycle += 1
            if self._cycle < self._cycles:
                self._cooling = self._cooling.next()
                self._start_cycle()
        self._next = self._fit(pace)
        done = self._next == 0 or self._cycle == self._cycles
        return ROUNDS if done else ""

    def _fit(self, pace: float) -> int:
        """Return the number of updates of the next segment."""
        if self._updates is not None:  # a sweep, or a part of it
            rest = len(self._order) - self._made % len(self._order)
            return int(min(max(_SEGMENT / pace, 1.0), rest, self._updates - self._made))
        seconds = min(_SEGMENT, (self._until - self._from) * self._time / _STEPS)
        return int(max(min(seconds / pace, _GROWTH * self._next, self._watch.left / pace), 1.0))

    def _step(self, walker: _Walker, beta: float) -> int:
        return self._walk.advance(walker, beta, self._made, self._next)

    def _share(self) -> float:
        """Return the completed share of the search, from 0 to 1."""
        if self._updates is not None:
            return (self._made - self._made % len(self._order)) / self._updates
        return min((self._watch.spent - self._begun) / max(self._time, 1e-9), 1.0)

    def _keep_best(self) -> None:
        """Keep each chain's state if it is better than its best one so far."""
        for k, walker in enumerate(self._walkers):
            if walker.gain[0] > self._best[k]:
                self._best[k], self.states[k] = walker.gain[0], walker.x
                self._quiet[k] = self._still >= len(self._order)

    def keep(self) -> None:
        """Do nothing, because a search has no checkpoint."""

    def rest(self) -> None:
        """Keep the states of an unfinished cycle if they are better."""
        if self._cycle < self._cycles:
            self._keep_best()


def _cycles_of(sweeps: float) -> int:
    """Return the number of cycles of a search that has time for this number of sweeps."""
    return max(1, min(_CYCLES, int(math.log2(max(sweeps, 1.0) / _LEAST_SWEEPS + 1.0))))


def climb(graph: FactorGraph, order: NDArray[np.int32], states: NDArray[Any], watch: Watch) -> bool:
    """Improve states, one variable at a time, until no change of one variable helps.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    order : array
        The variables that may change.
    states : array
        One state per row; changed in place.
    watch : Watch
        Deadline of the call; climbing may exceed it by half a second.

    Returns
    -------
    bool
        Whether there was time to finish all states.
    """
    until = time.monotonic() + max(watch.left, _BEYOND)
    walk = _Walk(graph, order, len(states), max(watch.left, _BEYOND))
    walkers = [walk.walker(state, np.zeros(4, np.uint64)) for state in states]
    still, made, count = [0] * len(walkers), 0, 1
    reached, check = np.full(len(states), -np.inf), _CHECKED * len(order)
    while climbing := [k for k, quiet in enumerate(still) if quiet < len(order)]:
        if made >= check:  # rounding could lead a walker in circles, without a gain
            check, now = made + _CHECKED * len(order), graph.log_potential(states)
            for k in np.flatnonzero(~(now > reached)).tolist():
                still[k] = len(order)
            reached = now
            continue
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
