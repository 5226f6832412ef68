"""Spins by color on a CPU: one chain over many variables, or 64 vectorized chains."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.choice import RARE, rare_spin, spin_by_bits
from minigibbs.kernels.jit import inlined, literal, literal_entry
from minigibbs.kernels.lanes import FULL, VECTOR, add_where, bits_of, count_where, lanes_of
from minigibbs.kernels.layout import CHANGES, EVALUATIONS
from minigibbs.kernels.philox import quad_bits
from minigibbs.samplers.chromatic.places import BLOCK_SIZE
from minigibbs.samplers.chromatic.spin_energy import (
    SpinEnergy,
    lane_energies,
    row_energy,
    spin_energy,
)
from minigibbs.samplers.chromatic.spin_sums import lane_sums, row_sums
from minigibbs.samplers.chromatic.tile import LANES, QUADS, Counters, Tile, columns

_WORD, _BYTE, _MOST = np.uint32(0), np.uint8(0), np.uint32(0xFFFFFFFF)
UPDATE_DRAW = np.uint32(0)  # the draw number of updates


class SpinTile(Tile):
    """The common part of both tiles: value 1 is counted at each place."""

    spins = True
    ones: Counters

    def _ends(self) -> NDArray[np.int64]:
        return self.data.block_ends  # type: ignore[no-any-return]

    x: NDArray[Any]

    def shares(self, begin: int, end: int) -> list[tuple[NDArray[Any], int, int]]:
        """Return the ranges of the state and the counts that belong to a range of blocks."""
        first = np.append(self.data.blocks["first"], len(self.data.variable))[[begin, end]]
        low, high = first.tolist()
        return [(array, low, high) for array in (self.x, *self.ones.arrays())]

    def _whole(self, free: NDArray[Any], clamped: NDArray[Any], kind: Any) -> NDArray[Any]:
        """Combine numbers of the free variables [chain, place] with those of clamped ones."""
        whole = np.empty((self.chains, len(self.graph)), kind)
        whole[:, self.data.variable] = free
        fixed = self.graph.evidence >= 0
        whole[:, fixed] = clamped[fixed]
        return whole

    @abstractmethod
    def _ones(self) -> NDArray[Any]:
        """Return the counts of value 1 by chain and place."""

    @cached_property
    def energy_parts(self) -> SpinEnergy:
        """Return the energy's terms."""
        return spin_energy(self.graph, self.data.variable)

    def counts(self, sweeps: int) -> NDArray[np.int64]:
        """Return the counts of both values, derived from those of value 1."""
        self._flush()
        clamped = np.where(self.graph.evidence == 1, sweeps, 0)
        one = self._whole(self._ones(), clamped, np.int64)
        return np.stack([sweeps - one, one], axis=2).reshape(self.chains, -1)

    def tally(self, chains: int) -> NDArray[np.int64]:
        """Return the tally of the recorded chains: an update evaluates every neighbor."""
        tally = np.zeros(CHANGES + 1, np.int64)
        tally[EVALUATIONS] = self.swept * chains * len(self.data.weight)
        tally[CHANGES] = self.noted[columns(chains)].sum()
        return tally

    def clear(self) -> None:
        """Reset the counts."""
        super().clear()
        self.ones.clear()

    def _flush(self) -> None:
        self.ones.flush()


class SpinRow(SpinTile):
    """A tile of one chain, one byte per place."""

    def __init__(
        self, graph: FactorGraph, data: Any, first: int, states: NDArray[Any], seed: int
    ) -> None:
        super().__init__(graph, data, first, states, seed)
        self.x = np.empty(len(data.variable), np.uint8)
        self.ones = Counters(len(data.variable))
        self.load(states)

    def load(self, states: NDArray[Any]) -> None:
        """Replace the state."""
        self.x[:] = states[0, self.data.variable]

    def states(self) -> NDArray[Any]:
        """Return the state."""
        return self._whole(self.x[None], self.graph.evidence, self.graph.state_type)

    def _sweep(
        self, begin: int, end: int, sweep: int, sweeps: int, counting: bool
    ) -> NDArray[np.int64]:
        few = self.ones.few if counting else self.ones.few[:0]
        arguments = (begin, end, sweep, sweeps, self.x, few)
        return np.array([sweep_row(self.data, self.key, self.first, *arguments)])

    def _ones(self) -> NDArray[Any]:
        return self.ones.values()[None]

    def spin_sums(self, terms: NDArray[np.int32], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Compute the chain's sums."""
        out = np.empty((1, len(ends)), np.int64)
        if len(ends) and len(terms) < ends[-1]:
            out[:] = np.count_nonzero(self.x.view(np.bool_))
        else:
            row_sums(self.x, terms, ends, out[0])
        return out

    def energies(self) -> NDArray[np.float64]:
        """Compute the state's energy."""
        return np.array([row_energy(self.energy_parts, self.x)])


class SpinLanes(SpinTile):
    """A tile of up to 64 chains, one bit per value: the state of a place is one word."""

    def __init__(
        self, graph: FactorGraph, data: Any, first: int, states: NDArray[Any], seed: int
    ) -> None:
        super().__init__(graph, data, first, states, seed)
        self.columns, self.noted = columns(self.chains), np.zeros(LANES, np.int64)
        self.x = np.zeros(len(data.variable), np.uint64)
        self.ones = Counters((len(data.variable), LANES))
        self.load(states)

    def load(self, states: NDArray[Any]) -> None:
        """Replace the states; unused columns continue from zeros."""
        bits = np.zeros((len(self.x), LANES), np.uint8)
        bits[:, self.columns] = states[:, self.data.variable].T
        self.x[:] = np.packbits(bits, axis=1, bitorder="little").view("<u8")[:, 0]

    def states(self) -> NDArray[Any]:
        """Return the states."""
        bits = np.unpackbits(
            self.x.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little"
        )
        mine = bits[:, self.columns].T
        return self._whole(mine, self.graph.evidence, self.graph.state_type)

    def _sweep(
        self, begin: int, end: int, sweep: int, sweeps: int, counting: bool
    ) -> NDArray[np.int64]:
        moved = np.zeros(LANES, np.int64)
        quad = self.first // 4
        few = self.ones.few if counting else self.ones.few[:0]
        sweep_lanes(self.data, self.key, quad, begin, end, sweep, sweeps, self.x, few, moved)
        return moved

    def _ones(self) -> NDArray[Any]:
        return self.ones.values()[:, self.columns].T

    def spin_sums(self, terms: NDArray[np.int32], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Compute the chains' sums."""
        out = np.empty((len(ends), LANES), np.int64)
        lane_sums(self.x, terms, ends, out)
        return np.ascontiguousarray(out[:, self.columns].T)

    def energies(self) -> NDArray[np.float64]:
        """Compute the states' energies."""
        total = np.empty(LANES)
        lane_energies(self.energy_parts, self.x, total)
        return total[self.columns]


@inlined
def row_bits(data, first, count, key0, key1, chain, sweep, bits):
    """Generate one chain's random bits for the variables of a block."""
    quad, word = np.uint32(chain >> 2), chain & 3
    for lane in range(count):
        variable = np.uint32(data.variable[first + np.uint64(lane)])
        a, b, c, d = quad_bits(key0, key1, quad, variable, sweep, UPDATE_DRAW)
        low, high = (b if word & 1 else a), (d if word & 1 else c)
        bits[lane] = high if word & 2 else low


@inlined
def row_fields(data, first, count, entry, degree, x, field, near):
    """Compute the log-odds of a block's variables; gathers and additions are in separate loops."""
    for lane in range(count):
        field[lane] = data.base[first + np.uint64(lane)]
    for _ in range(degree):
        for lane in range(count):
            near[lane] = x[data.target[entry + np.uint64(lane)]]
        for lane in range(count):
            more = field[lane] + data.weight[entry + np.uint64(lane)]
            field[lane] = more if near[lane] else field[lane]
        entry += np.uint64(count)


@inlined
def row_choices(count, field, bits, new):
    """Choose values by bits; return the smallest of the bits."""
    least = _MOST
    for lane in range(count):
        least = min(least, bits[lane])
        new[lane] = spin_by_bits(np.float32(field[lane]), bits[lane])
    return least


@literal
def row_rare(data, first, count, field, bits, new, key0, key1, chain, sweep):
    """Repeat the choices that need more than 32 bits."""
    for lane in range(count):
        if bits[lane] < RARE:
            variable = data.variable[first + np.uint64(lane)]
            own = np.float32(field[lane])
            new[lane] = rare_spin(own, bits[lane], key0, key1, chain, variable, sweep)


@inlined
def row_store(first, count, new, x, few):
    """Store the new values; return the number of changes."""
    moved = np.int64(0)
    for lane in range(count):
        moved += new[lane] ^ x[first + np.uint64(lane)]
    for lane in range(count):
        x[first + np.uint64(lane)] = new[lane]
    if len(few):
        for lane in range(count):
            few[first + np.uint64(lane)] += new[lane]
    return moved


@literal
def _row_block(data, block, count, key0, key1, chain, sweep, x, few):
    """Update the variables of a block in one chain. `count` is a constant for full blocks."""
    first = np.uint64(block.first)
    bits, field = lanes_of(BLOCK_SIZE, _WORD), lanes_of(BLOCK_SIZE, data.base[0])
    new = lanes_of(BLOCK_SIZE, _BYTE)
    row_bits(data, first, count, key0, key1, chain, sweep, bits)
    row_fields(data, first, count, np.uint64(block.entry), block.degree, x, field, new)
    if row_choices(count, field, bits, new) < RARE:
        row_rare(data, first, np.int64(count), field, bits, new, key0, key1, chain, sweep)
    return row_store(first, count, new, x, few)


@literal_entry
def sweep_row(data, key, chain, begin, end, sweep, sweeps, x, few):
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
def lane_bits(key0, key1, quad, variable, sweep, draw, bits, vectors):
    """Generate the random bits of all lanes for one variable; `draw` is a `uint32`.

    With Q = 4 * len(vectors) calls, word w of call q is that of lane w * Q + q. Sixteen calls are
    always made, because a shorter loop is not vectorized.
    """
    quads = VECTOR // 4 * len(vectors)
    for q in range(QUADS):
        a, b, c, d = quad_bits(key0, key1, np.uint32(quad + q), variable, sweep, draw)
        bits[q], bits[QUADS + q] = a, b
        bits[2 * QUADS + q], bits[3 * QUADS + q] = c, d
    if quads < QUADS:
        for w in range(1, 4):
            for q in range(quads):
                bits[w * quads + q] = bits[w * QUADS + q]


@literal
def lane_fields(data, place, block, x, field, vectors):
    """Compute the log-odds of one variable in all lanes."""
    base, width = data.base[place], VECTOR * len(vectors) + np.int64(block.first < 0)
    for lane in range(width):  # not a constant, which the compiler would unroll
        field[lane] = base
    entry = np.uint64(block.entry) + (place - np.uint64(block.first))
    for _ in range(block.degree):
        add_where(x[data.target[entry]], field, data.weight[entry], vectors)
        entry += np.uint64(block.count)


@literal
def lane_choices(field, bits, new, vectors):
    """Choose values by bits; return the smallest of the bits."""
    least = _MOST
    for lane in range(VECTOR * len(vectors)):
        least = min(least, bits[lane])
        new[lane] = spin_by_bits(np.float32(field[lane]), bits[lane])
    return least


@literal
def lane_rare(field, bits, new, key0, key1, quad, variable, sweep, vectors):
    """Repeat the choices that need more than 32 bits."""
    quads = VECTOR // 4 * len(vectors)
    for lane in range(4 * quads):
        if bits[lane] < RARE:
            chain = 4 * (quad + lane % quads) + lane // quads
            own = np.float32(field[lane])
            new[lane] = rare_spin(own, bits[lane], key0, key1, chain, variable, sweep)


@literal
def _lane_place(data, block, place, key0, key1, quad, sweep, x, few, moved):
    """Update one variable in 64 chains."""
    variable = np.uint32(data.variable[place])
    bits, field = lanes_of(LANES, _WORD), lanes_of(LANES, data.base[0])
    new = lanes_of(LANES, _BYTE)
    lane_bits(key0, key1, quad, variable, sweep, UPDATE_DRAW, bits, FULL)
    lane_fields(data, place, block, x, field, FULL)
    if lane_choices(field, bits, new, FULL) < RARE:
        lane_rare(field, bits, new, key0, key1, quad, variable, sweep, FULL)
    word = bits_of(new, FULL)
    count_where(word ^ x[place], moved)
    x[place] = word
    if len(few):
        count_where(word, few[place])


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
def sweep_lanes(data, key, quad, begin, end, sweep, sweeps, x, few, changes):
    """Sweep 64 chains over a range of blocks; count values 1 in `few`, unless it is empty."""
    for s in range(sweep, sweep + sweeps):
        for b in range(begin, end):
            _block_lanes(data, data.blocks[b], key[0], key[1], quad, s, x, few, changes)
