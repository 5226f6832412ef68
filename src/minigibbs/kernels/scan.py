"""Orders in which variables are visited."""

from __future__ import annotations

import numpy as np

from minigibbs.kernels.jit import entry, inlined
from minigibbs.kernels.layout import RANDOM, SHARED, SHUFFLED
from minigibbs.kernels.random import below


@inlined
def next_variable(scan, stream):
    """Return the next variable to update; the caller ensures that there is one."""
    order = scan.order
    if scan.kind == RANDOM or scan.kind == SHARED:
        place = below(stream, scan.variables)
        return place if len(order) == 0 else np.int64(order[place])
    place = scan.position[0]
    if place == 0 and scan.kind == SHUFFLED:
        for last in range(len(order) - 1, 0, -1):
            other = below(stream, last + 1)
            order[last], order[other] = order[other], order[last]
    scan.position[0] = place + 1 if place + 1 < len(order) else 0
    return np.int64(order[place])


@entry
def walk(scan, path):
    """Store the next variables of a scan that all chains share; it must not be RANDOM."""
    for step in range(len(path)):
        path[step] = next_variable(scan, scan.stream)
