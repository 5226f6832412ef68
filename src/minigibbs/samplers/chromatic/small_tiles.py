"""Small domains by color on a CPU: one chain over many variables, or 64 vectorized chains.

A value is chosen in single precision. If the random number is so close to a boundary between two
values that rounding could change the choice, 32 more bits are drawn and the choice is repeated in
double precision. So every choice equals that in double precision.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.choice import FURTHER, LEAST, NEAR, power_of_2, unit_of
from minigibbs.kernels.jit import literal, literal_entry
from minigibbs.kernels.lanes import (
    FULL,
    VECTOR,
    add_looked_up,
    add_where,
    count_where,
    equal_bits,
    lanes_of,
)
from minigibbs.kernels.layout import CHANGES, EVALUATIONS
from minigibbs.kernels.philox import chain_bits
from minigibbs.samplers.chromatic.places import BLOCK_SIZE
from minigibbs.samplers.chromatic.small import MOST_SMALL
from minigibbs.samplers.chromatic.small_energy import (
    PairEnergy,
    pair_energy,
    pairs_alone,
    row_energy,
    table_energies,
    tables_alone,
)
from minigibbs.samplers.chromatic.spin_tiles import UPDATE_DRAW, lane_bits, row_bits
from minigibbs.samplers.chromatic.tile import LANES, QUADS, Counters, Tile, columns

_WORD, _BYTE, _ZERO, _NUMBER = np.uint32(0), np.uint8(0), np.float32(0.0), 0.0
_LOG_2 = math.log(2.0)
ROOM = MOST_SMALL * LANES  # log weights of 64 variables or chains


class SmallTile(Tile):
    """The common part of both tiles: values are bytes, and all values are counted."""

    x: NDArray[np.uint8]
    counters: Counters  # [value of a place, ...]

    def _ends(self) -> NDArray[np.int64]:
        return self.data.block_ends  # type: ignore[no-any-return]

    def _flush(self) -> None:
        self.counters.flush()

    def shares(self, begin: int, end: int) -> list[tuple[NDArray[Any], int, int]]:
        """Return the ranges of the state and the counts that belong to a range of blocks."""
        first = np.append(self.data.blocks["first"], len(self.data.variable))[[begin, end]]
        low, high = first.tolist()
        values = int(self.data.first[low]), int(self.data.first[high])
        counts = [(array, *values) for array in self.counters.arrays()]
        return [(self.x, low, high), *counts]

    @abstractmethod
    def _counts(self) -> NDArray[Any]:
        """Return the counts [chain, value of a place]."""

    def counts(self, sweeps: int) -> NDArray[np.int64]:
        """Return the counts of all variables, clamped ones included."""
        self._flush()
        graph, variable = self.graph, self.data.variable
        counts = np.zeros((self.chains, int(graph.sizes.sum(dtype=np.int64))), np.int64)
        first, sizes = graph.first, graph.sizes[variable].astype(np.int64)
        values = np.arange(int(sizes.sum()))
        where = np.repeat(first[variable] - self.data.first[:-1], sizes) + values
        counts[:, where] = self._counts()
        clamped = np.flatnonzero(graph.evidence >= 0)
        counts[:, first[clamped] + graph.evidence[clamped]] = sweeps
        return counts

    def _whole(self, free: NDArray[Any]) -> NDArray[Any]:
        """Return states [chain, place] completed by the clamped variables."""
        whole = np.empty((self.chains, len(self.graph)), self.graph.state_type)
        whole[:] = np.where(self.graph.evidence < 0, 0, self.graph.evidence)
        whole[:, self.data.variable] = free
        return whole

    def tally(self, chains: int) -> NDArray[np.int64]:
        """Return the tally of the recorded chains: an update evaluates every neighbor."""
        tally = np.zeros(CHANGES + 1, np.int64)
        tally[EVALUATIONS] = self.swept * chains * len(self.data.target)
        tally[CHANGES] = self.noted[columns(chains)].sum()
        return tally

    def clear(self) -> None:
        """Reset the counts."""
        super().clear()
        self.counters.clear()


class SmallRow(SmallTile):
    """A tile of one chain, one byte per place."""

    def __init__(
        self, graph: FactorGraph, data: Any, first: int, states: NDArray[Any], seed: int
    ) -> None:
        super().__init__(graph, data, first, states, seed)
        self._pairs = pairs_alone(graph)
        self.x = np.empty(len(data.variable), np.uint8)
        self.counters = Counters(len(data.base))
        self.load(states)

    def load(self, states: NDArray[Any]) -> None:
        """Replace the state."""
        self.x[:] = states[0, self.data.variable]

    def states(self) -> NDArray[Any]:
        """Return the state."""
        return self._whole(self.x[None])

    def _sweep(
        self, begin: int, end: int, sweep: int, sweeps: int, counting: bool
    ) -> NDArray[np.int64]:
        few = self.counters.few if counting else self.counters.few[:0]
        arguments = (begin, end, sweep, sweeps, self.x, few)
        return np.array([sweep_small_row(self.data, self.key, self.first, *arguments)])

    def _counts(self) -> NDArray[Any]:
        return self.counters.values()[None]

    def energies(self) -> NDArray[np.float64]:
        """Compute the state's energy."""
        if not self._pairs:
            return super().energies()
        return np.array([row_energy(self._energy_parts, self.x)])

    @cached_property
    def _energy_parts(self) -> PairEnergy:
        return pair_energy(self.graph, self.data)


class SmallLanes(SmallTile):
    """A tile of up to 64 chains, one byte per value: [place][column]."""

    def __init__(
        self, graph: FactorGraph, data: Any, first: int, states: NDArray[Any], seed: int
    ) -> None:
        super().__init__(graph, data, first, states, seed)
        self.columns, self.noted = columns(self.chains), np.zeros(LANES, np.int64)
        self._tables = tables_alone(graph)
        self.x = np.zeros((len(data.variable), LANES), np.uint8)
        self.counters = Counters((len(data.base), LANES))
        self.load(states)

    def load(self, states: NDArray[Any]) -> None:
        """Replace the states; unused columns continue from zeros."""
        self.x[:] = 0
        self.x[:, self.columns] = states[:, self.data.variable].T

    def states(self) -> NDArray[Any]:
        """Return the states."""
        return self._whole(self.x[:, self.columns].T)

    def _sweep(
        self, begin: int, end: int, sweep: int, sweeps: int, counting: bool
    ) -> NDArray[np.int64]:
        moved, few = np.zeros(LANES, np.int64), self.counters.few
        few = few if counting else few[:0]
        span = (begin, end, sweep, sweeps)
        sweep_small_lanes(self.data, self.key, self.first // 4, *span, self.x, few, moved)
        return moved

    def _counts(self) -> NDArray[Any]:
        return self.counters.values()[:, self.columns].T

    def energies(self) -> NDArray[np.float64]:
        """Compute the states' energies."""
        if not self._tables:
            return super().energies()
        return table_energies(self.graph, self.data.variable, self.x)[self.columns]


@literal
def _top(size, count, field, top):
    """Compute the largest log weight of each lane."""
    for lane in range(count):
        top[lane] = field[lane]
    for v in range(1, size):
        for lane in range(count):
            top[lane] = max(top[lane], field[np.uint64(v * LANES + lane)])


@literal
def choose(size, count, field, bits, new):
    """Choose values by bits, from log weights [value][lane]; return nonzero if any is unclear.

    The log weights are not changed. `new` is 255 where more bits are needed.
    """
    top, total, mark = lanes_of(LANES, _ZERO), lanes_of(LANES, _ZERO), lanes_of(LANES, _ZERO)
    gap = lanes_of(LANES, _ZERO)
    sums = lanes_of(ROOM, _ZERO)
    _top(size, count, field, top)
    for lane in range(count):
        total[lane] = np.float32(0.0) * top[lane]
    for v in range(size):
        for lane in range(count):
            own = np.uint64(v * LANES + lane)
            total[lane] += power_of_2(max(np.float32(field[own] - top[lane]), LEAST))
            sums[own] = total[lane]
    for lane in range(count):
        mark[lane] = unit_of(bits[lane]) * total[lane]
        gap[lane] = total[lane]
        new[lane] = np.uint8(bits[lane] & np.uint32(0))
    for v in range(size - 1):
        for lane in range(count):
            own = sums[np.uint64(v * LANES + lane)]
            new[lane] += np.uint8(1) if own <= mark[lane] else np.uint8(0)
            gap[lane] = min(gap[lane], abs(np.float32(own - mark[lane])))
    unclear = np.uint8(0)
    for lane in range(count):
        near = gap[lane] < np.float32(NEAR * total[lane])
        unclear |= np.uint8(1) if near else np.uint8(0)
        new[lane] = np.uint8(255) if near else new[lane]
    return unclear


@literal
def choose_finely(size, lane, field, bits, key0, key1, chain, variable, sweep):
    """Choose a lane's value in double precision, with 64 bits."""
    sums = lanes_of(MOST_SMALL, _NUMBER)
    more = chain_bits(key0, key1, chain, variable, sweep, FURTHER)
    u = (np.float64(bits) + np.float64(more) * 2.0**-32) * 2.0**-32
    top = np.float64(field[lane])
    for v in range(1, size):
        top = max(top, np.float64(field[v * LANES + lane]))
    total, value = 0.0, 0
    for v in range(size):
        total += math.exp((np.float64(field[v * LANES + lane]) - top) * _LOG_2)
        sums[v] = total
    for v in range(size - 1):
        value += sums[v] <= u * total
    return np.uint8(value)


@literal
def _row_pairs(data, size, count, entry, near, field):
    """Add the neighbor's weight to the log weight of its value, for each variable of a block."""
    for v in range(size):
        for lane in range(count):
            own = np.uint64(v * LANES + lane)
            more = field[own] + data.weight[entry + np.uint64(lane)]
            field[own] = more if near[lane] == np.uint8(v) else field[own]


@literal
def row_fields(data, block, count, x, field, near):
    """Compute the log weights of a block's variables in one chain: [value][variable]."""
    first, size, entry = np.uint64(block.first), block.size, np.uint64(block.entry)
    begin = np.uint64(data.first[first])
    for lane in range(count):
        for v in range(size):
            field[np.uint64(v * LANES + lane)] = data.base[begin + np.uint64(lane * size + v)]
    for _ in range(block.degree):
        pairs = True
        for lane in range(count):
            near[lane] = x[data.target[entry + np.uint64(lane)]]
            pairs = pairs and data.start[entry + np.uint64(lane)] < 0
        if pairs:
            _row_pairs(data, size, count, entry, near, field)
        else:
            for lane in range(count):
                start = data.start[entry + np.uint64(lane)]
                if start < 0:
                    if near[lane] < size:
                        field[near[lane] * LANES + lane] += data.weight[entry + np.uint64(lane)]
                else:
                    row = np.uint64(start + near[lane])
                    for v in range(size):
                        worth = data.table[row + np.uint64(v * data.stride)]
                        field[np.uint64(v * LANES + lane)] += worth
        entry += np.uint64(count)


@literal
def row_values(data, block, count, key0, key1, chain, sweep, x, few, bits, field, new):
    """Choose values of a block's variables in one chain by log weights; return the changes."""
    first, size = np.uint64(block.first), block.size
    if choose(size, count, field, bits, new):
        for lane in range(count):
            if new[lane] == np.uint8(255):
                variable = data.variable[first + np.uint64(lane)]
                new[lane] = choose_finely(
                    size, lane, field, bits[lane], key0, key1, chain, variable, sweep
                )
    moved, begin = np.int64(0), np.uint64(data.first[first])
    for lane in range(count):
        moved += new[lane] != x[first + np.uint64(lane)]
    for lane in range(count):
        x[first + np.uint64(lane)] = new[lane]
    if len(few):
        for lane in range(count):
            few[begin + np.uint64(lane * size + new[lane])] += np.uint8(1)
    return moved


@literal
def _row_block(data, block, count, key0, key1, chain, sweep, x, few):
    """Update the variables of a block in one chain; return the number of changes."""
    first = np.uint64(block.first)
    bits, field, new = lanes_of(BLOCK_SIZE, _WORD), lanes_of(ROOM, _ZERO), lanes_of(LANES, _BYTE)
    row_bits(data, first, count, key0, key1, chain, sweep, bits)
    row_fields(data, block, count, x, field, new)
    return row_values(data, block, count, key0, key1, chain, sweep, x, few, bits, field, new)


@literal_entry
def sweep_small_row(data, key, chain, begin, end, sweep, sweeps, x, few):
    """Sweep one chain over a range of blocks; return the number of changes."""
    key0, key1, moved = key[0], key[1], np.int64(0)
    for s in range(sweep, sweep + sweeps):
        for b in range(begin, end):
            block = data.blocks[b]
            if block.count == BLOCK_SIZE:
                moved += _row_block(data, block, BLOCK_SIZE, key0, key1, chain, s, x, few)
            else:
                moved += _row_block(data, block, block.count, key0, key1, chain, s, x, few)
    return moved


@literal
def begin_fields(data, place, size, field, vectors):
    """Start the log weights of one variable in all lanes with those of its unary factors."""
    begin = np.uint64(data.first[place])
    for v in range(size):
        base = data.base[begin + np.uint64(v)]
        for lane in range(VECTOR * len(vectors) + np.int64(size < 0)):  # not unrolled
            field[np.uint64(v * LANES + lane)] = base


@literal
def add_neighbor(data, entry, row, size, field, vectors):
    """Add an entry's weights, given its neighbor's values in all lanes."""
    start = data.start[entry]
    if start < 0:
        for v in range(size):
            same = equal_bits(row, np.uint8(v), vectors)
            add_where(same, field[v * LANES :], data.weight[entry], vectors)
    else:
        for v in range(size):
            begin_row = np.uint64(start + v * data.stride)
            add_looked_up(row, field[v * LANES :], data.table, begin_row, vectors)


@literal
def lane_fields(data, place, block, x, field, vectors):
    """Compute the log weights of one variable in all lanes: [value][lane]."""
    begin_fields(data, place, block.size, field, vectors)
    entry = np.uint64(block.entry) + (place - np.uint64(block.first))
    for _ in range(block.degree):
        add_neighbor(data, entry, x[data.target[entry]], block.size, field, vectors)
        entry += np.uint64(block.count)


@literal
def lane_values(data, block, place, key0, key1, quad, sweep, x, few, moved, bits, field):
    """Choose one variable's values in 64 chains by their log weights."""
    variable, size, row = np.uint32(data.variable[place]), block.size, x[place]
    new = lanes_of(LANES, _BYTE)
    if choose(size, LANES, field, bits, new):
        for lane in range(LANES):
            if new[lane] == np.uint8(255):
                chain = 4 * (quad + lane % QUADS) + lane // QUADS
                new[lane] = choose_finely(
                    size, lane, field, bits[lane], key0, key1, chain, variable, sweep
                )
    for lane in range(LANES):
        moved[lane] += np.uint8(1) if new[lane] != row[lane] else np.uint8(0)
        row[lane] = new[lane]
    if len(few):
        begin = data.first[place]
        for v in range(size):
            count_where(equal_bits(row, np.uint8(v), FULL), few[begin + v])


@literal
def _lane_place(data, block, place, key0, key1, quad, sweep, x, few, moved):
    """Update one variable in 64 chains."""
    bits, field = lanes_of(LANES, _WORD), lanes_of(ROOM, _ZERO)
    lane_bits(key0, key1, quad, np.uint32(data.variable[place]), sweep, UPDATE_DRAW, bits, FULL)
    lane_fields(data, place, block, x, field, FULL)
    lane_values(data, block, place, key0, key1, quad, sweep, x, few, moved, bits, field)


@literal
def _block_lanes(data, block, key0, key1, quad, sweep, x, few, changes):
    """Update the variables of a block in 64 chains; changes are counted in bytes, then summed."""
    moved, first = lanes_of(LANES, _BYTE), np.uint64(block.first)
    for lane in range(LANES + np.int64(block.first < 0)):
        moved[lane] = _BYTE
    for k in range(block.count):
        place = first + np.uint64(k)
        _lane_place(data, block, place, key0, key1, quad, sweep, x, few, moved)
    for lane in range(LANES):
        changes[lane] += moved[lane]


@literal_entry
def sweep_small_lanes(data, key, quad, begin, end, sweep, sweeps, x, few, changes):
    """Sweep 64 chains over a range of blocks; count values in `few`, unless it is empty."""
    for s in range(sweep, sweep + sweeps):
        for b in range(begin, end):
            _block_lanes(data, data.blocks[b], key[0], key[1], quad, s, x, few, changes)
