"""Replicas for any sampler and graph: a graph of copies, each scaled by its level.

The copies are one large graph of unconnected parts, which the sampler prepares like any other
graph. Variable i of slot s has index i * slots + s, also in `replicas`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.dispatch import begin, carries, compiled_for, register_sweep, update
from minigibbs.errors import SampleError
from minigibbs.graph.domains import Domains
from minigibbs.graph.factors.implicit.copied import Copied
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import packed_rows
from minigibbs.graph.simple import Simple
from minigibbs.kernels.energy import general_value
from minigibbs.kernels.jit import chosen_by_type, inlined, kernel
from minigibbs.kernels.layout import FACTOR, SLOT, TABLE, Chain, Model
from minigibbs.samplers.base import Sampler
from minigibbs.samplers.poisson_gibbs.groups import group_energy
from minigibbs.samplers.poisson_gibbs.updates.carrying import CarryingData, StrongCarryingData
from minigibbs.samplers.tempering.ladder import (
    begin_ladder,
    broken_at,
    energy_at,
    exchange,
    read_slot,
    register_layout,
    seed_place,
    shown_slot,
    swapped_at,
)
from minigibbs.samplers.tempering.soft import Soft
from minigibbs.system import memory
from minigibbs.system.watch import current

COPY_BYTES = 72  # bytes per end of a pair and level, packed and prepared: 57 to 71 measured
COPY_SECONDS = 3e-7  # seconds per end of a pair and level: 1.6e-7 to 3.9e-7 measured


class CopyLadder(NamedTuple):
    """The inner sampler's prepared data, and the arrays from which energies are computed."""

    beta: NDArray[np.float64]  # [K]
    twins: int
    sweeps: int  # between two rounds of exchanges
    hard: bool  # whether only the last level has hard constraints
    stack: int  # the inner sampler's integers of scratch, which precede those of Houdayer moves
    own: int  # the inner sampler's numbers in `carried`, which precede those of the ladder
    order: NDArray[np.int32]  # the free variables
    place: NDArray[np.int64]  # [slots] index of a slot's first value in `replicas`
    stride: int  # distance of the values of consecutive variables
    start: NDArray[np.int64]  # [n + 1] start of each row of neighbors
    target: NDArray[np.int32]
    inner: Any
    copies: Model
    table: NDArray[np.float64]  # that of the model, with zeros softened
    unary: NDArray[np.float64]  # [sum of sizes], with zeros softened
    pair: NDArray[np.int32]  # [pairs, 2]
    pair_weight: NDArray[np.float64]
    rest: NDArray[np.int64]  # indices of general factors
    hard_rest: NDArray[np.int64]  # indices of those with hard constraints
    forbidden: NDArray[np.bool_]  # [sum of sizes] unary zeros; empty without zeros
    constant: float
    implicit: Any  # see `energies`


class Copies(FactorGraph):
    """Unconnected copies of a simplified graph, as the model of an inner sampler.

    Each copy is scaled; copies that are not `hard` have soft zeros.
    """

    def __init__(
        self,
        graph: FactorGraph,
        simple: Simple,
        soft: Soft,
        scales: NDArray[np.float64],
        hard: NDArray[np.bool_],
    ) -> None:
        number = len(scales)
        entries = 2 * len(simple.pair) + len(simple.unary) + len(graph.packed.slots)
        memory.require(
            number * COPY_BYTES * entries,
            f"tempering on {number} levels",
            "use fewer levels, or a sampler without them",
        )
        current().require(
            number * COPY_SECONDS * entries,
            f"laying out {number} temperature{'s' if number > 1 else ''} of this graph",
            "give more time, or use a sampler without temperatures",
        )
        vars(self).update(
            domains=Domains(np.repeat(graph.sizes, number)),
            factors=tuple(Copied(group, scales) for group in graph.implicits),
            evidence=np.repeat(graph.evidence, number),
        )
        packed = _packed_copies(graph, simple, soft, scales, hard, self.sizes)
        vars(self)["_packed"] = (packed, 0.0)


def _packed_copies(
    graph: FactorGraph,
    simple: Simple,
    soft: Soft,
    scales: NDArray[np.float64],
    hard: NDArray[np.bool_],
    sizes: NDArray[np.int32],
) -> Model:
    """Build the copies' arrays; tables are stored twice, first with soft zeros."""
    number, model = len(scales), graph.packed
    copy = np.arange(number)
    pair = (simple.pair[:, None, :] * number + copy[:, None]).reshape(-1, 2).astype(np.int32)
    pair_weight = (simple.pair_weight[:, None] * scales).ravel()
    unary, slots = _unary_factors(graph, soft)
    rest, rest_slots = _chosen(model, simple.rest, len(slots))
    rest["table_start"] += len(simple.unary)
    rest["low"], rest["span"] = soft.low[simple.rest], soft.span[simple.rest]
    base, base_slots = np.concatenate([unary, rest]), np.concatenate([slots, rest_slots])
    factors = np.repeat(base, number).reshape(len(base), number)
    count = (base["scope_end"] - base["scope_start"])[:, None]
    for name in ("weight", "low", "span"):
        factors[name] *= scales
    if hard.any():
        _harden(factors, hard, graph, simple, soft, len(unary))
    factors["scope_start"] = base["scope_start"][:, None] * number + copy * count
    factors["scope_end"] = factors["scope_start"] + count
    every = np.empty(len(base_slots) * number, dtype=SLOT)
    starts = np.repeat(base["scope_start"], count[:, 0])  # per slot, the start of its factor
    width = np.repeat(count[:, 0], count[:, 0])
    offset = np.arange(len(base_slots)) - starts
    for c in range(number):
        place = starts * number + c * width + offset
        every["variable"][place] = base_slots["variable"] * number + c
        every["key"][place] = base_slots["key"]
    tables = [soft.unary, soft.table, *([simple.unary, model.table] if hard.any() else [])]
    evidence = np.repeat(graph.evidence, number)
    current().check_droppable()
    rows, target, weight = packed_rows(sizes, evidence, pair, pair_weight, factors.ravel(), every)
    current().check_droppable()
    first = np.cumsum(sizes, dtype=np.int64) - sizes
    table = np.concatenate(tables)
    copies = Model(rows, first, target, weight, pair, pair_weight, factors.ravel(), every, table)
    for array in copies:
        array.setflags(write=False)
    return copies


def _harden(
    factors: NDArray[np.void],
    hard: NDArray[np.bool_],
    graph: FactorGraph,
    simple: Simple,
    soft: Soft,
    unaries: int,
) -> None:
    """Point the factors of hard copies to tables with hard zeros."""
    own = graph.packed.factors[simple.rest]
    factors["table_start"][:, hard] += len(simple.unary) + len(soft.table)
    for name in ("low", "span"):
        factors[name][unaries:, hard] = own[name][:, None]
    first = factors["table_start"][:unaries, 0]  # of the soft ones: indices in `unary`
    sizes = graph.sizes[np.searchsorted(graph.packed.first, first, side="right") - 1]
    for k, (own_first, size) in enumerate(zip(first.tolist(), sizes.tolist(), strict=True)):
        if soft.forbidden[own_first : own_first + size].any():
            row = simple.unary[own_first : own_first + size]
            factors["low"][k, hard] = row[np.isfinite(row)].min(initial=np.inf)
            factors["span"][k, hard] = np.inf


def _unary_factors(graph: FactorGraph, soft: Soft) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Build one table for each free variable whose unary factors are not constant."""
    first, sizes = graph.packed.first, graph.sizes
    low = np.minimum.reduceat(soft.unary, first)
    high = np.maximum.reduceat(soft.unary, first)
    chosen = np.flatnonzero((high > low) & (graph.evidence < 0) & (sizes > 1))
    factors = np.zeros(len(chosen), dtype=FACTOR)
    factors["weight"], factors["low"] = 1.0, low[chosen]
    factors["span"], factors["table_start"] = high[chosen] - low[chosen], first[chosen]
    factors["scope_start"] = np.arange(len(chosen))
    factors["scope_end"], factors["form"] = factors["scope_start"] + 1, TABLE
    slots = np.zeros(len(chosen), dtype=SLOT)
    slots["variable"], slots["key"] = chosen, 1
    return factors, slots


def _chosen(
    model: Model, numbers: NDArray[np.int64], offset: int
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Copy some general factors, with slots of their own that begin at `offset`."""
    factors = model.factors[numbers].copy()
    count = factors["scope_end"] - factors["scope_start"]
    end = np.cumsum(count)
    places = np.repeat(factors["scope_start"] - (end - count), count) + np.arange(count.sum())
    factors["scope_start"], factors["scope_end"] = offset + end - count, offset + end
    return factors, model.slots[places]


def check_inner(sampler: Sampler, data: Any) -> None:
    """Refuse samplers with auxiliary state between updates, unless the model's state determines it.

    Running sums are recomputed after exchanges. An estimate of the energy cannot be: its
    distribution given the state is not that of a new estimate, which would have to be weighted by
    its exponential.
    """
    if sampler.sweeps or (carries(data) and not isinstance(data, _SUMS)):
        raise SampleError(
            f"Tempering cannot exchange states of {type(sampler).__name__}, which stores more "
            "than a state from update to update; use mg.Gibbs() or mg.PoissonGibbs() inside"
        )


_SUMS = (CarryingData, StrongCarryingData)


@kernel
def _nothing(data, model, chain):
    pass


def _sum_again(data: Any, model: Any, chain: Any) -> None:
    """Recompute the inner sampler's running sums from the states; compiled code only."""
    if isinstance(data, _SUMS):
        begin(data, model, chain)


@chosen_by_type(_sum_again)
def _sums_for_type(data, model, chain):
    sums = data.instance_class in _SUMS
    return (compiled_for(data.instance_class).begin if sums else _nothing).py_func


@inlined
def _energies(data, model, chain, replicas, slots):
    """Compute the energies of all slots, with soft zeros."""
    soft = Model(
        model.rows,
        model.first,
        model.target,
        model.weight,
        model.pair,
        model.pair_weight,
        model.factors,
        model.slots,
        data.table,
    )
    energies = chain.carried[energy_at(data) : energy_at(data) + slots]
    for slot in range(slots):
        energies[slot] = data.constant
    for k in range(len(data.order)):
        i = data.order[k]
        for slot in range(slots):
            energies[slot] += data.unary[model.first[i] + replicas[i * slots + slot]]
    for k in range(len(data.pair)):  # all slots together, which are contiguous in memory
        a, b = np.int64(data.pair[k, 0]) * slots, np.int64(data.pair[k, 1]) * slots
        weight = data.pair_weight[k]
        for slot in range(slots):
            same = replicas[np.uint64(a + slot)] == replicas[np.uint64(b + slot)]
            energies[slot] += weight if same else 0.0
    for slot in range(slots):
        x, total = replicas[slot::slots], 0.0
        for k in range(len(data.rest)):
            total += general_value(soft, x, model.factors[data.rest[k]])
        energies[slot] += total + group_energy(data.implicit, x, chain.weights)


@inlined
def count_broken(data, model, chain, replicas):
    """Count the hard constraints that the states of the last soft level violate."""
    levels = len(data.beta)
    for twin in range(data.twins):
        first, broken = data.place[twin * levels + levels - 2], 0
        x = replicas[first : first + data.stride * len(chain.x) : data.stride]
        for k in range(len(data.order)):
            i = data.order[k]
            broken += data.forbidden[model.first[i] + x[i]]
        for k in range(len(data.hard_rest)):
            broken += general_value(model, x, model.factors[data.hard_rest[k]]) == -np.inf
        chain.carried[broken_at(data) + twin] = broken


@kernel
def exchange_cluster(data, chain, replicas, a, b):
    """Exchange two states on one connected component of their difference, at constant total energy.

    The component is that of a random variable, if the states differ there. Its neighbors are equal
    in both states, so each factor keeps its two values. Afterwards the states differ at the same
    variables, so the reverse move is equally likely, and no rejection is needed.
    """
    stride, free, stack = data.stride, len(data.order), chain.scratch[data.stack :]
    one, other = data.place[a], data.place[b]
    seed = np.int64(data.order[seed_place(data, chain, a, free)])
    here, there = one + seed * stride, other + seed * stride
    if replicas[here] == replicas[there]:
        return
    size, done = 1, 0
    stack[0] = seed
    replicas[here], replicas[there] = replicas[there], replicas[here]
    mark = free  # the second half of the scratch marks exchanged variables
    stack[mark + seed] = 1
    while done < size:
        i = stack[done]
        done += 1
        for place in range(data.start[i], data.start[i + 1]):
            j = np.int64(data.target[place])
            here, there = one + j * stride, other + j * stride
            if stack[mark + j] == 0 and replicas[here] != replicas[there]:
                stack[mark + j] = 1
                replicas[here], replicas[there] = replicas[there], replicas[here]
                stack[size] = j
                size += 1
    for k in range(size):
        stack[mark + stack[k]] = 0


@kernel
def exchange_clusters(data, chain, replicas):
    """Make a Houdayer move between both ladders at every level (Houdayer 2001; Zhu et al. 2015)."""
    if data.twins == 2 and len(data.order) > 0:  # `order` is empty if every variable has one value
        for k in range(len(data.beta)):
            exchange_cluster(data, chain, replicas, k, len(data.beta) + k)


@kernel
def copies_sweep(data, model, chain, replicas):
    """Make a round: a sweep of every level, Houdayer moves, exchanges."""
    slots = len(data.beta) * data.twins
    inner = Chain(
        replicas,
        chain.stream,
        chain.carried[: data.own],
        chain.weights,
        chain.scratch[: data.stack],
        chain.tally,
    )
    _sum_again(data.inner, data.copies, inner)
    for _ in range(data.sweeps):
        for k in range(len(data.order)):
            first = np.int64(data.order[k]) * slots
            for slot in range(slots):
                replicas[first + slot] = update(data.inner, data.copies, inner, first + slot)
    exchange_clusters(data, chain, replicas)
    _energies(data, model, chain, replicas, slots)
    if data.hard:
        count_broken(data, model, chain, replicas)
    exchange(data, chain, replicas)
    read_slot(data, replicas, shown_slot(data, chain), chain.x)


@kernel
def copies_begin(data, model, chain, replicas):
    """Copy the chain's state to all levels."""
    for i in range(len(chain.x)):
        for k in range(data.stride):  # places without a level, too
            replicas[i * data.stride + k] = chain.x[i]
    begin_ladder(data, chain)


@kernel
def copies_swap(data, chain, replicas):
    """Exchange the states of neighboring slots."""
    for slot in range(len(data.place) - 1):
        if chain.carried[swapped_at(data) + slot] == 1.0:
            here, there = data.place[slot], data.place[slot + 1]
            for _ in range(len(chain.x)):
                replicas[here], replicas[there] = replicas[there], replicas[here]
                here, there = here + data.stride, there + data.stride


@kernel
def copies_read(data, replicas, slot, x):
    """Write a slot's state to `x`."""
    first = data.place[slot]
    for k in range(len(data.order)):
        i = np.int64(data.order[k])
        x[i] = replicas[first + i * data.stride]


@kernel
def copies_copy(data, replicas, source, target):
    """Copy a slot's state to another."""
    here, there = data.place[source], data.place[target]
    for k in range(len(data.order)):
        own = np.int64(data.order[k]) * data.stride
        replicas[there + own] = replicas[here + own]


register_sweep(CopyLadder, copies_sweep, copies_begin)
register_layout(CopyLadder, copies_swap, copies_read, copies_copy)
