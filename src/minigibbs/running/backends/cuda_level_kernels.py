"""Kernels for temperature ladders of small domains on a GPU: one thread per chain and level.

Replicas are replicas[value, chain], as with one thread per chain (`cuda_kernels`). A round launches
a kernel for each color, then one for the energies, one that decides about exchanges with a thread
per chain, and one that exchanges the states. States, exchanges and clusters equal those of the CPU
(`samplers.tempering.small`) bit by bit, because fields are summed in the same order with the same
random bits, and energies are integers.

Importing this module needs numba-cuda.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from minigibbs.kernels.layout import CHANGES, EVALUATIONS, Chain
from minigibbs.kernels.philox import chain_bits
from minigibbs.running.backends.cuda_kernels import load_chain, store_chain
from minigibbs.running.backends.cuda_small import value_chooser
from minigibbs.running.backends.device.toolchain import cuda, entry
from minigibbs.samplers.chromatic.places import BLOCK_SIZE
from minigibbs.samplers.chromatic.spin_tiles import UPDATE_DRAW
from minigibbs.samplers.tempering.copies import exchange_cluster
from minigibbs.samplers.tempering.ladder import (
    KEY_0,
    KEY_1,
    decide_exchanges,
    energy_at,
    swapped_at,
)

THREADS = 128  # per block of kernels with one thread per chain and level
ALONE = 32  # per block of kernels with one thread per chain, which are few
_LOW = np.float32(-3.0e38)
_TALLIES = CHANGES + 1
_DONE = 1.0  # the flag of a slot that exchanges its state with the next


class Levels(NamedTuple):
    """The slots of a chain; see `SmallLadder`."""

    place: Any  # [slots] index of a slot's first value in `replicas`
    replica: Any  # [slots] number of the slot's random bits
    beta: Any  # [slots] single precision
    stride: int  # distance of the values of consecutive variables


class Terms(NamedTuple):
    """The integer energies of a model; see `SmallModel`."""

    order: Any
    first: Any
    field: Any
    pair: Any
    weight: Any
    scope: Any
    cell: Any
    table: Any


@entry
def read_keys(carried, own, keys):
    """Write the key of every chain's random bits to keys[2, chain]."""
    c = cuda.grid(1)
    if c < keys.shape[1]:
        for k in range(2):
            keys[k, c] = np.uint32(np.int64(carried[own + (KEY_1 if k else KEY_0), c]))


@cache
def sweep_levels(most):
    """Return a kernel that updates the variables of one color, of up to `most` values.

    A block of threads updates one variable at one level, of consecutive chains.
    """
    choose = value_chooser(most)

    @entry(fastmath=False)
    def sweep_small_levels(
        blocks, variable, first, base, target, weight, start, table, row_step,
        first_block, end_block, tiles, place_of, replica, beta, stride, keys, sweep, chains,
        replicas,
    ):  # fmt: skip
        tile, rest = cuda.blockIdx.x % tiles, cuda.blockIdx.x // tiles
        lane, number = np.int32(rest % BLOCK_SIZE), first_block + rest // BLOCK_SIZE
        column = tile * cuda.blockDim.x + cuda.threadIdx.x
        if number >= end_block or column >= chains:  # chains=0 only compiles
            return
        block = blocks[np.uint64(number)]
        if lane >= block.count:
            return
        size, place = block["size"], np.uint64(block.first + lane)
        own, begin = np.int64(variable[place]), np.uint64(first[place])
        c = np.uint64(column)
        key0, key1 = keys[0, c], keys[1, c]
        field = cuda.local.array(most, np.float32)
        slot = cuda.blockIdx.y
        while slot < len(beta):
            scale, origin = beta[np.uint64(slot)], place_of[np.uint64(slot)]
            for v in range(most):
                field[v] = base[begin + np.uint64(v)] if v < size else _LOW
            entry, left = np.uint64(block.entry + lane), block.degree
            while left > 0:
                where = np.uint64(origin + np.int64(target[entry]) * stride)
                near, row = np.int64(replicas[where, c]), np.int64(start[entry])
                if row < 0:
                    more = weight[entry]
                    for v in range(most):
                        field[v] = np.float32(field[v] + more) if v == near else field[v]
                else:
                    row += near
                    for v in range(most):
                        if v < size:
                            cell = np.uint64(row + v * row_step)
                            field[v] = np.float32(field[v] + table[cell])
                entry += np.uint64(block.count)
                left -= 1
            for v in range(most):
                if v < size:
                    field[v] = np.float32(field[v] * scale)
            which, spin = replica[np.uint64(slot)], np.uint32(own)
            bits = chain_bits(key0, key1, which, spin, sweep, UPDATE_DRAW)
            value = choose(field, size, bits, key0, key1, which, spin, sweep)
            replicas[np.uint64(origin + own * stride), c] = value
            slot += cuda.gridDim.y

    return sweep_small_levels


@entry(fastmath=False)
def add_level_energies(terms, levels, parts, total, replicas):
    """Add the energies of all slots to total[slot, chain], as integers in any order.

    A thread sums a part of the terms for one slot of one chain.
    """
    item, chains = cuda.grid(1), total.shape[1]
    c, rest = item % chains, item // chains
    slot, part = rest % len(levels.place), rest // len(levels.place)
    if part >= parts:
        return
    origin, sums = levels.place[slot], np.int64(0)
    k = part
    while k < (len(terms.order) if len(terms.field) else 0):
        i = np.int64(terms.order[k])
        sums += terms.field[terms.first[i] + replicas[origin + i * levels.stride, c]]
        k += parts
    k = part
    while k < len(terms.weight):
        a, b = np.int64(terms.pair[k, 0]), np.int64(terms.pair[k, 1])
        one, other = origin + a * levels.stride, origin + b * levels.stride
        if replicas[one, c] == replicas[other, c]:
            sums += terms.weight[k]
        k += parts
    k = part
    while k < len(terms.scope):
        a, b = np.int64(terms.scope[k, 0]), np.int64(terms.scope[k, 1])
        one, other = origin + a * levels.stride, origin + b * levels.stride
        row = terms.cell[k, 0] + terms.cell[k, 1] * np.int64(replicas[one, c])
        sums += terms.table[row + np.int64(replicas[other, c])]
        k += parts
    cuda.atomic.add(total, (slot, c), sums)


@entry
def find_best(total, best, chosen):
    """Find the slot of a round that is better than each chain's best one before: -1 for none."""
    c = cuda.grid(1)
    if c < len(best):
        most, where = best[c], -1
        for slot in range(len(total)):
            if total[slot, c] > most:
                most, where = total[slot, c], slot
        best[c], chosen[c] = most, where


@entry
def keep_best(chosen, levels, order, replicas, kept):
    """Copy the states of the chosen slots to kept[variable, chain]."""
    item, chains = cuda.grid(1), kept.shape[1]
    c, place = item % chains, item // chains
    if place < len(order) and chosen[c] >= 0:
        i = np.int64(order[place])
        kept[i, c] = replicas[levels.place[chosen[c]] + i * levels.stride, c]


@entry
def decide_levels(data, chains, total):
    """Decide about the exchanges of a round; the accumulators of the next round are cleared."""
    c = cuda.grid(1)
    if c < chains.x.shape[1]:
        stream, tally = cuda.local.array(4, np.uint64), cuda.local.array(_TALLIES, np.int64)
        chain = load_chain(chains, c, stream, tally, chains.weights[:, c])
        for slot in range(len(data.place)):
            energy = data.model.unit * np.float64(total[slot, c])
            chain.carried[energy_at(data) + slot] = data.model.constant + energy
            total[slot, c] = 0
        decide_exchanges(data, chain)
        evaluations = data.sweeps * len(data.place) * len(data.model.colors.target)
        chain.tally[EVALUATIONS] += evaluations
        store_chain(chains, c, chain)


@entry
def exchange_level_clusters(data, chains, replicas, scratch, first, together):
    """Make Houdayer moves between two ladders at `together` levels, from level `first` on.

    A thread has one level of one chain, and a part of scratch[number, chain].
    """
    item, count = cuda.grid(1), chains.x.shape[1]
    c, k = item % count, first + item // count
    if item < together * count and k < len(data.beta):
        size = scratch.shape[0] // together
        own = scratch[(k - first) * size : (k - first + 1) * size, c]
        chain = Chain(
            chains.x[:, c], chains.streams[:, c], chains.carried[:, c], chains.weights[:, c], own,
            chains.tally[:, c],
        )  # fmt: skip
        exchange_cluster(data, chain, replicas[:, c], k, len(data.beta) + k)


@entry
def swap_small_levels(data, carried, order, rounds, replicas, x):
    """Exchange the states of neighboring slots, and copy the target's states to x[variable, chain].

    One thread per variable, twin, pair of levels and chain. `carried` has the flags of this round.
    """
    item, chains, levels = cuda.grid(1), x.shape[1], len(data.beta)
    pairs = levels // 2 + 1
    c, rest = item % chains, item // chains
    pair, rest = rest % pairs, rest // pairs
    twin, place = rest % data.twins, rest // data.twins
    if place >= len(order):
        return
    i, k, shown = np.int64(order[place]), 2 * pair + rounds % 2, (rounds + 1) % data.twins
    slot = twin * levels + k
    if k < levels - 1:
        here = data.place[slot] + i * data.stride
        there = data.place[slot + 1] + i * data.stride
        low, high = replicas[here, c], replicas[there, c]
        if carried[swapped_at(data) + slot, c] == _DONE:
            replicas[here, c], replicas[there, c] = high, low
            high = low
        if k + 1 == levels - 1 and twin == shown:
            x[i, c] = high
    elif k == levels - 1 and twin == shown:
        x[i, c] = replicas[data.place[slot] + i * data.stride, c]
