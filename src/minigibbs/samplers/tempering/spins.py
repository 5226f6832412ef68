"""Two-valued variables and pairs: all levels in lockstep, vectorised over the lanes.

Random numbers are counted, not streamed: a key is drawn for each sweep, and lane l at the k-th
variable takes the output of splitmix64 (Steele, Lea and Flood 2014) at a place of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.simple import Simple
from minigibbs.kernels.jit import inlined, kernel
from minigibbs.kernels.lanes import counted, exponential
from minigibbs.kernels.layout import EVALUATIONS
from minigibbs.kernels.random import next_word
from minigibbs.samplers.base import register_sweep
from minigibbs.samplers.tempering.ladder import (
    begin_ladder,
    energy_at,
    exchange,
    houdayer,
    show,
    where_at,
)


class SpinLadder(NamedTuple):
    """Fields and couplings of x in {0, 1}: E = constant + sum a_i x_i + sum b_ij x_i x_j."""

    beta: NDArray[np.float64]  # [K]
    twins: int
    sweeps: int  # between two rounds of exchanges
    fixed: bool  # whether a level's lane never changes: no, a lane's level does
    hard: bool  # whether the last level has zeros that the others have not: no
    stack: int  # integers of scratch before those of Houdayer moves
    own: int  # numbers in `carried` before those of the ladder: fields and betas, a lane each
    order: NDArray[np.int32]  # the free variables
    start: NDArray[np.int64]  # [n + 1] neighbours, by rows
    target: NDArray[np.int32]
    coupling: NDArray[np.float64]  # b, as long as `target`
    field: NDArray[np.float64]  # [n] a
    constant: float


def fits(graph: FactorGraph, simple: Simple) -> bool:
    """Whether free variables have two values at the most, and all factors are pairs or unary.

    A graph with hard constraints never fits: all levels of this layout have the same zeros.
    """
    free = graph.evidence < 0
    return (
        not graph.implicits
        and not len(graph.hard)
        and not len(simple.rest)
        and bool((graph.sizes[free] <= 2).all())
        and bool(np.isfinite(simple.unary).all())
    )


def spin_ladder(
    graph: FactorGraph,
    simple: Simple,
    beta: NDArray[np.float64],
    twins: int,
    around: tuple[NDArray[np.int64], NDArray[np.int32]],
) -> SpinLadder:
    """Lay out a graph that fits."""
    first, free = graph.packed.first, graph.evidence < 0
    spin = free & (graph.sizes == 2)
    field = np.zeros(len(graph))
    field[spin] = simple.unary[first[spin] + 1] - simple.unary[first[spin]]
    kept = spin[simple.pair].all(axis=1)  # a pair with a variable of one value touches its 0
    pair, weight = simple.pair[kept], simple.pair_weight[kept]
    alone = simple.pair[~kept]
    constant = simple.constant + float(simple.unary[first[free]].sum()) + float(weight.sum())
    for (i, j), w in zip(alone.tolist(), simple.pair_weight[~kept], strict=True):
        constant += w  # where the other is 0 as well
        for k in (i, j):
            field[k] -= w if spin[k] else 0.0
    for side in (0, 1):
        np.subtract.at(field, pair[:, side], weight)
    start, target = around
    owner = np.repeat(np.arange(len(graph)), np.diff(start))
    low, high = np.minimum(owner, target), np.maximum(owner, target)
    key = pair[:, 0].astype(np.int64) * len(graph) + pair[:, 1]
    place = np.searchsorted(key, low * len(graph) + high) if len(key) else np.zeros(0, np.int64)
    inside = place < len(key)
    inside[inside] = key[place[inside]] == (low * len(graph) + high)[inside]
    coupling = np.zeros(len(target))
    coupling[inside] = 2.0 * weight[place[inside]]
    return SpinLadder(
        beta=beta,
        twins=twins,
        sweeps=1,
        fixed=False,
        hard=False,
        stack=0,
        own=2 * len(beta) * twins,
        order=np.flatnonzero(spin).astype(np.int32),
        start=start,
        target=target,
        coupling=coupling,
        field=field,
        constant=constant,
    )


@inlined
def _load_betas(data, chain, lanes):
    """Each lane's own beta, given the levels' lanes."""
    for slot in range(lanes):
        lane = int(chain.carried[where_at(data) + slot])
        chain.carried[lanes + lane] = data.beta[slot % len(data.beta)]


@inlined
def _sweep(data, chain, replicas, lanes):
    """Update every variable in turn, in all lanes."""
    fields, betas = chain.carried[:lanes], chain.carried[lanes : 2 * lanes]
    key = next_word(chain.stream)
    for k in range(len(data.order)):
        i = data.order[k]
        own = data.field[i]
        for lane in range(lanes):
            fields[lane] = own
        for place in range(data.start[i], data.start[i + 1]):
            first, weight = np.int64(data.target[place]) * lanes, data.coupling[place]
            for lane in range(lanes):
                fields[lane] += weight * np.float64(np.int64(replicas[first + lane]))
        first = i * lanes
        for lane in range(lanes):
            u = counted(key, k * lanes + lane)
            odds = exponential(-betas[lane] * fields[lane])  # of the value 0
            replicas[first + lane] = u * (1.0 + odds) < 1.0
        chain.tally[EVALUATIONS] += lanes * (data.start[i + 1] - data.start[i])


@inlined
def _energies(data, chain, replicas, lanes):
    """The energies of all lanes: each variable's own field, and those of earlier neighbours."""
    fields = chain.carried[:lanes]
    energies = chain.carried[energy_at(data) : energy_at(data) + lanes]
    for lane in range(lanes):
        energies[lane] = data.constant
    for k in range(len(data.order)):
        i = data.order[k]
        own = data.field[i]
        for lane in range(lanes):
            fields[lane] = own
        for place in range(data.start[i], data.start[i + 1]):
            j, weight = np.int64(data.target[place]), data.coupling[place]
            if j < i:
                for lane in range(lanes):
                    fields[lane] += weight * np.float64(np.int64(replicas[j * lanes + lane]))
        for lane in range(lanes):
            energies[lane] += fields[lane] * np.float64(np.int64(replicas[i * lanes + lane]))


@kernel
def spins_sweep(data, model, chain, replicas):
    """A round: a sweep on every level, Houdayer moves, exchanges."""
    lanes = len(data.beta) * data.twins
    _load_betas(data, chain, lanes)
    for _ in range(data.sweeps):
        _sweep(data, chain, replicas, lanes)
    houdayer(data, chain, replicas)
    _energies(data, chain, replicas, lanes)
    exchange(data, chain, replicas)
    show(data, chain, replicas)


@kernel
def spins_begin(data, model, chain, replicas):
    """Put the chain's state on all levels."""
    begin_ladder(data, chain, replicas)


register_sweep(SpinLadder, spins_sweep, spins_begin)
