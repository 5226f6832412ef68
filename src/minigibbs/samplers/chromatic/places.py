"""Places: the order in which a chromatic sweep visits the free variables.

Colors are consecutive. Within a color, variables of equal size and degree are consecutive, in
blocks of up to 64, so that inner loops over the variables of a block have no branches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph

BLOCK_SIZE = 64

# Variables of one color and degree, in consecutive places. Entry k of the variable in lane l (its
# place minus `first`) has index entry + k * count + l.
PLACE_BLOCK = np.dtype(
    [
        ("entry", np.int64),
        ("first", np.int32),  # the first place
        ("count", np.int32),  # of variables
        ("degree", np.int32),  # entries per variable
        ("size", np.int32),  # values per variable
    ],
    align=True,
)


class Places(NamedTuple):
    """The order of the free variables, with its colors and blocks."""

    variable: NDArray[np.int32]  # [m] the variable at each place
    place: NDArray[np.int32]  # [n] the place of each variable; -1 if it is clamped
    degree: NDArray[np.int32]  # [m] entries at each place
    ends: NDArray[np.int64]  # [colors + 1] the first place of each color
    blocks: NDArray[np.void]  # of PLACE_BLOCK
    block_ends: NDArray[np.int64]  # [colors + 1] the first block of each color


def order_places(graph: FactorGraph, degree: NDArray[np.integer]) -> Places:
    """Order the free variables by color, size, number of entries [n], and index."""
    color, count = graph.colors
    variable = _sorted((color, graph.sizes, degree))
    variable = variable[np.count_nonzero(color < 0) :]
    place = np.full(len(color), -1, dtype=np.int32)
    place[variable] = np.arange(len(variable), dtype=np.int32)
    own, degrees = color[variable], np.asarray(degree)[variable].astype(np.int32)
    ends = np.searchsorted(own, np.arange(count + 1))
    blocks = blocks_of(own, degrees, graph.sizes[variable])
    first_color = own[blocks["first"]] if len(blocks) else np.empty(0, np.int32)
    block_ends = np.searchsorted(first_color, np.arange(count + 1))
    return Places(
        variable, place, degrees, ends.astype(np.int64), blocks, block_ends.astype(np.int64)
    )


def _sorted(keys: Sequence[NDArray[np.integer]]) -> NDArray[np.int32]:
    """Return a stable order by several keys, the first one being the most important."""
    order = np.arange(len(keys[0]), dtype=np.int32)
    for key in reversed(keys):
        low, high = int(key.min(initial=0)), int(key.max(initial=0))
        if (key == key[:1]).all():  # as on a lattice
            continue
        small = (key - low).astype(np.min_scalar_type(high - low))  # NumPy counts small integers
        order = order[np.argsort(small[order], kind="stable")]
    return order


def blocks_of(
    color: NDArray[np.integer], degree: NDArray[np.integer], size: NDArray[np.integer]
) -> NDArray[np.void]:
    """Divide places of one color, size and degree into blocks."""
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


def lay_entries(
    places: Places, begin: NDArray[np.integer], arrays: Sequence[NDArray[Any]], kinds: Sequence[Any]
) -> list[NDArray[Any]]:
    """Put entries that are listed by variable where the blocks have them.

    Blocks of one color, size and degree follow one another. A full block of them is the transpose
    of a matrix [place, entry], so that entries are gathered run by run, without a sort.

    Parameters
    ----------
    places : Places
        The order of the variables, and their blocks.
    begin : array [n]
        Index of each variable's first entry in the arrays.
    arrays : sequence of array
        Values by entry.
    kinds : sequence of dtype
        Types of the results.

    Returns
    -------
    list of array
        The same values by position in the blocks.
    """
    first, count, degree = (places.blocks[name] for name in ("first", "count", "degree"))
    total = int((count.astype(np.int64) * degree).sum())
    laid = [np.empty(total, kind) for kind in kinds]
    for run in np.split(np.arange(len(first)), np.flatnonzero(_new_runs(places)))[1:]:
        width, entry = int(degree[run[0]]), int(places.blocks["entry"][run[0]])
        for part in (run[:-1], run[-1:]):  # all blocks but the last are full
            if not len(part) or not width:
                continue
            places_of = slice(int(first[part[0]]), int(first[part[-1]] + count[part[-1]]))
            index = begin[places.variable[places_of]][:, None] + np.arange(width)
            shape = (len(part), int(count[part[0]]), width)
            for values, out in zip(arrays, laid, strict=True):
                blocks = values[index].reshape(shape).transpose(0, 2, 1)
                out[entry : entry + index.size].reshape(shape[0], width, shape[1])[:] = blocks
            entry += index.size
    return laid


def in_parts(work: Callable[[int, int], Any], count: int, most: int) -> None:
    """Call a compiled function on parts of a range, on up to `most` threads.

    Parameters
    ----------
    work : callable
        `work(first, last)`; it must release the lock of the interpreter.
    count : int
        Length of the range.
    most : int
        Number of threads that the work justifies.
    """
    parts = max(min(os.cpu_count() or 1, most, count), 1)
    cuts = [count * k // parts for k in range(parts + 1)]
    work(cuts[0], cuts[1])  # compiles the function before the threads start
    if parts > 1:
        with ThreadPoolExecutor(parts) as pool:
            list(pool.map(lambda part: work(*part), pairwise(cuts[1:])))


def _new_runs(places: Places) -> NDArray[np.bool_]:
    """Return which blocks begin another color, size or degree than the block before."""
    blocks, new = places.blocks, np.ones(len(places.blocks), dtype=bool)
    new[1:] = (np.diff(blocks["degree"]) != 0) | (np.diff(blocks["size"]) != 0)
    new[places.block_ends[:-1][places.block_ends[:-1] < len(new)]] = True
    return new
