"""Tiles of points in a fixed order on a CPU, one chain after another; see `points`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import literal, literal_entry
from minigibbs.kernels.layout import CHANGES, DRAWS, EVALUATIONS
from minigibbs.kernels.philox import quad_bits
from minigibbs.samplers.chromatic.points import (
    BITS,
    CHOICE,
    COUNT,
    DISTRIBUTION,
    GRAIN,
    LEAST,
    LENGTH,
    ROW,
    START,
    PointColors,
    choose_value,
    count_proposals,
    draw_number,
    settle,
    unit_of_words,
)
from minigibbs.samplers.chromatic.tile import VisitTile


class PointTile(VisitTile):
    """A tile that updates its chains one after another; each is a row of values by place."""

    data: PointColors

    def __init__(
        self, graph: FactorGraph, data: PointColors, first: int, states: NDArray[Any], seed: int
    ) -> None:
        super().__init__(graph, data, first, states, seed)
        self.x = np.empty((self.chains, len(graph)), graph.state_type)
        self.load(states)
        self.visits = np.zeros((self.chains, int(graph.sizes.sum(dtype=np.int64))), np.int64)
        self.noted = np.zeros((self.chains, CHANGES + 1), np.int64)
        self.grain = np.ascontiguousarray(data.homes[:, :, GRAIN:]).view(np.float64)[:, :, 0]

    def load(self, states: NDArray[Any]) -> None:
        """Replace the states."""
        self.x[:] = states[:, self.data.variable]

    def states(self) -> NDArray[Any]:
        """Return a copy of the states."""
        states = np.empty_like(self.x)
        states[:, self.data.variable] = self.x
        return states

    def energies(self) -> NDArray[np.float64]:
        """Compute the states' energies, up to the graph's offset."""
        return super().energies() + self.graph.implicit_energies(self.states())

    def _ends(self) -> NDArray[np.int64]:
        """Return one range of places, since each update needs the previous one's value."""
        return np.array([0, self.data.free])

    def _width(self) -> int:
        return 0  # no threads share a chain

    def _sweep(
        self, begin: int, end: int, sweep: int, sweeps: int, counting: bool
    ) -> NDArray[np.int64]:
        none, tallies = self.visits[0, :0], []
        room = np.zeros((2, int(self.graph.sizes.max())))
        for row in range(self.chains):
            tally = np.zeros(CHANGES + 1, np.int64)
            visits = self.visits[row] if counting else none
            span, number = (begin, end, sweep, sweeps), self.first + row
            _sweep_chain(
                self.data, self.grain, self.key, number, *span, self.x[row], room, visits, tally
            )
            tallies.append(tally)
        return np.stack(tallies)


@literal
def _propose(data, grain, group, place, key0, key1, chain, sweep, x, field):
    """Add the log weights of the proposals of one group; return the number of proposals."""
    home, variable = data.homes[group, place], np.uint32(data.variable[place])
    _, _, c, d = quad_bits(
        key0, key1, np.uint32(chain), variable, sweep, np.uint32(COUNT + np.uint32(group))
    )
    u, size = unit_of_words(c, d), data.sizes[place]
    count = count_proposals(data.distributions, home[DISTRIBUTION], home[LEAST], home[LENGTH], u)
    for k in range(count):
        there, kept = settle(
            data.slots, data.points, data.quads, group * len(data.variable),
            home[START], home[BITS], home[ROW], grain[group, place],
            data.codes[group], data.exponents[group], data.more[group],
            key0, key1, chain, variable, sweep, draw_number(group, k),
        )  # fmt: skip
        value = x[there]
        top = (value == x[place]) == (data.attracts[group] != 0)
        if value < size and kept + (1 if top else 0) >= 2:
            field[value] += 1.0
    return count


@literal_entry
def _sweep_chain(
    data, grain, key, chain, begin, end, sweep, sweeps, x, room, visits, tally
):  # fmt: skip
    """Sweep one chain over a range of places; count values in `visits`, unless it is empty."""
    field, kept = room[0], room[1]
    for s in range(sweep, sweep + sweeps):
        for place in range(begin, end):
            size, first = data.sizes[place], data.first[place]
            for v in range(size):
                field[v] = data.base[first + v]
            for group in range(len(data.codes)):
                for v in range(size):
                    kept[v] = 0.0
                count = _propose(data, grain, group, place, key[0], key[1], chain, s, x, kept)
                for v in range(size):
                    field[v] += data.gains[group] * kept[v]
                tally[DRAWS] += count
                tally[EVALUATIONS] += count
            a, b, _, _ = quad_bits(
                key[0], key[1], np.uint32(chain), np.uint32(data.variable[place]), s, CHOICE
            )
            value, old = choose_value(field, size, unit_of_words(a, b)), x[place]
            x[place] = value
            tally[CHANGES] += value != old
            if len(visits):
                visits[first + value] += 1
