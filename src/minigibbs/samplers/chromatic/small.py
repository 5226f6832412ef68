"""Small domains joined by pairs or by tables of two variables: the arrays that sweeps read.

Log weights are in units of log 2. An entry is a neighbor: it adds its weight to the log weight of
the neighbor's value (a pair), or it adds the neighbor's row of a table. Tables are stored once per
orientation of a template: [own value][neighbor's value], with 8 or 16 columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.samplers.chromatic.places import lay_entries, order_places
from minigibbs.samplers.chromatic.spins import LOG2_E, SINGLE
from minigibbs.samplers.gibbs.sampler import sum_unary

MOST_SMALL = 16  # values
MOST_TABLE = 4096.0  # largest log weight of tables: single precision keeps differences to 1e-3


class SmallColors(NamedTuple):
    """The arrays of variables with small domains, by color."""

    ends: NDArray[np.int64]  # [colors + 1] the first place of each color
    blocks: NDArray[np.void]  # of places.PLACE_BLOCK
    block_ends: NDArray[np.int64]  # [colors + 1] the first block of each color
    variable: NDArray[np.int32]  # [m] the variable at each place
    first: NDArray[np.int64]  # [m + 1] index of each place's first value
    base: NDArray[np.float32]  # [sum of sizes] log weights of unary factors and clamped neighbors
    target: NDArray[np.uint32]  # [entries] a neighbor's place
    weight: NDArray[np.float32]  # [entries] of a pair
    start: NDArray[np.int32]  # [entries] offset of a table; -1 for a pair
    table: NDArray[np.float32]  # followed by 16 padding numbers, which are read but not used
    stride: int  # distance of consecutive own values in a table


class Origins(NamedTuple):
    """Indices in a packed graph of the numbers of a layout, and their scales."""

    entry: NDArray[np.int64]  # [entries] in `packed.weight`
    entry_scale: NDArray[np.float64]  # [entries] 0 for tables
    cell: NDArray[np.int64]  # [as `SmallColors.table`] in `packed.table`
    cell_scale: NDArray[np.float64]  # 0 for padding


class _Entries(NamedTuple):
    """Neighbors, listed by owner."""

    owner: NDArray[np.int64]
    target: NDArray[np.int64]
    entry: NDArray[np.int64]  # index in the rows
    weight: NDArray[np.float64]
    start: NDArray[np.int64]  # -1 for pairs


def _join(some: _Entries, more: _Entries) -> _Entries:
    return _Entries(
        np.concatenate([some.owner, more.owner]),
        np.concatenate([some.target, more.target]),
        np.concatenate([some.entry, more.entry]),
        np.concatenate([some.weight, more.weight]),
        np.concatenate([some.start, more.start]),
    )


def _some(entries: _Entries, which: NDArray[Any]) -> _Entries:
    owner, target, entry, weight, start = entries
    return _Entries(owner[which], target[which], entry[which], weight[which], start[which])


def centered(base: NDArray[np.float64], first: NDArray[np.int64]) -> NDArray[np.float64]:
    """Subtract each variable's largest log weight where it is too large for single precision.

    Parameters
    ----------
    base : array [sum of sizes]
        Log weights to base 2.
    first : array [variable]
        Index of each variable's first value.

    Returns
    -------
    array [sum of sizes]
        Log weights that give the same conditional distributions.
    """
    top = np.maximum.reduceat(base, first)
    shift = np.where(np.abs(top) > SINGLE, top, 0.0)
    if not shift.any():
        return base
    sizes = np.diff(np.append(first, len(base)))
    moved: NDArray[np.float64] = base - np.repeat(shift, sizes)
    return moved


def small_colors(graph: FactorGraph, heavy: NDArray[np.bool_] | None = None) -> SmallColors:
    """Lay out the pairs and tables of a compatible graph, or only the `heavy` pairs."""
    return small_layout(graph, heavy)[0]


def small_layout(
    graph: FactorGraph, heavy: NDArray[np.bool_] | None = None
) -> tuple[SmallColors, Origins]:
    """Lay out pairs and tables, and return the origins of their numbers.

    Parameters
    ----------
    graph : FactorGraph
        Small domains joined by pairs and tables of two.
    heavy : array of bool or None
        Entries of the rows to lay out if they are pairs; by default all.

    Returns
    -------
    data : SmallColors
        The arrays that sweeps read.
    origins : Origins
        The corresponding numbers of the packed graph.
    """
    model, evidence = graph.packed, graph.evidence
    pairs, (tables, cells, scales) = _pairs(graph, heavy), _tables(graph)
    table = model.table[cells] * scales
    every = _join(pairs, tables)
    unary = sum_unary(model)
    base = (unary if len(unary) else np.zeros(int(graph.sizes.sum(dtype=np.int64)))) * LOG2_E
    free = evidence[every.target] < 0
    _fold_clamped(graph, base, _some(every, ~free), table)
    base = centered(base, model.first)
    entries = _some(every, free)
    if len(tables.owner):  # pairs come first; a variable's entries must follow one another
        entries = _some(entries, np.argsort(entries.owner, kind="stable"))
    degree = np.bincount(entries.owner, minlength=len(graph))
    places = order_places(graph, degree)
    scale = np.where(entries.start < 0, LOG2_E, 0.0)  # tables add nothing to a pair's weight
    target, weight, start, entry, entry_scale = lay_entries(
        places,
        np.cumsum(degree) - degree,
        (places.place[entries.target], entries.weight, entries.start, entries.entry, scale),
        (np.uint32, np.float32, np.int32, np.int64, np.float64),
    )
    sizes = graph.sizes[places.variable].astype(np.int64)
    first = np.concatenate([[0], np.cumsum(sizes)])
    own = np.repeat(model.first[places.variable] - first[:-1], sizes) + np.arange(first[-1])
    data = SmallColors(
        places.ends,
        places.blocks,
        places.block_ends,
        places.variable,
        first,
        base[own].astype(np.float32),
        target,
        weight,
        start,
        np.concatenate([table, np.zeros(MOST_SMALL)]).astype(np.float32),
        _stride(graph),
    )
    for part in data[:-1]:
        part.setflags(write=False)  # type: ignore[union-attr]
    padded = np.concatenate([cells, np.zeros(MOST_SMALL, np.int64)])
    return data, Origins(
        entry=entry,
        entry_scale=entry_scale,
        cell=padded,
        cell_scale=np.concatenate([scales, np.zeros(MOST_SMALL)]),
    )


def _stride(graph: FactorGraph) -> int:
    return 8 if int(graph.sizes.max()) <= 8 else MOST_SMALL


def _pairs(graph: FactorGraph, heavy: NDArray[np.bool_] | None) -> _Entries:
    """List the pairs at each free variable: all, or the heavy ones."""
    model, rows = graph.packed, graph.packed.rows
    count = rows["pair_end"] - rows["start"]
    owner = np.repeat(np.arange(len(rows)), count)
    place = np.arange(len(owner)) + np.repeat(rows["start"] - (np.cumsum(count) - count), count)
    if heavy is not None:
        owner, place = owner[heavy[place]], place[heavy[place]]
    weight = model.weight[place] * LOG2_E
    target = model.target[place].astype(np.int64)
    return _Entries(owner, target, place, weight, np.full(len(owner), -1))


def _tables(graph: FactorGraph) -> tuple[_Entries, NDArray[np.int64], NDArray[np.float64]]:
    """List the tables of two variables at each free one, in the order of rows; see `_oriented`."""
    model, rows = graph.packed, graph.packed.rows
    count = rows["unary_begin"] - rows["pair_end"]
    owner = np.repeat(np.arange(len(rows)), count)
    place = np.arange(len(owner)) + np.repeat(rows["pair_end"] - (np.cumsum(count) - count), count)
    factors = model.factors[model.target[place]]
    a, b = model.slots[factors["scope_start"]], model.slots[factors["scope_end"] - 1]
    second = (a["variable"] != owner).astype(np.int64)  # 1 if the owner is the second variable
    target = np.where(second, a["variable"], b["variable"]).astype(np.int64)
    uses = np.stack(
        [factors["table_start"], factors["weight"].view(np.int64), second, graph.sizes[owner]], 1
    ).astype(np.int64)
    if not len(uses):
        none = np.zeros(0, np.int64)
        return _Entries(owner, target, place, np.zeros(0), none), none, np.zeros(0)
    first, use = _distinct(uses)
    starts, cells, scales = _oriented(
        graph, factors[first], owner[first], target[first], second[first]
    )
    return _Entries(owner, target, place, np.zeros(len(owner)), starts[use]), cells, scales


def _distinct(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first row of each distinct kind, in sorted order, and the kind of each row."""
    order = np.lexsort(rows.T[::-1])  # stable, and far faster than `np.unique` of whole rows
    other = np.ones(len(rows), dtype=np.bool_)
    other[1:] = (rows[order[1:]] != rows[order[:-1]]).any(axis=1)
    kind = np.empty(len(rows), dtype=np.int64)
    kind[order] = np.cumsum(other) - 1
    return order[other], kind


def _oriented(
    graph: FactorGraph,
    factors: NDArray[np.void],
    owner: NDArray[np.int64],
    target: NDArray[np.int64],
    second: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Lay out the tables of some factors as [own value][other's value]; return their offsets.

    Also returns each number's cell of `packed.table` and its scale, which is 0 for padding.
    """
    stride, rows = _stride(graph), graph.sizes[owner].astype(np.int64)
    columns = graph.sizes[target].astype(np.int64)
    starts = np.cumsum(rows * stride) - rows * stride
    cells = np.zeros(int(rows.sum()) * stride, np.int64)
    scales = np.zeros(len(cells))
    begin, scale = factors["table_start"], factors["weight"] * LOG2_E
    shapes = np.stack([rows, columns, second], axis=1)
    for d, e, turned in shapes[_distinct(shapes)[0]].tolist():
        some = np.flatnonzero((shapes == [d, e, turned]).all(axis=1))
        inside = np.arange(d * e).reshape(e, d).T if turned else np.arange(d * e).reshape(d, e)
        place = (starts[some][:, None, None] + stride * np.arange(d)[:, None]) + np.arange(e)
        cells[place] = begin[some][:, None, None] + inside
        scales[place] = scale[some][:, None, None]
    return starts, cells, scales


def _fold_clamped(
    graph: FactorGraph, base: NDArray[np.float64], entries: _Entries, table: NDArray[Any]
) -> None:
    """Add the contributions of clamped neighbors to the log weights of unary factors."""
    first, sizes = graph.packed.first, graph.sizes
    value = graph.evidence[entries.target].astype(np.int64)
    size = sizes[entries.owner].astype(np.int64)
    pair = (entries.start < 0) & (value < size)
    np.add.at(base, first[entries.owner[pair]] + value[pair], entries.weight[pair])
    rows = entries.start >= 0
    for v in range(int(sizes.max())):
        some = rows & (v < size)
        worth = table[entries.start[some] + v * _stride(graph) + value[some]]
        np.add.at(base, first[entries.owner[some]] + v, worth)
