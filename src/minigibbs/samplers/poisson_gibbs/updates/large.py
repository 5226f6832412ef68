"""Pairs and unary factors over large domains: only weights of touched values are computed.

`small` is its counterpart for small domains.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.dispatch import register
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import inlined, kernel
from minigibbs.kernels.layout import DRAWS, EVALUATIONS
from minigibbs.kernels.poisson import poisson_by_inversion
from minigibbs.kernels.random import uniform
from minigibbs.kernels.touched import draw_touched, multiply
from minigibbs.samplers.gibbs.sampler import base_weights, touched_workspace
from minigibbs.samplers.poisson_gibbs.split import Split
from minigibbs.samplers.poisson_gibbs.updates.base import (
    HEAVY_STEP,
    Variant,
)
from minigibbs.samplers.poisson_gibbs.updates.small import prepare as prepare_small
from minigibbs.samplers.poisson_gibbs.updates.tail import draw_pair


class LargeData(NamedTuple):
    """The fields of `SmallData`, and the unary factors' alias tables."""

    parts: NDArray[np.void]  # [n] of PAIR_PART
    heavy: NDArray[np.void]  # of HEAVY_PAIR
    tail: NDArray[np.void]  # of ALIAS; entries are other variables plus 1, signed like the weight
    base: NDArray[np.float64]  # [sum of sizes] unary weights that sum to the size, or empty
    alias: NDArray[np.void]  # of ALIAS, over values; as long as `base`


def prepare(graph: FactorGraph, split: Split) -> LargeData:
    """Lay out the split, variable by variable."""
    _, alias = base_weights(graph.packed)
    return LargeData(*prepare_small(graph, split), alias)


@inlined
def _touch_heavy(data, part, chain):
    """Multiply the values that heavy pairs favor; return the length of the touched list.

    A block of pairs is read before any weight is written, so that no load waits for a store.
    """
    x, size, touched, k = chain.x, part.domain, 0, part.heavy_start
    end = k + part.heavy
    while k < end:
        a, b = data.heavy[np.uint64(k)], data.heavy[np.uint64(k + 1)]
        c, d = data.heavy[np.uint64(k + 2)], data.heavy[np.uint64(k + 3)]
        at_a, at_b, at_c, at_d = x[a.target], x[b.target], x[c.target], x[d.target]
        by_a, by_b, by_c, by_d = a.factor, b.factor, c.factor, d.factor
        if at_a < size:
            touched = multiply(chain, at_a, by_a, touched)
        if at_b < size:
            touched = multiply(chain, at_b, by_b, touched)
        if at_c < size:
            touched = multiply(chain, at_c, by_c, touched)
        if at_d < size:
            touched = multiply(chain, at_d, by_d, touched)
        k += HEAVY_STEP
    return touched


@inlined
def _draw_tail(data, part, chain, i, u, touched):
    """Draw pairs of the tail, keep some, and multiply the values they favor."""
    draws = poisson_by_inversion(u, part.rate, part.none)
    for _ in range(draws):
        kept, value, attracts = draw_pair(data.tail, part, chain, i)
        if kept and value < part.domain:
            touched = multiply(chain, value, part.gain if attracts else part.keep, touched)
    chain.tally[DRAWS] += draws
    return touched


@kernel
def large_update(data, model, chain, i):
    """Update by Zhang and De Sa's Algorithm 2 with an exact heavy part."""
    part = data.parts[i]
    touched = _touch_heavy(data, part, chain)
    chain.tally[EVALUATIONS] += part.heavy
    u = uniform(chain.stream)
    if u >= part.none:
        touched = _draw_tail(data, part, chain, i, u, touched)
        u = uniform(chain.stream)
    else:
        u *= part.some  # uniform again
    first, size, repels = part.first, part.domain, part.repels != 0
    return draw_touched(data.base, data.alias, first, size, chain, touched, u, repels, False)


register(LargeData, large_update)
LARGE = Variant("large", LargeData, prepare, touched_workspace)
