"""Many ladders per word: spins of sparse graphs, with clusters exchanged between ladders.

Level k of ladder b is bit b of element k of a variable's row. An element has 8 or 16 bits: one
per ladder. One instruction serves up to 512 replicas, which have independent random numbers. A
model registers how its replicas are updated and how their costs are computed (`sliced_counts`,
`sliced_weights`).

In every round the ladders exchange clusters at equal temperatures (Houdayer 2001; Zhu, Ochoa and
Katzgraber 2015), between pairs of ladders that are drawn anew. A search keeps the best state.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.simple import Simple, simplified
from minigibbs.kernels.jit import chosen_by_type, entry, kernel
from minigibbs.kernels.lanes import lanes_of
from minigibbs.kernels.random import below, next_word, uniform
from minigibbs.kernels.slices import (
    SUM_PLANES,
    WORDS,
    add_counts,
    add_unlike,
    flip_both,
    grow,
    join,
    unlike_next,
)

NOT_FOUND = np.iinfo(np.int64).max  # a cost
_SEEDS = 64  # variables that are tried as the first one of a cluster
STACK = 64  # words of the counts: eight planes
SUM = (0,) * 7  # counts up to 14, and so up to 15, in four planes
MOST_AT_ONCE = (1 << SUM_PLANES) - 1
_NONE, _ONE = np.uint64(0), np.uint64(1)


class _Operations(NamedTuple):
    """The compiled functions of a model."""

    sweep: Any
    add_costs: Any


_BY_MODEL: dict[type, _Operations] = {}


def register_model(model: type, sweep: Any, add_costs: Any) -> None:
    """Associate compiled functions with the type of a model.

    Parameters
    ----------
    model : type
        A NamedTuple with the fields and methods of `sliced_counts.CountModel`, except those of its
        own updates.
    sweep : compiled function
        `sweep(model, data)` updates every variable in all replicas.
    add_costs : compiled function
        `add_costs(model, data)` computes the costs of all replicas.
    """
    _BY_MODEL[model] = _Operations(sweep, add_costs)


def sweep_replicas(model: Any, data: Any) -> None:
    """Update every variable in all replicas; compiled code only."""
    _BY_MODEL[type(model)].sweep(model, data)


def add_costs(model: Any, data: Any) -> None:
    """Compute the costs of all replicas; compiled code only."""
    _BY_MODEL[type(model)].add_costs(model, data)


@chosen_by_type(sweep_replicas)
def _sweep_for_type(model, data):  # type: ignore[no-untyped-def]
    return _BY_MODEL[model.instance_class].sweep.py_func


@chosen_by_type(add_costs)
def _add_for_type(model, data):  # type: ignore[no-untyped-def]
    return _BY_MODEL[model.instance_class].add_costs.py_func


class SlicedLadder(NamedTuple):
    """A chain: its temperatures and the states of all ladders."""

    model: Any
    ladders: int  # bits of an element
    width: int  # words per variable
    element: np.unsignedinteger  # a number of the type of an element
    beta: NDArray[np.float64]  # [K] ascending
    table: NDArray[Any]  # what updates read of the temperatures
    x: NDArray[np.uint64]  # [n + 1, width] the last row has no meaning
    streams: NDArray[np.uint64]  # [2, width]
    sums: NDArray[np.uint64]  # [plane, width]
    cost: NDArray[np.integer]  # [K * ladders] minus the log-potential in units of the model
    differ: NDArray[np.uint64]  # [n + 1, width] the last row is zero
    cluster: NDArray[np.uint64]  # [n, width]
    chosen: NDArray[np.uint64]  # [width]
    change: NDArray[np.uint64]  # [1 vector + width]
    lower: NDArray[np.uint64]  # [log2(ladders)] bits of the ladders whose bit k is 0
    accepted: NDArray[np.float64]  # [K - 1] sums of acceptance probabilities of exchanges
    stream: NDArray[np.uint64]  # [4]
    least: NDArray[np.int64]  # [1] the smallest cost so far
    best: NDArray[np.uint8]  # [n] a state that has it


def spins_and_fields(
    graph: FactorGraph,
) -> tuple[Simple, NDArray[np.bool_], NDArray[np.float64]] | None:
    """Return the pairs of a graph of spins, its free spins and their fields; None for others.

    Other graphs have implicit factors, hard constraints, factors of three variables or more, or no
    pairs at all.
    """
    if graph.implicits or len(graph.hard):
        return None
    simple, free = simplified(graph), graph.evidence < 0
    if len(simple.rest) or not len(simple.pair):
        return None
    if int(graph.sizes[free].max(initial=1)) != 2 or not np.isfinite(simple.unary).all():
        return None
    spin = free & (graph.sizes == 2)
    first = graph.packed.first[spin]
    return simple, spin, simple.unary[first + 1] - simple.unary[first]


def sum_planes(most: int) -> tuple[int, ...]:
    """Return one entry per plane of counts up to a number; only two lengths are compiled."""
    return (0,) * (20 if most < 1 << 20 else 32)


def sliced_bytes(model: Any, replicas: int) -> int:
    """Return the memory of a chain in bytes."""
    return 3 * (len(model.order) + 1) * replicas // 8 + int(model.table_bytes(replicas))


def sliced_ladder(
    model: Any, levels: int, ladders: int, stream: NDArray[np.uint64]
) -> SlicedLadder:
    """Return random states of all ladders; all temperatures are infinite.

    Parameters
    ----------
    model : CountModel or WeightModel
        The model.
    levels, ladders : int
        8 or 16 ladders, and levels that fill vectors of 512 bits.
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
        table=model.table(np.zeros(levels), ladders),
        x=np.empty((n + 1) * width, np.uint64),
        streams=np.empty(2 * width, np.uint64),
        sums=np.zeros(len(model.length) * width, np.uint64),
        cost=np.zeros(levels * ladders, model.cost_type),
        differ=np.zeros((n + 1) * width, np.uint64),
        cluster=np.zeros(n * width, np.uint64),
        chosen=np.zeros(width, np.uint64),
        change=np.zeros(WORDS + width, np.uint64),
        lower=np.repeat(np.array(lower, element), 64 // ladders).view(np.uint64),
        accepted=np.zeros(levels - 1),
        stream=stream,
        least=np.full(1, NOT_FOUND),
        best=np.zeros(n, np.uint8),
    )
    _fill(data.streams, data.stream)
    _fill(data.x, data.stream)
    return data


def set_temperatures(data: SlicedLadder, beta: NDArray[np.float64]) -> None:
    """Set the inverse temperatures of all levels."""
    data.beta[:] = beta
    data.table[:] = data.model.table(data.beta, data.ladders)


@entry
def _fill(words, stream):
    """Fill an array with random words."""
    for k in range(len(words)):
        words[k] = next_word(stream)


@kernel
def clear(words, count):
    """Set the first words to 0."""
    for k in range(count):
        words[k] = _NONE


@kernel
def _keep_best(data):
    """Keep the best state of all replicas, if it is better than any before."""
    found = -1
    for lane in range(len(data.cost)):
        if data.cost[lane] < data.least[0]:
            data.least[0], found = data.cost[lane], lane
    if found >= 0:
        for i in range(len(data.best)):
            word = data.x[i * data.width + found // 64]
            data.best[i] = (word >> np.uint64(found % 64)) & _ONE


@kernel
def _exchange(data, odd):
    """Exchange the states of neighboring levels: even or odd pairs, in every ladder."""
    levels, width = len(data.beta), data.width
    chosen, cost = data.chosen, data.cost
    clear(chosen, width)
    for k in range(odd, levels - 1, 2):
        step, total = data.model.unit * (data.beta[k + 1] - data.beta[k]), 0.0
        for lane in range(k * data.ladders, (k + 1) * data.ladders):
            higher = lane + data.ladders
            more = np.float64(cost[higher] - cost[lane])
            chance = math.exp(min(step * more, 0.0))
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
    """Mark the variables at which pairs of ladders differ.

    Without fields, mark those that agree if they are fewer: all values of one ladder could change,
    and its energy would be the same.
    """
    model, width, differ = data.model, data.width, data.differ
    n, by, planes = len(model.order), np.uint64(distance), lanes_of(STACK, _NONE)
    clear(planes, STACK)
    clear(data.sums, len(data.sums))
    for place in range(n * width):
        differ[place] = (data.x[place] ^ (data.x[place] >> by)) & lower
    if not model.even:
        return
    for column in range(0, width, WORDS):
        for i in range(n):
            add_unlike(planes, differ, i * width + column, n * width + column, _NONE, SUM)
            if i % MOST_AT_ONCE == MOST_AT_ONCE - 1:
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
    clear(data.cluster, places)
    clear(data.chosen, width)
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
    clear(near, WORDS)
    for column in range(0, width, WORDS):
        down, more = False, _ONE
        while more:
            clear(grown, WORDS)
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
        sweep_replicas(data.model, data)
        if tempered:
            _exchange_clusters(data)
        add_costs(data.model, data)
        _keep_best(data)
        if tempered:
            _exchange(data, k % 2)
