"""Spins joined by pairs, by color: the arrays that every device reads.

The log-odds of value 1, in units of log 2, are `base` plus the `weight` of every neighbor with
value 1, added in the order of the entries. Clamped neighbors are included in `base`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import sum_pairs
from minigibbs.kernels.jit import literal_entry
from minigibbs.samplers.chromatic.places import in_parts, lay_entries, order_places
from minigibbs.samplers.gibbs.sampler import sum_unary

LOG2_E = 1.4426950408889634
_WORTH = 1 << 20  # entries that justify a thread
SINGLE = 64.0  # largest log-odds, in units of log 2, for which single precision suffices


class SpinColors(NamedTuple):
    """The arrays of spins by color, in double precision if log-odds are large."""

    ends: NDArray[np.int64]  # [colors + 1] the first place of each color
    blocks: NDArray[np.void]  # of places.PLACE_BLOCK
    block_ends: NDArray[np.int64]  # [colors + 1] the first block of each color
    variable: NDArray[np.int32]  # [m] the variable at each place
    base: NDArray[np.floating]  # [m] log-odds with all neighbors at 0
    target: NDArray[np.uint32]  # [entries] a neighbor's place
    weight: NDArray[np.floating]  # [entries] added if the neighbor is 1


def spin_colors(graph: FactorGraph, heavy: NDArray[np.bool_] | None = None) -> SpinColors:
    """Lay out the pairs of a graph of spins, or only the `heavy` ones."""
    if heavy is None and graph.free == len(graph):
        data = _all_pairs(graph)
        if data is not None:
            return data
    return spin_layout(graph, heavy)[0]


def _read_only(places: Any, base: Any, target: Any, weight: Any) -> SpinColors:
    """Gather the arrays of a layout, which nothing may change."""
    data = SpinColors(
        places.ends, places.blocks, places.block_ends, places.variable, base, target, weight
    )
    for array in data:
        array.setflags(write=False)
    return data


def _all_pairs(graph: FactorGraph) -> SpinColors | None:
    """Lay out all pairs of a graph without evidence in two passes; None if rows are long.

    The result is that of `spin_layout`, without arrays of the entries' origins.
    """
    model = graph.packed
    sums, sizes = np.empty(len(graph)), np.empty(len(graph))
    if not sum_pairs(model.rows, model.weight, LOG2_E, False, sums):
        return None
    sum_pairs(model.rows, model.weight, LOG2_E, True, sizes)
    unary = sum_unary(model)
    base = np.zeros(len(graph)) if not len(unary) else (unary[1::2] - unary[::2]) * LOG2_E
    base -= sums
    sizes *= 2.0
    sizes += np.abs(base)
    kind = np.float32 if float(sizes.max(initial=0.0)) <= SINGLE else np.float64
    places = order_places(graph, model.rows["pair_end"] - model.rows["start"])
    total = int((places.blocks["count"].astype(np.int64) * places.blocks["degree"]).sum())
    target = np.empty(total, np.uint32)
    weight: NDArray[Any] = np.empty(total, kind)
    in_parts(
        lambda first, last: _lay_pairs(
            model, places.blocks[first:last], places.variable, places.place, target, weight
        ),
        len(places.blocks),
        total // _WORTH,
    )
    return _read_only(places, base[places.variable].astype(kind), target, weight)


@literal_entry
def _lay_pairs(model, blocks, variable, place, target, weight):
    """Write the pairs of some blocks."""
    for b in range(len(blocks)):
        block = blocks[b]
        for lane in range(block.count):
            begin = model.rows[variable[block.first + lane]].start
            for k in range(block.degree):
                out = block.entry + k * block.count + lane
                target[out] = place[model.target[begin + k]]
                weight[out] = 2.0 * (LOG2_E * model.weight[begin + k])


def spin_layout(
    graph: FactorGraph, heavy: NDArray[np.bool_] | None = None
) -> tuple[SpinColors, NDArray[np.int64]]:
    """Lay out the pairs of a graph of spins, and return the origins of their weights.

    Parameters
    ----------
    graph : FactorGraph
        Spins joined by pairs.
    heavy : array of bool or None
        Entries of the rows to lay out; by default all.

    Returns
    -------
    data : SpinColors
        The arrays that sweeps read.
    origin : array [entry]
        For each number of `data.weight` its entry of `graph.packed.weight`.
    """
    entries = _pairs(graph, heavy)
    unary, count = sum_unary(graph.packed), len(graph)
    base = np.zeros(count) if not len(unary) else (unary[1::2] - unary[::2]) * LOG2_E
    if entries.clamped is not None:
        owner, values = entries.clamped
        base = base + np.bincount(owner, values, minlength=count)
    end = np.cumsum(entries.degree, dtype=np.int64)
    begin, filled = end - entries.degree, entries.degree > 0
    sums = np.zeros((2, count))
    if len(entries.weight):
        sums[0, filled] = np.add.reduceat(entries.weight, begin[filled])
        sums[1, filled] = np.add.reduceat(np.abs(entries.weight), begin[filled])
    base = base - sums[0]
    places = order_places(graph, entries.degree)
    largest = float((np.abs(base) + 2.0 * sums[1]).max(initial=0.0))
    kind = np.float32 if largest <= SINGLE else np.float64
    target, weight, origin = lay_entries(
        places,
        begin,
        (places.place[entries.target], 2.0 * entries.weight, entries.pair),
        (np.uint32, kind, np.int64),
    )
    return _read_only(places, base[places.variable].astype(kind), target, weight), origin


class _Pairs(NamedTuple):
    """Pairs of free variables by owner, in both directions."""

    degree: NDArray[np.integer]  # [n] pairs of each variable
    target: NDArray[np.int32]  # [pairs] the other variable
    weight: NDArray[np.float64]  # [pairs] in units of log 2
    pair: NDArray[np.int64]  # [pairs] entry of the rows
    clamped: tuple[NDArray[Any], NDArray[np.float64]] | None  # owners, log-odds that they get


def _pairs(graph: FactorGraph, heavy: NDArray[np.bool_] | None) -> _Pairs:
    """List the pairs of a graph, or the `heavy` ones among all entries."""
    model, rows, evidence = graph.packed, graph.packed.rows, graph.evidence
    degree = rows["pair_end"] - rows["start"]
    if len(model.target) == degree.sum(dtype=np.int64):  # there are no other entries
        pair = np.arange(len(model.target))
    else:
        shift = rows["start"] - (np.cumsum(degree, dtype=np.int64) - degree)
        pair = np.repeat(shift, degree) + np.arange(degree.sum(dtype=np.int64))
    everything = heavy is None or bool(heavy[pair].all())
    if everything and graph.free == len(graph):
        whole = len(pair) == len(model.target)
        target = model.target if whole else model.target[pair]
        weight = model.weight if whole else model.weight[pair]
        return _Pairs(degree, target, weight * LOG2_E, pair, None)
    owner = np.repeat(np.arange(len(rows)), degree)
    if not everything:
        assert heavy is not None
        owner, pair = owner[heavy[pair]], pair[heavy[pair]]
    target, weight = model.target[pair], model.weight[pair] * LOG2_E
    free = evidence[target] < 0
    values = np.where(evidence[target] == 1, weight, -weight)[~free]
    degree = np.bincount(owner[free], minlength=len(rows))
    return _Pairs(degree, target[free], weight[free], pair[free], (owner[~free], values))
