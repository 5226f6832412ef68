"""Energies of 64 chains side by side, for pairs and tables."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import entry
from minigibbs.kernels.lanes import lanes_of
from minigibbs.kernels.layout import TABLE
from minigibbs.samplers.chromatic.tile import LANES

_PLACE = np.int64(0)


def tables_alone(graph: FactorGraph) -> bool:
    """Whether every factor that is no pair is a table."""
    return bool((graph.packed.factors["form"] == TABLE).all())


def table_energies(
    graph: FactorGraph, variable: NDArray[np.int32], x: NDArray[np.uint8]
) -> NDArray[np.float64]:
    """The energies of 64 chains whose values [place, column] are bytes."""
    fixed = np.where(graph.evidence < 0, 0, graph.evidence).astype(np.uint8)
    rows = np.repeat(fixed[:, None], LANES, axis=1)
    rows[variable] = x
    total = np.zeros(LANES)
    _add_all(graph.packed, rows, total)
    return total


@entry
def _add_all(model, rows, total):
    place = lanes_of(LANES, _PLACE)
    for k in range(len(model.pair)):
        a, b = rows[model.pair[k, 0]], rows[model.pair[k, 1]]
        weight = model.pair_weight[k]
        for lane in range(LANES):
            total[lane] += weight if a[lane] == b[lane] else 0.0
    for k in range(len(model.factors)):
        factor = model.factors[k]
        for lane in range(LANES):
            place[lane] = factor.table_start
        for s in range(factor.scope_start, factor.scope_end):
            slot = model.slots[s]
            values = rows[slot.variable]
            for lane in range(LANES):
                place[lane] += slot.key * np.int64(values[lane])
        for lane in range(LANES):
            total[lane] += factor.weight * model.table[np.uint64(place[lane])]
