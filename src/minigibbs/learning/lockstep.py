"""Chains of learning in lockstep: 64 side by side, whose weights are written in place.

The layouts of chromatic sweeps do not change with the weights. Which parameter each of their
numbers comes from, and how many times, is found once, by laying out graphs whose parameters are
numbers that tell. Choices are made in single precision, whose error is far below a gradient's
noise.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.graph.data import Data
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.parameters import Frame, Moving
from minigibbs.kernels.statistics import fill_layout
from minigibbs.learning.chains import DATA, Chains, Threads, data_states, refill, seed_of
from minigibbs.running.ensemble import State
from minigibbs.samplers.chromatic.places import order_places
from minigibbs.samplers.chromatic.small import SmallColors, centered
from minigibbs.samplers.chromatic.spins import LOG2_E, SpinColors
from minigibbs.samplers.chromatic.tile import LANES, Tile
from minigibbs.samplers.gibbs.sampler import Gibbs, sum_unary
from minigibbs.samplers.registry import (
    MOST_LEARNED,
    SPINS,
    TOGETHER,
    learned_layout,
    make_tile,
)

_DIGITS = 4096  # numbers that single precision keeps apart with much to spare
assert _DIGITS**2 >= MOST_LEARNED


class Source:
    """Where the numbers of a layout come from: constant + scale * parameter."""

    def __init__(self, probes: list[NDArray[np.floating]]) -> None:
        """From layouts at 1, at 2, and at 1 plus the two digits of the parameter's number."""
        one, two, low, high = (probe.astype(np.float64) for probe in probes)
        self.scale = two - one
        # Single and double precision differ by less; a parameter's share grows by 4/5 at least.
        learned = np.abs(self.scale) > 0.1 * np.abs(one)
        self.scale[~learned] = 0.0
        scale = np.where(learned, self.scale, 1.0)
        digits = np.rint((low - one) / scale) + _DIGITS * np.rint((high - one) / scale)
        self.number = np.where(learned, digits, 0).astype(np.int64)
        self.constant = np.where(learned, 0.0, one)

    def of(self, values: NDArray[np.float64], kind: Any = np.float64) -> NDArray[Any]:
        """The numbers that these parameters give."""
        whole = np.empty(len(self.number), kind)
        fill_layout(self.constant, self.scale, self.number, values, whole)
        return whole


class LearnedLayout:
    """A chromatic layout whose numbers follow the parameters."""

    def __init__(self, graph: FactorGraph) -> None:
        self.graph, self.moving = graph, Moving(graph.frame)
        probes = [graph.with_flat(values) for values in _probes(graph.frame)]
        layout = learned_layout(graph)
        assert layout is not None
        self.spins = layout is SPINS
        laid = [layout.lay_out(Gibbs(), probe) for probe in probes]
        self._kind = np.float64 if any(_is_double(one) for one in laid) else np.float32
        self.first: Any = laid[0]
        self._weight = Source([one.weight for one in laid])
        self._table = None if self.spins else Source([one.table for one in laid])
        self._owner = _owners(self.first.blocks)

    def at(self, values: NDArray[np.float64]) -> SpinColors | SmallColors:
        """The layout with the numbers that these parameters give."""
        finite = np.where(np.isfinite(values), values, 0.0)
        unary = sum_unary(self.moving.set(values)) * LOG2_E
        if not len(unary):
            unary = np.zeros(int(self.graph.sizes.sum(dtype=np.int64)))
        weight = self._weight.of(finite)
        if self.spins:
            odds = (unary[1::2] - unary[::2])[self.first.variable]
            base = odds - np.bincount(self._owner, weight, minlength=len(odds)) / 2
            changed = {"base": base, "weight": weight}
        else:
            assert self._table is not None
            changed = {
                "base": centered(unary, self.graph.packed.first)[self._own],
                "weight": weight,
                "table": self._table.of(finite, self._kind),
            }
        frozen = {name: array.astype(self._kind, copy=False) for name, array in changed.items()}
        for array in frozen.values():
            array.setflags(write=False)
        return self.first._replace(**frozen)  # type: ignore[no-any-return]

    @cached_property
    def _own(self) -> NDArray[np.int64]:
        """Where the values of each place stand among those of all variables."""
        first, variable = self.first.first, self.first.variable
        sizes = self.graph.sizes[variable].astype(np.int64)
        starts = self.graph.frame.structure.first[variable] - first[:-1]
        own: NDArray[np.int64] = np.repeat(starts, sizes) + np.arange(int(first[-1]))
        return own


class LockstepChains(Chains):
    """Tiles of 64 chains each, a tile at a time on each thread."""

    def __init__(
        self, graph: FactorGraph, states: NDArray[Any], seed: tuple[int, ...], threads: Threads
    ) -> None:
        self.graph, self.threads, self._layout = graph, threads, LearnedLayout(graph)
        self._states, self.swept = np.ascontiguousarray(states), 0
        self._key = seed_of(seed)
        self._tiles: list[Tile] = []
        self.laid: Any = None

    def set_weights(self, values: NDArray[np.float64]) -> None:
        """Write the weights; tiles carry their states alone."""
        data = self.laid = self._layout.at(values)
        for tile in self._tiles:
            tile.data = data
        if not self._tiles:
            for first in range(0, len(self._states), LANES):
                own = self._states[first : first + LANES]
                if len(own) == 1:  # a tile of one chain is laid out otherwise
                    own = np.repeat(own, 2, axis=0)
                tile = make_tile(Gibbs(), self.graph, data, first, own, self._key)
                tile.compile()
                self._tiles.append(tile)

    def sweep(self, sweeps: int, chosen: NDArray[np.integer] | None = None) -> None:
        """Sweeps are numbered: a chain's draws depend on the number, on it and on the variable."""
        assert chosen is None

        def work(piece: int) -> None:
            tile, first = self._tiles[piece], piece * LANES
            tile.load(self._own(first, tile.chains))
            tile.advance(self.swept, sweeps, False)
            own = self._states[first : first + LANES]
            own[:] = tile.states()[: len(own)]

        self.threads(work, len(self._tiles))
        self.swept += sweeps

    def _own(self, first: int, count: int) -> NDArray[Any]:
        own = self._states[first : first + LANES]
        return own if len(own) == count else np.repeat(own, 2, axis=0)

    def state(self) -> State:
        """States, and how many sweeps were made."""
        return {"states": self._states, "swept": np.array([self.swept])}

    def restore(self, state: State) -> None:
        """Take them up."""
        refill(self._states, state["states"], self.graph)
        self.swept = sweeps_of(state)


def sweeps_of(saved: State) -> int:
    """How many sweeps were made, by what chains have saved."""
    swept = saved["swept"]
    if swept.shape != (1,) or swept.dtype != np.int64 or not 0 <= swept[0] < 2**62:
        raise LearnError("a checkpoint holds no count of sweeps")
    return int(swept[0])


class LockstepRows(Chains):
    """Rows that all leave open the same colors: 64 side by side, what was seen stays.

    Variables of one color do not depend on each other, so that one color is drawn exactly.
    """

    def __init__(
        self,
        graph: FactorGraph,
        states: NDArray[Any],
        colors: slice,
        seed: tuple[int, ...],
        threads: Threads,
    ) -> None:
        self.graph, self.colors, self._key = graph, colors, seed_of(seed)
        self._states, self.swept, self.threads = np.ascontiguousarray(states), 0, threads
        self._layout: LearnedLayout | None = None
        self._laid: Any = None
        self._tiles: list[Tile] = []

    def set_weights(self, values: NDArray[np.float64]) -> None:
        """Write the weights."""
        self._layout = self._layout or LearnedLayout(self.graph)
        self._laid = self._layout.at(values)

    def share(self, other: Chains) -> bool:
        """Go on with the weights of chains in lockstep."""
        if isinstance(other, LockstepChains):
            self._laid = other.laid
        return isinstance(other, LockstepChains)

    def sweep(self, sweeps: int, chosen: NDArray[np.integer] | None = None) -> None:
        """Draw what the chosen rows leave open; bits depend on a row's place among them."""
        rows = np.arange(len(self._states)) if chosen is None else chosen
        sweeps = 1 if self.colors.stop - self.colors.start == 1 else sweeps
        pieces = -(-len(rows) // LANES)
        while len(self._tiles) < pieces:
            first = len(self._tiles) * LANES
            own = np.repeat(self._states[:1], LANES, axis=0)
            self._tiles.append(make_tile(Gibbs(), self.graph, self._laid, first, own, self._key))

        drawn = self._states[rows]

        def work(piece: int) -> None:
            tile, some = self._tiles[piece], drawn[LANES * piece : LANES * (piece + 1)]
            tile.data = self._laid
            filled = np.resize(np.arange(len(some)), LANES)  # a tile is full; the rest is not read
            tile.load(some[filled])
            for sweep in range(self.swept, self.swept + sweeps):
                tile.advance_colors(self.colors.start, self.colors.stop, sweep)
            some[:] = tile.states()[: len(some)]

        self.threads(work, pieces)
        self._states[rows] = drawn  # at once: of a row that was chosen twice the last one stays
        self.swept += sweeps

    def state(self) -> State:
        """States, and how many sweeps were made."""
        return {"states": self._states, "swept": np.array([self.swept])}

    def restore(self, state: State) -> None:
        """Take them up."""
        refill(self._states, state["states"], self.graph)
        self.swept = sweeps_of(state)


def open_colors(graph: FactorGraph, data: Data) -> slice | None:
    """The colors that all rows leave open; None where rows differ, or a color is half seen."""
    assert data.seen is not None
    if learned_layout(graph) is None or (data.seen != data.seen[0]).any():
        return None
    places = order_places(graph, np.zeros(len(graph), dtype=np.int64))
    missing = data.seen[0][places.variable] == 0
    ends = places.ends
    whole = np.array([missing[a:b].all() for a, b in pairwise(ends.tolist())])
    some = np.array([missing[a:b].any() for a, b in pairwise(ends.tolist())])
    numbers = np.flatnonzero(whole)
    joined = len(numbers) > 0 and int(np.ptp(numbers)) == len(numbers) - 1
    if not joined or (some != whole).any():
        return None
    return slice(int(numbers[0]), int(numbers[-1]) + 1)


def lockstep_rows(graph: FactorGraph, data: Data, seed: int, threads: Threads) -> Chains | None:
    """Chains of the rows in lockstep, where they fit."""
    colors = open_colors(graph, data) if len(data) >= TOGETHER else None
    if colors is None:
        return None
    states = data_states(graph, data, seed)
    return LockstepRows(graph, states, colors, (seed, DATA), threads)


def _probes(frame: Frame) -> list[NDArray[np.float64]]:
    """Parameters that tell where they went; no table of them is constant."""
    number = np.arange(frame.size)
    one: NDArray[np.float64] = 1.0 + 0.25 * (number % 2).astype(np.float64)
    low, high = (number % _DIGITS).astype(np.float64), (number // _DIGITS).astype(np.float64)
    return [one, one + 1.0, one + low, one + high]


def _is_double(laid: Any) -> bool:
    return bool(laid.weight.dtype == np.float64) and isinstance(laid, SpinColors)


def _owners(blocks: NDArray[np.void]) -> NDArray[np.int64]:
    """The place that each entry of a layout belongs to."""
    sizes = blocks["count"].astype(np.int64) * blocks["degree"]
    block = np.repeat(np.arange(len(blocks)), sizes)
    inside = np.arange(len(block)) - blocks["entry"][block]
    owner: NDArray[np.int64] = blocks["first"][block] + inside % blocks["count"][block]
    return owner
