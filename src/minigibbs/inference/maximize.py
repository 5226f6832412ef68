"""`maximize`: the best state that annealing and tempering find within the time limit."""

from __future__ import annotations

import math
import os
import time as clocks
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import Workspace, new_chain, pilot_state
from minigibbs.engine.driver import drive
from minigibbs.errors import SampleError, TooLargeError
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.graph.rounding import warn_of_rounding
from minigibbs.inference.annealing import Annealing, climb, hottest_level
from minigibbs.inference.device import UNFIT, DeviceSearching, default_ladders
from minigibbs.inference.ladder_search import search
from minigibbs.inference.proof import SHARE, proven_by_elimination, proven_by_search
from minigibbs.inference.rounds import ROUNDS, next_rounds
from minigibbs.inference.sliced_search import SlicedSearch, sliced_searches
from minigibbs.inference.temperatures import first_levels, hot_and_cold, largest_range
from minigibbs.kernels.random import streams
from minigibbs.results.maximum import Maximum
from minigibbs.running import durations
from minigibbs.running.backends import BACKENDS
from minigibbs.running.budget import energy_cost
from minigibbs.running.progress import Bar
from minigibbs.running.request import check_counts, entropy_of, start_states
from minigibbs.samplers.tempering.copies import COPY_BYTES, COPY_SECONDS
from minigibbs.samplers.tempering.levels import MOST_LEVELS, find_levels
from minigibbs.samplers.tempering.sampler import Tempering, is_sparse
from minigibbs.samplers.tempering.sliced_counts import count_model
from minigibbs.samplers.tempering.sliced_weights import weight_model
from minigibbs.system import memory
from minigibbs.system.boundary import checked
from minigibbs.system.caller import warn
from minigibbs.system.progress import Stage
from minigibbs.system.watch import TIME, StopError, Watch, current

_FIRST_LEVELS = 24
_PLACES = 200_000  # largest number of variables times levels
_LEAST_LEVELS = 8
_SPARSE = 6.0  # mean number of neighbors up to which clusters help a search: a cubic lattice
_HOTTER = 0.7  # the hottest level as a share of the coldest one at which states forget their past
_WORD, _OVERFULL = 64, 1.5  # levels of a word; excess over full words that is not worth more words
_SLICED_SECONDS = 1e-4  # per variable, for enough rounds of many ladders
_PREPARED = 0.5  # share of the time for finding temperatures
_ANNEALED = 1 / 3  # share of all rounds in which states are copied from level to level
_TRIED = 8  # rounds after which the annealing is planned, from the time they took
_TRIAL = 0.02  # seconds of the timed rounds
_LEAST_TRIED = 3  # timed rounds: the fastest one counts, because other processes may delay one
_NEVER = 1 << 40  # rounds
_SEARCH_BYTES = 4000  # bytes of the Python objects of a chain
_EQUAL = 1e-9  # relative difference below which energies are equal
_QUICK, _OVERRATED = 0.02, 20.0  # seconds above which energies are timed; factor of overestimates
_MOST_STORED = 200_000  # implicit pairs up to which a temperature ladder is prepared
_CHAINS = 4  # default if a number of rounds is given
_UNASKED = 0.05  # share of the time for a proof by elimination that was not asked for
_MOST_UNASKED = (
    1.0  # largest number of such seconds: a signal in them ends the call without a state
)
_TRIPS = 10  # least number of rounds per level for tempering
_STORED_SECONDS = 5e-7  # seconds to store one factor of an implicit group, and to simplify it


@checked(SampleError)
def maximize(
    graph: FactorGraph,
    max_time: str | float = "10s",
    *,
    rounds: int | None = None,
    beta_range: Sequence[float] | None = None,
    chains: int | None = None,
    seed: int | None = None,
    threads: int | None = None,
    progress: bool = True,
    prove: bool = False,
    backend: str = "cpu",
) -> Maximum:
    """Search for the state of lowest energy: the MAP state or ground state.

    Each chain is a temperature ladder, as in `mg.Tempering`, from infinite to near-zero
    temperature. It is annealed once and tempered for the rest of the time. On sparse graphs of
    spins with pairs, a chain has 8 or 16 ladders that exchange clusters. A round is a sweep of
    every temperature of all ladders. The best state of all temperatures is kept. At the end no
    change of a single variable can improve it. This is a search: it does not prove that no state is
    better.

    Graphs of low treewidth are not searched. Elimination finds their best state and proves it, if
    that takes less than a second and a twentieth of the time. With `rounds`, `beta_range` or
    `chains` the graph is always searched.

    If a ladder does not fit into the time or the memory, the graph is annealed instead. Graphs with
    very many implicit pairs are annealed, too. Annealing has one state per chain and no
    preparations, and evaluates implicit groups by their rules. It is annealed several times, each
    time longer. If time is up before each variable was compared with all of its values,
    `best.local_maximum` is False. `best.method` and `best.reason` say what was chosen and why.

    Parameters
    ----------
    graph : FactorGraph
        The model, with or without evidence.
    max_time : str or float, default "10s"
        Time limit: "10s", "5min", "1h", or seconds.
    rounds : int, optional
        Number of rounds of each chain, instead of a time limit. The seed then fixes the result.
    beta_range : (float, float), optional
        Smallest and largest inverse temperature relative to the model. By default from 0 to a value
        found from the ranges of the factors.
    chains : int, optional
        Number of independent searches. By default one per thread, and 4 if `rounds` is given. One
        long search finds better states than several short ones. On a GPU, by default as many as
        keep it busy.
    seed : int, optional
        Seed of all draws.
    threads : int, optional
        Number of searches that run at the same time. By default one per processor.
    progress : bool, default True
        Whether to show progress if stderr is a terminal.
    prove : bool, default False
        Whether to prove that no state is better (`best.bound`, `best.proven`). Elimination proves
        it if that takes less than half of the time. Otherwise toulbar2 is used if `pytoulbar2` is
        installed; it starts from the state that a search found in a third of the time.
    backend : {"cpu", "cuda"}, default "cpu"
        Where temperature ladders run. "cuda" needs spins with pairs, or small domains with pairs
        and tables of two variables, without hard constraints.

    Returns
    -------
    Maximum
        The best state found, its energy, and how many chains reached it.

    Raises
    ------
    SampleError
        If a setting is invalid, or no state of positive probability is found.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2] * 9, [mg.Ising(range(8), range(1, 9), [3.0, -3.0] * 4)])
    >>> best = mg.maximize(graph.condition({0: 1}), rounds=50, seed=1, progress=False)
    >>> best.state.tolist(), best.energy == graph.energy(best.state)
    ([1, 1, 0, 0, 1, 1, 0, 0, 1], True)
    """
    clock = Watch()
    _check_backend(backend, graph)
    check_counts(chains=1 if chains is None else chains, threads=threads)
    limit, entropy = durations.seconds(max_time, "max_time"), entropy_of(seed)
    warn_of_rounding(graph)
    free_to_choose = rounds is None and beta_range is None and chains is None
    if prove or free_to_choose:
        with Stage("looking for a proof by elimination", progress):
            allowed = SHARE * limit if prove else min(_UNASKED * limit, _MOST_UNASKED)
            certain = proven_by_elimination(graph, allowed)
        if certain is not None:
            return certain
    limit = limit / 3 if prove else limit - clock.spent
    if chains is None:
        chains = default_ladders(graph) if backend == "cuda" else _default_chains(threads, rounds)
    found = best_states(
        graph,
        limit,
        rounds,
        beta_range,
        start="random",
        chains=chains,
        seed=entropy,
        threads=threads,
        progress=progress,
        backend=backend,
    )
    best = int(found.energies.argmin())
    least = found.energies[best]
    if found.ended == TIME and not found.rounds and found.method:
        warn(
            f"mg.maximize completed no round within max_time={limit:.3g} s: its state is only a "
            "local optimum near a random state; give more time"
        )
    maximum = Maximum(
        domains=graph.domains,
        state=found.states[best],
        energy=float(least),
        seconds=clock.spent,
        rounds=found.rounds,
        chains=chains,
        reached=int(np.isclose(found.energies, least, rtol=_EQUAL, atol=_EQUAL).sum()),
        ended=found.ended,
        local_maximum=found.local,
        method=found.method,
        reason=found.reason,
    )
    if not prove:
        return maximum
    with Stage("looking for a proof with toulbar2", progress):
        return proven_by_search(graph, maximum, 2 * limit, clock)


class Found(NamedTuple):
    """Result of a search, by chain."""

    states: NDArray[Any]  # [chain, variable] best state of each chain
    energies: NDArray[np.float64]  # [chain] energies of these states, as in `graph.energy`
    rounds: int  # rounds of each chain
    ended: str  # "rounds", "time", "interrupted" or "terminated"
    local: bool  # whether no change of one variable improves any state
    method: str  # "tempering" or "annealing"; "" if nothing had to be searched
    reason: str  # reason for the method


def _default_chains(threads: int | None, rounds: int | None) -> int:
    """Return one chain per thread, or with a number of rounds the same on every machine."""
    return _CHAINS if rounds is not None else threads or os.cpu_count() or 1


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
    backend: str = "cpu",
) -> Found:
    """Return each chain's best state and its energy.

    The deadline and signals end every phase. A search that was stopped early returns the best
    states so far.
    """
    ends = None if beta_range is None else _read_range(beta_range)
    _check_rounds(rounds)
    with Watch(limit if rounds is None else None) as watch:
        each = _SEARCH_BYTES + 4 * len(graph) * graph.state_type.itemsize
        what = f"maximize: {chains:,} chains"
        memory.require(chains * each, what, "use fewer chains (chains=...)")
        with Stage("preparing", progress):
            states = start_states(graph, start, chains, seed)
            energy = _energy_seconds(graph, states[0], chains)
        order = free_variables(graph.evidence)
        order, made, ended, local = order[graph.sizes[order] > 1], 0, ROUNDS, True
        method, reason = "", "every variable has one possible value"
        if len(order):
            rows, workers = streams(seed, chains), min(threads or os.cpu_count() or 1, chains)
            work: _Searching | Annealing | DeviceSearching
            try:
                with (
                    Stage("finding temperatures", progress),
                    Watch(_PREPARED * watch.left) as preparing,
                    preparing.droppable(),
                ):
                    if backend == "cuda":
                        _require_layout(graph)
                        ladder = _ladder(graph, ends, chains, backend)
                        work = DeviceSearching(graph, ladder.data, states, seed, rounds)
                    else:
                        work = _Searching(_searches(graph, ends, states, rows), rounds)
                method, reason = "tempering", work.enough_rounds(watch, workers)
            except (TooLargeError, StopError) as error:  # a ladder does not fit
                if watch.signal or backend == "cuda":
                    raise
                betas = ends or hot_and_cold(graph)
                work = Annealing(graph, order, states, rows, betas, rounds, workers)
                late = isinstance(error, StopError)
                told = "temperatures were not found in time" if late else str(error)
                method, reason = "annealing", told.partition(";")[0].removeprefix("maximize: ")
            with (
                Watch(watch.left - chains * energy) as own,
                ThreadPoolExecutor(workers) as pool,
                Bar(work.total, 0, progress) as bar,
            ):
                work.begin(pool, bar, own)
                bar.deadline(own.left if own.limited else None)
                bar.begin()
                ended = drive(work, own)
                states, made = work.states, work.rounds
                with own.noted():
                    settled = isinstance(work, Annealing) and work.settled
                    local = settled or climb(graph, order, states, own)
        with watch.noted():
            energies = np.array([graph.energy(state) for state in states])
        return Found(states, energies, made, ended, local, method, reason)


def _energy_seconds(graph: FactorGraph, state: NDArray[Any], chains: int) -> float:
    """Return the seconds of an energy, timed if that may be long; reject what does not fit."""
    predicted, what = energy_cost(graph) * 1e-9, f"maximize: energies of {chains:,} chains"
    way_out = "give more time, or use fewer chains (chains=...)"
    if predicted > _QUICK:
        current().require(predicted / _OVERRATED, what, way_out)
        begun = current().spent
        with suppress(StopError), Watch(current().left / 2) as trial, trial.droppable():
            graph.log_potential(state)
        if current().signal:
            raise StopError(current().signal)
        predicted = current().spent - begun
        current().require(chains * predicted, what, way_out)
    return predicted


def _require_layout(graph: FactorGraph) -> None:
    """Reject a graph whose factors do not fit into memory or time once per temperature."""
    pairs = sum(map(len, graph.implicits))
    if pairs > _MOST_STORED:
        raise TooLargeError(f"maximize: {pairs:,} implicit pairs are evaluated, not stored")
    factors, copied = sum(map(len, graph.factors)), 1.0  # levels of spins share their pairs
    if (graph.sizes[graph.evidence == FREE] > 2).any():
        copied = 2.0 * _FIRST_LEVELS
    what = f"maximize: {factors:,} factors on {_FIRST_LEVELS} levels"
    way_out = "use a graph of fewer variables or factors"
    memory.require(copied * COPY_BYTES * factors, what, way_out)
    current().require((copied * COPY_SECONDS + _STORED_SECONDS) * factors, what, way_out)


def _check_backend(backend: Any, graph: FactorGraph) -> None:
    """Reject an unknown backend, and a GPU that is missing or cannot search this graph."""
    if backend not in ("cpu", "cuda"):
        raise SampleError(f"backend must be cpu or cuda, got {backend!r}")
    if backend == "cuda":
        BACKENDS["cuda"].check()
        if graph.implicits or len(graph.hard):
            raise SampleError(UNFIT)


def _check_rounds(rounds: Any) -> None:
    whole = isinstance(rounds, int | np.integer) and not isinstance(rounds, bool)
    if rounds is not None and (not whole or not 1 <= rounds < _NEVER):
        raise SampleError(f"rounds must be an integer of at least 1 and below 2^40, got {rounds!r}")


def _read_range(given: Any) -> tuple[float, float]:
    """Return two inverse temperatures, the hotter one first."""
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
        self.levels, self.updates, self.ladders = len(data.beta), len(data.order), data.twins
        self.chain = new_chain(graph, space, state, stream)
        self.replicas = space.new_replicas(graph)
        self.energy, self.best, self.trial = np.full(1, -np.inf), state.copy(), state.copy()

    def advance(self, rounds: int, begin: int, annealed: int) -> None:
        """Run some rounds; annealing takes `annealed` rounds after round `begin`."""
        search(
            self.data,
            self.graph.packed,
            self.chain,
            self.replicas,
            len(self.graph.hard) > 0,
            self.energy,
            self.best,
            self.trial,
            self.made,
            rounds,
            begin,
            max(1, annealed // self.levels),
        )
        self.made += rounds


class _Ladder(NamedTuple):
    """The ladder of every chain."""

    graph: FactorGraph  # without implicit groups
    data: Any
    space: Workspace


def _ladder(
    graph: FactorGraph, beta_range: tuple[float, float] | None, chains: int, backend: str
) -> _Ladder:
    """Return the ladder of all chains, with levels found by short runs."""
    graph = graph.stored() if graph.implicits else graph
    tempering = Tempering(houdayer=is_sparse(graph, _SPARSE))
    depth = largest_range(graph)

    def prepare(beta: NDArray[np.float64]) -> tuple[Any, Workspace]:
        current().check()
        data = tempering.ladder(graph, beta, soft=True, depth=depth)
        current().check()
        return data, tempering.workspace(graph, data)

    most = min(max(_PLACES // len(graph), _LEAST_LEVELS), MOST_LEVELS)
    first, state = first_levels(graph, beta_range, _FIRST_LEVELS), pilot_state(graph)
    beta = find_levels(graph, state, prepare, beta=first, most=most)
    current().check()
    if beta_range is None and not len(graph.hard):
        order = free_variables(graph.evidence)
        hot = _HOTTER * beta[hottest_level(graph, order, beta)]
        beta = beta[min(int(np.searchsorted(beta, hot)), max(len(beta) - _LEAST_LEVELS, 0)) :]
    beta = _filled(beta, _WORD // (2 if tempering.houdayer else 1))
    data = tempering.ladder(graph, beta, depth=depth, serial=backend == "cuda")
    space = tempering.workspace(graph, data)
    if backend == "cpu":
        what = f"maximize: {chains:,} chains of {len(beta)} levels"
        memory.require(chains * space.size(graph), what, "use fewer chains (chains=...)")
    return _Ladder(graph, data, space)


def _searches(
    graph: FactorGraph,
    ends: tuple[float, float] | None,
    states: NDArray[Any],
    rows: NDArray[np.uint64],
) -> list[_Search] | list[SlicedSearch]:
    """Return the chains in their initial states."""
    _require_layout(graph)
    model: Any = None
    if ends is None and _SLICED_SECONDS * len(graph) < current().left:
        model = count_model(graph)
        if model is None and is_sparse(graph, _SPARSE):
            model = weight_model(graph)
    if model is not None:
        return sliced_searches(model, states, rows)
    ladder = _ladder(graph, ends, len(states), "cpu")
    return [_Search(*ladder, *pair) for pair in zip(states, rows, strict=True)]


def _filled(beta: NDArray[np.float64], word: int) -> NDArray[np.float64]:
    """Return fewer levels between the same ends if they exceed the levels of a word by little."""
    if not word < len(beta) <= _OVERFULL * word:
        return beta
    levels = np.linspace(0, len(beta) - 1, word)
    fewer: NDArray[np.float64] = np.interp(levels, np.arange(len(beta)), beta)
    return fewer


class _Searching:
    """All chains of a search by tempering, which advance together; a task of the driver."""

    def __init__(self, searches: list[_Search] | list[SlicedSearch], rounds: int | None) -> None:
        self.searches, self._wanted = searches, rounds
        self.levels, self.updates = searches[0].levels, searches[0].updates
        self._begin, self._annealed = 0, _annealed(rounds or 0)
        self.rounds, self._next = 0, 1
        self.total = None if rounds is None else rounds * len(searches) * self.updates

    @property
    def states(self) -> NDArray[Any]:
        """The best state of each chain so far."""
        return np.array([one.best for one in self.searches])

    def enough_rounds(self, watch: Watch, workers: int) -> str:
        """Return a note that enough rounds fit into the time, from a short trial.

        Raises `TooLargeError` if states could hardly travel between the ends of the ladder.
        """
        chains, ladders = len(self.searches), self.searches[0].ladders
        shape = f"{self.levels} temperatures" + (f", {ladders} ladders" if ladders > 1 else "")
        if self._wanted is not None or not watch.limited:
            return f"{shape}, as many rounds as given"
        self.searches[0].advance(0, _NEVER, 1)
        begun, pace, made = watch.spent, math.inf, 0
        while (watch.spent - begun < _TRIAL and made < _TRIED) or made < _LEAST_TRIED:
            before = watch.spent
            self.searches[0].advance(1, _NEVER, 1)
            pace, made = min(pace, watch.spent - before), made + 1
        self.searches[0].made = 0
        fit = max(watch.left, 0.0) / (max(pace, 1e-9) * -(-chains // workers))
        if fit < _TRIPS * self.levels:
            raise TooLargeError(
                f"maximize: {shape} would make {fit:,.0f} rounds in the time, too few for states "
                "to wander between them"
            )
        return f"{shape} fit into the time"

    def begin(self, pool: ThreadPoolExecutor, bar: Bar, watch: Watch) -> None:
        """Compile; segments run in the pool."""
        self._pool, self._bar, self._watch = pool, bar, watch
        self.searches[0].advance(0, self._begin, self._annealed)

    def segment(self) -> str:
        """Run some rounds of every chain; the first ones are timed to plan the annealing."""
        before = clocks.monotonic()
        list(self._pool.map(self._advance, self.searches))
        pace = max(clocks.monotonic() - before, 1e-6) / self._next
        self.rounds += self._next
        self._bar.advance(self._next * len(self.searches) * self.updates)
        left = self._watch.left / pace  # rounds
        if self._wanted is None and self.rounds <= _TRIED:
            self._begin, self._annealed = self.rounds, _annealed(left)
        rest = None if self._wanted is None else self._wanted - self.rounds
        self._next = next_rounds(pace, self._next, left, rest)
        return "" if self._next else ROUNDS

    def _advance(self, search: _Search | SlicedSearch) -> None:
        search.advance(self._next, self._begin, self._annealed)

    def keep(self) -> None:
        """Do nothing, because a search has no checkpoint."""

    def rest(self) -> None:
        """Do nothing, because no chain runs between two segments."""


def _annealed(rounds: float) -> int:
    """Return the rounds of annealing."""
    return int(_ANNEALED * rounds)
