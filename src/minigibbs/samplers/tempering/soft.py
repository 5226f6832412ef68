"""Soft zeros below the target, so that every level except the last can cross them.

A zero becomes an energy somewhat below the least other energy of its factor. The model with soft
zeros is the second to last level, at the full inverse temperature; the last is the model itself. A
state of the former is exchanged with one of the latter if it violates no zero.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.simple import Simple

_DEPTH = 3.0  # below the least energy, and larger if many zeros can be violated


class Soft(NamedTuple):
    """A graph's tables without zeros, and the positions of the zeros."""

    unary: NDArray[np.float64]  # as `Simple.unary`
    table: NDArray[np.float64]  # as `Model.table`
    low: NDArray[np.float64]  # [general factors] least energy, changed only by softening
    span: NDArray[np.float64]  # [general factors] range, changed only by softening
    forbidden: NDArray[np.bool_]  # [sum of sizes] unary zeros
    hard: NDArray[np.int64]  # indices of general factors with hard constraints


def softened(graph: FactorGraph, simple: Simple, depth: float | None = None) -> Soft:
    """Replace every zero by an energy that is `depth` below the others of its factor."""
    model = graph.packed
    hard = simple.rest[np.isinf(model.factors["span"][simple.rest])]
    forbidden = np.isneginf(simple.unary)
    if depth is None:
        broken_ways = max(len(hard) + int(forbidden.sum()), 1) * int(graph.sizes.max())
        depth = _DEPTH + math.log(broken_ways)
    unary, first = simple.unary.copy(), model.first
    least = np.minimum.reduceat(np.where(forbidden, np.inf, unary), first)
    least = np.repeat(np.where(np.isinf(least), 0.0, least), graph.sizes)
    unary[forbidden] = least[forbidden] - depth
    table, low, span = model.table.copy(), model.factors["low"].copy(), model.factors["span"].copy()
    for number in hard.tolist():
        factor = model.factors[number]
        keys = model.slots["key"][factor["scope_start"] : factor["scope_end"]].astype(np.int64)
        scope = model.slots["variable"][factor["scope_start"] : factor["scope_end"]]
        size = int((keys * (graph.sizes[scope] - 1)).sum()) + 1
        part = table[factor["table_start"] : factor["table_start"] + size]
        broken, weight = np.isneginf(part), float(factor["weight"])
        if broken.any() and not broken.all():
            part[broken] = part[~broken].min() - depth / weight
        elif broken.all():
            part[:] = 0.0
        low[number], span[number] = weight * part.min(), weight * (part.max() - part.min())
    return Soft(unary, table, low, span, forbidden, hard)
