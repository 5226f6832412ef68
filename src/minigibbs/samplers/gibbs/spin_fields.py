"""Plain Gibbs for spins with many neighbors: one cached field per spin.

It is the remaining option for many weak couplings of both signs (docs/flagship.md). A change costs
one addition per neighbor. An update without a change costs nothing that grows with the degree. The
fields are recomputed after a fixed number of changes, so that rounding errors do not accumulate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import Workspace
from minigibbs.engine.dispatch import register
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.categorical import draw_log_by
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import EVALUATIONS
from minigibbs.kernels.random import uniform

_REFRESH = 16  # changes per spin between two recomputations of the fields


class SpinFieldData(NamedTuple):
    """The unary log-odds of spins; the chains' `carried` array has a counter and the fields."""

    odds: NDArray[np.float64]  # [n]
    refresh: int  # changes until the fields are recomputed


def spin_field_data(graph: FactorGraph, unary: NDArray[np.float64]) -> SpinFieldData:
    """Convert the unary factors to log-odds."""
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
    """Update by Algorithm 1 with cached log-odds; a change updates the neighbors' fields."""
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
    """Return the sizes: a counter, and one field per spin."""
    return Workspace(carried=1 + len(graph))
