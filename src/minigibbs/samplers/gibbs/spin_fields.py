"""Plain Gibbs for spins with many neighbors: one remembered field a spin, told of every change.

It is what is left where couplings of both signs are many and weak (docs/flagship.md): a change
costs an addition a neighbor, and an update without one costs nothing that grows with the degree.
The fields are summed anew after a fixed number of changes, so that rounding does not build up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.categorical import draw_log_by
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import EVALUATIONS
from minigibbs.kernels.random import uniform
from minigibbs.samplers.base import Workspace, register

_REFRESH = 16  # changes a spin between two times that the fields are summed anew


class SpinFieldData(NamedTuple):
    """What the unary factors add to a spin's log odds; chains carry a count, and the fields."""

    odds: NDArray[np.float64]  # [n]
    refresh: int  # changes until the fields are summed anew


def spin_field_data(graph: FactorGraph, unary: NDArray[np.float64]) -> SpinFieldData:
    """The unary factors as log odds."""
    pairs = unary.reshape(-1, 2) if len(unary) else np.zeros((len(graph), 2))
    return SpinFieldData(pairs[:, 1] - pairs[:, 0], _REFRESH * len(graph))


@kernel
def spin_field_begin(data, model, chain):
    """Sum every spin's factors."""
    chain.carried[0] = 0.0
    for i in range(len(model.rows)):
        row, total = model.rows[i], data.odds[i]
        for place in range(row.start, row.pair_end):
            total += model.weight[place] * (2.0 * chain.x[model.target[place]] - 1.0)
        chain.carried[1 + i] = total


@kernel
def spin_field_update(data, model, chain, i):
    """Algorithm 1, with log odds remembered; a change is told to the neighbors."""
    old = chain.x[i]
    chain.weights[0], chain.weights[1] = 0.0, chain.carried[1 + i]
    new = draw_log_by(chain.weights, 2, uniform(chain.stream))
    if new != old:
        row, step = model.rows[i], 2.0 * new - 2.0 * old
        chain.carried[0] += 1.0
        if chain.carried[0] >= data.refresh:
            spin_field_begin(data, model, chain)
        for place in range(row.start, row.pair_end):
            other = np.uint64(1 + model.target[place])
            chain.carried[other] += step * model.weight[place]
        chain.tally[EVALUATIONS] += row.pair_end - row.start
    return new


register(SpinFieldData, spin_field_update, spin_field_begin)


def spin_field_workspace(graph: FactorGraph) -> Workspace:
    """A count, and a field a spin."""
    return Workspace(carried=1 + len(graph))
