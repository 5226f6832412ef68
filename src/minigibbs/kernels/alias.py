"""Alias tables: a draw from any finite distribution in constant time (Walker 1974, Vose 1991)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.jit import entry, kernel
from minigibbs.kernels.layout import ALIAS
from minigibbs.kernels.random import below, uniform


@entry
def build_alias(table, scratch):
    """Turn slots whose `accept` holds a weight, and `place` what to draw, into an alias table.

    `scratch` holds as many integers as there are slots.
    """
    count, total = len(table), 0.0
    for k in range(count):
        total += table[k].accept
    small, large = 0, count  # two stacks that grow towards each other
    for k in range(count):
        table[k].accept *= count / total
        table[k].other = table[k].place
        if table[k].accept < 1.0:
            scratch[small] = k
            small += 1
        else:
            large -= 1
            scratch[large] = k
    while small > 0 and large < count:
        small -= 1
        poor, rich = scratch[small], scratch[large]
        table[poor].other = table[rich].place
        table[rich].accept -= 1.0 - table[poor].accept
        if table[rich].accept < 1.0:
            large += 1
            scratch[small] = rich
            small += 1
    # what is left on either stack has weight 1, but for rounding: place and other are the same


@kernel
def draw_alias(table, start, end, stream):
    """A place from the slots [start, end) of a table."""
    slot = table[start + below(stream, end - start)]
    return slot.place if uniform(stream) < slot.accept else slot.other


def alias_rows(
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    places: NDArray[np.integer],
    weights: NDArray[np.float64],
) -> NDArray[np.void]:
    """Many alias tables end to end: slots [start, end) of each draw places[slot].

    A place has weight weights[place].
    """
    table = np.empty(len(places), dtype=ALIAS)
    table["place"], table["accept"] = places, weights[places]
    largest = int((end - start).max(initial=0))
    _build_rows(start.copy(), end.copy(), table, np.empty(largest, np.int32))
    return table


@entry
def _build_rows(start, end, table, scratch):
    for i in range(len(start)):
        if end[i] > start[i]:
            build_alias(table[start[i] : end[i]], scratch)
