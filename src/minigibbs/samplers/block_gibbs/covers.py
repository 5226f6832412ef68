"""Covers: every free variable in one block, each block of small width given the rest.

A block is found by eliminating variables as long as one has few neighbors left, the fewest first.
Where none has, one of many neighbors is put off to a later block, and with it those that hard
zeros tie it to. What is eliminated has the width by construction, in the order that it went.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import entry, inlined, kernel
from minigibbs.kernels.random import below
from minigibbs.system import memory

LARGEST_TABLE = 2**20  # entries over a clique; one variable alone may have more values
_NEIGHBOR_BYTES = 24  # a variable's neighbor, while neighbors are sorted
_MOST_ROUNDS = 32  # blocks of a cover; what is then left goes one by one
_LOOKS = 8  # variables that are compared for the one to put off

# Where a variable stands while a block is made.
_OUTSIDE, _LIVE, _GONE, _PUT_OFF = range(4)


class Neighbors(NamedTuple):
    """Which variables share a factor, by row; only those with a choice take part."""

    start: NDArray[np.int64]  # [n + 1]
    other: NDArray[np.int32]
    bits: NDArray[np.float64]  # [n] log2 of the domain
    group: NDArray[np.int32]  # [n] variables that hard constraints tie together; -1 for none
    member_start: NDArray[np.int64]  # [groups + 1]
    member: NDArray[np.int32]


class Blocks(NamedTuple):
    """Blocks end to end: variables in the order of elimination, each with its clique."""

    variable: NDArray[np.int32]  # [steps]
    parents: NDArray[np.int32]  # [steps, width] the rest of the clique, -1 for none
    end: NDArray[np.int64]  # [blocks] the step after each block's last

    def lists(self) -> list[list[int]]:
        """The variables of each block."""
        return [part.tolist() for part in np.split(self.variable, self.end[:-1])]


def neighbors(graph: FactorGraph) -> Neighbors:
    """Look up who shares a factor, given the evidence, and who is tied."""
    model, sizes = graph.packed, graph.sizes
    count = np.zeros(len(sizes), dtype=np.int64)
    _gather(model, graph.evidence, count, np.empty(0, np.int64))
    what = f"a table of {count.sum():,} variables that share a factor"
    memory.require(_NEIGHBOR_BYTES * float(count.sum()), what, "use factors of fewer variables")
    keys = np.empty(int(count.sum()), dtype=np.int64)
    _gather(model, graph.evidence, np.cumsum(count) - count, keys)
    keys = np.unique(keys)
    rows = keys // len(sizes)
    group, start, member = _tied(graph)
    return Neighbors(
        start=np.searchsorted(rows, np.arange(len(sizes) + 1)).astype(np.int64),
        other=(keys % len(sizes)).astype(np.int32),
        bits=np.log2(sizes.astype(np.float64)),
        group=group,
        member_start=start,
        member=member,
    )


def _tied(graph: FactorGraph) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Variables that factors with hard constraints join, by connected component."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    model, count = graph.packed, len(graph)
    factors = model.factors[np.isinf(model.factors["span"])]
    group = np.full(count, -1, dtype=np.int32)
    arity = factors["scope_end"] - factors["scope_start"]
    place = np.repeat(factors["scope_start"] - (np.cumsum(arity) - arity), arity)
    variable = model.slots["variable"][place + np.arange(arity.sum())]
    factor = np.repeat(np.arange(len(factors)), arity)
    choice = (graph.evidence[variable] == FREE) & (graph.sizes[variable] > 1)
    variable, factor = variable[choice], factor[choice]
    if not len(variable):
        return group, np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32)
    shape = (count + len(factors),) * 2
    links = coo_matrix((np.ones(len(variable)), (variable, count + factor)), shape)
    labels = connected_components(links, directed=False)[1][:count]
    tied = np.unique(variable)
    _, numbers = np.unique(labels[tied], return_inverse=True)
    group[tied] = numbers
    order = np.argsort(numbers, kind="stable")
    start = np.searchsorted(numbers[order], np.arange(numbers.max() + 2))
    return group, start.astype(np.int64), tied[order].astype(np.int32)


def cover(
    around: Neighbors, variables: NDArray[np.int32], width: int, stream: NDArray[np.uint64]
) -> Blocks:
    """Blocks that hold each of the variables once; what the stream says decides between equals."""
    found: list[Block] = []
    left, elimination = variables, Elimination(around, width, stream)
    while len(left) and len(found) < _MOST_ROUNDS:
        found.append(elimination.block(left, put_off=True))
        left = left[~np.isin(left, found[-1].order, assume_unique=True)]
    none = np.full((1, max(width, 1)), -1, dtype=np.int32)
    found += [Block(np.array([variable], dtype=np.int32), none) for variable in left.tolist()]
    return join(found, width)


class Block(NamedTuple):
    """One block: its variables in the order of elimination, and the rest of their cliques."""

    order: NDArray[np.int32]
    parents: NDArray[np.int32]  # [variables, width], -1 for none


def join(blocks: list[Block], width: int) -> Blocks:
    """Blocks end to end."""
    parents = [np.empty((0, max(width, 1)), np.int32), *(block.parents for block in blocks)]
    return Blocks(
        variable=np.concatenate([np.empty(0, np.int32), *(block.order for block in blocks)]),
        parents=np.concatenate(parents),
        end=np.cumsum([len(block.order) for block in blocks], dtype=np.int64),
    )


class Elimination:
    """Makes blocks, one after the other, in arrays that are kept."""

    def __init__(self, around: Neighbors, width: int, stream: NDArray[np.uint64]) -> None:
        count = len(around.bits)
        self.around, self.width, self.stream = around, width, stream
        self.work = _Work(
            where=np.zeros(count, dtype=np.int8),
            degree=np.zeros(count, dtype=np.int32),
            head=np.full(count, -1, dtype=np.int64),
            link=np.empty((len(around.other) + count * width * max(width - 1, 0), 2), np.int64),
            used=np.zeros(3, dtype=np.int64),
            live=np.empty(count, dtype=np.int32),
            place=np.zeros(count, dtype=np.int32),
            bucket=np.full(width + 1, -1, dtype=np.int32),
            queue=np.full((count, 2), -1, dtype=np.int32),
            queued=np.full(count, -1, dtype=np.int32),
            near=np.empty(width + 1, dtype=np.int32),
            in_block=np.zeros(len(around.member_start), dtype=np.int64),
        )

    def block(self, variables: NDArray[np.int32], put_off: bool) -> Block:
        """One block of some of the variables; without `put_off` it stops where it would have to."""
        work, width = self.work, self.width
        work.live[: len(variables)] = variables
        work.used[_ALIVE] = len(variables)
        order = np.empty(len(variables), dtype=np.int32)
        parents = np.full((len(variables), max(width, 1)), -1, dtype=np.int32)
        limit = math.log2(LARGEST_TABLE) + 1e-9
        done = _eliminate(self.around, work, width, limit, self.stream, put_off, order, parents)
        order, parents = order[:done], parents[:done]
        kept = work.where[order] == _GONE
        order, parents = order[kept], parents[kept]
        parents[(parents >= 0) & (work.where[parents] != _GONE)] = -1
        _reset(self.around, work, variables)
        return Block(order, parents)


class _Work(NamedTuple):
    where: NDArray[np.int8]  # [n] OUTSIDE, LIVE, GONE or PUT_OFF
    degree: NDArray[np.int32]  # [n] live neighbors
    head: NDArray[np.int64]  # [n] the first link of each variable's list of neighbors
    link: NDArray[np.int64]  # [room, 2] a neighbor, and the next link; some are live no longer
    used: NDArray[np.int64]  # links in use, live variables, variables in the block
    live: NDArray[np.int32]  # the live variables
    place: NDArray[np.int32]  # [n] where in `live` each one is
    bucket: NDArray[np.int32]  # [width + 1] the first variable with this number of neighbors
    queue: NDArray[np.int32]  # [n, 2] the one before and the next in its bucket
    queued: NDArray[np.int32]  # [n] in which bucket; -1 for none
    near: NDArray[np.int32]  # scratch
    in_block: NDArray[np.int64]  # [groups] variables of a group that are in the block


_LINKS, _ALIVE, _MEMBERS = range(3)


@entry
def _gather(model, evidence, place, keys):
    """Count each row's neighbors, or write down both ends, as one number, if they fit."""
    count, filling = len(model.rows), len(keys) > 0
    for i in range(count):
        row = model.rows[i]
        if evidence[i] >= 0 or row.domain < 2:
            continue
        for entry_place in range(row.start, row.pair_end):
            j = model.target[entry_place]
            if evidence[j] < 0 and model.rows[j].domain > 1 and j != i:
                if filling:
                    keys[place[i]] = i * count + j
                place[i] += 1
        for entry_place in range(row.pair_end, row.unary_begin):
            factor = model.factors[model.target[entry_place]]
            for k in range(factor.scope_start, factor.scope_end):
                j = model.slots[k].variable
                if evidence[j] < 0 and model.rows[j].domain > 1 and j != i:
                    if filling:
                        keys[place[i]] = i * count + j
                    place[i] += 1


@entry
def _reset(around, work, variables):
    for k in range(len(variables)):
        v = variables[k]
        work.where[v], work.degree[v], work.head[v], work.queued[v] = _OUTSIDE, 0, -1, -1
        if around.group[v] >= 0:
            work.in_block[around.group[v]] = 0
    for k in range(len(work.bucket)):
        work.bucket[k] = -1
    work.used[_LINKS] = 0


@inlined
def _shuffle(order, count, stream):
    for last in range(count - 1, 0, -1):
        other = below(stream, last + 1)
        order[last], order[other] = order[other], order[last]


@kernel
def _link(work, a, b):
    """Put b into a's list."""
    k = work.used[_LINKS]
    work.link[k, 0], work.link[k, 1] = b, work.head[a]
    work.head[a] = k
    work.used[_LINKS] = k + 1
    work.degree[a] += 1


@kernel
def _linked(work, a, b):
    """Whether b is in a's list; drops what is live no longer on the way."""
    before, k, found = -1, work.head[a], False
    while k >= 0:
        other, following = work.link[k, 0], work.link[k, 1]
        if work.where[other] != _LIVE:
            if before < 0:
                work.head[a] = following
            else:
                work.link[before, 1] = following
        else:
            found = found or other == b
            before = k
        k = following
    return found


@kernel
def _unqueue(work, v):
    bucket = work.queued[v]
    if bucket >= 0:
        before, following = work.queue[v, 0], work.queue[v, 1]
        if before >= 0:
            work.queue[before, 1] = following
        else:
            work.bucket[bucket] = following
        if following >= 0:
            work.queue[following, 0] = before
        work.queued[v] = -1


@kernel
def _requeue(around, work, width, limit, v):
    """Put a variable where its number of neighbors says, if its clique's table is small enough."""
    _unqueue(work, v)
    if work.where[v] != _LIVE or work.degree[v] > width:
        return
    bits, k = around.bits[v], work.head[v]
    while k >= 0:
        if work.where[work.link[k, 0]] == _LIVE:
            bits += around.bits[work.link[k, 0]]
        k = work.link[k, 1]
    if work.degree[v] > 0 and bits > limit:
        return
    bucket = work.degree[v]
    following = work.bucket[bucket]
    work.queue[v, 0], work.queue[v, 1] = -1, following
    if following >= 0:
        work.queue[following, 0] = v
    work.bucket[bucket], work.queued[v] = v, bucket


@kernel
def _leave(around, work, width, limit, v, to):
    """Take a live variable out; its neighbors have one less."""
    _unqueue(work, v)
    work.where[v] = to
    last, place = work.used[_ALIVE] - 1, work.place[v]
    other = work.live[last]
    work.live[place], work.place[other] = other, place
    work.used[_ALIVE] = last
    k = work.head[v]
    while k >= 0:
        u = work.link[k, 0]
        if work.where[u] == _LIVE:
            work.degree[u] -= 1
            _requeue(around, work, width, limit, u)
        k = work.link[k, 1]


@kernel
def _put_off(around, work, width, limit, v):
    """Put a variable off, with all that it is tied to unless that is all there is."""
    group = around.group[v]
    if group < 0 or work.in_block[group] == work.used[_MEMBERS]:
        if group >= 0:
            work.in_block[group] -= 1
        work.used[_MEMBERS] -= 1
        _leave(around, work, width, limit, v, _PUT_OFF)
        return
    for k in range(around.member_start[group], around.member_start[group + 1]):
        u = around.member[k]
        if work.where[u] == _LIVE or work.where[u] == _GONE:
            work.in_block[group] -= 1
            work.used[_MEMBERS] -= 1
            if work.where[u] == _LIVE:
                _leave(around, work, width, limit, u, _PUT_OFF)
            else:
                work.where[u] = _PUT_OFF


@inlined
def _begin(around, work, width, limit, stream):
    count = work.used[_ALIVE]
    _shuffle(work.live, count, stream)
    for k in range(count):
        v = work.live[k]
        work.where[v], work.place[v] = _LIVE, k
        if around.group[v] >= 0:
            work.in_block[around.group[v]] += 1
    work.used[_MEMBERS] = count
    for k in range(count):
        v = work.live[k]
        for edge in range(around.start[v], around.start[v + 1]):
            if work.where[around.other[edge]] == _LIVE:
                _link(work, v, around.other[edge])
    for k in range(count):
        _requeue(around, work, width, limit, work.live[k])


@inlined
def _crowded(work, stream):
    """Of a few live variables the one with the most neighbors."""
    best = work.live[below(stream, work.used[_ALIVE])]
    for _ in range(_LOOKS - 1):
        other = work.live[below(stream, work.used[_ALIVE])]
        if work.degree[other] > work.degree[best]:
            best = other
    return best


@inlined
def _fewest(work):
    """A variable with the fewest neighbors, if those are few; else -1."""
    for bucket in range(len(work.bucket)):
        if work.bucket[bucket] >= 0:
            return work.bucket[bucket]
    return -1


@entry
def _eliminate(around, work, width, limit, stream, put_off, order, parents):
    """Eliminate until nothing is live, or nothing can be; returns how many variables went."""
    _begin(around, work, width, limit, stream)
    done = 0
    while work.used[_ALIVE] > 0:
        v = _fewest(work)
        if v < 0:
            if not put_off:
                return done
            _put_off(around, work, width, limit, _crowded(work, stream))
            continue
        near, k = 0, work.head[v]
        while k >= 0:
            if work.where[work.link[k, 0]] == _LIVE:
                work.near[near] = parents[done, near] = work.link[k, 0]
                near += 1
            k = work.link[k, 1]
        order[done] = v
        done += 1
        for a in range(near):
            for b in range(a):
                one, two = work.near[a], work.near[b]
                if work.degree[one] > work.degree[two]:
                    one, two = two, one
                if not _linked(work, one, two):
                    _link(work, one, two)
                    _link(work, two, one)
        _leave(around, work, width, limit, v, _GONE)
    return done
