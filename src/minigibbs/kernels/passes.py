"""Exact elimination on small tables: many products per call, on one array of numbers.

A plan has leaves and products. Every small table lies in one array, at the place of its node. On
the way up a node holds its product. On the way down it holds what the rest says of it, over the
same variables. A leaf then holds its joint marginal.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.jit import entry, inlined, kernel
from minigibbs.kernels.layout import EQUAL, TABLE

_TINY = 1e-200  # of a sum whose summands may have been lost


class Nodes(NamedTuple):
    """A plan as arrays. Letters: N nodes, K steps, n variables."""

    start: NDArray[np.int64]  # [N + 1] where the scope of each node begins
    variable: NDArray[np.int64]  # the variables of all scopes
    left: NDArray[np.int64]  # [K] the nodes that each step multiplies
    right: NDArray[np.int64]  # [K] -1 for none
    sizes: NDArray[np.int64]  # [n]
    place: NDArray[np.int64]  # [N] where the table of a node begins; -1 for a large one
    ranges: NDArray[np.float64]  # [n] range of the factors at each variable, or empty
    limits: NDArray[np.float64]  # [3] LEAST, SPARE and SCALED of `exact.contraction`


class Scratch(NamedTuple):
    """Arrays that the passes overwrite."""

    numbers: NDArray[np.float64]  # a one, all small tables, and room for two
    low: NDArray[np.float64]  # [N] lower bound of the logarithms of entries that are not 0
    scale: NDArray[np.float64]  # [N] logarithm of what the leaves below were divided by
    mark: NDArray[np.int64]  # [3, n] zeros: how far a variable moves in each of three tables
    axes: NDArray[np.int64]  # [5, axis] sizes, how far they move in three tables, digits


class Values(NamedTuple):
    """The values that are left to each variable, and the factors of each leaf."""

    first: NDArray[np.int64]  # [n + 1] where the values of a variable begin
    value: NDArray[np.int64]
    owned: NDArray[np.int64]  # [leaf + 1] where the factors of a leaf begin
    factor: NDArray[np.int64]  # their numbers; pairs come first


@kernel
def _entries(nodes, node):
    """The entries of a table, as a float: a large table may have more than an integer holds."""
    entries = 1.0
    for k in range(nodes.start[node], nodes.start[node + 1]):
        entries *= nodes.sizes[nodes.variable[k]]
    return entries


@inlined
def _add_axis(nodes, scratch, v, first, count):
    """Add an axis behind `count` others, or extend the last one; returns the number of axes."""
    axes, mark, size, at = scratch.axes, scratch.mark, nodes.sizes[v], count
    if count > first:
        joined = True
        for part in range(3):
            joined &= axes[1 + part, count - 1] == max(mark[part, v], 0) * size
        if joined:
            at, size = count - 1, size * axes[0, count - 1]
    axes[0, at] = size
    for part in range(3):
        axes[1 + part, at] = max(mark[part, v], 0)
    axes[4, at] = 0
    return at + 1


@inlined
def _find_axes(nodes, scratch, triple):
    """Find the axes of a product: those of the result, then those that are summed over.

    Returns how many of the first there are, and how many in all.
    """
    mark = scratch.mark
    for part in range(3):
        step, node = 1, triple[part]
        k = nodes.start[node + 1] - 1 if node >= 0 else -1
        while node >= 0 and k >= nodes.start[node]:
            v = nodes.variable[k]
            mark[part, v] = step
            step *= nodes.sizes[v]
            k -= 1
    outer = count = np.int64(0)
    for part in range(3):  # the result comes first
        node = triple[2 - part]
        if node < 0:
            continue
        for k in range(nodes.start[node], nodes.start[node + 1]):
            v = nodes.variable[k]
            if part == 0 or mark[2, v] == 0:
                mark[2, v] = mark[2, v] if part == 0 else -1
                count = _add_axis(nodes, scratch, v, outer, count)
        if part == 0:
            outer = count
    for part in range(3):
        node = triple[part]
        if node < 0:
            continue
        for k in range(nodes.start[node], nodes.start[node + 1]):
            for other in range(3):
                mark[other, nodes.variable[k]] = 0
    return outer, count


@kernel
def _next(axes, first, last, at_a, at_b):
    """Go to the next entry of axes [first, last); False, and back to the first, behind the last."""
    axis = last - 1
    while axis >= first:
        axes[4, axis] += 1
        if axes[4, axis] < axes[0, axis]:
            return True, at_a + axes[1, axis], at_b + axes[2, axis]
        axes[4, axis] = 0
        at_a -= axes[1, axis] * (axes[0, axis] - 1)
        at_b -= axes[2, axis] * (axes[0, axis] - 1)
        axis -= 1
    return False, at_a, at_b


@inlined
def _multiply(scratch, at_a, at_b, outer, count, to):
    """Multiply two tables along the axes that were found, and sum."""
    numbers, axes = scratch.numbers, scratch.axes
    wide, wide_a, wide_b = np.int64(1), np.int64(0), np.int64(0)  # the last axis of the result
    if outer > 0:
        wide, wide_a, wide_b = axes[0, outer - 1], axes[1, outer - 1], axes[2, outer - 1]
    deep, deep_a, deep_b = np.int64(1), np.int64(0), np.int64(0)  # the last one summed over
    if count > outer:
        deep, deep_a, deep_b = axes[0, count - 1], axes[1, count - 1], axes[2, count - 1]
    more = True
    while more:
        for o in range(wide):
            numbers[to + o] = 0.0
        inside = True
        while inside:
            for o in range(wide):
                a, b, total = at_a + o * wide_a, at_b + o * wide_b, 0.0
                for s in range(deep):
                    total += numbers[a + s * deep_a] * numbers[b + s * deep_b]
                numbers[to + o] += total
            inside, at_a, at_b = _next(axes, outer, count - 1, at_a, at_b)
        more, at_a, at_b = _next(axes, np.int64(0), outer - 1, at_a, at_b)
        to += wide


@inlined
def _least(nodes, numbers, node):
    """The logarithm of the least entry that is not 0, at most 0."""
    least, at = 1.0, nodes.place[node]
    for k in range(int(_entries(nodes, node))):
        if numbers[at + k] > 0.0:
            least = min(least, numbers[at + k])
    return math.log(least)


@kernel
def _harmless(nodes, node, top):
    """Whether products that are lost are negligible; see `exact.contraction`."""
    strength = 0.0
    for k in range(nodes.start[node], nodes.start[node + 1]):
        if len(nodes.ranges) > 0:
            strength += nodes.ranges[nodes.variable[k]]
    return len(nodes.ranges) > 0 and top >= strength / 2 - nodes.limits[1]


@inlined
def _product(nodes, scratch, a, b, own, to):
    """Set a table to the product of two nodes, over the variables of a third one.

    Returns whether products were lost, the logarithm of what the table was divided by, and a lower
    bound of its logarithms.
    """
    numbers, place = scratch.numbers, nodes.place
    least, scaled = nodes.limits[0], nodes.limits[2]
    outer, count = _find_axes(nodes, scratch, (a, b, own))
    at_b, low = np.int64(0), scratch.low[a]
    if b >= 0:
        at_b, low = place[b], low + scratch.low[b]
    _multiply(scratch, place[a], at_b, outer, count, to)
    last, top, scale = to + int(_entries(nodes, own)), 0.0, 0.0
    for k in range(to, last):
        top = max(top, numbers[k])
    if low < least:  # the bounds may be too low: look
        low = 0.0
        for node in (a, b):
            if node >= 0:
                low += _least(nodes, numbers, node)
        if low < least:
            if not _harmless(nodes, own, math.log(top) if top > 0.0 else -math.inf):
                return True, 0.0, 0.0
            low = least
    if top > scaled or 0.0 < top < 1.0 / scaled:
        exponent = math.frexp(top)[1]
        scale = exponent * math.log(2.0)
        factor = math.ldexp(1.0, -exponent)
        for k in range(to, last):
            numbers[k] *= factor
        low -= scale
    return False, scale, low


@entry
def make_products(nodes, scratch, first, last, room, down):
    """Make the products of steps [first, last); returns a step that lost some, or -1.

    On the way `down` the last step comes first, and its two nodes are told what the rest says.
    Their tables are made behind `room` [2], two places in `numbers`.
    """
    leaves, numbers = len(nodes.place) - len(nodes.left), scratch.numbers
    for k in range(first, last):
        step = first + last - 1 - k if down else k
        pair = (nodes.left[step], nodes.right[step])
        low = (0.0, 0.0)
        for side in range(2 if down else 1):
            a, b, own = pair[0], pair[1], leaves + step
            to = nodes.place[own]
            if down:
                a, b, own, to = own, pair[1 - side], pair[side], room[side]
                if own < 0:
                    continue
            lost, scale, bound = _product(nodes, scratch, a, b, own, to)
            if lost:
                return step
            if down:
                low = (low[0], bound) if side else (bound, low[1])
                continue
            scratch.low[own] = bound
            scratch.scale[own] = scratch.scale[a] + scale
            if b >= 0:
                scratch.scale[own] += scratch.scale[b]
        for side in range(2 if down else 0):
            own = pair[side]
            if own < 0:
                continue
            count, at, told = int(_entries(nodes, own)), nodes.place[own], room[side]
            if own < leaves:
                _join(numbers, at, told, count)
                continue
            for place in range(count):
                numbers[at + place] = numbers[told + place]
            scratch.low[own] = low[side]
    return -1


@inlined
def _join(numbers, at, told, count):
    """Set a leaf to its joint marginal, given what the rest says of it."""
    top, total = 0.0, 0.0
    for k in range(count):
        top = max(top, numbers[told + k])
    for k in range(count):
        numbers[told + k] /= top
        total += numbers[at + k] * numbers[told + k]
    if total > _TINY:
        for k in range(count):
            numbers[at + k] *= numbers[told + k] / total
        return
    top, total = -math.inf, 0.0
    for k in range(count):
        numbers[at + k] = math.log(numbers[told + k]) + math.log(numbers[at + k])
        top = max(top, numbers[at + k])
    for k in range(count):
        numbers[at + k] = math.exp(numbers[at + k] - top)
        total += numbers[at + k]
    for k in range(count):
        numbers[at + k] /= total


@entry
def load_leaves(nodes, scratch, logs, begin, first, last):
    """Set the small ones of leaves [first, last) from logarithms; returns one that is lost, or -1.

    The logarithms of a leaf are at its place in `begin`.
    """
    for leaf in range(first, last):
        to, top, low = nodes.place[leaf], -math.inf, 0.0
        if to < 0:
            continue
        for k in range(begin[leaf], begin[leaf + 1]):
            top = max(top, logs[k])
        if top == -math.inf:
            top = 0.0
        for k in range(begin[leaf], begin[leaf + 1]):
            shifted = logs[k] - top
            if shifted > -math.inf:
                low = min(low, shifted)
            scratch.numbers[to + k - begin[leaf]] = math.exp(shifted)
        if low < nodes.limits[0]:
            if not _harmless(nodes, leaf, 0.0):
                return leaf
            low = nodes.limits[0]
        scratch.low[leaf], scratch.scale[leaf] = low, top
    return -1


@entry
def sum_joints(nodes, numbers, leaf_of, begin, out):
    """Set the marginal of each variable whose leaf is small: the sum of its joint marginal.

    The values of a variable are at its place in `begin`; `leaf_of` is -1 for no leaf.
    """
    for v in range(len(leaf_of)):
        leaf, size = leaf_of[v], nodes.sizes[v]
        if leaf < 0 or nodes.place[leaf] < 0:
            continue
        step, entries, k = 1, 1, nodes.start[leaf + 1] - 1
        while k >= nodes.start[leaf]:
            if nodes.variable[k] == v:
                step = entries
            entries *= nodes.sizes[nodes.variable[k]]
            k -= 1
        for value in range(size):
            out[begin[v] + value] = 0.0
        for k in range(entries):
            out[begin[v] + k // step % size] += numbers[nodes.place[leaf] + k]


@inlined
def _pair(model, values, digits, number):
    """What a pair contributes to the log-potential, at given places among the values left."""
    i, j = model.pair[number, 0], model.pair[number, 1]
    one = values.value[values.first[i] + digits[i]]
    other = values.value[values.first[j] + digits[j]]
    return model.pair_weight[number] if one == other else 0.0


@inlined
def _general(model, values, digits, number):
    """The same for another factor."""
    factor = model.factors[number]
    place, true = factor.table_start, 0
    for slot in range(factor.scope_start, factor.scope_end):
        v, key = model.slots[slot].variable, model.slots[slot].key
        value = values.value[values.first[v] + digits[v]]
        place += key * value
        true += value == key
    if factor.form == TABLE:
        return factor.weight * model.table[place]
    holds = true == factor.scope_end - factor.scope_start or (factor.form == EQUAL and true == 0)
    return factor.weight if holds else 0.0


@entry
def write_leaves(model, values, start, variable, sizes, begin, digits, logs, first, last):
    """Write the logarithms of leaves [first, last): sums of their factors over the values left.

    `start`, `variable` and `sizes` are those of `Nodes`. The logarithms of a leaf are at its place
    in `begin`. `digits` are zeros, one per variable.
    """
    pairs = len(model.pair)
    for leaf in range(first, last):
        for k in range(begin[leaf], begin[leaf + 1]):
            logs[k] = 0.0
        for own in range(values.owned[leaf], values.owned[leaf + 1]):
            number = values.factor[own]
            for k in range(begin[leaf], begin[leaf + 1]):
                if number < pairs:
                    logs[k] += _pair(model, values, digits, number)
                else:
                    logs[k] += _general(model, values, digits, number - pairs)
                axis = start[leaf + 1] - 1
                while axis >= start[leaf]:  # back to zeros behind the last entry
                    v = variable[axis]
                    digits[v] += 1
                    if digits[v] < sizes[v]:
                        break
                    digits[v] = 0
                    axis -= 1
