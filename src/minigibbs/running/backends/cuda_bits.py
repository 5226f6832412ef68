"""Spins on a GPU, one bit per chain: 32 chains in a word, and all spins of a color at a time.

A word x[place, w] holds chains 32 w to 32 w + 31 at one place; see `samplers.chromatic.places`. The
draws are those of the CPU, bit by bit: random bits by `kernels.philox`, arithmetic as written.

Importing this module needs numba-cuda.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from minigibbs.kernels.choice import RARE, TAIL, rare_spin, spin_by_bits
from minigibbs.kernels.jit import literal
from minigibbs.kernels.lanes import any_bits, right
from minigibbs.kernels.philox import chain_bits, quad_bits
from minigibbs.running.backends.cuda_colors import WORD
from minigibbs.running.backends.device.toolchain import at_most, cuda, entry
from minigibbs.samplers.chromatic.first import START_DRAW
from minigibbs.samplers.chromatic.places import BLOCK_SIZE
from minigibbs.samplers.chromatic.spin_tails import tail_bits, tail_gain

THREADS = 128
WALKING = 64  # threads of a block that walk
REGISTERS = 48  # of a thread with one chain
HALF = 16  # chains that a thread has in registers at a time
QUAD = 4
PLANES = 8  # bits of a counter
MOST_COUNTED = (1 << PLANES) - 1
COUNTED_BITS = 5  # of how many sweeps are counted at a time
WAITING, FEW_WAITING = 28, 7  # sweeps that are counted at a time; of large states
MOST_JOINED = 4  # neighbors of spins that have a table of thresholds
PATTERNS = 1 << MOST_JOINED  # of their values
_MARKS = PATTERNS * THREADS

_ONE = np.uint32(1)
_LOWER, _S16 = np.uint32(0xFFFF), np.uint32(16)
_S2, _S3 = np.uint32(2), np.uint32(3)
_NIBBLES = np.uint32(0x11111111)
_TAIL = np.uint32(TAIL)
_NONE = np.uint32(0)
_SMALLEST = np.uint32(0xFFFFFFFF)


class Spins(NamedTuple):
    """The arrays of `SpinColors` that kernels read.

    Kernels take them one by one, and whole numbers as Python has them: the type of a tuple is
    found out anew at every launch, which takes longer than a sweep of a small model.
    """

    blocks: Any
    variable: Any
    base: Any
    target: Any
    weight: Any


@literal
def _item(first_block, words):
    """Which block of places a thread is at, which of them it updates, and in which word."""
    if words == 1:  # several blocks of places to a block of threads
        thread = np.uint32(cuda.grid(1))
        lane = np.int32(thread % np.uint32(BLOCK_SIZE))
        return first_block + np.int64(thread // np.uint32(BLOCK_SIZE)), lane, _NONE
    across = cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y  # folded: see `device.shapes`
    item = np.uint32(across * cuda.blockDim.x + cuda.threadIdx.x)
    lane = np.uint32(item // np.uint32(words))
    w = np.uint32(item - np.uint32(lane * np.uint32(words)))
    return first_block + np.int64(cuda.blockIdx.x), np.int32(lane), w


@literal
def _choose(field, key0, key1, group, variable, sweep, lanes):
    """New values of `lanes` chains, the bits of a number, given their log-odds.

    The first of them is chain number `group * lanes`. Returns as well whose random bits need to be
    continued: those are done again one by one, since a register has no number.
    """
    new, rare = _NONE, _NONE
    if lanes == 1:
        bits = chain_bits(key0, key1, group, variable, sweep, 0)
        return np.uint32(spin_by_bits(np.float32(field[0]), bits)), np.uint32(bits < RARE)
    for q in range(lanes // 4):
        quad = np.uint32(group * np.uint32(lanes // 4) + np.uint32(q))
        a, b, c, d = quad_bits(key0, key1, quad, variable, sweep, _NONE)
        if spin_by_bits(np.float32(field[4 * q]), a):
            new = np.uint32(new | np.uint32(1 << (4 * q)))
        if spin_by_bits(np.float32(field[4 * q + 1]), b):
            new = np.uint32(new | np.uint32(2 << (4 * q)))
        if spin_by_bits(np.float32(field[4 * q + 2]), c):
            new = np.uint32(new | np.uint32(4 << (4 * q)))
        if spin_by_bits(np.float32(field[4 * q + 3]), d):
            new = np.uint32(new | np.uint32(8 << (4 * q)))
        if min(min(a, b), min(c, d)) < RARE:
            rare = np.uint32(rare | np.uint32(15 << (4 * q)))
    return new, rare


@literal
def _alone(data, block, lane, key0, key1, chain, sweep, x, w, bit):
    """The new value of one chain, bit number `bit` of x[.., w], where random bits are few."""
    place = block.first + lane
    variable, field = np.uint32(data.variable[place]), data.base[place]
    entry = block.entry + lane
    for _ in range(block.degree):
        if (np.uint32(x[data.target[entry], w]) >> bit) & _ONE:
            field += data.weight[entry]
        entry += block.count
    bits = chain_bits(key0, key1, chain, variable, sweep, 0)
    if bits < RARE:
        return np.uint32(rare_spin(np.float32(field), bits, key0, key1, chain, variable, sweep))
    return np.uint32(spin_by_bits(np.float32(field), bits))


@cache
def _update(kind, lanes):
    """A function for one spin in `lanes` chains, from bit `shift` of x[.., w] on; see `_choose`.

    Log-odds are numbers of type `kind`.
    """
    nothing = kind(0.0)

    @cuda.jit(device=True, inline=True, fastmath=False)
    def update(data, block, lane, key0, key1, group, sweep, x, w, shift):
        place = np.uint64(block.first + lane)
        variable, base = np.uint32(data.variable[place]), data.base[place]
        field = cuda.local.array(lanes, kind)
        for k in range(lanes):
            field[k] = base
        entry, step = np.uint64(block.entry + lane), np.uint64(block.count)
        left = block.degree
        weights, values = cuda.local.array(QUAD, kind), cuda.local.array(QUAD, np.uint32)
        while left >= QUAD:  # distant values are loaded together
            for q in range(QUAD):
                weights[q] = data.weight[entry]
                values[q] = x[np.uint64(data.target[entry]), w]
                entry += step
            for q in range(QUAD):
                near = right(values[q], shift)
                for k in range(lanes):
                    field[k] += weights[q] if any_bits(near, np.uint32(1 << k)) else nothing
            left -= QUAD
        while left > 0:
            weight = data.weight[entry]
            near = right(np.uint32(x[np.uint64(data.target[entry]), w]), shift)
            for k in range(lanes):
                field[k] += weight if any_bits(near, np.uint32(1 << k)) else nothing
            entry += step
            left -= 1
        return _choose(field, key0, key1, group, variable, sweep, lanes)

    return update


@literal
def _continued(data, block, lane, key0, key1, sweep, x, w, first, new, rare):
    """New values, with those of the chains in `rare` drawn with further bits.

    Bit 0 of x[.., w] is chain number `first`.
    """
    while rare:
        bit = np.uint32(cuda.ffs(rare) - 1)
        rare = np.uint32(rare & np.uint32(rare - _ONE))
        chain = np.int64(first) + np.int64(bit)
        one = _alone(data, block, lane, key0, key1, chain, sweep, x, w, bit)
        new = np.uint32((new & ~(_ONE << bit)) | (one << bit))
    return new


@cache
def sweep_color(kind, lanes, registers=REGISTERS):
    """A kernel that updates all spins of one color, one word per thread, `lanes` chains at a time.

    Only the first `chains` are updated: with few of them 1 or 4 lanes pay, else 16. New words go
    to `copy`, too, unless it is empty.
    """
    update = _update(kind, lanes)
    options = at_most(registers if lanes == 1 else None)

    @entry(**options)
    def sweep_bits(
        blocks, variable, base, target, weight,
        first_block, end_block, seed0, seed1, sweep, chains, x, copy,
    ):  # fmt: skip
        data = Spins(blocks, variable, base, target, weight)
        key0, key1 = np.uint32(seed0), np.uint32(seed1)
        words, (number, lane, w) = x.shape[1], _item(first_block, x.shape[1])
        if number >= end_block or chains == 0:  # none: to compile
            return
        block = data.blocks[np.uint64(number)]
        if lane < block.count:
            parts = (min(chains - WORD * np.int64(w), WORD) + lanes - 1) // lanes
            part, new, rare = 0, _NONE, _NONE
            while part < parts:
                shift = np.uint32(part * lanes)
                group = np.uint32(w * np.uint32(WORD // lanes) + np.uint32(part))
                ones, few = update(data, block, lane, key0, key1, group, sweep, x, w, shift)
                new = np.uint32(new | np.uint32(ones << shift))
                rare = np.uint32(rare | np.uint32(few << shift))
                part += 1
            if rare:
                first = WORD * np.int64(w)
                new = _continued(data, block, lane, key0, key1, sweep, x, w, first, new, rare)
            place = np.uint64(block.first + lane)
            x[place, w] = new
            if len(copy):
                copy[place * np.uint64(words) + np.uint64(w)] = new

    return sweep_bits


@cache
def find_thresholds(kind):
    """A kernel that finds what random bits are compared with, for every pattern of neighbors.

    The table is [block][pattern][place]. Bits below the threshold, which is even, take the less
    likely value; where that is 0, the threshold is marked by an odd number.
    """
    nothing = kind(0.0)

    @entry(fastmath=False)
    def find(blocks, base, weight, table):
        block = blocks[np.uint64(cuda.blockIdx.x)]
        item = cuda.threadIdx.x
        while item < block.count * PATTERNS:
            lane, pattern = item % block.count, item // block.count
            sums = base[np.uint64(block.first + lane)]
            for k in range(block.degree):
                more = weight[np.uint64(block.entry + lane + k * block.count)]
                sums += more if (pattern >> k) & 1 else nothing
            field = np.float32(sums)
            likely = field > np.float32(0.0)
            low, high = np.uint32(0), np.uint32(1 << 31)
            while low < high:
                middle = np.uint32(low + np.uint32((high - low) >> _ONE))
                if spin_by_bits(field, np.uint32(middle << _ONE)) != likely:
                    low = np.uint32(middle + _ONE)
                else:
                    high = middle
            mark = np.uint32(np.uint32(low << _ONE) | np.uint32(likely))
            table[np.uint64(PATTERNS * block.first + item)] = mark
            item += cuda.blockDim.x

    return find


@entry
def sweep_patterns(
    blocks, variable, base, target, weight, table,
    first_block, end_block, seed0, seed1, sweep, chains, x, copy,
):  # fmt: skip
    """Update all spins of one color that have few neighbors: one word per thread, by thresholds."""
    data = Spins(blocks, variable, base, target, weight)
    key0, key1 = np.uint32(seed0), np.uint32(seed1)
    marks = cuda.shared.array(_MARKS, np.uint32)  # one column per thread
    words, (number, lane, w) = x.shape[1], _item(first_block, x.shape[1])
    if number >= end_block or chains == 0:  # none: to compile
        return
    block = data.blocks[np.uint64(number)]
    if lane >= block.count:
        return
    own = np.uint32(cuda.threadIdx.x)
    place, count = np.uint64(block.first + lane), np.uint64(block.count)
    near = cuda.local.array(MOST_JOINED, np.uint32)
    entry = np.uint64(block.entry + lane)
    for k in range(MOST_JOINED):
        near[k] = _NONE
        if k < block.degree:
            near[k] = x[np.uint64(target[entry]), w]
            entry += count
    cell = np.uint64(PATTERNS * block.first + lane)
    for pattern in range(PATTERNS):
        marks[np.uint32(pattern * THREADS) + own] = table[cell]
        cell += count
    nibbles = cuda.local.array(QUAD, np.uint32)  # of quads: their neighbors' values
    for j in range(QUAD):
        nibbles[j] = _NONE
        for k in range(MOST_JOINED):
            bits = np.uint32((near[k] >> np.uint32(j)) & _NIBBLES)
            nibbles[j] = np.uint32(nibbles[j] | np.uint32(bits << np.uint32(k)))
    spin, new, rare = np.uint32(variable[place]), _NONE, _NONE
    random = cuda.local.array(QUAD, np.uint32)
    for q in range(WORD // QUAD):
        quad = np.uint32(w * np.uint32(WORD // QUAD) + np.uint32(q))
        a, b, c, d = quad_bits(key0, key1, quad, spin, sweep, _NONE)
        random[0], random[1], random[2], random[3] = a, b, c, d
        for j in range(QUAD):
            pattern = np.uint32((nibbles[j] >> np.uint32(4 * q)) & np.uint32(PATTERNS - 1))
            mark = marks[np.uint32(pattern * np.uint32(THREADS)) + own]
            less = np.uint32(np.uint32(random[j] | _ONE) < mark)
            value = np.uint32((less ^ mark) & _ONE)
            new = np.uint32(new | np.uint32(value << np.uint32(4 * q + j)))
        if min(min(a, b), min(c, d)) < RARE:
            rare = np.uint32(rare | np.uint32(15 << (4 * q)))
    if rare:
        first = WORD * np.int64(w)
        new = _continued(data, block, lane, key0, key1, sweep, x, w, first, new, rare)
    x[place, w] = new
    if len(copy):
        copy[place * np.uint64(words) + np.uint64(w)] = new


@cache
def walk(kind):
    """A kernel that makes whole sweeps, each thread with 16 chains of its own: x[place, half word].

    For graphs of many colors, and enough chains to fill the device by themselves.
    """
    update = _update(kind, HALF)

    @entry
    def walk_bits(blocks, variable, base, target, weight, seed0, seed1, sweep, sweeps, x):
        data = Spins(blocks, variable, base, target, weight)
        key0, key1 = np.uint32(seed0), np.uint32(seed1)
        h = np.uint32(cuda.grid(1))
        if h < x.shape[1]:
            for s in range(sweep, sweep + sweeps):
                for b in range(len(data.blocks)):
                    block = data.blocks[np.uint64(b)]
                    for lane in range(block.count):
                        new, rare = update(data, block, lane, key0, key1, h, s, x, h, _NONE)
                        if rare:
                            new = _continued(
                                data, block, lane, key0, key1, s, x, h, HALF * h, new, rare
                            )
                        x[np.uint64(block.first + lane), h] = new

    return walk_bits


class TailSpins(NamedTuple):
    """The arrays of `SpinTailColors` that kernels read."""

    blocks: Any
    variable: Any
    base: Any
    target: Any
    weight: Any
    parts: Any
    tail: Any


@literal
def _reaching(word, cut):
    """Which halves of a word reach a number: bits 0 and 4."""
    low = _ONE if np.uint32(word & _LOWER) >= cut else _NONE
    return np.uint32(low | (_S16 if np.uint32(word >> _S16) >= cut else _NONE))


@literal
def _drawing(part, key0, key1, group, variable, sweep, lanes):
    """Which of `lanes` chains draw from a tail: bits of a number."""
    drawing = _NONE
    for p in range(lanes // 8):
        pair = np.uint32(group * np.uint32(lanes // 8) + np.uint32(p))
        a, b, c, d = quad_bits(key0, key1, pair, variable, sweep, _TAIL)
        two = _reaching(a, part.cut) | _reaching(b, part.cut) << _ONE
        two |= _reaching(c, part.cut) << _S2 | _reaching(d, part.cut) << _S3
        drawing = np.uint32(drawing | np.uint32(two << np.uint32(8 * p)))
    return drawing


@literal
def _alone_with_tail(data, block, lane, key0, key1, chain, sweep, x, bit, stream):
    """The new value of one chain, bit number `bit` of x[place], and how many factors it drew."""
    place = np.uint64(block.first + lane)
    variable, field = np.uint32(data.variable[place]), data.base[place]
    entry, left = np.uint64(block.entry + lane), block.degree
    while left > 0:
        if (np.uint32(x[np.uint64(data.target[entry])]) >> bit) & _ONE:
            field += data.weight[entry]
        entry += np.uint64(block.count)
        left -= 1
    part, draws = data.parts[place], 0
    if part.count:
        tails = tail_bits(key0, key1, chain, variable, sweep)
        if tails >= part.cut:
            own = (x, place, bit)
            gain, draws = tail_gain(
                data, part, key0, key1, chain, variable, sweep, tails, *own, stream
            )
            field += gain
    bits = chain_bits(key0, key1, chain, variable, sweep, 0)
    if bits < RARE:
        one = rare_spin(np.float32(field), bits, key0, key1, chain, variable, sweep)
        return np.uint32(one), draws
    return np.uint32(spin_by_bits(np.float32(field), bits)), draws


@cache
def walk_with_tails(kind):
    """As `walk`, with a tail at every spin; chains that draw from one are done again one by one."""
    update = _update(kind, HALF)

    @entry
    def walk_tails(
        blocks, variable, base, target, weight, parts, tail, seed0, seed1, sweep, sweeps, x, drawn
    ):
        data = TailSpins(blocks, variable, base, target, weight, parts, tail)
        key0, key1 = np.uint32(seed0), np.uint32(seed1)
        stream, draws = cuda.local.array(4, np.uint64), np.int64(0)
        h = np.uint32(cuda.grid(1))
        if h < x.shape[1]:
            for s in range(sweep, sweep + sweeps):
                for b in range(len(data.blocks)):
                    block = data.blocks[np.uint64(b)]
                    for lane in range(block.count):
                        place = np.uint64(block.first + lane)
                        new, again = update(data, block, lane, key0, key1, h, s, x, h, _NONE)
                        part, own = data.parts[place], np.uint32(data.variable[place])
                        if part.count:
                            again = np.uint32(again | _drawing(part, key0, key1, h, own, s, HALF))
                        while again:
                            bit = np.uint32(cuda.ffs(again) - 1)
                            again = np.uint32(again & np.uint32(again - _ONE))
                            chain = HALF * np.int64(h) + np.int64(bit)
                            one, more = _alone_with_tail(
                                data, block, lane, key0, key1, chain, s, x[:, h], bit, stream
                            )
                            new = np.uint32((new & ~(_ONE << bit)) | (one << bit))
                            draws += more
                        x[place, h] = new
            if draws:
                cuda.atomic.add(drawn, h % len(drawn), draws)

    return walk_tails


@entry
def first_bits(variable, seed0, seed1, x):
    """First states: each bit 0 or 1 alike."""
    key0, key1 = np.uint32(seed0), np.uint32(seed1)
    item = cuda.grid(1)
    if item < x.size:
        place, w = item // x.shape[1], item % x.shape[1]
        new = _NONE
        for q in range(8):
            words = quad_bits(
                key0, key1, np.uint32(8 * w + q), np.uint32(variable[place]), 0, START_DRAW
            )
            for k in range(4):
                new |= (words[k] >> np.uint32(31)) << np.uint32(4 * q + k)
        x[place, w] = new


@entry
def count_bits(waiting, rows, planes):
    """Count the ones of up to 31 rows of waiting[row, word].

    The bits of the counters lie in planes[.., word]: 32 counters at a time.
    """
    item = cuda.grid(1)
    if item < planes.shape[1]:
        sums = cuda.local.array(COUNTED_BITS, np.uint32)  # bits of what is added
        for k in range(COUNTED_BITS):
            sums[k] = _NONE
        for row in range(rows):
            carry = np.uint32(waiting[row, item])
            for k in range(COUNTED_BITS):
                more = np.uint32(sums[k] & carry)
                sums[k] = np.uint32(sums[k] ^ carry)
                carry = more
        carry = _NONE
        for plane in range(PLANES):
            add = sums[plane] if plane < COUNTED_BITS else _NONE
            old = planes[plane, item]
            planes[plane, item] = np.uint32(old ^ np.uint32(add ^ carry))
            carry = np.uint32((old & add) | (carry & np.uint32(old ^ add)))


@entry
def count_changes(x, before, words, last, times, changed):
    """Count the bits of x[word] that differ from before, times a number of counts.

    Of the last of each place's words only the bits in `last` are chains.
    """
    item, step, changes = cuda.grid(1), cuda.gridsize(1), np.int64(0)
    while item < len(x):
        differ = np.uint32(x[item] ^ before[item])
        if (item + 1) % words == 0:
            differ = np.uint32(differ & np.uint32(last))
        changes += cuda.popc(differ)
        item += step
    if changes:
        cuda.atomic.add(changed, cuda.grid(1) % len(changed), times * changes)


@cache
def part_energies(lanes):
    """A kernel for energies, by part, of groups of `lanes` chains of a word: 1, or all 32.

    Sums are parts[part, which group, lane]. A pair of places adds its weight where both have one
    value, a place its field where it is 1. Which of them make a part depends on their number and
    that of the parts alone, so that sums never differ.
    """

    @entry(fastmath=False)
    def add_energies(pair, weight, field, x, firsts, parts):
        # Neighboring threads share a pair.
        part, which = cuda.grid(1) // len(firsts), cuda.grid(1) % len(firsts)
        if part < len(parts):
            first, sums = firsts[which], cuda.local.array(lanes, np.float64)
            w, shift = np.uint64(first // WORD), np.uint32(first % WORD)
            for lane in range(lanes):
                sums[lane] = 0.0
            k = part
            while k < len(pair):
                here, there = x[np.uint64(pair[k, 0]), w], x[np.uint64(pair[k, 1]), w]
                same, add = right(np.uint32(~(here ^ there)), shift), weight[k]
                for lane in range(lanes):
                    sums[lane] += add if any_bits(same, np.uint32(1 << lane)) else 0.0
                k += len(parts)
            k = part
            while k < len(field):
                ones, add = right(x[np.uint64(k), w], shift), field[k]
                for lane in range(lanes):
                    sums[lane] += add if any_bits(ones, np.uint32(1 << lane)) else 0.0
                k += len(parts)
            for lane in range(lanes):
                parts[part, which, lane] = sums[lane]

    return add_energies


@entry
def sum_energies(parts, lanes, constant, record, energy):
    """The sums over all parts, and a constant: energy[record, chain]; a block for each.

    lanes[chain] says which lane of which group it is: numbered group by group.
    """
    sums = cuda.shared.array(THREADS, np.float64)
    k, thread, total = cuda.blockIdx.x, cuda.threadIdx.x, 0.0
    which, lane = lanes[k] // parts.shape[2], lanes[k] % parts.shape[2]
    for part in range(thread, len(parts), THREADS):
        total += parts[part, which, lane]
    sums[thread] = total
    cuda.syncthreads()
    if thread == 0:
        total = 0.0
        for other in range(THREADS):
            total += sums[other]
        energy[record, k] = total + constant


@entry
def read_bits(x, places, fixed, first, packed):
    """Copy the states of chains from number `first` on to packed [chain, byte], 1 bit per variable.

    The first variable of a byte is its lowest bit.
    """
    byte, row = cuda.grid(2)
    if byte < packed.shape[1]:
        for k in range(row, packed.shape[0], cuda.gridsize(2)[1]):
            chain, bits = first + k, _NONE
            for b in range(8):
                variable = 8 * byte + b
                if variable < len(places):
                    place = places[variable]
                    value = np.uint32(fixed[variable])
                    if place >= 0:
                        value = (x[place, chain // WORD] >> np.uint32(chain % WORD)) & _ONE
                    bits = np.uint32(bits | np.uint32(value << np.uint32(b)))
            packed[k, byte] = bits


@entry
def flush_counts(planes, variable, first, ends, times, counts):
    """Add what `times` counts came to, [plane, place, word], to counts[row of chains, value]."""
    place, begin_row = cuda.grid(2)
    if place < planes.shape[1]:
        own = first[variable[place]]
        for row in range(begin_row, len(counts), cuda.gridsize(2)[1]):
            begin, end, ones = ends[row], ends[row + 1], np.int64(0)
            for w in range(begin // WORD, (end + WORD - 1) // WORD):
                mask = _SMALLEST
                if begin > w * WORD:
                    mask = np.uint32(mask & np.uint32(_SMALLEST << np.uint32(begin - w * WORD)))
                if end < (w + 1) * WORD:
                    mask = np.uint32(mask & np.uint32(_SMALLEST >> np.uint32((w + 1) * WORD - end)))
                for plane in range(PLANES):
                    ones += np.int64(cuda.popc(planes[plane, place, w] & mask)) << plane
            counts[row, own] += times * (end - begin) - ones
            counts[row, own + 1] += ones


@entry
def spread_bits(x, places, fixed, states):
    """Copy all states to states [variable, chain], a byte each."""
    chain, first = cuda.grid(2)
    if chain < states.shape[1]:
        w, bit = chain // WORD, np.uint32(chain % WORD)
        for variable in range(first, states.shape[0], cuda.gridsize(2)[1]):
            place = places[variable]
            value = fixed[variable]
            if place >= 0:
                value = (x[place, w] >> bit) & _ONE
            states[variable, chain] = value


@entry
def clear(words):
    """Set all words to 0."""
    item = cuda.grid(1)
    if item < len(words):
        words[item] = _NONE


@entry
def keep_bits(x, places, fixed, kept, variables, record, states):
    """Copy some variables of the kept chains to states[record]: [record, variable, kept chain]."""
    k, first = cuda.grid(2)
    if k < len(kept):
        w, bit = kept[k] // WORD, np.uint32(kept[k] % WORD)
        for i in range(first, len(variables), cuda.gridsize(2)[1]):
            variable = variables[i]
            place = places[variable]
            value = fixed[variable]
            if place >= 0:
                value = (x[place, w] >> bit) & _ONE
            states[record, i, k] = value
