"""Colors of a graph: no two free variables of one color share a factor.

So all variables of a color can be updated at the same time. Graphs of two colors are detected by
breadth-first search. Any other graph is colored greedily, in the smallest-last order of Matula and
Beck (doi:10.1145/2402.322385), which needs at most one color more than the graph's degeneracy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.kernels.jit import entry, kernel

if TYPE_CHECKING:
    from minigibbs.graph.graph import FactorGraph

NONE = -1  # the color of a clamped variable


class Coloring(NamedTuple):
    """The color of each free variable."""

    color: NDArray[np.int32]  # [n] of each variable; NONE if it is clamped
    count: int  # type: ignore[assignment]  # number of colors

    def sizes(self) -> NDArray[np.int64]:
        """Return the number of variables of each color."""
        return np.bincount(self.color[self.color >= 0], minlength=self.count)


def coloring(graph: FactorGraph) -> Coloring:
    """Color the free variables; the result is deterministic."""
    if graph.implicits:
        raise SampleError(
            "colors need stored factors, but this graph has implicit ones, which join all "
            'variables; use scan="random"'
        )
    model, free = graph.packed, graph.evidence < 0
    n = len(free)
    color = np.full(n, NONE, dtype=np.int32)
    queue, position = np.empty(n, np.int32), np.empty(n, np.int32)  # pages in use only if needed
    if not _color_in_order(model, free, color) and not _two_colors(model, free, color, queue):
        color[:] = NONE
        degree = np.empty(n, np.int32)
        _count_neighbors(model, free, degree)
        starts = np.zeros(int(degree.max(initial=0)) + 2, np.int32)
        _smallest_last(model, free, degree, starts, queue, position)
        used = np.full(len(starts) + 1, -1, dtype=np.int32)
        _greedy(model, free, queue, color, used)
    color.setflags(write=False)
    return Coloring(color, int(color.max(initial=-1)) + 1)


# Neighbors are visited by index: entry `k` of a row, and slot `s` of its factor if it is not a
# pair. A callback would not compile, so each of the four functions below repeats these two loops.


@kernel
def _row_degree(model, free, i):
    """Count the free neighbors of a variable, once for each shared factor."""
    row, degree = model.rows[i], 0
    for k in range(row.start, row.pair_end):
        degree += free[model.target[k]]
    for k in range(row.pair_end, row.unary_begin):
        factor = model.factors[model.target[k]]
        for s in range(factor.scope_start, factor.scope_end):
            j = model.slots[s].variable
            degree += free[j] and j != i
    return degree


@entry
def _count_neighbors(model, free, degree):
    for i in range(len(degree)):
        degree[i] = _row_degree(model, free, i) if free[i] else 0


@kernel
def _paint(free, color, queue, end, i, j):
    """Give neighbor `j` the other color than `i`; return the queue's end, or -1 on conflict."""
    if not free[j] or j == i:
        return end
    if color[j] < 0:
        color[j] = 1 - color[i]
        queue[end] = j
        return end + 1
    return end if color[j] != color[i] else -1


@entry
def _color_in_order(model, free, color):
    """Color pairs with 0 and 1 in the order of the variables; return whether that was possible.

    If it is, the result is that of `_two_colors`, without its random access to memory. It fails on
    some graphs of two colors. Then all colors are removed again.
    """
    for i in range(len(color)):
        row, own = model.rows[i], NONE
        possible = row.pair_end == row.unary_begin
        for k in range(row.start, row.pair_end):
            j = model.target[k]
            if free[i] and free[j] and color[j] >= 0:
                possible = possible and own != color[j]
                own = 1 - color[j]
        if not possible:
            for j in range(i):
                color[j] = NONE
            return False
        if free[i]:
            color[i] = max(own, 0)
    return True


@entry
def _two_colors(model, free, color, queue):
    """Color with 0 and 1 by breadth-first search; return whether that was possible."""
    for first in range(len(color)):
        if not free[first] or color[first] >= 0:
            continue
        color[first], queue[0], begin, end = 0, first, 0, 1
        while begin < end:
            i = queue[begin]
            begin += 1
            row = model.rows[i]
            for k in range(row.start, row.pair_end):
                end = _paint(free, color, queue, end, i, model.target[k])
                if end < 0:
                    return False
            for k in range(row.pair_end, row.unary_begin):
                factor = model.factors[model.target[k]]
                for s in range(factor.scope_start, factor.scope_end):
                    end = _paint(free, color, queue, end, i, model.slots[s].variable)
                    if end < 0:
                        return False
    return True


@kernel
def _lower(free, degree, starts, queue, position, least, i):
    """Move a remaining variable to the next lower degree."""
    if not free[i] or position[i] < 0 or degree[i] <= least:
        return
    d = degree[i]
    first = starts[d]  # the first variable of its degree: they are swapped
    other, place = queue[first], position[i]
    queue[place], position[other] = other, place
    queue[first], position[i] = i, first
    starts[d] = first + 1
    degree[i] = d - 1


@entry
def _smallest_last(model, free, degree, starts, queue, position):
    """Order the free variables by repeated removal of a variable of smallest degree.

    `queue` gets the order of removal, padded by -1.
    """
    for i in range(len(free)):
        position[i] = -1
        if free[i]:
            starts[degree[i] + 1] += 1
    for d in range(1, len(starts)):
        starts[d] += starts[d - 1]
    count = starts[len(starts) - 1]
    for i in range(len(free)):  # counting sort: each entry of `starts` ends one index further
        if free[i]:
            queue[starts[degree[i]]] = i
            position[i] = starts[degree[i]]
            starts[degree[i]] += 1
    for d in range(len(starts) - 1, 0, -1):
        starts[d] = starts[d - 1]
    starts[0] = 0
    for place in range(count):
        i = queue[place]
        least = degree[i]
        row = model.rows[i]
        position[i] = -1
        for k in range(row.start, row.pair_end):
            _lower(free, degree, starts, queue, position, least, model.target[k])
        for k in range(row.pair_end, row.unary_begin):
            factor = model.factors[model.target[k]]
            for s in range(factor.scope_start, factor.scope_end):
                _lower(free, degree, starts, queue, position, least, model.slots[s].variable)
    for place in range(count, len(queue)):
        queue[place] = -1


@kernel
def _note_color(color, used, i, j):
    if j != i and color[j] >= 0 and color[j] < len(used):
        used[color[j]] = i


@entry
def _greedy(model, free, queue, color, used):
    """Color in reverse order of removal, with the least color that no neighbor has."""
    for place in range(len(queue) - 1, -1, -1):
        i = queue[place]
        if i < 0:
            continue
        row = model.rows[i]
        for k in range(row.start, row.pair_end):
            _note_color(color, used, i, model.target[k])
        for k in range(row.pair_end, row.unary_begin):
            factor = model.factors[model.target[k]]
            for s in range(factor.scope_start, factor.scope_end):
                _note_color(color, used, i, model.slots[s].variable)
        own = 0
        while used[own] == i:
            own += 1
        color[i] = own
