"""States that cannot occur, taken out of their domains.

A factor forbids a state of a variable if it gives probability 0 to it whatever its other variables
do. Such a state is pruned; that may leave another factor without support for another state, so
pruning goes on until nothing changes (arc consistency).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.domains import Domains
from minigibbs.errors import GraphError


class TableFactor(NamedTuple):
    """One factor as a file gives it."""

    scope: tuple[int, ...]
    table: NDArray[np.float64]  # probabilities, an axis per variable


class States(Domains):
    """Domains that pruning cut down: a label is the state's number before.

    Parameters
    ----------
    full_sizes
        How many states each variable had.
    kept
        The states that are left, for each variable that lost some.
    """

    def __init__(
        self, full_sizes: NDArray[np.int32], kept: dict[int, NDArray[np.int64]] | None = None
    ) -> None:
        kept = kept or {}
        sizes = full_sizes.copy()
        for variable, states in kept.items():
            sizes[variable] = len(states)
        super().__init__(sizes, labels={v: states.tolist() for v, states in kept.items()})
        self.full_sizes = full_sizes

    def value(self, variable: int, value: Any) -> int:
        """The number of a value given by its state; a pruned state is refused."""
        labels = self.labels.get(variable)
        if labels is None or value in labels:
            return super().value(variable, value)
        shown = ", ".join(map(str, labels[:8])) + (", ..." if len(labels) > 8 else "")
        raise GraphError(
            f"{self.describe(variable)}: expected one of the states that no factor forbids "
            f"({shown}), got {value!r}"
        )


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
