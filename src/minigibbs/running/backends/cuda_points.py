"""Kernels for points on a GPU: a block of threads owns a chain, and proposes many updates together.

A chunk is a number of consecutive places of the scan. First all threads make all proposals of the
chunk, which do not depend on the state, and count the values at accepted ones. Then one warp
chooses the chunk's values in parallel. An update that reads an earlier place of the chunk waits for
its new value. Meanwhile the other warps draw the numbers of proposals of the next chunk. All sums
are sums of integers, so results do not depend on the order, and draws equal those of the CPU.

Proposals use 32 random bits and points packed into few words (see `packed_points`), because loads
take most of the time. About one proposal in three hundred stays undecided. Those are settled
together in double precision with 64 bits. If a model is not large, a block stores its chain's
values in shared memory, a few bits each. Other shared arrays are small: the rest of that memory is
L1 cache, and more cache makes a sweep faster. The chains of a multiprocessor advance at the same
pace, so that they read the same table entries.

Importing this module needs numba-cuda.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from minigibbs.kernels.box_tables import COUNT_MASK, SHARE_BIT
from minigibbs.kernels.decay import LAPLACE
from minigibbs.kernels.lanes import as_float, right
from minigibbs.kernels.philox import quad_bits
from minigibbs.running.backends.device.toolchain import SIMULATED, at_most, cuda, entry
from minigibbs.running.backends.device.toolchain import inlined as _device
from minigibbs.running.backends.device.words import (
    as_long_double,
    as_word,
    far_four,
    far_two,
    multiprocessor,
    near_four,
    quick_power_of_2,
    quick_root,
)
from minigibbs.running.backends.packed_points import packed_quads
from minigibbs.samplers.chromatic.first import START_DRAW, value_of
from minigibbs.samplers.chromatic.points import (
    CHOICE,
    COUNT,
    GRAIN,
    HOME_WORDS,
    QUAD,
    choose_value,
    count_proposals,
    draw_number,
    settle,
    unit_of_words,
)

THREADS = 96
WARP = 32
REGISTERS = 80  # per thread: 24 warps then fit into a multiprocessor
NEAR_BYTES = 20 * 1024  # per block with its chain's values; leaves space for the cache
ALL, NO_PROPOSALS, NO_POINTS = range(3)  # parts to omit when profiling
CHUNK = 32  # updates of a chunk: bits of a word
MOST_OPEN = 64  # undecided proposals of a chunk that are settled together
SOME = 8  # counts that are summed first
CALM = 16  # chunks after which a reduced chunk size grows again
PACES = 1024  # most multiprocessors on which chains share a pace
MOST_HELD = 256  # most proposals that wait for a value of the chunk before it is reduced
TILE = 32  # side of the squares in which states are transposed
_TILE_ROW = TILE + 1  # so that columns are in different banks

_ALIGNED = None if SIMULATED else 16  # bytes, for loads of four words
_S16, _S32, _LOW = np.uint32(16), np.uint64(32), np.uint32(0xFFFF)
_STRONG = np.uint32(1 << 16)
_NONE, _ONE, _ZERO = np.uint32(0), np.uint32(1), np.float32(0.0)
_UNIT = np.float32(2.0**-32)
_BY_POWER = np.float32(1.4)  # growth of a value's error bound with its power of 2
_MOST_SLACK = np.float32(0.1)
_HALF_STEP = np.float32(0.56)  # error bound of a value per half step of its scale
_TINY = np.float32(1e-30)
_WHOLE, _WHOLE_FLOAT = np.uint32(0x4B000000), np.float32(2.0**23)  # a float with unit spacing
_FULL = np.uint32(0xFFFFFFFF)
_UPDATE, _EARLIER, _CHUNK_BITS = np.uint32(27), np.uint32(22), np.uint32(31)  # bits of `Room.held`
_GROUP_BITS = np.uint32(0x1FFFFF)


@entry
def first_places(sizes, evidence, variable, seed0, seed1, x):
    """Draw initial states x[chain, place] uniformly, or copy the evidence."""
    item = cuda.grid(1)
    if item < x.size:
        c, place = item // x.shape[1], item % x.shape[1]
        i = variable[place]
        word = quad_bits(
            np.uint32(seed0), np.uint32(seed1), np.uint32(c >> 2), np.uint32(i), 0, START_DRAW
        )
        x[c, place] = value_of(word[c & 3], sizes[i]) if evidence[i] < 0 else evidence[i]


@entry
def to_variables(x, variable, states):
    """Transpose x[chain, place] to states[variable, chain]."""
    tile = cuda.shared.array((TILE, _TILE_ROW), np.uint8)
    column, row = cuda.threadIdx.x, cuda.threadIdx.y
    for first in range(cuda.blockIdx.y * TILE, x.shape[0], cuda.gridDim.y * TILE):
        c, place = first + row, cuda.blockIdx.x * TILE + column
        if c < x.shape[0] and place < x.shape[1]:
            tile[row, column] = x[c, place]
        cuda.syncthreads()
        c, place = first + column, cuda.blockIdx.x * TILE + row
        if c < x.shape[0] and place < x.shape[1]:
            states[variable[place], c] = tile[column, row]
        cuda.syncthreads()


@entry
def to_places(states, variable, x):
    """Transpose states[variable, chain] to x[chain, place]."""
    item = cuda.grid(1)
    if item < x.size:
        place, c = item // x.shape[0], item % x.shape[0]
        x[c, place] = states[variable[place], c]


class Room(NamedTuple):
    """Shared memory of a block. A segment is one group of factors at one update of the chunk."""

    home: Any  # [segment, word] parameters of its proposals, and the point itself
    groups: Any  # [group, word] parameters that all its segments have in common
    ends: Any  # [segment + 1] first proposal of each segment, and the end of the last
    counts: Any  # [segment] proposals
    sums: Any  # [several segments] their proposals
    seen: Any  # [segment, value] accepted: low half at the pair's maximum, high half at any value
    held: Any  # proposals of unknown value: update, earlier update, group, whether at any value
    holding: Any  # number of those proposals, also beyond capacity
    needs: Any  # [update] mask of the chunk's updates that it waits for
    fresh: Any  # [update] new values
    done: Any  # mask of known values, and number of chosen ones
    open: Any  # undecided proposals
    opened: Any  # number of those proposals, also beyond capacity
    near: Any  # the chain's values, a few bits each


class Who(NamedTuple):
    """Seed, chain and sweep of random bits."""

    seed0: Any
    seed1: Any
    chain: Any
    sweep: Any


@_device
def _bits(who, variable, draw):
    return quad_bits(who.seed0, who.seed1, who.chain, variable, who.sweep, draw)


@_device
def _clear(array, thread):
    k = thread
    while k < array.size:
        array[k] = 0
        k += cuda.blockDim.x


@_device
def _sync_warp():
    """Wait for the other lanes of a warp; simulated blocks have one warp."""
    if SIMULATED:
        cuda.syncthreads()
    else:
        cuda.syncwarp()


@_device
def _add_up_some(room, thread):
    """Sum a few counts each."""
    k = thread
    while k < room.sums.size:
        total, j = _NONE, np.int32(k * SOME)
        while j < min(np.int32((k + 1) * SOME), np.int32(room.counts.size)):
            total = np.uint32(total + room.counts[j])
            j += np.int32(1)
        room.sums[k] = total
        k += cuda.blockDim.x


@_device
def _add_up(room, thread, chunk, words):
    """Sum all counts before each segment, and set the index of its first draw."""
    k = thread
    while k < room.ends.size:
        total, j, few = _NONE, np.int32(0), np.int32(k // SOME)
        while j < few:
            total = np.uint32(total + room.sums[j])
            j += np.int32(1)
        j = np.int32(few * SOME)
        while j < k:
            total = np.uint32(total + room.counts[j])
            j += np.int32(1)
        room.ends[k] = total
        if k < room.counts.size:
            offset = draw_number(k // np.int32(chunk), 0)
            room.home[k * np.int32(words) + 3] = np.uint32(offset - np.uint32(total + total))
        k += cuda.blockDim.x


@_device
def _segment_of(ends, flat):
    """Return the segment that contains a proposal."""
    segment, left = _NONE, np.uint32(ends.size - 1)
    while left > _NONE:
        middle = right(left, _ONE)
        if ends[np.uint32(segment + middle + _ONE)] <= flat:
            segment = np.uint32(segment + middle + _ONE)
            left = np.uint32(left - middle - _ONE)
        else:
            left = middle
    return segment


@cache
def _keeping(bits):
    """Return functions for the values of a chain, which are bits in shared memory if bits > 0.

    They read all, return one, change one, and write all.
    """
    each = 32 // max(bits, 1)
    shift, low, mask = np.uint32(each.bit_length() - 1), np.uint32(each - 1), np.uint32(2**bits - 1)

    @_device
    def read_all(own, near, thread):
        word, words = thread, np.int32((own.size + each - 1) // each)
        while bits > 0 and word < words:
            packed = _NONE
            for k in range(each):
                place = word * np.int32(each) + np.int32(k)
                if place < own.size:
                    packed |= np.uint32(np.uint32(own[place]) << np.uint32(k * bits))
            near[word] = packed
            word += cuda.blockDim.x

    @_device
    def value_at(own, near, place):
        if bits == 0:
            return np.uint32(own[np.uint64(place)])
        by = np.uint32(np.uint32(place & low) * np.uint32(bits))
        return np.uint32(right(near[right(place, shift)], by) & mask)

    @_device
    def change(own, near, place, old, new):
        if bits == 0:
            own[np.uint64(place)] = new
        elif new != old:
            by = np.uint32(np.uint32(place & low) * np.uint32(bits))
            cuda.atomic.xor(near, right(place, shift), np.uint32(np.uint32(old ^ new) << by))

    @_device
    def write_all(own, near, thread):
        place = thread
        while bits > 0 and place < own.size:
            own[place] = value_at(own, near, np.uint32(place))
            place += cuda.blockDim.x

    return read_all, value_at, change, write_all


@_device
def _settled(data, who, g, place, start, bits, row, i, draw):
    """Decide a proposal in double precision; return its place and its count in `Room.seen`."""
    words = np.uint64(np.uint64(g) * np.uint64(data.variable.size) + place) * np.uint64(HOME_WORDS)
    low, high = data.homes[words + np.uint64(GRAIN)], data.homes[words + np.uint64(GRAIN + 1)]
    first = np.uint64(g) * np.uint64(data.variable.size)
    found, level = settle(
        data.slots, data.points, data.quads, first, start, np.int64(bits), row,
        as_long_double(low, high), data.codes[g], data.exponents[g], data.more[g],
        who.seed0, who.seed1, who.chain, i, who.sweep, draw,
    )  # fmt: skip
    amount = _ONE if level == 1 else _NONE
    if level == 2:
        amount = np.uint32(_STRONG + _ONE)
    return np.uint32(found), amount


_BEHIND, _LOST = np.uint32(4), np.uint32(4096)  # wait if ahead by 4 to 4,096 places
_WAITS, _NAP = 128, 250  # number of waits, and nanoseconds of each


@_device
def _keep_pace(pace, slot, at, done):
    """Add finished places to the shared pace, and briefly wait for chains that are behind."""
    cuda.atomic.add(pace, slot, np.uint32(done))
    if not SIMULATED:
        for _ in range(_WAITS):
            together = cuda.atomic.add(pace, slot, _NONE)
            chains = max(cuda.atomic.add(pace, slot + np.uint32(PACES), _NONE), _ONE)
            ahead = np.int64(at) - np.int64(together // chains)
            if ahead < np.int64(_BEHIND) or ahead > np.int64(_LOST):
                break
            cuda.nanosleep(np.uint32(_NAP))


@cache
def _noting(chunk, values, bits):
    """Return a function that counts an accepted proposal."""
    _, value_at, _, _ = _keeping(bits)
    inside = np.uint32(chunk - 1)

    @_device
    def note(room, own, at, segment, g, target, amount):
        """Count the value at an accepted place; defer it if the chunk changes that place first."""
        u = np.uint32(segment & inside)
        earlier = np.uint32(target - np.uint32(at))
        if earlier < u:
            k = cuda.atomic.add(room.holding, 0, _ONE)
            if k < np.uint32(MOST_HELD):
                cuda.atomic.or_(room.needs, u, np.uint32(_ONE << earlier))
                anyway = right(amount, _S16)
                entry = np.uint32(np.uint32(u << _UPDATE) | np.uint32(earlier << _EARLIER))
                room.held[np.uint32(k)] = np.uint32(
                    entry | np.uint32(np.uint32(g << _ONE) | anyway)
                )
        else:
            now = value_at(own, room.near, target)
            cuda.atomic.add(room.seen, np.uint32(segment * np.uint32(values) + now), amount)

    return note


def home_quads(features: int) -> int:
    """Return the quads of words of a segment's home; odd, to avoid bank conflicts."""
    return (1 + -(-(2 + features) // QUAD)) | 1


@_device
def _whole(number):
    """Return a number of at most 23 bits, plus 2**23, as a float."""
    return as_float(np.uint32(number | _WHOLE))


@cache
def _counting(features, chunk):
    """Return functions that load the parameters of a chunk's proposals, and that count them."""
    words, quads = QUAD * home_quads(features), packed_quads(features)

    @_device
    def read_homes(data, packed, room, at, width, thread):
        """Load the parameters of all proposals of an update; see `_stages`."""
        k, home = thread, room.home
        while k < room.counts.size:
            g, u = k // np.int32(chunk), k % np.int32(chunk)
            if u < width:
                quad = np.uint64((g * data.variable.size + at + u) * (HOME_WORDS // QUAD))
                start, bits, row, _ = far_four(data.homes, quad)
                _, _, low, high = far_four(data.homes, quad + np.uint64(1))
                first, i = k * np.int32(words), np.uint32(data.variable[at + u])
                home[first], home[first + 1], home[first + 2] = start, bits, i
                home[first + 4] = row
                grain = np.float32(as_long_double(low, high) * _UNIT / packed.unit[g])
                home[first + 5] = as_word(grain)
                read_point(packed, home, first + 6, row)
            k += cuda.blockDim.x

    @_device
    def read_point(packed, home, first, row):
        for q in range(quads):
            four = far_four(packed.points, np.uint64(row) * np.uint64(quads) + np.uint64(q))
            for n in range(QUAD):
                number = 2 * (QUAD * q + n) - 3  # index of the first feature in a word
                if 0 <= number < features:
                    home[first + number] = as_word(_whole(np.uint32(four[n] & _LOW)))
                if 0 <= number + 1 < features:
                    home[first + number + 1] = as_word(_whole(right(four[n], _S16)))

    @_device
    def count_all(data, who, room, at, width, worker, workers):
        """Draw the number of proposals of each segment; return the sum of a worker's segments."""
        k, draws = worker, np.int64(0)
        while k < room.counts.size:
            g, u, count = k // np.int32(chunk), k % np.int32(chunk), np.int64(0)
            if u < width:
                quad = np.uint64((g * data.variable.size + at + u) * (HOME_WORDS // QUAD))
                _, _, _, distribution = far_four(data.homes, quad)
                least, length, _, _ = far_four(data.homes, quad + np.uint64(1))
                i = np.uint32(data.variable[at + u])
                _, _, c, d = _bits(who, i, np.uint32(COUNT + np.uint32(g)))
                count = count_proposals(
                    data.distributions, distribution, least, length, unit_of_words(c, d)
                )
            room.counts[k] = count
            draws += count
            k += workers
        return draws

    return read_homes, count_all


@cache
def _stages(features, plain, part):
    """Return the three stages of a proposal: table entry, point, and decision by packed words."""
    quads = packed_quads(features)

    @_device
    def own_feature(home, where, number):
        """Return a feature of the update's point as a float; loaded quads are in registers."""
        quad = np.uint32(where + np.uint32(1 + (2 + number) // QUAD))
        return as_float(near_four(home, quad)[(2 + number) % QUAD])

    @_device
    def distance(packed, home, where, there, words):
        """Return a point's scale, and its squared distance from the update's point in steps."""
        scale, square = _whole(np.uint32(words[1] & _LOW)) - _WHOLE_FLOAT, _ZERO
        for q in range(quads):
            if q > 0:  # load the remaining features
                words = far_four(packed.points, np.uint64(there) * np.uint64(quads) + np.uint64(q))
            for n in range(QUAD):
                first = 2 * (QUAD * q + n) - 3
                if 0 <= first < features:
                    step = _whole(np.uint32(words[n] & _LOW)) - own_feature(home, where, first)
                    square += step * step
                if 0 <= first + 1 < features:
                    step = _whole(right(words[n], _S16)) - own_feature(home, where, first + 1)
                    square += step * step
        return scale, square

    @_device
    def power_of(data, g, square, power):
        """Return the log2 of the kernel's value, and whether it cannot be computed here."""
        if plain:
            return square * power, False
        code = data.codes[g]
        reach = quick_root(square) if code == LAPLACE else square
        return reach * power, code > LAPLACE

    @_device
    def begin(data, who, home, where, flat):
        """Return a proposal's table entry, and its random words for a point and a decision."""
        start, bits, i, offset = near_four(home, where)
        a, b, c, _ = _bits(who, i, np.uint32(offset + np.uint32(flat + flat)))
        slot = np.uint64(start) + np.uint64(right(a, np.uint32(np.uint32(32) - bits)))
        return far_two(data.slots, slot), b, c

    @_device
    def find_point(packed, g, slot, b):
        """Return a proposal's point, some of its words, and whether rounding leaves it open."""
        first, word = slot
        count = np.uint32(word & COUNT_MASK)
        product = np.uint64(b) * np.uint64(count)
        there = np.uint32(first + np.uint32(g * np.uint32(packed.members)))
        there = np.uint32(there + np.uint32(product >> _S32))
        unsure = np.uint32(product) >= np.uint32(_FULL - count)
        if part == NO_POINTS:
            there, unsure = _NONE, False
        return there, far_four(packed.points, np.uint64(there) * np.uint64(quads)), unsure

    @_device
    def decide(data, packed, room, where, g, there, words, slot, c, unsure):
        """Return what a proposal adds to `Room.seen`, and whether it is undecided."""
        row, grain, _, _ = near_four(room.home, np.uint32(where + _ONE))
        ratio, word, slack, _ = near_four(room.groups, g)
        scale, square = distance(packed, room.home, where, there, words)
        power, unknown = power_of(data, g, square, as_float(word))
        off = as_float(slack) - as_float(slack) * _BY_POWER * power
        unsure = unsure or unknown or not off < _MOST_SLACK
        value = quick_power_of_2(power) * (_whole(np.uint32(slot[1] & COUNT_MASK)) - _WHOLE_FLOAT)
        grain = as_float(grain) * (_whole(right(slot[1], SHARE_BIT)) - _WHOLE_FLOAT)
        mark, off = np.float32(c) * grain, off * scale * value + _HALF_STEP * value + grain
        value, strong = value * scale, mark * as_float(ratio)
        unsure = unsure or not abs(mark - value) > off
        unsure = unsure or not abs(strong - value) > off * as_float(ratio) or value < _TINY
        amount = _NONE
        if mark < value and there != row:
            amount = np.uint32(_STRONG + _ONE) if strong < value else _ONE
        return amount, unsure

    return begin, find_point, decide


@cache
def _proposing(features, plain, chunk, values, bits, warp_size, part):
    """Return functions that make the proposals of a chunk, and that settle undecided ones."""
    homes, note = home_quads(features), _noting(chunk, values, bits)
    begin, find_point, decide = _stages(features, plain, part)
    inside, by = np.uint32(chunk - 1), np.uint32(chunk.bit_length() - 1)

    @_device
    def settle_open(data, who, room, own, at, worker, workers):
        """Settle the undecided proposals, some by each worker."""
        k, count = np.uint32(worker), min(room.opened[0], np.uint32(MOST_OPEN))
        while k < count:
            flat = room.open[k]
            segment = _segment_of(room.ends, flat)
            g, where = right(segment, by), np.uint32(segment * np.uint32(homes))
            start, bits, i, offset = near_four(room.home, where)
            row, _, _, _ = near_four(room.home, np.uint32(where + _ONE))
            draw = np.uint32(offset + np.uint32(flat + flat))
            place = np.uint64(at) + np.uint64(np.uint32(segment & inside))
            target, amount = _settled(data, who, g, place, start, bits, row, i, draw)
            if amount != _NONE:
                note(room, own, at, segment, g, target, amount)
            k = np.uint32(k + np.uint32(workers))

    @_device
    def offer(room, own, at, segment, flat, target, amount, unsure):
        """Count a proposal, or store it as undecided; return False if there is no space."""
        if unsure:
            k = cuda.atomic.add(room.opened, 0, _ONE)
            if k >= np.uint32(MOST_OPEN):
                return False
            room.open[np.uint32(k)] = flat
        elif amount != _NONE:
            note(room, own, at, segment, right(segment, by), target, amount)
        return True

    @_device
    def propose_some(data, packed, who, room, own, at, flat, stop):
        """Propose until the end, or until the undecided ones are full; return the next proposal.

        Two proposals at a time overlap the latencies of their loads.
        """
        home, segment = room.home, _segment_of(room.ends, flat) if flat < stop else _NONE
        while flat < stop:
            while room.ends[np.uint32(segment + _ONE)] <= flat:
                segment = np.uint32(segment + _ONE)
            next_flat, following = np.uint32(flat + np.uint32(warp_size)), segment
            both = next_flat < stop
            if both:
                while room.ends[np.uint32(following + _ONE)] <= next_flat:
                    following = np.uint32(following + _ONE)
            here, g = np.uint32(segment * np.uint32(homes)), right(segment, by)
            there, g2 = np.uint32(following * np.uint32(homes)), right(following, by)
            slot, b, c = begin(data, who, home, here, flat)
            slot2, b2, c2 = begin(data, who, home, there, next_flat)
            row, words, open1 = find_point(packed, g, slot, b)
            row2, words2, open2 = find_point(packed, g2, slot2, b2)
            amount, unsure = decide(data, packed, room, here, g, row, words, slot, c, open1)
            amount2, unsure2 = decide(data, packed, room, there, g2, row2, words2, slot2, c2, open2)
            if not offer(room, own, at, segment, flat, words[0], amount, unsure):
                return flat
            if both and not offer(room, own, at, following, next_flat, words2[0], amount2, unsure2):
                return next_flat
            segment, flat = following, np.uint32(next_flat + np.uint32(warp_size))
        return flat

    @_device
    def propose_all(data, packed, who, room, own, at, thread):
        """Let each warp make an equal share of the proposals, lane by lane."""
        total, warp = np.uint64(room.ends[room.counts.size]), thread // np.int32(warp_size)
        warps = np.uint64(max(cuda.blockDim.x // warp_size, 1))
        flat = np.uint32(total * np.uint64(warp) // warps)
        flat = np.uint32(flat + np.uint32(thread % np.int32(warp_size)))
        stop = np.uint32(total * np.uint64(warp + 1) // warps)
        left = np.int32(1)
        while left:
            flat = propose_some(data, packed, who, room, own, at, flat, stop)
            left = cuda.syncthreads_or(np.int32(1 if flat < stop else 0))
            if left:
                settle_open(data, who, room, own, at, thread, cuda.blockDim.x)
                cuda.syncthreads()
                if thread == 0:
                    room.opened[0] = _NONE
                cuda.syncthreads()

    return propose_all, settle_open


@cache
def _choosing(groups, values, chunk, bits, warp_size):
    """Return a function by which a warp chooses the values of a chunk."""
    _, value_at, change, _ = _keeping(bits)

    @_device
    def count_ready(room, known, worker, workers):
        """Count deferred values of updates that no longer wait for any other."""
        k = np.uint32(worker)
        while k < room.holding[0]:
            entry = room.held[k]
            u = right(entry, _UPDATE)
            waits = np.uint32(room.needs[u] & np.uint32(~known)) != _NONE
            if not waits and np.uint32(right(known, u) & _ONE) == _NONE:
                last = np.uint32(right(entry, _EARLIER) & _CHUNK_BITS)
                g = right(np.uint32(entry & _GROUP_BITS), _ONE)
                amount = np.uint32(_ONE + np.uint32(np.uint32(entry & _ONE) << _S16))
                cell = np.uint32(np.uint32(g * np.uint32(chunk)) + u)
                cell = np.uint32(cell * np.uint32(values) + room.fresh[last])
                cuda.atomic.add(room.seen, cell, amount)
            k = np.uint32(k + np.uint32(workers))

    @_device
    def weigh(data, room, old, thread, field):
        """Add the accepted proposals to the log weights of all values."""
        for v in range(values):
            for g in range(groups):
                cell = np.uint32((g * chunk + thread) * values + v)
                word, top = room.seen[cell], (v == old) == (data.attracts[g] != 0)
                kept = np.uint32(word & _LOW) if top else right(word, _S16)
                field[v] += data.gains[g] * np.float64(kept)
                room.seen[cell] = 0

    @_device
    def choose_all(data, who, room, own, at, width, thread, field):
        """Choose values in dependency order; return the number of a thread's changes.

        If more proposals wait than fit, nothing is chosen or changed.
        """
        fits = room.holding[0] <= np.uint32(MOST_HELD)
        known = np.uint32(np.uint64(_FULL) << np.uint64(width)) if fits else _FULL
        if thread == 0:
            room.done[0], room.done[1] = known, np.uint32(width) if fits else _NONE
        if not fits and thread < np.int32(chunk):
            room.needs[thread] = _NONE
            for v in range(values):
                for g in range(groups):
                    room.seen[np.uint32((g * chunk + thread) * values + v)] = _NONE
        _sync_warp()
        mine, size, old, u, left = _NONE, np.int64(1), np.int64(0), 0.0, thread < width
        place = np.uint64(at + thread)
        if left:
            mine, size = room.needs[thread], np.int64(data.sizes[place])
            old = np.int64(value_at(own, room.near, np.uint32(place)))
            a, b, _, _ = _bits(who, np.uint32(data.variable[place]), CHOICE)
            u = unit_of_words(a, b)
            for v in range(values):
                field[v] = data.base[np.uint64(data.first[place] + v)] if v < size else 0.0
        changes = 0
        while known != _FULL:
            chosen = left and np.uint32(mine & np.uint32(~known)) == _NONE
            count_ready(room, known, thread, warp_size)
            _sync_warp()
            if chosen:
                weigh(data, room, old, thread, field)
                new = choose_value(field, size, u)
                room.fresh[thread], room.needs[thread] = new, 0
                change(own, room.near, np.uint32(place), np.uint32(old), np.uint32(new))
                changes, left = 1 if new != old else 0, False
            _sync_warp()
            if chosen:
                cuda.atomic.or_(room.done, 0, np.uint32(_ONE << np.uint32(thread)))
            _sync_warp()
            known = room.done[0]
        if thread == 0:
            room.opened[0] = room.holding[0] = _NONE
        return changes

    return choose_all


@cache
def sweep_points(
    groups, values, features, plain, threads, chunk=CHUNK, near=False, part=ALL, registers=REGISTERS
):
    """Return a kernel that sweeps the chain of each block once; `plain`: all kernels are Gaussian.

    `near`: a chain's values are in dynamic shared memory, see `near_bytes`. For profiling, a
    `part` can be omitted.
    """
    warp_size, segments, bits = (
        min(WARP, threads),
        groups * chunk,
        value_bits(values) if near else 0,
    )
    home_words, marks, bins = QUAD * home_quads(features), segments + 1, segments * values
    words, group_words = home_words * segments, QUAD * groups
    sums = -(-segments // SOME)
    (read_homes, count_all), choose_all = (
        _counting(features, chunk),
        _choosing(groups, values, chunk, bits, warp_size),
    )
    propose_all, settle_open = _proposing(features, plain, chunk, values, bits, warp_size, part)
    read_all, _, _, write_all = _keeping(bits)
    options = at_most(registers)

    @entry(fastmath=False, **options)
    def sweep(data, packed, key0, key1, number, chains, x, changed, drawn, pace):
        chain, thread = cuda.blockIdx.x, np.int32(cuda.threadIdx.x)
        if chain >= chains or data.free == 0:
            return
        room = Room(
            cuda.shared.array(words, np.uint32, alignment=_ALIGNED),
            cuda.shared.array(group_words, np.uint32, alignment=_ALIGNED),
            cuda.shared.array(marks, np.uint32),
            cuda.shared.array(segments, np.uint32),
            cuda.shared.array(sums, np.uint32),
            cuda.shared.array(bins, np.uint32),
            cuda.shared.array(MOST_HELD, np.uint32),
            cuda.shared.array(1, np.uint32),
            cuda.shared.array(chunk, np.uint32),
            cuda.shared.array(chunk, np.uint32),
            cuda.shared.array(2, np.uint32),
            cuda.shared.array(MOST_OPEN, np.uint32),
            cuda.shared.array(1, np.uint32),
            cuda.shared.array(0, np.uint32),  # dynamic size, set by the launch
        )
        field = cuda.local.array(values, np.float64)
        who = Who(np.uint32(key0), np.uint32(key1), np.uint32(chain), np.int64(number))
        own, at, changes, draws = x[chain], np.int32(0), np.int64(0), np.int64(0)
        free, step, chosen = np.int32(data.free), np.int32(chunk), np.int32(0)
        slot = np.uint32(multiprocessor() % np.uint32(PACES))
        if thread == 0:
            cuda.atomic.add(pace, slot + np.uint32(PACES), _ONE)
        read_all(own, room.near, thread)
        _clear(room.seen, thread)
        _clear(room.needs, thread)
        _clear(room.opened, thread)
        _clear(room.holding, thread)
        if thread < np.int32(groups):
            first = thread * np.int32(QUAD)
            room.groups[first] = as_word(np.float32(data.more[thread]))
            room.groups[first + 1] = as_word(packed.power[thread])
            room.groups[first + 2] = as_word(packed.slack[thread])
        # With several warps, the first chooses and the others count.
        spared = np.int32(warp_size if threads > warp_size else 0)
        worker, workers = np.int32(thread - spared), np.int32(cuda.blockDim.x - spared)
        width, calm = min(step, free), np.int32(0)
        proposed = count_all(data, who, room, at, width, thread, np.int32(cuda.blockDim.x))
        while at < free:
            cuda.syncthreads()
            read_homes(data, packed, room, at, width, thread)
            _add_up_some(room, thread)
            cuda.syncthreads()
            _add_up(room, thread, chunk, home_words)
            cuda.syncthreads()
            if part != NO_PROPOSALS:
                propose_all(data, packed, who, room, own, at, thread)
            if thread < np.int32(warp_size):
                settle_open(data, who, room, own, at, thread, warp_size)
                _sync_warp()
                changes += choose_all(data, who, room, own, at, width, thread, field)
            following, more = np.int32(at + width), np.int64(0)
            if calm >= CALM:
                step, calm = min(np.int32(2 * step), np.int32(chunk)), np.int32(0)
            rest = min(step, np.int32(free - following))
            if worker >= 0:
                more = count_all(data, who, room, following, rest, worker, workers)
            if thread == np.int32(cuda.blockDim.x - 1):  # an idle thread
                _keep_pace(pace, slot, at, chosen)
            cuda.syncthreads()
            chosen = np.int32(room.done[1])
            if chosen > 0:
                at, draws, proposed = following, draws + proposed, more
                width, calm = rest, np.int32(calm + 1)
            else:  # too many wait for each other; with one update per chunk none waits
                step, calm = max(np.int32(width // np.int32(2)), np.int32(1)), np.int32(0)
                width = step
                proposed = count_all(data, who, room, at, width, thread, np.int32(cuda.blockDim.x))
        write_all(own, room.near, thread)
        if thread == 0:  # all counters are 0 again when the last chain ends
            cuda.atomic.sub(pace, slot, np.uint32(free - chosen))
            cuda.atomic.sub(pace, slot + np.uint32(PACES), _ONE)
        if changes > 0:
            cuda.atomic.add(changed, chain % len(changed), changes)
        if draws > 0:
            cuda.atomic.add(drawn, chain % len(drawn), draws)

    return sweep


def value_bits(values: int) -> int:
    """Return the bits per value in shared memory; they divide a word."""
    return 1 << max(max(values - 1, 1).bit_length() - 1, 0).bit_length()


def near_bytes(variables: int, values: int) -> int:
    """Return the bytes of the values of a chain in shared memory."""
    return 4 * -(-variables * value_bits(values) // 32)


def shared_bytes(groups: int, values: int, features: int, chunk: int) -> int:
    """Return the bytes of the other shared memory of a block of `sweep_points`."""
    words = groups * (chunk * (QUAD * home_quads(features) + 2 + values) + QUAD) + 2 * chunk
    words += -(-groups * chunk // SOME)
    return 4 * (words + MOST_OPEN + MOST_HELD + 5)
