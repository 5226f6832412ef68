"""Choice of the chains of a fit."""

from __future__ import annotations

from minigibbs.graph.data import Data
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.learning.chains import (
    MODEL,
    Chains,
    GroupChains,
    RowChains,
    Threads,
    data_chains,
)
from minigibbs.learning.device import DeviceChains
from minigibbs.learning.lockstep import (
    LockstepChains,
    lockstep_rows,
)
from minigibbs.running.request import start_states
from minigibbs.samplers import Sampler
from minigibbs.samplers.chromatic.first import first_states
from minigibbs.samplers.registry import TOGETHER, learned_layout
from minigibbs.system import memory

_CHAIN_BYTES = 64  # streams and places
_GROUP_BYTES = 10_000  # Python objects of a chain with a sampler


def model_chains(
    graph: FactorGraph,
    sampler: Sampler | None,
    chains: int,
    seed: int,
    threads: Threads,
    backend: str = "cpu",
) -> Chains:
    """Create chains of the model at random states; vectorized if possible without a sampler."""
    each = 4 * len(graph) * graph.state_type.itemsize + _CHAIN_BYTES
    each += _GROUP_BYTES if sampler is not None else 0
    what = f"learning with {chains:,} chains of {len(graph):,} variables"
    memory.require(chains * each, what, "use fewer chains (chains=...)")
    if backend == "cuda":
        if sampler is None:
            return DeviceChains(graph, first_states(graph, chains, seed), (seed, MODEL))
        states = start_states(graph, "random", chains, seed)
        return GroupChains(graph, sampler, states, (seed, MODEL), threads, backend)
    if sampler is None and chains >= TOGETHER and learned_layout(graph) is not None:
        return LockstepChains(graph, first_states(graph, chains, seed), (seed, MODEL), threads)
    states = start_states(graph, "random", chains, seed)
    if sampler is not None:
        return GroupChains(graph, sampler, states, (seed, MODEL), threads)
    return RowChains(graph, states, free_variables(graph.evidence), (seed, MODEL), threads)


def row_chains(graph: FactorGraph, data: Data, seed: int, threads: Threads) -> Chains:
    """Create chains of rows with missing values; vectorized if possible."""
    side_by_side = lockstep_rows(graph, data, seed, threads)
    return data_chains(graph, data, seed, threads) if side_by_side is None else side_by_side
