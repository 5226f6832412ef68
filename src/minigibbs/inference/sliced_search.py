"""The search of `mg.maximize` for spins of sparse graphs: many ladders per chain.

All ladders of a chain advance together (`samplers.tempering.sliced`). They are annealed
independently of each other: the coldest temperature falls level by level, and the levels below it
are further states at this temperature. Then they are tempered and exchange clusters.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import pilot_stream
from minigibbs.samplers.tempering.levels import equally_spaced
from minigibbs.samplers.tempering.sliced import (
    NOT_FOUND,
    SlicedLadder,
    set_temperatures,
    sliced_bytes,
    sliced_ladder,
    sliced_rounds,
)
from minigibbs.system import memory
from minigibbs.system.watch import current

_LANES, _LEAST_LADDERS = 512, 8  # replicas of a vector; ladders
_LEVELS, _MOST_LEVELS = 32, 256
_REJECTED = 0.7  # largest mean rejection rate of exchanges
_EXCITED = 0.2  # expected number of variables at the coldest level with 2 more broken pairs
_HOTTEST = 0.25  # of the coldest level: the hottest one is not colder
_WEAK, _FINEST = 0.3, 0.01  # quantile of strengths that is frozen at the coldest level, least share
_STRONG, _NARROW = 20.0, 1e-3  # products beta J of a search that ends at a relative width
_PILOTS, _PILOT_ROUNDS = 3, 40  # each pilot is twice as long as the previous one
_PILOT_SHARE = 0.1  # of the time that is left


class Levels(NamedTuple):
    """The temperatures of all ladders."""

    beta: NDArray[np.float64]  # [K] inverse temperatures
    ladders: int


def find_sliced_levels(model: Any) -> Levels:
    """Find temperatures with equal rejection rates, by short runs.

    The hottest temperature is that of the glass transition on a random graph with the same mean
    number of further neighbors. Lattices reach a transition only below it.
    """
    strengths = model.strengths
    weak = max(float(np.quantile(strengths, _WEAK)), _FINEST * float(strengths.max()))
    hot, cold = _hottest(model), math.log(len(model.order) / _EXCITED) / (2.0 * weak)
    levels, until = _LEVELS, current().spent + _PILOT_SHARE * current().left
    while True:
        beta = np.geomspace(min(hot, _HOTTEST * cold), cold, levels)
        ladders = max(_LANES // levels, _LEAST_LADDERS)
        data = sliced_ladder(model, levels, ladders, pilot_stream())
        beta, rejected = _spaced(data, beta, until)
        if rejected <= _REJECTED or levels == _MOST_LEVELS or current().spent > until:
            return Levels(beta, ladders)
        levels *= 2


def _hottest(model: Any) -> float:
    """Return the inverse temperature at which the mean of (tanh(beta J))^2 is 1 / neighbors."""
    degree, halves = np.diff(model.start), model.strengths / 2.0
    further = float((degree * (degree - 1)).sum() / degree.sum())
    low, high = 0.0, _STRONG / float(halves.max())
    while high - low > _NARROW * high:
        middle = (low + high) / 2.0
        glassy = further * float((np.tanh(middle * halves) ** 2).mean()) > 1.0
        low, high = (low, middle) if glassy else (middle, high)
    return high


def _spaced(
    data: SlicedLadder, beta: NDArray[np.float64], until: float
) -> tuple[NDArray[np.float64], float]:
    """Return levels with more equal rejection rates, and the mean rate."""
    rejected = np.ones(len(beta) - 1)
    sliced_rounds(data, 0, 0, True)  # compiles
    for pilot in range(_PILOTS):
        set_temperatures(data, beta)
        data.accepted[:] = 0.0
        rounds = _PILOT_ROUNDS << pilot
        for made in range(0, rounds, 2):
            sliced_rounds(data, made, 2, True)
            if current().spent > until:
                return beta, float(rejected.mean())
        rejected = 1.0 - data.accepted / (rounds / 2)
        beta = equally_spaced(beta, rejected, len(beta))
    return beta, float(rejected.mean())


class SlicedSearch:
    """One chain of a search: all ladders of a word.

    Parameters
    ----------
    model : CountModel or WeightModel
        The model.
    levels : Levels
        The temperatures.
    state : array
        A state with the values of clamped variables; the best one before the first round.
    stream : array
        The random stream of the chain.
    """

    def __init__(
        self, model: Any, levels: Levels, state: NDArray[Any], stream: NDArray[np.uint64]
    ) -> None:
        self.levels, self.updates, self.ladders = len(levels.beta), len(model.order), levels.ladders
        self._beta, self._state, self.made = levels.beta, state, 0
        self._data = sliced_ladder(model, self.levels, self.ladders, stream)
        self._coldest = -1

    @property
    def best(self) -> NDArray[Any]:
        """The best state so far."""
        state = self._state.copy()
        if self._data.least[0] < NOT_FOUND:
            state[self._data.model.order] = self._data.best
        return state

    def advance(self, rounds: int, begin: int, annealed: int) -> None:
        """Run some rounds; annealing takes `annealed` rounds after round `begin`."""
        end = self.made + rounds
        if not rounds:
            sliced_rounds(self._data, 0, 0, True)
        while self.made < end:
            coldest, last = self.levels - 1, end
            if begin <= self.made < begin + annealed:
                coldest = self.levels * (self.made - begin) // annealed
                last = begin - (-(coldest + 1) * annealed // self.levels)
            if coldest != self._coldest:
                set_temperatures(self._data, np.minimum(self._beta, self._beta[coldest]))
                self._coldest = coldest
            count = min(last, end) - self.made
            sliced_rounds(self._data, self.made, count, coldest == self.levels - 1)
            self.made += count


def sliced_searches(
    model: Any, states: NDArray[Any], rows: NDArray[np.uint64]
) -> list[SlicedSearch]:
    """Return one search per state, all with the same temperatures."""
    what, way_out = (
        f"maximize: {len(states):,} chains of many ladders",
        "use fewer chains (chains=...)",
    )
    memory.require(len(states) * sliced_bytes(model, _LANES), what, way_out)
    levels = find_sliced_levels(model)
    replicas = len(levels.beta) * levels.ladders
    memory.require(len(states) * sliced_bytes(model, replicas), what, way_out)
    return [SlicedSearch(model, levels, *pair) for pair in zip(states, rows, strict=True)]
