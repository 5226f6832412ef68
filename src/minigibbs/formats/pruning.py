"""States that cannot occur, taken out of their domains.

A factor forbids a state of a variable if it gives probability 0 to it whatever its other variables
do. Such a state is pruned; that may leave another factor without support for another state, so
pruning goes on until nothing changes (arc consistency).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class TableFactor(NamedTuple):
    """One factor as a file gives it."""

    scope: tuple[int, ...]
    table: NDArray[np.float64]  # probabilities, an axis per variable


def prune(factors: Sequence[TableFactor]) -> dict[int, NDArray[np.int64]]:
    """The states that are left, for each variable that loses some."""
    hard = [factor for factor in factors if factor.scope and not factor.table.all()]
    users = defaultdict(list)
    allowed: dict[int, NDArray[np.bool_]] = {}
    for number, (scope, table) in enumerate(hard):
        for variable, size in zip(scope, table.shape, strict=True):
            users[variable].append(number)
            allowed.setdefault(variable, np.ones(size, dtype=np.bool_))
    queue, waiting = deque(range(len(hard))), np.ones(len(hard), dtype=np.bool_)
    while queue:
        number = queue.popleft()
        waiting[number] = False
        for variable in _tighten(hard[number], allowed):
            for user in users[variable]:
                if not waiting[user]:
                    waiting[user] = True
                    queue.append(user)
    return {v: np.flatnonzero(states) for v, states in allowed.items() if not states.all()}


def _tighten(factor: TableFactor, allowed: dict[int, NDArray[np.bool_]]) -> list[int]:
    """Forbid the states that a factor leaves without support; returns their variables."""
    left = [np.flatnonzero(allowed[variable]) for variable in factor.scope]
    possible = factor.table[np.ix_(*left)] > 0
    changed = []
    for axis, variable in enumerate(factor.scope):
        others = tuple(k for k in range(possible.ndim) if k != axis)
        lost = left[axis][~possible.any(axis=others)]
        if len(lost):
            allowed[variable][lost] = False
            changed.append(variable)
    return changed


def cut(factor: TableFactor, kept: dict[int, NDArray[np.int64]]) -> TableFactor:
    """The factor over the states that are left."""
    if not any(variable in kept for variable in factor.scope):
        return factor
    states = [
        kept.get(variable, np.arange(size))
        for variable, size in zip(factor.scope, factor.table.shape, strict=True)
    ]
    return TableFactor(factor.scope, factor.table[np.ix_(*states)])
