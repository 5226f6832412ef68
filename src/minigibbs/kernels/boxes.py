"""Points in boxes: a k-d tree, and sums over pairs of points.

A box is a node of the tree; its points are consecutive in the tree's order. For tables that draw
points see `box_tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.decay import (
    FEATURES,
    decay_block,
    decay_bounds,
    decay_value,
    point_rows,
)
from minigibbs.kernels.jit import entry, kernel
from minigibbs.kernels.lines import joined_lines
from minigibbs.system.watch import current

POINTS_AT_ONCE = 64  # points per block of a sum
GROUP = 8  # points whose sums are computed together
MOST_LEAVES = 2**17  # largest number of boxes that are not divided
THREADS = 4
STACK = 128  # exceeds the depth of any tree, because boxes are halved

NODE = np.dtype(
    [
        ("begin", np.int32),  # its points, [begin, end)
        ("end", np.int32),
        ("left", np.int32),  # its halves are left and left + 1; 0 for a leaf
        ("scale_low", np.float32),  # the range of its points' scales
        ("scale_high", np.float32),
    ],
    align=True,
)


class Tree(NamedTuple):
    """Points in the order of the tree, and its boxes."""

    features: NDArray[np.float32]  # [n, dims]
    points: NDArray[np.float32]  # [n, ...] the same with scales, see `kernels.decay`
    order: NDArray[np.int32]  # [n] the variable at each position
    nodes: NDArray[np.void]  # of NODE, the root first
    low: NDArray[np.float32]  # [nodes, dims] the boxes' corners
    high: NDArray[np.float32]


def grow_tree(features: NDArray[np.float32]) -> Tree:
    """Build the tree of some points, with scales of 1; boxes are halved along their widest side."""
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
    """Return the tree with a scale for each variable."""
    points, nodes = joined_lines([tree.points]), tree.nodes.copy()
    points[:, FEATURES] = scale[tree.order]
    _scale_nodes(points, nodes)
    return tree._replace(points=points, nodes=nodes)


def pair_sums(
    tree: Tree, rule: Any, least: float, labels: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    """Sum value times scale over all others, or others of the same label, for each variable.

    Boxes whose values are below `least` are left out. Raises `StopError` between two pieces if the
    call must end and the sums may be dropped.
    """
    n = len(tree.order)
    own = np.zeros(0, np.int64) if labels is None else labels[tree.order].astype(np.int64)
    groups = choose_sources(tree, n / GROUP)
    columns = np.ascontiguousarray(tree.features.T, dtype=np.float64)
    scale = tree.points[:, FEATURES].astype(np.float64)

    def some(part: slice) -> NDArray[np.float64]:
        sums, values, stack = np.zeros(n), np.empty(POINTS_AT_ONCE), np.empty(STACK, np.int64)
        _sum(tree, rule, least, own, groups[part], columns, scale, values, stack, sums)
        return sums

    result, total = np.empty(n), np.zeros(n)
    with closing(in_threads(some, len(groups))) as pieces:
        for sums in pieces:
            total += sums
            current().check_droppable()
    result[tree.order] = total
    return result


def pair_values(
    tree: Tree, rule: Any, i: NDArray[np.int64], j: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Compute value times both scales for pairs of positions."""
    values = np.empty(len(i))
    _evaluate(tree, rule, i, j, values)
    return values


def row_sums(tree: Tree, rule: Any, places: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sum value times both scales over all others, for some positions."""
    columns = np.ascontiguousarray(tree.features.T, dtype=np.float64)
    scale, sums = tree.points[:, FEATURES].astype(np.float64), np.zeros(len(places))

    def some(part: slice) -> None:
        _sum_rows(tree, rule, columns, scale, places[part], np.empty(POINTS_AT_ONCE), sums[part])

    for _ in in_threads(some, len(places)):
        pass
    return sums


def own_values(tree: Tree, rule: Any) -> NDArray[np.float64]:
    """Compute for each variable the value of its point and itself."""
    place, result = np.arange(len(tree.order)), np.empty(len(tree.order))
    result[tree.order] = pair_values(tree, rule, place, place)
    return result


def in_threads(work: Callable[[slice], Any], count: int) -> Generator[Any, None, None]:
    """Process pieces of work in parallel; compiled code releases the GIL."""
    step = max(1, -(-count // (8 * THREADS)))
    pieces = [slice(first, min(first + step, count)) for first in range(0, count, step)]
    if pieces:
        work(slice(0, 0))  # compiles in one thread
    with ThreadPoolExecutor(THREADS) as pool:
        try:
            yield from pool.map(work, pieces)
        finally:
            pool.shutdown(cancel_futures=True)


def choose_sources(tree: Tree, wanted: float) -> NDArray[np.int64]:
    """Return the largest boxes of at most n / wanted points, in the order of their points."""
    nodes, most = tree.nodes, len(tree.order) / wanted
    size = nodes["end"] - nodes["begin"]
    fits = (size <= most) | (nodes["left"] == 0)
    inside = np.zeros(len(nodes), dtype=bool)  # of a box that fits
    for half in (0, 1):
        parents = np.flatnonzero(nodes["left"] > 0)
        inside[nodes["left"][parents] + half] = fits[parents]
    chosen = np.flatnonzero(fits & ~inside)
    return chosen[np.argsort(nodes["begin"][chosen], kind="stable")]


@kernel
def _select(features, side, order, begin, end, middle):
    """Partition the points of [begin, end) around the one at `middle`, by one coordinate."""
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
    for k in range(len(nodes) - 1, -1, -1):  # halves follow their parents
        node = nodes[k]
        low, high = points[node.begin, FEATURES], points[node.begin, FEATURES]
        if node.left > 0:
            low = min(nodes[node.left].scale_low, nodes[node.left + 1].scale_low)
            high = max(nodes[node.left].scale_high, nodes[node.left + 1].scale_high)
        else:
            for place in range(node.begin, node.end):
                low, high = min(low, points[place, FEATURES]), max(high, points[place, FEATURES])
        node.scale_low, node.scale_high = low, high


@entry
def _evaluate(tree, rule, i, j, values):
    points = tree.points
    for k in range(len(values)):
        scale = np.float64(points[i[k], FEATURES]) * np.float64(points[j[k], FEATURES])
        values[k] = decay_value(rule, tree.features, points, i[k], j[k]) * scale


@entry
def _sum_rows(tree, rule, columns, scale, places, values, sums):
    for k in range(len(places)):
        total, place = 0.0, places[k]
        for first in range(0, len(scale), POINTS_AT_ONCE):
            last = min(first + POINTS_AT_ONCE, len(scale))
            own, there = values[: last - first], scale[first:last]
            decay_block(rule, tree.features, columns, place, first, last, own)
            if first <= place < last:
                own[place - first] = 0.0
            for j in range(len(own)):
                total += own[j] * there[j]
        sums[k] = total * scale[place]


@kernel
def _sum_block(tree, rule, labels, columns, scale, i, first, last, values, sums):
    """Add the pairs of position `i` and each of [first, last), which follow it, on both sides."""
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
    """Sum over each pair once, through the box of its first point."""
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
            if box.left > 0 and box.end - box.begin > POINTS_AT_ONCE:
                stack[depth], stack[depth + 1] = box.left, box.left + 1
                depth += 2
                continue
            for i in range(begin, end):
                first = max(box.begin, i + 1)
                while first < box.end:  # more than a block if points coincide
                    last = min(first + POINTS_AT_ONCE, box.end)
                    _sum_block(tree, rule, labels, columns, scale, i, first, last, values, sums)
                    first = last
