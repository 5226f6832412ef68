"""Points in a fixed order: proposals of Poisson-Gibbs with counter-based random numbers.

The layout is for graphs whose factors are `Points` and unary. The proposals of an update do not
depend on the state: their number per group, the points, and whether their true weight keeps them.
Only the last step does: a pair that is not at its maximum is kept with a smaller probability. So
devices draw proposals for many updates at a time, and results do not depend on the layout. On a
dense graph every color is one variable. They are visited in the tree order of the group with the
most proposals, so that consecutive points read the same table entries.

Random numbers of an update are words of `philox` at the counter (chain, variable, sweep, draw).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.implicit.points import RULES, Points
from minigibbs.kernels.box_tables import COUNT_MASK, SHARE_BIT
from minigibbs.kernels.decay import GAUSSIAN, LAPLACE
from minigibbs.kernels.jit import literal
from minigibbs.kernels.lanes import as_float
from minigibbs.kernels.lines import joined_lines
from minigibbs.kernels.philox import quad_bits
from minigibbs.samplers.gibbs.sampler import sum_unary

if TYPE_CHECKING:
    from minigibbs.graph.graph import FactorGraph
    from minigibbs.samplers.poisson_gibbs.split import Split

MOST_VALUES, MOST_GROUPS, MOST_RATE = 32, 8, 2.0**14
QUAD = 4  # words per load on a device
HEAD = 2  # words of a point's row before its features: its scale and its place in the scan
MOST_FEATURES = 4 * QUAD - HEAD
_STEPS = 64  # rates per power of 2 that have a distribution of their own

# The draws of an update, as counters: proposal k of group g has number PROPOSAL_DRAW + (g << SHIFT)
# + 2 k. The next number supplies further bits where 32 bits do not decide.
PROPOSAL_DRAW, SHIFT = np.uint32(1 << 30), np.uint32(21)
CHOICE = np.uint32((1 << 30) + (1 << 29))  # the draw of the value
COUNT = np.uint32(CHOICE + np.uint32(1))  # first draw of the numbers of proposals

# Words of a variable's home in a group: its table entries, row and distribution of counts.
START, BITS, ROW, DISTRIBUTION, LEAST, LENGTH, GRAIN = range(7)  # a double, which takes two words
HOME_WORDS = 8

_S11, _S32 = np.uint64(11), np.uint64(32)
_UNIT = 2.0**-32


class PointColors(NamedTuple):
    """Concatenated groups of points; places are those of the scan, clamped variables last."""

    variable: NDArray[np.int32]  # [n] the variable at each place
    free: int  # places that are visited
    quads: int  # quads per row of a point
    homes: NDArray[np.uint32]  # [group, place, word]
    slots: NDArray[np.uint32]  # [2 * slot] see `kernels.box_tables`
    points: NDArray[
        np.uint32
    ]  # [row * QUAD * quads]: scale, place, features, all but the place floats
    distributions: NDArray[np.float64]  # cumulative Poisson distributions
    codes: NDArray[np.int32]  # [group] of `kernels.decay`
    exponents: NDArray[np.float64]  # [group]
    attracts: NDArray[np.int32]  # [group]
    more: NDArray[np.float64]  # [group] (1 + theta) / theta
    gains: NDArray[np.float64]  # [group] log weight of a kept pair, negative if it repels
    first: NDArray[np.int64]  # [place] index of its first value in `base`
    sizes: NDArray[np.int32]  # [place]
    base: NDArray[np.float64]  # [sum of sizes] log weights of the unary factors


def proposal_rates(graph: FactorGraph, split: Split) -> list[NDArray[np.float64]]:
    """Return the expected number of proposals of each variable, by group."""
    return [
        (1.0 + how.theta) * group.energy_per_weight * group.bounds()
        for group, how in zip(_groups(graph), split.implicits, strict=True)
    ]


def _groups(graph: FactorGraph) -> list[Points]:
    return [group for group in graph.implicits if isinstance(group, Points)]


def point_colors(graph: FactorGraph, split: Split) -> PointColors:
    """Lay out a graph."""
    groups, rates = _groups(graph), proposal_rates(graph, split)
    main = groups[int(np.argmax([rate.mean() for rate in rates]))]
    order = main.tree.order
    clamped = graph.evidence[order] >= 0
    variable = np.concatenate([order[~clamped], order[clamped]]).astype(np.int32)
    place = np.empty(len(variable), np.int32)
    place[variable] = np.arange(len(variable), dtype=np.int32)
    quads = max(-(-(HEAD + group.features.shape[1]) // QUAD) for group in groups)
    distributions, distribution = _distributions(
        np.unique(np.concatenate([_rung(rate) for rate in rates]))
    )
    slots: list[NDArray[np.uint32]] = []
    rows, homes = [], []
    for number, (group, rate) in enumerate(zip(groups, rates, strict=True)):
        homes.append(_homes(group, rate, variable, distribution))
        homes[-1][:, START] += np.uint32(sum(own.size // 2 for own in slots))
        homes[-1][:, ROW] += np.uint32(number * len(variable))
        slots.append(group.tables.slots.reshape(-1))
        rows.append(_rows(group, place, quads))
    thetas = np.array([how.theta for how in split.implicits])
    signs = np.array([1 if group.weight > 0 else 0 for group in groups], np.int32)
    base = sum_unary(graph.packed)
    return PointColors(
        variable,
        int((~clamped).sum()),
        quads,
        np.stack(homes),
        joined_lines(slots) if len(slots) > 1 else slots[0],
        np.concatenate(rows).reshape(-1),
        distributions,
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
    """Round rates up to powers of 2**(1 / _STEPS) and return the exponents; the least for 0."""
    with np.errstate(divide="ignore"):
        exact = np.ceil(_STEPS * np.log2(rate))
    rungs: NDArray[np.int64] = np.maximum(exact, -_STEPS * 40).astype(np.int64)
    return rungs


def _distributions(rungs: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Compute the cumulative distribution of each rung, and rows of rung, start, least, length."""
    distributions: list[NDArray[np.float64]] = []
    about = np.zeros((len(rungs), 4), np.int64)
    begin = 0
    for k, rung in enumerate(rungs.tolist()):
        mean = 2.0 ** (rung / _STEPS)
        least = max(0, math.floor(mean - 10.0 * math.sqrt(mean) - 20.0))
        counts = np.arange(least, math.ceil(mean + 10.0 * math.sqrt(mean) + 30.0))
        terms = np.array([math.lgamma(count + 1.0) for count in counts.tolist()])
        sums = np.cumsum(np.exp(counts * math.log(mean) - mean - terms))
        distributions.append(sums[:-1] / sums[-1])
        about[k] = rung, begin, least, len(counts) - 1
        begin += len(counts) - 1
    return np.concatenate(distributions), about


def _homes(
    group: Points,
    rate: NDArray[np.float64],
    variable: NDArray[np.int32],
    distribution: NDArray[np.int64],
) -> NDArray[np.uint32]:
    """Return each place's table entries, row, distribution of counts, and grain, as words."""
    tables, own = group.tables, group.places[variable]
    rungs = _rung(rate[variable])
    found = distribution[np.searchsorted(distribution[:, 0], rungs)]
    homes = np.zeros((len(variable), HOME_WORDS), np.uint32)
    homes[:, START] = tables.source[own] * np.uint32(tables.size)
    homes[:, BITS] = tables.size.bit_length() - 1
    homes[:, ROW] = own
    homes[:, DISTRIBUTION], homes[:, LEAST] = found[:, 1], found[:, 2]
    homes[:, LENGTH] = np.where(rate[variable] > 0.0, found[:, 3], 0)
    homes[rate[variable] <= 0.0, LEAST] = 0
    surplus = 2.0 ** (rungs / _STEPS) / np.maximum(rate[variable], 1e-300)
    grain = tables.weight[tables.source[own]] * surplus
    homes[:, GRAIN:] = grain.view(np.uint32).reshape(-1, 2)
    return homes


def _rows(group: Points, place: NDArray[np.int32], quads: int) -> NDArray[np.uint32]:
    """Return a row of words per point: its scale, its place in the scan, and its features."""
    tree = group.tree
    rows = np.zeros((len(place), QUAD * quads), np.float32)
    rows[:, 0] = group.scale[tree.order]
    rows[:, HEAD : HEAD + tree.features.shape[1]] = tree.features
    words = rows.view(np.uint32)
    words[:, 1] = place[tree.order].astype(np.uint32)
    return words


@literal
def unit_of_words(high, low):
    """Return a number uniform on [0, 1), with 53 bits."""
    word = (np.uint64(high) << _S32) | np.uint64(low)
    return np.float64(word >> _S11) * 2.0**-53


@literal
def count_proposals(distributions, distribution, least, length, u):
    """Invert a Poisson distribution at `u` by bisection of its cumulative sums from `least`."""
    begin, left = np.int64(distribution), np.int64(length)
    while left > 0:
        half = left // 2
        if distributions[np.uint64(begin + half)] <= u:
            begin += half + 1
            left -= half + 1
        else:
            left = half
    return np.int64(least) + begin - np.int64(distribution)


@literal
def draw_number(group, number):
    """Return the draw number of a proposal; the next number continues its words."""
    return np.uint32(PROPOSAL_DRAW + np.uint32(np.uint32(group) << SHIFT) + np.uint32(2 * number))


@literal
def _square(points, width, here, there):
    """Compute the squared distance of two points' features."""
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
    slots, points, quads, first, start, bits, here, grain, code, exponent, more,
    key0, key1, chain, variable, sweep, draw,
):  # fmt: skip
    """Draw one proposal, with 64 bits in double precision; a group's rows begin at `first`.

    Returns the place of the proposed point, and the result of the comparison with its true weight:
    0 to drop it, 1 to keep it if the pair is at its maximum, 2 to keep it in any case.
    """
    a, b, c, _ = quad_bits(key0, key1, np.uint32(chain), np.uint32(variable), sweep, draw)
    _, e, f, _ = quad_bits(
        key0, key1, np.uint32(chain), np.uint32(variable), sweep, np.uint32(draw + np.uint32(1))
    )
    at = np.uint64(2) * (np.uint64(start) + (np.uint64(a) >> np.uint64(32 - bits)))
    begin, word = slots[at], slots[at + np.uint64(1)]
    count, share = np.uint64(word & COUNT_MASK), np.float64(word >> SHARE_BIT)
    step = (np.uint64(b) * count + ((np.uint64(e) * count) >> _S32)) >> _S32
    there, width = np.int64(first) + np.int64(begin) + np.int64(step), np.int64(QUAD * quads)
    mark = (np.float64(c) + np.float64(f) * _UNIT) * _UNIT * share * grain
    value = _value(code, exponent, _square(points, width, np.int64(here), there))
    value *= np.float64(as_float(points[np.uint64(there * width)])) * np.float64(count)
    kept = (1 if mark < value else 0) + (1 if mark * more < value else 0)
    if there == np.int64(here):
        kept = 0
    return np.int64(points[np.uint64(there * width + 1)]), kept


@literal
def choose_value(field, size, u):
    """Choose a value by log weights, which are overwritten; `u` is uniform on [0, 1)."""
    top, total, value = field[0], 0.0, 0
    for v in range(1, size):
        top = max(top, field[v])
    for v in range(size):
        total += math.exp(field[v] - top)
        field[v] = total
    for v in range(size - 1):
        value += 1 if field[v] <= u * total else 0
    return value
