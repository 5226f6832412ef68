"""Spins joined by pairs, by color: the arrays that every device reads.

The log-odds of value 1, in units of log 2, are `base` plus the `weight` of every neighbor with
value 1, added in the order of the entries. Clamped neighbors are included in `base`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.samplers.chromatic.places import entry_positions, order_places
from minigibbs.samplers.gibbs.sampler import sum_unary

LOG2_E = 1.4426950408889634
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
    return spin_layout(graph, heavy)[0]


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
    model, rows, evidence = graph.packed, graph.packed.rows, graph.evidence
    owner = np.repeat(np.arange(len(rows)), rows["pair_end"] - rows["start"])
    shift = (
        rows["start"]
        - (np.cumsum(rows["pair_end"] - rows["start"]))
        + (rows["pair_end"] - rows["start"])
    )
    pair = np.arange(len(owner)) + shift[owner] if len(owner) else np.empty(0, np.int64)
    if heavy is not None:
        owner, pair = owner[heavy[pair]], pair[heavy[pair]]
    target, weight = model.target[pair], model.weight[pair] * LOG2_E
    free = evidence[target] < 0
    unary = sum_unary(model)
    base = np.zeros(len(rows)) if not len(unary) else (unary[1::2] - unary[::2]) * LOG2_E
    clamped = np.where(evidence[target] == 1, weight, -weight)
    base = base + np.bincount(owner[~free], clamped[~free], minlength=len(rows))
    owner, target, weight, pair = owner[free], target[free], weight[free], pair[free]
    base = base - np.bincount(owner, weight, minlength=len(rows))
    degree = np.bincount(owner, minlength=len(rows))
    places = order_places(graph, degree)
    kind = np.float32 if _largest(base, owner, weight) <= SINGLE else np.float64
    by_place, positions = np.argsort(places.place[owner], kind="stable"), entry_positions(places)

    def laid(values: NDArray[Any], kind: Any) -> NDArray[Any]:
        """Move entries from the order of variables to the order of the blocks."""
        array = np.empty(len(by_place), kind)
        array[positions] = values[by_place]
        return array

    data = SpinColors(
        places.ends,
        places.blocks,
        places.block_ends,
        places.variable,
        base[places.variable].astype(kind),
        laid(places.place[target], np.uint32),
        laid(2.0 * weight, kind),
    )
    for array in data:
        array.setflags(write=False)
    return data, laid(pair, np.int64)


def _largest(base: NDArray[np.float64], owner: NDArray[Any], weight: NDArray[np.float64]) -> float:
    """Return the largest sum of absolute contributions to a variable's log-odds."""
    sizes = np.abs(base) + np.bincount(owner, 2.0 * np.abs(weight), minlength=len(base))
    return float(sizes.max(initial=0.0))
