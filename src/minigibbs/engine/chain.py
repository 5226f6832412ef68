"""One chain: its arrays, and compiled loops that only advance it.

Pilots use these loops: short runs by which a sampler chooses settings for a graph. A pilot has a
fixed start and a fixed stream, so a graph gives the same settings on every machine. Runs have loops
that also record (`running.backends`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.dispatch import begin, begin_sweeps, carries, sweep, update
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.kernels.jit import entry
from minigibbs.kernels.layout import CHANGES, Chain


@dataclass(frozen=True)
class Workspace:
    """Sizes of a chain's arrays besides its state: persistent numbers, integer scratch, weights."""

    carried: int = 0
    scratch: int = 0
    weights: int = 2  # numbers per value
    replicas: int = 0  # further states of all variables; for samplers that sweep
    words: int = 0  # 64-bit words of packed states, instead of `replicas`
    numbers: int = 0  # scratch beyond the weights; for samplers that sweep

    def size(self, graph: FactorGraph) -> float:
        """Return the bytes of one chain of this graph, its state and weights included."""
        states = (2.0 + self.replicas) * len(graph) * graph.state_type.itemsize
        weights = self.weights * int(graph.sizes.max())
        return states + 8.0 * (self.carried + self.scratch + self.numbers + weights + self.words)

    def new_replicas(self, graph: FactorGraph) -> NDArray[Any]:
        """Return space for the further states of one chain: values, or words of bits."""
        if self.words:
            return np.zeros(self.words, np.uint64)
        return np.zeros(self.replicas * len(graph), graph.state_type)


class Carried(NamedTuple):
    """Persistent arrays of a chain besides its state, and the prepared data of their layout."""

    data: Any
    carried: NDArray[np.float64]
    replicas: NDArray[Any]


def new_chain(
    graph: FactorGraph, space: Workspace, state: NDArray[Any], stream: NDArray[np.uint64]
) -> Chain:
    """Allocate a chain. The state is copied, and the stream is shared.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    space : Workspace
        Sizes of the arrays that the sampler needs.
    state : array [variable]
        The first state.
    stream : array of 4 words
        The state of its random stream.

    Returns
    -------
    Chain
    """
    return Chain(
        x=state.copy(),  # cache lines that no other chain writes to
        stream=stream,
        carried=np.zeros(space.carried),
        weights=np.zeros(2 * int(graph.sizes.max()) + space.numbers),
        scratch=np.zeros(space.scratch, dtype=np.int64),
        tally=np.zeros(CHANGES + 1, dtype=np.int64),
    )


def pilot_stream() -> NDArray[np.uint64]:
    """Return the stream of every pilot at its beginning."""
    return np.arange(1, 5, dtype=np.uint64)


def pilot_state(graph: FactorGraph, rng: np.random.Generator | None = None) -> NDArray[Any]:
    """Return the state from which a pilot starts.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    rng : Generator, optional
        By default one with the seed 0.

    Returns
    -------
    array [variable]
        Uniform values; clamped variables have theirs.
    """
    rng = rng or np.random.default_rng(0)
    state = (rng.random(len(graph)) * graph.sizes).astype(graph.state_type)
    clamped = graph.evidence >= 0
    state[clamped] = graph.evidence[clamped]
    return state


class Pilot:
    """A chain of single-variable updates in systematic order.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    data
        What the sampler prepared for it.
    space : Workspace
        Sizes of the chain's arrays.
    state : array [variable], optional
        Its first state; by default that of `pilot_state`.
    """

    def __init__(
        self,
        graph: FactorGraph,
        data: Any,
        space: Workspace,
        state: NDArray[Any] | None = None,
    ) -> None:
        self.data, self.model = data, graph.packed
        self.order, self.made = free_variables(graph.evidence), 0
        first = pilot_state(graph) if state is None else state
        self.chain = new_chain(graph, space, first, pilot_stream())
        if carries(data):
            start_chain(data, self.model, self.chain)

    @property
    def state(self) -> NDArray[Any]:
        """The current state [variable]; not a copy."""
        return self.chain.x

    def advance(self, updates: int) -> int:
        """Make some updates; return how many of them changed the value."""
        changed = _advance(self.data, self.model, self.chain, self.order, self.made, updates)
        self.made += updates
        return int(changed)


@entry
def start_chain(data, model, chain):
    """Let the sampler initialize its auxiliary state for the chain's initial state."""
    begin(data, model, chain)


@entry
def _advance(data, model, chain, order, made, updates):
    """Make updates in systematic order, after `made` ones; return the number of changes."""
    changed = 0
    for step in range(made, made + updates):
        i = order[step % len(order)]
        value = update(data, model, chain, i)
        changed += value != chain.x[i]
        chain.x[i] = value
    return changed


@entry
def start_sweeps(data, model, chain, replicas):
    """Let the sampler initialize its auxiliary state for the chain's initial state."""
    begin_sweeps(data, model, chain, replicas)


@entry
def make_sweeps(data, model, chain, replicas, sweeps):
    """Make some sweeps of a chain that `start_sweeps` initialized."""
    for _ in range(sweeps):
        sweep(data, model, chain, replicas)
