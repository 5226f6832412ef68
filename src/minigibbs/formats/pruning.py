"""Removal of states that cannot occur from their domains.

A factor excludes a state of a variable if it gives probability 0 to it for all states of its other
variables. `graph.pruning` finds such states to a fixed point. This module removes them from the
domains, since files pad tables with them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.domains import Domains, PrunedDomains
from minigibbs.graph.pruning import narrow, tables_as_constraints
from minigibbs.system import memory

_FEWER = "write a .mg file, which has no entries for pruned states"


class TableFactor(NamedTuple):
    """One factor in a file."""

    scope: tuple[int, ...]
    table: NDArray[np.float64]  # probabilities, one axis per variable


def prune(factors: Sequence[TableFactor]) -> dict[int, NDArray[np.int64]]:
    """Return the remaining states of each variable that loses some.

    A variable without states proves that no state is possible. Other variables may then have more
    states than pruning to the fixed point would leave.
    """
    hard = [factor for factor in factors if factor.scope and not factor.table.all()]
    if not hard:
        return {}
    number = {v: k for k, v in enumerate(dict.fromkeys(v for f in hard for v in f.scope))}
    sizes = np.zeros(len(number), dtype=np.int64)
    for scope, table in hard:
        sizes[[number[v] for v in scope]] = table.shape
    scopes = [tuple(number[v] for v in factor.scope) for factor in hard]
    rules = tables_as_constraints(sizes, scopes, [factor.table > 0 for factor in hard])
    alive = np.ones(int(sizes.sum()), dtype=np.bool_)
    narrow(rules, alive)
    left = {v: alive[rules.first[k] : rules.first[k + 1]] for v, k in number.items()}
    return {v: np.flatnonzero(states) for v, states in left.items() if not states.all()}


def cut(factor: TableFactor, kept: dict[int, NDArray[np.int64]]) -> TableFactor:
    """Return the factor over the remaining states."""
    if not any(variable in kept for variable in factor.scope):
        return factor
    states = [
        kept.get(variable, np.arange(size))
        for variable, size in zip(factor.scope, factor.table.shape, strict=True)
    ]
    return TableFactor(factor.scope, factor.table[np.ix_(*states)])


def restored(
    table: NDArray[np.float64], scope: Sequence[int], domains: Domains
) -> NDArray[np.float64]:
    """Return a table over all states, with zeros for pruned ones."""
    if not isinstance(domains, PrunedDomains) or not any(v in domains.kept for v in scope):
        return table
    shape = domains.full_sizes[list(scope)].tolist()
    memory.require(8.0 * math.prod(shape), f"a table of {math.prod(shape):,} entries", _FEWER)
    full = np.zeros(shape)
    full[np.ix_(*left_states(scope, domains))] = table
    return full


def left_states(scope: Sequence[int], domains: PrunedDomains) -> list[NDArray[np.integer]]:
    """Return the original indices of the remaining states of some variables."""
    return [domains.kept.get(v, np.arange(domains.sizes[v])) for v in scope]
