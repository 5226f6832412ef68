"""Alias tables: a draw from any finite distribution in constant time (Walker 1974, Vose 1991)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.jit import entry, kernel
from minigibbs.kernels.layout import ALIAS
from minigibbs.kernels.random import below, uniform


@entry
def build_alias(table, weights, scratch):
    """Fill an alias table whose `place` fields are set; `weights` is overwritten.

    `scratch` holds as many integers as there are slots.
    """
    count, total = len(table), 0.0
    for k in range(count):
        total += weights[k]
    small, large = 0, count  # two stacks that grow towards each other
    for k in range(count):
        weights[k] *= count / total
        table[k].accept = 1.0
        table[k].other = table[k].place
        if weights[k] < 1.0:
            scratch[small] = k
            small += 1
        else:
            large -= 1
            scratch[large] = k
    while small > 0 and large < count:
        small -= 1
        poor, rich = scratch[small], scratch[large]
        table[poor].accept = weights[poor]
        table[poor].other = table[rich].place
        weights[rich] -= 1.0 - weights[poor]
        if weights[rich] < 1.0:
            large += 1
            scratch[small] = rich
            small += 1


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
    table["place"] = places
    largest = int((end - start).max(initial=0))
    _build_rows(start.copy(), end.copy(), table, weights[places], np.empty(largest, np.int64))
    return table


@entry
def _build_rows(start, end, table, weights, scratch):
    for i in range(len(start)):
        if end[i] > start[i]:
            build_alias(table[start[i] : end[i]], weights[start[i] : end[i]], scratch)
