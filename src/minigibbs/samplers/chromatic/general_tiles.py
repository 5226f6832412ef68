"""Tiles for any stored graph: the sampler's own update, chain by chain, with counter-based numbers.

Before each update the chain's stream is set from the random bits of this chain, sweep and variable.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.dispatch import update
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import entry, kernel
from minigibbs.kernels.layout import CHANGES, Chain
from minigibbs.kernels.philox import chain_bits
from minigibbs.samplers.base import Sampler
from minigibbs.samplers.chromatic.places import order_places
from minigibbs.samplers.chromatic.tile import VisitTile

GENERAL_LANES = 2  # more than one, so that samplers cache nothing between updates
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = (np.uint64(s) for s in (27, 30, 31, 32))


class GeneralColors(NamedTuple):
    """The order of visits, and the sampler's prepared data."""

    ends: NDArray[np.int64]  # [colors + 1] begin of each color in the order
    variable: NDArray[np.int32]  # [m]
    own: Any  # the sampler's data


def general_colors(sampler: Sampler, graph: FactorGraph) -> GeneralColors:
    """Order the variables; `prepare` with several lanes keeps no state between updates."""
    places = order_places(graph, np.zeros(len(graph), np.int32))
    return GeneralColors(places.ends, places.variable, sampler.prepare(graph, GENERAL_LANES))


class GeneralTile(VisitTile):
    """A tile that updates its chains one after another; each is a row of values by variable."""

    def __init__(
        self,
        graph: FactorGraph,
        data: GeneralColors,
        first: int,
        states: NDArray[Any],
        seed: int,
        sampler: Sampler,
    ) -> None:
        super().__init__(graph, data, first, states, seed)
        self.x = np.ascontiguousarray(states, dtype=graph.state_type).copy()
        self.space = sampler.workspace(graph, data.own)
        self.visits = np.zeros((self.chains, int(graph.sizes.sum(dtype=np.int64))), np.int64)
        self.noted = np.zeros((self.chains, CHANGES + 1), np.int64)

    def load(self, states: NDArray[Any]) -> None:
        """Replace the states."""
        self.x[:] = states

    def states(self) -> NDArray[Any]:
        """Return a copy of the states."""
        return self.x.copy()

    def _ends(self) -> NDArray[np.int64]:
        return self.data.ends  # type: ignore[no-any-return]

    def _width(self) -> int:
        return self.chains

    def _chain(self, row: int) -> Chain:
        """Create scratch for one chain; calls may update parts of a color concurrently."""
        space = self.space
        return Chain(
            x=self.x[row],
            stream=np.zeros(4, np.uint64),
            carried=np.zeros(space.carried),
            weights=np.zeros(2 * int(self.graph.sizes.max()) + space.numbers),
            scratch=np.zeros(space.scratch, dtype=np.int64),
            tally=np.zeros(CHANGES + 1, dtype=np.int64),
        )

    def _sweep(
        self, begin: int, end: int, sweep: int, sweeps: int, counting: bool
    ) -> NDArray[np.int64]:
        model, none, tallies = self.graph.packed, self.visits[0, :0], []
        for row in range(self.chains):
            chain, visits = self._chain(row), self.visits[row] if counting else none
            number = self.first + row
            span = (begin, end, sweep, sweeps)
            sweep_chain(self.data, model, chain, self.key, number, *span, visits)
            tallies.append(chain.tally)
        return np.stack(tallies)


@kernel
def set_stream(stream, key0, key1, chain, variable, sweep, draw):
    """Set four words from 64 bits of this chain, variable and sweep, by splitmix64."""
    low = np.uint64(chain_bits(key0, key1, chain, variable, sweep, draw))
    high = np.uint64(chain_bits(key0, key1, chain, variable, sweep, draw + 1))
    word = (high << _S32) | low
    for k in range(4):
        word += _STEP
        z = word
        z = (z ^ (z >> _S30)) * _MIX_1
        z = (z ^ (z >> _S27)) * _MIX_2
        stream[k] = z ^ (z >> _S31)


@entry
def sweep_chain(data, model, chain, key, number, begin, end, sweep, sweeps, visits):
    """Sweep one chain over a range of the order; count values in `visits`, unless it is empty."""
    x = chain.x
    for s in range(sweep, sweep + sweeps):
        for place in range(begin, end):
            i = np.int64(data.variable[place])
            set_stream(chain.stream, key[0], key[1], number, i, s, 0)
            value, old = update(data.own, model, chain, i), x[i]
            x[i] = value
            chain.tally[CHANGES] += value != old
            if len(visits):
                visits[model.first[i] + value] += 1
