"""Vectorized chains of learning, 64 at a time, whose weights are overwritten.

The layouts of chromatic sweeps do not depend on the weights. A layout maps each of its weights to
an entry of the packed graph, so that new weights can be copied into it.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.ensemble import State
from minigibbs.errors import LearnError
from minigibbs.graph.data import Data
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.parameters import Moving
from minigibbs.kernels.layout import Model
from minigibbs.kernels.statistics import fill_layout
from minigibbs.learning.chains import DATA, Chains, Threads, data_states, refill, seed_of
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
    """A chromatic layout whose weights depend on the parameters.

    `graph.frame.entry_ties` maps the weight of each entry of the rows to a parameter. The layout
    maps each of its own weights to an entry.
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
        """Return the layout with the weights of these parameters."""
        model = self._moving.set(values)
        unary = sum_unary(model) * LOG2_E
        if not len(unary):
            unary = np.zeros(int(self.graph.sizes.sum(dtype=np.int64)))
        changed = self._spins(model, unary) if self.spins else self._small(model, unary)
        for array in changed.values():
            array.setflags(write=False)
        return self.first._replace(**changed)  # type: ignore[no-any-return]

    def _spins(self, model: Model, unary: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """Return base and weights in double precision, because they may become large."""
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
        """Index of the values of each place, among those of all variables."""
        first, variable = self.first.first, self.first.variable
        sizes = self.graph.sizes[variable].astype(np.int64)
        starts = self.graph.frame.structure.first[variable] - first[:-1]
        own: NDArray[np.int64] = np.repeat(starts, sizes) + np.arange(int(first[-1]))
        return own


class LockstepChains(Chains):
    """Tiles of 64 chains each; every thread advances one tile at a time."""

    def __init__(
        self, graph: FactorGraph, states: NDArray[Any], seed: tuple[int, ...], threads: Threads
    ) -> None:
        self.graph, self.threads, self._layout = graph, threads, LearnedLayout(graph)
        self._states, self.swept = np.ascontiguousarray(states), 0
        self._key = seed_of(seed)
        self._tiles: list[Tile] = []
        self.laid: Any = None

    def set_weights(self, values: NDArray[np.float64]) -> None:
        """Write the weights; the chains of a tile consist of their states alone."""
        data = self.laid = self._layout.at(values)
        for tile in self._tiles:
            tile.data = data
        if not self._tiles:
            for first in range(0, len(self._states), LANES):
                own = self._states[first : first + LANES]
                if len(own) == 1:  # a tile of one chain has another layout
                    own = np.repeat(own, 2, axis=0)
                tile = make_tile(Gibbs(), self.graph, data, first, own, self._key)
                tile.compile()
                self._tiles.append(tile)

    def sweep(self, sweeps: int, chosen: NDArray[np.integer] | None = None) -> None:
        """Make numbered sweeps: a chain's draws depend on chain, sweep number and variable."""
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
        """Return the states, and the number of sweeps made."""
        return {"states": self._states, "swept": np.array([self.swept])}

    def restore(self, state: State) -> None:
        """Restore a state returned by `state`."""
        refill(self._states, state["states"], self.graph)
        self.swept = sweeps_of(state)


def sweeps_of(saved: State) -> int:
    """Return the number of sweeps in a saved state."""
    swept = saved["swept"]
    if swept.shape != (1,) or swept.dtype != np.int64 or not 0 <= swept[0] < 2**62:
        raise LearnError("a checkpoint holds no count of sweeps")
    return int(swept[0])


class LockstepRows(Chains):
    """Rows whose missing values are the same colors: 64 per tile; observed values are fixed.

    Variables of one color are independent given the others, so one color is drawn exactly.
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
        """Use the weights of vectorized chains."""
        if isinstance(other, LockstepChains):
            self._laid = other.laid
        return isinstance(other, LockstepChains)

    def sweep(self, sweeps: int, chosen: NDArray[np.integer] | None = None) -> None:
        """Draw the missing values of the chosen rows; bits depend on a row's rank among them."""
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
            filled = np.resize(np.arange(len(some)), LANES)  # tiles are full; the rest is not read
            tile.load(some[filled])
            for sweep in range(self.swept, self.swept + sweeps):
                tile.advance_colors(self.colors.start, self.colors.stop, sweep)
            some[:] = tile.states()[: len(some)]

        self.threads(work, pieces)
        self._states[rows] = drawn  # at once: if a row was chosen twice, its last result is used
        self.swept += sweeps

    def state(self) -> State:
        """Return the states, and the number of sweeps made."""
        return {"states": self._states, "swept": np.array([self.swept])}

    def restore(self, state: State) -> None:
        """Restore a state returned by `state`."""
        refill(self._states, state["states"], self.graph)
        self.swept = sweeps_of(state)


def open_colors(graph: FactorGraph, data: Data) -> slice | None:
    """Return the colors that all rows miss; None if rows differ, or miss parts of a color."""
    assert data.seen is not None
    if learned_layout(graph) is None or (data.seen != data.seen[0]).any():
        return None
    same = graph.with_every_parameter()  # its colors are those of the layout
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
    """Create vectorized chains of the rows; None if they have no such layout."""
    colors = open_colors(graph, data) if len(data) >= TOGETHER else None
    if colors is None:
        return None
    states = data_states(graph, data, seed)
    return LockstepRows(graph, states, colors, (seed, DATA), threads)


def _owners(blocks: NDArray[np.void]) -> NDArray[np.int64]:
    """Return the place to which each entry of a layout belongs."""
    sizes = blocks["count"].astype(np.int64) * blocks["degree"]
    block = np.repeat(np.arange(len(blocks)), sizes)
    inside = np.arange(len(block)) - blocks["entry"][block]
    owner: NDArray[np.int64] = blocks["first"][block] + inside % blocks["count"][block]
    return owner
