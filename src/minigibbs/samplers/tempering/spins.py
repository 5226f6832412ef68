"""Two-valued variables and pairs: one bit per level, 64 levels per word, chromatic sweeps.

The levels of a chain share the couplings. A neighbor's word is read once for 64 levels, and its
weight is added to the fields of the levels at which the neighbor is 1. Fields are multiplied by the
levels' betas, and values are chosen as in every chromatic scan (`samplers.chromatic.spin_tiles`).

Level k of ladder t is replica r = t * stride + k. Its random bits are word r % 4 of Philox call
number r // 4. A word has W = 64 levels, or 32 where they suffice. With s = k % W,
the state is bit W / 4 * (s % 4) + s // 4 of word k // W of the ladder, since the W / 4 calls of a
word give four vectors. Two ladders of up to 32 levels share a word.

Energies are sums of 64-bit integers in units of a power of 2, so that they are bit-identical for
any order of the terms and on any device.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.dispatch import register_sweep
from minigibbs.graph.factors.potts import Potts
from minigibbs.graph.factors.unary import Unary
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.prepared import prepared
from minigibbs.graph.simple import Simple
from minigibbs.kernels.choice import RARE
from minigibbs.kernels.jit import kernel, literal
from minigibbs.kernels.lanes import VECTOR, add_where, bits_of, lanes_of
from minigibbs.kernels.layout import EVALUATIONS
from minigibbs.samplers.chromatic.spin_tiles import (
    lane_bits,
    lane_choices,
    lane_fields,
    lane_rare,
)
from minigibbs.samplers.chromatic.spins import SpinColors, spin_colors
from minigibbs.samplers.chromatic.tile import LANES, QUADS
from minigibbs.samplers.tempering.ladder import (
    ROUNDS,
    begin_ladder,
    energy_at,
    exchange,
    ladder_keys,
    read_slot,
    register_layout,
    seed_place,
    shown_slot,
    swapped_at,
)

_ENERGY_BITS = 61  # of the sum of all magnitudes: no sum overflows 64
BETWEEN_CLUSTERS = 4  # rounds between two rounds of Houdayer moves
_UPDATE = np.uint32(0)  # the draw number of updates
_WORD, _BYTE, _SUM, _NONE = np.uint32(0), np.uint8(0), np.int64(0), np.uint64(0)
_ONE = np.uint64(1)


class SpinModel(NamedTuple):
    """The updated variables, with their fields and couplings, common to all ladders."""

    spins: SpinColors
    variable: NDArray[np.int32]  # [m] the graph's variable at each place
    constant: float
    unit: float  # of the integers below
    field: NDArray[np.int64]  # [m] the energy of value 1 at each place
    pair: NDArray[np.uint32]  # [P, 2] places
    weight: NDArray[np.int64]  # [P] the energy of equal values
    raster: NDArray[np.int32]  # [m] places in the order of the graph's variables
    start: NDArray[np.int64]  # [m + 1] start of the neighbors of each place in that order
    target: NDArray[np.int32]  # places


class SpinLadder(NamedTuple):
    """A chain's ladders as bits of words [word][place]."""

    beta: NDArray[np.float64]  # [K]
    twins: int
    sweeps: int  # between two rounds of exchanges
    clusters: int  # rounds between two rounds of Houdayer moves
    hard: bool  # whether only the last level has hard constraints: false
    stack: int  # integers of scratch before those of Houdayer moves
    own: int  # numbers in `carried` before those of the ladder
    order: NDArray[np.int32]  # the updated variables
    model: SpinModel
    vectors: tuple[int, ...]  # one entry per 16 levels of a word
    words: int  # per place
    twin_words: int  # words of the first ladder; those of the second follow, unless `shift` is set
    shift: int  # offset in bits of the second ladder in a shared word, or 0
    place: NDArray[np.int64]  # [slots] 64 * word + bit
    used: NDArray[np.uint64]  # [twin_words] bits of the first ladder
    betas: NDArray[np.floating]  # [words, 64] by bit; 0 if there is no level
    quad: NDArray[np.int64]  # [words] the first Philox call


def spin_ladder(
    graph: FactorGraph, simple: Simple, beta: NDArray[np.float64], twins: int
) -> SpinLadder:
    """Lay out a graph that `ladder_in_bits` accepts."""
    model = prepared(graph, "spin model", None, lambda: _spin_model(graph, simple), most=1)
    levels, quads = len(beta), -(-len(beta) // 4)
    shared = twins == 2 and 2 * quads <= QUADS
    twin_words = 1 if shared else -(-levels // LANES)
    words = 1 if shared else twins * twin_words
    vectors = 2 if 4 * quads * (1 + shared) <= 2 * VECTOR else 4
    place = level_places(levels, twins, vectors, 4 * quads if shared else 0)
    betas = np.zeros((words, LANES), model.spins.base.dtype)
    betas.reshape(-1)[place] = np.tile(beta, twins)
    quad = QUADS * twin_words * np.arange(words // twin_words)[:, None]
    quad = (quad + VECTOR // 4 * vectors * np.arange(twin_words)).ravel()
    used = np.zeros(twin_words, np.uint64)
    for own in place[:levels].tolist():
        used[own // LANES] |= np.uint64(1 << (own % LANES))
    for array in (betas, used, place, quad):
        array.setflags(write=False)
    return SpinLadder(
        beta=beta,
        twins=twins,
        sweeps=1,
        clusters=BETWEEN_CLUSTERS,
        hard=False,
        stack=0,
        own=0,
        order=np.sort(model.variable),
        model=model,
        vectors=(0,) * vectors,
        words=words,
        twin_words=twin_words,
        shift=quads if shared else 0,
        place=place,
        used=used,
        betas=betas,
        quad=quad,
    )


def level_places(levels: int, twins: int, vectors: int, stride: int = 0) -> NDArray[np.int64]:
    """Return 64 * word + lane of each slot of a ladder.

    Parameters
    ----------
    levels, twins : int
        Levels of a ladder, and number of ladders.
    vectors : int
        Words have 16 * vectors levels.
    stride : int, default 0
        Offset of the second ladder in a shared word; 0 if each ladder has words of its own.

    Returns
    -------
    array [slot]
        Four levels with random bits of one call are a quarter of the word apart.
    """
    width = VECTOR * vectors
    own = stride or width * -(-levels // width)
    replica = (np.arange(twins)[:, None] * own + np.arange(levels)).ravel()
    within = replica % width
    place: NDArray[np.int64] = LANES * (replica // width) + width // 4 * (within % 4) + within // 4
    return place


def _spin_model(graph: FactorGraph, simple: Simple) -> SpinModel:
    """Lay out the spins that are updated: x in {0, 1} by place, energies as integers."""
    first, free = graph.packed.first, graph.evidence < 0
    spin = free & (graph.sizes == 2)
    chosen = np.flatnonzero(spin).astype(np.int32)
    number = np.cumsum(spin) - 1  # index of each variable among those
    field = np.zeros(len(graph))
    field[spin] = simple.unary[first[spin] + 1] - simple.unary[first[spin]]
    constant = simple.constant + float(simple.unary[first[free]].sum())
    pair, weight = number[simple.pair], simple.pair_weight
    groups = [Potts(pair[:, 0], pair[:, 1], weight)] if len(pair) else []
    unary = np.stack([np.zeros(len(chosen)), field[chosen]], axis=1)
    few = FactorGraph([2] * len(chosen), [*groups, Unary(np.arange(len(chosen)), unary)])
    spins = spin_colors(few)
    place = np.empty(len(chosen), np.int32)
    place[spins.variable] = np.arange(len(chosen), dtype=np.int32)
    start, target = _rows(pair, len(chosen))
    unit, (fields, weights) = _integers(field[chosen][spins.variable], weight)
    model = SpinModel(
        spins=spins,
        variable=chosen[spins.variable],
        constant=constant,
        unit=unit,
        field=fields,
        pair=np.ascontiguousarray(place[pair].astype(np.uint32).reshape(-1, 2)),
        weight=weights,
        raster=place,
        start=start,
        target=place[target],
    )
    for array in model:
        if isinstance(array, np.ndarray):
            array.setflags(write=False)
    return model


def _rows(pair: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the neighbors by row: the start of each row, and all neighbors."""
    owner = np.concatenate([pair[:, 0], pair[:, 1]])
    other = np.concatenate([pair[:, 1], pair[:, 0]])
    order = np.lexsort((other, owner))
    start = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=size))])
    return start.astype(np.int64), other[order]


def _integers(*numbers: NDArray[np.float64]) -> tuple[float, list[NDArray[np.int64]]]:
    """Convert numbers to multiples of a unit such that their magnitudes sum to less than 2**61."""
    unit = integer_unit(*numbers)
    return unit, [np.rint(some / unit).astype(np.int64) for some in numbers]


def integer_unit(*numbers: NDArray[np.float64]) -> float:
    """Return a power of 2 of which the magnitudes are multiples that sum to less than 2**61."""
    total = math.fsum(float(np.abs(some).sum()) for some in numbers)
    return 2.0 ** (math.frexp(total)[1] - _ENERGY_BITS) if total else 1.0


def spin_states(data: SpinLadder, replicas: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Return the states [variable, slot] of the updated variables, in the order of the graph."""
    words = replicas.reshape(data.words, -1)[:, data.model.raster]
    word, bit = np.divmod(data.place, LANES)
    return ((words[word] >> bit.astype(np.uint64)[:, None]) & _ONE).astype(np.uint8).T


def put_spin_states(
    data: SpinLadder, replicas: NDArray[np.uint64], states: NDArray[np.uint8]
) -> None:
    """Replace the states [variable, slot] by those that `spin_states` returned."""
    words = np.zeros((data.words, len(data.model.raster)), np.uint64)
    for slot, place in enumerate(data.place.tolist()):
        words[place // LANES] |= states[:, slot].astype(np.uint64) << np.uint64(place % LANES)
    replicas.reshape(data.words, -1)[:, data.model.raster] = words


@literal
def _update(spins, block, place, key0, key1, quad, sweep, x, betas, vectors):
    """Update one spin at the levels of a word."""
    variable = np.uint32(spins.variable[place])
    bits, field = lanes_of(LANES, _WORD), lanes_of(LANES, spins.base[0])
    new = lanes_of(LANES, _BYTE)
    lane_bits(key0, key1, quad, variable, sweep, _UPDATE, bits, vectors)
    lane_fields(spins, place, block, x, field, vectors)
    for lane in range(VECTOR * len(vectors)):
        field[lane] *= betas[lane]
    if lane_choices(field, bits, new, vectors) < RARE:
        lane_rare(field, bits, new, key0, key1, quad, variable, sweep, vectors)
    x[place] = bits_of(new, vectors)


@literal
def _sweep(data, key0, key1, sweep, replicas):
    """Update every spin at all levels."""
    spins, places = data.model.spins, len(data.model.variable)
    for word in range(data.words):
        x, betas = replicas[word * places : (word + 1) * places], data.betas[word]
        quad = data.quad[word]
        for b in range(len(spins.blocks)):
            block = spins.blocks[b]
            for k in range(block.count):
                place = np.uint64(block.first + k)
                _update(spins, block, place, key0, key1, quad, sweep, x, betas, data.vectors)


@literal
def _energies(data, chain, replicas):
    """Compute the energies of all slots."""
    model, places = data.model, len(data.model.variable)
    sums = lanes_of(LANES, _SUM)
    for word in range(data.words):
        x = replicas[word * places : (word + 1) * places]
        for lane in range(VECTOR * len(data.vectors) + np.int64(places < 0)):
            sums[lane] = 0
        for place in range(places):
            if model.field[place] != 0:
                add_where(x[place], sums, model.field[place], data.vectors)
        for k in range(len(model.weight)):
            alike = ~(x[model.pair[k, 0]] ^ x[model.pair[k, 1]])
            add_where(alike, sums, model.weight[k], data.vectors)
        for slot in range(len(data.place)):
            if data.place[slot] // LANES == word:
                total = model.unit * np.float64(sums[data.place[slot] % LANES])
                chain.carried[energy_at(data) + slot] = model.constant + total


@kernel
def _grow(model, differ, cluster):
    """Grow clusters along pairs where the ladders differ, until they are complete."""
    places, down, grown = len(model.raster), False, True
    while grown:
        grown = False
        for k in range(places):
            v = places - 1 - k if down else k
            place = model.raster[v]
            missing = differ[place] & ~cluster[place]
            if missing:
                near = np.int64(0)
                for entry in range(model.start[v], model.start[v + 1]):
                    near |= cluster[model.target[entry]]
                if near & missing:
                    cluster[place] |= near & missing
                    grown = True
        down = not down


@kernel
def _houdayer(data, chain, replicas):
    """Make a Houdayer move between both ladders at every level (Houdayer 2001; Zhu et al. 2015).

    Two states at one temperature exchange the values of one connected component of their
    difference: the sum of their energies does not change. Afterwards they differ at the same
    variables, so the reverse move is equally likely, and no rejection is needed. The clusters of 64
    levels grow together.
    """
    places, levels = len(data.model.variable), len(data.beta)
    differ, cluster = chain.scratch[:places], chain.scratch[places : 2 * places]
    shift, other = np.uint64(data.shift), data.twin_words * places
    for word in range(data.twin_words):
        used, first = data.used[word], word * places
        for place in range(places):
            x = replicas[first + place]
            twin = x >> shift if data.shift else replicas[first + other + place]
            differ[place] = np.int64((x ^ twin) & used)
            cluster[place] = 0
        for k in range(levels):
            if data.place[k] // LANES == word:
                seed = seed_place(data, chain, k, places)
                bit = _ONE << np.uint64(data.place[k] % LANES)
                cluster[seed] |= differ[seed] & np.int64(bit)
        _grow(data.model, differ, cluster)
        for place in range(places):
            change = np.uint64(cluster[place])
            replicas[first + place] ^= change
            if data.shift:
                replicas[first + place] ^= change << shift
            else:
                replicas[first + other + place] ^= change


@kernel
def spins_sweep(data, model, chain, replicas):
    """Make a round: a sweep of every level, Houdayer moves, exchanges."""
    places, rounds = len(data.model.variable), np.int64(chain.carried[data.own + ROUNDS])
    key0, key1 = ladder_keys(data, chain)
    for k in range(data.sweeps):
        _sweep(data, key0, key1, rounds * data.sweeps + k, replicas)
    chain.tally[EVALUATIONS] += data.sweeps * len(data.place) * len(data.model.spins.weight)
    if data.twins == 2 and places > 0 and rounds % data.clusters == data.clusters - 1:
        _houdayer(data, chain, replicas)
    _energies(data, chain, replicas)
    exchange(data, chain, replicas)
    read_slot(data, replicas, shown_slot(data, chain), chain.x)


@kernel
def spins_begin(data, model, chain, replicas):
    """Copy the chain's state to all levels."""
    places = len(data.model.variable)
    for place in range(places):
        word = ~_NONE if chain.x[data.model.variable[place]] else _NONE
        for k in range(data.words):
            replicas[k * places + place] = word
    begin_ladder(data, chain)


@kernel
def _bit(data, slot, word):
    """Return the bit of a slot in a word; 0 if it is in another word."""
    here = data.place[slot]
    return _ONE << np.uint64(here % LANES) if here // LANES == word else _NONE


@kernel
def spins_swap(data, chain, replicas):
    """Exchange the bits of neighboring slots: replicas r and r + 1.

    Within a word of W levels, r + 1 follows r by W / 4 bits, or precedes it by 3 W / 4 - 1 if r % 4
    is 3. The last replica of a word has bit W - 1, and the first one of the next word has bit 0.
    """
    quads = VECTOR // 4 * len(data.vectors)
    after, before, last = np.uint64(quads), np.uint64(3 * quads - 1), np.uint64(4 * quads - 1)
    places, slots = len(data.model.variable), len(data.place)
    for word in range(data.words):
        up, down, across = _NONE, _NONE, _NONE
        for slot in range(slots - 1):
            if chain.carried[swapped_at(data) + slot] == 1.0:
                low, high = _bit(data, slot, word), _bit(data, slot + 1, word)
                if low != _NONE and high == _NONE:
                    across = _ONE
                elif low < high:
                    up |= low
                else:
                    down |= high
        first = word * places
        for place in range(places):
            x = replicas[first + place]
            change = (x ^ (x >> after)) & up
            x ^= change ^ (change << after)
            change = (x ^ (x >> before)) & down
            replicas[first + place] = x ^ change ^ (change << before)
        if across:
            for place in range(places):
                here, there = first + place, first + places + place
                change = ((replicas[here] >> last) ^ replicas[there]) & _ONE
                replicas[here] ^= change << last
                replicas[there] ^= change


@kernel
def spins_read(data, replicas, slot, x):
    """Write a slot's state to `x`."""
    places = len(data.model.variable)
    first, bit = data.place[slot] // LANES * places, np.uint64(data.place[slot] % LANES)
    for place in range(places):
        x[data.model.variable[place]] = (replicas[first + place] >> bit) & _ONE


@kernel
def spins_copy(data, replicas, source, target):
    """Copy a slot's state to another."""
    places = len(data.model.variable)
    here, there = data.place[source] // LANES * places, data.place[target] // LANES * places
    from_bit, to_bit = np.uint64(data.place[source] % LANES), np.uint64(data.place[target] % LANES)
    for place in range(places):
        value = (replicas[here + place] >> from_bit) & _ONE
        kept = replicas[there + place] & ~(_ONE << to_bit)
        replicas[there + place] = kept | (value << to_bit)


register_sweep(SpinLadder, spins_sweep, spins_begin)
register_layout(SpinLadder, spins_swap, spins_read, spins_copy)
