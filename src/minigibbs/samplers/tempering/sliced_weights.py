"""Spins with pairs of any strengths, and fields: floating-point fields of 64 replicas at a time.

A neighbor's word is read once for 64 replicas, and its weight is added to the fields of those in
which it is 1, as in `spins`. Costs are integers, so that they are exact sums. Updates are those of
Metropolis, variable by variable, with probabilities that have relative errors of up to 1e-4. That
suffices for a search, but not for samples.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.lanes import FULL, add_where, bits_of, lanes_of
from minigibbs.kernels.slices import WORDS, random_logs
from minigibbs.samplers.chromatic.tile import LANES
from minigibbs.samplers.tempering.sliced import register_model, spins_and_fields, sum_planes
from minigibbs.samplers.tempering.spins import integer_unit

_FIELD, _BYTE, _SUM = np.float32(0), np.uint8(0), np.int64(0)


class WeightModel(NamedTuple):
    """The updated variables with their pairs and fields, common to all ladders."""

    order: NDArray[np.int32]  # [n] the graph's variables
    unit: float  # of costs
    even: bool  # whether all values can change without a change of the energy
    start: NDArray[np.int64]  # [n + 1] start of the neighbors of each variable
    target: NDArray[np.int64]  # neighbors
    weight: NDArray[np.float32]  # log-odds that a neighbor of value 1 adds
    base: NDArray[np.float32]  # [n] log-odds of value 1 if all neighbors are 0
    pair: NDArray[np.int64]  # [P, 2]
    pair_cost: NDArray[np.int64]  # [P] of different values
    field_cost: NDArray[np.int64]  # [n] of value 0
    length: tuple[int, ...]  # the planes of a count of variables

    @property
    def cost_type(self) -> type[np.int64]:
        """The type of costs."""
        return np.int64

    @property
    def strengths(self) -> NDArray[np.float64]:
        """The strengths of all pairs."""
        return self.unit * np.abs(self.pair_cost)

    def table_bytes(self, replicas: int) -> int:
        """Return the size of `table`."""
        return 4 * replicas

    def table(self, beta: NDArray[np.float64], ladders: int) -> NDArray[np.float32]:
        """Return the inverse temperature of every replica, for log-odds in units of log 2."""
        return np.repeat(beta / math.log(2.0), ladders).astype(np.float32)


def weight_model(graph: FactorGraph) -> WeightModel | None:
    """Lay out a graph of spins with explicit pairs and finite fields; None for others."""
    found = spins_and_fields(graph)
    if found is None:
        return None
    simple, spin, field = found
    n = int(spin.sum())
    pair, strength = (np.cumsum(spin) - 1)[simple.pair].astype(np.int64), simple.pair_weight
    owner, other = np.concatenate([pair, pair[:, ::-1]]).T
    order, twice = np.lexsort((other, owner)), np.tile(strength, 2)
    unit = integer_unit(field, strength)
    return WeightModel(
        order=np.flatnonzero(spin).astype(np.int32),
        unit=unit,
        even=not field.any(),
        start=np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n))]),
        target=other[order],
        weight=2.0 * twice[order].astype(np.float32),
        base=(field - np.bincount(owner, twice, n)).astype(np.float32),
        pair=pair,
        pair_cost=np.rint(strength / unit).astype(np.int64),
        field_cost=np.rint(field / unit).astype(np.int64),
        length=sum_planes(n),
    )


@kernel
def _sweep(model, data):
    """Update every variable in all replicas."""
    width = data.width
    field, log = lanes_of(LANES, _FIELD), lanes_of(LANES, _FIELD)
    rise, stay = lanes_of(LANES, _BYTE), lanes_of(LANES, _BYTE)
    for i in range(len(model.order)):
        for k in range(width):
            for lane in range(LANES + np.int64(i < 0)):  # not a constant, which would be unrolled
                field[lane] = model.base[i]
            for edge in range(model.start[i], model.start[i + 1]):
                word = data.x[model.target[edge] * width + k]
                add_where(word, field, model.weight[edge], FULL)
            random_logs(data.streams, k // WORDS * WORDS, width, log)
            for lane in range(LANES + np.int64(i < 0)):
                odds = field[lane] * data.table[LANES * k + lane]
                rise[lane] = log[lane] < odds
                stay[lane] = log[lane] >= -odds
            here, rises, stays = data.x[i * width + k], bits_of(rise, FULL), bits_of(stay, FULL)
            data.x[i * width + k] = (here & stays) | (~here & rises)


@kernel
def _add_costs(model, data):
    """Compute the costs of every replica."""
    width, sums = data.width, lanes_of(LANES, _SUM)
    for k in range(width):
        for lane in range(LANES + np.int64(k < 0)):
            sums[lane] = 0
        if not model.even:
            for i in range(len(model.order)):
                add_where(~data.x[i * width + k], sums, model.field_cost[i], FULL)
        for p in range(len(model.pair)):
            i, j = model.pair[p, 0] * width + k, model.pair[p, 1] * width + k
            add_where(data.x[i] ^ data.x[j], sums, model.pair_cost[p], FULL)
        for lane in range(LANES):
            data.cost[LANES * k + lane] = sums[lane]


register_model(WeightModel, _sweep, _add_costs)
