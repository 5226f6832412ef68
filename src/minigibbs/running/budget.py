"""Default spacing of energy records, such that energies take a tenth of the time.

The choice uses predicted costs, never the clock, so that a seed gives the same records on every
machine.
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

SHARE = 0.1  # largest share of a chain's time for its energies
SHARE_OBSERVED = 0.2  # the same for its observables, beyond the first 1,000 records
SHARE_UNTIL = 0.5  # the same for runs that continue until the energy's ESS is reached
_MOST_UNTIL = 10  # most records between two energies in such runs
_NEGLIGIBLE = 1e-17  # bound of the sum of omitted pairs, relative to the sum of |weight|
_LEAST_TRIMMED = 1000  # least pairs for which trimming is tried
_LONG_ROW = 8  # pairs per variable from which on they are summed by rows

# Nanoseconds, on the same scale as `samplers.costs`.
_PAIR, _FAR_PAIR = 1.8, 3.0  # a pair of an energy, from a cache or from main memory
_FACTOR, _SLOT = 6.0, 2.0  # a general factor, and each variable of its scope
_CALL = 20_000.0  # overhead of the energy of an implicit group
# The same in chromatic scans, whose updates and energies of pairs are cheaper.
_COLOR_PAIR = 0.9
_DEARER = 3.0  # how much more energies cost, relative to updates, in other layouts
_MEASURE, _COLOR_MEASURE = 5.0, 15.0  # an observable, per variable, with one chain and with many
_UNNOTICED = 2e6  # time of all energies of a chain that is always acceptable
_SWEEP = 40.0  # approximate cost of an update of samplers of whole sweeps
_CACHE = 32e6  # bytes
_MOST_COSTS = 32  # samplers whose costs are stored per graph


class EnergyPairs(NamedTuple):
    """Pairs over which an energy is summed."""

    pair: NDArray[np.int32]  # [P, 2]
    weight: NDArray[np.float64]  # [P]
    rows: NDArray[np.int64]  # [n + 1] first pair of each first variable; empty for few pairs
    second: NDArray[np.int32]  # [P] second variables, if there are rows


def energy_pairs(graph: FactorGraph) -> EnergyPairs:
    """Return the pairs of a graph, without those whose sum is below the rounding error."""

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
    """Return the first pair of each variable, if pairs are sorted and variables have many."""
    first = pair[:, 0]
    if len(pair) < _LONG_ROW * variables or (first[1:] < first[:-1]).any():
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
    begin = np.searchsorted(first, np.arange(variables + 1))
    return begin.astype(np.int64), np.ascontiguousarray(pair[:, 1])


def energy_cost(graph: FactorGraph) -> float:
    """Return the approximate nanoseconds of one energy."""
    pairs, factors = len(energy_pairs(graph).weight), graph.packed.factors
    slots = float((factors["scope_end"] - factors["scope_start"]).sum())
    cost = pairs * (_FAR_PAIR if 16 * pairs > _CACHE else _PAIR)
    cost += _FACTOR * len(factors) + _SLOT * slots
    values = int(graph.sizes.max())
    return cost + sum(_CALL + group.energy_cost(values) for group in graph.implicits)


def update_cost(graph: FactorGraph, sampler: Sampler) -> float:
    """Return the approximate nanoseconds of one update."""

    def make() -> float:
        try:
            operations = sampler.operations(graph)
        except SampleError:  # it makes whole sweeps
            return _SWEEP
        return sum(count * COSTS[kind] for kind, count in operations.items())

    return prepared(graph, "update cost", str(sampler), make, _MOST_COSTS)


def color_costs(graph: FactorGraph, sampler: Sampler) -> tuple[float, float]:
    """Return the approximate nanoseconds of one energy and one update in a chromatic scan."""
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
    """Return the number of records per energy; if only one energy fits, it is the last record.

    `records` is None if a run continues until it has enough energies.
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


def observing_every(graph: FactorGraph, sampler: Sampler, observables: int, colors: bool) -> int:
    """Return the updates between two records whose observables take a fifth of the time."""
    if not observables:
        return 1
    update = color_costs(graph, sampler)[1] if colors else update_cost(graph, sampler)
    cost = (_COLOR_MEASURE if colors else _MEASURE) * observables * len(graph)
    return math.ceil(cost / (SHARE_OBSERVED * max(update, 1.0)))
