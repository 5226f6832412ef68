"""`Copied` groups: one scaled copy of a group per temperature."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.implicit.copied import Copied
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import Chain
from minigibbs.samplers.poisson_gibbs.groups.base import (
    KINDS,
    Draws,
    ImplicitSplit,
    Kind,
    Place,
    Wish,
    begin_implicit,
    copy_of,
    draw_implicit,
    implicit_space,
    note_implicit,
    register_draws,
    register_kind,
    split_implicit,
)
from minigibbs.samplers.poisson_gibbs.groups.kernel import KernelData, copied_factors


class CopiedData(NamedTuple):
    """A prepared group, and the scale of each copy."""

    group: Any
    scales: NDArray[np.float64]  # [copies]
    factor: NDArray[np.float64]  # [copies, heavy, 2] `factor` of each copy of a `KernelData`
    room: int  # length of a copy's part of the chain's `carried` array


def split(group: Copied, wish: Wish) -> ImplicitSplit:
    """Split the copied group, whose bounds hold for every copy; weaker copies draw less."""
    own = split_implicit(group.group, wish)
    return replace(own, draws=own.draws * float(group.scales.mean()))


def prepare(group: Copied, how: ImplicitSplit, place: Place) -> CopiedData:
    """Prepare the data of draws."""
    one = KINDS[type(group.group)].prepare(group.group, how, place)
    factor = np.zeros((len(group.scales), 0, 2))
    if isinstance(one, KernelData):
        factor = copied_factors(one, group.scales, place.logs)
    return CopiedData(one, group.scales, factor, implicit_space(one)[0])


def space(data: CopiedData) -> tuple[int, int]:
    """Return the lengths of the copies' parts of `carried`, and of the scratch that they share."""
    return len(data.scales) * data.room, implicit_space(data.group)[1]


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
    """Initialize the running sums of each copy."""
    for number in range(len(data.scales)):
        begin_implicit(copy_of(data.group, data, number), _chain_of(data, chain, number))


@kernel
def copied_note(data, chain, i, new):
    """Update the running sums of the variable's copy."""
    place, number = i // len(data.scales), i % len(data.scales)
    copy, own = copy_of(data.group, data, number), _chain_of(data, chain, number)
    note_implicit(copy, own, place, new)


register_kind(Copied, Kind(split, prepare, energy=None, energy_cost=None))
register_draws(CopiedData, Draws(copied_draw, begin=copied_begin, note=copied_note, space=space))
