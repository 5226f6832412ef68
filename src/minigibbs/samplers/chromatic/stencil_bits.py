"""Spins of a lattice as bits in space: 32 sites of a color per word, updated together.

A site's new value is 1 if a random number of 64 bits is below a threshold, which depends on the
number of neighbors that favor 1. The first bits of the numbers of 32 sites are one random word, the
second bits are another one. Words are drawn until every site is decided, usually 8 to 12 of them. A
random word is a function of seed, chain, sweep and site, so any partition of the lattice over
threads or machines gives the same chain.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.checks import some_of
from minigibbs.graph.factors.stencil import Stencil
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.prepared import prepared
from minigibbs.kernels.energy import energies
from minigibbs.kernels.jit import literal
from minigibbs.kernels.lanes import lanes_of
from minigibbs.kernels.philox import site_bits
from minigibbs.samplers.chromatic.lattice import (
    BITS,
    MOST_AXES,
    Lattice,
    cut_bits,
    lattice_of,
    next_row,
    packed,
    partner_row,
    phase_of,
    place_row,
    present_bits,
    valid_bits,
)
from minigibbs.samplers.gibbs.sampler import sum_unary

ABREAST = 16  # words that are updated together
MOST_LEVELS = 128  # combinations of neighbor counts
MOST_DIRECTIONS = 32
PLANES = 64  # bits of a threshold
FIRST_DRAW = 16  # of a site's random words; other layouts use smaller numbers
_WORD, _NUMBER, _ALL = np.uint32(0), np.int64(0), np.uint32(0xFFFFFFFF)
_BYTE, _SITE = np.uint8(0), np.uint64(0)
_ROOM, _NEAR = MOST_LEVELS * ABREAST, MOST_DIRECTIONS * ABREAST


class StencilBits(NamedTuple):
    """The arrays that sweeps of spins on a lattice read.

    A neighbor that favors value 1 counts 2, an absent one 1, any other 0. Neighbors of equal
    strength are counted together. The level of a site is the mixed-radix number with these counts
    as its digits. If no neighbor is absent, fewer levels suffice.
    """

    lattice: Lattice
    digit: NDArray[np.int64]  # [direction] increase of the level per count
    step: NDArray[np.int64]  # [direction] increase of the level per neighbor if none is absent
    fine: NDArray[np.uint64]  # [level] threshold of value 1
    coarse: NDArray[np.uint64]  # the same if no neighbor is absent
    sign: NDArray[np.uint32]  # [direction, unit] whether a coupling is negative; or [0, 0]
    absent: NDArray[np.uint32]  # [direction, unit] whether it is 0; or [0, 0]
    free: NDArray[np.uint32]  # [unit] sites that are not clamped; empty where all are free
    strength: NDArray[np.float64]  # [offset] |J| of J s_i s_j
    constant: float  # the sum of J over all pairs
    field: float  # log-odds of value 1 from unary factors
    rest: float  # the sum of the unary factors with every free variable at 0


class _Couplings(NamedTuple):
    """J of one offset: its magnitude, and its negative and zero sites."""

    size: float
    negative: NDArray[np.bool_] | bool
    zero: NDArray[np.bool_] | None


def stencil_bits(graph: FactorGraph) -> StencilBits | None:
    """Lay out a graph of spins on a lattice, or return None if bits cannot represent it.

    Supported are couplings that are uniform or +-J (or 0), and uniform unary factors.
    """
    return prepared(graph, "stencil bits", None, lambda: _laid_out(graph))


def _laid_out(graph: FactorGraph) -> StencilBits | None:
    stencil = graph.lattice
    if stencil is None or len(graph.hard) or not (some_of(graph.sizes) == 2).all():
        return None
    field, lattice = _field(graph), lattice_of(stencil)
    couplings = [_couplings(stencil, k) for k in range(len(stencil.offsets))]
    if field is None or lattice is None or None in couplings:
        return None
    used = [one for one in couplings if one is not None and one.size]
    sizes, group = np.unique([one.size for one in used], return_inverse=True)
    many = 2 * np.bincount(group, minlength=len(sizes))  # neighbors of each strength
    if math.prod((2 * many + 1).tolist()) > MOST_LEVELS or 2 * len(used) > MOST_DIRECTIONS:
        return None
    digit = np.concatenate([[1], np.cumprod(2 * many + 1)])[:-1].astype(np.int64)
    step = np.concatenate([[1], np.cumprod(many + 1)])[:-1].astype(np.int64)
    fine = _thresholds(sizes, many, field, 1)
    sign, absent = _signs(stencil, lattice, used), _zeros(stencil, lattice, used)
    every = graph.free == len(graph)
    free = np.empty(0, np.uint32) if every else packed(lattice, graph.evidence < 0)
    data = StencilBits(
        lattice=lattice,
        digit=np.repeat(digit[group], 2),
        step=np.repeat(step[group], 2),
        fine=fine,
        coarse=_thresholds(sizes, many, field, 2),
        sign=sign,
        absent=absent,
        free=free,
        strength=np.array([one.size for one in used], np.float64),
        constant=_half(stencil) * stencil.sum_of_weights,
        field=field,
        rest=_rest(graph),
    )
    for array in data:
        if isinstance(array, np.ndarray):
            array.setflags(write=False)
    return data


def _half(stencil: Stencil) -> float:
    """Return J divided by the weight: w [x_i == x_j] is w / 2 (1 + s_i s_j)."""
    return 0.5 * stencil.energy_per_weight


def _field(graph: FactorGraph) -> float | None:
    """Return the log-odds of value 1 from unary factors, if equal at all free variables."""
    unary = sum_unary(graph.rest.packed) if len(graph.factors) > 1 else np.empty(0)
    if not len(unary):
        return 0.0
    odds = (unary[1::2] - unary[::2])[graph.evidence < 0]
    return float(odds[0]) if len(odds) and (odds == odds[0]).all() else None


def _rest(graph: FactorGraph) -> float:
    """Return the energy of the unary factors with every free variable at 0."""
    if len(graph.factors) == 1:
        return 0.0
    states, energy = np.maximum(graph.evidence, 0).astype(graph.state_type)[None], np.empty(1)
    energies(graph.rest.packed, states, energy)
    return float(energy[0])


def _couplings(stencil: Stencil, k: int) -> _Couplings | None:
    """Return the couplings of an offset, or None if their magnitudes differ."""
    weight, half = stencil.weights[k], _half(stencil)
    if stencil.uniform:
        return _Couplings(half * abs(float(weight)), bool(weight < 0), None)
    if stencil.magnitudes[k] > 0.0:  # also false for NaN
        return _Couplings(half * float(stencil.magnitudes[k]), weight < 0, None)
    zero = weight == 0
    size = float(np.abs(weight.flat[int(np.argmin(zero))].astype(np.float64)))
    if not ((weight == size) | (weight == -size) | zero).all():
        return None
    return _Couplings(half * size, weight < 0, zero if zero.any() else None)


def _thresholds(
    sizes: NDArray[np.float64], many: NDArray[np.int64], field: float, each: int
) -> NDArray[np.uint64]:
    """Compute thresholds of all levels; counts have step `each`, 2 if no neighbor is absent."""
    counts = [np.arange(0, 2 * most + 1, each) - most for most in many.tolist()]
    sums = np.zeros(1)
    for size, count in zip(sizes.tolist(), counts, strict=True):
        sums = (sums[None, :] + 2.0 * size * count[:, None]).ravel()
    return np.array([threshold(field + one) for one in sums.tolist()], np.uint64)


def threshold(odds: float) -> int:
    """Return the threshold, out of 2**64, below which a random number means value 1."""
    small = math.exp(-abs(odds))
    rare = int(small / (1.0 + small) * 2.0**PLANES)
    return rare if odds < 0 else min(2**PLANES - rare, 2**PLANES - 1)


def _signs(stencil: Stencil, lattice: Lattice, used: list[_Couplings]) -> NDArray[np.uint32]:
    if not any(np.any(one.negative) for one in used):
        return np.empty((0, 0), np.uint32)
    return _by_direction(stencil, lattice, [one.negative for one in used])


def _zeros(stencil: Stencil, lattice: Lattice, used: list[_Couplings]) -> NDArray[np.uint32]:
    if all(one.zero is None for one in used):
        return np.empty((0, 0), np.uint32)
    return _by_direction(stencil, lattice, [one.zero is not None and one.zero for one in used])


def _by_direction(stencil: Stencil, lattice: Lattice, marks: list[Any]) -> NDArray[np.uint32]:
    """Convert marks of pairs, given at each pair's first site, to bits at both of its sites."""
    numbers = [k for k in range(len(stencil.offsets)) if stencil.weights[k].any()]
    out = np.empty((len(lattice.offset), lattice.colors * lattice.units), np.uint32)
    for place, (k, mark) in enumerate(zip(numbers, marks, strict=True)):
        here = np.broadcast_to(mark, stencil.shape)
        back = np.zeros(stencil.shape, np.bool_)
        for start, end in stencil.pieces(k):
            back[end] = here[start]
        out[2 * place] = packed(lattice, here)
        out[2 * place + 1] = packed(lattice, back)
    return out


@literal
def open_row(lattice, color, at, done, begin, shift, count):
    """Locate the neighbors of a color's sites in a row; return its first site and their number.

    The row has coordinates `at`. Outputs by direction: `begin` is the offset of the neighbors'
    words, or -1 if there are none; `shift` is the displacement in bits along their row; `count` is
    the number of sites in that row. Directions that are `done` are left out.
    """
    total = np.int64(0)
    for axis in range(len(lattice.shape) - 1):
        total += lattice.factor[axis] * at[axis]
    phase = phase_of(lattice, total, color)
    for d in range(len(lattice.offset)):
        if done[d]:
            continue
        other = partner_row(lattice, at, d)
        there = color + lattice.change[d]
        there = there - lattice.colors if there >= lattice.colors else there
        begin[d] = (there * lattice.rows + other) * lattice.words if other >= 0 else np.int64(-1)
        shift[d], count[d] = lattice.shift[phase, d], lattice.met[phase, d]
    return phase, lattice.sites[phase]


@literal
def copy_along(x, first, count, place, up, missing):
    """Store the neighbors of some words of a row that have the same places in theirs."""
    for k in range(count):
        up[place + k], missing[place + k] = x[first + k], _WORD


@literal
def pull_along(lattice, x, d, word, count, begin, shift, sites, place, up, missing):
    """Store one direction's neighbors of `count` words of a row, from `word`, at `place` onward.

    `up` marks neighbors with value 1, and `missing` marks sites without a neighbor. Returns whether
    any neighbor is missing.
    """
    last = len(lattice.shape) - 1
    if begin < 0:
        for k in range(count):
            up[place + k], missing[place + k] = _WORD, _ALL
        return True
    wraps, by = lattice.wraps[last] != 0, np.uint64(shift & 31)
    low = min(max(-(shift >> 5), word), word + count)  # first word with all neighbors in the row
    high = min(max((sites - BITS - shift) // BITS + 1, low), word + count)
    first = begin + low + (shift >> 5)
    if by == np.uint64(0):
        for k in range(high - low):
            up[place + low - word + k] = x[first + k]
    else:
        for k in range(high - low):
            both = np.uint64(x[first + k]) | (np.uint64(x[first + k + 1]) << np.uint64(32))
            up[place + low - word + k] = np.uint32(both >> by)
    for k in range(count):
        missing[place + k] = _WORD
    for k in range(count):
        if word + k < low or word + k >= high:
            begins = BITS * (word + k) + shift
            up[place + k] = cut_bits(x, begin, sites, begins, wraps)
            if not wraps:
                missing[place + k] = np.uint32(~present_bits(sites, begins))
    return not wraps and (low > word or high < word + count)


@literal
def copy_rows(lattice, x, color, at, word, count, up, missing, done):
    """Store the neighbors of words of several rows for directions that do not turn along a row.

    Such neighbors are consecutive unless the lattice ends in between. `done` marks directions whose
    neighbors are stored.
    """
    axis, last = len(lattice.shape) - 2, (word + count - 1) // lattice.words
    if axis < 0 or last == 0:
        return
    if at[axis] + last >= lattice.shape[axis]:
        return
    for d in range(len(lattice.offset)):
        if lattice.aligned[d]:
            other = partner_row(lattice, at, d)
            at[axis] += last
            end = partner_row(lattice, at, d)
            at[axis] -= last
            if other >= 0 and end == other + last:
                there = (color + lattice.change[d]) % lattice.colors
                start = (there * lattice.rows + other) * lattice.words + word
                copy_along(x, start, count, d * ABREAST, up, missing)
                done[d] = np.uint8(1)


@literal
def gather(data, color, first, count, x, up, missing, valid, site):
    """Collect the neighbors of up to 16 units of a color; return whether some are missing.

    The units start at `first`. `up` marks neighbors that favor value 1 at the site.
    """
    lattice, at = data.lattice, lanes_of(MOST_AXES, _NUMBER)
    begin, shift = lanes_of(MOST_DIRECTIONS, _NUMBER), lanes_of(MOST_DIRECTIONS, _NUMBER)
    there, done = lanes_of(MOST_DIRECTIONS, _NUMBER), lanes_of(MOST_DIRECTIONS, _BYTE)
    side = lattice.shape[len(lattice.shape) - 1]
    row, units = first // lattice.words, color * lattice.rows * lattice.words
    word, lane, lost = first - row * lattice.words, np.int64(0), len(data.absent) > 0
    place_row(lattice, row, at)
    for d in range(len(lattice.offset)):
        done[d] = _BYTE
    copy_rows(lattice, x, color, at, word, count, up, missing, done)
    while lane < count:
        some = min(count - lane, lattice.words - word)
        phase, sites = open_row(lattice, color, at, done, begin, shift, there)
        for k in range(some):
            valid[lane + k] = valid_bits(sites, word + k)
            start = row * side + phase + lattice.colors * BITS * (word + k)
            site[lane + k] = np.uint64(start)
        for d in range(len(lattice.offset)):
            if done[d]:
                continue
            place = d * ABREAST + lane
            if begin[d] >= 0 and shift[d] == 0 and there[d] >= sites:
                copy_along(x, begin[d] + word, some, place, up, missing)
                continue
            lost |= pull_along(
                lattice, x, d, word, some, begin[d], shift[d], there[d], place, up, missing
            )
        lane, row, word = lane + some, row + 1, np.int64(0)
        next_row(lattice, at)
    for d in range(len(data.sign)):
        for k in range(count):
            up[d * ABREAST + k] ^= data.sign[d, units + first + k]
    for d in range(len(data.absent)):
        for k in range(count):
            missing[d * ABREAST + k] |= data.absent[d, units + first + k]
    if lost:
        for k in range(len(lattice.offset) * ABREAST):
            up[k] &= ~missing[k]
    for k in range(count, ABREAST):
        valid[k], site[k] = _WORD, _SITE
    return lost


@literal
def coarse_levels(data, up, level):
    """Compute the set of sites at each level, for sites without missing neighbors."""
    levels = len(data.coarse)
    for v in range(levels):
        for lane in range(ABREAST):
            level[v * ABREAST + lane] = _ALL if v == 0 else _WORD
    for d in range(len(data.step)):
        step = data.step[d]
        for v in range(levels - 1, -1, -1):
            below = max(v - step, 0) * ABREAST
            some = _ALL if v >= step else _WORD
            for lane in range(ABREAST):
                a = up[d * ABREAST + lane]
                stay = level[v * ABREAST + lane] & ~a
                level[v * ABREAST + lane] = stay | (level[below + lane] & a & some)
    return levels


@literal
def fine_levels(data, up, missing, level):
    """Compute the set of sites at each level."""
    levels = len(data.fine)
    for v in range(levels):
        for lane in range(ABREAST):
            level[v * ABREAST + lane] = _ALL if v == 0 else _WORD
    for d in range(len(data.digit)):
        step = data.digit[d]
        for v in range(levels - 1, -1, -1):
            one, two = max(v - step, 0) * ABREAST, max(v - 2 * step, 0) * ABREAST
            some, more = _ALL if v >= step else _WORD, _ALL if v >= 2 * step else _WORD
            for lane in range(ABREAST):
                a, b = up[d * ABREAST + lane], missing[d * ABREAST + lane]
                stay = level[v * ABREAST + lane] & ~a & ~b
                moved = (level[one + lane] & b & some) | (level[two + lane] & a & more)
                level[v * ABREAST + lane] = stay | moved
    return levels


@literal
def choose_bits(thresholds, levels, level, site, key0, key1, chain, sweep, open_, new, bits, below):
    """Compare the random numbers of 16 words of sites with the thresholds of their levels."""
    for lane in range(ABREAST):
        new[lane] = _WORD
    plane, draw = PLANES - 1, FIRST_DRAW
    while plane >= 0:
        for lane in range(ABREAST):
            a, b, c, d = site_bits(key0, key1, np.uint32(chain), site[lane], sweep, draw)
            bits[lane], bits[ABREAST + lane] = a, b
            bits[2 * ABREAST + lane], bits[3 * ABREAST + lane] = c, d
        for j in range(4):
            for lane in range(ABREAST):
                below[lane] = _WORD
            for v in range(levels):
                if (thresholds[v] >> np.uint64(plane)) & np.uint64(1):
                    for lane in range(ABREAST):
                        below[lane] |= level[v * ABREAST + lane]
            for lane in range(ABREAST):
                x, t, u = bits[j * ABREAST + lane], below[lane], open_[lane]
                new[lane] |= u & ~x & t
                open_[lane] = u & ~(x ^ t)
            plane -= 1
        draw += 1
        left = _WORD
        for lane in range(ABREAST):
            left = np.uint32(left | open_[lane])
        if left == _WORD:
            break


@literal
def ones_in(word):
    """Count the bits of a 32-bit word that are 1."""
    v = np.uint32(word)
    v = np.uint32(v - ((v >> np.uint32(1)) & np.uint32(0x55555555)))
    v = np.uint32((v & np.uint32(0x33333333)) + ((v >> np.uint32(2)) & np.uint32(0x33333333)))
    v = np.uint32((v + (v >> np.uint32(4))) & np.uint32(0x0F0F0F0F))
    return np.int64(np.uint32(v * np.uint32(0x01010101)) >> np.uint32(24))
