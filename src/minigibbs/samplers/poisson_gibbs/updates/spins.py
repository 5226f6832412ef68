"""Graphs of spins: two values, pairs and unary factors, in odds instead of weights.

An update of an Ising model reads two or three cache lines and multiplies a few numbers.
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
from minigibbs.samplers.gibbs.sampler import base_weights
from minigibbs.samplers.poisson_gibbs.split import Split
from minigibbs.samplers.poisson_gibbs.updates.base import (
    HEAVY_STEP,
    TAIL_FIELDS,
    Variant,
    fill_blocks,
    one_per_value,
    place_heavy,
    place_parts,
    place_rates,
    signed_tail,
)
from minigibbs.samplers.poisson_gibbs.updates.tail import draw_pair

# The record of a variable.
SPIN = np.dtype(
    [
        ("heavy_start", np.int64),  # its exactly evaluated pairs
        ("tail_start", np.int64),  # its slots of the alias table
        ("heavy", np.int32),  # number of heavy pairs
        ("tail", np.int32),
        (
            "odds",
            np.float64,
        ),  # of 1 by unary factors, all heavy pairs opposed
        ("more", np.float64),  # the heavy pairs at odd indices; `odds` has those at even ones
        *TAIL_FIELDS,
    ],
    align=True,
)
# A heavy pair multiplies the odds by 1 + gain if the other's value, flipped or not, is 1.
HEAVY_SPIN = np.dtype(
    [("gain", np.float64), ("target", np.uint32), ("flip", np.uint32)], align=True
)
_LARGEST = 300.0


class SpinData(NamedTuple):
    """Heavy pairs and alias tables, one part per variable."""

    parts: NDArray[np.void]  # [n] of SPIN
    heavy: NDArray[np.void]  # of HEAVY_SPIN
    tail: NDArray[np.void]  # of ALIAS; entries are other variables plus 1, signed like the weight


def prepare(graph: FactorGraph, split: Split) -> SpinData:
    """Lay out the split, variable by variable."""
    model, rows = graph.packed, graph.packed.rows
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    unary = np.arange(len(owner)) >= rows["unary_begin"][owner]
    heavy = split.heavy & ~unary
    parts = np.zeros(len(rows), dtype=SPIN)
    place_parts(parts, owner, tail=~split.heavy)
    places = place_heavy(parts, owner[heavy])
    place_rates(parts, split)
    base, _ = base_weights(model)
    weight, odd = model.weight[heavy], places % 2 == 1  # blocks begin at even indices
    against = -np.abs(weight)
    parts["odds"] = base[1::2] / base[::2] if len(base) else 1.0
    parts["odds"] *= np.exp(np.bincount(owner[heavy][~odd], against[~odd], minlength=len(rows)))
    parts["more"] = np.exp(np.bincount(owner[heavy][odd], against[odd], minlength=len(rows)))
    gain, target = np.expm1(2.0 * np.abs(weight)), model.target[heavy]
    pairs = fill_blocks(HEAVY_SPIN, places, gain=gain, flip=weight < 0, target=target)
    return SpinData(parts, pairs, signed_tail(graph, parts, split))


@kernel
def _pair_odds(data, chain, k):
    """Return a heavy pair's factor of the odds, without a branch, which would be unpredictable."""
    pair = data.heavy[np.uint64(k)]  # an unsigned index is not tested for negative values
    return 1.0 + np.uint32(chain.x[pair.target] ^ pair.flip) * pair.gain


@inlined
def _heavy_odds(data, part, chain):
    """Compute the odds of value 1 from the unary factors and the heavy pairs.

    Up to eight pairs are read at a time, for two products, so that neither loads nor products wait
    for the previous ones. Pairs without effect pad the last block.
    """
    odds, more, k = part.odds, part.more, part.heavy_start
    end = k + part.heavy
    while k + HEAVY_STEP < end:
        a, b = _pair_odds(data, chain, k), _pair_odds(data, chain, k + 1)
        c, d = _pair_odds(data, chain, k + 2), _pair_odds(data, chain, k + 3)
        e, f = _pair_odds(data, chain, k + 4), _pair_odds(data, chain, k + 5)
        g, h = _pair_odds(data, chain, k + 6), _pair_odds(data, chain, k + 7)
        odds *= (a * c) * (e * g)
        more *= (b * d) * (f * h)
        k += 2 * HEAVY_STEP
    if k < end:
        odds *= _pair_odds(data, chain, k) * _pair_odds(data, chain, k + 2)
        more *= _pair_odds(data, chain, k + 1) * _pair_odds(data, chain, k + 3)
    return odds * more


@inlined
def _tail_odds(data, part, chain, i, u):
    """Return the tail's factor of the odds of value 1; there is at least one draw."""
    odds, draws = 1.0, poisson_by_inversion(u, part.rate, part.none)
    for _ in range(draws):
        kept, value, attracts = draw_pair(data.tail, part, chain, i)
        if kept:
            odds *= part.gain if (value == 1) == attracts else part.keep
    chain.tally[DRAWS] += draws
    return odds


@kernel
def spin_update(data, model, chain, i):
    """Update by Zhang and De Sa's Algorithm 2 with an exact heavy part, in odds."""
    part = data.parts[i]
    odds = _heavy_odds(data, part, chain)
    chain.tally[EVALUATIONS] += part.heavy
    u = uniform(chain.stream)
    if u >= part.none:
        odds *= _tail_odds(data, part, chain, i, u)
        u = uniform(chain.stream)
    else:
        u *= part.some  # uniform again
    return 1 if u * (1.0 + odds) < odds else 0


register(SpinData, spin_update)
SPINS = Variant("spins", SpinData, prepare, one_per_value)
