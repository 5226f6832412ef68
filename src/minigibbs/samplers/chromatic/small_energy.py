"""Energies of 64 vectorized chains, for pairs and tables."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.prepared import prepared
from minigibbs.kernels.energy import energies
from minigibbs.kernels.jit import entry
from minigibbs.kernels.lanes import lanes_of
from minigibbs.kernels.layout import TABLE
from minigibbs.samplers.chromatic.spin_energy import alike_energy
from minigibbs.samplers.chromatic.tile import LANES
from minigibbs.samplers.gibbs.sampler import sum_unary

_PLACE = np.int64(0)


class PairEnergy(NamedTuple):
    """An energy as a constant, fields by place and value, and weights of equal pairs."""

    constant: float
    first: NDArray[np.int64]  # [m + 1] index of each place's first value
    field: NDArray[np.float64]  # [sum of sizes]; empty without unary factors
    pair: NDArray[np.uint32]  # [P, 2] places
    weight: NDArray[np.float64]  # [P]


def pairs_alone(graph: FactorGraph) -> bool:
    """Return whether only pairs join variables, and no variable is clamped."""
    rows = graph.packed.rows
    return not (rows["pair_end"] < rows["unary_begin"]).any() and bool((graph.evidence < 0).all())


def pair_energy(graph: FactorGraph, data: Any) -> PairEnergy:
    """Return the energy's terms, once per graph and order; requires `pairs_alone`."""
    order = data.variable.tobytes()  # the order depends on which factors are evaluated exactly
    return prepared(graph, "pair energy", order, lambda: _parts(graph, data))


def _parts(graph: FactorGraph, data: Any) -> PairEnergy:
    model, place = graph.packed, np.empty(len(graph), np.uint32)
    place[data.variable] = np.arange(len(graph), dtype=np.uint32)
    unary = sum_unary(model)
    sizes, whole, field = graph.sizes[data.variable].astype(np.int64), np.empty(1), unary
    if len(unary):
        own = np.repeat(model.first[data.variable] - data.first[:-1], sizes)
        field = unary[own + np.arange(len(own))]
    pair, zeros = place[model.pair], np.zeros((1, len(graph)), graph.state_type)
    energies(model, zeros, whole)
    at_zero = float(field[data.first[:-1]].sum()) if len(field) else 0.0
    constant = float(whole[0]) - float(model.pair_weight.sum() + at_zero)
    return PairEnergy(constant, data.first, field, pair, model.pair_weight)


@entry
def row_energy(parts, x):
    """Compute the energy of one chain, whose values are in the order of the places."""
    total = parts.constant + alike_energy(parts, x)
    for p in range(len(x) if len(parts.field) else 0):
        total += parts.field[np.uint64(parts.first[p] + x[p])]
    return total


def tables_alone(graph: FactorGraph) -> bool:
    """Return whether every factor that is not a pair is a table."""
    return bool((graph.packed.factors["form"] == TABLE).all())


def table_energies(
    graph: FactorGraph, variable: NDArray[np.int32], x: NDArray[np.uint8]
) -> NDArray[np.float64]:
    """Compute the energies of 64 chains whose values [place, column] are bytes."""
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
