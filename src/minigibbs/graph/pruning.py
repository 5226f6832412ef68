"""Values that zeros and evidence exclude: generalized arc consistency, to a fixed point.

A factor excludes a value of a variable if every entry with it is a zero, given the values that its
other variables may still take. That may leave another factor without an entry for another value, so
pruning continues until nothing changes. It proves nothing about what is left: a value may survive,
and be impossible all the same.
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
    """The factors with hard constraints, as `kernels.support` reads them.

    Letters: n variables, H such factors, S their slots, V the sum of the domain sizes.
    """

    factors: NDArray[np.void]  # [H] of FACTOR
    slots: NDArray[np.void]  # of SLOT; those of tables, with strides for keys
    possible: NDArray[np.bool_]  # whether each table entry is no zero
    first: NDArray[np.int64]  # [n + 1] where the values of a variable begin
    user_start: NDArray[np.int64]  # [n + 1] where the factors of a variable begin
    user: NDArray[np.int32]  # [S] the factors of each variable


def constraints(graph: FactorGraph) -> Constraints:
    """The factors of a graph that hold zeros under its evidence."""
    model = graph.packed
    possible = model.table > -np.inf
    return _indexed(model.factors[graph.hard], model.slots, possible, graph.sizes)


def _indexed(
    factors: NDArray[np.void],
    slots: NDArray[np.void],
    possible: NDArray[np.bool_],
    sizes: NDArray[np.integer],
) -> Constraints:
    """Constraints with the factors of each variable looked up."""
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
    """The same from tables that are not in a graph: one array, an axis per variable, a scope."""
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
    """[sum of sizes] Which values the evidence leaves."""
    alive = np.ones(int(graph.sizes.sum(dtype=np.int64)), dtype=np.bool_)
    clamped = np.flatnonzero(graph.evidence != FREE)
    if len(clamped):
        free = np.repeat(graph.evidence == FREE, graph.sizes)
        alive &= free
        alive[graph.packed.first[clamped] + graph.evidence[clamped]] = True
    return alive


def prune(graph: FactorGraph) -> NDArray[np.bool_] | None:
    """[sum of sizes] Which values zeros and evidence leave; None if no state is possible.

    Without zeros, what the evidence leaves.

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
    """[n] How many values each variable may still take."""
    left: NDArray[np.int64] = np.add.reduceat(alive, rules.first[:-1], dtype=np.int64)
    return left


def narrow(rules: Constraints, alive: NDArray[np.bool_]) -> bool:
    """Take out of `alive` what the rules exclude; False if a variable is left without a value."""
    space = Space.of(rules)
    space.waiting[:], space.ring[1] = True, len(space.queue)
    return bool(propagate(rules, alive, counts_left(rules, alive), *space) >= 0)


class Space(NamedTuple):
    """Scratch of `kernels.support`."""

    queue: NDArray[np.int32]  # [H] factors that wait
    ring: NDArray[np.int64]  # [2] where the queue begins, and how many wait
    waiting: NDArray[np.bool_]  # [H] whether a factor is on the queue
    digits: NDArray[np.int64]  # [largest arity]
    seen: NDArray[np.bool_]  # [largest number of values of a scope]
    trail: NDArray[np.int64]  # values taken out; empty to keep none
    length: NDArray[np.int64]  # [2] of the trail, and entries looked at so far

    @classmethod
    def of(cls, rules: Constraints, trail: int = 0) -> Space:
        """Space for these rules."""
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
