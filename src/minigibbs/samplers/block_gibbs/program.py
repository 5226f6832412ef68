"""Elimination programs: clique, factors and message of each variable of a block.

A step's table over its clique has the variable's own values in the fastest axis. It sums the
factors that contain the variable and no earlier one, and the messages of earlier steps. It is then
summed over the variable and sent to the first of the clique's other variables. All numbers are
logarithms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import entry, inlined, kernel
from minigibbs.samplers.block_gibbs.covers import Blocks

# The elimination of one variable.
STEP = np.dtype(
    [
        ("member_start", np.int64),  # its clique, [member_start, member_end), the variable first
        ("member_end", np.int64),
        ("table", np.int64),  # offset of its table
        ("entries", np.int64),
        ("item_start", np.int64),  # its factors
        ("item_end", np.int64),
        ("target", np.int64),  # the step that receives its message; -1 if it has none
        ("stride_start", np.int64),  # the message's stride for each member of the target's clique
        ("variable", np.int32),
        ("size", np.int32),
    ],
    align=True,
)
# A variable of a clique, and its stride in the step's table.
MEMBER = np.dtype([("variable", np.int32), ("size", np.int32), ("stride", np.int64)], align=True)
# A factor. A pair with variable `other`, at `axis` of the clique or outside of it (-1). If axis is
# GENERAL: factor number `other`, whose slots have axes from `axis_start` on.
ITEM = np.dtype(
    [
        ("weight", np.float64),
        ("axis_start", np.int64),
        ("other", np.int32),
        ("axis", np.int32),
    ],
    align=True,
)
OUTSIDE = -1
GENERAL = -2


class BlockData(NamedTuple):
    """Covers, their blocks, and the steps of the blocks."""

    cover_end: NDArray[np.int64]  # [covers] the block after each cover's last
    block_end: NDArray[np.int64]  # [blocks] the step after each block's last
    steps: NDArray[np.void]  # of STEP
    members: NDArray[np.void]  # of MEMBER
    items: NDArray[np.void]  # of ITEM
    axes: NDArray[np.int32]  # of slots: index in the clique, or OUTSIDE
    strides: NDArray[np.int64]  # of messages
    numbers: int  # length of a block's tables and a message
    widest: int  # members of the largest clique


def program(graph: FactorGraph, covers: list[Blocks]) -> BlockData:
    """Compile the covers to elimination programs."""
    variable = np.concatenate([cover.variable for cover in covers])
    parents = np.concatenate([cover.parents for cover in covers])
    firsts = np.cumsum([0, *(len(cover.variable) for cover in covers[:-1])])
    block_end = np.concatenate(
        [cover.end + first for cover, first in zip(covers, firsts, strict=True)]
    )
    steps = np.zeros(len(variable), dtype=STEP)
    steps["variable"], steps["size"] = variable, graph.sizes[variable]
    steps["member_end"] = np.cumsum(1 + (parents >= 0).sum(axis=1))
    steps["member_start"][1:] = steps["member_end"][:-1]
    members = np.zeros(int(steps["member_end"][-1]) if len(steps) else 0, dtype=MEMBER)
    position = np.full(len(graph), -1, dtype=np.int64)
    counts, sizes = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
    _lay_cliques(graph.packed, block_end, parents, steps, members, position, sizes)
    nothing = np.empty(0, ITEM), np.empty(0, np.int32)
    _lay_items(graph.packed, block_end, steps, members, position, counts, *nothing)
    items, axes = np.empty(counts[0], ITEM), np.empty(counts[1], np.int32)
    if len(items):
        _lay_items(graph.packed, block_end, steps, members, position, counts, items, axes)
    cliques = np.diff(steps["member_end"], prepend=0)
    sends = steps["target"] >= 0
    lengths = np.where(sends, cliques[steps["target"]], 0)
    steps["stride_start"] = np.cumsum(lengths) - lengths
    strides = np.zeros(int(lengths.sum()), dtype=np.int64)
    _lay_strides(steps, members, strides)
    return BlockData(
        cover_end=np.cumsum([len(cover.end) for cover in covers], dtype=np.int64),
        block_end=block_end,
        steps=steps,
        members=members,
        items=items,
        axes=axes,
        strides=strides,
        numbers=int(sizes[0] + sizes[1]),
        widest=int(cliques.max(initial=1)),
    )


@inlined
def _sorted_members(steps, members, s, parents, position):
    """Write a step's clique: the variable, then the others in the order of elimination."""
    start = steps[s].member_start
    members[start].variable = steps[s].variable
    place = start + 1
    for k in range(parents.shape[1]):
        p = parents[s, k]
        if p >= 0:
            at = place
            while at > start + 1 and position[members[at - 1].variable] > position[p]:
                members[at].variable = members[at - 1].variable
                at -= 1
            members[at].variable = p
            place += 1


@entry
def _lay_cliques(model, block_end, parents, steps, members, position, sizes):
    """Lay out cliques, tables and message targets; `sizes` gets the largest tables and message."""
    begin = 0
    for block in range(len(block_end)):
        for s in range(begin, block_end[block]):
            position[steps[s].variable] = s
        table = 0
        for s in range(begin, block_end[block]):
            step = steps[s]
            _sorted_members(steps, members, s, parents, position)
            stride = 1
            for k in range(step.member_start, step.member_end):
                members[k].size = model.rows[members[k].variable].domain
                members[k].stride = stride
                stride *= members[k].size
            step.table, step.entries = table, stride
            table += stride
            sizes[1] = max(sizes[1], stride // step.size)
            step.target = -1
            if step.member_end > step.member_start + 1:
                step.target = position[members[step.member_start + 1].variable]
        sizes[0] = max(sizes[0], table)
        begin = block_end[block]
    for k in range(len(position)):
        position[k] = -1


@kernel
def _axis(steps, members, s, variable):
    """Return the index of a variable in a step's clique, or OUTSIDE."""
    for k in range(steps[s].member_start, steps[s].member_end):
        if members[k].variable == variable:
            return k - steps[s].member_start
    return OUTSIDE


@entry
def _lay_items(model, block_end, steps, members, position, counts, items, axes):
    """Count factors and slots, or store them; a factor belongs to its first eliminated variable."""
    filling, begin = len(items) > 0, 0
    counts[0] = counts[1] = 0
    for block in range(len(block_end)):
        for s in range(begin, block_end[block]):
            position[steps[s].variable] = s
        for s in range(begin, block_end[block]):
            steps[s].item_start = counts[0]
            _lay_step(model, steps, members, position, s, counts, items, axes, filling)
            steps[s].item_end = counts[0]
        for s in range(begin, block_end[block]):
            position[steps[s].variable] = -1
        begin = block_end[block]


@inlined
def _lay_step(model, steps, members, position, s, counts, items, axes, filling):
    row = model.rows[steps[s].variable]
    for place in range(row.start, row.pair_end):
        other = model.target[place]
        if position[other] < 0 or position[other] > s:
            if filling:
                item = items[counts[0]]
                item.weight, item.other, item.axis_start = model.weight[place], other, 0
                item.axis = OUTSIDE if position[other] < 0 else _axis(steps, members, s, other)
            counts[0] += 1
    for place in range(row.pair_end, row.end):
        factor = model.factors[model.target[place]]
        first = True
        for k in range(factor.scope_start, factor.scope_end):
            at = position[model.slots[k].variable]
            first = first and (at < 0 or at >= s)
        if first:
            if filling:
                item = items[counts[0]]
                item.weight, item.other = factor.weight, model.target[place]
                item.axis, item.axis_start = GENERAL, counts[1]
            for k in range(factor.scope_start, factor.scope_end):
                if filling:
                    axes[counts[1]] = _axis(steps, members, s, model.slots[k].variable)
                counts[1] += 1
            counts[0] += 1


@entry
def _lay_strides(steps, members, strides):
    """Compute the stride in a message of each member of the target's clique; 0 if it is absent."""
    for s in range(len(steps)):
        step = steps[s]
        if step.target >= 0:
            begin = steps[step.target].member_start
            for k in range(begin, steps[step.target].member_end):
                axis = _axis(steps, members, s, members[k].variable)
                if axis > 0:
                    place = step.stride_start + k - begin
                    strides[place] = members[step.member_start + axis].stride // step.size
