"""`Points` groups: pairs of points are drawn by bounds and thinned by their true weights.

A draw takes a slot of a table, then a point of that slot (`kernels.box_tables`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.implicit.points import Points
from minigibbs.kernels.box_tables import COUNT_MASK, SHARE_BIT
from minigibbs.kernels.decay import FEATURES, decay_finish, decay_measure, decay_value
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.lanes import as_double, fetch, word_of
from minigibbs.kernels.layout import DRAWS, EVALUATIONS
from minigibbs.kernels.lines import empty_lines
from minigibbs.kernels.poisson import counted_poisson
from minigibbs.kernels.random import counted_uniform, later_word, likely_below, next_word
from minigibbs.kernels.touched import touch
from minigibbs.samplers.bounds import check_tail
from minigibbs.samplers.costs import COSTS
from minigibbs.samplers.poisson_gibbs.groups.base import (
    INSTEAD,
    Draws,
    ImplicitSplit,
    Kind,
    Place,
    Wish,
    pair_sign,
    register_draws,
    register_energy,
    register_kind,
)
from minigibbs.samplers.poisson_gibbs.theta import DRAW, best_theta

_LEAST_KEPT = 1e-6  # of proposals, if no proposal of the trial was kept

BATCH = 128  # draws that are made in a vector
SCRATCH = 5 * BATCH + 1  # integers, and one more for each group before this one
# What the parts of the scratch hold, a place a draw. Numbers are kept as their bits.
SLOTS = SCALES = 0  # the slot drawn; later its count, times the scale of the point drawn
PLACES = BATCH  # the point drawn
MARKS = 2 * BATCH  # what the true weight must exceed
WITHIN = MEASURES = 3 * BATCH  # a number for the point in the slot; later the value at its distance
KEPT = NEXT = 4 * BATCH  # which draws the true weight keeps; before that the next update's slots
GUESS = 5 * BATCH  # which variable comes next, most likely; each group has its own

HOME = np.dtype(  # of one variable: all that a draw begins with lies on a line of memory
    [
        ("rate", np.float64),  # proposals of an update, expected
        ("none", np.float64),  # the probability of no proposal
        ("weight", np.float64),  # of a slot
        ("start", np.int32),  # of its source's slots
        ("place", np.int32),  # of its point
    ],
    align=True,
)


class PointsData(NamedTuple):
    """Points in the tree's order, tables to draw from, and what kept draws do."""

    rule: Any
    features: NDArray[np.float32]  # [n, dims], for functions of a user's own
    points: NDArray[np.float32]  # [n, ...] see `kernels.decay`
    order: NDArray[np.int32]  # [n] the variable at each place
    homes: NDArray[np.void]  # [n] of HOME, by variable
    words: NDArray[np.uint32]  # [slots, 2] see `kernels.box_tables`
    slots: int  # of a table
    attracts: bool
    more: float  # (1 + theta) / theta: how much rarer a pair at its minimum is kept
    gain: float  # what a pair that attracts multiplies a weight by, or the logarithm of that
    loss: float  # and one that repels
    first: int  # where its part of the chain's scratch begins
    share: float  # of the rates: below 1 for a weaker copy of the group
    before: int  # groups that draw before this one in an update
    later: int  # and after it


class PointsEnergy(NamedTuple):
    """Points in the tree's order."""

    rule: Any
    features: NDArray[np.float32]
    points: NDArray[np.float32]
    order: NDArray[np.int32]
    weight: float
    spins: bool


def split(group: Points, wish: Wish) -> ImplicitSplit:
    """Draw all pairs; theta suits all but a tenth of the tails, and a guarantee holds for all.

    The proposals that are kept are distributed as the true weights. So the true weights, not the
    bounds by which points are proposed, say how strong a tail is.
    """
    bounds = group.energy_per_weight * group.bounds()
    most, theta = group.energy_per_weight * group.largest, wish.theta
    if theta is None and wish.slowdown is not None:
        theta = float(best_theta(np.array([most]), wish.slowdown, DRAW)[0])
    elif theta is None:
        likely, draw = group.energy_per_weight * group.typical, DRAW / max(group.kept, _LEAST_KEPT)
        theta = float(best_theta(np.array([likely]), None, draw, wish.stickiness)[0])
    check_tail("PoissonGibbs", float(bounds.max()), theta, INSTEAD)
    draws = (1 + theta) * float(bounds.mean())
    return ImplicitSplit(theta, most, draws, kept=group.kept)


def prepare(group: Points, how: ImplicitSplit, place: Place) -> PointsData:
    """Prepare draws; theta fixes their rates."""
    theta, gain = how.theta, math.log1p(1.0 / how.theta)
    gain, loss = (gain, -gain) if place.logs else (1.0 + 1.0 / theta, theta / (1.0 + theta))
    return PointsData(
        group.rule,
        group.tree.features,
        group.tree.points,
        group.tree.order,
        _homes(group, theta),
        group.tables.slots.reshape(-1, 2),
        group.tables.size,
        group.weight > 0,
        (1.0 + theta) / theta,
        gain,
        loss,
        place.scratch,
        1.0,
        place.before,
        place.later,
    )


def space(data: PointsData) -> tuple[int, int]:
    """Return the scratch of an update; nothing is carried."""
    return 0, SCRATCH + data.before


def prepare_energy(group: Points) -> PointsEnergy:
    """Prepare log-potentials."""
    tree, spins = group.tree, group.form == "ising"
    return PointsEnergy(group.rule, tree.features, tree.points, tree.order, group.weight, spins)


def energy_cost(group: Points) -> float:
    """Predict the ns of a log-potential: the kernel of every pair."""
    n = float(group.variables)
    return (COSTS["read"] + COSTS["exp"]) * 0.5 * n * n


def _homes(group: Points, theta: float) -> NDArray[np.void]:
    """Where each variable's point is, and what it proposes."""
    order, tables = group.tree.order, group.tables
    homes = empty_lines((len(order),), HOME)
    homes["place"] = group.places
    homes["start"][order] = tables.source * tables.size
    homes["weight"][order] = tables.weight[tables.source]
    homes["rate"] = (1.0 + theta) * group.energy_per_weight * group.bounds()
    homes["none"] = np.exp(-homes["rate"])
    return homes


@kernel
def _propose(data, chain, key, number, home, draws):
    """Draw places by bounds: scratch gets them, and what their true weights must exceed.

    No step depends on what another draw gave, nor branches. What comes from far memory is asked for
    in loops that do little else, so that a processor waits for many lines at a time.
    """
    scratch, first, words = chain.scratch, data.first, data.words
    start, slots, weight = np.int64(home.start), np.float64(data.slots), home.weight
    k = first
    while k < first + draws:
        count = 3 * (number + k - first)
        scratch[np.uint64(k + SLOTS)] = start + np.int64(counted_uniform(key, count) * slots)
        scratch[np.uint64(k + WITHIN)] = word_of(counted_uniform(key, count + 1))
        k += 1
    k = first
    while k < first + draws:
        fetch(words, scratch[np.uint64(k + SLOTS)], 0)
        k += 1
    k = first
    while k < first + draws:
        slot = np.uint64(scratch[np.uint64(k + SLOTS)])
        begin, word = np.int64(words[slot, np.uint64(0)]), words[slot, np.uint64(1)]
        count, share = np.float64(word & COUNT_MASK), np.float64(word >> SHARE_BIT)
        within = np.int64(as_double(np.uint64(scratch[np.uint64(k + WITHIN)])) * count)
        scratch[np.uint64(k + PLACES)] = begin + within
        scratch[np.uint64(k + MARKS)] = word_of(share * weight)
        scratch[np.uint64(k + SCALES)] = word_of(count)
        fetch(data.points, begin + within, 0)
        k += 1


@kernel
def _guess(data, chain, i):
    """Guess which variable a random scan visits next, and ask for its home.

    Returns it, or -1 if the last guess was wrong: then variables are visited in another order. It
    is right if each group draws one word per update, and the update another one.
    """
    place = np.uint64(data.first + GUESS + data.before)
    last, variable = chain.scratch[place], likely_below(chain.stream, len(chain.x), data.later)
    chain.scratch[place] = variable
    fetch(data.homes, variable, 0)
    return variable if last == i else -1


@kernel
def _list_next(data, chain, variable, draws):
    """List the slots that the next update draws, most likely; returns how many, at least `draws`.

    They are asked for one by one while the true weights of this update's draws are computed: a
    processor waits for a few lines of memory at a time. Where nobody knows which variable comes
    next, what is on the list is of no use, and does no harm.
    """
    if variable < 0:
        return 0
    scratch, home, first = chain.scratch, data.homes[variable], data.first + NEXT
    key = later_word(chain.stream, data.later + 2 + data.before)
    start, slots = np.int64(home.start), np.float64(data.slots)
    last, k = first + min(max(np.int64(home.rate * data.share), draws), BATCH), first
    while k < last:
        slot = np.int64(counted_uniform(key, 3 * (k - first)) * slots)
        scratch[np.uint64(k)] = start + slot
        k += 1
    return last - first


@kernel
def _weigh(data, chain, here, key, number, draws, following):
    """List the draws that true weights keep if the pair is at its maximum; returns how many.

    The list is made without branches, since they could not be predicted. `following` counts the
    slots of the next update.
    """
    scratch, first, kept = chain.scratch, data.first, 0
    k = first
    while k < first + draws:
        there = scratch[np.uint64(k + PLACES)]
        scale = np.float64(data.points[np.uint64(there), np.uint64(FEATURES)])
        measure = decay_measure(data.rule, data.features, data.points, here, there)
        scratch[np.uint64(k + MEASURES)] = word_of(measure)
        scale *= as_double(np.uint64(scratch[np.uint64(k + SCALES)]))
        scratch[np.uint64(k + SCALES)] = word_of(scale if there != here else -1.0)
        fetch(data.words, scratch[np.uint64(k + NEXT)], 0)
        k += 1
    while k < first + following:
        fetch(data.words, scratch[np.uint64(k + NEXT)], 0)
        k += 1
    decay_finish(data.rule, scratch, first + MEASURES, draws)
    k = first
    while k < first + draws:
        mark = counted_uniform(key, 3 * (number + k - first) + 2)
        mark *= as_double(np.uint64(scratch[np.uint64(k + MARKS)]))
        weight = as_double(np.uint64(scratch[np.uint64(k + SCALES)]))
        weight *= as_double(np.uint64(scratch[np.uint64(k + MEASURES)]))
        scratch[np.uint64(k + MARKS)] = word_of(mark)
        scratch[np.uint64(k + MEASURES)] = word_of(weight)
        k += 1
    k = first
    while k < first + draws:
        mark = as_double(np.uint64(scratch[np.uint64(k + MARKS)]))
        weight = as_double(np.uint64(scratch[np.uint64(k + MEASURES)]))
        scratch[np.uint64(first + KEPT + kept)] = k
        kept += np.int64(mark < weight)
        k += 1
    return kept


@kernel
def _touch_kept(data, chain, label, kept, mode, size, touched):
    """Multiply the values at the points that are kept; a pair at its minimum is so more rarely."""
    scratch, first = chain.scratch, data.first
    factor = data.gain if data.attracts else data.loss
    left, k = 0, 0
    while k < kept:
        draw = scratch[np.uint64(first + KEPT + k)]
        value = np.int64(chain.x[data.order[np.uint64(scratch[np.uint64(draw + PLACES)])]])
        mark = as_double(np.uint64(scratch[np.uint64(draw + MARKS)]))
        mark *= data.more if (value == label) != data.attracts else 1.0
        weight = as_double(np.uint64(scratch[np.uint64(draw + MEASURES)]))
        scratch[np.uint64(first + KEPT + left)] = value
        left += np.int64(mark < weight)
        k += 1
    k = 0
    while k < left:
        value = scratch[np.uint64(first + KEPT + k)]
        touched = touch(chain, mode, size, value, factor, touched)
        k += 1
    return touched


@kernel
def points_draw(data, chain, i, mode, size, touched):
    """A Poisson number of points by bounds; kept by value, scale and whether labels agree.

    Random numbers are counted, not streamed: an update takes one word as a key.
    """
    home, key = data.homes[i], next_word(chain.stream)
    rate, here = home.rate * data.share, np.int64(home.place)
    none = home.none if data.share == 1.0 else math.exp(-rate)
    following = _guess(data, chain, i)
    left = counted_poisson(rate, none, key) if rate > 0.0 else 0
    chain.tally[DRAWS] += left
    chain.tally[EVALUATIONS] += left
    number = 0
    while left > 0:
        draws = min(left, BATCH)
        _propose(data, chain, key, number, home, draws)
        slots = _list_next(data, chain, following if left == draws else -1, draws)
        kept = _weigh(data, chain, here, key, number, draws, slots)
        touched = _touch_kept(data, chain, np.int64(chain.x[i]), kept, mode, size, touched)
        left -= draws
        number += draws
    return touched


@kernel
def points_copy(data, copies, number):
    """Return the data of one scaled copy."""
    return PointsData(
        data.rule,
        data.features,
        data.points,
        data.order,
        data.homes,
        data.words,
        data.slots,
        data.attracts,
        data.more,
        data.gain,
        data.loss,
        data.first,
        copies.scales[number],
        data.before,
        data.later,
    )


@kernel
def points_energy(data, x, numbers):
    """Return the log-potential: pairs of the same value, or all pairs of spins."""
    total = 0.0
    for i in range(len(x)):
        value, row = x[data.order[i]], 0.0
        for j in range(i):
            sign = pair_sign(data.spins, x[data.order[j]] == value)
            if sign != 0.0:
                scale = sign * np.float64(data.points[j, FEATURES])
                row += scale * decay_value(data.rule, data.features, data.points, i, j)
        total += row * np.float64(data.points[i, FEATURES])
    return data.weight * total


register_kind(Points, Kind(split, prepare, prepare_energy, energy_cost))
register_draws(PointsData, Draws(points_draw, points_copy, space=space))
register_energy(PointsEnergy, points_energy)
