"""How implicit groups are drawn.

Upper bounds on M are enough: a draw that turns out to be weaker than its bound, or no factor at all
(a neighbor off the grid, the variable itself), is thinned away.
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
    """Every factor is stored."""

    unused: int


class SeveralData(NamedTuple):
    """Several groups: each draws after the one before it."""

    group: Any
    others: Any  # one more group, or `SeveralData`


class CopiedData(NamedTuple):
    """A group, and by how much each of its copies is weaker."""

    group: Any
    scales: NDArray[np.float64]  # [copies]
    factor: NDArray[np.float64]  # [copies, heavy, 2]: `factor` of each copy of a `KernelData`
    room: int  # numbers that a chain carries for each copy


class KernelData(NamedTuple):
    """Displacements: heavy ones in a list, the rest in an alias table over the half table.

    A place counts from the center of the flat table; its sign is that of the weight.
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
    gain: float  # what a pair that attracts multiplies a weight by: 1 / keep, or its logarithm
    loss: float  # and one that repels: keep, or its logarithm


class CompleteData(NamedTuple):
    """Every other variable alike; the rest as in `KernelData`."""

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
    """Prepare the graph's implicit groups, if it has any, for weights or for their logarithms."""
    data: Any = NothingData(0)
    values = int(graph.sizes.max())
    first, scratch = (0, 0) if logs else touched_space(values)  # theirs comes after what is touched
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
    """One group; its numbers lie in what the chain carries from `first` on.

    `before` and `after` count the groups that draw before and after it.
    """
    if how.projected:
        assert isinstance(group, LowRank)
        return prepare_projected(group, values, first)
    if isinstance(group, Points):
        return prepare_points(group, how.theta, logs, scratch, others)
    return _PREPARE[type(group)](group, how, logs)


def _prepare_copied(group: Any, scales: NDArray[np.float64], logs: bool) -> CopiedData:
    """Copies of a group that is prepared already."""
    factor = np.zeros((len(scales), 0, 2))
    if isinstance(group, KernelData):
        by = scales[:, None, None]
        factor = group.factor * by if logs else group.factor**by
    return CopiedData(group, scales, factor, implicit_space(group)[0])


def implicit_space(data: Any) -> tuple[int, int]:
    """How many numbers a chain carries for the groups, and how many integers of scratch."""
    if isinstance(data, SeveralData):
        (carried, scratch), (more, other) = implicit_space(data.group), implicit_space(data.others)
        return carried + more, max(scratch, other)  # one group draws after the other
    if isinstance(data, CopiedData):
        return len(data.scales) * data.room, implicit_space(data.group)[1]
    if isinstance(data, PointsData):
        return 0, SCRATCH + data.before
    return (projected_room(data), 0) if isinstance(data, ProjectedData) else (0, 0)


def _tail(split: ImplicitSplit, logs: bool) -> tuple[float, float, float, float, float]:
    """Rate, none, keep, gain and loss, where all variables have the same tail."""
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
    """The alias table over what is not strong; filled piece by piece, since it may be huge."""
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
    """Displacements [place, 3] of places of the half table."""
    index = np.unravel_index(places + group.center + 1, group.sides)
    steps = np.stack([axis - reach for axis, reach in zip(index, group.reach, strict=True)], axis=1)
    return np.pad(steps, [(0, 0), (3 - len(group.shape), 0)]).astype(np.int64)


@kernel
def _move(at, step, side, periodic):
    """A coordinate after a step, or -1 if that leaves the grid."""
    to = at + step
    if periodic:
        return to - side if to >= side else to
    return to if 0 <= to < side else -1


@kernel
def neighbor(data, a, b, c, step_a, step_b, step_c):
    """The variable a step away from coordinates (a, b, c), or -1."""
    to_a = _move(a, step_a, data.shape[0], data.periodic)
    to_b = _move(b, step_b, data.shape[1], data.periodic)
    to_c = _move(c, step_c, data.shape[2], data.periodic)
    if to_a < 0 or to_b < 0 or to_c < 0:
        return -1
    return (to_a * data.shape[1] + to_b) * data.shape[2] + to_c


@kernel
def kernel_draw(data, chain, i, mode, size, touched):
    """Heavy displacements one by one; of the rest, a Poisson number by alias table."""
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
    """A Poisson number of the other variables."""
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
    """A Poisson number of variables by their bounds; each draw computes its own weight."""
    rate = (1.0 + data.theta) * data.total * data.bound[i]
    draws = poisson(rate, math.exp(-rate), chain.stream)
    for _ in range(draws):
        other = draw_alias(data.alias, 0, len(data.alias), chain.stream)
        if other == i:
            continue
        weight = 0.0
        for k in range(data.a.shape[1]):
            weight += data.a[i, k] * data.b[other, k] + data.a[other, k] * data.b[i, k]
        share = 0.5 * weight / (data.bound[i] * data.bound[other])  # of the bound, signed
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
    """Every factor is stored."""
    return touched


@kernel
def several_draw(data, chain, i, mode, size, touched):
    """One group, then the others: kept draws multiply weights, in whatever order."""
    touched = draw_implicit(data.group, chain, i, mode, size, touched)
    return draw_implicit(data.others, chain, i, mode, size, touched)


@kernel
def kernel_copy(data, copies, number):
    """A kernel's heavy displacements and tail, as weak as one of its copies."""
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
    """The same for a complete graph."""
    rate, none = data.rate * copies.scales[number], math.exp(-data.rate * copies.scales[number])
    variables, attracts = data.variables, data.attracts
    return CompleteData(variables, attracts, rate, none, data.keep, data.gain, data.loss)


@kernel
def low_rank_copy(data, copies, number):
    """The same for draws of low rank."""
    total = data.total * copies.scales[number]
    return LowRankData(data.a, data.b, data.bound, total, data.alias, data.theta)


@kernel
def points_copy(data, copies, number):
    """The same for points."""
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
    """The same for low rank by sums, of which each copy carries its own."""
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
    """A chain whose state is that of one copy."""
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
    """As the group draws, for the variable of one copy."""
    place, number = i // len(data.scales), i % len(data.scales)
    copy, own = copy_of(data.group, data, number), _chain_of(data, chain, number)
    return draw_implicit(copy, own, place, mode, size, touched)


@kernel
def copied_begin(data, chain):
    """One copy, then the others."""
    for number in range(len(data.scales)):
        begin_implicit(copy_of(data.group, data, number), _chain_of(data, chain, number))


@kernel
def copied_note(data, chain, i, new):
    """The copy that a variable belongs to."""
    place, number = i // len(data.scales), i % len(data.scales)
    copy, own = copy_of(data.group, data, number), _chain_of(data, chain, number)
    note_implicit(copy, own, place, new)


@kernel
def nothing_begin(data, chain):
    """It carries nothing."""


@kernel
def several_begin(data, chain):
    """One group, then the others."""
    begin_implicit(data.group, chain)
    begin_implicit(data.others, chain)


@kernel
def nothing_note(data, chain, i, new):
    """It carries nothing."""


@kernel
def several_note(data, chain, i, new):
    """One group, then the others."""
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
    """One of the copies of a group, as that group's own data; compiled code only."""
    return _COPY[type(data)](data, copies, number)


@chosen_by_type(copy_of)
def _copy_for_type(data, copies, number):
    return _COPY[data.instance_class].py_func


def draw_implicit(data: Any, chain: Any, i: int, mode: int, size: int, touched: int) -> int:
    """Let the implicit groups multiply the values they favor; compiled code only.

    Returns how many values are touched.
    """
    chosen = _COMPILED[type(data)]
    return chosen(data, chain, i, mode, size, touched)  # type: ignore[no-any-return]


@chosen_by_type(draw_implicit)
def _draw_for_type(data, chain, i, mode, size, touched):
    return _COMPILED[data.instance_class].py_func


def begin_implicit(data: Any, chain: Any) -> None:
    """Set what the implicit groups carry, for a fresh state; compiled code only."""
    _BEGIN.get(type(data), nothing_begin)(data, chain)


@chosen_by_type(begin_implicit)
def _begin_for_type(data, chain):
    return _BEGIN.get(data.instance_class, nothing_begin).py_func


def note_implicit(data: Any, chain: Any, i: int, new: int) -> None:
    """Tell the implicit groups a value that the state does not show yet; compiled code only."""
    _NOTE.get(type(data), nothing_note)(data, chain, i, new)


@chosen_by_type(note_implicit)
def _note_for_type(data, chain, i, new):
    return _NOTE.get(data.instance_class, nothing_note).py_func
