"""Free variables in the order in which a chromatic sweep visits them: their places.

Colors follow one another. Within a color, variables of equal size and degree stand together, in
blocks of up to 64, so that inner loops over the variables of a block are straight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph

BLOCK_SIZE = 64

# Variables of one color and degree, in consecutive places. Entry k of the variable in lane l
# (its place minus `first`) lies at entry + k * count + l.
PLACE_BLOCK = np.dtype(
    [
        ("entry", np.int64),
        ("first", np.int32),  # place
        ("count", np.int32),  # of variables
        ("degree", np.int32),  # entries of each
        ("size", np.int32),  # values of each
    ],
    align=True,
)


class Places(NamedTuple):
    """The variable at each place."""

    variable: NDArray[np.int32]  # [m] at each place
    place: NDArray[np.int32]  # [n] of each variable; -1 where it is clamped
    degree: NDArray[np.int32]  # [m] entries at each place
    ends: NDArray[np.int64]  # [colors + 1] where the places of each color begin
    blocks: NDArray[np.void]  # of PLACE_BLOCK
    block_ends: NDArray[np.int64]  # [colors + 1] where the blocks of each color begin


def order_places(graph: FactorGraph, degree: NDArray[np.integer]) -> Places:
    """Order the free variables by color, size, number of entries [n], and number."""
    color, count = graph.colors
    variable = np.lexsort((degree, graph.sizes, color)).astype(np.int32)
    variable = variable[np.count_nonzero(color < 0) :]
    place = np.full(len(color), -1, dtype=np.int32)
    place[variable] = np.arange(len(variable), dtype=np.int32)
    own, degrees = color[variable], np.asarray(degree)[variable].astype(np.int32)
    ends = np.searchsorted(own, np.arange(count + 1))
    blocks = _blocks(own, degrees, graph.sizes[variable])
    first_color = own[blocks["first"]] if len(blocks) else np.empty(0, np.int32)
    block_ends = np.searchsorted(first_color, np.arange(count + 1))
    return Places(
        variable, place, degrees, ends.astype(np.int64), blocks, block_ends.astype(np.int64)
    )


def _blocks(
    color: NDArray[np.int32], degree: NDArray[np.int32], size: NDArray[np.int32]
) -> NDArray[np.void]:
    """Cut places of one color, size and degree into blocks."""
    m = len(color)
    new = np.ones(m, dtype=bool)
    new[1:] = (np.diff(color) != 0) | (np.diff(degree) != 0) | (np.diff(size) != 0)
    run = np.flatnonzero(new)
    inside = np.arange(m) - np.repeat(run, np.diff(np.append(run, m)))
    first = np.flatnonzero(inside % BLOCK_SIZE == 0)
    blocks = np.zeros(len(first), dtype=PLACE_BLOCK)
    blocks["first"], blocks["count"] = first, np.diff(np.append(first, m))
    blocks["degree"], blocks["size"] = degree[first], size[first]
    sizes = blocks["count"].astype(np.int64) * blocks["degree"]
    blocks["entry"] = np.cumsum(sizes) - sizes
    return blocks


def entry_positions(places: Places) -> NDArray[np.int64]:
    """Where each entry goes, for entries listed place by place."""
    blocks = places.blocks
    block = np.repeat(np.arange(len(blocks)), blocks["count"])  # of each place
    lane = np.arange(len(places.variable)) - blocks["first"][block]
    first = blocks["entry"][block] + lane
    degree = places.degree
    owner = np.repeat(np.arange(len(degree)), degree)
    k = np.arange(len(owner)) - np.repeat(np.cumsum(degree, dtype=np.int64) - degree, degree)
    positions: NDArray[np.int64] = first[owner] + k * blocks["count"][block][owner]
    return positions
