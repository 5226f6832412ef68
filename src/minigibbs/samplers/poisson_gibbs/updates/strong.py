"""The variant `general` in logarithms, for overflowing products and hard constraints.

An update computes the log weight of every value, and one exponential per value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import Workspace
from minigibbs.engine.dispatch import register
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.categorical import draw_log_by
from minigibbs.kernels.energy import add_general
from minigibbs.kernels.jit import inlined, kernel
from minigibbs.kernels.layout import EVALUATIONS
from minigibbs.kernels.random import leftover, uniform
from minigibbs.kernels.touched import SUMS
from minigibbs.samplers.gibbs.sampler import load_unary
from minigibbs.samplers.poisson_gibbs.groups import draw_implicit
from minigibbs.samplers.poisson_gibbs.split import Split
from minigibbs.samplers.poisson_gibbs.updates.base import Variant
from minigibbs.samplers.poisson_gibbs.updates.general import draw_tail
from minigibbs.samplers.poisson_gibbs.updates.general import prepare as prepare_general

_BELOW_ONE = 1.0 - 2.0**-53  # at 1, the last value would be drawn even with weight 0


class StrongData(NamedTuple):
    """`GeneralData` in logarithms: gains, losses, heavy pairs and unary factors."""

    parts: NDArray[np.void]  # [n] of GENERAL_PART
    heavy: NDArray[np.void]  # of HEAVY_PAIR
    general: NDArray[np.int64]  # indices of heavy general factors
    tail: NDArray[np.void]  # of ALIAS, over indices
    unary: NDArray[np.float64]  # [sum of sizes] or empty
    implicit: Any  # see `poisson_gibbs.groups`


def prepare(graph: FactorGraph, split: Split) -> StrongData:
    """Lay out the split, variable by variable."""
    data = prepare_general(graph, split, logs=True)
    return StrongData(data.parts, data.heavy, data.general, data.tail, data.base, data.implicit)


def workspace(graph: FactorGraph) -> Workspace:
    """Return the sizes: two numbers per value, a weight and scratch."""
    return Workspace()


@inlined
def _load_sums(data, part, model, chain, i):
    """Set the log weight of every value to the sum of its unary and heavy factors."""
    load_unary(data.unary, model.first[i], model.rows[i].domain, chain.weights)
    for k in range(part.general):
        add_general(model, chain.x, i, data.general[part.general_start + k], 1.0, chain.weights)
    for k in range(part.heavy):
        pair = data.heavy[part.heavy_start + k]
        chain.weights[chain.x[pair.target]] += pair.factor  # scratch beyond the domain


@kernel
def strong_update(data, model, chain, i):
    """Update by Zhang and De Sa's Algorithm 2 with an exact heavy part, in logarithms."""
    part, size = data.parts[i], model.rows[i].domain
    _load_sums(data, part, model, chain, i)
    chain.tally[EVALUATIONS] += part.heavy + part.general
    u = uniform(chain.stream)
    if u >= part.none:
        draw_tail(data, part, model, chain, i, SUMS, u, 0)
        u = uniform(chain.stream)
    else:
        u = min(leftover(u, part.none, part.some, chain.stream), _BELOW_ONE)
    draw_implicit(data.implicit, chain, i, SUMS, size, 0)
    return draw_log_by(chain.weights, size, u)


register(StrongData, strong_update)
STRONG = Variant("strong", StrongData, prepare, workspace)
