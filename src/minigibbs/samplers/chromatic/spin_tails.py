"""Spins with heavy factors and a minibatched tail: vectorized Poisson-Gibbs by color.

The exactly evaluated factors are stored as in `spins`. Another 16 bits (draw `TAIL`, one word for
two chains) decide whether factors of the tail are drawn. The few chains that draw any do so one by
one. On a dense graph every color is one variable, so this is a systematic scan of vectorized
chains.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.alias import draw_alias
from minigibbs.kernels.choice import RARE, TAIL
from minigibbs.kernels.jit import literal, literal_entry
from minigibbs.kernels.lanes import FULL, bits_of, count_where, lanes_of
from minigibbs.kernels.layout import CHANGES, DRAWS, EVALUATIONS
from minigibbs.kernels.philox import chain_bits, quad_bits
from minigibbs.kernels.poisson import poisson_by_inversion
from minigibbs.kernels.random import uniform
from minigibbs.samplers.chromatic.general_tiles import set_stream
from minigibbs.samplers.chromatic.places import BLOCK_SIZE
from minigibbs.samplers.chromatic.spin_tiles import (
    UPDATE_DRAW,
    SpinLanes,
    SpinRow,
    lane_bits,
    lane_choices,
    lane_fields,
    lane_rare,
    row_bits,
    row_choices,
    row_fields,
    row_rare,
    row_store,
)
from minigibbs.samplers.chromatic.spins import spin_colors
from minigibbs.samplers.chromatic.tile import LANES, QUADS, Tile, columns
from minigibbs.samplers.poisson_gibbs.split import Split
from minigibbs.samplers.poisson_gibbs.updates.spins import SPINS

# The minibatched tail of the variable at a place.
TAIL_PART = np.dtype(
    [
        ("start", np.int64),  # its first entry of the alias table
        ("rate", np.float64),  # (1 + theta) * L_T
        ("none", np.float64),  # exp(-rate)
        ("keep", np.float64),  # theta / (1 + theta)
        ("gain", np.float32),  # log2((1 + theta) / theta)
        ("cut", np.uint32),  # if the 16 bits are below it, nothing is drawn
        ("count", np.int32),  # alias table entries
    ],
    align=True,
)
_TAIL = np.uint32(TAIL)
_LOWER, _S16 = np.uint32(0xFFFF), np.uint32(16)
_WORD, _BYTE, _LONG = np.uint32(0), np.uint8(0), np.uint64(0)


class SpinTailColors(NamedTuple):
    """The fields of `SpinColors` for the exactly evaluated factors, and the tails."""

    ends: NDArray[np.int64]
    blocks: NDArray[np.void]
    block_ends: NDArray[np.int64]
    variable: NDArray[np.int32]
    base: NDArray[np.floating]
    target: NDArray[np.uint32]
    weight: NDArray[np.floating]
    parts: NDArray[np.void]  # [m] of TAIL_PART
    tail: NDArray[np.void]  # of ALIAS: a place plus 1, with the sign of the weight


def spin_tail_colors(graph: FactorGraph, split: Split) -> SpinTailColors:
    """Lay out a split graph of spins."""
    heavy, spins = SPINS.prepare(graph, split), spin_colors(graph, split.heavy)
    return SpinTailColors(*spins, *lay_tails(graph, spins.variable, heavy.parts, heavy.tail))


def lay_tails(
    graph: FactorGraph,
    variable: NDArray[np.int32],
    theirs: NDArray[np.void],
    tails: NDArray[np.void],
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Convert a sampler's tails and alias tables, which are by variable, to the order of places.

    Returns arrays of TAIL_PART and ALIAS: see `SpinTailColors`.
    """
    own, parts = theirs[variable], np.zeros(len(variable), TAIL_PART)
    for name, same in (("start", "tail_start"), ("count", "tail")):
        parts[name] = own[same]
    for name in ("rate", "none", "keep"):
        parts[name] = own[name]
    parts["gain"] = np.log2(own["gain"])
    parts["cut"] = np.floor(own["none"] * 2.0**16).astype(np.uint32)
    place = np.empty(len(graph), np.int32)
    place[variable] = np.arange(len(graph), dtype=np.int32)
    tail = tails.copy()
    for name in ("place", "other"):
        signed = tail[name]
        tail[name] = np.sign(signed) * (place[np.abs(signed) - 1] + 1) if len(signed) else signed
    for array in (parts, tail):
        array.setflags(write=False)
    return parts, tail


class Tailed(Tile):
    """A tile whose chains have tails: it counts changes and draws."""

    width: ClassVar[int]  # columns

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.noted = np.zeros((2, self.width), np.int64)

    def tally(self, chains: int) -> NDArray[np.int64]:
        """Return the tally of the recorded chains: heavy neighbors, changes and draws."""
        tally = np.zeros(CHANGES + 1, np.int64)
        tally[EVALUATIONS] = self.swept * chains * len(self.data.weight)
        tally[CHANGES], tally[DRAWS] = self.noted[:, columns(chains)].sum(axis=1)
        return tally


class SpinTailRow(Tailed, SpinRow):
    """A tile of one chain."""

    width = 1

    def _sweep(
        self, begin: int, end: int, sweep: int, sweeps: int, counting: bool
    ) -> NDArray[np.int64]:
        few = self.ones.few if counting else self.ones.few[:0]
        arguments = (begin, end, sweep, sweeps, self.x, few)
        return np.array(sweep_tail_row(self.data, self.key, self.first, *arguments))[:, None]


class SpinTailLanes(Tailed, SpinLanes):
    """A tile of up to 64 chains, one bit per value."""

    width = LANES

    def _sweep(
        self, begin: int, end: int, sweep: int, sweeps: int, counting: bool
    ) -> NDArray[np.int64]:
        noted, few = np.zeros((2, LANES), np.int64), self.ones.few
        few = few if counting else few[:0]
        span, quad = (begin, end, sweep, sweeps), self.first // 4
        sweep_tail_lanes(self.data, self.key, quad, *span, self.x, few, noted[0], noted[1])
        return noted


@literal
def tail_bits(key0, key1, chain, variable, sweep):
    """Return 16 bits that decide whether a chain draws from its tail; two quads share a word."""
    word = chain_bits(key0, key1, (chain >> 3 << 2) | (chain & 3), variable, sweep, TAIL)
    return np.uint32(word >> _S16) if chain & 4 else np.uint32(word & _LOWER)


@literal
def tail_draws(part, key0, key1, chain, variable, sweep, bits, stream):
    """Return the number of factors a chain draws from its tail; set the stream if it draws any."""
    more = chain_bits(key0, key1, chain, variable, sweep, TAIL + 1)
    u = (np.float64(bits) + np.float64(more) * 2.0**-32) * 2.0**-16
    draws = poisson_by_inversion(u, part.rate, part.none) if u >= part.none else 0
    if draws:
        set_stream(stream, key0, key1, chain, variable, sweep, TAIL + 2)
    return draws


@literal
def tail_gain(data, part, key0, key1, chain, variable, sweep, bits, x, place, lane, stream):
    """Return the tail's contribution to the log-odds of value 1, and the number of drawn factors.

    `bits` are those of `tail_bits`. A chain's value at a place is bit `lane` of the number there.
    `stream` is scratch.
    """
    draws = tail_draws(part, key0, key1, chain, variable, sweep, bits, stream)
    own, gain = (x[place] >> lane) & 1, np.float32(0.0)
    for _ in range(draws):
        drawn = draw_alias(data.tail, part.start, part.start + part.count, stream)
        attracts = drawn > 0
        value = (x[np.uint64(abs(drawn) - 1)] >> lane) & 1
        if (value == own) == attracts or uniform(stream) < part.keep:
            gain = gain + part.gain if (value == 1) == attracts else gain - part.gain
    return gain, draws


@literal
def _tail_row_block(data, block, count, key0, key1, chain, sweep, x, few):
    """Update the variables of a block in one chain; return the numbers of changes and draws."""
    first, drawn = np.uint64(block.first), np.int64(0)
    bits, field = lanes_of(BLOCK_SIZE, _WORD), lanes_of(BLOCK_SIZE, data.base[0])
    new, stream = lanes_of(BLOCK_SIZE, _BYTE), lanes_of(4, _LONG)
    row_bits(data, first, count, key0, key1, chain, sweep, bits)
    row_fields(data, first, count, np.uint64(block.entry), block.degree, x, field, new)
    for lane in range(count):
        place = first + np.uint64(lane)
        part, variable = data.parts[place], data.variable[place]
        if part.count:
            tails, own = tail_bits(key0, key1, chain, variable, sweep), (x, place, _BYTE)
            if tails >= part.cut:
                gain, draws = tail_gain(
                    data, part, key0, key1, chain, variable, sweep, tails, *own, stream
                )
                field[lane] += gain
                drawn += draws
    if row_choices(count, field, bits, new) < RARE:
        row_rare(data, first, count, field, bits, new, key0, key1, chain, sweep)
    return row_store(first, count, new, x, few), drawn


@literal_entry
def sweep_tail_row(data, key, chain, begin, end, sweep, sweeps, x, few):
    """Sweep one chain over a range of blocks; return the numbers of changes and draws."""
    moved, drawn = np.int64(0), np.int64(0)
    for s in range(sweep, sweep + sweeps):
        for b in range(begin, end):
            block = data.blocks[b]
            changes, draws = _tail_row_block(
                data, block, block.count, key[0], key[1], chain, s, x, few
            )
            moved += changes
            drawn += draws
    return moved, drawn


@literal
def lane_tails(key0, key1, quad, variable, sweep, tails):
    """Compute the `tail_bits` of 64 chains, by column; return the largest."""
    most = _WORD
    for p in range(QUADS // 2):
        a, b, c, d = quad_bits(key0, key1, np.uint32(quad // 2 + p), variable, sweep, _TAIL)
        tails[2 * p], tails[2 * p + 1] = a & _LOWER, a >> _S16
        tails[QUADS + 2 * p], tails[QUADS + 2 * p + 1] = b & _LOWER, b >> _S16
        tails[2 * QUADS + 2 * p], tails[2 * QUADS + 2 * p + 1] = c & _LOWER, c >> _S16
        tails[3 * QUADS + 2 * p], tails[3 * QUADS + 2 * p + 1] = d & _LOWER, d >> _S16
    for lane in range(LANES):
        most = max(most, tails[lane])
    return most


@literal
def _lane_tails(data, part, place, key0, key1, quad, variable, sweep, x, field, draws):
    """Add the contributions of tails to the few chains that draw from them."""
    tails, stream = lanes_of(LANES, _WORD), lanes_of(4, _LONG)
    if lane_tails(key0, key1, quad, variable, sweep, tails) < part.cut:
        return
    for lane in range(LANES):
        if tails[lane] >= part.cut:
            chain, bit = 4 * (quad + lane % QUADS) + lane // QUADS, np.uint64(lane)
            own = (x, place, bit)
            gain, drawn = tail_gain(
                data, part, key0, key1, chain, variable, sweep, tails[lane], *own, stream
            )
            field[lane] += gain
            draws[lane] += drawn


@literal_entry
def sweep_tail_lanes(data, key, quad, begin, end, sweep, sweeps, x, few, changes, draws):
    """Sweep 64 chains over a range of blocks; count values 1 in `few`, unless it is empty."""
    key0, key1 = key[0], key[1]
    bits, field = lanes_of(LANES, _WORD), lanes_of(LANES, data.base[0])
    new, moved = lanes_of(LANES, _BYTE), lanes_of(LANES, _BYTE)
    for s in range(sweep, sweep + sweeps):
        for b in range(begin, end):
            block = data.blocks[b]
            for lane in range(LANES + np.int64(block.first < 0)):
                moved[lane] = _BYTE
            for k in range(block.count):
                place = np.uint64(block.first + k)
                variable, part = np.uint32(data.variable[place]), data.parts[place]
                lane_bits(key0, key1, quad, variable, s, UPDATE_DRAW, bits, FULL)
                lane_fields(data, place, block, x, field, FULL)
                if part.count:
                    _lane_tails(data, part, place, key0, key1, quad, variable, s, x, field, draws)
                if lane_choices(field, bits, new, FULL) < RARE:
                    lane_rare(field, bits, new, key0, key1, quad, variable, s, FULL)
                word = bits_of(new, FULL)
                count_where(word ^ x[place], moved)
                x[place] = word
                if len(few):
                    count_where(word, few[place])
            for lane in range(LANES):
                changes[lane] += moved[lane]
