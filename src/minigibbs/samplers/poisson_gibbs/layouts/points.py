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
from minigibbs.kernels.random import counted_uniform, next_word
from minigibbs.kernels.touched import touch

BATCH = 64  # draws that are made side by side
SCRATCH = 4 * BATCH  # integers

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
    share: float  # of the rates: below 1 for a weaker copy of the group


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
        1.0,
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
def _propose(data, chain, key, start, slots, draws):
    """Draw places by bounds: scratch gets slots and which of their boxes, places, and values.

    No step depends on what another draw gave, nor branches. What comes from far memory is first
    looked at in loops that do little else, so that a processor waits for many lines at a time. A
    uniform number gives a slot, and by its leftover digits the box.
    """
    scratch, first = chain.scratch, data.first
    k = 0
    while k < draws:
        slot = np.int64(counted_uniform(key, 3 * k) * slots)
        scratch[np.uint64(first + k)] = start + slot
        k += 1
    k = 0
    while k < draws:
        slot = data.slots[np.uint64(scratch[np.uint64(first + k)])]
        scratch[np.uint64(first + k + BATCH)] = slot.begin
        k += 1
    k = 0
    while k < draws:
        mark = counted_uniform(key, 3 * k) * slots
        slot = np.int64(mark)
        own = np.int64(mark - slot < data.slots[np.uint64(start + slot)].accept)
        scratch[np.uint64(first + k)] = 2 * (start + slot) + own
        k += 1
    k = 0
    while k < draws:
        code = scratch[np.uint64(first + k)]
        slot, own = data.slots[np.uint64(code >> 1)], code & 1
        begin = slot.other_begin + own * (slot.begin - slot.other_begin)
        count = slot.other_count + own * (slot.count - slot.other_count)
        there = begin + np.int64(counted_uniform(key, 3 * k + 1) * count)
        scratch[np.uint64(first + k + BATCH)] = there
        k += 1
    k = 0
    while k < draws:
        there = np.uint64(scratch[np.uint64(first + k + BATCH)])
        seen = np.int64(data.points[there, FEATURES] >= np.float32(0.0))
        value = seen * np.int64(chain.x[data.order[there]])
        scratch[np.uint64(first + k + 2 * BATCH)] = value
        k += 1


@kernel
def _weigh_labels(data, chain, key, label, draws):
    """Move the numbers of those draws to the front that may be kept, by whether labels agree.

    A pair at its minimum is kept more rarely. No branches, since nobody could predict them.
    Returns how many there are.
    """
    scratch, left, k = chain.scratch, 0, 0
    numbers, values = data.first + 3 * BATCH, data.first + 2 * BATCH
    while k < draws:
        low = (scratch[np.uint64(values + k)] == label) != data.attracts
        mark = counted_uniform(key, 3 * k + 2) * (data.more if low else 1.0)
        scratch[np.uint64(numbers + left)] = 2 * k + np.int64(low)
        left += np.int64(mark < 1.0)
        k += 1
    return left


@kernel
def _weigh_points(data, chain, key, here, left):
    """Of these move the values of those to the front that the true weight keeps; returns how many.

    Read before they are written: the list never grows beyond where it is read.
    """
    scratch, first, kept, k = chain.scratch, data.first, 0, 0
    while k < left:
        code = scratch[np.uint64(first + k + 3 * BATCH)]
        number, low = code >> 1, code & 1
        box, there = scratch[np.uint64(first + number)], scratch[np.uint64(first + number + BATCH)]
        slot = data.slots[np.uint64(box >> 1)]
        mark = counted_uniform(key, 3 * number + 2) * (data.more if low else 1.0)
        mark *= np.float64(slot.bound if box & 1 else slot.other_bound)
        scale = np.float64(data.points[np.uint64(there), FEATURES])
        above = decay_exceeds(data.rule, data.features, data.points, here, there, scale, mark)
        value = scratch[np.uint64(first + number + 2 * BATCH)]
        scratch[np.uint64(first + kept + 3 * BATCH)] = value
        kept += np.int64(above) & np.int64(there != here)
        k += 1
    return kept


@kernel
def points_draw(data, chain, i, mode, size, touched):
    """A Poisson number of points by bounds; kept by value, scale and whether labels agree.

    Random numbers are counted, not streamed: each batch takes a key of its own.
    """
    home = data.homes[i]
    rate, here = home.rate * data.share, np.int64(home.place)
    left = poisson(rate, math.exp(-rate), chain.stream) if rate > 0.0 else 0
    factor = data.gain if data.attracts else data.loss
    chain.tally[DRAWS] += left
    while left > 0:
        draws, key = min(left, BATCH), next_word(chain.stream)
        _propose(data, chain, key, home.start, home.slots, draws)
        some = _weigh_labels(data, chain, key, np.int64(chain.x[i]), draws)
        kept = _weigh_points(data, chain, key, here, some)
        for k in range(data.first + 3 * BATCH, data.first + 3 * BATCH + kept):
            touched = touch(chain, mode, size, chain.scratch[np.uint64(k)], factor, touched)
        chain.tally[EVALUATIONS] += some
        left -= draws
    return touched
