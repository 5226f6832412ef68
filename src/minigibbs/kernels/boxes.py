"""Points in boxes: a k-d tree, tables of boxes to draw from, and sums over pairs of points.

A box is a node of the tree; its points lie side by side in the tree's order. Points are drawn for
all points of one box, a *source*, by one alias table. Its slots are boxes that cover all points:
fine where the function varies within them, coarse where it is small or flat. A slot's bound holds
for every point of the source and every point of the slot's box, so that what is drawn by bounds and
kept by the true value has the true law.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.decay import (
    FEATURES,
    decay_block,
    decay_bounds,
    decay_value,
    point_rows,
    rounded_up,
)
from minigibbs.kernels.jit import entry, kernel
from minigibbs.kernels.lines import empty_lines, joined_lines

BLOCK = 64  # points that sums go over at a time
GROUP = 8  # points whose sums are taken together
MOST_LEAVES = 2**17  # boxes that are not cut any more
THREADS = 4
PRECISE = 1e-3  # share of a source's bounds that may be too much before no more boxes are cut
_TRIED = 48  # points for which sizes of tables are tried
_COARSE = 8  # how many fewer slots the tables have by which sources are chosen
_HELD = 1 << 20  # slots that are held at a time then
_STACK = 128  # deeper than any tree, whose boxes are halved

NODE = np.dtype(
    [
        ("begin", np.int32),  # its points, [begin, end)
        ("end", np.int32),
        ("left", np.int32),  # its halves are left and left + 1; 0 for a box that is not cut
        ("scale_low", np.float32),  # the range of its points' scales
        ("scale_high", np.float32),
    ],
    align=True,
)
SLOT = np.dtype(
    [
        ("accept", np.float64),  # the slot's own box with this probability, else the other one
        ("begin", np.int32),  # the box's points
        ("count", np.int32),
        ("bound", np.float32),  # of value times scale
        ("other_begin", np.int32),  # the same of the other: half a cache line has it all
        ("other_count", np.int32),
        ("other_bound", np.float32),
    ],
    align=True,
)


class Tree(NamedTuple):
    """Points in the order of the tree, and its boxes."""

    features: NDArray[np.float32]  # [n, dims]
    points: NDArray[np.float32]  # [n, ...] the same with scales, see `kernels.decay`
    order: NDArray[np.int32]  # [n] the variable at each place
    nodes: NDArray[np.void]  # of NODE, the root first
    low: NDArray[np.float32]  # [nodes, dims] the boxes' corners
    high: NDArray[np.float32]


class Tables(NamedTuple):
    """For each source an alias table of boxes."""

    source: NDArray[np.int32]  # [n] of each place
    start: NDArray[np.int64]  # [sources + 1] of its slots
    total: NDArray[np.float64]  # [sources] the sum of count times bound
    slots: NDArray[np.void]  # of SLOT


def grow_tree(features: NDArray[np.float32]) -> Tree:
    """The tree of some points, with scales of 1; boxes are cut in half across their widest side."""
    n, dims = features.shape
    leaf = -(-n // MOST_LEAVES)
    most = 4 * (n // leaf + 1)
    nodes, order = np.zeros(most, dtype=NODE), np.arange(n, dtype=np.int32)
    low, high = np.empty((most, dims), np.float32), np.empty((most, dims), np.float32)
    count = _grow(features, order, leaf, nodes, low, high)
    nodes["scale_low"] = nodes["scale_high"] = 1.0
    own = features[order]
    points = point_rows(own, np.ones(n, np.float32))
    boxes = (array[:count].copy() for array in (nodes, low, high))
    return Tree(own, points, order, *boxes)


def scaled(tree: Tree, scale: NDArray[np.float32]) -> Tree:
    """The tree with a scale for each variable."""
    points, nodes = joined_lines([tree.points]), tree.nodes.copy()
    points[:, FEATURES] = scale[tree.order]
    _scale_nodes(points, nodes)
    return tree._replace(points=points, nodes=nodes)


def choose_tables(tree: Tree, rule: Any, slots: int) -> tuple[float, tuple[int, int]]:
    """How many sources, and slots of each, of so many slots in all: few bounds for some points.

    Before them the mean of their bounds times their scale. Wide kernels want many boxes to draw
    from, narrow ones many small sources.
    """
    n, found = len(tree.order), []
    places = np.random.default_rng(0).permutation(n)[:_TRIED]  # the same for all, to compare them
    scale = tree.points[places, FEATURES].astype(np.float64)
    for each in (4096, 2048, 1024, 256, 64):
        sources = min(max(slots // each, 1), n)
        nodes = _choose_sources(tree, sources / 2)
        own = np.searchsorted(tree.nodes["begin"][nodes], places, side="right") - 1
        total = np.array(_totals(tree, rule, nodes[own], each))
        found.append((float((scale * total).mean()), (sources, each)))
    return min(found)


def _reach(tree: Tree) -> NDArray[np.float64]:
    """The sum of the scales before each place."""
    return np.concatenate([[0.0], np.cumsum(tree.points[:, FEATURES], dtype=np.float64)])


def make_tables(tree: Tree, rule: Any, sources: int, slots: int) -> Tables:
    """Tables of at most so many slots for at most so many sources."""
    chosen = _cut_sources(tree, rule, sources, max(slots // _COARSE, 2))
    room = empty_lines((len(chosen), slots), SLOT)
    count, total = _cut_all(tree, rule, chosen, slots, room)
    start = np.concatenate([[0], np.cumsum(count)])
    size = tree.nodes["end"][chosen] - tree.nodes["begin"][chosen]
    flat = room.reshape(-1)
    for k in np.flatnonzero(start[:-1] < slots * np.arange(len(chosen))).tolist():
        flat[start[k] : start[k + 1]] = room[k, : count[k]]  # forwards, over what was moved
    made = flat[: start[-1]]
    if 4 * len(made) < 3 * len(flat):  # so that what is left over is given back
        made = joined_lines([made])
    return Tables(np.repeat(np.arange(len(chosen), dtype=np.int32), size), start, total, made)


def _cut_sources(tree: Tree, rule: Any, sources: int, slots: int) -> NDArray[np.int64]:
    """At most so many sources, in the order of their points, by tables of few slots.

    They are cut in half where that promises to save most: where bounds are large, and fell when
    the source was cut out of a larger one.
    """
    reach, chosen = _reach(tree), _choose_sources(tree, sources / 8)
    total = dict(zip(chosen.tolist(), _totals(tree, rule, chosen, slots), strict=True))
    promise = dict.fromkeys(total, math.inf)
    while len(total) < sources:
        splittable = [node for node in total if tree.nodes[node]["left"] and promise[node] > 0.0]
        best = sorted(splittable, key=promise.__getitem__, reverse=True)
        best = best[: min(sources - len(total), max(len(total) // 4, 1))]
        if not best:
            break
        halves = np.repeat(tree.nodes["left"][best], 2) + np.tile([0, 1], len(best))
        found = _totals(tree, rule, halves, slots)
        for k, (node, own) in enumerate(zip(halves.tolist(), found, strict=True)):
            total[node], before = own, total[best[k // 2]]
            scales = reach[tree.nodes[node]["end"]] - reach[tree.nodes[node]["begin"]]
            promise[node] = scales * own * (before - own) / before
        for node in best:
            del total[node]
    return np.array(sorted(total, key=lambda node: int(tree.nodes[node]["begin"])))


def _totals(tree: Tree, rule: Any, sources: NDArray[np.int64], slots: int) -> list[float]:
    """The sum of the bounds of each source's table."""
    step, found = max(_HELD // slots, 1), []
    for first in range(0, len(sources), step):
        some = sources[first : first + step]
        room = np.empty((len(some), slots), SLOT)
        found += _cut_all(tree, rule, some, slots, room)[1].tolist()
    return found


def _cut_all(
    tree: Tree, rule: Any, sources: NDArray[np.int64], slots: int, room: NDArray[np.void]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Fill a row with the table of each source: how many slots it has, the sum of its bounds."""
    count, total = np.zeros(len(sources), np.int64), np.zeros(len(sources))

    def some(part: slice) -> None:
        heap, node = np.empty(slots, np.int64), np.empty(slots, np.int64)
        own, found = (sources[part], room[part]), (count[part], total[part])
        _cut(tree, rule, *own, *found, heap, node, np.empty(slots))

    for _ in _in_threads(some, len(sources)):
        pass
    return count, total


def pair_sums(
    tree: Tree, rule: Any, least: float, labels: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    """For each variable the sum of value times scale over all others, or those of its label.

    Boxes whose values are below `least` are left out.
    """
    n = len(tree.order)
    own = np.zeros(0, np.int64) if labels is None else labels[tree.order].astype(np.int64)
    groups = _choose_sources(tree, n / GROUP)
    columns = np.ascontiguousarray(tree.features.T, dtype=np.float64)
    scale = tree.points[:, FEATURES].astype(np.float64)

    def some(part: slice) -> NDArray[np.float64]:
        sums, values, stack = np.zeros(n), np.empty(BLOCK), np.empty(_STACK, np.int64)
        _sum(tree, rule, least, own, groups[part], columns, scale, values, stack, sums)
        return sums

    result = np.empty(n)
    result[tree.order] = sum(_in_threads(some, len(groups)), np.zeros(n))
    return result


def pair_values(
    tree: Tree, rule: Any, i: NDArray[np.int64], j: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Value times both scales for pairs of places."""
    values = np.empty(len(i))
    _evaluate(tree, rule, i, j, values)
    return values


def own_values(tree: Tree, rule: Any) -> NDArray[np.float64]:
    """For each variable the value of its point and itself."""
    place, result = np.arange(len(tree.order)), np.empty(len(tree.order))
    result[tree.order] = pair_values(tree, rule, place, place)
    return result


def _in_threads(work: Callable[[slice], Any], count: int) -> Iterator[Any]:
    """Do pieces of some work side by side; compiled code lets other threads run."""
    step = max(1, -(-count // (8 * THREADS)))
    pieces = [slice(first, min(first + step, count)) for first in range(0, count, step)]
    if pieces:
        work(slice(0, 0))  # compiled once, by one thread
    with ThreadPoolExecutor(THREADS) as pool:
        yield from pool.map(work, pieces)


def _choose_sources(tree: Tree, wanted: float) -> NDArray[np.int64]:
    """The largest boxes of no more than n / wanted points, in the order of their points."""
    nodes, most = tree.nodes, len(tree.order) / wanted
    size = nodes["end"] - nodes["begin"]
    fits = (size <= most) | (nodes["left"] == 0)
    inside = np.zeros(len(nodes), dtype=bool)  # of a box that fits already
    for half in (0, 1):
        parents = np.flatnonzero(nodes["left"] > 0)
        inside[nodes["left"][parents] + half] = fits[parents]
    chosen = np.flatnonzero(fits & ~inside)
    return chosen[np.argsort(nodes["begin"][chosen], kind="stable")]


@kernel
def _select(features, side, order, begin, end, middle):
    """Put the points of [begin, end) in such order that none before `middle` has more than it."""
    while end - begin > 1:
        pivot = features[order[(begin + end) // 2], side]
        left, right = begin, end - 1
        while left <= right:
            while features[order[left], side] < pivot:
                left += 1
            while features[order[right], side] > pivot:
                right -= 1
            if left <= right:
                order[left], order[right] = order[right], order[left]
                left += 1
                right -= 1
        if middle <= right:
            end = right + 1
        elif middle >= left:
            begin = left
        else:
            return


@entry
def _grow(features, order, leaf, nodes, low, high):
    nodes[0].begin, nodes[0].end = 0, len(order)
    node, count = 0, 1
    while node < count:
        begin, end = nodes[node].begin, nodes[node].end
        widest, side = np.float32(-1.0), 0
        for k in range(features.shape[1]):
            least = most = features[order[begin], k]
            for place in range(begin + 1, end):
                value = features[order[place], k]
                least, most = min(least, value), max(most, value)
            low[node, k], high[node, k] = least, most
            if most - least > widest:
                widest, side = most - least, k
        if end - begin > leaf and widest > 0.0:
            middle = (begin + end) // 2
            _select(features, side, order, begin, end, middle)
            nodes[node].left = count
            nodes[count].begin, nodes[count].end = begin, middle
            nodes[count + 1].begin, nodes[count + 1].end = middle, end
            count += 2
        node += 1
    return count


@entry
def _scale_nodes(points, nodes):
    for k in range(len(nodes) - 1, -1, -1):  # halves come after what they are halves of
        node = nodes[k]
        low, high = points[node.begin, FEATURES], points[node.begin, FEATURES]
        if node.left > 0:
            low = min(nodes[node.left].scale_low, nodes[node.left + 1].scale_low)
            high = max(nodes[node.left].scale_high, nodes[node.left + 1].scale_high)
        else:
            for place in range(node.begin, node.end):
                low, high = min(low, points[place, FEATURES]), max(high, points[place, FEATURES])
        node.scale_low, node.scale_high = low, high


@kernel
def _slack(tree, rule, a, b):
    """What the bound of box `b` is too much for source `a` at most, and the bound itself."""
    node = tree.nodes[b]
    least, most = decay_bounds(rule, tree.low, tree.high, a, b)
    bound = rounded_up(most * node.scale_high)
    slack = (np.float64(bound) - least * node.scale_low) * (node.end - node.begin)
    return (slack if node.left > 0 else 0.0), bound


@kernel
def _sift_up(heap, slack, at):
    while at > 0 and slack[heap[(at - 1) // 2]] < slack[heap[at]]:
        above = (at - 1) // 2
        heap[at], heap[above] = heap[above], heap[at]
        at = above


@kernel
def _sift_down(heap, slack, count):
    at = 0
    while 2 * at + 1 < count:
        below = 2 * at + 1
        if below + 1 < count and slack[heap[below + 1]] > slack[heap[below]]:
            below += 1
        if slack[heap[below]] <= slack[heap[at]]:
            return
        heap[at], heap[below] = heap[below], heap[at]
        at = below


@kernel
def _put(tree, slots, k, node, bound):
    slots[k].begin = tree.nodes[node].begin
    slots[k].count = tree.nodes[node].end - tree.nodes[node].begin
    slots[k].bound = bound


@kernel
def _alias(slots, count, scratch, other):
    """Turn slots into an alias table by count times bound; returns their sum."""
    total = 0.0
    for k in range(count):
        slots[k].accept = np.float64(slots[k].count) * np.float64(slots[k].bound)
        total += slots[k].accept
    small, large = 0, count
    for k in range(count):
        slots[k].accept *= count / total
        other[k] = k
        if slots[k].accept < 1.0:
            scratch[small] = k
            small += 1
        else:
            large -= 1
            scratch[large] = k
    while small > 0 and large < count:
        small -= 1
        poor, rich = scratch[small], scratch[large]
        other[poor] = rich
        slots[rich].accept -= 1.0 - slots[poor].accept
        if slots[rich].accept < 1.0:
            scratch[small] = rich
            large += 1
            small += 1
    for k in range(count):
        slots[k].other_begin = slots[other[k]].begin
        slots[k].other_count = slots[other[k]].count
        slots[k].other_bound = slots[other[k]].bound
    return total


@entry
def _cut(tree, rule, sources, table, count, total, heap, node, slack):
    """For each source cut the box whose bound is too much by most, time and again."""
    for s in range(len(sources)):
        slots, used = table[s], 1
        heap[0], node[0] = 0, 0
        slack[0], bound = _slack(tree, rule, sources[s], 0)
        _put(tree, slots, 0, 0, bound)
        over = slack[0]
        mass = np.float64(bound) * len(tree.order)
        while used < len(slots) and slack[heap[0]] > 0.0 and over > PRECISE * mass:
            top = heap[0]
            left = tree.nodes[node[top]].left
            over -= slack[top]
            mass -= np.float64(slots[top].bound) * slots[top].count
            for half in range(2):
                k = used if half else top
                node[k] = left + half
                slack[k], bound = _slack(tree, rule, sources[s], left + half)
                _put(tree, slots, k, left + half, bound)
                over += slack[k]
                mass += np.float64(bound) * slots[k].count
            _sift_down(heap, slack, used)
            heap[used] = used
            used += 1
            _sift_up(heap, slack, used - 1)
        count[s] = used
        total[s] = _alias(slots, used, node, heap)


@entry
def _evaluate(tree, rule, i, j, values):
    points = tree.points
    for k in range(len(values)):
        scale = np.float64(points[i[k], FEATURES]) * np.float64(points[j[k], FEATURES])
        values[k] = decay_value(rule, tree.features, points, i[k], j[k]) * scale


@kernel
def _sum_block(tree, rule, labels, columns, scale, i, first, last, values, sums):
    """Add the pairs of place `i` and each of [first, last), which come after it, on both sides."""
    values, others, there = values[: last - first], sums[first:last], scale[first:last]
    total = 0.0
    decay_block(rule, tree.features, columns, i, first, last, values)
    if len(labels) > 0:
        own, label = labels[i], labels[first:last]
        for j in range(len(values)):
            values[j] = values[j] if label[j] == own else 0.0
    for j in range(len(values)):
        total += values[j] * there[j]
        others[j] += values[j] * scale[i]
    sums[i] += total


@entry
def _sum(tree, rule, least, labels, groups, columns, scale, values, stack, sums):
    """Each pair once, through the box of the one that comes first."""
    for group in groups:
        begin, end = tree.nodes[group].begin, tree.nodes[group].end
        stack[0], depth = 0, 1
        while depth > 0:
            depth -= 1
            node = stack[depth]
            box = tree.nodes[node]
            if box.end <= begin:
                continue
            if decay_bounds(rule, tree.low, tree.high, group, node)[1] < least:
                continue
            if box.left > 0 and box.end - box.begin > BLOCK:
                stack[depth], stack[depth + 1] = box.left, box.left + 1
                depth += 2
                continue
            for i in range(begin, end):
                first = max(box.begin, i + 1)
                while first < box.end:  # more than a block where points coincide
                    last = min(first + BLOCK, box.end)
                    _sum_block(tree, rule, labels, columns, scale, i, first, last, values, sums)
                    first = last
