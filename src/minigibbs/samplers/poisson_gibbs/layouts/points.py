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
from minigibbs.kernels.random import uniform
from minigibbs.kernels.touched import touch

BATCH = 32  # draws that are made side by side

HOME = np.dtype(  # of one variable: all that a draw begins with lies on a line of memory
    [
        ("rate", np.float64),  # proposals of an update, expected
        ("start", np.int64),  # of its source's slots
        ("slots", np.int32),
        ("place", np.int32),  # of its point
    ],
    align=True,
)


class PointsData(NamedTuple):
    """Points in the tree's order, tables of boxes, and what kept draws do."""

    rule: Any
    features: NDArray[np.float32]  # [n, dims], for functions of a user's own
    points: NDArray[np.float32]  # [n, ...] see `kernels.decay`
    order: NDArray[np.int32]  # [n] the variable at each place
    homes: NDArray[np.void]  # [n] of HOME, by variable
    slots: NDArray[np.void]  # of SLOT
    attracts: bool
    more: float  # (1 + theta) / theta: how much rarer a pair at its minimum is kept
    gain: float  # what a pair that attracts multiplies a weight by, or the logarithm of that
    loss: float  # and one that repels
    first: int  # where its part of the chain's scratch begins


def prepare_points(group: Points, theta: float, logs: bool, first: int) -> PointsData:
    """Lay out the points; theta fixes the rates."""
    gain = math.log1p(1.0 / theta)
    gain, loss = (gain, -gain) if logs else (1.0 + 1.0 / theta, theta / (1.0 + theta))
    return PointsData(
        group.rule,
        group.tree.features,
        group.tree.points,
        group.tree.order,
        _homes(group, theta),
        group.tables.slots,
        group.weight > 0,
        (1.0 + theta) / theta,
        gain,
        loss,
        first,
    )


def _homes(group: Points, theta: float) -> NDArray[np.void]:
    """Where each variable's point is, and what it proposes."""
    order, tables = group.tree.order, group.tables
    homes = np.zeros(len(order), dtype=HOME)
    homes["place"][order] = np.arange(len(order))
    homes["start"][order] = tables.start[tables.source]
    homes["slots"][order] = np.diff(tables.start)[tables.source]
    homes["rate"] = (1.0 + theta) * group.energy_per_weight * group.bounds()
    return homes


@kernel
def _propose(data, chain, start, slots, draws):
    """Draw places by bounds: scratch gets slots and which of their boxes, places, and values.

    No step depends on what another draw gave, nor branches, so that a processor waits for the
    memory of many draws at a time; a point's scale is looked at for no other reason. A uniform
    number gives a slot, and by its leftover digits the box.
    """
    scratch, first, k = chain.scratch, data.first, data.first
    while k < first + draws:
        mark = uniform(chain.stream) * slots
        slot = np.int64(mark)
        own = np.int64(mark - slot < data.slots[np.uint64(start + slot)].accept)
        scratch[np.uint64(k)] = 2 * (start + slot) + own
        k += 1
    k = first
    while k < first + draws:
        code = scratch[np.uint64(k)]
        slot, own = data.slots[np.uint64(code >> 1)], code & 1
        begin = slot.other_begin + own * (slot.begin - slot.other_begin)
        count = slot.other_count + own * (slot.count - slot.other_count)
        scratch[np.uint64(k + BATCH)] = begin + np.int64(uniform(chain.stream) * count)
        k += 1
    k = first
    while k < first + draws:
        there = np.uint64(scratch[np.uint64(k + BATCH)])
        seen = np.int64(data.points[there, FEATURES] >= np.float32(0.0))
        scratch[np.uint64(k + 2 * BATCH)] = seen * np.int64(chain.x[data.order[there]])
        k += 1


@kernel
def _touch_proposed(data, chain, i, here, draws, mode, size, touched):
    """Keep the places that were drawn, or not: by value, scale and whether labels agree."""
    scratch, first, label = chain.scratch, data.first, np.int64(chain.x[i])
    factor, evaluated = data.gain if data.attracts else data.loss, 0
    for k in range(first, first + draws):
        value, mark = scratch[k + 2 * BATCH], uniform(chain.stream)
        if (value == label) != data.attracts:  # at its minimum: kept more rarely
            mark *= data.more
            if mark >= 1.0:
                continue
        evaluated += 1
        slot, there = data.slots[np.uint64(scratch[k] >> 1)], scratch[k + BATCH]
        mark *= np.float64(slot.bound if scratch[k] & 1 else slot.other_bound)
        scale = np.float64(data.points[there, FEATURES])
        above = decay_exceeds(data.rule, data.features, data.points, here, there, scale, mark)
        if above and there != here:
            touched = touch(chain, mode, size, value, factor, touched)
    chain.tally[EVALUATIONS] += evaluated
    return touched


@kernel
def points_draw(data, chain, i, mode, size, touched):
    """A Poisson number of points by bounds; kept by value, scale and whether labels agree."""
    home = data.homes[i]
    rate, here = home.rate, np.int64(home.place)
    left = poisson(rate, math.exp(-rate), chain.stream) if rate > 0.0 else 0
    chain.tally[DRAWS] += left
    while left > 0:
        draws = min(left, BATCH)
        _propose(data, chain, home.start, home.slots, draws)
        touched = _touch_proposed(data, chain, i, here, draws, mode, size, touched)
        left -= draws
    return touched
