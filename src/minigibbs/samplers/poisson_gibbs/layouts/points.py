"""How pairs of points are drawn: a box by alias table, a point in it, thinned by the true value."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.implicit.points import Points
from minigibbs.kernels.decay import FEATURES, decay_finish, decay_measure
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.lanes import as_double, as_float, word_of
from minigibbs.kernels.layout import DRAWS, EVALUATIONS
from minigibbs.kernels.poisson import poisson
from minigibbs.kernels.random import counted_uniform, next_word
from minigibbs.kernels.touched import touch

BATCH = 64  # draws that are made side by side
SCRATCH = 5 * BATCH  # integers
# What the parts of the scratch hold, a place a draw. Numbers are kept as their bits.
SLOTS = VALUES = 0  # the slot drawn; later the value at the point, and then whether it is kept
PLACES = KEPT = BATCH  # the point drawn; at last the values that are kept
BOUNDS = 2 * BATCH  # the bound it was drawn by
FIRST = MEASURES = 3 * BATCH  # a number for the box; later what the true weight follows from
SECOND = SCALES = 4 * BATCH  # a number for the point in the box; later the point's scale
_OWN, _OTHER = 2, 5  # where a slot's two boxes begin among its words: see `boxes.SLOT`
_HALF = np.uint64(32)

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
    words: NDArray[np.uint32]  # [slots, 8] of SLOT: which box to look at is an address, no branch
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
        group.tables.slots.view(np.uint32).reshape(-1, 8),
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
    """Draw places by bounds: scratch gets them, and the bounds.

    No step depends on what another draw gave, nor branches. What comes from far memory is first
    looked at in loops that do little else, so that a processor waits for many lines at a time. A
    uniform number gives a slot, and by its leftover digits the box.
    """
    scratch, first, words = chain.scratch, data.first, data.words
    k = first
    while k < first + draws:
        count = 3 * (k - first)
        mark = counted_uniform(key, count) * slots
        slot = np.int64(mark)
        scratch[np.uint64(k + SLOTS)] = start + slot
        scratch[np.uint64(k + FIRST)] = word_of(mark - slot)
        scratch[np.uint64(k + SECOND)] = word_of(counted_uniform(key, count + 1))
        k += 1
    k = first
    while k < first + draws:
        slot = np.uint64(scratch[np.uint64(k + SLOTS)])
        scratch[np.uint64(k + PLACES)] = words[slot, np.uint64(_OWN)]
        k += 1
    k = first
    while k < first + draws:
        slot = np.uint64(scratch[np.uint64(k + SLOTS)])
        low, high = np.uint64(words[slot, np.uint64(0)]), np.uint64(words[slot, np.uint64(1)])
        own = as_double(np.uint64(scratch[np.uint64(k + FIRST)])) < as_double(low | (high << _HALF))
        box = np.uint64(_OWN) if own else np.uint64(_OTHER)
        begin, count = np.int64(words[slot, box]), np.int64(words[slot, box + np.uint64(1)])
        within = np.int64(as_double(np.uint64(scratch[np.uint64(k + SECOND)])) * count)
        bound = as_float(words[slot, box + np.uint64(2)])
        scratch[np.uint64(k + PLACES)] = begin + within
        scratch[np.uint64(k + BOUNDS)] = word_of(np.float64(bound))
        k += 1


@kernel
def _look(data, chain, here, draws):
    """Look at the points drawn: their values, scales, and what their weights follow from."""
    scratch, first = chain.scratch, data.first
    k = first
    while k < first + draws:
        there = np.uint64(scratch[np.uint64(k + PLACES)])
        seen = np.int64(data.points[there, FEATURES] >= np.float32(0.0))  # it is, and is near now
        scratch[np.uint64(k + VALUES)] = seen * np.int64(chain.x[data.order[there]])
        k += 1
    k = first
    while k < first + draws:
        there = scratch[np.uint64(k + PLACES)]
        scale = np.float64(data.points[np.uint64(there), FEATURES])
        measure = decay_measure(data.rule, data.features, data.points, here, there)
        scratch[np.uint64(k + MEASURES)] = word_of(measure)
        scratch[np.uint64(k + SCALES)] = word_of(scale if there != here else -1.0)
        k += 1
    decay_finish(data.rule, scratch, first + MEASURES, draws)


@kernel
def _keep(data, chain, key, label, draws):
    """List the values of the draws that true weights and labels keep; returns how many.

    A pair at its minimum is kept more rarely. A list is made without branches, since nobody could
    predict them.
    """
    scratch, first, kept = chain.scratch, data.first, 0
    k = first
    while k < first + draws:
        value = scratch[np.uint64(k + VALUES)]
        low = (value == label) != data.attracts
        mark = counted_uniform(key, 3 * (k - first) + 2) * (data.more if low else 1.0)
        mark *= as_double(np.uint64(scratch[np.uint64(k + BOUNDS)]))
        weight = as_double(np.uint64(scratch[np.uint64(k + SCALES)]))
        weight *= as_double(np.uint64(scratch[np.uint64(k + MEASURES)]))
        scratch[np.uint64(k + BOUNDS)] = np.int64(mark < weight)
        k += 1
    k = first
    while k < first + draws:
        scratch[np.uint64(first + KEPT + kept)] = scratch[np.uint64(k + VALUES)]
        kept += scratch[np.uint64(k + BOUNDS)]
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
    chain.tally[EVALUATIONS] += left
    while left > 0:
        draws, key = min(left, BATCH), next_word(chain.stream)
        _propose(data, chain, key, home.start, home.slots, draws)
        _look(data, chain, here, draws)
        kept = _keep(data, chain, key, np.int64(chain.x[i]), draws)
        for k in range(data.first + KEPT, data.first + KEPT + kept):
            touched = touch(chain, mode, size, chain.scratch[np.uint64(k)], factor, touched)
        left -= draws
    return touched
