"""`maximize`: the best state that annealing and tempering find in the time there is."""

from __future__ import annotations

import math
import os
import time as clocks
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.graph.rounding import warn_of_rounding
from minigibbs.graph.simple import simplified
from minigibbs.kernels.layout import CHANGES, Chain
from minigibbs.kernels.random import streams
from minigibbs.results.maximum import Maximum
from minigibbs.running import durations
from minigibbs.running.driver import drive
from minigibbs.running.progress import Bar, Stage
from minigibbs.running.request import check_counts, entropy_of, start_states
from minigibbs.samplers.base import Workspace
from minigibbs.samplers.tempering.copies import COPY_BYTES
from minigibbs.samplers.tempering.levels import MOST_LEVELS, find_levels
from minigibbs.samplers.tempering.sampler import Tempering, first_state, is_sparse
from minigibbs.samplers.tempering.search import climb, search
from minigibbs.system import memory
from minigibbs.system.boundary import checked
from minigibbs.system.watch import Watch

_FIRST_LEVELS = 24
_WEAK = 0.05  # share of all ranges that the coldest level need not tell apart
_FINEST = 1e-3  # nor what is smaller than this share of the largest range at a variable
_EXCITED = 0.01  # variables that are then not at their best, in the whole model
_HOT = 0.1  # the first level above 0, times the largest local range
_PLACES = 200_000  # variables times levels, at the most
_LEAST_LEVELS = 8
_ANNEALED = 1 / 3  # of all rounds, in which states are copied from level to level
_TRIED = 8  # rounds after which the annealing is planned, by the time that they took
_SEGMENT = 0.2  # seconds between two looks at the clock
_GROWTH = 8  # of a segment over the one before, at the most
_SEARCH_BYTES = 4000  # the objects of a chain
ROUNDS = "rounds"  # how a search ended: all rounds were made
_EQUAL = 1e-9  # energies that differ by a smaller share are the same
_ROUNDED = 1e-12  # of the largest range: gains that may be rounding


@checked(SampleError)
def maximize(
    graph: FactorGraph,
    time: str | float = "10s",
    *,
    rounds: int | None = None,
    beta_range: Sequence[float] | None = None,
    chains: int = 4,
    seed: int | None = None,
    threads: int | None = None,
    progress: bool = True,
) -> Maximum:
    """The best state that can be found in some time: the maximum of `graph.energy`, or near it.

    Each chain is a ladder of levels, as in `mg.Tempering`, from a flat law to one that is all but
    frozen. It is annealed once, and tempered for the rest of the time; the best state of all levels
    is kept, and at the end no change of one variable can improve it. This is a search: nothing
    proves that there is no better state. `best.reached` says how many chains found this energy.

    Parameters
    ----------
    graph
        The model, conditioned on evidence or not.
    time
        "10s", "5min", "1h", or seconds.
    rounds
        How many rounds each chain makes, in place of a time: a seed then fixes the result.
    beta_range
        The hottest and the coldest level, as factors of energies; by default from 0 to one found
        from the ranges of the factors.
    chains
        Independent searches.
    seed, threads, progress
        As in `mg.sample`.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2] * 9, [mg.Ising(range(8), range(1, 9), [3.0, -3.0] * 4)])
    >>> best = mg.maximize(graph.condition({0: 1}), rounds=50, seed=1, progress=False)
    >>> best.state.tolist(), best.energy == graph.energy(best.state)
    ([1, 1, 0, 0, 1, 1, 0, 0, 1], True)
    """
    begun = clocks.monotonic()
    check_counts(chains=chains, threads=threads)
    found = best_states(
        graph,
        durations.seconds(time, "time"),
        rounds,
        beta_range,
        start="random",
        chains=chains,
        seed=entropy_of(seed),
        threads=threads,
        progress=progress,
    )
    best = int(found.energies.argmax())
    top = found.energies[best]
    warn_of_rounding(graph)
    return Maximum(
        domains=graph.domains,
        state=found.states[best],
        energy=graph.energy(found.states[best]),
        seconds=clocks.monotonic() - begun,
        rounds=found.rounds,
        chains=chains,
        reached=int(np.isclose(found.energies, top, rtol=_EQUAL, atol=_EQUAL).sum()),
        ended=found.ended,
    )


class Found(NamedTuple):
    """What a search found, by chain."""

    states: NDArray[Any]  # [chain, variable] the best state of each
    energies: NDArray[np.float64]  # [chain] theirs
    rounds: int  # that each chain made
    ended: str  # "rounds", "time", "interrupted" or "terminated"


def best_states(
    graph: FactorGraph,
    limit: float,
    rounds: int | None,
    beta_range: Sequence[float] | None,
    start: str | NDArray[Any],
    chains: int,
    seed: int,
    threads: int | None = None,
    progress: bool = False,
) -> Found:
    """Each chain's best state and its energy.

    The deadline and the signals end every phase: a search that was stopped early returns the best
    states so far, and no change of one variable improves them.
    """
    ends = None if beta_range is None else _read_range(beta_range)
    _check_rounds(rounds)
    _require_copies(graph)
    with Watch(limit if rounds is None else None) as watch:
        with Stage("storing the factors", progress):
            stored = graph.stored() if graph.implicits else graph
        each = _SEARCH_BYTES + 4 * len(stored) * stored.state_type.itemsize
        what = f"maximize: {chains:,} chains"
        memory.require(chains * each, what, "use fewer chains (chains=...)")
        states, order = start_states(stored, start, chains, seed), free_variables(stored.evidence)
        order, made, ended = order[stored.sizes[order] > 1], 0, ROUNDS
        if len(order):
            with Stage("finding temperatures", progress):
                searches = _searches(stored, states, streams(seed, chains), ends)
            work = _Searching(searches, rounds, threads or os.cpu_count() or 1)
            made, ended = work.run(watch, progress)
            states = np.array([one.best for one in searches])
            least = _ROUNDED * largest_range(stored)
            with watch.noted():
                for state in states:
                    climb(stored.packed, order, state, least)
        return Found(states, np.atleast_1d(graph.energy(states)), made, ended)


def _require_copies(graph: FactorGraph) -> None:
    """Refuse a graph whose factors do not fit into memory once per level."""
    if (graph.sizes[graph.evidence == FREE] <= 2).all():
        return  # levels of spins share their pairs
    factors = sum(map(len, graph.factors))
    memory.require(
        float(_FIRST_LEVELS) * 2 * COPY_BYTES * factors,
        f"maximize: {factors:,} factors on {_FIRST_LEVELS} levels",
        "use a graph of fewer variables or factors",
    )


def _check_rounds(rounds: Any) -> None:
    whole = isinstance(rounds, int | np.integer) and not isinstance(rounds, bool)
    if rounds is not None and (not whole or rounds < 1):
        raise SampleError(f"rounds must be an integer of at least 1, got {rounds!r}")


def _read_range(given: Any) -> tuple[float, float]:
    """Two inverse temperatures, the hotter one first."""
    try:
        hot, cold = map(float, given)
    except (TypeError, ValueError):
        hot = cold = math.nan
    if not 0 <= hot < cold < math.inf:
        raise SampleError(
            "beta_range must hold two inverse temperatures, the hottest and the coldest, such as "
            f"(0.1, 10), got {given!r}"
        )
    return hot, cold


class _Search:
    """One chain of a search."""

    def __init__(
        self,
        graph: FactorGraph,
        data: Any,
        space: Workspace,
        state: NDArray[Any],
        stream: NDArray[np.uint64],
    ) -> None:
        self.graph, self.data, self.made = graph, data, 0
        self.chain = Chain(
            x=state.copy(),
            stream=stream,
            carried=np.zeros(space.carried),
            weights=np.zeros(2 * int(graph.sizes.max())),
            scratch=np.zeros(space.scratch, dtype=np.int64),
            tally=np.zeros(CHANGES + 1, dtype=np.int64),
        )
        self.replicas = np.zeros(space.replicas * len(graph), graph.state_type)
        self.energy, self.best = np.full(1, -np.inf), state.copy()

    def advance(self, rounds: int, begin: int, each: int) -> None:
        """Make so many rounds; see `search`."""
        search(
            self.data,
            self.graph.packed,
            self.chain,
            self.replicas,
            len(self.graph.hard) > 0,
            self.energy,
            self.best,
            self.made,
            rounds,
            begin,
            each,
        )
        self.made += rounds


def _searches(
    graph: FactorGraph,
    states: NDArray[Any],
    rows: NDArray[np.uint64],
    beta_range: tuple[float, float] | None,
) -> list[_Search]:
    """The chains at their start, with levels found once for all."""
    tempering = Tempering(houdayer=is_sparse(graph))
    depth = largest_range(graph)

    def prepare(beta: NDArray[np.float64]) -> tuple[Any, Workspace]:
        data = tempering.ladder(graph, beta, soft=True, depth=depth)
        return data, tempering.workspace(graph, data)

    most = min(max(_PLACES // len(graph), _LEAST_LEVELS), MOST_LEVELS)
    first, state = _first_levels(graph, beta_range), first_state(graph)
    beta = find_levels(graph, state, prepare, beta=first, most=most)
    data = tempering.ladder(graph, beta, depth=depth)
    space = tempering.workspace(graph, data)
    what = f"maximize: {len(states):,} chains of {len(beta)} levels"
    memory.require(len(states) * space.size(graph), what, "use fewer chains (chains=...)")
    return [
        _Search(graph, data, space, state, stream)
        for state, stream in zip(states, rows, strict=True)
    ]


def _first_levels(
    graph: FactorGraph, beta_range: tuple[float, float] | None
) -> NDArray[np.float64]:
    """Levels in geometric steps, from which the search of better ones begins."""
    if beta_range is not None and beta_range[0] > 0:
        return np.geomspace(*beta_range, _FIRST_LEVELS)
    ranges = _ranges(graph)
    largest = largest_range(graph)
    small = _typical(ranges, largest)
    cold = math.log(len(graph) / _EXCITED) / small if beta_range is None else beta_range[1]
    hot = min(_HOT / largest, cold / 2)
    return np.concatenate([[0.0], np.geomspace(hot, cold, _FIRST_LEVELS - 1)])


def _typical(ranges: NDArray[np.float64], largest: float) -> float:
    """A range so small that factors of smaller ones hardly matter, all together."""
    rising = np.sort(ranges)
    weak = np.searchsorted(np.cumsum(rising), _WEAK * rising.sum())
    return max(float(rising[weak]) if len(rising) else largest, _FINEST * largest)


def _ranges(graph: FactorGraph) -> NDArray[np.float64]:
    """How far each factor's energies lie apart; without those that are all the same, and zeros."""
    simple, first = simplified(graph), graph.packed.first
    finite = np.isfinite(simple.unary)
    high = np.maximum.reduceat(np.where(finite, simple.unary, -np.inf), first)
    low = np.minimum.reduceat(np.where(finite, simple.unary, np.inf), first)
    spans = graph.packed.factors["span"][simple.rest]
    found = np.concatenate([np.abs(simple.pair_weight), high - low, spans])
    chosen: NDArray[np.float64] = found[np.isfinite(found) & (found > 0)]
    return chosen


def largest_range(graph: FactorGraph) -> float:
    """The largest range of energy at one variable, about; 1 where there is none."""
    simple, first = simplified(graph), graph.packed.first
    unary = np.where(np.isfinite(simple.unary), simple.unary, 0.0)
    local = np.maximum.reduceat(unary, first) - np.minimum.reduceat(unary, first)
    for side in (0, 1):
        np.add.at(local, simple.pair[:, side], np.abs(simple.pair_weight))
    for factor in graph.packed.factors[simple.rest]:
        scope = graph.packed.slots["variable"][factor["scope_start"] : factor["scope_end"]]
        np.add.at(local, scope, factor["span"] if np.isfinite(factor["span"]) else 0.0)
    return float(local.max(initial=0.0)) or 1.0


class _Searching:
    """All chains of a search, which advance together: a task of the driver."""

    def __init__(self, searches: list[_Search], rounds: int | None, threads: int) -> None:
        self.searches, self.rounds = searches, rounds
        self.threads = min(threads, len(searches))
        self.levels, self.updates = len(searches[0].data.beta), len(searches[0].data.order)
        self.begin, self.each = 0, _each(rounds or 0, self.levels)
        self.made, self.next = 0, 1

    def run(self, watch: Watch, progress: bool) -> tuple[int, str]:
        """Search until the rounds are made or the call must end; returns the rounds and how."""
        total = None if self.rounds is None else self.rounds * len(self.searches) * self.updates
        with (
            ThreadPoolExecutor(self.threads) as self._pool,
            Bar(total, 0, progress) as self._bar,
        ):
            self.searches[0].advance(0, self.begin, self.each)  # compiles
            self._watch = watch
            self._bar.deadline(watch.left if watch.limited else None)
            self._bar.begin()
            ended = drive(self, watch)
            return self.made, ended

    def segment(self) -> str:
        """Make some rounds of every chain; the first ones are timed, to plan the annealing."""
        before = clocks.monotonic()
        go_on = partial(_Search.advance, rounds=self.next, begin=self.begin, each=self.each)
        list(self._pool.map(go_on, self.searches))
        pace = max(clocks.monotonic() - before, 1e-6) / self.next
        self.made += self.next
        self._bar.advance(self.next * len(self.searches) * self.updates)
        left = self._watch.left / pace  # rounds
        if self.rounds is None and self.made <= _TRIED:
            self.begin, self.each = self.made, _each(left, self.levels)
        fit = max(1, int(min(_SEGMENT / pace, left, _GROWTH * self.next)))
        if self.rounds is not None:
            fit = min(fit, self.rounds - self.made)
        self.next = fit
        return "" if fit else ROUNDS

    def keep(self) -> None:
        """A search has no checkpoint."""

    def rest(self) -> None:
        """No chain runs between two segments."""


def _each(rounds: float, levels: int) -> int:
    """Rounds of annealing for each level."""
    return max(1, int(_ANNEALED * rounds / levels))
