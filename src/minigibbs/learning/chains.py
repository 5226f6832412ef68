"""The chains of learning, behind one seam: go on, take new parameters, give statistics.

`RowChains` hold many chains in one array, each with variables of its own to visit; they are plain
Gibbs, and new parameters cost them no more than writing the weights. `GroupChains` run any
sampler by the groups of `running`; what it prepares is prepared anew for new parameters.
`lockstep.py` has chains side by side, for the graphs that fit.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.graph.parameters import Frame, Moving
from minigibbs.kernels.layout import ALIAS, CHANGES
from minigibbs.kernels.random import streams
from minigibbs.kernels.touched import DENSE_DOMAIN
from minigibbs.learning.data import Data
from minigibbs.running.backends.cpu import CpuGroup, cpu_group
from minigibbs.running.backends.many import advance_many
from minigibbs.running.request import Options, start_states
from minigibbs.samplers import Sampler
from minigibbs.samplers.gibbs.sampler import (
    GibbsData,
    base_weights,
    sum_unary,
    touched_workspace,
)

MODEL, DATA = 1, 2  # what the seeds of a fit's chains are for


class Threads:
    """Threads that share work in pieces; where there is one, it is done in turn."""

    def __init__(self, threads: int | None) -> None:
        self.count = threads or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self.count) if self.count > 1 else None

    def __call__(self, work: Callable[[int], None], pieces: int) -> None:
        """Call work(piece) for each piece."""
        if self._pool is None or pieces == 1:
            for piece in range(pieces):
                work(piece)
        else:
            list(self._pool.map(work, range(pieces)))

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()


class Chains(ABC):
    """Persistent chains whose parameters move."""

    states: NDArray[Any]  # [chain, variable]

    def __len__(self) -> int:
        return len(self.states)

    def put(self, states: NDArray[Any]) -> None:
        """Go on from these states."""
        self.states[:] = states

    def summed(
        self, frame: Frame, weights: NDArray[np.float64] | None, threads: Threads
    ) -> NDArray[np.float64]:
        """The statistics of all chains, by their weights if they have any."""
        return frame.summed(self.states, weights, threads)

    @abstractmethod
    def take(self, values: NDArray[np.float64]) -> None:
        """Go on with other parameters."""

    @abstractmethod
    def advance(self, sweeps: int, chosen: NDArray[np.integer] | None = None) -> None:
        """Sweep every chain so often, or the chosen ones."""

    def share(self, other: Chains) -> bool:
        """Go on with the parameters that other chains have taken, where that is possible."""
        return False

    @abstractmethod
    def save(self) -> dict[str, NDArray[Any]]:
        """What the chains need to go on."""

    @abstractmethod
    def restore(self, saved: dict[str, NDArray[Any]]) -> None:
        """Take up what `save` gave."""


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
        self.states, self.threads, self.graph = np.ascontiguousarray(states), threads, graph
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

    def take(self, values: NDArray[np.float64]) -> None:
        """Write the weights, and sum the unary factors anew."""
        self._model = self.moving.set(values)
        base, alias = (
            base_weights(self._model) if self._large else (np.empty(0), np.empty(0, ALIAS))
        )
        self._data = GibbsData(sum_unary(self._model), base, alias)

    def share(self, other: Chains) -> bool:
        """Go on with the parameters that other such chains of the same graph have taken."""
        if isinstance(other, RowChains):
            self._model, self._data = other._model, other._data
        return isinstance(other, RowChains)

    def advance(self, sweeps: int, chosen: NDArray[np.integer] | None = None) -> None:
        """On threads, a stretch of chains each: every chain has a stream of its own."""
        if chosen is None:
            self._run(self.states, self.streams, self._ends, sweeps)
            return
        states, own = self.states[chosen], self.streams[chosen]
        self._run(states, own, self._ends[chosen], sweeps)
        self.states[chosen], self.streams[chosen] = states, own

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

    def save(self) -> dict[str, NDArray[Any]]:
        """States and streams."""
        return {"states": self.states, "streams": self.streams}

    def restore(self, saved: dict[str, NDArray[Any]]) -> None:
        """Take them up."""
        refill(self.states, saved["states"], self.graph)
        refill(self.streams, saved["streams"])


class GroupChains(Chains):
    """Chains of any sampler: what it prepares is prepared anew for new parameters."""

    def __init__(
        self,
        graph: FactorGraph,
        sampler: Sampler,
        states: NDArray[Any],
        seed: tuple[int, ...],
        threads: Threads,
    ) -> None:
        """Chains at these states."""
        self.graph, self.threads = graph, threads
        options = Options(sampler=sampler, chains=len(states), seed=0, record=())
        self._plan = options.plan(graph, 0, max(len(free_variables(graph.evidence)), 1))
        self.states = np.ascontiguousarray(states)
        self.streams = streams(seed_of(seed), len(states))
        self._unit = max(len(self._plan.order), 1)

    def take(self, values: NDArray[np.float64]) -> None:
        """Let the sampler prepare for the new numbers; chains keep their states and streams."""
        plan = replace(self._plan, graph=self.graph.with_flat(values))
        data = plan.sampler.prepare(plan.graph)
        self._groups: list[CpuGroup] = []
        for number, (state, own) in enumerate(zip(self.states, self.streams, strict=True)):
            group = cpu_group(plan, data, state, own, number)
            assert isinstance(group, CpuGroup)  # nothing asks for a chromatic scan
            group.begin()
            self._groups.append(group)
        if self._groups:
            self._groups[0].compile()

    def advance(self, sweeps: int, chosen: NDArray[np.integer] | None = None) -> None:
        """A group at a time on each thread."""
        numbers = range(len(self._groups)) if chosen is None else chosen.tolist()
        groups = [self._groups[number] for number in numbers]

        def work(piece: int) -> None:
            groups[piece].advance(sweeps * self._unit, False)

        self.threads(work, len(groups))
        for number, group in zip(numbers, groups, strict=True):
            self.states[number] = group.chain.x
            self.streams[number] = group.chain.stream

    def save(self) -> dict[str, NDArray[Any]]:
        """States and streams; what samplers carry is set anew at the next parameters."""
        return {"states": self.states, "streams": self.streams}

    def restore(self, saved: dict[str, NDArray[Any]]) -> None:
        """Take them up."""
        refill(self.states, saved["states"], self.graph)
        refill(self.streams, saved["streams"])


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
