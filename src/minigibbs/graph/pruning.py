"""Values that hard constraints and evidence exclude: generalized arc consistency.

A factor excludes a value of a variable if every entry with it has the log-potential -inf, given the
possible values of its other variables. That may leave another factor without an entry for another
value, so pruning continues to a fixed point. Values that remain are not proven possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.layout import FACTOR, SLOT
from minigibbs.kernels.support import propagate


class Constraints(NamedTuple):
    """The factors with hard constraints, in the form that `kernels.support` reads.

    Letters: n variables, H such factors, S their slots, V the sum of the domain sizes.
    """

    factors: NDArray[np.void]  # [H] of FACTOR
    slots: NDArray[np.void]  # of SLOT; those of tables have strides as keys
    possible: NDArray[np.bool_]  # whether each table entry is above -inf
    first: NDArray[np.int64]  # [n + 1] index of each variable's first value
    user_start: NDArray[np.int64]  # [n + 1] index of each variable's first factor
    user: NDArray[np.int32]  # [S] the factors of each variable


def constraints(graph: FactorGraph) -> Constraints:
    """Return the factors of a graph with hard constraints, given its evidence."""
    model = graph.packed
    possible = model.table > -np.inf
    return _indexed(model.factors[graph.hard], model.slots, possible, graph.sizes)


def _indexed(
    factors: NDArray[np.void],
    slots: NDArray[np.void],
    possible: NDArray[np.bool_],
    sizes: NDArray[np.integer],
) -> Constraints:
    """Build constraints, with an index of the factors of each variable."""
    arity = factors["scope_end"] - factors["scope_start"]
    owner = np.repeat(np.arange(len(factors), dtype=np.int32), arity)
    shift = np.repeat(factors["scope_start"] - (np.cumsum(arity) - arity), arity)
    variable = slots["variable"][np.arange(len(owner)) + shift]
    order = np.argsort(variable, kind="stable")
    return Constraints(
        factors=np.ascontiguousarray(factors),
        slots=slots,
        possible=possible,
        first=np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
        user_start=np.searchsorted(variable[order], np.arange(len(sizes) + 1)),
        user=owner[order],
    )


def tables_as_constraints(
    sizes: NDArray[np.integer],
    scopes: Sequence[tuple[int, ...]],
    possible: Sequence[NDArray[np.bool_]],
) -> Constraints:
    """Build constraints from tables that are not in a graph: scopes, and one array per scope."""
    arity = np.array([len(scope) for scope in scopes], dtype=np.int64)
    count = np.array([table.size for table in possible], dtype=np.int64)
    factors, slots = np.zeros(len(scopes), FACTOR), np.empty(int(arity.sum()), SLOT)
    factors["scope_end"] = np.cumsum(arity)
    factors["scope_start"] = factors["scope_end"] - arity
    factors["table_start"] = np.cumsum(count) - count
    slots["variable"] = [variable for scope in scopes for variable in scope]
    slots["key"] = [
        stride
        for table in possible
        for stride in np.append(np.cumprod(table.shape[:0:-1], dtype=np.int64)[::-1], 1).tolist()
    ]
    flat = np.concatenate([np.empty(0, np.bool_), *(table.ravel() for table in possible)])
    return _indexed(factors, slots, flat, sizes)


def all_alive(graph: FactorGraph) -> NDArray[np.bool_]:
    """Mark the values that the evidence allows, [sum of sizes]."""
    alive = np.ones(int(graph.sizes.sum(dtype=np.int64)), dtype=np.bool_)
    clamped = np.flatnonzero(graph.evidence != FREE)
    if len(clamped):
        free = np.repeat(graph.evidence == FREE, graph.sizes)
        alive &= free
        alive[graph.packed.first[clamped] + graph.evidence[clamped]] = True
    return alive


def prune(graph: FactorGraph) -> NDArray[np.bool_] | None:
    """Mark the values that hard constraints and evidence allow, [sum of sizes].

    Returns None if no state is possible.

    >>> import minigibbs as mg, numpy as np
    >>> implies = mg.Table([[0, 1], [1, 2]], [[0.0, 0.0], [-np.inf, 0.0]])
    >>> graph = mg.FactorGraph([2, 2, 2], [implies])
    >>> prune(graph.condition({0: 1})).astype(int)
    array([0, 1, 0, 1, 0, 1])
    >>> prune(graph.condition({0: 1, 2: 0})) is None
    True
    """
    alive = all_alive(graph)
    if not len(graph.hard):
        return alive
    return alive if narrow(constraints(graph), alive) else None


def counts_left(rules: Constraints, alive: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Count the possible values of each variable [n]."""
    left: NDArray[np.int64] = np.add.reduceat(alive, rules.first[:-1], dtype=np.int64)
    return left


def narrow(rules: Constraints, alive: NDArray[np.bool_]) -> bool:
    """Remove excluded values from `alive`; return False if a variable has no value."""
    space = Space.of(rules)
    space.waiting[:], space.ring[1] = True, len(space.queue)
    return bool(propagate(rules, alive, counts_left(rules, alive), *space) >= 0)


class Space(NamedTuple):
    """Scratch of `kernels.support`."""

    queue: NDArray[np.int32]  # [H] factors in the queue
    ring: NDArray[np.int64]  # [2] start and length of the queue
    waiting: NDArray[np.bool_]  # [H] whether a factor is in the queue
    digits: NDArray[np.int64]  # [largest arity]
    seen: NDArray[np.bool_]  # [largest number of values of a scope]
    trail: NDArray[np.int64]  # removed values; empty to record none
    length: NDArray[np.int64]  # [2] of the trail, and number of table entries read

    @classmethod
    def of(cls, rules: Constraints, trail: int = 0) -> Space:
        """Allocate scratch for these rules."""
        start, end = rules.factors["scope_start"], rules.factors["scope_end"]
        sizes = np.diff(rules.first)[rules.slots["variable"]]
        total = np.concatenate([[0], np.cumsum(sizes)])
        return cls(
            np.arange(len(rules.factors), dtype=np.int32),
            np.zeros(2, np.int64),
            np.zeros(len(rules.factors), np.bool_),
            np.zeros(int((end - start).max(initial=0)), np.int64),
            np.zeros(int((total[end] - total[start]).max(initial=0)), np.bool_),
            np.zeros(trail, np.int64),
            np.zeros(2, np.int64),
        )
