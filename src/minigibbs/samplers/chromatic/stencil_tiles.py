"""Tiles of spins on a lattice on a CPU, stored as bits in space: see `stencil_bits`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.energy import energies
from minigibbs.kernels.jit import literal, literal_entry
from minigibbs.kernels.lanes import lanes_of
from minigibbs.kernels.layout import CHANGES, EVALUATIONS
from minigibbs.samplers.chromatic.lattice import (
    BITS,
    Lattice,
    pack_bits,
    unpack_bits,
    unpack_counts,
)
from minigibbs.samplers.chromatic.stencil_bits import (
    ABREAST,
    MOST_DIRECTIONS,
    MOST_LEVELS,
    StencilBits,
    choose_bits,
    coarse_levels,
    fine_levels,
    gather,
    ones_in,
)
from minigibbs.samplers.chromatic.tile import Counters, Tile

_WORD, _SITE = np.uint32(0), np.uint64(0)
_ROOM, _NEAR, _FOUR = MOST_LEVELS * ABREAST, MOST_DIRECTIONS * ABREAST, 4 * ABREAST


class LatticeTile(Tile):
    """A tile that updates its chains one after another: x[chain, unit], color by color."""

    kind: ClassVar[Any]  # type of a unit
    each: int  # counters per unit

    def __init__(
        self, graph: FactorGraph, data: Any, first: int, states: NDArray[Any], seed: int
    ) -> None:
        super().__init__(graph, data, first, states, seed)
        lattice: Lattice = data.lattice
        self.units = lattice.colors * lattice.units
        self.x = np.zeros((self.chains, self.units), self.kind)
        self.noted = np.zeros(self.chains, np.int64)
        self.ones = [Counters(0) for _ in range(self.chains)]  # allocated on first use
        self._held = [slice(None)]
        self.load(states)

    @abstractmethod
    def _sweep_chain(
        self, chain: int, begin: int, end: int, sweep: int, sweeps: int, few: NDArray[np.uint8]
    ) -> int:
        """Sweep one chain, and count in `few` unless it is empty; return the changes."""

    def _ends(self) -> NDArray[np.int64]:
        lattice: Lattice = self.data.lattice
        return np.arange(lattice.colors + 1) * lattice.units

    def _sweep(
        self, begin: int, end: int, sweep: int, sweeps: int, counting: bool
    ) -> NDArray[np.int64]:
        moved = np.zeros(self.chains, np.int64)
        for chain in range(self.chains):
            few = self._few(chain) if counting else np.empty(0, np.uint8)
            moved[chain] = self._sweep_chain(chain, begin, end, sweep, sweeps, few)
        return moved

    def _advance(self, sweep: int, sweeps: int, counting: bool) -> None:
        for chain in range(self.chains if counting else 0):
            self._few(chain)  # allocates before threads use the counters
        super()._advance(sweep, sweeps, counting)

    def shares(self, begin: int, end: int) -> list[tuple[NDArray[Any], int, int]]:
        """Return the ranges of units and of their counters."""
        out: list[tuple[NDArray[Any], int, int]] = [(own, begin, end) for own in self.x]
        for own in self.ones:
            if len(own.many):
                out += [(array, self.each * begin, self.each * end) for array in own.arrays()]
        return out

    def hold(self, parts: list[tuple[int, int]]) -> None:
        """Count only in these ranges of units."""
        self._held = [slice(self.each * begin, self.each * end) for begin, end in parts]

    def compile(self) -> None:
        """Compile the sweep without counters, which would be allocated."""
        self._sweep(0, 0, 0, 0, False)

    def _few(self, chain: int) -> NDArray[np.uint8]:
        if not len(self.ones[chain].few):
            self.ones[chain] = Counters(self.units * self.each)
            self.ones[chain].own = self._held
        return self.ones[chain].few

    def _width(self) -> int:
        return self.chains

    def clear(self) -> None:
        """Reset the counts."""
        super().clear()
        for own in self.ones:
            own.clear()

    def _flush(self) -> None:
        for own in self.ones:
            own.flush()


class StencilTile(LatticeTile):
    """Spins as bits in space: a unit is a word of 32 sites."""

    data: StencilBits
    kind, each = np.uint32, BITS

    def load(self, states: NDArray[Any]) -> None:
        """Replace the states."""
        for own, state in zip(self.x, states, strict=True):
            pack_bits(self.data.lattice, np.ascontiguousarray(state), 0, self.units, own)

    def states(self) -> NDArray[Any]:
        """Return the states."""
        out = np.empty((self.chains, len(self.graph)), self.graph.state_type)
        for own, state in zip(self.x, out, strict=True):
            unpack_bits(self.data.lattice, own, 0, self.units, state)
        return out

    def _sweep_chain(
        self, chain: int, begin: int, end: int, sweep: int, sweeps: int, few: NDArray[np.uint8]
    ) -> int:
        number, own = self.first + chain, self.x[chain]
        moved: int = sweep_bits(self.data, self.key, number, begin, end, sweep, sweeps, own, few)
        return moved

    def tally(self, chains: int) -> NDArray[np.int64]:
        """Return the tally of the first chains: an update evaluates every neighbor."""
        tally = np.zeros(CHANGES + 1, np.int64)
        degree = len(self.data.lattice.offset)
        tally[EVALUATIONS] = self.swept * chains * degree * self._free
        tally[CHANGES] = self.noted[:chains].sum()
        return tally

    def counts(self, sweeps: int) -> NDArray[np.int64]:
        """Return counts of both values from those of value 1; clamped variables are constant."""
        self._flush()
        counts = np.zeros((self.chains, len(self.graph), 2), np.int64)
        clamped = np.flatnonzero(self.graph.evidence >= 0)
        for chain, own in enumerate(counts):
            values = self.ones[chain].values()
            if len(values):
                unpack_counts(self.data.lattice, values, sweeps, 0, self.units, own)
            else:
                own[:, 0] = sweeps
            own[clamped] = 0
            own[clamped, self.graph.evidence[clamped]] = sweeps
        return counts.reshape(self.chains, -1)

    def energies(self) -> NDArray[np.float64]:
        """Compute the states' energies from counts of satisfied pairs."""
        out = self.energies_of(self.satisfied(0, self.units))
        if not self.countable:
            rest = np.empty(self.chains)
            energies(self.graph.rest.packed, self.states(), rest)
            out += rest
        return out

    @property
    def countable(self) -> bool:
        """Whether energies are functions of the counts of satisfied pairs alone."""
        return self.graph.only_stencils or not len(self.graph.rest.packed.factors)

    def satisfied(self, begin: int, end: int) -> NDArray[np.int64]:
        """Count the satisfied pairs of a range of units, and all of its pairs.

        Parameters
        ----------
        begin, end : int
            Units; their neighbors' values must be present.

        Returns
        -------
        array of int
            [chain, offset, 2], which can be added over ranges.
        """
        counts = np.zeros((self.chains, len(self.data.strength), 2), np.int64)
        for own, out in zip(self.x, counts, strict=True):
            satisfied_pairs(self.data, own, begin, end, out)
        return counts

    def energies_of(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Compute the energies of the stencil from `satisfied` over all units."""
        out = np.full(self.chains, self.data.constant)
        for k, size in enumerate(self.data.strength.tolist()):
            out += size * (2 * counts[:, k, 0] - counts[:, k, 1])
        return out


@literal
def _block(data, key0, key1, chain, sweep, color, first, count, x, few):
    """Update up to 16 words of a color; return the number of changed sites."""
    up, missing = lanes_of(_NEAR, _WORD), lanes_of(_NEAR, _WORD)
    level, bits = lanes_of(_ROOM, _WORD), lanes_of(_FOUR, _WORD)
    undecided, site = lanes_of(ABREAST, _WORD), lanes_of(ABREAST, _SITE)
    new, below = lanes_of(ABREAST, _WORD), lanes_of(ABREAST, _WORD)
    valid = lanes_of(ABREAST, _WORD)
    units = data.lattice.rows * data.lattice.words
    if gather(data, color, first, count, x, up, missing, valid, site):
        levels, thresholds = fine_levels(data, up, missing, level), data.fine
    else:
        levels, thresholds = coarse_levels(data, up, level), data.coarse
    if len(data.free):
        for lane in range(count):
            valid[lane] &= data.free[color * units + first + lane]
    for lane in range(ABREAST):
        undecided[lane] = valid[lane]
    choose_bits(
        thresholds, levels, level, site, key0, key1, chain, sweep, undecided, new, bits, below
    )
    moved, begin = np.int64(0), color * units + first
    for lane in range(count):
        old = x[begin + lane]
        new[lane] |= old & ~valid[lane]
        moved += ones_in(old ^ new[lane])
        x[begin + lane] = new[lane]
    if len(few):
        for lane in range(count):
            word, place = new[lane], BITS * (begin + lane)
            for k in range(BITS):
                few[place + k] += np.uint8((word >> np.uint32(k)) & np.uint32(1))
    return moved


@literal_entry
def sweep_bits(data, key, chain, begin, end, sweep, sweeps, x, few):
    """Sweep one chain over a range of units; return the number of changes."""
    units, moved = data.lattice.rows * data.lattice.words, np.int64(0)
    for s in range(sweep, sweep + sweeps):
        unit = begin
        while unit < end:
            color = unit // units
            count = min(np.int64(ABREAST), min(end, (color + 1) * units) - unit)
            first = unit - color * units
            moved += _block(data, key[0], key[1], chain, s, color, first, count, x, few)
            unit += count
    return moved


@literal_entry
def satisfied_pairs(data, x, begin, end, counts):
    """Add to counts [offset, 2] the satisfied pairs of a range of units, and all of its pairs."""
    up, missing = lanes_of(_NEAR, _WORD), lanes_of(_NEAR, _WORD)
    valid, site = lanes_of(ABREAST, _WORD), lanes_of(ABREAST, _SITE)
    units, unit = data.lattice.rows * data.lattice.words, np.int64(begin)
    while unit < end:
        color = unit // units
        count = min(np.int64(ABREAST), min(end, (color + 1) * units) - unit)
        gather(data, color, unit - color * units, count, x, up, missing, valid, site)
        for k in range(len(counts)):
            for lane in range(count):
                place = 2 * k * ABREAST + lane
                pairs = np.uint32(valid[lane] & ~missing[place])
                counts[k, 0] += ones_in(np.uint32(~(up[place] ^ x[unit + lane]) & pairs))
                counts[k, 1] += ones_in(pairs)
        unit += count
