"""Conditional log-weights of one variable at any temperature, including implicit groups.

Nothing is prepared in advance: explicit factors are read from the packed graph, and implicit groups
are evaluated by their rule. An update evaluates every factor of the variable. `Complete` and
`LowRank` groups maintain running sums and cost less.

`Points` cache the field of every variable (`CachedPoints`). An update then costs O(values), and
only a change evaluates the kernel at all nearby points. If the first fields would take too long,
every update evaluates the kernel (`PointsField`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.implicit.base import Implicit
from minigibbs.graph.factors.implicit.low_rank import LowRank
from minigibbs.graph.factors.implicit.points import Points
from minigibbs.kernels.boxes import POINTS_AT_ONCE
from minigibbs.kernels.decay import FEATURES, decay_block, decay_bounds, decay_value
from minigibbs.kernels.energy import add_general, add_stored
from minigibbs.kernels.jit import chosen_by_type, entry, kernel
from minigibbs.kernels.random import uniform
from minigibbs.samplers.poisson_gibbs.groups import prepare_energies
from minigibbs.samplers.poisson_gibbs.groups.base import NoEnergy
from minigibbs.samplers.poisson_gibbs.groups.complete import CompleteEnergy
from minigibbs.samplers.poisson_gibbs.groups.kernel import KernelEnergy, neighbor
from minigibbs.samplers.poisson_gibbs.groups.low_rank import LowRankEnergy
from minigibbs.samplers.poisson_gibbs.groups.points import PointsEnergy

_NEGLIGIBLE = 1e-12  # cached fields omit smaller values of a kernel
_CACHED_SECONDS = 3e-9  # per evaluation of a pair's kernel, among many


class SeveralFields(NamedTuple):
    """One group and the others, whose running sums are in the next row."""

    group: Any
    others: Any  # one more group, or `SeveralFields`


class PointsField(NamedTuple):
    """Points in tree order, and the position of each variable in it."""

    points: PointsEnergy
    place: NDArray[np.int64]


class CachedPoints(NamedTuple):
    """Points in tree order, divided into blocks, for cached fields.

    A group's row of `room` contains field[value, place], then space for the values of one block.
    """

    points: PointsEnergy
    place: NDArray[np.int64]
    columns: NDArray[np.float64]  # [dimensions, n]
    scale: NDArray[np.float64]  # [n]
    begin: NDArray[np.int64]  # [blocks + 1]
    block: NDArray[np.int64]  # [n] the block of each place
    low: NDArray[np.float32]  # [blocks, dimensions] corners
    high: NDArray[np.float32]


def prepare_fields(groups: tuple[Implicit, ...], cached: bool = False) -> Any:
    """Prepare the data from which the fields of implicit groups are computed.

    Parameters
    ----------
    groups : tuple of Implicit
        The groups of a graph.
    cached : bool, default False
        Whether points cache the fields of all variables.
    """
    data: Any = NoEnergy(0)
    for group in reversed(groups):
        own = prepare_energies((group,))
        if isinstance(group, Points):
            own = _cached(group, own) if cached else PointsField(own, group.places)
        data = own if isinstance(data, NoEnergy) else SeveralFields(own, data)
    return data


def _cached(group: Points, points: PointsEnergy) -> CachedPoints:
    """Divide the points into blocks: the largest boxes with at most `POINTS_AT_ONCE` points."""
    nodes, chosen, stack = group.tree.nodes, [], [0]
    while stack:
        node = stack.pop()
        left = int(nodes["left"][node])
        if left > 0 and nodes["end"][node] - nodes["begin"][node] > POINTS_AT_ONCE:
            stack += [left, left + 1]
        else:
            chosen.append(node)
    chosen.sort(key=lambda node: int(nodes["begin"][node]))
    begin = np.append(nodes["begin"][chosen], group.variables).astype(np.int64)
    return CachedPoints(
        points=points,
        place=group.places,
        columns=np.ascontiguousarray(group.tree.features.T.astype(np.float64)),
        scale=group.tree.points[:, FEATURES].astype(np.float64),
        begin=begin,
        block=np.repeat(np.arange(len(chosen)), np.diff(begin)),
        low=np.ascontiguousarray(group.tree.low[chosen]),
        high=np.ascontiguousarray(group.tree.high[chosen]),
    )


def caching_seconds(groups: tuple[Implicit, ...]) -> float:
    """Predict the seconds for the first fields of one state if points cache them."""
    pairs = sum(float(group.variables) ** 2 for group in groups if isinstance(group, Points))
    return _CACHED_SECONDS * pairs


def room_size(groups: tuple[Implicit, ...], values: int, cached: bool = False) -> tuple[int, int]:
    """Return the shape of the array of running sums: one row per group."""
    ranks = [group.a.shape[1] if isinstance(group, LowRank) else 1 for group in groups]
    width = 2 * values * max(ranks, default=1)
    if cached and any(isinstance(group, Points) for group in groups):
        width = max(width, values * groups[0].variables + _widest(groups))
    return max(len(groups), 1), width


def _widest(groups: tuple[Implicit, ...]) -> int:
    """Return the points of the largest block; coinciding points may exceed `POINTS_AT_ONCE`."""
    leaves = [
        group.tree.nodes["end"] - group.tree.nodes["begin"]
        for group in groups
        if isinstance(group, Points)
    ]
    uncut = [group.tree.nodes["left"] == 0 for group in groups if isinstance(group, Points)]
    largest = [int(size[leaf].max()) for size, leaf in zip(leaves, uncut, strict=True)]
    return max(POINTS_AT_ONCE, *largest)


def room_for(
    groups: tuple[Implicit, ...], values: int, cached: bool = False
) -> NDArray[np.float64]:
    """Return zeros for the running sums of all groups, one row per group."""
    return np.zeros(room_size(groups, values, cached))


@kernel
def _no_begin(data, x, room, row, values):
    pass


@kernel
def _no_field(data, x, i, weights, room, row, values):
    pass


@kernel
def _no_change(data, i, old, new, room, row, values):
    pass


@kernel
def _several_begin(data, x, room, row, values):
    begin_field(data.group, x, room, row, values)
    begin_field(data.others, x, room, row + 1, values)


@kernel
def _several_field(data, x, i, weights, room, row, values):
    add_field(data.group, x, i, weights, room, row, values)
    add_field(data.others, x, i, weights, room, row + 1, values)


@kernel
def _several_change(data, i, old, new, room, row, values):
    change_field(data.group, i, old, new, room, row, values)
    change_field(data.others, i, old, new, room, row + 1, values)


@kernel
def _complete_begin(data, x, room, row, values):
    for i in range(len(x)):
        room[row, x[i]] += 1.0


@kernel
def _complete_field(data, x, i, weights, room, row, values):
    if data.spins:
        others = room[row, 1] - room[row, 0] - (2.0 * np.float64(x[i]) - 1.0)
        weights[1] += 2.0 * data.weight * others
        return
    for value in range(values):
        weights[value] += data.weight * (room[row, value] - np.float64(x[i] == value))


@kernel
def _complete_change(data, i, old, new, room, row, values):
    room[row, old] -= 1.0
    room[row, new] += 1.0


@kernel
def _low_rank_add(data, i, value, sign, room, row, values):
    for k in range(data.a.shape[1]):
        room[row, 2 * k * values + value] += sign * data.a[i, k]
        room[row, (2 * k + 1) * values + value] += sign * data.b[i, k]


@kernel
def _low_rank_begin(data, x, room, row, values):
    for i in range(len(x)):
        _low_rank_add(data, i, x[i], 1.0, room, row, values)


@kernel
def _low_rank_field(data, x, i, weights, room, row, values):
    own, spin = int(x[i]), 2.0 * np.float64(x[i]) - 1.0
    for k in range(data.a.shape[1]):
        a, b = 2 * k * values, (2 * k + 1) * values
        if data.spins:
            sum_a = room[row, a + 1] - room[row, a] - spin * data.a[i, k]
            sum_b = room[row, b + 1] - room[row, b] - spin * data.b[i, k]
            weights[1] += data.a[i, k] * sum_b + data.b[i, k] * sum_a
            continue
        for value in range(values):
            same = np.float64(own == value)
            sum_a = room[row, a + value] - same * data.a[i, k]
            sum_b = room[row, b + value] - same * data.b[i, k]
            weights[value] += 0.5 * (data.a[i, k] * sum_b + data.b[i, k] * sum_a)


@kernel
def _low_rank_change(data, i, old, new, room, row, values):
    _low_rank_add(data, i, old, -1.0, room, row, values)
    _low_rank_add(data, i, new, 1.0, room, row, values)


@kernel
def _add_pair(spins, weights, value, weight):
    """Add a pair, given the value of the other variable; for spins only the difference matters."""
    if spins:
        weights[1] += 2.0 * weight * (2.0 * np.float64(value) - 1.0)
    else:
        weights[value] += weight


@kernel
def _kernel_field(data, x, i, weights, room, row, values):
    rest = i // data.shape[2]
    a, b, c = rest // data.shape[1], rest % data.shape[1], i % data.shape[2]
    for k in range(len(data.weight)):
        da, db, dc = data.steps[k, 0], data.steps[k, 1], data.steps[k, 2]
        there = neighbor(data, a, b, c, da, db, dc)
        if data.periodic:  # energies count each pair twice, at half its weight
            _add_pair(data.spins, weights, x[there], 2.0 * data.weight[k])
            continue
        back = neighbor(data, a, b, c, -da, -db, -dc)
        if there >= 0:
            _add_pair(data.spins, weights, x[there], data.weight[k])
        if back >= 0:
            _add_pair(data.spins, weights, x[back], data.weight[k])


@kernel
def _points_field(data, x, i, weights, room, row, values):
    points, here = data.points, data.place[i]
    own = points.weight * np.float64(points.points[here, FEATURES])
    for j in range(len(points.order)):
        if j != here:
            weight = own * np.float64(points.points[j, FEATURES])
            weight *= decay_value(points.rule, points.features, points.points, here, j)
            _add_pair(points.spins, weights, x[points.order[j]], weight)


@kernel
def _add_near(data, i, old, new, room, row, values):
    """Move the weights of variable `i` from its old value, or -1 for none, to a new one."""
    points, here, n = data.points, data.place[i], len(data.scale)
    fields, scratch = room[row, : values * n], room[row, values * n :]
    own, home = points.weight * data.scale[here], data.block[here]
    for k in range(len(data.begin) - 1):
        if decay_bounds(points.rule, data.low, data.high, home, k)[1] < _NEGLIGIBLE:
            continue
        first, last = data.begin[k], data.begin[k + 1]
        found, there = scratch[: last - first], data.scale[first:last]
        decay_block(points.rule, points.features, data.columns, here, first, last, found)
        if k == home:
            found[here - first] = 0.0
        for j in range(len(found)):
            found[j] *= own * there[j]
        after = fields[new * n + first : new * n + last]
        for j in range(len(found)):
            after[j] += found[j]
        if old >= 0:
            before = fields[old * n + first : old * n + last]
            for j in range(len(found)):
                before[j] -= found[j]


@kernel
def _cached_begin(data, x, room, row, values):
    for i in range(len(x)):
        _add_near(data, i, -1, int(x[i]), room, row, values)


@kernel
def _cached_field(data, x, i, weights, room, row, values):
    here, n = data.place[i], len(data.scale)
    if data.points.spins:
        weights[1] += 2.0 * (room[row, n + here] - room[row, here])
        return
    for value in range(values):
        weights[value] += room[row, value * n + here]


_COMPILED = {
    NoEnergy: (_no_begin, _no_field, _no_change),
    SeveralFields: (_several_begin, _several_field, _several_change),
    CompleteEnergy: (_complete_begin, _complete_field, _complete_change),
    LowRankEnergy: (_low_rank_begin, _low_rank_field, _low_rank_change),
    KernelEnergy: (_no_begin, _kernel_field, _no_change),
    PointsField: (_no_begin, _points_field, _no_change),
    CachedPoints: (_cached_begin, _cached_field, _add_near),
}


def begin_field(data: Any, x: Any, room: Any, row: int, values: int) -> None:
    """Set the running sums of a state; compiled code only."""
    _COMPILED[type(data)][0](data, x, room, row, values)


def add_field(data: Any, x: Any, i: int, weights: Any, room: Any, row: int, values: int) -> None:
    """Add the fields of implicit groups to a variable's weights; compiled code only."""
    _COMPILED[type(data)][1](data, x, i, weights, room, row, values)


def change_field(data: Any, i: int, old: int, new: int, room: Any, row: int, values: int) -> None:
    """Update the running sums when a variable changes; compiled code only."""
    _COMPILED[type(data)][2](data, i, old, new, room, row, values)


@chosen_by_type(begin_field)
def _begin_for_type(data, x, room, row, values):
    return _COMPILED[data.instance_class][0].py_func


@chosen_by_type(add_field)
def _add_for_type(data, x, i, weights, room, row, values):
    return _COMPILED[data.instance_class][1].py_func


@chosen_by_type(change_field)
def _change_for_type(data, i, old, new, room, row, values):
    return _COMPILED[data.instance_class][2].py_func


@entry
def begin_fields(groups, x, room, values):
    """Set the running sums of all groups."""
    for row in range(len(room)):
        for k in range(room.shape[1]):
            room[row, k] = 0.0
    begin_field(groups, x, room, 0, values)


@kernel
def _drawn(weights, size, beta, stream):
    """Draw a value from its log-weights at an inverse temperature above 0."""
    top, chances = weights[0], weights[len(weights) // 2 :]
    for value in range(1, size):
        top = max(top, weights[value])
    total = 0.0
    for value in range(size):
        chances[value] = math.exp(beta * (weights[value] - top))
        total += chances[value]
    left = uniform(stream) * total
    for value in range(size):
        left -= chances[value]
        if left < 0.0:
            return value
    return -1  # reached only by rounding


@kernel
def _best(weights, size, old, least):
    """Return the best value if it gains more than `least` over the old one, else the old one."""
    new, best = old, weights[old] + least
    for value in range(size):
        if weights[value] > best:
            new, best = value, weights[value]
    return new


@entry
def visit(model, groups, room, order, x, stream, weights, gain, beta, least, first, count):
    """Redraw variables at an inverse temperature; if it is infinite, set them to their best values.

    Visits `count` variables of the order, from index `first` on. Adds the increase of the
    log-potential to gain[0]. Returns the number of changes.
    """
    changes, values = 0, len(weights) // 2
    for k in range(first, first + count):
        i = np.int64(order[k % len(order)])
        row, old = model.rows[i], int(x[i])
        for value in range(values):
            weights[value] = 0.0
        add_stored(model, x, i, weights)
        for place in range(row.unary_begin, row.end):
            add_general(model, x, i, place, 1.0, weights)
        add_field(groups, x, i, weights, room, 0, values)
        if beta == math.inf:
            new = _best(weights, row.domain, old, least)
        else:
            new = _drawn(weights, row.domain, beta, stream)
        if new >= 0 and new != old:
            x[i] = new
            gain[0] += weights[new] - weights[old]
            change_field(groups, i, old, new, room, 0, values)
            changes += 1
    return changes
