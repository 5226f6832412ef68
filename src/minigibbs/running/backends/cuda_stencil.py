"""Kernels for spins of a lattice on a GPU: one thread updates 32 sites of a color as a word.

States are x[chain * units + unit]; see `samplers.chromatic.lattice` for units. The draws equal
those of the CPU bit by bit. Kernels of sweeps are compiled for a `Pattern`. Their loops over
directions and levels are thus unrolled, and their arrays are registers.

Importing this module needs numba-cuda.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from minigibbs.kernels.philox import chain_bits, quad_bits, site_bits, site_draw
from minigibbs.running.backends.device.toolchain import cuda, entry, inlined
from minigibbs.samplers.chromatic.first import START_DRAW, value_of
from minigibbs.samplers.chromatic.lattice import (
    BITS,
    MOST_AXES,
    cut_bits,
    present_bits,
    unit_sites,
    valid_bits,
)
from minigibbs.samplers.chromatic.stencil_bits import FIRST_DRAW

THREADS = 128
PLANES = 8  # bits of a counter
MOST_COUNTED = (1 << PLANES) - 1
HALF = 32  # random bits per site whose threshold digits are in registers at a time
QUAD = 4  # words of random bits per Philox call

_NONE, _ONE, _ALL = np.uint32(0), np.uint32(1), np.uint32(0xFFFFFFFF)
_S31, _S32 = np.uint32(31), np.uint64(32)


class Pattern(NamedTuple):
    """Properties for which kernels are compiled: all but the sides and weights of a lattice."""

    offset: tuple[tuple[int, ...], ...]  # [direction][axis], shorter than the side if it wraps
    change: tuple[int, ...]  # [direction] increase of the color
    factor: tuple[int, ...]  # [axis] factor of the coordinate in the color
    wraps: tuple[bool, ...]  # [axis]
    colors: int
    step: tuple[int, ...]  # [direction] levels that a neighbor adds
    levels: int
    whole: bool  # rows wrap around and fill their words
    fine: bool  # neighbors may be missing; they add half of what present ones add
    signed: bool  # some couplings are negative
    absent: bool  # some couplings are 0
    clamped: bool  # some sites are clamped
    wide: bool  # numbers of sites may exceed 32 bits


class Unit(NamedTuple):
    """Position of a thread's 32 sites."""

    row: Any
    word: Any  # in the row
    phase: Any  # the first site of the color in the row
    at: Any  # [axis] coordinates of the row


def _moved(axis: int, offset: int, wraps: bool, before: Any) -> Any:
    """Return a function that moves a row along an axis after other moves; -1 if it leaves."""

    @inlined
    def move(row, at, sides, strides):
        there = before(row, at, sides, strides)
        here, side = np.int32(at[axis]), np.int32(sides[axis])
        to = np.int32(here + offset)
        if to < 0 or to >= side:
            if not wraps:
                return np.int32(-1)
            to = np.int32(to + side) if offset < 0 else np.int32(to - side)
        return np.int32(there + (to - here) * strides[axis]) if there >= 0 else there

    return move


@inlined
def _stay(row, at, sides, strides):
    return np.int32(row)


def _neighbors(pattern: Pattern, d: int) -> Any:
    """Return a function that loads a direction's neighbors of 32 sites, and masks missing ones."""
    partner = _stay
    for axis, offset in enumerate(pattern.offset[d][:-1]):
        if offset:
            partner = _moved(axis, offset, pattern.wraps[axis], partner)
    last, change, colors = pattern.offset[d][-1], pattern.change[d], pattern.colors
    back = -(-abs(last) // colors)  # so that no quotient is negative
    wraps, whole, axis = pattern.wraps[-1], pattern.whole, len(pattern.factor) - 1

    @inlined
    def near(x, start, color, unit, rows, words, sides, strides):
        other = partner(unit.row, unit.at, sides, strides)
        if other < 0:
            return _NONE, _ALL
        there = np.uint32(color + change)
        there = np.uint32(there - colors) if there >= colors else there
        begin = np.uint32(np.uint32(there * rows + np.uint32(other)) * words)
        if last == 0:
            return x[np.uint64(start + np.uint64(np.uint32(begin + unit.word)))], _NONE
        further = np.uint32(unit.phase + np.uint32(last + back * colors))
        quotient = np.uint32(further // np.uint32(colors))
        shift = np.int32(quotient - np.uint32(back))
        if whole:
            first = np.int32(np.int32(unit.word) + np.int32(shift >> 5))
            if first < 0:
                first = np.int32(first + words)
            elif first >= words:
                first = np.int32(first - words)
            second = np.uint32(first + 1) if first + 1 < words else _NONE
            low = x[np.uint64(start + np.uint64(np.uint32(begin + np.uint32(first))))]
            high = x[np.uint64(start + np.uint64(np.uint32(begin + second)))]
            both = np.uint64(np.uint64(np.uint64(high) << _S32) | np.uint64(low))
            return np.uint32(both >> np.uint64(np.uint32(shift) & _S31)), _NONE
        phase = np.int64(further - np.uint32(quotient * np.uint32(colors)))
        count = (np.int64(sides[axis]) - phase + colors - 1) // colors
        place = BITS * np.int64(unit.word) + np.int64(shift)
        up = np.uint32(cut_bits(x, np.int64(start) + np.int64(begin), count, place, wraps))
        return up, _NONE if wraps else np.uint32(~present_bits(count, place))

    return near


def _opened(pattern: Pattern) -> Any:
    """Return a function that computes a unit's position, valid sites and first site index."""
    axes, colors, factor, whole = len(pattern.factor), pattern.colors, pattern.factor, pattern.whole
    wide = pattern.wide

    @inlined
    def find(item, color, rows, words, sides, at):
        row = np.uint32(item // np.uint32(words))
        word = np.uint32(item - np.uint32(row * np.uint32(words)))
        rest, total, axis = row, _NONE, axes - 2
        while axis >= 0:
            if axis == 0:
                at[axis] = rest
            else:
                side = np.uint32(sides[axis])
                above = np.uint32(rest // side)
                at[axis] = np.uint32(rest - np.uint32(above * side))
                rest = above
            total = np.uint32(total + np.uint32(factor[axis] * at[axis]))
            axis -= 1
        total = np.uint32(total % np.uint32(colors))
        phase = np.uint32(color - total) if color >= total else np.uint32(color + colors - total)
        side, valid = np.uint32(sides[axes - 1]), _ALL
        if not whole:
            count = (np.int64(side) - np.int64(phase) + colors - 1) // colors
            valid = valid_bits(count, np.int64(word))
        along = np.uint32(phase + np.uint32(colors * BITS * word))
        site = np.uint32(np.uint32(row * side) + along)
        if wide:
            site = np.uint64(np.uint64(row) * np.uint64(side) + np.uint64(along))
        return row, word, phase, valid, site

    return find


@cache
def _gathered(pattern: Pattern, d: int) -> Any:
    """Return a function that masks sites pulled up by a direction, and those with no neighbor."""
    near = _neighbors(pattern, d)
    signed, absent, colors = pattern.signed, pattern.absent, pattern.colors

    @inlined
    def gather(x, start, color, item, unit, rows, words, sides, strides, sign, none):
        up, missing = near(x, start, color, unit, rows, words, sides, strides)
        units = np.uint32(rows * words)
        if signed or absent:
            own = np.uint64(np.uint32(np.uint32(color * units) + item))
            own = np.uint64(own + np.uint64(d) * np.uint64(np.uint32(colors * units)))
            if signed:
                up = np.uint32(up ^ sign[own])
            if absent:
                missing = np.uint32(missing | none[own])
        return up, missing

    return gather


def _leveled(pattern: Pattern, d: int, before: Any) -> Any:
    """Return a function that adds a direction's neighbors to the levels after another function."""
    gather = _gathered(pattern, d)
    step, levels, fine = pattern.step[d], pattern.levels, pattern.fine

    @inlined
    def count(level, x, start, color, item, unit, rows, words, sides, strides, sign, none):
        before(level, x, start, color, item, unit, rows, words, sides, strides, sign, none)
        up, missing = gather(x, start, color, item, unit, rows, words, sides, strides, sign, none)
        v = levels - 1
        if fine:
            up = np.uint32(up & ~missing)
            rest = np.uint32(~np.uint32(up | missing))
            while v >= 0:
                new = np.uint32(level[v] & rest)
                if v >= step:
                    new = np.uint32(new | np.uint32(level[v - step] & missing))
                if v >= 2 * step:
                    new = np.uint32(new | np.uint32(level[v - 2 * step] & up))
                level[v] = new
                v -= 1
        else:
            while v >= 0:
                new = np.uint32(level[v] & ~up)
                if v >= step:
                    new = np.uint32(new | np.uint32(level[v - step] & up))
                level[v] = new
                v -= 1

    return count


def _counted(pattern: Pattern) -> Any:
    """Return a function that masks the sites at each level; see `stencil_bits`."""
    levels = pattern.levels

    @inlined
    def begin(level, x, start, color, item, unit, rows, words, sides, strides, sign, none):
        level[0] = _ALL
        v = 1
        while v < levels:
            level[v] = _NONE
            v += 1

    count = begin
    for d in range(len(pattern.offset)):
        count = _leveled(pattern, d, count)
    return count


@inlined
def _compare(levels, level, digits, bits, undecided, new):
    """Compare a word of random bits with the next digits of the thresholds."""
    below, v = _NONE, 0
    while v < levels:
        digit = digits[v]
        below = np.uint32(below | np.uint32(level[v] & np.uint32(np.int32(digit) >> 31)))
        digits[v] = np.uint32(digit << _ONE)
        v += 1
    new = np.uint32(new | np.uint32(np.uint32(undecided & ~bits) & below))
    return np.uint32(undecided & ~np.uint32(bits ^ below)), new


@cache
def _updated(pattern: Pattern) -> Any:
    """Return a function that updates 32 sites of several chains, and counts the changed values.

    `threshold` has the upper halves of the levels' thresholds, then their lower halves.
    """
    find, count, levels = _opened(pattern), _counted(pattern), pattern.levels
    clamped, colors = pattern.clamped, pattern.colors
    bits_of = site_bits if pattern.wide else quad_bits

    @inlined
    def update(
        level, digits, at, sides, strides, threshold, sign, none, free, rows, words, color, item,
        key0, key1, sweep, chain, step, chains, x,
    ):  # fmt: skip
        units, changes = np.uint32(rows * words), np.int64(0)
        row, word, phase, valid, site = find(item, color, rows, words, sides, at)
        unit, own = Unit(row, word, phase, at), np.uint32(np.uint32(color * units) + item)
        if clamped:
            valid = np.uint32(valid & free[own])
        while chain < chains:
            start = np.uint64(chain) * np.uint64(np.uint32(colors * units))
            count(level, x, start, color, item, unit, rows, words, sides, strides, sign, none)
            undecided, new, half = valid, _NONE, 0
            while half < 2 and undecided != _NONE:
                v = 0
                while v < levels:
                    digits[v] = threshold[half * levels + v]
                    v += 1
                draw, end = (
                    FIRST_DRAW + half * (HALF // QUAD),
                    FIRST_DRAW + (half + 1) * (HALF // QUAD),
                )
                while draw < end and undecided != _NONE:
                    a, b, c, d = bits_of(key0, key1, np.uint32(chain), site, sweep, np.uint32(draw))
                    undecided, new = _compare(levels, level, digits, a, undecided, new)
                    undecided, new = _compare(levels, level, digits, b, undecided, new)
                    undecided, new = _compare(levels, level, digits, c, undecided, new)
                    undecided, new = _compare(levels, level, digits, d, undecided, new)
                    draw += 1
                half += 1
            place = np.uint64(start + np.uint64(own))
            old = x[place]
            if clamped:
                new = np.uint32(new | np.uint32(old & ~valid))
            changes += cuda.popc(np.uint32(old ^ new))
            x[place] = new
            chain += step
        return changes

    return update


@cache
def sweep_color(pattern: Pattern) -> Any:
    """Return a kernel that updates all sites of one color, 32 sites of one chain per thread."""
    update, levels, axes = _updated(pattern), pattern.levels, len(pattern.factor)

    @entry
    def sweep_words(
        sides, strides, threshold, sign, none, free, rows, words, color,
        seed0, seed1, sweep, chains, x,
    ):  # fmt: skip
        level = cuda.local.array(levels, np.uint32)
        digits = cuda.local.array(levels, np.uint32)
        at = cuda.local.array(axes, np.uint32)
        rows, words, color = np.uint32(rows), np.uint32(words), np.uint32(color)
        item, chain = np.uint32(cuda.grid(2)[0]), cuda.grid(2)[1]
        if item < np.uint32(rows * words):
            update(
                level, digits, at, sides, strides, threshold, sign, none, free, rows, words, color,
                item, np.uint32(seed0), np.uint32(seed1), sweep, chain, cuda.gridsize(2)[1],
                chains, x,
            )  # fmt: skip

    return sweep_words


@inlined
def _add_ones(planes, place, ones):
    """Add a word of bits to bit-sliced counters."""
    plane = 0
    while ones != _NONE and plane < PLANES:
        old = planes[plane, place]
        planes[plane, place] = np.uint32(old ^ ones)
        ones = np.uint32(old & ones)
        plane += 1


@cache
def sweep_together(pattern: Pattern) -> Any:
    """Return a kernel that makes many sweeps; the whole grid waits after each color.

    Sweeps before `noting`, and the last one of every `noting`, add their changes to `changed`.
    If `counting`, values after each sweep are added to the counters of `planes`.
    """
    update, levels, axes = _updated(pattern), pattern.levels, len(pattern.factor)
    colors = pattern.colors

    @entry
    def sweep_words_together(
        sides, strides, threshold, sign, none, free, rows, words, noting, seed0, seed1,
        sweep, sweeps, counting, chains, planes, changed, x,
    ):  # fmt: skip
        level = cuda.local.array(levels, np.uint32)
        digits = cuda.local.array(levels, np.uint32)
        at = cuda.local.array(axes, np.uint32)
        everyone = cuda.cg.this_grid()
        rows, words, changes = np.uint32(rows), np.uint32(words), np.int64(0)
        first, chain = cuda.grid(2)
        across, along = cuda.gridsize(2)
        key0, key1, units = np.uint32(seed0), np.uint32(seed1), np.uint32(rows * words)
        for now in range(sweep, sweep + sweeps):
            weight = noting if now % noting == noting - 1 else 0
            weight = 1 if now < noting else weight
            color = _NONE
            while color < colors:
                item = np.uint32(first)
                while item < units:
                    moved = update(
                        level, digits, at, sides, strides, threshold, sign, none, free, rows,
                        words, color, item, key0, key1, now, chain, along, chains, x,
                    )  # fmt: skip
                    changes += weight * moved
                    own, some = np.uint32(np.uint32(color * units) + item), chain
                    while counting and some < chains:
                        start = np.uint64(some) * np.uint64(np.uint32(colors * units))
                        place = np.uint64(start + np.uint64(own))
                        _add_ones(planes, place, x[place])
                        some += along
                    item = np.uint32(item + np.uint32(across))
                everyone.sync()
                color = np.uint32(color + _ONE)
        if changes:
            cuda.atomic.add(changed, (first + across * chain) % len(changed), changes)

    return sweep_words_together


def _summed(pattern: Pattern, k: int, before: Any) -> Any:
    """Return a function that counts satisfied pairs of an offset after another function."""
    gather = _gathered(pattern, 2 * k)

    @inlined
    def add(totals, x, start, color, item, unit, rows, words, sides, strides, sign, none, valid):
        before(totals, x, start, color, item, unit, rows, words, sides, strides, sign, none, valid)
        up, missing = gather(x, start, color, item, unit, rows, words, sides, strides, sign, none)
        here = x[np.uint64(start + np.uint64(np.uint32(np.uint32(color * rows) * words + item)))]
        pairs = np.uint32(valid & ~missing)
        totals[k] += cuda.popc(np.uint32(np.uint32(~np.uint32(up ^ here)) & pairs))

    return add


@inlined
def _no_pairs(totals, x, start, color, item, unit, rows, words, sides, strides, sign, none, valid):
    pass


@cache
def count_pairs(pattern: Pattern) -> Any:
    """Return a kernel that adds satisfied pairs per offset, then ones, to sums[chain, ..]."""
    terms, axes, colors = len(pattern.offset) // 2, len(pattern.factor), pattern.colors
    find, add, clamped = _opened(pattern), _no_pairs, pattern.clamped
    for k in range(terms):
        add = _summed(pattern, k, add)
    room = terms + 1

    @entry
    def count_words(sides, strides, sign, none, free, rows, words, x, chains, sums):
        totals = cuda.local.array(room, np.int64)
        at = cuda.local.array(axes, np.uint32)
        rows, words = np.uint32(rows), np.uint32(words)
        units, k = np.uint32(rows * words), cuda.grid(2)[1]
        while k < len(chains):
            start = np.uint64(chains[k]) * np.uint64(np.uint32(colors * units))
            for term in range(room):
                totals[term] = 0
            place, step = np.uint32(cuda.grid(2)[0]), np.uint32(cuda.gridsize(2)[0])
            while place < np.uint32(colors * units):
                color = np.uint32(place // units)
                item = np.uint32(place - np.uint32(color * units))
                row, word, phase, valid, _ = find(item, color, rows, words, sides, at)
                unit = Unit(row, word, phase, at)
                add(
                    totals,
                    x,
                    start,
                    color,
                    item,
                    unit,
                    rows,
                    words,
                    sides,
                    strides,
                    sign,
                    none,
                    valid,
                )
                if clamped:
                    valid = np.uint32(valid & free[np.uint64(place)])
                totals[terms] += cuda.popc(
                    np.uint32(valid & x[np.uint64(start + np.uint64(place))])
                )
                place = np.uint32(place + step)
            for term in range(room):
                if totals[term]:
                    cuda.atomic.add(sums, (k, term), totals[term])
            k += cuda.gridsize(2)[1]

    return count_words


@entry
def count_ones(x, units, record, ones):
    """Add the number of ones of each chain to ones[record, 0, chain]."""
    first, chain = cuda.grid(2)
    across, along = cuda.gridsize(2)
    while chain < ones.shape[2]:
        item, total = first, np.int64(0)
        while item < units:
            total += cuda.popc(x[chain * units + item])
            item += across
        if total:
            cuda.atomic.add(ones, (record, 0, chain), total)
        chain += along


@entry(fastmath=False)
def add_energies(sums, pairs, strength, constant, field, record, energy):
    """Compute energies from satisfied pairs and ones, to energy[record, chain]; clear the sums."""
    k = cuda.grid(1)
    if k < sums.shape[0]:
        terms, total = len(strength), constant
        for term in range(terms):
            total += strength[term] * np.float64(2 * sums[k, term] - pairs[term])
            sums[k, term] = 0
        energy[record, k] = total + field * np.float64(sums[k, terms])
        sums[k, terms] = 0


class Sites(NamedTuple):
    """Properties of a lattice that `unit_sites` reads."""

    shape: Any
    factor: Any
    colors: Any
    rows: Any
    words: Any


@entry
def first_words(shape, factor, colors, rows, words, seed0, seed1, free, fixed, chains, x):
    """Draw initial states, bit by bit as `samplers.chromatic.first` does."""
    at = cuda.local.array(MOST_AXES, np.int64)
    key0, key1, units = np.uint32(seed0), np.uint32(seed1), colors * rows * words
    unit, chain = cuda.grid(2)
    if unit < units:
        site, count = unit_sites(Sites(shape, factor, colors, rows, words), unit, at)
        while chain < chains:
            new = _NONE
            for k in range(count):
                here = site + k * colors
                bits = chain_bits(key0, key1, chain, here, 0, site_draw(here, START_DRAW))
                new = np.uint32(new | np.uint32(np.uint32(value_of(bits, 2)) << np.uint32(k)))
            if len(free):
                new = np.uint32(np.uint32(new & free[unit]) | np.uint32(fixed[unit] & ~free[unit]))
            x[chain * units + unit] = new
            chain += cuda.gridsize(2)[1]


@entry
def pack_words(shape, factor, colors, rows, words, states, first, x):
    """Store states[chain, site] as bits of the chains from `first` on."""
    at = cuda.local.array(MOST_AXES, np.int64)
    (unit, chain), units = cuda.grid(2), colors * rows * words
    if unit < units:
        site, count = unit_sites(Sites(shape, factor, colors, rows, words), unit, at)
        while chain < states.shape[0]:
            new = _NONE
            for k in range(count):
                bit = np.uint32(states[chain, site + k * colors])
                new = np.uint32(new | np.uint32(bit << np.uint32(k)))
            x[(first + chain) * units + unit] = new
            chain += cuda.gridsize(2)[1]


@entry
def unpack_words(shape, factor, colors, rows, words, x, first, chains, across, along, states):
    """Unpack `chains` chains from `first` on to states[chain * across + site * along]."""
    at = cuda.local.array(MOST_AXES, np.int64)
    (unit, chain), units = cuda.grid(2), colors * rows * words
    if unit < units:
        site, count = unit_sites(Sites(shape, factor, colors, rows, words), unit, at)
        while chain < chains:
            word = x[(first + chain) * units + unit]
            for k in range(count):
                place = chain * across + (site + k * colors) * along
                states[place] = (word >> np.uint32(k)) & _ONE
            chain += cuda.gridsize(2)[1]


@entry
def flush_planes(shape, factor, colors, rows, words, planes, ends, times, counts):
    """Add bit-sliced counters planes[plane, chain and unit] to `counts`, and clear them."""
    at = cuda.local.array(MOST_AXES, np.int64)
    ones = cuda.local.array(BITS, np.int64)
    (unit, row), units = cuda.grid(2), colors * rows * words
    if unit < units:
        site, count = unit_sites(Sites(shape, factor, colors, rows, words), unit, at)
        while row < len(counts):
            for k in range(BITS):
                ones[k] = 0
            for chain in range(ends[row], ends[row + 1]):
                for plane in range(PLANES):
                    word = planes[plane, chain * units + unit]
                    for k in range(BITS):
                        ones[k] += np.int64((word >> np.uint32(k)) & _ONE) << plane
                    planes[plane, chain * units + unit] = _NONE
            for k in range(count):
                value = 2 * (site + k * colors)
                counts[row, value] += times * (ends[row + 1] - ends[row]) - ones[k]
                counts[row, value + 1] += ones[k]
            row += cuda.gridsize(2)[1]
