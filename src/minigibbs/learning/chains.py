"""The chains of learning: ensembles whose parameters change, and that give statistics.

`RowChains` hold many chains in one array, each with variables of its own to visit; they are plain
Gibbs, and new parameters cost them no more than writing the weights. `GroupChains` run any
sampler by the groups of `running`, which are placed anew for new parameters and carry on.
`lockstep.py` has chains side by side, for the graphs that fit.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.ensemble import Ensemble, State
from minigibbs.errors import LearnError
from minigibbs.graph.data import Data
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.graph.parameters import Frame, Moving
from minigibbs.kernels.layout import ALIAS, CHANGES
from minigibbs.kernels.random import streams
from minigibbs.kernels.touched import DENSE_DOMAIN
from minigibbs.running.backends import BACKENDS
from minigibbs.running.backends.many import advance_many
from minigibbs.running.checkpoint.folder import restore_states
from minigibbs.running.checkpoint.saver import stacked
from minigibbs.running.group import Group
from minigibbs.running.request import start_states, unrecorded
from minigibbs.samplers import Sampler
from minigibbs.samplers.gibbs.sampler import (
    GibbsData,
    base_weights,
    sum_unary,
    touched_workspace,
)

_SHARED = 100_000  # updates, from which on threads share them
MODEL, DATA = 1, 2  # what the seeds of a fit's chains are for


class Threads:
    """Threads that share work in pieces; where there is one thread, the pieces are done in turn."""

    def __init__(self, threads: int | None) -> None:
        self.count = threads or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self.count) if self.count > 1 else None

    def __call__(
        self, work: Callable[[int], None], pieces: int, updates: int | None = None
    ) -> None:
        """Call work(piece) for each piece.

        Handing over a piece takes as long as some hundred updates. So the calling thread does all
        pieces if they make few `updates` together.
        """
        few = updates is not None and updates < _SHARED
        if self._pool is None or pieces == 1 or few:
            for piece in range(pieces):
                work(piece)
        else:
            list(self._pool.map(work, range(pieces)))

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()


class Chains(Ensemble):
    """Persistent chains whose parameters move. They record nothing, and go in whole sweeps."""

    graph: FactorGraph
    _states: NDArray[Any]  # [chain, variable]

    def __len__(self) -> int:
        return len(self._states)

    @property
    def chains(self) -> int:  # type: ignore[override]
        """How many chains there are."""
        return len(self)

    @property
    def unit(self) -> int:  # type: ignore[override]
        """Updates of a sweep."""
        return max(len(free_variables(self.graph.evidence)), 1)

    def states(self) -> NDArray[Any]:
        """The current states, to be read: [chain, variable]."""
        return self._states

    def load(self, states: NDArray[Any]) -> None:
        """Continue from these states; random numbers continue."""
        self._states[:] = states

    def advance(self, updates: int, recording: bool = False) -> None:
        """Make whole sweeps; nothing is recorded."""
        sweeps, left = divmod(updates, self.unit)
        if recording or left:
            raise ValueError(f"expected whole sweeps of {self.unit} updates, got {updates}")
        self.sweep(sweeps)

    @abstractmethod
    def sweep(self, sweeps: int, chosen: NDArray[np.integer] | None = None) -> None:
        """Sweep through the variables of every chain.

        Parameters
        ----------
        sweeps : int
            How many times.
        chosen : array [some chains], optional
            The chains to sweep, by number; by default all of them.
        """

    @abstractmethod
    def set_weights(self, values: NDArray[np.float64]) -> None:
        """Continue with other parameters.

        Parameters
        ----------
        values : array [parameter]
            As `Frame.flat` orders them.
        """

    def share(self, other: Chains) -> bool:
        """Continue with the parameters that other chains have, without laying them out again.

        Parameters
        ----------
        other : Chains
            Chains of the same graph, whose weights are set.

        Returns
        -------
        bool
            False if that is not possible, and nothing has changed.
        """
        return False

    def summed(
        self, frame: Frame, weights: NDArray[np.float64] | None, threads: Threads
    ) -> NDArray[np.float64]:
        """Sum the statistics of all chains.

        Parameters
        ----------
        frame : Frame
            What the parameters stand for.
        weights : array [chain] or None
            What each chain's statistics are multiplied by.
        threads : Threads
            What the work is distributed over.

        Returns
        -------
        array [parameter]
        """
        return frame.summed(self.states(), weights, threads)


class RowChains(Chains):
    """Plain Gibbs chains that visit the variables of their own in order."""

    def __init__(
        self,
        graph: FactorGraph,
        states: NDArray[Any],
        free: list[NDArray[np.int32]] | NDArray[np.int32],
        seed: tuple[int, ...],
        threads: Threads,
    ) -> None:
        """Chains at these states; `free` holds which variables each visits, or all of them."""
        self._states, self.threads, self.graph = np.ascontiguousarray(states), threads, graph
        self.streams = streams(seed_of(seed), len(states))
        self.moving: Moving = graph.frame.moving()
        self._model = self.moving.model
        self._data: Any = None
        if isinstance(free, list):
            ends = np.cumsum([0, *map(len, free)])
            self._order = np.concatenate([np.empty(0, np.int32), *free]).astype(np.int32)
            self._ends = np.stack([ends[:-1], ends[1:]], axis=1).astype(np.int64)
        else:
            self._order = free.astype(np.int32)
            self._ends = np.tile(np.array([0, len(free)], dtype=np.int64), (len(states), 1))
        self._space = touched_workspace(graph)
        self._large = int(graph.sizes.max()) > DENSE_DOMAIN

    def set_weights(self, values: NDArray[np.float64]) -> None:
        """Write the weights, and sum the unary factors anew."""
        self._model = self.moving.set(values)
        base, alias = (
            base_weights(self._model) if self._large else (np.empty(0), np.empty(0, ALIAS))
        )
        self._data = GibbsData(sum_unary(self._model), base, alias)

    def share(self, other: Chains) -> bool:
        """Continue with the parameters that other such chains of the same graph have taken."""
        if isinstance(other, RowChains):
            self._model, self._data = other._model, other._data
        return isinstance(other, RowChains)

    def sweep(self, sweeps: int, chosen: NDArray[np.integer] | None = None) -> None:
        """On threads, a stretch of chains each: every chain has a stream of its own."""
        if chosen is None:
            self._run(self._states, self.streams, self._ends, sweeps)
            return
        states, own = self._states[chosen], self.streams[chosen]
        self._run(states, own, self._ends[chosen], sweeps)
        self._states[chosen], self.streams[chosen] = states, own

    def _run(
        self, x: NDArray[Any], own: NDArray[np.uint64], ends: NDArray[np.int64], sweeps: int
    ) -> None:
        pieces = min(self.threads.count, len(x))
        cuts = np.linspace(0, len(x), pieces + 1).astype(int).tolist()
        space, largest = self._space, int(self.graph.sizes.max())

        def work(piece: int) -> None:
            part = slice(cuts[piece], cuts[piece + 1])
            advance_many(
                self._data,
                self._model,
                x[part],
                own[part],
                np.zeros(space.carried),
                np.zeros(2 * largest + space.numbers),
                np.zeros(space.scratch, dtype=np.int64),
                np.zeros(CHANGES + 1, dtype=np.int64),
                self._order,
                ends[part],
                sweeps,
            )

        self.threads(work, pieces)

    def state(self) -> State:
        """States and streams."""
        return {"states": self._states, "streams": self.streams}

    def restore(self, state: State) -> None:
        """Take them up."""
        refill(self._states, state["states"], self.graph)
        refill(self.streams, state["streams"])


class GroupChains(Chains):
    """Chains of any sampler: the groups of a run, which follow the parameters.

    The backend decides what is prepared and which groups there are, as in `mg.sample`. All that a
    chain carries persists where the sampler can continue with it: a temperature ladder keeps the
    state of every temperature. What a sampler finds out before a run, such as the temperatures, is
    found again at steps 1, 2, 4, 8 and so on.
    """

    def __init__(
        self,
        graph: FactorGraph,
        sampler: Sampler,
        states: NDArray[Any],
        seed: tuple[int, ...],
        threads: Threads,
        backend: str = "cpu",
    ) -> None:
        """Chains at these states."""
        self.graph, self.threads, self._sampler = graph, threads, sampler
        self._backend = BACKENDS[backend]
        self._plan = unrecorded(graph, sampler, len(states), seed_of(seed), backend)
        self._taken = 0
        self._values = self._settled = graph.frame.flat(graph.factors)
        self._states = np.ascontiguousarray(states)
        self._groups = self._placed(self._values)

    def _placed(self, values: NDArray[np.float64]) -> list[Group]:
        """Fresh groups at the present states."""
        self._plan = replace(self._plan, graph=self.graph.with_flat(values))
        data = self._backend.prepare(self._plan)
        groups = self._backend.groups(self._plan, data, lambda: self._states)
        groups[0].compile()
        return groups

    def _settle(self, values: NDArray[np.float64]) -> None:
        """Let the sampler find out about the graph with these parameters."""
        if not np.array_equal(values, self._settled):
            settled = self._sampler.settled(self.graph.with_flat(values))
            self._plan, self._settled = replace(self._plan, sampler=settled), values.copy()

    def load(self, states: NDArray[Any]) -> None:
        """Restart at these states; random streams continue."""
        super().load(states)
        first = 0
        for group in self._groups:
            group.load(self._states[first : first + group.chains])
            first += group.chains

    def set_weights(self, values: NDArray[np.float64]) -> None:
        """Prepare for the new parameters; chains keep their streams and what they can carry."""
        self._taken += 1
        if self._taken & (self._taken - 1) == 0:
            self._settle(values)
        before, self._groups = self._groups, self._placed(values)
        self._values = values.copy()
        for group, old in zip(self._groups, before, strict=True):
            group.follow(old)

    def sweep(self, sweeps: int, chosen: NDArray[np.integer] | None = None) -> None:
        """Advance a group at a time on each thread; all chains, since none are of rows."""
        assert chosen is None

        def work(piece: int) -> None:
            group = self._groups[piece]
            group.advance(sweeps * self.unit, False)
            group.warmed += sweeps * self.unit

        self.threads(work, len(self._groups))
        self._states[:] = np.concatenate([group.states() for group in self._groups])

    def state(self) -> State:
        """The groups, and the parameters that they and the sampler were prepared for."""
        groups = stacked(list(self._groups))
        return {
            "states": self._states,
            "values": self._values,
            "settled": self._settled,
            "taken": np.array([self._taken]),
            **{f"group.{name}": array for name, array in groups.items()},
        }

    def restore(self, state: State) -> None:
        """Restore what `save` returned."""
        if "values" not in state:
            raise LearnError(
                "a checkpoint of minigibbs 0.2 with a sampler cannot be resumed; learn again, with "
                "start= for the parameters so far"
            )
        refill(self._states, state["states"], self.graph)
        for name in ("values", "settled"):
            found, wanted = state[name], self._values
            if found.shape != wanted.shape or found.dtype != wanted.dtype or np.isnan(found).any():
                raise LearnError(f"a checkpoint holds {name} that are no parameters of the graph")
        taken = state["taken"]
        if taken.shape != (1,) or taken.dtype != np.int64 or taken[0] < 0:
            raise LearnError(f"a checkpoint holds {taken} as a number of steps")
        self._taken = int(taken[0])
        self._settle(state["settled"])
        self._values = state["values"].copy()
        self._groups = self._placed(self._values)
        prefix = "group."
        states = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        restore_states(self._plan, list(self._groups), states)


def data_chains(graph: FactorGraph, data: Data, seed: int, threads: Threads) -> RowChains:
    """A chain for each row, which visits what the row leaves open."""
    assert data.seen is not None
    states = data_states(graph, data, seed)
    free = [np.flatnonzero(row == 0).astype(np.int32) for row in data.seen]
    return RowChains(graph, states, free, (seed, DATA), threads)


def data_states(graph: FactorGraph, data: Data, seed: int) -> NDArray[Any]:
    """A state for each row: what was seen, and random values."""
    assert data.seen is not None
    rng = np.random.default_rng(seed_of((seed, DATA)))
    states = (rng.random(data.rows.shape) * graph.sizes).astype(graph.state_type)
    states = np.where(data.seen != 0, data.rows, states)
    if len(graph.hard):
        for row in range(len(data)):
            clamped = FactorGraph(graph.domains, graph.factors, evidence=data.evidence(row))
            states[row] = start_states(clamped, "random", 1, int(rng.integers(2**63)))[0]
    return states


def seed_of(parts: tuple[int, ...]) -> int:
    """One number for several."""
    words = np.random.SeedSequence(list(parts)).generate_state(4, np.uint64)
    return int(sum(int(word) << (64 * k) for k, word in enumerate(words)))


def refill(array: NDArray[Any], saved: NDArray[Any], graph: FactorGraph | None = None) -> None:
    """Put saved numbers in place, if they fit."""
    if saved.shape != array.shape or saved.dtype != array.dtype:
        raise LearnError(f"a checkpoint holds chains of shape {saved.shape}, not {array.shape}")
    if graph is not None and (saved >= graph.sizes).any():
        raise LearnError("a checkpoint holds a state that the graph does not have")
    if graph is None and not saved.any(axis=1).all():
        raise LearnError("a checkpoint holds a stream of zeros, which draws nothing else")
    array[:] = saved
