"""Sums over variables of which a run's observables are functions, counted by backends.

If a layout stores variables in another order, or as bits, counting in that layout is much faster
than copying states out of it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.observables.base import Measure, Terms


class Summed(NamedTuple):
    """Distinct sums of which observables are functions."""

    terms: Terms  # terms of variables that are not clamped
    constants: NDArray[np.int32]  # [sum] number of clamped variables that match
    own: dict[int, tuple[int, int]]  # by index of an observable: its range of sums


NO_SUMS = Summed(
    Terms(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64)),
    np.empty(0, np.int32),
    {},
)


def summed(
    graph: FactorGraph, measures: tuple[Measure, ...], without: Collection[int] = ()
) -> Summed:
    """Return all sums of observables, except some by index; equal terms are counted once."""
    known: list[tuple[Terms, int]] = []  # with the index of their first sum
    own, count = {}, 0
    if not measures:
        return NO_SUMS
    for number, measure in enumerate(measures):
        if measure.sums is None or measure.sums.terms is None or number in without:
            continue
        terms = measure.sums.terms()
        first = next((first for other, first in known if _alike(terms, other)), count)
        if first == count:
            known.append((terms, first))
            count += len(terms.ends)
        own[number] = (first, first + len(terms.ends))
    return Summed(*_free(graph, [terms for terms, _ in known]), own)


def _alike(a: Terms, b: Terms) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in Terms._fields)


def _free(graph: FactorGraph, several: list[Terms]) -> tuple[Terms, NDArray[np.int32]]:
    """Concatenate terms without constant ones; also return the sums of the constant ones."""
    none = np.empty(0, np.int32)
    variables = np.concatenate([none, *(terms.variables for terms in several)])
    wanted = np.concatenate([none, *(terms.wanted for terms in several)])
    sizes = np.concatenate([none, *(np.diff(terms.ends, prepend=0) for terms in several)])
    possible = (wanted >= 0) & (wanted < graph.sizes[variables])
    if possible.all() and (graph.evidence < 0).all():
        return Terms(variables, wanted, np.cumsum(sizes)), np.zeros(len(sizes), np.int32)
    which, fixed = np.repeat(np.arange(len(sizes)), sizes), graph.evidence[variables]
    constants = np.bincount(which[(fixed >= 0) & (fixed == wanted)], minlength=len(sizes))
    free = (fixed < 0) & possible
    ends = np.cumsum(np.bincount(which[free], minlength=len(sizes)))
    terms = Terms(variables[free], wanted[free].astype(np.int64), ends)
    return terms, constants.astype(np.int32)


def signed_places(terms: Terms, variable: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the sorted places of the terms of spins, complemented to count zeros.

    `variable` has the variable at each place. One sum over all places has an empty result.
    """
    count, own = len(variable), terms.variables
    whole = len(terms.ends) == 1 and len(own) == count and terms.wanted.all()
    if whole and (own[1:] > own[:-1]).all():
        return np.empty(0, np.int32)
    places = np.zeros(int(variable.max(initial=-1)) + 1, np.int64)
    places[variable] = np.arange(count)
    which = np.repeat(np.arange(len(terms.ends)), np.diff(terms.ends, prepend=0))
    keys = np.sort((which * count + places[own]) * 2 + (terms.wanted == 0))
    place = keys // 2 % max(count, 1)
    return np.where(keys % 2 == 1, ~place, place).astype(np.int32)
