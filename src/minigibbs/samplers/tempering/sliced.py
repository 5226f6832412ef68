"""Spins whose couplings have equal strengths: many ladders per word, with bit-sliced arithmetic.

The energy of such a model is a number of unsatisfied pairs, and the probability to flip a spin
depends on a small count: how many of its pairs are unsatisfied. Counts, random numbers and
comparisons are bit-sliced (`kernels.slices`), so that one instruction serves 512 replicas. This is
multispin coding, with independent random numbers for all replicas.

Level k of ladder b is bit b of element k of a variable's row. An element has 8, 16 or 32 bits:
one per ladder. Updates are those of Metropolis, variable by variable. Probabilities of flips are
rounded to multiples of 2^-16. That suffices for a search, but not for samples.

The ladders exchange clusters at equal temperatures (Houdayer 2001; Zhu, Ochoa and Katzgraber 2015),
between pairs of ladders that are drawn anew in each round.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.simple import simplified
from minigibbs.kernels.jit import entry, kernel
from minigibbs.kernels.lanes import lanes_of
from minigibbs.kernels.random import below, next_word, uniform
from minigibbs.kernels.slices import (
    CHANCE_BITS,
    SUM_PLANES,
    WORDS,
    add_counts,
    add_unlike,
    flip_both,
    flip_by_chance,
    grow,
    join,
    unlike_next,
)

MOST_NEIGHBORS = 16
_EQUAL = 1e-12  # relative difference of equal strengths
_SEEDS = 64  # variables that are tried as the first one of a cluster
_STACK = 64  # words of the counts: eight planes
_SUM = (0,) * 7  # counts up to 14, and so up to 15, in four planes
_MOST_AT_ONCE = (1 << SUM_PLANES) - 1
_NONE, _ALL, _ONE = np.uint64(0), np.uint64(2**64 - 1), np.uint64(1)


class SlicedModel(NamedTuple):
    """The updated variables and their pairs, common to all ladders."""

    order: NDArray[np.int32]  # [n] the graph's variables
    strength: float  # of every pair: what a log-potential loses where it is unsatisfied
    start: NDArray[np.int64]  # [n + 1] start of the neighbors of each variable
    target: NDArray[np.int64]  # neighbors
    flip: NDArray[np.uint64]  # all ones where equal values are unsatisfied
    pair: NDArray[np.int64]  # [P, 2]
    pair_flip: NDArray[np.uint64]  # [P]
    halves: tuple[int, ...]  # its length is half of the largest number of neighbors, rounded up
    length: tuple[int, ...]  # its length is the number of planes of a count of pairs or variables


class SlicedLadder(NamedTuple):
    """A chain: its temperatures and the states of all ladders."""

    model: SlicedModel
    ladders: int  # bits of an element
    width: int  # words per variable
    element: np.unsignedinteger  # a number of the type of an element
    beta: NDArray[np.float64]  # [K] times the strength
    chances: NDArray[np.uint64]  # [row, bit, width] see `set_temperatures`
    x: NDArray[np.uint64]  # [n + 1, width] the last row has no meaning
    streams: NDArray[np.uint64]  # [2, width]
    sums: NDArray[np.uint64]  # [plane, width]
    unsatisfied: NDArray[np.int32]  # [K * ladders]
    differ: NDArray[np.uint64]  # [n + 1, width] the last row is zero
    cluster: NDArray[np.uint64]  # [n, width]
    chosen: NDArray[np.uint64]  # [width]
    change: NDArray[np.uint64]  # [1 vector + width]
    lower: NDArray[
        np.uint64
    ]  # [log2(ladders)] words of the ladders with this bit of their number 0
    accepted: NDArray[np.float64]  # [K - 1] sums of acceptance probabilities of exchanges
    stream: NDArray[np.uint64]  # [4]
    least: NDArray[np.int64]  # [1] the smallest number of unsatisfied pairs so far
    best: NDArray[np.uint8]  # [n] a state that has it


def sliced_model(graph: FactorGraph) -> SlicedModel | None:
    """Lay out a graph of spins without fields whose pairs have one strength; None for others."""
    if graph.implicits or len(graph.hard):
        return None
    simple, free = simplified(graph), graph.evidence < 0
    if len(simple.rest) or not len(simple.pair):
        return None
    if int(graph.sizes[free].max(initial=1)) != 2 or not np.isfinite(simple.unary).all():
        return None
    strength = np.abs(simple.pair_weight)
    spin = free & (graph.sizes == 2)
    first = graph.packed.first[spin]
    field = np.abs(simple.unary[first + 1] - simple.unary[first]).max(initial=0.0)
    most = float(strength.max())
    if max(most - float(strength.min()), float(field)) > _EQUAL * most:
        return None
    pair = (np.cumsum(spin) - 1)[simple.pair].astype(np.int64)
    n = int(spin.sum())
    degree = np.bincount(pair.ravel(), minlength=n)
    if degree.max() > MOST_NEIGHBORS:
        return None
    flip = np.where(simple.pair_weight > 0, _NONE, _ALL)
    owner, other = np.concatenate([pair, pair[:, ::-1]]).T
    order = np.lexsort((other, owner))
    return SlicedModel(
        order=np.flatnonzero(spin).astype(np.int32),
        strength=most,
        start=np.concatenate([[0], np.cumsum(degree)]),
        target=other[order],
        flip=np.tile(flip, 2)[order],
        pair=pair,
        pair_flip=flip,
        halves=(0,) * -(-int(degree.max()) // 2),
        length=(0,) * max(n, len(pair)).bit_length(),
    )


def sliced_bytes(model: SlicedModel, levels: int, ladders: int) -> int:
    """Return the memory of a chain in bytes."""
    rows = 3 * (len(model.order) + 1) + (2 * MOST_NEIGHBORS + 2) * CHANCE_BITS
    return rows * levels * ladders // 8


def sliced_ladder(
    model: SlicedModel, levels: int, ladders: int, stream: NDArray[np.uint64]
) -> SlicedLadder:
    """Return random states of all ladders; all temperatures are infinite.

    Parameters
    ----------
    model : SlicedModel
        The model.
    levels, ladders : int
        8, 16 or 32 ladders, and levels that fill vectors of 512 bits.
    stream : array
        The random stream of the chain; it advances.
    """
    n, width = len(model.order), levels * ladders // 64
    element = np.dtype(f"u{ladders // 8}")
    bits = np.arange(ladders)
    lower = [
        sum(1 << bit for bit in bits.tolist() if not bit >> k & 1)
        for k in range(ladders.bit_length() - 1)
    ]
    data = SlicedLadder(
        model=model,
        ladders=ladders,
        width=width,
        element=element.type(0),
        beta=np.zeros(levels),
        chances=np.empty(_rows(model) * CHANCE_BITS * width, np.uint64),
        x=np.empty((n + 1) * width, np.uint64),
        streams=np.empty(2 * width, np.uint64),
        sums=np.zeros(len(model.length) * width, np.uint64),
        unsatisfied=np.zeros(levels * ladders, np.int32),
        differ=np.zeros((n + 1) * width, np.uint64),
        cluster=np.zeros(n * width, np.uint64),
        chosen=np.zeros(width, np.uint64),
        change=np.zeros(WORDS + width, np.uint64),
        lower=np.repeat(np.array(lower, element), 64 // ladders).view(np.uint64),
        accepted=np.zeros(levels - 1),
        stream=stream,
        least=np.full(1, len(model.pair) + 1),
        best=np.zeros(n, np.uint8),
    )
    _fill(data.streams, data.stream)
    _fill(data.x, data.stream)
    set_temperatures(data, data.beta)
    return data


def _rows(model: SlicedModel) -> int:
    """Return the number of rows of chances: of -2H to 2H more satisfied pairs than unsatisfied."""
    return 4 * len(model.halves) + 1


def set_temperatures(data: SlicedLadder, beta: NDArray[np.float64]) -> None:
    """Set the inverse temperatures, times the strength, of all levels.

    Row 2H + m of the chances is the bits of min(1, exp(-beta * m)), for m more satisfied pairs than
    unsatisfied ones.
    """
    data.beta[:] = beta
    half = 2 * len(data.model.halves)
    more = np.arange(-half, half + 1)
    chance = np.exp(-np.maximum(more, 0)[:, None] * data.beta)
    whole = np.minimum(np.rint(chance * 2.0**CHANCE_BITS), 2**CHANCE_BITS - 1).astype(np.int64)
    bits = whole[:, None, :] >> np.arange(CHANCE_BITS)[:, None] & 1
    kind = np.dtype(type(data.element))
    full = np.where(bits == 1, np.iinfo(kind).max, 0).astype(kind)
    data.chances[:] = full.view(np.uint64).ravel()


@entry
def _fill(words, stream):
    """Fill an array with random words."""
    for k in range(len(words)):
        words[k] = next_word(stream)


@kernel
def _clear(words, count):
    for k in range(count):
        words[k] = _NONE


@kernel
def _sweep(data):
    """Update every variable in all replicas."""
    model, width, half = data.model, data.width, len(data.model.halves)
    planes = lanes_of(_STACK, _NONE)
    row = CHANCE_BITS * width
    for column in range(0, width, WORDS):
        for i in range(len(model.order)):
            _clear(planes, _STACK)
            place, first, end = i * width + column, model.start[i], model.start[i + 1]
            for k in range(first, end):
                target = model.target[k] * width + column
                add_unlike(planes, data.x, place, target, model.flip[k], model.halves)
            line = (2 * half + end - first) * row + column
            flip_by_chance(
                data.x, place, planes, data.chances, line, 2 * row, data.streams, column, width,
                model.halves,
            )  # fmt: skip


@kernel
def _count_pairs(data):
    """Count the unsatisfied pairs of every replica."""
    model, width, planes = data.model, data.width, lanes_of(_STACK, _NONE)
    _clear(planes, _STACK)
    _clear(data.sums, len(data.sums))
    for column in range(0, width, WORDS):
        for k in range(len(model.pair)):
            i, j = model.pair[k, 0] * width + column, model.pair[k, 1] * width + column
            add_unlike(planes, data.x, i, j, model.pair_flip[k], _SUM)
            if k % _MOST_AT_ONCE == _MOST_AT_ONCE - 1:
                add_counts(planes, data.sums, column, width, model.length)
        add_counts(planes, data.sums, column, width, model.length)
    for lane in range(len(data.unsatisfied)):
        data.unsatisfied[lane] = 0
    for plane in range(len(model.length)):
        for k in range(width):
            word = data.sums[plane * width + k]
            for bit in range(64):
                one = np.int32((word >> np.uint64(bit)) & _ONE)
                data.unsatisfied[64 * k + bit] += one << plane


@kernel
def _keep_best(data):
    """Keep the best state of all replicas, if it is better than any before."""
    found = -1
    for lane in range(len(data.unsatisfied)):
        if data.unsatisfied[lane] < data.least[0]:
            data.least[0], found = data.unsatisfied[lane], lane
    if found >= 0:
        for i in range(len(data.best)):
            word = data.x[i * data.width + found // 64]
            data.best[i] = (word >> np.uint64(found % 64)) & _ONE


@kernel
def _exchange(data, odd):
    """Exchange the states of neighboring levels: even or odd pairs, in every ladder."""
    levels, width = len(data.beta), data.width
    chosen, unsatisfied = data.chosen, data.unsatisfied
    _clear(chosen, width)
    for k in range(odd, levels - 1, 2):
        step, total = data.beta[k + 1] - data.beta[k], 0.0
        for lane in range(k * data.ladders, (k + 1) * data.ladders):
            higher = lane + data.ladders
            chance = math.exp(min(step * (unsatisfied[higher] - unsatisfied[lane]), 0.0))
            total += chance
            if uniform(data.stream) < chance:
                chosen[lane // 64] |= _ONE << np.uint64(lane % 64)
        data.accepted[k] += total / data.ladders
    for i in range(len(data.model.order)):
        for column in range(0, width, WORDS):
            place, k = i * width + column, WORDS + column
            unlike_next(data.change, k, data.x, place, chosen, column, data.element)
        for column in range(0, width, WORDS):
            flip_both(data.x, i * width + column, data.change, WORDS + column, data.element)


@kernel
def _compare(data, distance, lower):
    """Mark the variables at which pairs of ladders differ, or agree if these are fewer.

    The values of one ladder could all change: without fields its energy would be the same.
    """
    model, width, differ = data.model, data.width, data.differ
    n, by, planes = len(model.order), np.uint64(distance), lanes_of(_STACK, _NONE)
    _clear(planes, _STACK)
    _clear(data.sums, len(data.sums))
    for place in range(n * width):
        differ[place] = (data.x[place] ^ (data.x[place] >> by)) & lower
    for column in range(0, width, WORDS):
        for i in range(n):
            add_unlike(planes, differ, i * width + column, n * width + column, _NONE, _SUM)
            if i % _MOST_AT_ONCE == _MOST_AT_ONCE - 1:
                add_counts(planes, data.sums, column, width, model.length)
        add_counts(planes, data.sums, column, width, model.length)
    for k in range(width):
        most = _NONE
        for plane in range(len(model.length)):
            word = data.sums[plane * width + k]
            most = most & word if (n // 2) >> plane & 1 else most | word
        data.chosen[k] = most & lower
    for i in range(n):
        for k in range(width):
            differ[i * width + k] ^= data.chosen[k]


@kernel
def _choose_seeds(data):
    """Begin a cluster per pair of ladders, at the first of some random variables that is marked."""
    width, places = data.width, len(data.cluster)
    _clear(data.cluster, places)
    _clear(data.chosen, width)
    for _ in range(_SEEDS):
        first = below(data.stream, len(data.model.order)) * width
        for k in range(width):
            new = data.differ[first + k] & ~data.chosen[k]
            data.cluster[first + k] |= new
            data.chosen[k] |= new


@kernel
def _grow(data):
    """Grow clusters along pairs of marked variables until they are complete."""
    model, width, n = data.model, data.width, len(data.model.order)
    near, grown = lanes_of(WORDS, _NONE), lanes_of(WORDS, _NONE)
    _clear(near, WORDS)
    for column in range(0, width, WORDS):
        down, more = False, _ONE
        while more:
            _clear(grown, WORDS)
            for k in range(n):
                i = n - 1 - k if down else k
                for edge in range(model.start[i], model.start[i + 1]):
                    join(near, data.cluster, model.target[edge] * width + column)
                grow(near, data.differ, data.cluster, i * width + column, grown)
            down, more = not down, _NONE
            for k in range(WORDS):
                more |= grown[k]


@kernel
def _exchange_clusters(data):
    """Exchange a cluster between the ladders b and b + 2^k for a random k, at every level.

    The sum of both energies does not change, and the reverse move is equally likely.
    """
    k = below(data.stream, len(data.lower))
    _compare(data, 1 << k, data.lower[k])
    _choose_seeds(data)
    _grow(data)
    by = np.uint64(1 << k)
    for place in range(len(data.cluster)):
        data.x[place] ^= data.cluster[place] | (data.cluster[place] << by)


@entry
def sliced_rounds(data, made, rounds, tempered):
    """Make rounds after `made` ones: a sweep and, if `tempered`, clusters and exchanges."""
    for k in range(made, made + rounds):
        _sweep(data)
        if tempered:
            _exchange_clusters(data)
        _count_pairs(data)
        _keep_best(data)
        if tempered:
            _exchange(data, k % 2)
