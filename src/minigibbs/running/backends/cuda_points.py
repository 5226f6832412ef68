"""Points on a GPU: a block of threads owns a chain, and proposes for many updates at a time.

A chunk is some consecutive places of the scan. First all threads make all proposals of the chunk,
which do not depend on the state, and count the values at those that the true weights keep. Then
the chunk's values are chosen: side by side, but for an update that looks at one earlier in the
chunk, which waits for its new value. Everything that is added is a whole number, so that results
depend on no order: draws are those of the CPU.

Proposals are made in single precision by 32 bits. What that leaves open, about one in ten thousand,
is settled in double precision by 64.

Importing this module needs numba-cuda.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from llvmlite import ir
from numba import config, cuda
from numba.core import types
from numba.extending import intrinsic

from minigibbs.kernels.decay import LAPLACE
from minigibbs.kernels.lanes import as_float, right
from minigibbs.kernels.philox import quad_bits
from minigibbs.samplers.chromatic.first import FIRST as FIRST_STATE
from minigibbs.samplers.chromatic.first import value_of
from minigibbs.samplers.chromatic.points import (
    BITS,
    CHOICE,
    COUNT,
    HOME_WORDS,
    LAW,
    LEAST,
    LENGTH,
    QUAD,
    ROW,
    START,
    SURPLUS,
    choose_value,
    count_proposals,
    draw_number,
    settle,
    unit_of_words,
)

THREADS = 128
WARP = 32
CHUNK = 32  # updates of a chunk: bits of a word
TILE = 32  # side of the squares in which states are turned
_TILE_ROW = TILE + 1  # so that columns lie in different banks

_ALIGNED = None if config.ENABLE_CUDASIM else 16  # bytes, for loads of four words
_S16, _S32, _LOW = np.uint32(16), np.uint64(32), np.uint32(0xFFFF)
_STRONG = np.uint32(1 << 16)
_NONE, _ONE = np.uint32(0), np.uint32(1)
_UNIT = np.float32(2.0**-32)
_HALF_LOG2_E = np.float32(-0.72134752044448170368)
_LOG2_E = np.float32(-1.44269504088896340736)
_SLACK = np.float32(3e-6)  # what single precision may be off, of a value, and more by the distance
_TINY = np.float32(1e-30)
_FULL = np.uint32(0xFFFFFFFF)


def _load_four(space):
    """An intrinsic that loads four words at a time from one of the address spaces."""

    def generate(context, builder, signature, arguments):
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        four = ir.VectorType(ir.IntType(32), 4)
        start = array.data
        if start.type.addrspace != space:
            start = builder.addrspacecast(start, ir.PointerType(ir.IntType(32), space))
        pointer = builder.bitcast(start, ir.PointerType(four, space))
        words = builder.load(builder.gep(pointer, [arguments[1]]), align=16)
        parts = [builder.extract_element(words, ir.IntType(32)(k)) for k in range(4)]
        return context.make_tuple(builder, signature.return_type, parts)

    return generate


_FOUR_GLOBAL, _FOUR_SHARED = _load_four(1), _load_four(3)


@intrinsic
def far_four(context, words, quad):
    """Words 4 * quad, ..., 4 * quad + 3 of an array in global memory, in one load."""
    return types.UniTuple(types.uint32, 4)(words, types.uint64), _FOUR_GLOBAL


@intrinsic
def near_four(context, words, quad):
    """The same of an array in shared memory."""
    return types.UniTuple(types.uint32, 4)(words, types.uint32), _FOUR_SHARED


@intrinsic
def quick_power_of_2(context, value):
    """2**value by the device's own instruction, to 2**-22."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()])
        code = ir.InlineAsm(kind, "ex2.approx.ftz.f32 $0, $1;", "=f,f")
        return builder.call(code, arguments)

    return types.float32(types.float32), generate


@intrinsic
def quick_root(context, value):
    """The square root by the device's own instruction, to 2**-22."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()])
        code = ir.InlineAsm(kind, "sqrt.approx.ftz.f32 $0, $1;", "=f,f")
        return builder.call(code, arguments)

    return types.float32(types.float32), generate


@intrinsic
def as_word(context, value):
    """The bits of a float."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), generate


@intrinsic
def as_long_double(context, low, high):
    """The double of two words."""

    def generate(context, builder, signature, arguments):
        long = ir.IntType(64)
        low, high = (builder.zext(word, long) for word in arguments)
        return builder.bitcast(
            builder.or_(low, builder.shl(high, ir.Constant(long, 32))), ir.DoubleType()
        )

    return types.float64(types.uint32, types.uint32), generate


@cuda.jit(device=True, inline=True)
def pair_rows(points, row, lane):
    """The eight words of a lane's row: two lanes share the loads of their two rows.

    So a load of a warp touches half as many lines. All lanes of the warp must ask.
    """
    odd = (lane & _ONE) == _ONE
    other = np.uint32(cuda.shfl_xor_sync(_FULL, np.int32(row), 1))
    even_row, odd_row = (other, row) if odd else (row, other)
    half = np.uint64(lane & _ONE)
    a, b, c, d = far_four(points, np.uint64(2) * np.uint64(even_row) + half)
    e, f, g, h = far_four(points, np.uint64(2) * np.uint64(odd_row) + half)
    i = np.uint32(cuda.shfl_xor_sync(_FULL, np.int32(a if odd else e), 1))
    j = np.uint32(cuda.shfl_xor_sync(_FULL, np.int32(b if odd else f), 1))
    k = np.uint32(cuda.shfl_xor_sync(_FULL, np.int32(c if odd else g), 1))
    m = np.uint32(cuda.shfl_xor_sync(_FULL, np.int32(d if odd else h), 1))
    if odd:
        return i, j, k, m, e, f, g, h
    return a, b, c, d, i, j, k, m


@cuda.jit
def first_places(sizes, evidence, variable, seed0, seed1, x):
    """First states x[chain, place]: each value alike, or the evidence."""
    item = cuda.grid(1)
    if item < x.size:
        c, place = item // x.shape[1], item % x.shape[1]
        i = variable[place]
        word = quad_bits(
            np.uint32(seed0), np.uint32(seed1), np.uint32(c >> 2), np.uint32(i), 0, FIRST_STATE
        )
        x[c, place] = value_of(word[c & 3], sizes[i]) if evidence[i] < 0 else evidence[i]


@cuda.jit
def to_variables(x, variable, states):
    """Turn x[chain, place] into states[variable, chain]."""
    tile = cuda.shared.array((TILE, _TILE_ROW), np.uint8)
    column, row = cuda.threadIdx.x, cuda.threadIdx.y
    c, place = cuda.blockIdx.y * TILE + row, cuda.blockIdx.x * TILE + column
    if c < x.shape[0] and place < x.shape[1]:
        tile[row, column] = x[c, place]
    cuda.syncthreads()
    c, place = cuda.blockIdx.y * TILE + column, cuda.blockIdx.x * TILE + row
    if c < x.shape[0] and place < x.shape[1]:
        states[variable[place], c] = tile[column, row]


@cuda.jit
def to_places(states, variable, x):
    """Turn states[variable, chain] into x[chain, place]."""
    item = cuda.grid(1)
    if item < x.size:
        place, c = item // x.shape[0], item % x.shape[0]
        x[c, place] = states[variable[place], c]


@cache
def sweep_points(
    groups, values, quads, plain, threads, chunk=CHUNK, part=0, registers=64, paired=False
):
    """A kernel that sweeps the chain of each block once; `plain` if all functions are Gaussian.

    With another `part` than 0 it leaves work out, for measurements: 1 proposes and keeps nothing, 2
    only counts and chooses, 3 does not look at states, 4 does not load points.
    """
    lanes = min(WARP, threads)
    segments, homes = groups * chunk, 2 + quads
    room, bins, marks = 4 * homes * segments, segments * values, segments + 1
    half = chunk * (chunk - 1) // 2  # pairs of a chunk
    pairs = groups * half + 1

    options = {} if config.ENABLE_CUDASIM else {"max_registers": registers}

    @cuda.jit(fastmath=False, **options)
    def sweep(
        variable, free, homes_of, slots, points, laws, codes, exponents, attracts, more, gains,
        first, sizes, base, key0, key1, number, chains, x, changed, drawn,
    ):  # fmt: skip
        chain, thread = cuda.blockIdx.x, np.int32(cuda.threadIdx.x)
        if chain >= chains:
            return
        own = x[chain]
        home = cuda.shared.array(room, np.uint32, alignment=_ALIGNED)
        ends = cuda.shared.array(marks, np.uint32)
        counts = cuda.shared.array(segments, np.uint32)
        hist = cuda.shared.array(bins, np.uint32)
        waits = cuda.shared.array(pairs, np.uint32)
        needs = cuda.shared.array(chunk, np.uint32)
        fresh = cuda.shared.array(chunk, np.uint32)
        done = cuda.shared.array(1, np.uint32)
        field = cuda.local.array(values, np.float64)
        log_base = cuda.local.array(values, np.float64)
        seed0, seed1, name = np.uint32(key0), np.uint32(key1), np.uint32(chain)
        sweep_low = np.int64(number)
        warp, lane = thread // np.int32(lanes), thread % np.int32(lanes)
        warps = np.int32((threads + lanes - 1) // lanes)
        changes, draws = 0, 0
        k = thread
        while k < bins:
            hist[k] = 0
            k += threads
        k = thread
        while k < pairs:
            waits[k] = 0
            k += threads
        if thread < chunk:
            needs[thread] = 0
        at = np.int32(0)
        while at < free:
            width = min(np.int32(chunk), np.int32(free - at))
            # How many are proposed, by group and update, and what proposals begin with.
            k = thread
            while k < segments:
                g, u = k // np.int32(chunk), k % np.int32(chunk)
                count = np.int64(0)
                if u < width:
                    place = at + u
                    start, bits, row, law = far_four(
                        homes_of, np.uint64((g * variable.size + place) * (HOME_WORDS // QUAD))
                    )
                    least, length, low, high = far_four(
                        homes_of, np.uint64((g * variable.size + place) * (HOME_WORDS // QUAD) + 1)
                    )
                    i = np.uint32(variable[place])
                    _, _, c, d = quad_bits(
                        seed0, seed1, name, i, sweep_low, np.uint32(COUNT + np.uint32(g))
                    )
                    count = count_proposals(laws, law, least, length, unit_of_words(c, d))
                    where = k * np.int32(4 * homes)
                    home[where] = start
                    home[where + 1] = bits
                    home[where + 2] = row
                    home[where + 3] = as_word(np.float32(as_long_double(low, high)))
                    home[where + 4] = i
                    home[where + 5] = as_word(np.float32(more[g]))
                    home[where + 6] = np.uint32(g)
                    for q in range(quads):
                        e, f, h, l = far_four(
                            points, np.uint64(row) * np.uint64(quads) + np.uint64(q)
                        )
                        home[where + 8 + 4 * q] = e
                        home[where + 9 + 4 * q] = f
                        home[where + 10 + 4 * q] = h
                        home[where + 11 + 4 * q] = l
                counts[k] = count
                draws += count
                k += threads
            cuda.syncthreads()
            k = thread
            while k <= segments:
                total, j = _NONE, np.int32(0)
                while j < k:
                    total = np.uint32(total + counts[j])
                    j += np.int32(1)
                ends[k] = total
                if k < segments:
                    begins = np.uint32(2 * np.int64(total))
                    offset = draw_number(k // np.int32(chunk), 0)
                    home[k * np.int32(4 * homes) + 7] = np.uint32(offset - begins)
                k += threads
            cuda.syncthreads()
            # Proposals: each warp takes an equal part, and goes through it lane by lane.
            total = np.uint32(ends[segments])
            ahead = np.uint32(np.uint64(total) * np.uint64(warp) // np.uint64(warps))
            stop = np.uint32(np.uint64(total) * np.uint64(warp + 1) // np.uint64(warps))
            if part == 2:
                stop = _NONE
            segment, left = _NONE, np.uint32(segments)
            while left > _NONE and ahead < stop:  # the segment that holds the first
                middle = right(left, _ONE)
                if ends[np.uint32(segment + middle + _ONE)] <= ahead:
                    segment = np.uint32(segment + middle + _ONE)
                    left = np.uint32(left - middle - _ONE)
                else:
                    left = middle
            while ahead < stop:
                flat = np.uint32(min(np.uint32(ahead + np.uint32(lane)), np.uint32(stop - _ONE)))
                while ends[np.uint32(segment + _ONE)] <= flat:
                    segment = np.uint32(segment + _ONE)
                where = np.uint32(segment * np.uint32(homes))
                start, bits, row, word = near_four(home, where)
                i, ratio, g, offset = near_four(home, np.uint32(where + _ONE))
                draw = np.uint32(offset + np.uint32(flat + flat))
                a, b, c, _ = quad_bits(seed0, seed1, name, i, sweep_low, draw)
                slot = np.uint64(start) + np.uint64(right(a, np.uint32(np.uint32(32) - bits)))
                rest = np.uint32(a << bits)
                cut, begin, count, bound = far_four(slots, np.uint64(2) * slot)
                unsure = right(np.uint32(rest ^ cut), bits) == _NONE
                if rest >= cut:
                    begin, count, bound, _ = far_four(slots, np.uint64(2) * slot + np.uint64(1))
                product = np.uint64(b) * np.uint64(count)
                there = np.uint32(begin + np.uint32(product >> _S32))
                unsure = unsure or np.uint32(product) >= np.uint32(_FULL - count)
                grain = _UNIT * as_float(bound) * as_float(word)
                mark = np.float32(c) * grain
                at_row = np.uint64(there) * np.uint64(quads)
                scale, target, p, q = near_four(home, np.uint32(where + np.uint32(2)))
                e, f, h, l = scale, _NONE, p, q
                e2, f2, h2, l2 = _NONE, _NONE, _NONE, _NONE
                if paired:
                    e, f, h, l, e2, f2, h2, l2 = pair_rows(points, there, np.uint32(lane))
                elif part != 4:
                    e, f, h, l = far_four(points, at_row)
                scale, target = e, f
                step = as_float(h) - as_float(p)
                square = step * step
                step = as_float(l) - as_float(q)
                square += step * step
                for n in range(1, quads):
                    p, q, r, s = near_four(home, np.uint32(where + np.uint32(2 + n)))
                    e, f, h, l = p, q, r, s
                    if paired:
                        e, f, h, l = e2, f2, h2, l2
                    elif part != 4:
                        e, f, h, l = far_four(points, at_row + np.uint64(n))
                    step = as_float(e) - as_float(p)
                    square += step * step
                    step = as_float(f) - as_float(q)
                    square += step * step
                    step = as_float(h) - as_float(r)
                    square += step * step
                    step = as_float(l) - as_float(s)
                    square += step * step
                if plain:
                    power = square * _HALF_LOG2_E
                else:
                    power = square * _HALF_LOG2_E
                    if codes[g] == LAPLACE:
                        power = quick_root(square) * _LOG2_E
                    unsure = unsure or codes[g] > LAPLACE
                value = as_float(scale) * quick_power_of_2(power)
                strong = mark * as_float(ratio)
                slack = (_SLACK + _SLACK * square) * value + grain
                unsure = unsure or not abs(mark - value) > slack
                unsure = unsure or not abs(strong - value) > slack * as_float(ratio)
                unsure = unsure or value < _TINY
                amount = _NONE
                if mark < value and there != row:
                    amount = np.uint32(_STRONG + _ONE) if strong < value else _ONE
                if unsure:
                    u = np.uint32(segment - np.uint32(g * np.uint32(chunk)))
                    at_home = np.uint64(np.uint64(g) * np.uint64(variable.size))
                    at_home = (at_home + np.uint64(at) + np.uint64(u)) * np.uint64(HOME_WORDS)
                    low = homes_of[at_home + np.uint64(SURPLUS)]
                    high = homes_of[at_home + np.uint64(SURPLUS + 1)]
                    found, level = settle(
                        slots, points, quads, start, np.int64(bits), row,
                        as_long_double(low, high), codes[g], exponents[g], more[g],
                        seed0, seed1, name, i, sweep_low, draw,
                    )  # fmt: skip
                    target, amount = np.uint32(found), _ONE if level == 1 else _NONE
                    if level == 2:
                        amount = np.uint32(_STRONG + _ONE)
                if part == 1:
                    if amount > _ONE and value < np.float32(0.0):
                        drawn[0] = 1
                    amount = _NONE
                if amount != _NONE and np.uint32(ahead + np.uint32(lane)) < stop:
                    u = np.uint32(segment - np.uint32(g * np.uint32(chunk)))
                    earlier = np.uint32(target - np.uint32(at))
                    if earlier < u:
                        cuda.atomic.or_(needs, u, np.uint32(_ONE << earlier))
                        pair = right(np.uint32(u * np.uint32(u - _ONE)), _ONE)
                        pair = np.uint32(np.uint32(g * np.uint32(half)) + pair + earlier)
                        cuda.atomic.add(waits, pair, amount)
                    elif part == 3:
                        cuda.atomic.add(hist, np.uint32(segment * np.uint32(values)), amount)
                    else:
                        now = np.uint32(own[np.uint64(target)])
                        cell = np.uint32(segment * np.uint32(values) + now)
                        cuda.atomic.add(hist, cell, amount)
                ahead = np.uint32(ahead + np.uint32(lanes))
            if thread == 0:
                done[0] = 0 if width == 32 else np.uint32(_FULL << np.uint32(width))
                if chunk < 32:
                    done[0] = np.uint32(_FULL << np.uint32(width))
            cuda.syncthreads()
            # Values: those that wait for none of the chunk, then those that waited for them.
            mine, ready, size, begin_at, old, mark_at = _NONE, False, 1, 0, 0, 0.0
            if thread < width:
                mine, place = needs[thread], np.uint64(at + thread)
                size, begin_at, old = sizes[place], first[place], np.int64(own[place])
                a, b, _, _ = quad_bits(
                    seed0, seed1, name, np.uint32(variable[place]), sweep_low, CHOICE
                )
                mark_at = unit_of_words(a, b)
                for v in range(values):
                    log_base[v] = base[np.uint64(begin_at + v)] if v < size else 0.0
            known = done[0]
            while known != _FULL:
                chosen = False
                if thread < width and not ready and np.uint32(mine & ~known) == np.uint32(0):
                    rest = mine
                    while rest != np.uint32(0):
                        earlier = np.int32(0)
                        low = rest & np.uint32(~rest + _ONE)
                        while np.uint32(low >> np.uint32(earlier)) != _ONE:
                            earlier += np.int32(1)
                        rest = np.uint32(rest ^ low)
                        for g in range(groups):
                            pair = np.int32(g * half) + thread * (thread - 1) // 2 + earlier
                            cell = (np.int32(g * chunk) + thread) * values
                            hist[cell + np.int32(fresh[earlier])] += waits[pair]
                            waits[pair] = 0
                    for v in range(values):
                        log_weight = log_base[v]
                        for g in range(groups):
                            segment = np.int32(g * chunk) + thread
                            word = hist[segment * values + v]
                            hist[segment * values + v] = 0
                            top = (v == old) == (attracts[g] != 0)
                            kept = np.uint32(word & _LOW) if top else right(word, _S16)
                            log_weight += gains[g] * np.float64(kept)
                        field[v] = log_weight
                    new = choose_value(field, size, mark_at)
                    fresh[thread] = new
                    changes += 1 if new != old else 0
                    own[np.uint64(at + thread)] = new
                    needs[thread] = 0
                    ready = chosen = True
                cuda.syncthreads()
                if chosen:
                    cuda.atomic.or_(done, 0, np.uint32(_ONE << np.uint32(thread)))
                cuda.syncthreads()
                known = done[0]
            cuda.syncthreads()
            at += np.int32(chunk)
        if changes > 0:
            cuda.atomic.add(changed, chain % len(changed), changes)
        if draws > 0:
            cuda.atomic.add(drawn, chain % len(drawn), draws)

    return sweep


def shared_bytes(groups: int, values: int, quads: int, chunk: int = CHUNK) -> int:
    """What a block of `sweep_points` takes."""
    segments = groups * chunk
    return 4 * (4 * (2 + quads) * segments + 2 * segments + segments * (values + chunk) + 3 * chunk)
