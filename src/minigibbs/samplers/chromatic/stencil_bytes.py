"""Small domains of a lattice by color on a CPU: one byte per site, and no list of neighbors.

The sites of a color in a row are consecutive bytes, so the neighbors along a displacement are bytes
of another row. Draws equal those of the stored pairs (`small_tiles`). For that, colors must be
those of the graph: the parity of the sum of the coordinates.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.checks import is_constant
from minigibbs.graph.domains import MOST_VARIABLES
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import literal, literal_entry
from minigibbs.kernels.lanes import lanes_of
from minigibbs.kernels.layout import CHANGES, EVALUATIONS
from minigibbs.kernels.philox import quad_bits
from minigibbs.samplers.chromatic.lattice import MOST_AXES, Lattice, lattice_of, place_row
from minigibbs.samplers.chromatic.small import MOST_SMALL
from minigibbs.samplers.chromatic.small_tiles import ROOM, choose, choose_finely
from minigibbs.samplers.chromatic.spin_tiles import UPDATE_DRAW
from minigibbs.samplers.chromatic.spins import LOG2_E, SINGLE
from minigibbs.samplers.chromatic.stencil_bits import MOST_DIRECTIONS, open_row
from minigibbs.samplers.chromatic.stencil_tiles import LatticeTile
from minigibbs.samplers.chromatic.tile import LANES

_NUMBER, _WORD, _BYTE, _ZERO = np.int64(0), np.uint32(0), np.uint8(0), np.float32(0.0)
_NOBODY = np.uint8(255)  # value of a missing neighbor
_NONE = np.zeros(MOST_DIRECTIONS, np.uint8)  # directions that `open_row` leaves out


class StencilBytes(NamedTuple):
    """The arrays that sweeps of small domains on a lattice read."""

    lattice: Lattice  # `words` is the number of bytes per row and color
    weight: NDArray[np.float32]  # [direction] of an equal neighbor, in units of log 2
    size: int  # values of each variable


def stencil_bytes(graph: FactorGraph) -> StencilBytes | None:
    """Lay out a lattice of equal domains, or return None if bytes cannot represent it.

    Supported is one stencil with a weight per offset, which includes a unit step along every axis,
    without other factors or evidence.
    """
    stencil, sizes = graph.lattice, graph.sizes
    if stencil is None or not (graph.only_stencils and stencil.uniform):
        return None
    if len(stencil.shape) < 2:  # parts of a line are cut as words of bits
        return None
    alike = is_constant(sizes) or bool((sizes == sizes[0]).all())
    if not alike or graph.free < len(graph) or not 2 <= sizes[0] <= MOST_SMALL:
        return None
    if len(graph) > MOST_VARIABLES or stencil.form != "potts":
        return None
    weights = stencil.weights[stencil.weights != 0.0] * LOG2_E
    lattice = lattice_of(stencil)
    if lattice is None or lattice.colors != 2 or not (lattice.factor == 1).all():
        return None
    if len(lattice.offset) > MOST_DIRECTIONS or 2.0 * np.abs(weights).sum() > SINGLE:
        return None
    steps = {tuple(step) for step in lattice.offset.tolist()}
    units = np.eye(len(stencil.shape), dtype=np.int64)
    if not all(tuple(unit) in steps for unit in units.tolist()):  # or colors would be others
        return None
    weight = np.repeat(weights.astype(np.float32), 2)
    weight.setflags(write=False)
    return StencilBytes(lattice._replace(words=-(-stencil.shape[-1] // 2)), weight, int(sizes[0]))


class ByteTile(LatticeTile):
    """Small domains as bytes in space: a unit is a byte of one site."""

    data: StencilBytes
    kind = np.uint8

    def __init__(
        self, graph: FactorGraph, data: Any, first: int, states: NDArray[Any], seed: int
    ) -> None:
        self.each = data.size
        sides = tuple(data.lattice.shape[:-1].tolist())
        coordinates = np.indices(sides, np.int32, sparse=True)
        self._odd = (sum(coordinates, np.zeros((), np.int32)) % 2 == 1).reshape(-1)  # [row]
        super().__init__(graph, data, first, states, seed)

    def _views(self, places: NDArray[Any], sites: NDArray[Any]) -> Any:
        """Yield views of places [color, row, byte, ..] and the rows and views of their sites.

        The views of sites are [row, byte, ..] of all rows, of which a mask is meant.
        """
        for color in range(2):
            for phase in range(2):
                count = int(self.data.lattice.sites[phase])
                yield places[color, :, :count], self._odd == (color + phase) % 2, sites[:, phase::2]

    def _turn(self, places: NDArray[Any], sites: NDArray[Any], back: bool) -> None:
        """Copy numbers by place to those by site, or `back`."""
        lattice, more = self.data.lattice, sites.shape[1:]
        rows = sites.reshape(lattice.rows, -1, *more)
        for own, mask, theirs in self._views(
            places.reshape(lattice.colors, lattice.rows, lattice.words, *more), rows
        ):
            if back:
                own[mask] = theirs[mask]
            else:
                theirs[mask] = own[mask]

    def load(self, states: NDArray[Any]) -> None:
        """Replace the states."""
        for own, state in zip(self.x, states, strict=True):
            self._turn(own, np.ascontiguousarray(state), True)

    def states(self) -> NDArray[Any]:
        """Return the states."""
        out = np.empty((self.chains, len(self.graph)), self.graph.state_type)
        for own, state in zip(self.x, out, strict=True):
            self._turn(own, state, False)
        return out

    def _sweep_chain(
        self, chain: int, begin: int, end: int, sweep: int, sweeps: int, few: NDArray[np.uint8]
    ) -> int:
        number, own = self.first + chain, self.x[chain]
        span = (begin, end, sweep, sweeps)
        moved: int = sweep_bytes(self.data, _NONE, self.key, number, *span, own, few)
        return moved

    def tally(self, chains: int) -> NDArray[np.int64]:
        """Return the tally of the first chains: an update evaluates every neighbor."""
        tally = np.zeros(CHANGES + 1, np.int64)
        pairs = sum(map(self.graph.stencils[0].count, range(len(self.data.weight) // 2)))
        tally[EVALUATIONS] = 2 * self.swept * chains * pairs
        tally[CHANGES] = self.noted[:chains].sum()
        return tally

    def counts(self, sweeps: int) -> NDArray[np.int64]:
        """Return the counts of all values."""
        self._flush()
        size = self.data.size
        counts = np.zeros((self.chains, len(self.graph), size), np.int64)
        for own, visits in zip(counts, self.ones, strict=True):
            if len(visits.few):
                self._turn(visits.values().reshape(-1, size), own, False)
        return counts.reshape(self.chains, -1)

    def energies(self) -> NDArray[np.float64]:
        """Compute the states' energies, up to the graph's offset."""
        return self.graph.stencils[0].energies(self.states()) - self.graph.offset


@literal
def _near(x, begin, sites, first, count, wraps, near):
    """Load the values of `count` sites of a row, from `first` on; `wraps` applies outside."""
    if first >= 0 and first + count <= sites:
        for lane in range(count):
            near[lane] = x[begin + first + lane]
        return
    for lane in range(count):
        place = first + lane
        if wraps:
            place %= sites
        inside = place >= 0 and place < sites
        near[lane] = x[begin + place] if inside else _NOBODY


@literal
def _fields(data, x, first, count, begin, shift, sites, near, field):
    """Compute the log weights of sites of a row in one chain: [value][site]."""
    lattice = data.lattice
    wraps = lattice.wraps[len(lattice.shape) - 1] != 0
    for v in range(data.size):
        for lane in range(count):
            field[np.uint64(v * LANES + lane)] = _ZERO
    for d in range(len(data.weight)):
        if begin[d] >= 0:
            _near(x, begin[d], sites[d], first + shift[d], count, wraps, near)
            for v in range(data.size):
                for lane in range(count):
                    own = np.uint64(v * LANES + lane)
                    more = field[own] + data.weight[d]
                    field[own] = more if near[lane] == np.uint8(v) else field[own]


@literal
def _row_block(data, key0, key1, chain, sweep, x, few, first, count, begin, shift, sites, at, site):
    """Update `count` sites of a row from `first` on; return the number of changes.

    `at` is the place of the row's first site of the color, and `site` its number.
    """
    bits, field, new = lanes_of(LANES, _WORD), lanes_of(ROOM, _ZERO), lanes_of(LANES, _BYTE)
    size, quad, word = data.size, np.uint32(chain >> 2), chain & 3
    for lane in range(count):
        variable = np.uint32(site + 2 * (first + lane))
        a, b, c, d = quad_bits(key0, key1, quad, variable, sweep, UPDATE_DRAW)
        low, high = (b if word & 1 else a), (d if word & 1 else c)
        bits[lane] = high if word & 2 else low
    _fields(data, x, first, count, begin, shift, sites, new, field)
    if choose(size, count, field, bits, new):
        for lane in range(count):
            if new[lane] == _NOBODY:
                variable = site + 2 * (first + lane)
                new[lane] = choose_finely(
                    size, lane, field, bits[lane], key0, key1, chain, variable, sweep
                )
    moved = np.int64(0)
    for lane in range(count):
        moved += new[lane] != x[at + first + lane]
    for lane in range(count):
        x[at + first + lane] = new[lane]
    if len(few):
        for lane in range(count):
            few[(at + first + lane) * size + new[lane]] += np.uint8(1)
    return moved


@literal_entry
def sweep_bytes(data, none, key, chain, begin, end, sweep, sweeps, x, few):
    """Sweep one chain over a range of units; return the number of changes."""
    lattice, key0, key1, moved = data.lattice, key[0], key[1], np.int64(0)
    at, start = lanes_of(MOST_AXES, _NUMBER), lanes_of(MOST_DIRECTIONS, _NUMBER)
    shift, met = lanes_of(MOST_DIRECTIONS, _NUMBER), lanes_of(MOST_DIRECTIONS, _NUMBER)
    side, units = lattice.shape[len(lattice.shape) - 1], lattice.rows * lattice.words
    for s in range(sweep, sweep + sweeps):
        unit = np.int64(begin)
        while unit < end:
            color = unit // units
            row = unit % units // lattice.words
            first = unit % units - row * lattice.words
            place_row(lattice, row, at)
            phase, sites = open_row(lattice, color, at, none, start, shift, met)
            last = min(lattice.words, first + end - unit)
            own, site, sites = unit - first, row * side + phase, min(sites, last)
            unit += last - first
            while first + LANES <= sites:
                moved += _row_block(
                    data, key0, key1, chain, s, x, few, first, LANES, start, shift, met, own, site
                )
                first += LANES
            if first < sites:
                moved += _row_block(
                    data, key0, key1, chain, s, x, few, first, sites - first, start, shift, met,
                    own, site,
                )  # fmt: skip
    return moved
