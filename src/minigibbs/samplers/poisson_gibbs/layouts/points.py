"""How pairs of points are drawn: a box by alias table, a point in it, thinned by the true value."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.implicit.points import Points
from minigibbs.kernels.decay import FEATURES, decay_exceeds
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import DRAWS, EVALUATIONS
from minigibbs.kernels.poisson import poisson
from minigibbs.kernels.random import next_word
from minigibbs.kernels.touched import touch

BATCH = 32  # draws that are made side by side
_SHIFT, _UNIT = np.uint64(11), 1.0 / 9007199254740992.0  # 2**-53


class PointsData(NamedTuple):
    """Points in the tree's order, tables of boxes, and what kept draws do."""

    rule: Any
    features: NDArray[np.float32]  # [n, dims], for functions of a user's own
    points: NDArray[np.float32]  # [n, ...] see `kernels.decay`
    order: NDArray[np.int32]  # [n] the variable at each place
    place: NDArray[np.int32]  # [n] the place of each variable
    source: NDArray[np.int32]  # [n] of each place
    start: NDArray[np.int64]  # [sources + 1]
    total: NDArray[np.float64]  # [sources]
    slots: NDArray[np.void]  # of SLOT
    attracts: bool
    rate: float  # (1 + theta) * energy per weight * |weight|; times scale and total
    more: float  # (1 + theta) / theta: how much rarer a pair at its minimum is kept
    gain: float  # what a pair that attracts multiplies a weight by, or the logarithm of that
    loss: float  # and one that repels
    first: int  # where its part of the chain's scratch begins


def prepare_points(group: Points, theta: float, logs: bool, first: int) -> PointsData:
    """Lay out the points; theta fixes the rates."""
    tree, tables = group.tree, group.tables
    place = np.empty(len(tree.order), dtype=np.int32)
    place[tree.order] = np.arange(len(tree.order), dtype=np.int32)
    gain = math.log1p(1.0 / theta)
    gain, loss = (gain, -gain) if logs else (1.0 + 1.0 / theta, theta / (1.0 + theta))
    rate = (1.0 + theta) * group.energy_per_weight * abs(group.weight)
    return PointsData(
        group.rule,
        tree.features,
        tree.points,
        tree.order,
        place,
        *tables,
        group.weight > 0,
        rate,
        (1.0 + theta) / theta,
        gain,
        loss,
        first,
    )


@kernel
def _unit(word):
    """A double uniform on [0, 1) from 64 random bits that were kept as a signed integer."""
    return np.float64(np.uint64(word) >> _SHIFT) * _UNIT


@kernel
def _propose(data, chain, start, slots, draws):
    """Draw places by bounds, up to a batch; scratch has the slots, then the places, then the words.

    Nothing here depends on what was drawn before, so that a processor waits for the memory of many
    draws at a time. A uniform number gives a slot, or a place in it, and by its leftover digits
    whether to take it.
    """
    scratch, first = chain.scratch, data.first
    for k in range(first, first + draws):
        scratch[k] = np.int64(next_word(chain.stream))
        scratch[k + 2 * BATCH] = np.int64(next_word(chain.stream))
    for k in range(first, first + draws):
        mark = _unit(scratch[k]) * slots
        slot = np.int64(mark)
        alias = data.slots[start + slot]
        scratch[k] = start + (slot if mark - slot < alias.accept else alias.other)
    for k in range(first, first + draws):
        slot = data.slots[scratch[k]]
        scratch[k + BATCH] = slot.begin + np.int64(_unit(scratch[k + 2 * BATCH]) * slot.count)


@kernel
def _touch_proposed(data, chain, i, here, draws, mode, size, touched):
    """Keep the places that were drawn, or not: by value, scale and whether labels agree."""
    scratch, first, x = chain.scratch, data.first, chain.x
    factor, evaluated = data.gain if data.attracts else data.loss, 0
    for k in range(first, first + draws):
        slot, there = data.slots[scratch[k]], scratch[k + BATCH]
        mark = _unit(scratch[k + 2 * BATCH]) * slot.count
        mark -= np.float64(np.int64(mark))
        value = x[data.order[there]]
        if (value == x[i]) != data.attracts:  # at its minimum: kept more rarely
            mark *= data.more
            if mark >= 1.0:
                continue
        evaluated += 1
        mark *= np.float64(slot.bound)
        scale = np.float64(data.points[there, FEATURES])
        above = decay_exceeds(data.rule, data.features, data.points, here, there, scale, mark)
        if above and there != here:
            touched = touch(chain, mode, size, value, factor, touched)
    chain.tally[EVALUATIONS] += evaluated
    return touched


@kernel
def points_draw(data, chain, i, mode, size, touched):
    """A Poisson number of points by bounds; kept by value, scale and whether labels agree."""
    here = np.int64(data.place[i])
    source = data.source[here]
    rate = data.rate * np.float64(data.points[here, FEATURES]) * data.total[source]
    start, end = data.start[source], data.start[source + 1]
    left = poisson(rate, math.exp(-rate), chain.stream) if rate > 0.0 else 0
    chain.tally[DRAWS] += left
    while left > 0:
        draws = min(left, BATCH)
        _propose(data, chain, start, end - start, draws)
        touched = _touch_proposed(data, chain, i, here, draws, mode, size, touched)
        left -= draws
    return touched
