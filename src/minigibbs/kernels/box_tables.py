"""Tables for drawing points, from bounds for the points in two boxes.

All points of one box of the tree, a *source*, draw from one table. Its entries are equally likely.
Each has a run of consecutive points in the tree's order, of which one is drawn uniformly. A run
with more entries is drawn more often. Together the runs have all points. The proposal weight of a
point is at least its true weight for every point of the source. So a point that is drawn by entries
and kept by its true weight has the correct distribution.

A table is built in two steps. Boxes are halved where the function varies within them, until the
excess of each bound is small. Then their points are collected into runs. Each run has as many
entries as its largest bound requires, and extends while little is lost by rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.boxes import STACK, Tree, choose_sources, in_threads
from minigibbs.kernels.decay import FEATURES, decay_bounds, rounded_up
from minigibbs.kernels.jit import entry, kernel
from minigibbs.kernels.lines import empty_lines
from minigibbs.system.watch import current

COUNT_BITS = 18  # bits of an entry's second word for the number of points
MOST_COUNT = (1 << COUNT_BITS) - 1
COUNT_MASK, SHARE_BIT = np.uint32(MOST_COUNT), np.uint32(COUNT_BITS)  # for readers of the tables
SIZES = (2048, 1024, 512, 256, 64)  # entries of a table
_FINE = 0.35  # largest excess of a box's bound, relative to an entry's weight
_STEPS = 2  # lengths of a run that are compared
_ROOM = 4  # largest number of boxes per entry
_GUESS, _FULL, _MORE = 1.15, 0.98, 1.005  # guess of an entry's weight, limit to lower it, factor
_DOWN, _UP = 1.0 - 1e-12, 1.0 + 2e-12  # for ties; bounds are rounded up by more
_TRIED = 48  # points for which sizes of tables are compared
_COARSE = 8  # ratio of the entries of final tables to those used to choose sources


BOX = np.dtype(  # a box, while a table is built
    [
        ("bound", np.float64),
        ("slack", np.float64),  # largest excess of the bound, summed over its points
        ("node", np.int32),
        ("count", np.int32),  # number of its points
    ],
    align=True,
)


class Tables(NamedTuple):
    """One table per source."""

    source: NDArray[np.int32]  # [n] the source of each point in tree order
    weight: NDArray[np.float64]  # [sources] weight of each entry
    slots: NDArray[np.uint32]  # [sources, entries, 2]: first point; count of points and entries

    @property
    def size(self) -> int:
        """Number of entries per table, a power of 2."""
        return int(self.slots.shape[1])


def choose_tables(tree: Tree, rule: Any, slots: int) -> tuple[float, tuple[int, int]]:
    """Choose numbers of sources and entries by the smallest sum of bounds of a few points.

    Returns the mean of bounds times scale, then both numbers. Wide kernels need many boxes per
    table, narrow ones many small sources.
    """
    n, found = len(tree.order), []
    places = np.random.default_rng(0).permutation(n)[:_TRIED]  # the same for all sizes
    scale = tree.points[places, FEATURES].astype(np.float64)
    for each in SIZES:
        capacity = _capacity(tree, each)
        sources = min(max(slots // capacity, 1), n)
        nodes = choose_sources(tree, sources / 2)
        own = np.searchsorted(tree.nodes["begin"][nodes], places, side="right") - 1
        total = capacity * _make_all(
            tree, rule, nodes[own], np.empty((len(own), capacity, 2), np.uint32)
        )
        found.append((float((scale * total).mean()), (sources, each)))
    return min(found)


def make_tables(tree: Tree, rule: Any, sources: int, slots: int) -> Tables:
    """Build tables for at most this number of sources and entries per source, or those required."""
    chosen = _cut_sources(tree, rule, sources, max(slots // _COARSE, 2))
    made = empty_lines((len(chosen), _capacity(tree, slots), 2), np.uint32)
    weight = _make_all(tree, rule, chosen, made)
    size = tree.nodes["end"][chosen] - tree.nodes["begin"][chosen]
    return Tables(np.repeat(np.arange(len(chosen), dtype=np.int32), size), weight, made)


def _capacity(tree: Tree, slots: int) -> int:
    """Return a power of 2 that is large enough for the largest number of points per entry."""
    return 1 << (max(slots, 8 * len(tree.order) // MOST_COUNT, 2) - 1).bit_length()


def _reach(tree: Tree) -> NDArray[np.float64]:
    """Return the cumulative sum of the scales before each point."""
    return np.concatenate([[0.0], np.cumsum(tree.points[:, FEATURES], dtype=np.float64)])


def _cut_sources(tree: Tree, rule: Any, sources: int, slots: int) -> NDArray[np.int64]:
    """Choose at most `sources` sources, in the order of their points, by tables of few entries.

    Sources are halved where this saves most: where bounds are large, and decreased when the source
    was split from a larger one.
    """
    reach, chosen = _reach(tree), choose_sources(tree, sources / 8)
    total, promise = _totals(tree, rule, chosen, slots), np.full(len(chosen), math.inf)
    while len(chosen) < sources:
        promise[tree.nodes["left"][chosen] == 0] = 0.0
        promising = int(np.count_nonzero(promise > 0.0))
        many = min(sources - len(chosen), max(len(chosen) // 4, 1), promising)
        if many == 0:
            break
        best = np.argsort(-promise, kind="stable")[:many]
        halves = np.repeat(tree.nodes["left"][chosen[best]], 2) + np.tile([0, 1], many)
        own, before = _totals(tree, rule, halves, slots), np.repeat(total[best], 2)
        scales = reach[tree.nodes["end"][halves]] - reach[tree.nodes["begin"][halves]]
        kept = np.delete(np.arange(len(chosen)), best)
        chosen, total = np.append(chosen[kept], halves), np.append(total[kept], own)
        with np.errstate(invalid="ignore"):  # for infinite bounds
            promise = np.append(promise[kept], scales * own * (before - own) / before)
    return chosen[np.argsort(tree.nodes["begin"][chosen], kind="stable")]


def _totals(tree: Tree, rule: Any, sources: NDArray[np.int64], slots: int) -> NDArray[np.float64]:
    """Sum all bounds of each source, by tables of this number of entries."""
    totals = np.zeros(len(sources))

    def some(part: slice, *scratch: NDArray[Any]) -> None:
        _add_up(tree, rule, sources[part], slots, totals[part], *scratch)

    _in_pieces(some, len(sources), slots)
    return totals


def _make_all(
    tree: Tree, rule: Any, sources: NDArray[np.int64], slots: NDArray[np.uint32]
) -> NDArray[np.float64]:
    """Fill the table of each source; return the weights of their entries."""
    weight = np.zeros(len(sources))

    def some(part: slice, *scratch: NDArray[Any]) -> None:
        _make(tree, rule, sources[part], slots[part], weight[part], *scratch)

    _in_pieces(some, len(sources), slots.shape[1])
    return weight


def _in_pieces(work: Callable[..., None], sources: int, slots: int) -> None:
    """Process sources in pieces on threads, with scratch for the boxes of their entries.

    Raises `StopError` between two pieces if the call must end.
    """
    most = _ROOM * slots

    def some(part: slice) -> None:
        work(part, np.empty(most, BOX), np.empty(most, BOX), np.empty(STACK, np.int64))

    with closing(in_threads(some, sources)) as pieces:
        for _ in pieces:
            current().check()


@kernel
def _measure(tree, rule, source, node, box):
    """Compute a box's number of points, their bound, and the excess of the bound."""
    own = tree.nodes[node]
    least, most = decay_bounds(rule, tree.low, tree.high, source, node)
    box.node, box.count = node, own.end - own.begin
    box.bound = rounded_up(most * own.scale_high)
    box.slack = (box.bound - least * own.scale_low) * box.count if own.left > 0 else 0.0


@kernel
def _cut(tree, rule, source, enough, boxes, used, made, stack):
    """Halve boxes until the excess of each bound is at most `enough`, in the order of points.

    Returns the number of boxes, or -1 if there is no space; and the sum of their bounds.
    """
    count, total = 0, 0.0
    for k in range(used):
        depth = 0
        if boxes[k].slack > enough:
            left = tree.nodes[boxes[k].node].left
            stack[0], stack[1], depth = left + 1, left, 2
        else:
            if count == len(made):
                return -1, 0.0
            made[count] = boxes[k]
            total += made[count].count * made[count].bound
            count += 1
        while depth > 0:
            depth -= 1
            if count == len(made):
                return -1, 0.0
            _measure(tree, rule, source, stack[depth], made[count])
            if made[count].slack > enough:
                left = tree.nodes[stack[depth]].left
                stack[depth], stack[depth + 1] = left + 1, left
                depth += 2
            else:
                total += made[count].count * made[count].bound
                count += 1
    return count, total


@kernel
def _cut_finely(tree, rule, source, slots, boxes, made, stack):
    """Halve boxes until their excess is a share of an entry's weight, or until space runs out.

    Returns the boxes, their number, and the sum of their bounds.
    """
    _measure(tree, rule, source, 0, boxes[0])
    used, total, enough = 1, boxes[0].count * boxes[0].bound, boxes[0].slack
    while True:
        wanted = _FINE * total / slots
        if enough <= 1.5 * wanted or not total < math.inf:
            return boxes, used, total
        enough = max(wanted, enough / 4.0)
        found, sum_of_bounds = _cut(tree, rule, source, enough, boxes, used, made, stack)
        if found < 0:
            return boxes, used, total
        boxes, made, used, total = made, boxes, found, sum_of_bounds


@kernel
def _gather(boxes, count, weight, table):
    """Collect points into runs, for entries of this weight; return the number of entries.

    Among a few possible lengths of a run, the one with the least loss by rounding is chosen.
    """
    used, box, inside, place, inverse = 0, 0, 0, 0, 1.0 / weight
    while box < count:
        top, length, share, most, true, k, off = 0.0, 0, 0, 0, 0.0, box, inside
        chosen, chosen_share, chosen_true, next_box, next_inside = 0, 1, 0.0, box, inside
        for _ in range(_STEPS):
            if k == count:
                break
            least = (length + 1) * max(top, boxes[k].bound) * inverse
            needed = np.int64(math.ceil(least * _DOWN))
            if length > 0 and needed > most:
                break
            share = max(share + 1, needed)
            most = _STEPS * share if length == 0 else most
            while k < count:
                bound = boxes[k].bound
                higher = max(top, bound)
                fits = min(share * weight / higher * _UP, np.float64(MOST_COUNT))
                more = min(np.int64(fits) - length, boxes[k].count - off)
                if more <= 0:
                    break
                top, length, true, off = higher, length + more, true + more * bound, off + more
                if off < boxes[k].count:
                    break
                k, off = k + 1, 0
            if share * chosen_true < chosen_share * true:
                chosen, chosen_share, chosen_true = length, share, true
                next_box, next_inside = k, off
        box, inside = next_box, next_inside
        until = used + chosen_share if box < count else len(table)  # the last takes all
        word = np.uint32(chosen | ((until - used) << COUNT_BITS))
        for slot in range(used, min(until, len(table))):
            table[slot, 0], table[slot, 1] = np.uint32(place), word
        used, place = used + chosen_share, place + chosen
    return used


@entry
def _make(tree, rule, sources, slots, weights, boxes, made, stack):
    """Build the boxes and the table of each source; increase the entries' weight until it suffices.

    The weight found for one source is the first guess for the next.
    """
    capacity, guess = slots.shape[1], _GUESS
    for s in range(len(sources)):
        own, count, total = _cut_finely(tree, rule, sources[s], capacity, boxes, made, stack)
        if not total < math.inf:
            weights[s] = math.inf
            continue
        weight = guess * total / capacity
        needed = _gather(own, count, weight, slots[s])
        if needed < _FULL * capacity:  # the guess was too high
            weight *= max(needed / capacity, 1.0 / guess)
            needed = _gather(own, count, weight, slots[s])
        while needed > capacity:
            weight *= max(needed / capacity, _MORE)
            needed = _gather(own, count, weight, slots[s])
        weights[s], guess = weight, weight * capacity / total


@entry
def _add_up(tree, rule, sources, slots, totals, boxes, made, stack):
    """Sum the bounds of each source, by boxes for this number of entries."""
    for s in range(len(sources)):
        totals[s] = _cut_finely(tree, rule, sources[s], slots, boxes, made, stack)[2]
