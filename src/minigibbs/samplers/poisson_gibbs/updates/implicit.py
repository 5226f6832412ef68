"""Draws from implicit groups.

Upper bounds on M are sufficient: a draw that is weaker than its bound, or that is not a factor (a
neighbor off the grid, the variable itself), is thinned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.implicit.base import Implicit
from minigibbs.graph.factors.implicit.complete import Complete
from minigibbs.graph.factors.implicit.copied import Copied
from minigibbs.graph.factors.implicit.kernel import Kernel
from minigibbs.graph.factors.implicit.low_rank import LowRank
from minigibbs.graph.factors.implicit.points import Points
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.alias import draw_alias, fill_alias
from minigibbs.kernels.jit import chosen_by_type, kernel
from minigibbs.kernels.layout import ALIAS, DRAWS, EVALUATIONS, Chain
from minigibbs.kernels.poisson import poisson
from minigibbs.kernels.random import below, next_word
from minigibbs.kernels.touched import PRODUCTS, SUMS, touch, touched_space
from minigibbs.samplers.poisson_gibbs.split import (
    CHUNK,
    ImplicitSplit,
    Split,
    heavy_displacements,
)
from minigibbs.samplers.poisson_gibbs.updates.points import (
    SCRATCH,
    PointsData,
    points_draw,
    prepare_points,
)
from minigibbs.samplers.poisson_gibbs.updates.projected import (
    ProjectedData,
    prepare_projected,
    projected_begin,
    projected_draw,
    projected_note,
    projected_room,
)
from minigibbs.samplers.poisson_gibbs.updates.tail import keep_share, touch_kept


class NothingData(NamedTuple):
    """The data of a graph without implicit groups."""

    unused: int


class SeveralData(NamedTuple):
    """Several groups, which draw one after another."""

    group: Any
    others: Any  # another group, or `SeveralData`


class CopiedData(NamedTuple):
    """A group with several copies, and the scale of each copy."""

    group: Any
    scales: NDArray[np.float64]  # [copies]
    factor: NDArray[np.float64]  # [copies, heavy, 2]: `factor` of each copy of a `KernelData`
    room: int  # length of a copy's part of the chain's `carried` array


class KernelData(NamedTuple):
    """Displacements: a list of heavy ones, and an alias table of the others over the half table.

    An index is relative to the center of the flat table; its sign is that of the weight.
    """

    shape: NDArray[np.int64]  # [3] the grid, with sides of 1 in front
    sides: NDArray[np.int64]  # [3] of the table of displacements
    reach: NDArray[np.int64]  # [3] its center's coordinates
    periodic: bool
    heavy: NDArray[np.int64]  # [heavy, 3] displacements
    factor: NDArray[np.float64]  # [heavy, 2]: exp(-weight), exp(weight), in pair weights, or logs
    tail: NDArray[np.void]  # of ALIAS
    rate: float  # (1 + theta) * L_T
    none: float  # exp(-rate)
    keep: float  # theta / (1 + theta)
    gain: float  # a weight's factor for an attractive pair: 1 / keep, or its logarithm
    loss: float  # the same for a repulsive pair: keep, or its logarithm


class CompleteData(NamedTuple):
    """All other variables are equally likely; the other fields are as in `KernelData`."""

    variables: int
    attracts: bool
    rate: float
    none: float
    keep: float
    gain: float
    loss: float


class LowRankData(NamedTuple):
    """Thin matrices, bounds c_i, and one alias table over c_j for all variables."""

    a: NDArray[np.float64]
    b: NDArray[np.float64]
    bound: NDArray[np.float64]  # [n] c
    total: float  # energy per weight times the sum of c
    alias: NDArray[np.void]  # of ALIAS
    theta: float


def prepare_implicit(graph: FactorGraph, split: Split, logs: bool) -> Any:
    """Prepare the graph's implicit groups, if any, for weights or for their logarithms."""
    data: Any = NothingData(0)
    values = int(graph.sizes.max())
    first, scratch = (0, 0) if logs else touched_space(values)  # after that of touched values
    groups = list(zip(graph.implicits, split.implicits, strict=True))
    for before, (group, how) in reversed(list(enumerate(groups))):
        others = before, len(groups) - 1 - before
        if isinstance(group, Copied):
            one = _prepare_group(group.group, how, logs, values, first, scratch, others)
            own: Any = _prepare_copied(one, group.scales, logs)
        else:
            own = _prepare_group(group, how, logs, values, first, scratch, others)
        first += implicit_space(own)[0]
        data = own if isinstance(data, NothingData) else SeveralData(own, data)
    return data


def _prepare_group(
    group: Implicit,
    how: ImplicitSplit,
    logs: bool,
    values: int,
    first: int,
    scratch: int,
    others: tuple[int, int],
) -> Any:
    """Prepare one group; its part of the chain's `carried` array begins at `first`.

    `others` has the numbers of groups that draw before and after it.
    """
    if how.projected:
        assert isinstance(group, LowRank)
        return prepare_projected(group, values, first)
    if isinstance(group, Points):
        return prepare_points(group, how.theta, logs, scratch, others)
    return _PREPARE[type(group)](group, how, logs)


def _prepare_copied(group: Any, scales: NDArray[np.float64], logs: bool) -> CopiedData:
    """Prepare the copies of a prepared group."""
    factor = np.zeros((len(scales), 0, 2))
    if isinstance(group, KernelData):
        by = scales[:, None, None]
        factor = group.factor * by if logs else group.factor**by
    return CopiedData(group, scales, factor, implicit_space(group)[0])


def implicit_space(data: Any) -> tuple[int, int]:
    """Return the lengths of the groups' parts of the chain's `carried` and `scratch` arrays."""
    if isinstance(data, SeveralData):
        (carried, scratch), (more, other) = implicit_space(data.group), implicit_space(data.others)
        return carried + more, max(scratch, other)  # scratch is reused by the next group
    if isinstance(data, CopiedData):
        return len(data.scales) * data.room, implicit_space(data.group)[1]
    if isinstance(data, PointsData):
        return 0, SCRATCH + data.before
    return (projected_room(data), 0) if isinstance(data, ProjectedData) else (0, 0)


def _tail(split: ImplicitSplit, logs: bool) -> tuple[float, float, float, float, float]:
    """Return rate, none, keep, gain and loss, for a tail common to all variables."""
    rate, keep = (1 + split.theta) * split.tail, split.theta / (1 + split.theta)
    gain = math.log1p(1 / split.theta)
    both = (gain, -gain) if logs else (1 + 1 / split.theta, keep)
    return rate, math.exp(-rate), keep, *both


def _prepare_complete(group: Complete, split: ImplicitSplit, logs: bool) -> CompleteData:
    return CompleteData(group.variables, group.weight > 0, *_tail(split, logs))


def _prepare_low_rank(group: LowRank, split: ImplicitSplit, logs: bool) -> LowRankData:
    bound = group.bounds()
    table = np.empty(len(bound), dtype=ALIAS)
    table["place"], table["accept"] = np.arange(len(bound)), bound
    fill_alias(table)
    total = group.energy_per_weight * float(bound.sum())
    return LowRankData(group.a, group.b, bound, total, table, split.theta)


def _prepare_kernel(group: Kernel, split: ImplicitSplit, logs: bool) -> KernelData:
    strong = heavy_displacements(group, split.least)
    places = np.flatnonzero(strong)
    weights, steps = group.energy_per_weight * group.half[places], displacements(group, places)
    if not group.periodic:
        steps, weights = np.concatenate([steps, -steps]), np.concatenate([weights, weights])
    pad, either = 3 - len(group.shape), np.stack([-weights, weights], axis=1)
    return KernelData(
        np.array((1,) * pad + group.shape, dtype=np.int64),
        np.array((1,) * pad + group.sides, dtype=np.int64),
        np.array((0,) * pad + group.reach, dtype=np.int64),
        group.periodic,
        np.ascontiguousarray(steps),
        either if logs else np.exp(either),
        displacement_alias(group.half, strong),
        *_tail(split, logs),
    )


def displacement_alias(half: NDArray[np.float64], strong: NDArray[np.bool_]) -> NDArray[np.void]:
    """Build the alias table of the displacements that are not strong, in pieces to save memory."""
    light = ~strong & (half != 0)
    tail, filled = np.empty(int(np.count_nonzero(light)), dtype=ALIAS), 0
    for first in range(0, len(half), CHUNK):
        places = np.flatnonzero(light[first : first + CHUNK]) + first
        part = tail[filled : filled + len(places)]
        part["accept"] = np.abs(half[places])
        part["place"] = np.where(half[places] > 0, places + 1, -1 - places)
        filled += len(places)
    fill_alias(tail)
    return tail


def displacements(group: Kernel, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return displacements [index, 3] of indices of the half table."""
    index = np.unravel_index(places + group.center + 1, group.sides)
    steps = np.stack([axis - reach for axis, reach in zip(index, group.reach, strict=True)], axis=1)
    return np.pad(steps, [(0, 0), (3 - len(group.shape), 0)]).astype(np.int64)


@kernel
def _move(at, step, side, periodic):
    """Return a coordinate after a step, or -1 if that is off the grid."""
    to = at + step
    if periodic:
        return to - side if to >= side else to
    return to if 0 <= to < side else -1


@kernel
def neighbor(data, a, b, c, step_a, step_b, step_c):
    """Return the variable one step away from coordinates (a, b, c), or -1."""
    to_a = _move(a, step_a, data.shape[0], data.periodic)
    to_b = _move(b, step_b, data.shape[1], data.periodic)
    to_c = _move(c, step_c, data.shape[2], data.periodic)
    if to_a < 0 or to_b < 0 or to_c < 0:
        return -1
    return (to_a * data.shape[1] + to_b) * data.shape[2] + to_c


@kernel
def kernel_draw(data, chain, i, mode, size, touched):
    """Evaluate the heavy displacements; draw a Poisson number of the others by alias table."""
    x, rest = chain.x, i // data.shape[2]
    a, b, c = rest // data.shape[1], rest % data.shape[1], i % data.shape[2]
    odds, spin = 1.0, size == 2 and mode == PRODUCTS
    for k in range(len(data.heavy)):
        other = neighbor(data, a, b, c, data.heavy[k, 0], data.heavy[k, 1], data.heavy[k, 2])
        if other >= 0:
            if spin and x[other] < 2:
                odds *= data.factor[k, x[other]]
            else:
                touched = touch(chain, mode, size, x[other], data.factor[k, 1], touched)
    if spin:
        chain.weights[1] *= odds
    chain.tally[EVALUATIONS] += len(data.heavy)
    draws = poisson(data.rate, data.none, chain.stream) if data.rate > 0.0 else 0
    center = (data.reach[0] * data.sides[1] + data.reach[1]) * data.sides[2] + data.reach[2]
    for _ in range(draws):
        place = draw_alias(data.tail, 0, len(data.tail), chain.stream)
        flat = center + abs(place)
        rest = flat // data.sides[2]
        step_c = flat % data.sides[2] - data.reach[2]
        step_b = rest % data.sides[1] - data.reach[1]
        step_a = rest // data.sides[1] - data.reach[0]
        if not data.periodic and next_word(chain.stream) & np.uint64(1):
            step_a, step_b, step_c = -step_a, -step_b, -step_c
        other = neighbor(data, a, b, c, step_a, step_b, step_c)
        if other >= 0:
            touched = touch_kept(data, chain, i, x[other], place > 0, mode, size, touched)
    chain.tally[DRAWS] += draws
    return touched


@kernel
def complete_draw(data, chain, i, mode, size, touched):
    """Draw a Poisson number of the other variables."""
    draws = poisson(data.rate, data.none, chain.stream) if data.rate > 0.0 else 0
    for _ in range(draws):
        other = below(chain.stream, data.variables - 1)
        other += other >= i
        value = chain.x[other]
        touched = touch_kept(data, chain, i, value, data.attracts, mode, size, touched)
    chain.tally[DRAWS] += draws
    return touched


@kernel
def low_rank_draw(data, chain, i, mode, size, touched):
    """Draw a Poisson number of variables by their bounds; each draw computes its own weight."""
    rate = (1.0 + data.theta) * data.total * data.bound[i]
    draws = poisson(rate, math.exp(-rate), chain.stream)
    for _ in range(draws):
        other = draw_alias(data.alias, 0, len(data.alias), chain.stream)
        if other == i:
            continue
        weight = 0.0
        for k in range(data.a.shape[1]):
            weight += data.a[i, k] * data.b[other, k] + data.a[other, k] * data.b[i, k]
        share = 0.5 * weight / (data.bound[i] * data.bound[other])  # relative to the bound, signed
        value = chain.x[other]
        on = (value == chain.x[i]) == (share > 0.0)
        if keep_share(chain, abs(share) if on else 0.0, data.theta):
            gain = abs(share) / data.theta
            if mode == SUMS:
                factor = math.copysign(math.log1p(gain), share)
            else:
                factor = 1.0 + gain if share > 0.0 else 1.0 / (1.0 + gain)
            touched = touch(chain, mode, size, value, factor, touched)
    chain.tally[DRAWS] += draws
    return touched


@kernel
def nothing_draw(data, chain, i, mode, size, touched):
    """Do nothing: there are no implicit groups."""
    return touched


@kernel
def several_draw(data, chain, i, mode, size, touched):
    """Draw from one group, then from the others; the order of the products does not matter."""
    touched = draw_implicit(data.group, chain, i, mode, size, touched)
    return draw_implicit(data.others, chain, i, mode, size, touched)


@kernel
def kernel_copy(data, copies, number):
    """Return a kernel's data for one of its copies."""
    rate = data.rate * copies.scales[number]
    return KernelData(
        data.shape,
        data.sides,
        data.reach,
        data.periodic,
        data.heavy,
        copies.factor[number],
        data.tail,
        rate,
        math.exp(-rate),
        data.keep,
        data.gain,
        data.loss,
    )


@kernel
def complete_copy(data, copies, number):
    """Return a complete graph's data for one of its copies."""
    rate, none = data.rate * copies.scales[number], math.exp(-data.rate * copies.scales[number])
    variables, attracts = data.variables, data.attracts
    return CompleteData(variables, attracts, rate, none, data.keep, data.gain, data.loss)


@kernel
def low_rank_copy(data, copies, number):
    """Return the data of low-rank draws for one copy."""
    total = data.total * copies.scales[number]
    return LowRankData(data.a, data.b, data.bound, total, data.alias, data.theta)


@kernel
def points_copy(data, copies, number):
    """Return the data of points for one copy."""
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
def projected_copy(data, copies, number):
    """Return the data of low rank by running sums for one copy, which has its own sums."""
    return ProjectedData(
        data.a,
        data.b,
        data.spins,
        data.alike,
        data.values,
        data.refresh,
        data.first + number * copies.room,
        copies.scales[number],
        False,
    )


@kernel
def _chain_of(data, chain, number):
    """Return the chain with a strided view of its state: the variables of one copy."""
    return Chain(
        chain.x[number :: len(data.scales)],
        chain.stream,
        chain.carried,
        chain.weights,
        chain.scratch,
        chain.tally,
    )


@kernel
def copied_draw(data, chain, i, mode, size, touched):
    """Draw from the group for the copy of the variable."""
    place, number = i // len(data.scales), i % len(data.scales)
    copy, own = copy_of(data.group, data, number), _chain_of(data, chain, number)
    return draw_implicit(copy, own, place, mode, size, touched)


@kernel
def copied_begin(data, chain):
    """Initialize one copy, then the others."""
    for number in range(len(data.scales)):
        begin_implicit(copy_of(data.group, data, number), _chain_of(data, chain, number))


@kernel
def copied_note(data, chain, i, new):
    """Update the running sums of the variable's copy."""
    place, number = i // len(data.scales), i % len(data.scales)
    copy, own = copy_of(data.group, data, number), _chain_of(data, chain, number)
    note_implicit(copy, own, place, new)


@kernel
def nothing_begin(data, chain):
    """Do nothing: no sums persist between updates."""


@kernel
def several_begin(data, chain):
    """Initialize one group, then the others."""
    begin_implicit(data.group, chain)
    begin_implicit(data.others, chain)


@kernel
def nothing_note(data, chain, i, new):
    """Do nothing: no sums persist between updates."""


@kernel
def several_note(data, chain, i, new):
    """Update the running sums of one group, then of the others."""
    note_implicit(data.group, chain, i, new)
    note_implicit(data.others, chain, i, new)


_PREPARE: dict[type, Callable[..., Any]] = {
    Kernel: _prepare_kernel,
    Complete: _prepare_complete,
    LowRank: _prepare_low_rank,
}
_COMPILED = {
    NothingData: nothing_draw,
    SeveralData: several_draw,
    KernelData: kernel_draw,
    CompleteData: complete_draw,
    LowRankData: low_rank_draw,
    PointsData: points_draw,
    ProjectedData: projected_draw,
    CopiedData: copied_draw,
}
_BEGIN = {
    SeveralData: several_begin,
    ProjectedData: projected_begin,
    CopiedData: copied_begin,
}
_NOTE = {SeveralData: several_note, ProjectedData: projected_note, CopiedData: copied_note}
_COPY = {
    KernelData: kernel_copy,
    CompleteData: complete_copy,
    LowRankData: low_rank_copy,
    PointsData: points_copy,
    ProjectedData: projected_copy,
}


def copy_of(data: Any, copies: Any, number: int) -> Any:
    """Return the data of one copy of a group, in the group's own type; compiled code only."""
    return _COPY[type(data)](data, copies, number)


@chosen_by_type(copy_of)
def _copy_for_type(data, copies, number):
    return _COPY[data.instance_class].py_func


def draw_implicit(data: Any, chain: Any, i: int, mode: int, size: int, touched: int) -> int:
    """Draw from the implicit groups and multiply the values they favor; compiled code only.

    Returns the number of touched values.
    """
    chosen = _COMPILED[type(data)]
    return chosen(data, chain, i, mode, size, touched)  # type: ignore[no-any-return]


@chosen_by_type(draw_implicit)
def _draw_for_type(data, chain, i, mode, size, touched):
    return _COMPILED[data.instance_class].py_func


def begin_implicit(data: Any, chain: Any) -> None:
    """Initialize the running sums of the implicit groups, for a new state; compiled code only."""
    _BEGIN.get(type(data), nothing_begin)(data, chain)


@chosen_by_type(begin_implicit)
def _begin_for_type(data, chain):
    return _BEGIN.get(data.instance_class, nothing_begin).py_func


def note_implicit(data: Any, chain: Any, i: int, new: int) -> None:
    """Update the groups' running sums for a value not yet in the state; compiled code only."""
    _NOTE.get(type(data), nothing_note)(data, chain, i, new)


@chosen_by_type(note_implicit)
def _note_for_type(data, chain, i, new):
    return _NOTE.get(data.instance_class, nothing_note).py_func
