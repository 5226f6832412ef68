"""Temperatures of a search, from hot, where all values are likely, to frozen."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.implicit.base import Implicit
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.simple import simplified

_WEAK = 0.05  # share of all ranges that the coldest level need not resolve
_FINEST = 1e-3  # nor ranges below this share of the largest range at a variable
_EXCITED = 0.01  # expected number of excited variables at the coldest level, in the whole model
_FROZEN, _LOW = 0.4, 0.05  # nor ranges below this share of that quantile of the ranges at variables
_HOT = 0.1  # first positive level times the largest local range
_LOOKED_AT = 16  # number of variables at which implicit groups are evaluated


def first_levels(
    graph: FactorGraph, beta_range: tuple[float, float] | None, count: int
) -> NDArray[np.float64]:
    """Return levels in geometric steps, where the search for better ones starts."""
    if beta_range is not None and beta_range[0] > 0:
        return np.geomspace(*beta_range, count)
    ranges = _ranges(graph)
    largest = largest_range(graph)
    small = max(_typical(ranges, largest), _FROZEN * _low_range(graph))
    cold = math.log(len(graph) / _EXCITED) / small if beta_range is None else beta_range[1]
    hot = min(_HOT / largest, cold / 2)
    return np.concatenate([[0.0], np.geomspace(hot, cold, count - 1)])


def _typical(ranges: NDArray[np.float64], largest: float) -> float:
    """Return the range below which factors hold 5% of the total."""
    rising = np.sort(ranges)
    weak = np.searchsorted(np.cumsum(rising), _WEAK * rising.sum())
    return max(float(rising[weak]) if len(rising) else largest, _FINEST * largest)


def _ranges(graph: FactorGraph) -> NDArray[np.float64]:
    """The range of each factor's energies, without constant factors and zeros."""
    simple, first = simplified(graph), graph.packed.first
    finite = np.isfinite(simple.unary)
    high = np.maximum.reduceat(np.where(finite, simple.unary, -np.inf), first)
    low = np.minimum.reduceat(np.where(finite, simple.unary, np.inf), first)
    spans = graph.packed.factors["span"][simple.rest]
    found = np.concatenate([np.abs(simple.pair_weight), high - low, spans])
    chosen: NDArray[np.float64] = found[np.isfinite(found) & (found > 0)]
    return chosen


def hot_and_cold(graph: FactorGraph) -> tuple[float, float]:
    """Return the inverse temperatures between which one state is annealed."""
    if not graph.implicits:
        levels = first_levels(graph, None, 3)
        return float(levels[1]), float(levels[-1])
    largest = largest_range(graph)
    return _HOT / largest, math.log(len(graph) / _EXCITED) / (_FINEST * largest)


def largest_range(graph: FactorGraph) -> float:
    """Return the approximate largest range of energy at one variable; 1 if all are 0."""
    return float(_local(graph).max(initial=0.0)) or 1.0


def _low_range(graph: FactorGraph) -> float:
    """Return the range of energy that most variables exceed; 0 if all are 0."""
    local = _local(graph)
    return float(np.quantile(local[local > 0], _LOW)) if local.any() else 0.0


def _local(graph: FactorGraph) -> NDArray[np.float64]:
    """Return the approximate range of energy at every variable.

    Implicit groups are evaluated at a few variables.
    """
    simple, first = simplified(graph), graph.packed.first
    unary = np.where(np.isfinite(simple.unary), simple.unary, 0.0)
    local = np.maximum.reduceat(unary, first) - np.minimum.reduceat(unary, first)
    for side in (0, 1):
        np.add.at(local, simple.pair[:, side], np.abs(simple.pair_weight))
    some = np.random.default_rng(0).permutation(len(graph))[:_LOOKED_AT]
    for group in graph.implicits:
        weights = np.array([_local_weight(group, i) for i in some.tolist()])
        local[some] += group.energy_per_weight * weights
    for factor in graph.packed.factors[simple.rest]:
        scope = graph.packed.slots["variable"][factor["scope_start"] : factor["scope_end"]]
        np.add.at(local, scope, factor["span"] if np.isfinite(factor["span"]) else 0.0)
    return local


def _local_weight(group: Implicit, i: int) -> float:
    """Return the sum of |weight| over the pairs of a variable."""
    others = np.delete(np.arange(group.variables), i)
    return float(np.abs(group.pair_weights(np.full(len(others), i), others)).sum())
