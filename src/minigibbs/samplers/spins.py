"""Poisson-Gibbs for graphs of spins: two values, pairs and unary factors, everything in odds.

The same algorithm and the same law as `poisson_gibbs`, laid out so that an update of an Ising model
reads two or three cache lines and multiplies a few numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph import FactorGraph
from minigibbs.kernels.alias import alias_rows, draw_alias
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import DRAWS, EVALUATIONS
from minigibbs.kernels.poisson import poisson_beyond
from minigibbs.kernels.random import leftover, uniform
from minigibbs.packed import entry_spans
from minigibbs.samplers.base import register
from minigibbs.samplers.gibbs import base_weights
from minigibbs.samplers.split import Split

SPIN = np.dtype(
    [
        ("heavy_start", np.int64),  # its heavy pairs
        ("tail_start", np.int64),  # its slots of the alias table
        ("heavy", np.int32),  # how many
        ("tail", np.int32),
        ("odds", np.float64),  # of value 1, by the unary factors alone
        ("rate", np.float64),  # (1 + theta) * L_T
        ("none", np.float64),  # exp(-rate)
        ("theta", np.float64),
    ]
)


class SpinData(NamedTuple):
    """Heavy pairs and alias tables, a part per variable."""

    parts: NDArray[np.void]  # [n] of SPIN
    target: NDArray[np.int32]  # the other variable of each heavy pair
    factor: NDArray[np.float64]  # [heavy pairs, 2] odds by the other's value
    tail: NDArray[np.void]  # of ALIAS; place: the other variable plus 1, signed like the weight


def spins_fit(graph: FactorGraph) -> bool:
    """Whether every variable has two values and every factor is a pair or unary."""
    rows = graph.packed.rows
    return bool((rows["size"] == 2).all() and (rows["pair_end"] == rows["unary_begin"]).all())


def spin_data(graph: FactorGraph, split: Split) -> SpinData:
    """Lay out the split, variable by variable."""
    model, rows = graph.packed, graph.packed.rows
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    unary = np.arange(len(owner)) >= rows["unary_begin"][owner]
    heavy, light = split.heavy & ~unary, ~split.heavy
    parts = np.zeros(len(rows), dtype=SPIN)
    for name, mask in (("heavy", heavy), ("tail", light)):
        parts[name] = np.bincount(owner[mask], minlength=len(rows))
        parts[f"{name}_start"] = np.cumsum(parts[name], dtype=np.int64) - parts[name]
    base, _ = base_weights(model)
    parts["odds"] = base[1::2] / base[::2] if len(base) else 1.0
    parts["rate"], parts["theta"] = (1 + split.theta) * split.tail, split.theta
    parts["none"] = np.exp(-parts["rate"])
    start, end = parts["tail_start"], parts["tail_start"] + parts["tail"]
    tail = alias_rows(start, end, np.flatnonzero(light), entry_spans(model))
    sign = np.sign(model.weight).astype(np.int32) * (model.target + np.int32(1))
    for name in ("place", "other"):
        tail[name] = sign[tail[name]]
    weight = model.weight[heavy]
    return SpinData(parts, model.target[heavy], np.exp(np.stack([-weight, weight], axis=1)), tail)


@kernel
def _tail_odds(data, part, chain, i, u):
    """What the tail multiplies the odds of value 1 by; there is at least one draw."""
    odds, gain = 1.0, (1.0 + part.theta) / part.theta
    draws = poisson_beyond(u, part.rate, part.none, chain.stream)
    for _ in range(draws):
        first = part.tail_start
        place = draw_alias(data.tail, first, first + part.tail, chain.stream)
        attracts, value = place > 0, chain.x[abs(place) - 1]
        if (value == chain.x[i]) == attracts or uniform(chain.stream) * gain < 1.0:
            odds *= gain if (value == 1) == attracts else 1.0 / gain
    chain.tally[DRAWS] += draws
    return odds


@kernel
def spin_update(data, model, chain, i):
    """Zhang and De Sa's Algorithm 2 with an exact heavy part, in odds."""
    part = data.parts[i]
    odds, more, last = part.odds, 1.0, part.heavy_start + part.heavy
    for k in range(part.heavy_start, last - 1, 2):  # two products at a time: one waits for itself
        odds *= data.factor[k, chain.x[data.target[k]]]
        more *= data.factor[k + 1, chain.x[data.target[k + 1]]]
    if part.heavy % 2:
        more *= data.factor[last - 1, chain.x[data.target[last - 1]]]
    odds *= more
    chain.tally[EVALUATIONS] += part.heavy
    u = uniform(chain.stream)
    if u >= part.none:
        odds *= _tail_odds(data, part, chain, i, u)
        u = uniform(chain.stream)
    else:
        u = leftover(u, part.none, chain.stream)
    return 1 if u * (1.0 + odds) < odds else 0


register(SpinData, spin_update)
