"""Lattices by color, without lists of neighbors: the word and bit of each site.

The color of a site is a linear function of its coordinates, modulo the number of colors. In a row
along the last axis, the sites of one color are then equally spaced. They are stored as consecutive
bits, 32 per word. A displacement becomes a shift of the bits of one row against another one.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.stencil import Stencil
from minigibbs.kernels.jit import literal, literal_entry
from minigibbs.kernels.lanes import lanes_of
from minigibbs.samplers.chromatic.places import in_parts

BITS = 32  # sites per word
MOST_COLORS = 8
MOST_AXES = 8
_WORTH = 1 << 16  # words that justify a thread
_NUMBER, _WORD = np.int64(0), np.uint32(0)


class Lattice(NamedTuple):
    """The storage order of a lattice's sites: unit (color, row, word) has 32 sites."""

    shape: NDArray[np.int64]  # [axis]
    factor: NDArray[np.int64]  # [axis] of the color; 1 along the last axis
    wraps: NDArray[np.uint8]  # [axis]
    offset: NDArray[np.int64]  # [direction, axis]: each offset, then its opposite
    change: NDArray[np.int64]  # [direction] difference of color along it
    sites: NDArray[np.int64]  # [phase] sites of a color in a row, by the first one
    shift: NDArray[np.int64]  # [phase, direction] displacement of neighbors in bits of their row
    met: NDArray[np.int64]  # [phase, direction] sites of the neighbors' color in their row
    aligned: NDArray[np.uint8]  # [direction] whether neighbors have the places of the sites
    colors: int
    rows: int  # along the last axis
    words: int  # per row and color

    @property
    def units(self) -> int:
        """Number of words per color."""
        return self.rows * self.words


def lattice_of(stencil: Stencil) -> Lattice | None:
    """Lay out a stencil's lattice; None if no linear coloring with few colors exists."""
    offsets = [d for k, d in enumerate(stencil.offsets) if stencil.weights[k].any()]
    factor, colors = _coloring(stencil.shape, offsets, stencil.periodic)
    if not colors:
        return None
    both = [tuple(sign * d for d in one) for one in offsets for sign in (1, -1)]
    steps = np.array(both, np.int64).reshape(-1, len(stencil.shape))
    side, shape = stencil.shape[-1], np.array(stencil.shape, np.int64)
    sites = (side - np.arange(colors) + colors - 1) // colors
    shift, phase = np.divmod(np.arange(colors)[:, None] + steps[:, -1], colors)
    lattice = Lattice(
        shape=shape,
        factor=np.array(factor, np.int64),
        wraps=np.array(stencil.periodic, np.uint8),
        offset=steps,
        change=(steps @ np.array(factor, np.int64)) % colors,
        sites=sites,
        shift=shift,
        met=sites[phase],
        aligned=((shift == 0) & (sites[phase] >= sites[:, None])).all(axis=0).astype(np.uint8),
        colors=colors,
        rows=stencil.variables // side,
        words=-(-side // (colors * BITS)),
    )
    for array in lattice:
        if isinstance(array, np.ndarray):
            array.setflags(write=False)
    return lattice


def _coloring(
    shape: tuple[int, ...], offsets: list[tuple[int, ...]], periodic: tuple[bool, ...]
) -> tuple[tuple[int, ...], int]:
    """Return factors of the coordinates and the number of colors, 0 if no coloring is valid."""
    for colors in range(2, MOST_COLORS + 1):
        choices = [range(1, colors)] * (len(shape) - 1)  # tries (1, ..., 1) first
        if shape[-1] % colors and periodic[-1]:
            continue
        for some in itertools.product(*(itertools.chain(one, [0]) for one in choices)):
            factor = (*some, 1)
            axes = zip(factor, shape, periodic, strict=True)
            if any(wraps and f * side % colors for f, side, wraps in axes):
                continue
            if all(sum(map(int.__mul__, factor, d)) % colors for d in offsets):
                return factor, colors
    return (), 0


@literal
def place_row(lattice, row, at):
    """Write the coordinates of a row to `at`; return the sum of factor times coordinate."""
    total, axis = np.int64(0), len(lattice.shape) - 2
    while axis >= 0:
        at[axis] = row % lattice.shape[axis]
        row //= lattice.shape[axis]
        total += lattice.factor[axis] * at[axis]
        axis -= 1
    return total


@literal
def next_row(lattice, at):
    """Advance the coordinates of a row to those of the next one."""
    axis = len(lattice.shape) - 2
    while axis >= 0:
        at[axis] += 1
        if at[axis] < lattice.shape[axis]:
            break
        at[axis] = 0
        axis -= 1


@literal
def phase_of(lattice, total, color):
    """Return the first site, along the last axis, of a color in a row."""
    return (color - total) % lattice.colors


@literal
def sites_of(lattice, phase):
    """Return the number of sites of a color in a row."""
    return (lattice.shape[len(lattice.shape) - 1] - phase + lattice.colors - 1) // lattice.colors


@literal
def valid_bits(count, word):
    """Return a mask of the bits of a word that are sites, of `count` sites in the row."""
    left = count - BITS * word
    if left >= BITS:
        return np.uint32(0xFFFFFFFF)
    return np.uint32((np.int64(1) << max(left, np.int64(0))) - 1)


@literal
def partner_row(lattice, at, direction):
    """Return the row of a direction's partners; -1 if it is outside the lattice."""
    row, axis = np.int64(0), 0
    while axis < len(lattice.shape) - 1:
        there = at[axis] + lattice.offset[direction, axis]
        side = lattice.shape[axis]
        if there < 0 or there >= side:
            if not lattice.wraps[axis]:
                return np.int64(-1)
            there = there + side if there < 0 else there - side
            there = there % side if there < 0 or there >= side else there
        row = row * side + there
        axis += 1
    return row


@literal
def cut_bits(x, begin, count, first, wraps):
    """Return 32 bits from bit `first` of a row of `count` bits; `wraps` applies outside."""
    if first >= 0 and first + BITS <= count:
        word, by = begin + (first >> 5), np.uint64(first & 31)
        if by == np.uint64(0):
            return x[word]
        both = np.uint64(x[word]) | (np.uint64(x[word + 1]) << np.uint64(32))
        return np.uint32(both >> by)
    if count < BITS:
        return _cut_short(x[begin], count, first, wraps)
    if wraps:
        first = first + count if first < 0 else first - count if first >= count else first
    if first < 0:
        return np.uint32(np.uint64(x[begin]) << np.uint64(min(-first, np.int64(BITS))))
    if first >= count:
        return _WORD
    word, by = begin + (first >> 5), np.uint64(first & 31)
    bits = np.uint64(x[word]) >> by
    if (first & ~31) + BITS < count:
        bits |= np.uint64(x[word + 1]) << (np.uint64(32) - by)
    if wraps and first + BITS > count:
        bits |= np.uint64(x[begin]) << np.uint64(count - first)
    return np.uint32(bits)


@literal
def _cut_short(word, count, first, wraps):
    """Do the same as `cut_bits` for a row that is shorter than a word."""
    bits = np.uint32(0)
    for k in range(BITS):
        place = first + k
        if wraps:
            place %= count
        if place >= 0 and place < count:
            bit = (word >> np.uint32(place)) & np.uint32(1)
            bits = np.uint32(bits | np.uint32(bit << np.uint32(k)))
    return bits


@literal
def present_bits(count, first):
    """Return a mask of the 32 bits from `first` that are sites of a row of `count`."""
    if first >= 0 and first + BITS <= count:
        return np.uint32(0xFFFFFFFF)
    bits = np.uint32(0)
    for k in range(BITS):
        if first + k >= 0 and first + k < count:
            bits = np.uint32(bits | np.uint32(np.uint32(1) << np.uint32(k)))
    return bits


@literal
def unit_sites(lattice, unit, at):
    """Return the first site of a unit, and its number of sites, which are `colors` apart."""
    units, side = lattice.rows * lattice.words, lattice.shape[len(lattice.shape) - 1]
    color, row, word = unit // units, unit % units // lattice.words, unit % lattice.words
    phase = phase_of(lattice, place_row(lattice, row, at), color)
    site = row * side + phase + lattice.colors * BITS * word
    return site, min(sites_of(lattice, phase) - BITS * word, np.int64(BITS))


@literal_entry
def pack_bits(lattice, values, begin, end, out):
    """Pack the sites' values, 0 or 1, into bits, for the units from `begin` to `end`."""
    at = lanes_of(MOST_AXES, _NUMBER)
    for unit in range(begin, end):
        site, count = unit_sites(lattice, unit, at)
        bits = np.uint32(0)
        for k in range(count):
            bits = np.uint32(bits | np.uint32(np.uint32(values[site]) << np.uint32(k)))
            site += lattice.colors
        out[unit] = bits


@literal_entry
def unpack_bits(lattice, x, begin, end, out):
    """Unpack bits into values by site; the inverse of `pack_bits`."""
    at = lanes_of(MOST_AXES, _NUMBER)
    for unit in range(begin, end):
        site, count = unit_sites(lattice, unit, at)
        for k in range(count):
            out[site] = (x[unit] >> np.uint32(k)) & np.uint32(1)
            site += lattice.colors


@literal_entry
def unpack_counts(lattice, ones, sweeps, begin, end, out):
    """Write counts of both values by site, from those of value 1: [unit * 32 + bit]."""
    at = lanes_of(MOST_AXES, _NUMBER)
    for unit in range(begin, end):
        site, count = unit_sites(lattice, unit, at)
        for k in range(count):
            one = np.int64(ones[BITS * unit + k])
            out[site, 0], out[site, 1] = sweeps - one, one
            site += lattice.colors


def packed(lattice: Lattice, values: NDArray[Any]) -> NDArray[np.uint32]:
    """Pack zeros and ones by site into bits by unit."""
    out = np.empty(lattice.colors * lattice.units, np.uint32)
    flat = np.ascontiguousarray(values).ravel()
    flat = flat.view(np.uint8) if flat.dtype == np.bool_ else flat.astype(np.uint8, copy=False)

    def pack(first: int, last: int) -> None:
        pack_bits(lattice, flat, first, last, out)

    in_parts(pack, len(out), len(out) // _WORTH)
    return out
