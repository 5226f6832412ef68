"""Small domains with heavy factors and a minibatched tail: vectorized Poisson-Gibbs by color.

The exactly evaluated factors are stored as in `small`. Tails are drawn as in `spin_tails`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.alias import draw_alias
from minigibbs.kernels.jit import literal, literal_entry
from minigibbs.kernels.lanes import FULL, lanes_of
from minigibbs.kernels.random import uniform
from minigibbs.samplers.chromatic.places import BLOCK_SIZE
from minigibbs.samplers.chromatic.small import small_colors
from minigibbs.samplers.chromatic.small_tiles import (
    ROOM,
    SmallLanes,
    SmallRow,
    lane_fields,
    lane_values,
    row_fields,
    row_values,
)
from minigibbs.samplers.chromatic.spin_tails import (
    Tailed,
    lane_tails,
    lay_tails,
    tail_bits,
    tail_draws,
)
from minigibbs.samplers.chromatic.spin_tiles import UPDATE_DRAW, lane_bits, row_bits
from minigibbs.samplers.chromatic.tile import LANES, QUADS
from minigibbs.samplers.poisson_gibbs.split import Split
from minigibbs.samplers.poisson_gibbs.updates.small import SMALL

_WORD, _BYTE, _ZERO, _LONG = np.uint32(0), np.uint8(0), np.float32(0.0), np.uint64(0)


class SmallTailColors(NamedTuple):
    """The fields of `SmallColors` for the exactly evaluated factors, and the tails."""

    ends: NDArray[np.int64]
    blocks: NDArray[np.void]
    block_ends: NDArray[np.int64]
    variable: NDArray[np.int32]
    first: NDArray[np.int64]
    base: NDArray[np.float32]
    target: NDArray[np.uint32]
    weight: NDArray[np.float32]
    start: NDArray[np.int32]
    table: NDArray[np.float32]
    stride: int
    parts: NDArray[np.void]  # [m] of TAIL_PART
    tail: NDArray[np.void]  # of ALIAS: a place plus 1, with the sign of the weight


def small_tail_colors(graph: FactorGraph, split: Split) -> SmallTailColors:
    """Lay out a split graph."""
    heavy, small = SMALL.prepare(graph, split), small_colors(graph, split.heavy)
    return SmallTailColors(*small, *lay_tails(graph, small.variable, heavy.parts, heavy.tail))


class SmallTailRow(Tailed, SmallRow):
    """A tile of one chain."""

    width = 1

    def _sweep(
        self, begin: int, end: int, sweep: int, sweeps: int, counting: bool
    ) -> NDArray[np.int64]:
        few = self.counters.few if counting else self.counters.few[:0]
        arguments = (begin, end, sweep, sweeps, self.x, few)
        found = sweep_small_tail_row(self.data, self.key, self.first, *arguments)
        return np.array(found)[:, None]


class SmallTailLanes(Tailed, SmallLanes):
    """A tile of up to 64 chains, one byte per value."""

    width = LANES

    def _sweep(
        self, begin: int, end: int, sweep: int, sweeps: int, counting: bool
    ) -> NDArray[np.int64]:
        noted, few = np.zeros((2, LANES), np.int64), self.counters.few
        few = few if counting else few[:0]
        span, quad = (begin, end, sweep, sweeps), self.first // 4
        sweep_small_tail_lanes(self.data, self.key, quad, *span, self.x, few, noted)
        return noted


@literal
def add_tail(tail, part, draws, x, place, lane, stream, field, at, step):
    """Draw `draws` minibatched factors, and add the kept ones to the log weights of the values.

    A chain's value at a place is x[place, lane]. The log weight of value v is field[at + v * step].
    """
    own = x[place, lane]
    for _ in range(draws):
        drawn = draw_alias(tail, part.start, part.start + part.count, stream)
        attracts, value = drawn > 0, x[np.uint64(abs(drawn) - 1), lane]
        if (value == own) == attracts or uniform(stream) < part.keep:
            cell = np.uint64(at + np.int64(value) * step)
            field[cell] += part.gain if attracts else -part.gain


@literal
def _row_tails(data, first, count, key0, key1, chain, sweep, x, field):
    """Add the contributions of tails in one chain; return the number of drawn factors."""
    drawn, stream, columns = np.int64(0), lanes_of(4, _LONG), x.reshape(len(x), 1)
    for lane in range(count):
        place = first + np.uint64(lane)
        part, variable = data.parts[place], data.variable[place]
        if part.count:
            bits = tail_bits(key0, key1, chain, variable, sweep)
            if bits >= part.cut:
                draws = tail_draws(part, key0, key1, chain, variable, sweep, bits, stream)
                add_tail(data.tail, part, draws, columns, place, 0, stream, field, lane, LANES)
                drawn += draws
    return drawn


@literal_entry
def sweep_small_tail_row(data, key, chain, begin, end, sweep, sweeps, x, few):
    """Sweep one chain over a range of blocks; return the numbers of changes and draws."""
    key0, key1, moved, drawn = key[0], key[1], np.int64(0), np.int64(0)
    for s in range(sweep, sweep + sweeps):
        for b in range(begin, end):
            block = data.blocks[b]
            first, count = np.uint64(block.first), block.count
            bits, new = lanes_of(BLOCK_SIZE, _WORD), lanes_of(LANES, _BYTE)
            field = lanes_of(ROOM, _ZERO)
            row_bits(data, first, count, key0, key1, chain, s, bits)
            row_fields(data, block, count, x, field, new)
            drawn += _row_tails(data, first, count, key0, key1, chain, s, x, field)
            moved += row_values(data, block, count, key0, key1, chain, s, x, few, bits, field, new)
    return moved, drawn


@literal
def _lane_tails(data, part, place, key0, key1, quad, variable, sweep, x, field, draws):
    """Add the contributions of tails to the few chains that draw from them."""
    tails, stream = lanes_of(LANES, _WORD), lanes_of(4, _LONG)
    if lane_tails(key0, key1, quad, variable, sweep, tails) < part.cut:
        return
    for lane in range(LANES):
        if tails[lane] >= part.cut:
            chain = 4 * (quad + lane % QUADS) + lane // QUADS
            drawn = tail_draws(part, key0, key1, chain, variable, sweep, tails[lane], stream)
            add_tail(data.tail, part, drawn, x, place, lane, stream, field, lane, LANES)
            draws[lane] += drawn


@literal
def _tail_place(data, block, place, key0, key1, quad, sweep, x, few, moved, draws):
    """Update one variable in 64 chains."""
    variable, part = np.uint32(data.variable[place]), data.parts[place]
    bits, field = lanes_of(LANES, _WORD), lanes_of(ROOM, _ZERO)
    lane_bits(key0, key1, quad, variable, sweep, UPDATE_DRAW, bits, FULL)
    lane_fields(data, place, block, x, field, FULL)
    if part.count:
        _lane_tails(data, part, place, key0, key1, quad, variable, sweep, x, field, draws)
    lane_values(data, block, place, key0, key1, quad, sweep, x, few, moved, bits, field)


@literal_entry
def sweep_small_tail_lanes(data, key, quad, begin, end, sweep, sweeps, x, few, noted):
    """Sweep 64 chains over a range of blocks; `noted` gets changes and draws by column."""
    key0, key1, moved = key[0], key[1], lanes_of(LANES, _BYTE)
    for s in range(sweep, sweep + sweeps):
        for b in range(begin, end):
            block = data.blocks[b]
            for lane in range(LANES + np.int64(block.first < 0)):
                moved[lane] = _BYTE
            for k in range(block.count):
                place = np.uint64(block.first + k)
                _tail_place(data, block, place, key0, key1, quad, s, x, few, moved, noted[1])
            for lane in range(LANES):
                noted[0, lane] += moved[lane]
