"""`Points` groups: pairs of points are drawn by bounds and thinned by their true weights.

A draw chooses a table entry, then a point in it (`kernels.box_tables`).
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

_LEAST_KEPT = 1e-6  # least share of proposals: the measurement may have kept none

BATCH = 128  # draws per vectorized batch
SCRATCH = 5 * BATCH + 1  # integers, in addition to one for each earlier group
# Parts of the scratch, one integer per draw. Floating-point numbers are stored as their bits.
SLOTS = SCALES = 0  # the table entry; later its count, times the scale of the point
PLACES = BATCH  # the point
MARKS = 2 * BATCH  # threshold of the true weight
WITHIN = MEASURES = 3 * BATCH  # random number for the point; later the value at its distance
KEPT = NEXT = 4 * BATCH  # draws that the true weight keeps; before that, the next update's entries
GUESS = 5 * BATCH  # the most likely next variable; each group has its own

HOME = np.dtype(  # the record of a variable: all data that a draw begins with, in one cache line
    [
        ("rate", np.float64),  # expected number of proposals per update
        ("none", np.float64),  # the probability of no proposal
        ("weight", np.float64),  # of a table entry
        ("start", np.int32),  # of its source's table entries
        ("place", np.int32),  # of its point
    ],
    align=True,
)


class PointsData(NamedTuple):
    """Points in the tree's order, tables to draw from, and the effect of kept draws."""

    rule: Any
    features: NDArray[np.float32]  # [n, dims], for user-defined functions
    points: NDArray[np.float32]  # [n, ...] see `kernels.decay`
    order: NDArray[np.int32]  # [n] the variable at each place
    homes: NDArray[np.void]  # [n] of HOME, by variable
    words: NDArray[np.uint32]  # [slots, 2] see `kernels.box_tables`
    slots: int  # of a table
    attracts: bool
    more: float  # (1 + theta) / theta: the threshold's factor for a pair at its minimum
    gain: float  # factor by which an attractive pair multiplies a weight, or its logarithm
    loss: float  # the same for a repulsive pair
    first: int  # start of its part of the chain's scratch
    share: float  # of the rates: below 1 for a weaker copy of the group
    before: int  # groups that draw before this one in an update
    later: int  # groups that draw after it


class PointsEnergy(NamedTuple):
    """Points in the tree's order."""

    rule: Any
    features: NDArray[np.float32]
    points: NDArray[np.float32]
    order: NDArray[np.int32]
    weight: float
    spins: bool


def split(group: Points, wish: Wish) -> ImplicitSplit:
    """Minibatch all pairs; theta suits all but a tenth of the tails, or with a guarantee all.

    The kept proposals have the distribution of draws by the true weights. So the strength of a tail
    follows from these weights, and not from the bounds by which points are proposed.
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
    """Prepare the data of draws; theta determines their rates."""
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
    """Return the length of the scratch; there are no running sums."""
    return 0, SCRATCH + data.before


def prepare_energy(group: Points) -> PointsEnergy:
    """Prepare the data of log-potentials."""
    tree, spins = group.tree, group.form == "ising"
    return PointsEnergy(group.rule, tree.features, tree.points, tree.order, group.weight, spins)


def energy_cost(group: Points) -> float:
    """Predict the nanoseconds of a log-potential: one kernel value per pair."""
    n = float(group.variables)
    return (COSTS["read"] + COSTS["exp"]) * 0.5 * n * n


def _homes(group: Points, theta: float) -> NDArray[np.void]:
    """Return each variable's record: its point, its source's table entries, and its rate."""
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
    """Draw points by their bounds; store them and the thresholds of their true weights in scratch.

    No step depends on another draw's result or branches. Data in main memory are prefetched in
    loops that do little else, so that a processor waits for many cache lines at a time.
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
    """Guess the next variable of a random scan, and prefetch its record.

    Returns it, or -1 if the last guess was wrong, as in scans of another order. The guess is right
    if each group draws one word per update, and the update another one.
    """
    place = np.uint64(data.first + GUESS + data.before)
    last, variable = chain.scratch[place], likely_below(chain.stream, len(chain.x), data.later)
    chain.scratch[place] = variable
    fetch(data.homes, variable, 0)
    return variable if last == i else -1


@kernel
def _list_next(data, chain, variable, draws):
    """List the table entries of the most likely next update; return their number, at least `draws`.

    They are prefetched one by one while the true weights of this update's draws are computed,
    because a processor waits for only a few cache lines at a time. If the next variable is unknown,
    the list is useless but harmless.
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
    """List the draws that true weights keep if the pair is at its maximum; return their number.

    The list is built without branches, since they would be unpredictable. `following` is the number
    of the next update's table entries.
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
    """Multiply the values at kept points; a pair at its minimum is kept with lower probability."""
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
    """Draw a Poisson number of points by bounds; keep them by value, scale and equality of labels.

    Random numbers are counter-based: an update takes one word of the stream as its key.
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
    """Compute the log-potential: the sum over pairs with equal values, or all pairs of spins."""
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
