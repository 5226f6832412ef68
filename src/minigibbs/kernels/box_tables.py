"""Tables to draw points from, by bounds for the points in two boxes.

All points of one box of the tree, a *source*, draw from one table. Its slots are equally likely,
and each holds some points that lie side by side in the tree's order, of which one is drawn; the
more slots hold the same points, the more often they are drawn. Together they hold all points. What
a point is drawn with is no less than its true weight for any point of the source, so that what is
drawn by slots and kept by the true value has the correct distribution.

A table is made in two steps. Boxes are cut in half where the function varies within them, so that
each has a bound that is not much too large. Then their points are gathered into runs, each with as
many slots as its largest bound asks for: as long as rounding costs little.
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

COUNT_BITS = 18  # of a slot's second word: how many points it holds; the others, how many slots do
MOST_COUNT = (1 << COUNT_BITS) - 1
COUNT_MASK, SHARE_BIT = np.uint32(MOST_COUNT), np.uint32(COUNT_BITS)  # for who reads it
SIZES = (2048, 1024, 512, 256, 64)  # of tables
_FINE = 0.35  # of a slot: what a box may be bounded too high
_STEPS = 2  # lengths of a run that are tried
_ROOM = 4  # boxes for every slot, at most
_GUESS, _FULL, _MORE = 1.15, 0.98, 1.005  # of a slot's weight: a guess, and by what it is raised
_DOWN, _UP = 1.0 - 1e-12, 1.0 + 2e-12  # for ties; bounds are rounded up by more
_TRIED = 48  # points for which sizes of tables are tried
_COARSE = 8  # how many fewer slots the tables have by which sources are chosen


BOX = np.dtype(  # while a table is made
    [
        ("bound", np.float64),
        ("slack", np.float64),  # what the bound is too much, of all its points, at most
        ("node", np.int32),
        ("count", np.int32),  # of its points
    ],
    align=True,
)


class Tables(NamedTuple):
    """A table for each source."""

    source: NDArray[np.int32]  # [n] of each place
    weight: NDArray[np.float64]  # [sources] of each of its slots
    slots: NDArray[np.uint32]  # [sources, slots, 2]: first point; count, and slots that hold them

    @property
    def size(self) -> int:
        """Slots of a table, a power of 2."""
        return int(self.slots.shape[1])


def choose_tables(tree: Tree, rule: Any, slots: int) -> tuple[float, tuple[int, int]]:
    """Numbers of sources and of slots of each, by their total: few bounds for some points.

    Before them the mean of their bounds times their scale. Wide kernels want many boxes to draw
    from, narrow ones many small sources.
    """
    n, found = len(tree.order), []
    places = np.random.default_rng(0).permutation(n)[:_TRIED]  # the same for all, to compare them
    scale = tree.points[places, FEATURES].astype(np.float64)
    for each in SIZES:
        room = _room(tree, each)
        sources = min(max(slots // room, 1), n)
        nodes = choose_sources(tree, sources / 2)
        own = np.searchsorted(tree.nodes["begin"][nodes], places, side="right") - 1
        total = room * _make_all(tree, rule, nodes[own], np.empty((len(own), room, 2), np.uint32))
        found.append((float((scale * total).mean()), (sources, each)))
    return min(found)


def make_tables(tree: Tree, rule: Any, sources: int, slots: int) -> Tables:
    """Tables for at most this number of sources and slots per source, or as many as they need."""
    chosen = _cut_sources(tree, rule, sources, max(slots // _COARSE, 2))
    made = empty_lines((len(chosen), _room(tree, slots), 2), np.uint32)
    weight = _make_all(tree, rule, chosen, made)
    size = tree.nodes["end"][chosen] - tree.nodes["begin"][chosen]
    return Tables(np.repeat(np.arange(len(chosen), dtype=np.int32), size), weight, made)


def _room(tree: Tree, slots: int) -> int:
    """A power of 2; not so few that a slot would have to hold more points than it can."""
    return 1 << (max(slots, 8 * len(tree.order) // MOST_COUNT, 2) - 1).bit_length()


def _reach(tree: Tree) -> NDArray[np.float64]:
    """The sum of the scales before each place."""
    return np.concatenate([[0.0], np.cumsum(tree.points[:, FEATURES], dtype=np.float64)])


def _cut_sources(tree: Tree, rule: Any, sources: int, slots: int) -> NDArray[np.int64]:
    """At most this number of sources, in the order of their points, by tables of few slots.

    They are cut in half where that promises to save most: where bounds are large, and fell when
    the source was cut out of a larger one.
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
        with np.errstate(invalid="ignore"):  # of a bound that is not finite
            promise = np.append(promise[kept], scales * own * (before - own) / before)
    return chosen[np.argsort(tree.nodes["begin"][chosen], kind="stable")]


def _totals(tree: Tree, rule: Any, sources: NDArray[np.int64], slots: int) -> NDArray[np.float64]:
    """The sum of all bounds for each source, by tables of this number of slots."""
    totals = np.zeros(len(sources))

    def some(part: slice, *scratch: NDArray[Any]) -> None:
        _add_up(tree, rule, sources[part], slots, totals[part], *scratch)

    _in_pieces(some, len(sources), slots)
    return totals


def _make_all(
    tree: Tree, rule: Any, sources: NDArray[np.int64], slots: NDArray[np.uint32]
) -> NDArray[np.float64]:
    """Fill the table of each source; returns the weights of their slots."""
    weight = np.zeros(len(sources))

    def some(part: slice, *scratch: NDArray[Any]) -> None:
        _make(tree, rule, sources[part], slots[part], weight[part], *scratch)

    _in_pieces(some, len(sources), slots.shape[1])
    return weight


def _in_pieces(work: Callable[..., None], sources: int, slots: int) -> None:
    """Do the work for some sources at a time, with space for the boxes of their slots.

    Raises `StopError` between two pieces if the call must end.
    """
    most = _ROOM * slots

    def some(part: slice) -> None:
        work(part, np.empty(most, BOX), np.empty(most, BOX), np.empty(STACK, np.int64))

    with closing(in_threads(some, sources)) as pieces:
        for _ in pieces:
            current().check()


@kernel
def _look(tree, rule, source, node, box):
    """Write of a box what a table needs: its points, their bound, and what that is too much."""
    own = tree.nodes[node]
    least, most = decay_bounds(rule, tree.low, tree.high, source, node)
    box.node, box.count = node, own.end - own.begin
    box.bound = rounded_up(most * own.scale_high)
    box.slack = (box.bound - least * own.scale_low) * box.count if own.left > 0 else 0.0


@kernel
def _cut(tree, rule, source, enough, boxes, used, made, stack):
    """Cut boxes in half until what their bounds are too much is enough, in the order of points.

    Returns how many were made, or -1 if there is no space; and the sum of their bounds.
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
            _look(tree, rule, source, stack[depth], made[count])
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
    """Cut boxes until their bounds are too much by a share of a slot, or until there is no space.

    Returns them, how many they are, and the sum of their bounds.
    """
    _look(tree, rule, source, 0, boxes[0])
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
    """Gather points into runs, for slots of such a weight; returns how many slots they take.

    Of a few lengths that a run may have, the one is taken at which least is lost by rounding.
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
        until = used + chosen_share if box < count else len(table)  # the last has what is left
        word = np.uint32(chosen | ((until - used) << COUNT_BITS))
        for slot in range(used, min(until, len(table))):
            table[slot, 0], table[slot, 1] = np.uint32(place), word
        used, place = used + chosen_share, place + chosen
    return used


@entry
def _make(tree, rule, sources, slots, weights, boxes, made, stack):
    """For each source cut boxes, and raise the weight of its slots until they suffice.

    What that came to for one source is where the next one begins.
    """
    room, guess = slots.shape[1], _GUESS
    for s in range(len(sources)):
        own, count, total = _cut_finely(tree, rule, sources[s], room, boxes, made, stack)
        if not total < math.inf:
            weights[s] = math.inf
            continue
        weight = guess * total / room
        needed = _gather(own, count, weight, slots[s])
        if needed < _FULL * room:  # begin lower
            weight *= max(needed / room, 1.0 / guess)
            needed = _gather(own, count, weight, slots[s])
        while needed > room:
            weight *= max(needed / room, _MORE)
            needed = _gather(own, count, weight, slots[s])
        weights[s], guess = weight, weight * room / total


@entry
def _add_up(tree, rule, sources, slots, totals, boxes, made, stack):
    """The sum of the bounds for each source, by boxes for this number of slots."""
    for s in range(len(sources)):
        totals[s] = _cut_finely(tree, rule, sources[s], slots, boxes, made, stack)[2]
