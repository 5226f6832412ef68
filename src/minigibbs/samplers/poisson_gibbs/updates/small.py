"""Pairs and unary factors over small domains: the weight of every value is computed.

Without the code for general factors, large domains and implicit factors, it compiles in a fraction
of the time. An update reads the record of its variable and its heavy pairs, but not the model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.dispatch import register
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.categorical import draw_linear
from minigibbs.kernels.jit import inlined, kernel
from minigibbs.kernels.layout import DRAWS, EVALUATIONS
from minigibbs.kernels.poisson import poisson_by_inversion
from minigibbs.kernels.random import uniform
from minigibbs.samplers.gibbs.sampler import base_weights
from minigibbs.samplers.poisson_gibbs.split import Split
from minigibbs.samplers.poisson_gibbs.updates.base import (
    HEAVY_STEP,
    TAIL_FIELDS,
    Variant,
    heavy_pairs,
    one_per_value,
    place_heavy,
    place_parts,
    place_rates,
    signed_tail,
)
from minigibbs.samplers.poisson_gibbs.updates.tail import draw_pair

# The record of a variable.
PAIR_PART = np.dtype(
    [
        ("heavy_start", np.int64),  # its exactly evaluated pairs
        ("tail_start", np.int64),  # its slots of the alias table
        ("first", np.int64),  # index of its first value in `base`
        ("heavy", np.int32),  # number of heavy pairs
        ("tail", np.int32),
        ("domain", np.int32),  # number of values
        ("repels", np.int32),  # whether any pair at it is repulsive
        *TAIL_FIELDS,
    ],
    align=True,
)


class SmallData(NamedTuple):
    """Heavy pairs and alias tables, one part per variable, and the unary factors."""

    parts: NDArray[np.void]  # [n] of PAIR_PART
    heavy: NDArray[np.void]  # of HEAVY_PAIR
    tail: NDArray[np.void]  # of ALIAS; entries are other variables plus 1, signed like the weight
    base: NDArray[np.float64]  # [sum of sizes] unary weights, or empty


def prepare(graph: FactorGraph, split: Split) -> SmallData:
    """Lay out the split, variable by variable."""
    model, rows = graph.packed, graph.packed.rows
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    heavy = split.heavy & (np.arange(len(owner)) < rows["unary_begin"][owner])
    parts = np.zeros(len(rows), dtype=PAIR_PART)
    place_parts(parts, owner, tail=~split.heavy)
    places = place_heavy(parts, owner[heavy])
    place_rates(parts, split)
    parts["domain"], parts["first"] = rows["domain"], model.first
    parts["repels"] = np.bincount(owner, model.weight < 0, minlength=len(rows)) > 0
    base, _ = base_weights(model)
    pairs = heavy_pairs(graph, heavy, places)
    return SmallData(parts, pairs, signed_tail(graph, parts, split), base)


@inlined
def load_base(base, first, size, weights):
    """Set the weight of every value to that of the unary factors."""
    value = 0
    while value < size:
        weights[np.uint64(value)] = base[np.uint64(first + value)] if len(base) else 1.0
        value += 1


@inlined
def load_heavy(heavy, start, count, chain):
    """Multiply the values that heavy pairs favor; weights beyond the domain are scratch.

    A block of pairs is read before any weight is written, so that no load waits for a store.
    Indices are unsigned, which avoids tests for negative indices.
    """
    x, weights = chain.x, chain.weights
    k, end = start, start + count
    while k < end:
        a, b = heavy[np.uint64(k)], heavy[np.uint64(k + 1)]
        c, d = heavy[np.uint64(k + 2)], heavy[np.uint64(k + 3)]
        at_a, at_b, at_c, at_d = x[a.target], x[b.target], x[c.target], x[d.target]
        by_a, by_b, by_c, by_d = a.factor, b.factor, c.factor, d.factor
        weights[at_a] *= by_a
        weights[at_b] *= by_b
        weights[at_c] *= by_c
        weights[at_d] *= by_d
        k += HEAVY_STEP


@inlined
def _draw_tail(data, part, chain, i, u):
    """Draw pairs of the tail, keep some, and multiply the values they favor."""
    draws = poisson_by_inversion(u, part.rate, part.none)
    for _ in range(draws):
        kept, value, attracts = draw_pair(data.tail, part, chain, i)
        if kept:
            chain.weights[value] *= part.gain if attracts else part.keep
    chain.tally[DRAWS] += draws


@kernel
def small_update(data, model, chain, i):
    """Update by Zhang and De Sa's Algorithm 2 with an exact heavy part."""
    part = data.parts[i]
    load_base(data.base, part.first, part.domain, chain.weights)
    load_heavy(data.heavy, part.heavy_start, part.heavy, chain)
    chain.tally[EVALUATIONS] += part.heavy
    u = uniform(chain.stream)
    if u >= part.none:
        _draw_tail(data, part, chain, i, u)
        u = uniform(chain.stream)
    else:
        u *= part.some  # uniform again
    return draw_linear(chain.weights, part.domain, u)


register(SmallData, small_update)
SMALL = Variant("small", SmallData, prepare, one_per_value)
