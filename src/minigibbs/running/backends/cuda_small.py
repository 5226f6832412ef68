"""Kernels for small domains on a GPU, one byte per chain.

A launch updates all variables of a color, or sweeps with one site's tables in shared memory. Fields
are summed as on the CPU, with the same random bits. If rounding could change a choice, it is made
in double precision. Draws thus equal those of the CPU, although powers use the device's own
instruction. If threads share a chain, its sums are added in another order, which may change about
one in a million updates.

Importing this module needs numba-cuda.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from minigibbs.kernels.choice import FURTHER, NEAR, TAIL, unit_of
from minigibbs.kernels.lanes import right
from minigibbs.kernels.philox import chain_bits, quad_bits
from minigibbs.running.backends.device.toolchain import at_most, cuda, entry
from minigibbs.running.backends.device.words import quick_power_of_2
from minigibbs.samplers.chromatic.first import START_DRAW, value_of
from minigibbs.samplers.chromatic.small_tails import add_tail
from minigibbs.samplers.chromatic.spin_tails import tail_draws

THREADS = 128
WALKING = 128  # threads per block of `walk_with_tails`, with four chains each
QUAD = 4
_STEP_BITS = (QUAD * WALKING).bit_length() - 1  # log2 of the step between two values
REGISTERS = 80  # per thread of `walk_with_tails`
CHAINS = 128  # per block of `sweep_sites`
_TOGETHER = 4  # exactly evaluated neighbors whose values are loaded together

_LOG_2 = math.log(2.0)
_ZERO = np.float32(0.0)
_LOW = np.float32(-3.0e38)
_NONE, _ONE, _S4, _TAIL = np.uint32(0), np.uint32(1), np.uint32(4), np.uint32(TAIL)
_LOWER, _BYTE = np.uint32(0xFFFF), np.uint32(0xFF)
_TWO = np.uint64(2)
_LEFT, _RIGHT = np.int32(0), np.int32(1)  # 0 and 1 of this type


class Small(NamedTuple):
    """Arrays of `SmallColors` that kernels read; targets are variables, not places."""

    blocks: Any
    variable: Any
    first: Any
    base: Any
    target: Any
    weight: Any
    start: Any
    table: Any


def value_chooser(most):
    """Return a function that chooses one of up to `most` values by log weights in registers."""

    @cuda.jit(device=True, fastmath=False)
    def finely(field, size, bits, key0, key1, chain, variable, sweep):
        sums = cuda.local.array(most, np.float64)
        more = chain_bits(key0, key1, chain, variable, sweep, FURTHER)
        u = (np.float64(bits) + np.float64(more) * 2.0**-32) * 2.0**-32
        top, total, value = np.float64(field[0]), 0.0, 0
        for v in range(1, most):
            if v < size:
                top = max(top, np.float64(field[v]))
        for v in range(most):
            if v < size:
                total += math.exp((np.float64(field[v]) - top) * _LOG_2)
            sums[v] = total
        for v in range(most - 1):
            if v < size - 1 and sums[v] <= u * total:
                value += 1
        return value

    @cuda.jit(device=True, inline=True, fastmath=False)
    def choose(field, size, bits, key0, key1, chain, variable, sweep):
        sums = cuda.local.array(most, np.float32)
        top, total, value, above = field[0], _ZERO, _LEFT, _LEFT
        for v in range(1, most):
            if v < size:
                top = field[v] if field[v] > top else top  # `max` would handle NaN
        for v in range(most):
            if v < size:
                total = np.float32(total + quick_power_of_2(np.float32(field[v] - top)))
            sums[v] = total
        mark, near = np.float32(unit_of(bits) * total), np.float32(NEAR * total)
        low, high = np.float32(mark - near), np.float32(mark + near)
        for v in range(most - 1):
            if v < size - 1:
                value = np.int32(value + (_RIGHT if sums[v] <= low else _LEFT))
                above = np.int32(above + (_RIGHT if sums[v] <= high else _LEFT))
        if value != above:  # rounding could change the choice
            value = np.int32(finely(field, size, bits, key0, key1, chain, variable, sweep))
        return value

    return choose


class SmallTails(NamedTuple):
    """Arrays of `SmallTailColors` that kernels read; targets are variables, not places."""

    blocks: Any
    variable: Any
    first: Any
    base: Any
    target: Any
    weight: Any
    parts: Any
    tail: Any


@cache
def _four_values(whole):
    """Return a function that loads a variable's values in a thread's four chains: bytes of a word.

    They are one aligned word if the number of chains is `whole`, a multiple of four.
    """

    @cuda.jit(device=True, inline=True)
    def read(flat, words, row, i, quad, live):
        if whole:
            return words[i * np.uint64(row >> _TWO) + np.uint64(quad)]
        word, begin = _NONE, np.uint64(i * row + np.uint64(QUAD) * np.uint64(quad))
        for c in range(QUAD):
            if c < live:
                value = np.uint32(flat[begin + np.uint64(c)])
                word = np.uint32(word | np.uint32(value << np.uint32(8 * c)))
        return word

    return read


@cache
def _add_heavy(whole):
    """Return a function that adds the exactly evaluated neighbors of a variable, in four chains."""
    read, most = _four_values(whole), _TOGETHER

    @cuda.jit(device=True, inline=True, fastmath=False)
    def add(near, more, weights, column):
        for c in range(QUAD):
            by = 8 * c - _STEP_BITS  # shifts a value to the offset of its log weight
            value = right(near, np.uint32(by)) if by > 0 else np.uint32(near << np.uint32(-by))
            value = np.uint32(value & np.uint32(255 << _STEP_BITS))
            cell = np.uint32(value | np.uint32(column | np.uint32(c * WALKING)))
            weights[cell] = np.float32(weights[cell] + more)

    @cuda.jit(device=True, inline=True, fastmath=False)
    def add_heavy(target, weight, block, entry, flat, words, row, quad, live, weights, column):
        left, count = block.degree, np.uint64(block.count)
        near = cuda.local.array(most, np.uint32)
        more = cuda.local.array(most, np.float32)
        while left >= most:  # issue several loads together to hide the latency
            for k in range(most):
                more[k] = weight[entry]
                near[k] = read(flat, words, row, np.uint64(target[entry]), quad, live)
                entry += count
            for k in range(most):
                add(near[k], more[k], weights, column)
            left -= most
        while left > 0:
            word = read(flat, words, row, np.uint64(target[entry]), quad, live)
            add(word, weight[entry], weights, column)
            entry += count
            left -= 1

    return add_heavy


@cache
def walk_with_tails(most, alike, whole, registers=REGISTERS):
    """Return a kernel of one sweep with four chains per thread: x[variable, chain].

    Log weights of up to `most` values are in shared memory, in columns of the threads. `alike`:
    all variables have `most` values. `whole`: the number of chains is a multiple of four; then
    `words` are the states, four chains per word.
    """
    choose, cells = value_chooser(most), most * QUAD * WALKING
    step = QUAD * WALKING  # from one value to the next
    read, add_heavy = _four_values(whole), _add_heavy(whole)
    options = at_most(registers)

    @entry(fastmath=False, **options)
    def walk_small(
        blocks, variable, first, base, target, weight, parts, tail,
        seed0, seed1, sweep, chains, x, flat, words, changed, drawn,
    ):  # fmt: skip
        key0, key1 = np.uint32(seed0), np.uint32(seed1)
        weights = cuda.shared.array(cells, np.float32)
        stream, field = cuda.local.array(4, np.uint64), cuda.local.array(most, np.float32)
        quad, row = np.uint32(cuda.grid(1)), np.uint64(chains)
        own, begin_chain = np.uint32(cuda.threadIdx.x), QUAD * np.int64(cuda.grid(1))
        live = np.int32(min(chains - begin_chain, QUAD))
        changes, draws, b = np.int32(0), np.int64(0), 0
        while b < len(blocks) and live > 0:
            block = blocks[np.uint64(b)]
            lane, size = 0, most if alike else block["size"]
            while lane < block.count:
                place = np.uint64(block.first + lane)
                i, begin, part = np.uint64(variable[place]), np.uint64(first[place]), parts[place]
                for v in range(most):
                    more = base[begin + np.uint64(v)] if v < size else _LOW
                    for c in range(QUAD):
                        weights[np.uint32(own + np.uint32(v * step + c * WALKING))] = more
                entry = np.uint64(block.entry + lane)
                add_heavy(target, weight, block, entry, flat, words, row, quad, live, weights, own)
                s0, s1, s2, s3 = quad_bits(key0, key1, quad, np.uint32(i), sweep, _NONE)
                t0, t1, t2, t3 = _NONE, _NONE, _NONE, _NONE
                if part.count:
                    t0, t1, t2, t3 = quad_bits(
                        key0, key1, np.uint32(quad >> _ONE), np.uint32(i), sweep, _TAIL
                    )
                old, new, c = read(flat, words, row, i, quad, live), _NONE, np.int32(0)
                while c < live:
                    bits = s0 if c == 0 else s1 if c == 1 else s2 if c == 2 else s3
                    tails = t0 if c == 0 else t1 if c == 1 else t2 if c == 2 else t3
                    tails = right(tails, np.uint32(np.uint32(quad & _ONE) << _S4)) & _LOWER
                    which, at = begin_chain + c, np.uint32(own + np.uint32(c * WALKING))
                    if part.count and tails >= part.cut:
                        found = tail_draws(
                            part, key0, key1, which, np.uint32(i), sweep, tails, stream
                        )
                        draws += found
                        add_tail(
                            tail, part, found, x, i, np.uint64(which), stream, weights, at, step
                        )
                    for v in range(most):
                        field[v] = weights[np.uint32(at + np.uint32(v * step))]
                    value = choose(field, size, bits, key0, key1, which, np.uint32(i), sweep)
                    shift = np.uint32(8 * c)
                    new = np.uint32(new | np.uint32(np.uint32(value) << shift))
                    before = np.uint32(right(old, shift) & _BYTE)
                    changes = np.int32(changes + np.int32(np.uint32(value) != before))
                    c = np.int32(c + 1)
                if whole:
                    words[i * np.uint64(row >> _TWO) + np.uint64(quad)] = new
                else:
                    for c in range(QUAD):
                        if c < live:
                            value = np.uint32(right(new, np.uint32(8 * c)) & _BYTE)
                            flat[i * row + np.uint64(begin_chain + c)] = value
                lane += 1
            b += 1
        if live > 0:
            cuda.atomic.add(changed, cuda.grid(1) % len(changed), changes)
            cuda.atomic.add(drawn, cuda.grid(1) % len(drawn), draws)

    return walk_small


@entry
def first_values(sizes, evidence, seed0, seed1, x):
    """Draw initial states x[variable, chain] uniformly, or copy the evidence."""
    item = cuda.grid(1)
    if item < x.size:
        i, c = item // x.shape[1], item % x.shape[1]
        bits = chain_bits(np.uint32(seed0), np.uint32(seed1), c, np.uint32(i), 0, START_DRAW)
        x[i, c] = value_of(bits, sizes[i]) if evidence[i] < 0 else evidence[i]


@cache
def sweep_color(most):
    """Return a kernel that updates all variables of one color, of up to `most` values.

    The states are x[variable, chain].
    """
    choose = value_chooser(most)

    @entry(fastmath=False)
    def sweep_small(
        blocks, variable, first, base, target, weight, start, table,
        stride, first_block, seed0, seed1, sweep, chains, x, changed,
    ):  # fmt: skip
        key0, key1 = np.uint32(seed0), np.uint32(seed1)
        block = blocks[np.uint64(first_block + cuda.blockIdx.x)]
        across = cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y  # folded: see `device.shapes`
        item = across * cuda.blockDim.x + cuda.threadIdx.x
        if item < block.count * chains:
            lane, c = np.int32(item // chains), np.uint64(item % chains)
            place, size = np.uint64(block.first + lane), block["size"]
            own, begin = np.uint64(variable[place]), np.uint64(first[place])
            field = cuda.local.array(most, np.float32)
            for v in range(most):
                field[v] = base[begin + np.uint64(v)] if v < size else _LOW
            entry, left = np.uint64(block.entry + lane), block.degree
            while left > 0:
                near, row = np.int64(x[np.uint64(target[entry]), c]), np.int64(start[entry])
                if row < 0:
                    more = weight[entry]
                    for v in range(most):
                        field[v] = np.float32(field[v] + more) if v == near else field[v]
                else:
                    row += near
                    for v in range(most):
                        if v < size:
                            field[v] = np.float32(field[v] + table[np.uint64(row + v * stride)])
                entry += np.uint64(block.count)
                left -= 1
            chain, own32 = np.int64(c), np.uint32(own)
            bits = chain_bits(key0, key1, chain, own32, sweep, 0)
            value = choose(field, size, bits, key0, key1, chain, own32, sweep)
            if x[own, c] != value:
                x[own, c] = value
                cuda.atomic.add(changed, item % len(changed), 1)

    return sweep_small


@cache
def sweep_sites(sites, most, threads):
    """Return a kernel for sites that are all coupled by tables, with `threads` threads per chain.

    The tables of one site, tables[site, (other site, its value, own value)], and the states of a
    block's chains are in shared memory. The next site's tables load while values are chosen.
    """
    choose = value_chooser(most)
    square, width = most * most, sites * most * most
    states, sums_size = sites * CHAINS, threads * most * CHAINS

    @entry(fastmath=False)
    def sweep_all(variable, fields, tables, seed0, seed1, sweep, chains, x, changed):
        key0, key1 = np.uint32(seed0), np.uint32(seed1)
        site = cuda.shared.array(width, np.float32)
        state = cuda.shared.array(states, np.uint8)
        sums = cuda.shared.array(sums_size, np.float32)
        thread = cuda.threadIdx.x
        part, c = np.int32(thread // CHAINS), np.int32(thread % CHAINS)
        chain = cuda.blockIdx.x * CHAINS + c
        inside, changes = chain < chains, 0
        j = part
        while j < sites:
            own = np.uint64(variable[np.uint64(j)])
            state[np.uint32(j * CHAINS + c)] = x[own, np.uint64(chain)] if inside else 0
            j += threads
        k = np.int32(thread)
        while k < width:
            site[np.uint32(k)] = tables[np.uint64(0), np.uint64(k)]
            k += np.int32(threads * CHAINS)
        field = cuda.local.array(most, np.float32)
        cuda.syncthreads()
        i = 0
        while i < sites and chains > 0:  # chains=0 only compiles
            for v in range(most):
                field[v] = _ZERO
            j = part
            while j < sites:
                row = np.int32(j * square + np.int32(state[np.uint32(j * CHAINS + c)]) * most)
                for v in range(most):
                    field[v] += site[np.uint32(row + v)]
                j += threads
            for v in range(most):
                sums[np.uint32((part * most + v) * CHAINS + c)] = field[v]
            cuda.syncthreads()
            following = i + 1 if i + 1 < sites else 0
            k = np.int32(thread)
            while k < width:
                site[np.uint32(k)] = tables[np.uint64(following), np.uint64(k)]
                k += np.int32(threads * CHAINS)
            if part == 0:
                for v in range(most):
                    total = fields[np.uint64(i), np.uint64(v)]
                    for other in range(threads):
                        total += sums[np.uint32((other * most + v) * CHAINS + c)]
                    field[v] = total
                own = np.uint32(variable[np.uint64(i)])
                bits = chain_bits(key0, key1, np.int64(chain), own, sweep, 0)
                value = choose(field, most, bits, key0, key1, np.int64(chain), own, sweep)
                changes += value != state[np.uint32(i * CHAINS + c)]
                state[np.uint32(i * CHAINS + c)] = value
            cuda.syncthreads()
            i += 1
        j = part
        while j < sites and inside and chains > 0:
            own = np.uint64(variable[np.uint64(j)])
            x[own, np.uint64(chain)] = state[np.uint32(j * CHAINS + c)]
            j += threads
        if part == 0 and inside:
            cuda.atomic.add(changed, chain % len(changed), changes)

    return sweep_all


def shared_bytes(sites: int, most: int, threads: int) -> int:
    """Return the bytes of shared memory of a block of `sweep_sites`."""
    return 4 * sites * most * most + sites * CHAINS + 4 * threads * most * CHAINS
