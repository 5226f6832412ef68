"""Points in a fixed order: how Poisson-Gibbs proposes, with counter-based numbers.

For graphs whose factors are `Points` and unary. What an update proposes does not depend on the
state: how many points of each group, which, and whether their true weight keeps them. Only the last
step does: a pair that is not at its maximum is kept more rarely. So devices propose for many
updates at a time, and results depend on no layout. On a dense graph every colour is one variable;
they are visited in the order of the tree of the group that proposes most, so that the points that
follow one another look at the same boxes.

The numbers of an update are words of `philox`, of the counter (chain, variable, sweep, draw).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.implicit.points import RULES, Points
from minigibbs.kernels.decay import GAUSSIAN, LAPLACE
from minigibbs.kernels.jit import entry, literal
from minigibbs.kernels.lanes import as_float
from minigibbs.kernels.philox import quad_bits
from minigibbs.samplers.gibbs.sampler import sum_unary

if TYPE_CHECKING:
    from minigibbs.graph.graph import FactorGraph
    from minigibbs.samplers.base import Sampler
    from minigibbs.samplers.poisson_gibbs.split import Split

MOST_VALUES, MOST_GROUPS, MOST_RATE = 32, 8, 2.0**14
QUAD = 4  # words that devices load at a time
HEAD = 2  # words of a point's row before its features: its scale and its place
_MOST_QUADS = 4
_STEPS = 64  # rates within a power of 2 that have a law of their own

# The draws of an update, as counters: proposal k of group g has number FIRST + (g << SHIFT) + 2 k,
# and the next one continues its words where 32 bits leave something open.
FIRST, SHIFT = np.uint32(1 << 30), np.uint32(21)
CHOICE = np.uint32((1 << 30) + (1 << 29))  # the value
COUNT = np.uint32(CHOICE + np.uint32(1))  # how many are proposed, for each group

# Words of a variable's home in a group.
START, BITS, ROW, LAW, LEAST, LENGTH, SURPLUS = range(7)  # the last takes two: a double
HOME_WORDS = 8
# Words of a slot: which share of it is its own box, that box, and another one.
SLOT_WORDS = 8

_S11, _S32 = np.uint64(11), np.uint64(32)
_UNIT = 2.0**-32


class PointColours(NamedTuple):
    """Groups of points, one after the other; places are those of the scan, clamped ones last."""

    variable: NDArray[np.int32]  # [n] at each place
    free: int  # places that are visited
    quads: int  # of a point's row
    homes: NDArray[np.uint32]  # [group, place, word]
    slots: NDArray[np.uint32]  # [slot * SLOT_WORDS]
    points: NDArray[np.uint32]  # [row * QUAD * quads]: scale, place, features, all but one floats
    laws: NDArray[np.float64]  # cumulative Poisson laws
    codes: NDArray[np.int32]  # [group] of `kernels.decay`
    exponents: NDArray[np.float64]  # [group]
    attracts: NDArray[np.int32]  # [group]
    more: NDArray[np.float64]  # [group] (1 + theta) / theta
    gains: NDArray[np.float64]  # [group] log weight of a kept pair, negative if it repels
    first: NDArray[np.int64]  # [place] of its values in `base`
    sizes: NDArray[np.int32]  # [place]
    base: NDArray[np.float64]  # [sum of sizes] log weights of the unary factors


def points_fit(sampler: Sampler, graph: FactorGraph) -> bool:
    """Whether a graph's factors are points with a kernel of ours, and unary."""
    from minigibbs.samplers.poisson_gibbs.sampler import PoissonGibbs

    if not isinstance(sampler, PoissonGibbs) or not 0 < len(graph.implicits) <= MOST_GROUPS:
        return False
    most = _MOST_QUADS * QUAD - HEAD
    for group in graph.implicits:
        if not isinstance(group, Points) or not isinstance(group.kernel, str):
            return False
        if group.features.shape[1] > most:
            return False
    rows = graph.packed.rows
    if (rows["start"] < rows["unary_begin"]).any() or len(graph.hard):
        return False
    if graph.sizes.max() > MOST_VALUES:
        return False
    return all(rates.max() <= MOST_RATE for rates in _rates(graph, sampler.split(graph)))


def _rates(graph: FactorGraph, split: Split) -> list[NDArray[np.float64]]:
    """By group how many points each variable proposes."""
    return [
        (1.0 + how.theta) * group.energy_per_weight * group.bounds()
        for group, how in zip(_groups(graph), split.implicits, strict=True)
    ]


def _groups(graph: FactorGraph) -> list[Points]:
    return [group for group in graph.implicits if isinstance(group, Points)]


def point_colours(graph: FactorGraph, split: Split) -> PointColours:
    """Lay a graph out."""
    groups, rates = _groups(graph), _rates(graph, split)
    main = groups[int(np.argmax([rate.mean() for rate in rates]))]
    order = main.tree.order
    clamped = graph.evidence[order] >= 0
    variable = np.concatenate([order[~clamped], order[clamped]]).astype(np.int32)
    place = np.empty(len(variable), np.int32)
    place[variable] = np.arange(len(variable), dtype=np.int32)
    quads = max(-(-(HEAD + group.features.shape[1]) // QUAD) for group in groups)
    laws, law = _laws(np.unique(np.concatenate([_rung(rate) for rate in rates])))
    slots: list[NDArray[np.uint32]] = []
    rows, homes = [], []
    for number, (group, rate) in enumerate(zip(groups, rates, strict=True)):
        starts, bits, own = _slots(group, number * len(variable))
        starts += sum(len(one) for one in slots)
        homes.append(_homes(group, rate, variable, law, starts, bits))
        homes[-1][:, ROW] += np.uint32(number * len(variable))
        slots.append(own)
        rows.append(_rows(group, place, quads))
    thetas = np.array([how.theta for how in split.implicits])
    signs = np.array([1 if group.weight > 0 else 0 for group in groups], np.int32)
    base = sum_unary(graph.packed)
    return PointColours(
        variable,
        int((~clamped).sum()),
        quads,
        np.stack(homes),
        np.concatenate(slots).reshape(-1),
        np.concatenate(rows).reshape(-1),
        laws,
        np.array([RULES.index(str(group.kernel)) for group in groups], np.int32),
        np.array([group.exponent for group in groups]),
        signs,
        (1.0 + thetas) / thetas,
        np.log1p(1.0 / thetas) * (2.0 * signs - 1.0),
        graph.packed.first[variable].astype(np.int64),
        graph.sizes[variable].astype(np.int32),
        base if len(base) else np.zeros(int(graph.sizes.sum(dtype=np.int64))),
    )


def _rung(rate: NDArray[np.float64]) -> NDArray[np.int64]:
    """Which power of 2**(1 / _STEPS) a rate is rounded up to; the least for a rate of 0."""
    with np.errstate(divide="ignore"):
        exact = np.ceil(_STEPS * np.log2(rate))
    rungs: NDArray[np.int64] = np.maximum(exact, -_STEPS * 40).astype(np.int64)
    return rungs


def _laws(rungs: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The cumulative law of each rung; and by rung: itself, where it begins, least, length."""
    laws: list[NDArray[np.float64]] = []
    about = np.zeros((len(rungs), 4), np.int64)
    begin = 0
    for k, rung in enumerate(rungs.tolist()):
        mean = 2.0 ** (rung / _STEPS)
        least = max(0, math.floor(mean - 10.0 * math.sqrt(mean) - 20.0))
        counts = np.arange(least, math.ceil(mean + 10.0 * math.sqrt(mean) + 30.0))
        terms = np.array([math.lgamma(count + 1.0) for count in counts.tolist()])
        sums = np.cumsum(np.exp(counts * math.log(mean) - mean - terms))
        laws.append(sums[:-1] / sums[-1])
        about[k] = rung, begin, least, len(counts) - 1
        begin += len(counts) - 1
    return np.concatenate(laws), about


def _homes(
    group: Points,
    rate: NDArray[np.float64],
    variable: NDArray[np.int32],
    law: NDArray[np.int64],
    starts: NDArray[np.int64],
    bits: NDArray[np.int64],
) -> NDArray[np.uint32]:
    """Where each place's point is, what it proposes, and how many."""
    order, source = group.tree.order, group.tables.source
    where = np.empty(len(order), np.int64)
    where[order] = np.arange(len(order))
    own = where[variable]
    rungs = _rung(rate[variable])
    found = law[np.searchsorted(law[:, 0], rungs)]
    homes = np.zeros((len(variable), HOME_WORDS), np.uint32)
    homes[:, START], homes[:, BITS] = starts[source[own]], bits[source[own]]
    homes[:, ROW] = own
    homes[:, LAW], homes[:, LEAST] = found[:, 1], found[:, 2]
    homes[:, LENGTH] = np.where(rate[variable] > 0.0, found[:, 3], 0)
    homes[rate[variable] <= 0.0, LEAST] = 0
    surplus = 2.0 ** (rungs / _STEPS) / np.maximum(rate[variable], 1e-300)
    homes[:, SURPLUS:] = surplus.view(np.uint32).reshape(-1, 2)
    return homes


def _rows(group: Points, place: NDArray[np.int32], quads: int) -> NDArray[np.uint32]:
    """A row for each point: its scale, its place in the scan, and its features."""
    tree = group.tree
    rows = np.zeros((len(place), QUAD * quads), np.float32)
    rows[:, 0] = group.scale[tree.order]
    rows[:, HEAD : HEAD + tree.features.shape[1]] = tree.features
    words = rows.view(np.uint32)
    words[:, 1] = place[tree.order].astype(np.uint32)
    return words


def _slots(
    group: Points, shift: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32]]:
    """By source where its slots begin and the logarithm of their number; and all slots.

    Their number is a power of 2, so that a word's first bits choose one and the others a box.
    Points are counted from `shift` on.
    """
    tables = group.tables
    count = np.diff(tables.start)
    bits = np.maximum(np.ceil(np.log2(count)).astype(np.int64), 1)
    room = np.int64(1) << bits
    starts = np.cumsum(room) - room
    slots = np.zeros((int(room.sum()), SLOT_WORDS), np.uint32)
    most = int(room.max())
    _fill(
        tables.start,
        tables.slots,
        starts,
        room,
        shift,
        slots,
        np.empty(most),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
    )
    return starts, bits, slots


@entry
def _fill(start, boxes, starts, room, shift, slots, share, other, stack):
    """Make the alias tables anew, with as many slots as there is room, the last of weight 0."""
    bounds = slots.view(np.float32)
    for source in range(len(room)):
        count, total, most = start[source + 1] - start[source], 0.0, room[source]
        for k in range(most):
            share[k], other[k] = 0.0, k
            if k < count:
                box = boxes[start[source] + k]
                share[k] = np.float64(box.count) * np.float64(box.bound)
                total += share[k]
        small, large = 0, most
        for k in range(most):
            share[k] *= most / total
            if share[k] < 1.0:
                stack[small] = k
                small += 1
            else:
                large -= 1
                stack[large] = k
        while small > 0 and large < most:
            small -= 1
            poor, rich = stack[small], stack[large]
            other[poor] = rich
            share[rich] -= 1.0 - share[poor]
            if share[rich] < 1.0:
                stack[small] = rich
                large += 1
                small += 1
        for k in range(most):
            to, from_ = starts[source] + k, min(k, count - 1)
            own = boxes[start[source] + from_]
            second = boxes[start[source] + min(other[k], count - 1)]
            cut = 0 if k >= count else min(np.int64(share[k] * 2.0**32), 2**32 - 1)
            slots[to, 0] = cut
            slots[to, 1], slots[to, 2] = own.begin + shift, own.count
            bounds[to, 3] = own.bound
            slots[to, 4], slots[to, 5] = second.begin + shift, second.count
            bounds[to, 6] = second.bound


@literal
def unit_of_words(high, low):
    """A number uniform on [0, 1), of 53 bits."""
    word = (np.uint64(high) << _S32) | np.uint64(low)
    return np.float64(word >> _S11) * 2.0**-53


@literal
def count_proposals(laws, law, least, length, u):
    """A Poisson variate: `least`, and how many of the law's sums are at most `u`."""
    begin, left = np.int64(law), np.int64(length)
    while left > 0:
        half = left // 2
        if laws[np.uint64(begin + half)] <= u:
            begin += half + 1
            left -= half + 1
        else:
            left = half
    return np.int64(least) + begin - np.int64(law)


@literal
def draw_number(group, number):
    """The draw of a proposal; the next one continues its words."""
    return np.uint32(FIRST + np.uint32(np.uint32(group) << SHIFT) + np.uint32(2 * number))


@literal
def _square(points, width, here, there):
    """The squared distance of two rows."""
    square, k = 0.0, HEAD
    while k < width:
        a, b = points[np.uint64(here * width + k)], points[np.uint64(there * width + k)]
        step = np.float64(as_float(a)) - np.float64(as_float(b))
        square += step * step
        k += 1
    return square


@literal
def _value(code, exponent, square):
    if code == GAUSSIAN:
        return math.exp(-0.5 * square)
    if code == LAPLACE:
        return math.exp(-math.sqrt(square))
    return math.exp(-0.5 * exponent * math.log1p(square))


@literal
def settle(
    slots, points, quads, start, bits, here, surplus, code, exponent, more,
    key0, key1, chain, variable, sweep, draw,
):  # fmt: skip
    """One proposal, in 64 bits and double precision.

    Returns the place that it proposes, and what its true weight says: 0 to drop it, 1 to keep it if
    the pair is at its maximum, 2 to keep it in any case.
    """
    a, b, c, _ = quad_bits(key0, key1, np.uint32(chain), np.uint32(variable), sweep, draw)
    d, e, f, _ = quad_bits(
        key0, key1, np.uint32(chain), np.uint32(variable), sweep, np.uint32(draw + np.uint32(1))
    )
    long = (np.uint64(a) << _S32) | np.uint64(d)
    slot = np.uint64(start) + (long >> np.uint64(64 - bits))
    rest = np.uint32((long << np.uint64(bits)) >> _S32)
    at = np.uint64(slot * np.uint64(SLOT_WORDS))
    if rest >= slots[at]:
        at += np.uint64(3)
    begin, count = slots[at + np.uint64(1)], np.uint64(slots[at + np.uint64(2)])
    bound = np.float64(as_float(slots[at + np.uint64(3)]))
    step = (np.uint64(b) * count + ((np.uint64(e) * count) >> _S32)) >> _S32
    there, width = np.int64(begin) + np.int64(step), np.int64(QUAD * quads)
    mark = (np.float64(c) + np.float64(f) * _UNIT) * _UNIT * bound * surplus
    value = _value(code, exponent, _square(points, width, np.int64(here), there))
    value *= np.float64(as_float(points[np.uint64(there * width)]))
    kept = (1 if mark < value else 0) + (1 if mark * more < value else 0)
    if there == np.int64(here):
        kept = 0
    return np.int64(points[np.uint64(there * width + 1)]), kept


@literal
def choose_value(field, size, u):
    """A value by log weights, which are gone afterwards; `u` is uniform on [0, 1)."""
    top, total, value = field[0], 0.0, 0
    for v in range(1, size):
        top = max(top, field[v])
    for v in range(size):
        total += math.exp(field[v] - top)
        field[v] = total
    for v in range(size - 1):
        value += 1 if field[v] <= u * total else 0
    return value
