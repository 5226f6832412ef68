"""Kernels for temperature ladders of spins on a GPU: a word has one level of 32 ladders.

The words of all ladders are x[place, group of 32 ladders, level], with the levels of each twin
padded to a multiple of four. A thread updates one spin on four levels of 32 ladders, whose words it
loads together. In small systems several threads share the ladders of a word. One Philox call gives
the random bits of four levels of one ladder, as on the CPU (`samplers.tempering.spins`). States,
exchanges and clusters equal those of the CPU bit by bit.

Importing this module needs numba-cuda.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from minigibbs.kernels.choice import RARE, rare_spin, spin_by_bits
from minigibbs.kernels.jit import literal
from minigibbs.kernels.lanes import any_bits, right
from minigibbs.kernels.philox import chain_bits, quad_bits
from minigibbs.running.backends.cuda_bits import Spins
from minigibbs.running.backends.cuda_colors import WORD
from minigibbs.running.backends.device.toolchain import cuda, entry
from minigibbs.running.backends.device.words import far_four
from minigibbs.samplers.chromatic.places import BLOCK_SIZE
from minigibbs.samplers.tempering.ladder import BLOCKS, EMPTY, EXCHANGE, FURTHER, SEED

THREADS = 128
GROWING = 256  # threads of a block whose clusters grow together
QUAD = 4
BYTES, BITS = 4, 8  # bytes of a word, and bits of a byte
_CELLS = QUAD * QUAD  # levels and ladders whose fields a thread has in registers at a time
_NONE, _ONE, _BYTE = np.uint32(0), np.uint32(1), np.uint32(0xFF)
_HALF_WORD = 2.0**-32


@literal
def _alone(data, block, lane, key0, key1, replica, beta, sweep, x, column, bit):
    """Draw bit `bit` of a column, one replica that may need further random bits."""
    place = block.first + lane
    variable, field = np.uint32(data.variable[place]), data.base[place]
    entry = block.entry + lane
    for _ in range(block.degree):
        if (np.uint32(x[data.target[entry], column]) >> bit) & _ONE:
            field += data.weight[entry]
        entry += block.count
    field *= beta
    bits = chain_bits(key0, key1, replica, variable, sweep, 0)
    if bits < RARE:
        return np.uint32(rare_spin(np.float32(field), bits, key0, key1, replica, variable, sweep))
    return np.uint32(spin_by_bits(np.float32(field), bits))


@literal
def _renewed(data, block, lane, key0, key1, own, quad, column, bit, level, betas, sweep, x, word):
    """Return a word in which one replica is redrawn with as many random bits as it needs."""
    replica, beta = np.int64(QUAD) * np.int64(own) + level, betas[np.uint64(QUAD * quad + level)]
    where = QUAD * column + level
    one = _alone(data, block, lane, key0, key1, replica, beta, sweep, x, where, bit)
    return np.uint32((word & ~(_ONE << bit)) | (one << bit))


@cache
def sweep_levels(kind, parts):
    """Return a kernel that updates spins of a color on all levels; log-odds have type `kind`.

    The 32 ladders of a word are shared by `parts` threads: 1, 2 or 4. Several threads store bytes.
    """
    nothing, fours, each = kind(0.0), WORD // QUAD // parts, BYTES // parts

    @entry(fastmath=False)
    def sweep(
        blocks, variable, base, target, weight,
        first_block, end_block, quads, first_quad, betas, keys, sweep, ladders, x, words, stored,
    ):  # fmt: skip
        data = Spins(blocks, variable, base, target, weight)
        columns = x.shape[1] // QUAD
        thread = np.int64(cuda.grid(1))
        part, item = thread % parts, thread // parts
        number, rest = first_block + item // (BLOCK_SIZE * columns), item % (BLOCK_SIZE * columns)
        lane, column = rest // columns, rest % columns
        if number >= end_block or ladders == 0:  # ladders=0 only compiles
            return
        block = blocks[np.uint64(number)]
        if lane >= block.count:
            return
        group, quad = column // quads, column % quads
        own, place = np.uint32(first_quad[quad]), np.uint64(block.first + lane)
        spin = np.uint32(variable[place])
        field = cuda.local.array(_CELLS, kind)
        near, new = cuda.local.array(QUAD, np.uint32), cuda.local.array(QUAD, np.uint32)
        scale, rare = cuda.local.array(QUAD, kind), _NONE
        for level in range(QUAD):
            new[level], scale[level] = _NONE, betas[np.uint64(QUAD * quad + level)]
        for step in range(fours):
            four = np.uint32(part * fours + step)
            shift = np.uint32(QUAD * four)
            start = base[place]
            for cell in range(_CELLS):
                field[cell] = start
            entry, next_entry = np.uint64(block.entry + lane), np.uint64(block.count)
            left = block.degree
            while left > 0:
                more, other = weight[entry], np.uint64(target[entry])
                a, b, c, d = far_four(words, other * np.uint64(columns) + np.uint64(column))
                near[0], near[1] = right(a, shift), right(b, shift)
                near[2], near[3] = right(c, shift), right(d, shift)
                for level in range(QUAD):
                    for ladder in range(QUAD):
                        bit = np.uint32(1 << ladder)
                        add = more if any_bits(near[level], bit) else nothing
                        field[QUAD * ladder + level] += add
                entry += next_entry
                left -= 1
            for ladder in range(QUAD):
                which = np.uint64(WORD * group + QUAD * four + ladder)
                key0, key1 = keys[0, which], keys[1, which]
                a, b, c, d = quad_bits(key0, key1, own, spin, sweep, _NONE)
                bit = np.uint32(_ONE << np.uint32(QUAD * four + ladder))
                if spin_by_bits(np.float32(field[QUAD * ladder] * scale[0]), a):
                    new[0] = np.uint32(new[0] | bit)
                if spin_by_bits(np.float32(field[QUAD * ladder + 1] * scale[1]), b):
                    new[1] = np.uint32(new[1] | bit)
                if spin_by_bits(np.float32(field[QUAD * ladder + 2] * scale[2]), c):
                    new[2] = np.uint32(new[2] | bit)
                if spin_by_bits(np.float32(field[QUAD * ladder + 3] * scale[3]), d):
                    new[3] = np.uint32(new[3] | bit)
                if min(min(a, b), min(c, d)) < RARE:
                    rare = np.uint32(rare | bit)
        n0, n1, n2, n3 = new[0], new[1], new[2], new[3]
        while rare:
            bit = np.uint32(cuda.ffs(rare) - 1)
            rare = np.uint32(rare & np.uint32(rare - _ONE))
            which = np.uint64(WORD * group) + np.uint64(bit)
            who = (keys[0, which], keys[1, which], own, quad, column, bit)
            n0 = _renewed(data, block, lane, *who, 0, betas, sweep, x, n0)
            n1 = _renewed(data, block, lane, *who, 1, betas, sweep, x, n1)
            n2 = _renewed(data, block, lane, *who, 2, betas, sweep, x, n2)
            n3 = _renewed(data, block, lane, *who, 3, betas, sweep, x, n3)
        if parts == 1:
            x[place, np.uint64(QUAD * column)] = n0
            x[place, np.uint64(QUAD * column + 1)] = n1
            x[place, np.uint64(QUAD * column + 2)] = n2
            x[place, np.uint64(QUAD * column + 3)] = n3
        else:
            first = (place * np.uint64(columns) + np.uint64(column)) * np.uint64(QUAD * BYTES)
            for k in range(each):
                byte = np.uint32(part * each + k)
                here, by = np.uint64(first + np.uint64(byte)), np.uint32(BITS * byte)
                stored[here] = np.uint8(right(n0, by) & _BYTE)
                stored[here + np.uint64(BYTES)] = np.uint8(right(n1, by) & _BYTE)
                stored[here + np.uint64(2 * BYTES)] = np.uint8(right(n2, by) & _BYTE)
                stored[here + np.uint64(3 * BYTES)] = np.uint8(right(n3, by) & _BYTE)

    return sweep


@entry(fastmath=False)
def add_energies(pair, weight, field, x, parts, total):
    """Add the energies of all replicas to total[column, bit], as integers in any order.

    One thread sums a part of the pairs and places for the 32 bits of a column.
    """
    item = cuda.grid(1)
    part, column = item // x.shape[1], np.uint64(item % x.shape[1])
    if part < parts:
        sums = cuda.local.array(WORD, np.int64)
        for bit in range(WORD):
            sums[bit] = 0
        k = part
        while k < len(weight):
            here, there = x[np.uint64(pair[k, 0]), column], x[np.uint64(pair[k, 1]), column]
            alike, more = np.uint32(~(here ^ there)), weight[k]
            for bit in range(WORD):
                sums[bit] += more if any_bits(alike, np.uint32(1 << bit)) else 0
            k += parts
        k = part
        while k < len(field):
            ones, more = x[np.uint64(k), column], field[k]
            for bit in range(WORD):
                sums[bit] += more if any_bits(ones, np.uint32(1 << bit)) else 0
            k += parts
        for bit in range(WORD):
            cuda.atomic.add(total, (column, bit), sums[bit])


@entry
def find_best(total, columns, stride, levels, best, chosen):
    """Find the replica of a round that is better than each ladder's best one before.

    One thread per ladder. chosen[ladder] is the replica's column in its group, or -1.
    """
    ladder = cuda.grid(1)
    if ladder < len(best):
        group, bit = ladder // WORD, ladder % WORD
        most, where = best[ladder], -1
        for twin in range(columns // stride):
            for k in range(levels):
                value = total[group * columns + twin * stride + k, bit]
                if value > most:
                    most, where = value, twin * stride + k
        best[ladder], chosen[ladder] = most, where


@entry
def keep_best(chosen, columns, x, kept):
    """Copy the states of the chosen replicas to kept[place, group of 32 ladders]."""
    item, groups = cuda.grid(1), kept.shape[1]
    if item < kept.size:
        place, group = np.uint64(item // groups), item % groups
        word = kept[place, np.uint64(group)]
        for bit in range(WORD):
            column = chosen[WORD * group + bit]
            if column >= 0:
                mask = np.uint32(_ONE << np.uint32(bit))
                own = x[place, np.uint64(group * columns + column)]
                word = np.uint32((word & ~mask) | (own & mask))
        kept[place, np.uint64(group)] = word


@literal
def _log_added(before, value):
    """Return the logarithm of exp(before) + exp(value)."""
    high, low = max(before, value), min(before, value)
    return high + math.log1p(math.exp(low - high))


@entry(fastmath=False)
def exchange_levels(
    beta, stride, columns, keys, constant, unit, block, rounds, total, empty,
    accepted, logs, label, label_after, trips, masks, masks_before,
):  # fmt: skip
    """Update the statistics of neighboring levels, and decide which pairs exchange their states.

    One thread per pair of levels, twin and ladder. `masks` gets the bits of the ladders that
    exchange, by column of the lower level. The accumulators of the next round are cleared.
    """
    item, levels = cuda.grid(1), len(beta)
    ladders, pairs = keys.shape[1], levels - 1
    twins = accepted.shape[0]
    if item >= twins * pairs * ladders:
        return
    ladder, k, twin = item % ladders, item // ladders % pairs, item // (ladders * pairs)
    group, bit = ladder // WORD, ladder % WORD
    column = group * columns + twin * stride + k
    low = constant + unit * np.float64(total[column, bit])
    high = constant + unit * np.float64(total[column + 1, bit])
    empty[column, bit] = 0
    if k == pairs - 1:
        empty[column + 1, bit] = 0
    if bit == 0:
        masks_before[column] = _NONE
    step = beta[k + 1] - beta[k]
    gap = step * (low - high)
    accepted[twin, k, ladder] += math.exp(min(0.0, gap))
    logs[block, twin, k, 0, ladder] = _log_added(logs[block, twin, k, 0, ladder], 0.5 * step * low)
    logs[block, twin, k, 1, ladder] = _log_added(
        logs[block, twin, k, 1, ladder], -0.5 * step * high
    )
    parity = rounds % 2
    lower, upper = label[twin, k, ladder], label[twin, k + 1, ladder]
    if k % 2 == parity:
        slot = twin * levels + k
        key0, key1 = keys[0, ladder], keys[1, ladder]
        coarse = np.float64(chain_bits(key0, key1, slot, _NONE, rounds, EXCHANGE))
        fine = np.float64(chain_bits(key0, key1, slot, _NONE, rounds, FURTHER)) + 0.5
        if gap >= 0.0 or math.log((coarse + fine * _HALF_WORD) * _HALF_WORD) < gap:
            cuda.atomic.or_(masks, column, np.uint32(_ONE << np.uint32(bit)))
            lower, upper = upper, lower
    elif k > 0 and k < pairs - 1:
        return
    if k == 0:
        if lower == 2:
            trips[twin, ladder] += 1
        lower = 1
    if k == pairs - 1 and upper == 1:
        upper = 2
    if k % 2 == parity or k == 0:
        label_after[twin, k, ladder] = lower
    if k % 2 == parity or k == pairs - 1:
        label_after[twin, k + 1, ladder] = upper


@entry
def swap_levels(masks, stride, columns, levels, parity, shown, x, target, copy):
    """Exchange the bits of neighboring levels under their masks, and copy the target's states.

    One thread per place, group of ladders, twin and pair. The coldest level of twin `shown` is
    copied to `target`, and to `copy` unless it is empty.
    """
    item = cuda.grid(1)
    pairs, twins = levels // 2 + 1, columns // stride
    groups = x.shape[1] // columns
    if item >= x.shape[0] * groups * twins * pairs:
        return
    pair, rest = item % pairs, item // pairs
    twin, rest = rest % twins, rest // twins
    group, place = rest % groups, np.uint64(rest // groups)
    k = 2 * pair + parity
    first = group * columns + twin * stride
    if k < levels - 1:
        column = np.uint64(first + k)
        low, high = x[place, column], x[place, column + np.uint64(1)]
        change = np.uint32(np.uint32(low ^ high) & masks[column])
        if change:
            x[place, column] = np.uint32(low ^ change)
            x[place, column + np.uint64(1)] = np.uint32(high ^ change)
        if k + 1 == levels - 1 and twin == shown:
            cold = np.uint32(high ^ change)
            target[place, np.uint64(group)] = cold
            if len(copy):
                copy[place * np.uint64(groups) + np.uint64(group)] = cold
    elif k == levels - 1 and twin == shown:
        cold = x[place, np.uint64(first + k)]
        target[place, np.uint64(group)] = cold
        if len(copy):
            copy[place * np.uint64(groups) + np.uint64(group)] = cold


@entry
def grow_clusters(
    raster, rank, start, neighbors, keys, levels, stride, columns, rounds, x, differ, cluster
):
    """Make Houdayer moves between two ladders at every level; one block per group and level.

    The clusters of 32 pairs of ladders grow from one random place each, along pairs at which the
    two ladders differ. The result does not depend on the order of threads. Here place raster[v]
    has index v, rank[place] is its index, and `neighbors` are indices.
    """
    number, thread, places = cuda.blockIdx.x, cuda.threadIdx.x, len(raster)
    group, k = number // levels, number % levels
    one = np.uint64(group * columns + k)
    two = np.uint64(group * columns + stride + k)
    for v in range(thread, places, cuda.blockDim.x):
        place = np.uint64(raster[v])
        differ[number, v] = np.uint32(x[place, one] ^ x[place, two])
        cluster[number, v] = _NONE
    cuda.syncthreads()
    for lane in range(thread, WORD, cuda.blockDim.x):
        ladder = WORD * group + lane
        bits = chain_bits(keys[0, ladder], keys[1, ladder], k, _NONE, rounds, SEED)
        seed = (np.uint64(bits) * np.uint64(places)) >> np.uint64(32)
        v = np.int64(rank[seed])
        bit = np.uint32(_ONE << np.uint32(lane))
        if np.uint32(differ[number, v] & bit):
            cuda.atomic.or_(cluster, (number, v), bit)
    growing = 1
    while growing:
        cuda.syncthreads()
        grown = 0
        for v in range(thread, places, cuda.blockDim.x):
            missing = np.uint32(differ[number, v] & ~cluster[number, v])
            if missing:
                near = _NONE
                for entry in range(start[v], start[v + 1]):
                    near = np.uint32(near | cluster[number, neighbors[entry]])
                if np.uint32(near & missing):
                    cluster[number, v] = np.uint32(cluster[number, v] | np.uint32(near & missing))
                    grown = 1
        growing = cuda.syncthreads_or(grown)
    for v in range(thread, places, cuda.blockDim.x):
        change = cluster[number, v]
        if change:
            place = np.uint64(raster[v])
            x[place, one] = np.uint32(x[place, one] ^ change)
            x[place, two] = np.uint32(x[place, two] ^ change)


@entry(fastmath=False)
def halve_blocks(logs):
    """Join every two blocks of logs[block, twin, pair, 2, ladder]; the second half is emptied."""
    item = cuda.grid(1)
    ladders, pairs, twins = logs.shape[4], logs.shape[2], logs.shape[1]
    if item < ladders * 2 * pairs * twins:
        ladder, rest = item % ladders, item // ladders
        side, rest = rest % 2, rest // 2
        k, twin = rest % pairs, rest // pairs
        for block in range(BLOCKS // 2):
            logs[block, twin, k, side, ladder] = _log_added(
                logs[2 * block, twin, k, side, ladder], logs[2 * block + 1, twin, k, side, ladder]
            )
        for block in range(BLOCKS // 2, BLOCKS):
            logs[block, twin, k, side, ladder] = EMPTY


@entry
def spread_states(states, columns, x):
    """Copy the states of ladders, bits of states[place, group], to all levels."""
    item = cuda.grid(1)
    if item < x.size:
        place, column = np.uint64(item // x.shape[1]), item % x.shape[1]
        x[place, np.uint64(column)] = states[place, np.uint64(column // columns)]
