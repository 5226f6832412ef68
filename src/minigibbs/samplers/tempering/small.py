"""Small domains with pairs and two-variable tables: one byte per level, chromatic sweeps.

The levels of a chain share the weights, as in `tempering.spins`: the values of a variable at up to
64 levels are one row of bytes, and its log weights are summed for a row at a time as in a chromatic
scan (`samplers.chromatic.small_tiles`), multiplied by the levels' betas. Rows are
[variable][word][lane], with the levels in the lanes that `level_places` gives them.

Hard constraints are soft at all levels except the last one, which is updated alone by the model's
own tables. On a GPU every level of a chain is updated by a thread of its own, or, with hard
constraints, one thread updates them all (`SerialLadder`). Random bits and sums are the same.

Energies are sums of 64-bit integers, as those of spins.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.dispatch import register_sweep
from minigibbs.graph.factors.base import Factors
from minigibbs.graph.factors.potts import Potts
from minigibbs.graph.factors.table import Table
from minigibbs.graph.factors.unary import Unary
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.prepared import prepared
from minigibbs.graph.simple import Simple, neighbors
from minigibbs.kernels.choice import FURTHER, LEAST, NEAR, power_of_2, unit_of
from minigibbs.kernels.energy import add_entry
from minigibbs.kernels.jit import kernel, literal
from minigibbs.kernels.lanes import VECTOR, add_where, equal_bits, fused, lanes_of
from minigibbs.kernels.layout import EVALUATIONS
from minigibbs.kernels.philox import chain_bits
from minigibbs.samplers.chromatic.small import SmallColors, small_colors
from minigibbs.samplers.chromatic.small_tiles import (
    ROOM,
    add_neighbor,
    begin_fields,
    choose,
    choose_finely,
)
from minigibbs.samplers.chromatic.spin_tiles import UPDATE_DRAW, lane_bits
from minigibbs.samplers.chromatic.tile import LANES, QUADS
from minigibbs.samplers.gibbs.sampler import sum_unary
from minigibbs.samplers.tempering.copies import (
    copies_begin,
    copies_copy,
    copies_read,
    copies_swap,
    count_broken,
    exchange_clusters,
)
from minigibbs.samplers.tempering.ladder import (
    ROUNDS,
    energy_at,
    exchange,
    ladder_keys,
    read_slot,
    register_layout,
    shown_slot,
)
from minigibbs.samplers.tempering.soft import Soft
from minigibbs.samplers.tempering.spins import BETWEEN_CLUSTERS, integer_unit, level_places

_WORD, _BYTE, _ZERO, _SUM = np.uint32(0), np.uint8(0), np.float32(0.0), np.int64(0)
_LOG_2 = math.log(2.0)


class SmallModel(NamedTuple):
    """The updated variables, common to all ladders; hard constraints are soft."""

    colors: SmallColors  # its targets are variables, not places
    constant: float
    unit: float  # of the integers below
    first: NDArray[np.int64]  # [n] index of each variable's first value
    field: NDArray[np.int64]  # [sum of sizes] energies of values; empty without unary factors
    pair: NDArray[np.int32]  # [P, 2] variables
    weight: NDArray[np.int64]  # [P] the energy of equal values
    scope: NDArray[np.int32]  # [T, 2] variables of a table
    cell: NDArray[np.int64]  # [T, 3] its first entry, and the steps of both values
    table: NDArray[np.int64]
    start: NDArray[np.int64]  # [n + 1] start of each row of neighbors
    target: NDArray[np.int32]


class SmallLadder(NamedTuple):
    """A chain's ladders as bytes [variable][word][lane]."""

    beta: NDArray[np.float64]  # [K]
    twins: int
    sweeps: int  # between two rounds of exchanges
    clusters: int  # rounds between two rounds of Houdayer moves
    hard: bool  # whether only the last level has hard constraints
    stack: int  # integers of scratch before those of Houdayer moves
    own: int  # numbers in `carried` before those of the ladder
    order: NDArray[np.int32]  # the updated variables
    start: NDArray[np.int64]  # [n + 1] start of each row of neighbors
    target: NDArray[np.int32]
    model: SmallModel
    forbidden: NDArray[np.bool_]  # [sum of sizes] unary zeros
    hard_rest: NDArray[np.int64]  # indices of general factors with hard constraints
    vectors: tuple[int, ...]  # one entry per 16 levels of a word
    words: int
    place: NDArray[np.int64]  # [slots] index of a slot's first value in `replicas`
    stride: int  # distance of the values of consecutive variables
    replica: NDArray[np.int64]  # [slots] number of the slot's random bits
    betas: NDArray[np.float32]  # [words, 64] by lane; 0 if there is no level
    quad: NDArray[np.int64]  # [words] the first Philox call


class SerialLadder(SmallLadder):
    """The same ladders, updated one by one: on a GPU. See `running.backends.cuda_level_kernels`."""


def small_ladder(
    graph: FactorGraph,
    simple: Simple,
    soft: Soft,
    beta: NDArray[np.float64],
    twins: int,
    depth: float | None,
    hard: bool,
    serial: bool,
) -> SmallLadder:
    """Lay out a graph that `ladder_in_lanes` accepts.

    Parameters
    ----------
    graph, simple, soft : FactorGraph, Simple, Soft
        The model, and its simplified and softened arrays.
    beta : array
        The levels; the last one has hard constraints if `hard`.
    twins : int
        Number of ladders per chain.
    depth : float or None
        See `softened`; it identifies the model's arrays.
    hard : bool
        Whether the last level has hard constraints.
    serial : bool
        Whether levels are updated one by one.
    """
    model = prepared(graph, "small model", depth, lambda: _small_model(graph, simple, soft), most=1)
    levels, own_words = len(beta), -(-len(beta) // LANES)
    vectors = 2 if levels <= 2 * VECTOR else 4
    words = own_words * twins
    lane = level_places(levels, twins, vectors)
    betas = np.zeros((words, LANES), np.float32)
    betas.reshape(-1)[lane] = np.tile(beta, twins)
    replica = (LANES * own_words * np.arange(twins)[:, None] + np.arange(levels)).ravel()
    quad = QUADS * own_words * np.arange(twins)[:, None] + VECTOR // 4 * vectors * np.arange(
        own_words
    )
    data = SmallLadder(
        beta=beta,
        twins=twins,
        sweeps=1,
        clusters=BETWEEN_CLUSTERS,
        hard=hard,
        stack=0,
        own=0,
        order=np.sort(model.colors.variable),
        start=model.start,
        target=model.target,
        model=model,
        forbidden=soft.forbidden,
        hard_rest=soft.hard,
        vectors=(0,) * vectors,
        words=words,
        place=lane,
        stride=LANES * words,
        replica=replica,
        betas=betas,
        quad=quad.ravel(),
    )
    for array in data:
        if isinstance(array, np.ndarray):
            array.setflags(write=False)
    return SerialLadder(*data) if serial else data


def _small_model(graph: FactorGraph, simple: Simple, soft: Soft) -> SmallModel:
    """Lay out the variables that are updated, with soft zeros."""
    evidence = np.where(graph.sizes == 1, np.int32(0), graph.evidence)
    few = FactorGraph(graph.sizes.tolist(), _groups(graph, simple, soft, evidence))
    few = few.condition({int(i): int(evidence[i]) for i in np.flatnonzero(evidence >= 0)})
    colors, packed = small_colors(few), few.packed
    colors = colors._replace(target=colors.variable[colors.target].astype(np.uint32))
    unary = sum_unary(packed)
    wide = packed.factors[packed.factors["scope_end"] - packed.factors["scope_start"] == 2]
    ends = packed.slots[wide["scope_start"][:, None] + np.arange(2)]
    sizes = graph.sizes[ends["variable"]].astype(np.int64).reshape(-1, 2)
    cells = sizes.prod(axis=1)
    begin = np.cumsum(cells) - cells
    table = np.empty(int(cells.sum()))
    for k in range(len(wide)):  # every table has its own cells: [first value][second value]
        keys = ends["key"][k].astype(np.int64)
        index = np.add.outer(keys[0] * np.arange(sizes[k, 0]), keys[1] * np.arange(sizes[k, 1]))
        entries = packed.table[wide["table_start"][k] + index]
        table[begin[k] : begin[k] + cells[k]] = (wide["weight"][k] * entries).ravel()
    unit = integer_unit(unary, packed.pair_weight, table)
    start, target = neighbors(graph, simple)
    return SmallModel(
        colors=colors,
        constant=simple.constant + few.offset,
        unit=unit,
        first=packed.first,
        field=np.rint(unary / unit).astype(np.int64),
        pair=packed.pair,
        weight=np.rint(packed.pair_weight / unit).astype(np.int64),
        scope=np.ascontiguousarray(ends["variable"].reshape(-1, 2).astype(np.int32)),
        cell=np.stack([begin, sizes[:, 1], np.ones_like(begin)], axis=1),
        table=np.rint(table / unit).astype(np.int64),
        start=start,
        target=target,
    )


def _groups(
    graph: FactorGraph, simple: Simple, soft: Soft, evidence: NDArray[np.int32]
) -> list[Factors]:
    """Return the simplified and softened factors: pairs, tables by shape, unary factors by size."""
    groups: list[Factors] = []
    if len(simple.pair):
        groups.append(Potts(simple.pair[:, 0], simple.pair[:, 1], simple.pair_weight))
    packed, first = graph.packed, graph.packed.first
    factors = packed.factors[simple.rest]
    ends = packed.slots[factors["scope_start"][:, None] + np.arange(2)]
    shapes = graph.sizes[ends["variable"]].reshape(-1, 2)
    for shape in np.unique(shapes, axis=0).tolist():
        some = (shapes == shape).all(axis=1)
        keys = ends["key"][some].astype(np.int64)
        index = factors["table_start"][some][:, None, None]
        index = index + keys[:, 0, None, None] * np.arange(shape[0])[:, None]
        index = index + keys[:, 1, None, None] * np.arange(shape[1])
        values = factors["weight"][some][:, None, None] * soft.table[index]
        groups.append(Table(ends["variable"][some], values))
    free = (evidence < 0) & (np.maximum.reduceat(np.abs(soft.unary), first) > 0.0)
    for size in np.unique(graph.sizes[free]).tolist():
        some = np.flatnonzero(free & (graph.sizes == size))
        groups.append(Unary(some, soft.unary[first[some, None] + np.arange(size)]))
    return groups


@literal
def _update_row(colors, block, place, key0, key1, quad, sweep, x, stride, betas, vectors):
    """Update one variable at the levels of a word."""
    bits, field = lanes_of(LANES, _WORD), lanes_of(ROOM, _ZERO)
    new, width = lanes_of(LANES, _BYTE), VECTOR * len(vectors)
    variable, size = np.uint32(colors.variable[place]), block.size
    lane_bits(key0, key1, quad, variable, sweep, UPDATE_DRAW, bits, vectors)
    begin_fields(colors, place, size, field, vectors)
    entry = np.uint64(block.entry) + (place - np.uint64(block.first))
    for _ in range(block.degree):
        near = np.int64(colors.target[entry]) * stride
        add_neighbor(colors, entry, x[near : near + LANES], size, field, vectors)
        entry += np.uint64(block.count)
    for v in range(size):
        for lane in range(width):
            own = np.uint64(v * LANES + lane)
            field[own] = fused(field[own], betas[lane], _ZERO)
    quads, first = width // 4, np.int64(variable) * stride
    if choose(size, width, field, bits, new):
        for lane in range(width):
            if new[lane] == np.uint8(255):
                replica = 4 * (quad + lane % quads) + lane // quads
                new[lane] = choose_finely(
                    size, lane, field, bits[lane], key0, key1, replica, variable, sweep
                )
    for lane in range(width):
        x[first + lane] = new[lane]


@literal
def _choose_alone(size, weights, scale, bits, key0, key1, replica, variable, sweep):
    """Choose a value in double precision, with 64 bits, by log weights in units of `scale`."""
    more = chain_bits(key0, key1, replica, variable, sweep, FURTHER)
    u = (np.float64(bits) + np.float64(more) * 2.0**-32) * 2.0**-32
    top, total, value, part = weights[0], 0.0, 0, 0.0
    for v in range(1, size):
        top = max(top, weights[v])
    for v in range(size):
        total += math.exp((weights[v] - top) * scale)
    for v in range(size - 1):
        part += math.exp((weights[v] - top) * scale)
        value += part <= u * total
    return value


@literal
def _update_serial(data, block, place, key0, key1, slot, beta, sweep, replicas, weights):
    """Update one variable at one level, with the bits and the sums of `_update_row`."""
    colors, origin, size = data.model.colors, data.place[slot], block["size"]
    variable, begin = colors.variable[place], colors.first[place]
    for v in range(size):
        weights[v] = colors.base[begin + v]
    entry = block.entry + (place - block.first)
    for _ in range(block.degree):
        near = replicas[origin + np.int64(colors.target[entry]) * data.stride]
        start = colors.start[entry]
        for v in range(size):
            if start >= 0:
                more = colors.table[start + v * colors.stride + near]
                weights[v] = np.float32(np.float32(weights[v]) + more)
            elif v == near:
                weights[v] = np.float32(np.float32(weights[v]) + colors.weight[entry])
        entry += block.count
    top = np.float32(-np.inf)
    for v in range(size):
        own = fused(np.float32(weights[v]), beta, _ZERO)
        top, weights[v] = max(top, own), own
    total = _ZERO
    for v in range(size):
        total = np.float32(total + power_of_2(max(np.float32(np.float32(weights[v]) - top), LEAST)))
        weights[size + v] = total
    replica = data.replica[slot]
    bits = chain_bits(key0, key1, replica, variable, sweep, UPDATE_DRAW)
    mark, gap, value = np.float32(unit_of(bits) * total), total, 0
    for v in range(size - 1):
        part = np.float32(weights[size + v])
        value += part <= mark
        gap = min(gap, abs(np.float32(part - mark)))
    if gap < np.float32(NEAR * total):
        value = _choose_alone(size, weights, _LOG_2, bits, key0, key1, replica, variable, sweep)
    replicas[origin + np.int64(variable) * data.stride] = value


@kernel
def _update_hard(data, model, chain, variable, key0, key1, sweep, replicas):
    """Update one variable at the levels with hard constraints, by the model's own factors."""
    levels, row = len(data.beta), model.rows[variable]
    for twin in range(data.twins):
        slot = (twin + 1) * levels - 1
        x = replicas[data.place[slot] : data.place[slot] + data.stride * len(chain.x) : data.stride]
        for v in range(row.domain):
            chain.weights[v] = 0.0
        for place in range(row.start, row.end):
            add_entry(model, x, variable, place, data.beta[levels - 1], chain.weights)
        replica = data.replica[slot]
        bits = chain_bits(key0, key1, replica, variable, sweep, UPDATE_DRAW)
        x[variable] = _choose_alone(
            row.domain, chain.weights, 1.0, bits, key0, key1, replica, variable, sweep
        )


@kernel
def _energies(data, chain, replicas):
    """Compute the energies of all slots."""
    model, stride, width = data.model, data.stride, VECTOR * len(data.vectors)
    sums = lanes_of(LANES, _SUM)
    for word in range(data.words):
        x = replicas[LANES * word :]
        for lane in range(width):
            sums[lane] = 0
        for k in range(len(data.order) if len(model.field) else 0):
            i = np.int64(data.order[k])
            for lane in range(width):
                sums[lane] += model.field[np.uint64(model.first[i] + x[i * stride + lane])]
        for k in range(len(model.weight)):
            a, b = np.int64(model.pair[k, 0]) * stride, np.int64(model.pair[k, 1]) * stride
            same = equal_bits(x[a : a + LANES], x[b : b + LANES], data.vectors)
            add_where(same, sums, model.weight[k], data.vectors)
        for k in range(len(model.scope)):
            a, b = np.int64(model.scope[k, 0]) * stride, np.int64(model.scope[k, 1]) * stride
            begin, step = model.cell[k, 0], model.cell[k, 1]
            for lane in range(width):
                row = begin + step * np.int64(x[np.uint64(a + lane)])
                sums[lane] += model.table[np.uint64(row + x[np.uint64(b + lane)])]
        for slot in range(len(data.place)):
            lane = data.place[slot] - LANES * word
            if 0 <= lane < LANES:
                total = model.unit * np.float64(sums[lane])
                chain.carried[energy_at(data) + slot] = model.constant + total


@kernel
def _energies_serial(data, chain, replicas):
    """Compute the energies of all slots, one after the other: the same integers."""
    model, stride = data.model, data.stride
    for slot in range(len(data.place)):
        origin, total = data.place[slot], np.int64(0)
        for k in range(len(data.order) if len(model.field) else 0):
            i = np.int64(data.order[k])
            total += model.field[model.first[i] + replicas[origin + i * stride]]
        for k in range(len(model.weight)):
            a, b = np.int64(model.pair[k, 0]), np.int64(model.pair[k, 1])
            if replicas[origin + a * stride] == replicas[origin + b * stride]:
                total += model.weight[k]
        for k in range(len(model.scope)):
            a, b = np.int64(model.scope[k, 0]), np.int64(model.scope[k, 1])
            row = model.cell[k, 0] + model.cell[k, 1] * np.int64(replicas[origin + a * stride])
            total += model.table[row + replicas[origin + b * stride]]
        chain.carried[energy_at(data) + slot] = model.constant + model.unit * np.float64(total)


@kernel
def _finish_round(data, model, chain, replicas):
    """Make exchanges, given the energies, and show the target state."""
    if data.hard:
        count_broken(data, model, chain, replicas)
    exchange(data, chain, replicas)
    read_slot(data, replicas, shown_slot(data, chain), chain.x)
    evaluations = data.sweeps * len(data.place) * len(data.model.colors.target)
    chain.tally[EVALUATIONS] += evaluations


@kernel
def _move_clusters(data, chain, replicas):
    """Make Houdayer moves in every round that has them."""
    rounds = np.int64(chain.carried[data.own + ROUNDS])
    if data.twins == 2 and rounds % data.clusters == data.clusters - 1:
        exchange_clusters(data, chain, replicas)


@literal
def _sweep(data, model, chain, key0, key1, sweep, replicas):
    """Update every variable at all levels."""
    colors, stride = data.model.colors, data.stride
    for b in range(len(colors.blocks)):
        block = colors.blocks[b]
        for k in range(block.count):
            place = np.uint64(block.first + k)
            for word in range(data.words):
                x, betas = replicas[LANES * word :], data.betas[word]
                quad, vectors = data.quad[word], data.vectors
                _update_row(
                    colors, block, place, key0, key1, quad, sweep, x, stride, betas, vectors
                )
            if data.hard:
                i = np.int64(colors.variable[place])
                _update_hard(data, model, chain, i, key0, key1, sweep, replicas)


@kernel
def small_sweep(data, model, chain, replicas):
    """Make a round: a sweep of every level, Houdayer moves, exchanges."""
    rounds = np.int64(chain.carried[data.own + ROUNDS])
    key0, key1 = ladder_keys(data, chain)
    for k in range(data.sweeps):
        _sweep(data, model, chain, key0, key1, rounds * data.sweeps + k, replicas)
    _move_clusters(data, chain, replicas)
    _energies(data, chain, replicas)
    _finish_round(data, model, chain, replicas)


@kernel
def serial_sweep(data, model, chain, replicas):
    """Make the same round, level by level."""
    rounds, levels = np.int64(chain.carried[data.own + ROUNDS]), len(data.beta)
    key0, key1 = ladder_keys(data, chain)
    colors = data.model.colors
    for k in range(data.sweeps):
        sweep = rounds * data.sweeps + k
        for b in range(len(colors.blocks)):
            block = colors.blocks[b]
            for place in range(block.first, block.first + block.count):
                for slot in range(len(data.place)):
                    beta = np.float32(data.beta[slot % levels])
                    _update_serial(
                        data, block, place, key0, key1, slot, beta, sweep, replicas, chain.weights
                    )
                if data.hard:
                    i = np.int64(colors.variable[place])
                    _update_hard(data, model, chain, i, key0, key1, sweep, replicas)
    _move_clusters(data, chain, replicas)
    _energies_serial(data, chain, replicas)
    _finish_round(data, model, chain, replicas)


register_sweep(SmallLadder, small_sweep, copies_begin)
register_layout(SmallLadder, copies_swap, copies_read, copies_copy)
register_sweep(SerialLadder, serial_sweep, copies_begin)
register_layout(SerialLadder, copies_swap, copies_read, copies_copy)
