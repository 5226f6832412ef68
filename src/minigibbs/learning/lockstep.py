"""Vectorized chains of learning: 64 at a time, whose weights are written in place.

The layouts of chromatic sweeps do not change with the weights. A layout says which entry of the
packed graph is behind each of its numbers, so that new weights are written where they belong.
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
from minigibbs.graph.parameters import Moving
from minigibbs.kernels.layout import Model
from minigibbs.kernels.statistics import fill_layout
from minigibbs.learning.chains import DATA, Chains, Threads, data_states, refill, seed_of
from minigibbs.running.ensemble import State
from minigibbs.samplers.chromatic.places import order_places
from minigibbs.samplers.chromatic.small import SmallColors, centered, small_layout
from minigibbs.samplers.chromatic.spins import LOG2_E, SpinColors, spin_layout
from minigibbs.samplers.chromatic.tile import LANES, Tile
from minigibbs.samplers.gibbs.sampler import Gibbs, sum_unary
from minigibbs.samplers.registry import (
    SPINS,
    TOGETHER,
    learned_layout,
    make_tile,
)


class LearnedLayout:
    """A chromatic layout whose numbers follow the parameters.

    `graph.frame.entry_ties` says which parameter is behind the weight of each entry of the rows.
    The layout says which entry is behind each of its own weights.
    """

    def __init__(self, graph: FactorGraph) -> None:
        self.graph, self._moving = graph, Moving(graph.frame)
        layout, whole = learned_layout(graph), graph.with_every_parameter()
        assert layout is not None
        self.spins = layout is SPINS
        self.first: Any
        if self.spins:
            self.first, self._entry = spin_layout(whole)
            self._owner = _owners(self.first.blocks)
        else:
            self.first, self._origins = small_layout(whole)

    def at(self, values: NDArray[np.float64]) -> SpinColors | SmallColors:
        """The layout with the numbers that these parameters give."""
        model = self._moving.set(values)
        unary = sum_unary(model) * LOG2_E
        if not len(unary):
            unary = np.zeros(int(self.graph.sizes.sum(dtype=np.int64)))
        changed = self._spins(model, unary) if self.spins else self._small(model, unary)
        for array in changed.values():
            array.setflags(write=False)
        return self.first._replace(**changed)  # type: ignore[no-any-return]

    def _spins(self, model: Model, unary: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """Base and weights in double precision, since nobody knows how large they become."""
        weight = (2.0 * LOG2_E) * model.weight[self._entry]
        odds = (unary[1::2] - unary[::2])[self.first.variable]
        base = odds - np.bincount(self._owner, weight, minlength=len(odds)) / 2
        return {"base": base, "weight": weight}

    def _small(self, model: Model, unary: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        own, first = self._origins, self.first
        weight, table = np.empty(len(first.weight), np.float32), np.empty_like(first.table)
        fill_layout(own.entry_scale, own.entry, model.weight, weight)
        if len(model.table):
            fill_layout(own.cell_scale, own.cell, model.table, table)
        else:
            table[:] = 0.0
        base = centered(unary, self.graph.packed.first)[self._own]
        return {"base": base.astype(np.float32), "weight": weight, "table": table}

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

        updates = sweeps * LANES * len(self._tiles) * len(self.graph)
        self.threads(work, len(self._tiles), updates)
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
    """Rows that all leave open the same colors: 64 in a vector, observed values stay.

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
        """Continue with the weights of vectorized chains."""
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
    same = graph.with_every_parameter()  # whose colors are those of the layout
    places = order_places(same, np.zeros(len(graph), dtype=np.int64))
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
    """Vectorized chains of the rows, where they fit."""
    colors = open_colors(graph, data) if len(data) >= TOGETHER else None
    if colors is None:
        return None
    states = data_states(graph, data, seed)
    return LockstepRows(graph, states, colors, (seed, DATA), threads)


def _owners(blocks: NDArray[np.void]) -> NDArray[np.int64]:
    """The place that each entry of a layout belongs to."""
    sizes = blocks["count"].astype(np.int64) * blocks["degree"]
    block = np.repeat(np.arange(len(blocks)), sizes)
    inside = np.arange(len(block)) - blocks["entry"][block]
    owner: NDArray[np.int64] = blocks["first"][block] + inside % blocks["count"][block]
    return owner
