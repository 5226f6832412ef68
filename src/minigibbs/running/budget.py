"""How often energies are recorded where nobody said: as often as a tenth of the time allows.

The choice goes by predicted costs, never by the clock, so that a seed gives the same records on
every machine.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.prepared import prepared
from minigibbs.samplers import Sampler
from minigibbs.samplers.costs import COSTS
from minigibbs.samplers.registry import chromatic_layout

SHARE = 0.1  # of a chain's time that its energies may take
SHARE_UNTIL = 0.5  # the same where a run continues until the energy's sample size is reached
_MOST_UNTIL = 10  # records between two energies, where a run continues until it has enough of them
_NEGLIGIBLE = 1e-17  # of the sum of |weight|: what all pairs that are left out may add up to
_LEAST_TRIMMED = 1000  # pairs, for which it is worth a look
_LONG_ROW = 8  # pairs a variable from which on they are summed variable by variable

# Nanoseconds, by the same scale as `samplers.costs`.
_PAIR, _FAR_PAIR = 1.8, 3.0  # a pair of an energy, from a cache or from main memory
_FACTOR, _SLOT = 6.0, 2.0  # a general factor, and each variable of its scope
_CALL = 20_000.0  # overhead of an energy of an implicit group
# The same in chromatic scans, where updates and energies of pairs are so much cheaper.
_COLOR_PAIR = 0.9
_DEARER = 3.0  # how much dearer energies are in other layouts of colors
_UNNOTICED = 2e6  # what all energies of a chain may take, however short it is
_SWEEP = 40.0  # an update of a sampler that sweeps, about
_CACHE = 32e6  # bytes
_MOST_COSTS = 32  # samplers whose costs are kept per graph


class EnergyPairs(NamedTuple):
    """The pairs that an energy is summed from."""

    pair: NDArray[np.int32]  # [P, 2]
    weight: NDArray[np.float64]  # [P]
    rows: NDArray[np.int64]  # [n + 1] where each first variable's begin; empty where they are few
    second: NDArray[np.int32]  # [P] the other variables, beside rows


def energy_pairs(graph: FactorGraph) -> EnergyPairs:
    """The pairs of a graph without those that no energy would notice: their sum is rounding."""

    def make() -> EnergyPairs:
        pair, weight = _trimmed(graph.packed.pair, graph.packed.pair_weight)
        return EnergyPairs(pair, weight, *_rows(pair, len(graph)))

    return prepared(graph, "energy pairs", (), make)


def _trimmed(
    pair: NDArray[np.int32], weight: NDArray[np.float64]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    if len(weight) < _LEAST_TRIMMED:
        return pair, weight
    size = np.abs(weight)
    matters = size > _NEGLIGIBLE * float(size.sum()) / len(weight)
    if 2 * np.count_nonzero(matters) > len(weight):
        return pair, weight
    return pair[matters], weight[matters]


def _rows(pair: NDArray[np.int32], variables: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Where each first variable's pairs begin, if they come in order and a variable has many."""
    first = pair[:, 0]
    if len(pair) < _LONG_ROW * variables or (first[1:] < first[:-1]).any():
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
    begin = np.searchsorted(first, np.arange(variables + 1))
    return begin.astype(np.int64), np.ascontiguousarray(pair[:, 1])


def energy_cost(graph: FactorGraph) -> float:
    """Nanoseconds of one energy, about."""
    pairs, factors = len(energy_pairs(graph).weight), graph.packed.factors
    slots = float((factors["scope_end"] - factors["scope_start"]).sum())
    cost = pairs * (_FAR_PAIR if 16 * pairs > _CACHE else _PAIR)
    cost += _FACTOR * len(factors) + _SLOT * slots
    values = int(graph.sizes.max())
    return cost + sum(_CALL + group.energy_cost(values) for group in graph.implicits)


def update_cost(graph: FactorGraph, sampler: Sampler) -> float:
    """Nanoseconds of one update, about."""

    def make() -> float:
        try:
            operations = sampler.operations(graph)
        except SampleError:  # it sweeps
            return _SWEEP
        return sum(count * COSTS[kind] for kind, count in operations.items())

    return prepared(graph, "update cost", str(sampler), make, _MOST_COSTS)


def color_costs(graph: FactorGraph, sampler: Sampler) -> tuple[float, float]:
    """Nanoseconds of one energy and of one update in a chromatic scan, about."""
    layout = chromatic_layout(sampler, graph)
    update, energy = layout.cost(graph), layout.energy_cost(graph)
    if update is None:
        return energy_cost(graph), update_cost(graph, sampler) / _DEARER
    if energy is None:
        fields = int((graph.packed.rows["end"] > graph.packed.rows["unary_begin"]).sum())
        energy = _COLOR_PAIR * (len(graph.packed.pair_weight) + fields)
    return energy, update


def energy_every(
    graph: FactorGraph,
    sampler: Sampler,
    thin: int,
    records: int | None,
    share: float = SHARE,
    colors: bool = False,
) -> int:
    """The number of records between two energies; one energy at the end where no more fit.

    `records` is None where a run continues until it has enough energies.
    """
    own = chromatic_layout(sampler, graph).energy_cost(graph) if colors else None
    cost = energy_cost(graph) if own is None else own
    if records is not None and cost * records <= _UNNOTICED:
        return 1
    if not colors and cost <= share * thin * COSTS["update"]:
        return 1
    if colors:
        cost, update = color_costs(graph, sampler)
    else:
        update = update_cost(graph, sampler)
    every = max(math.ceil(cost / (share * thin * max(update, 1.0))), 1)
    if records is None:
        return min(every, _MOST_UNTIL)
    if every <= records:
        return every
    one_fits = cost <= 2 * share * records * thin * update
    return max(records, 1) if one_fits else every
