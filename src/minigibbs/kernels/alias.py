"""Alias tables: a draw from any finite distribution in constant time (Walker 1974, Vose 1991)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.jit import entry, inlined
from minigibbs.kernels.layout import ALIAS
from minigibbs.kernels.random import below, uniform


@inlined
def build_alias(table, start, end, scratch):
    """Convert entries with a weight in `accept` and an outcome in `place` to an alias table.

    The entries are [start, end); `scratch` has at least as many integers.
    """
    count, total = end - start, 0.0
    for k in range(start, end):
        total += table[k].accept
    small, large = 0, count  # two stacks that grow towards each other
    for k in range(start, end):
        slot = table[k]
        slot.accept *= count / total
        slot.other = slot.place
        if slot.accept < 1.0:
            scratch[small] = k
            small += 1
        else:
            large -= 1
            scratch[large] = k
    while small > 0 and large < count:
        small -= 1
        poor, rich = table[scratch[small]], table[scratch[large]]
        poor.other = rich.place
        rich.accept -= 1.0 - poor.accept
        if rich.accept < 1.0:
            scratch[small] = scratch[large]
            large += 1
            small += 1
    # entries left on either stack have weight 1 except for rounding, and place and other are equal


@inlined
def draw_alias(table, start, end, stream):
    """Draw an outcome from the entries [start, end) of a table."""
    slot = table[start + below(stream, end - start)]
    return slot.place if uniform(stream) < slot.accept else slot.other


def alias_rows(
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    places: NDArray[np.integer],
    weights: NDArray[np.float64],
) -> NDArray[np.void]:
    """Build concatenated alias tables: the entries [start, end) of each draw places[entry].

    An outcome `place` has weight weights[place].
    """
    table = np.empty(len(places), dtype=ALIAS)
    table["place"], table["accept"] = places, weights[places]
    fill_alias(table, start, end)
    return table


def fill_alias(table: NDArray[np.void], start: Any = 0, end: Any = None) -> None:
    """Convert entries with weights and outcomes to alias tables, each of entries [start, end)."""
    first = np.atleast_1d(np.asarray(start, np.int64)).copy()
    last = np.atleast_1d(np.asarray(len(table) if end is None else end, np.int64)).copy()
    largest = int((last - first).max(initial=0))
    if largest:
        _build_rows(first, last, table, np.empty(largest, np.int32))


@entry
def _build_rows(start, end, table, scratch):
    for i in range(len(start)):
        if end[i] > start[i]:
            build_alias(table, start[i], end[i], scratch)
