"""Possible states of graphs with hard constraints: initial states and connectivity.

Pruning (`graph.pruning`) comes first. If the rest has low treewidth, states are drawn by the
elimination tree, uniformly among all possible states, which also proves that there are any.
Otherwise they are found by a randomized backtracking search that maintains arc consistency, with
restarts and a limit on the work.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError, TooLargeError
from minigibbs.exact import CONNECTED, SPLIT, UNKNOWN
from minigibbs.exact.elimination import EliminationTree
from minigibbs.graph.factors import Factors, Table, Unary
from minigibbs.graph.factors.implicit.base import Implicit
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.prepared import prepared
from minigibbs.graph.pruning import Space, all_alive, constraints, counts_left, narrow
from minigibbs.kernels.support import FOUND, NONE, binding, fold, search
from minigibbs.system.watch import StopError, Watch, current

_NARROW = 32 * 2**20  # bytes of messages up to which states are drawn by elimination
_TREE_SHARE = 0.2  # share of the time in which the tree of the hard constraints is made
_MANY = 20_000  # number of variables beyond which a search is tried first
_MOST_VISITS = 100_000_000  # table entries that the search for a first state reads
_MORE_VISITS = 100_000_000  # table entries that the searches for further chains read
_LOOKS = 16  # variables considered per decision of a search
_FAILURES = 100  # failures before the first restart; the limit grows by half at each
_FOLD_VISITS = 200_000_000  # table entries read to determine connectivity
_ENUMERATED = 1 << 16  # largest number of states that are enumerated for connectivity


class Support:
    """States that hard constraints allow; raises `SampleError` if there is certainly none."""

    def __init__(self, graph: FactorGraph) -> None:
        self.graph, self.rules, self.alive = graph, constraints(graph), all_alive(graph)
        if not narrow(self.rules, self.alive):
            empty = int(np.flatnonzero(counts_left(self.rules, self.alive) == 0)[0])
            raise _impossible(graph, f": they leave no value to {graph.domains.describe(empty)}")
        self.left = counts_left(self.rules, self.alive)
        self._found: list[NDArray[Any]] = []
        self._visits = 0

    @cached_property
    def binding(self) -> NDArray[np.bool_]:
        """Which factors with hard constraints still forbid something after the pruning."""
        space, out = Space.of(self.rules), np.zeros(len(self.rules.factors), dtype=np.bool_)
        binding(self.rules, self.alive, space.digits, space.length, out)
        return out

    @cached_property
    def bound(self) -> NDArray[np.int32]:
        """The variables of binding factors that have several possible values."""
        factors = self.rules.factors[self.binding]
        change = np.zeros(len(self.rules.slots) + 1, dtype=np.int64)  # begins and ends of scopes
        np.add.at(change, factors["scope_start"], 1)
        np.add.at(change, factors["scope_end"], -1)
        every = np.unique(self.rules.slots["variable"][np.cumsum(change[:-1]) > 0])
        return every[self.left[every] > 1]  # type: ignore[no-any-return]

    def fill(self, states: NDArray[Any], marks: NDArray[np.float64]) -> None:
        """Set rows to possible states, each from its own row of uniform numbers."""
        flat, first = np.flatnonzero(self.alive), np.cumsum(self.left) - self.left
        choice = flat[first + (marks * self.left).astype(np.int64)] - self.rules.first[:-1]
        states[:] = choice
        if not len(self.bound):
            return
        if self._tree is not None:
            self._tree.draw(states, lambda _, variable: marks[:, variable])
            return
        for row, own in enumerate(marks):
            values = self._searched(own)
            if values is not None:
                states[row, self.bound] = values
                continue
            self._tree = self._narrow_tree()  # ordering is slow, but nothing else is left
            if self._tree is None:
                raise SampleError(
                    f"no state of positive probability was found in {_MOST_VISITS:.0e} steps of "
                    "search, and there may be none: the hard constraints of this graph are "
                    "difficult to satisfy. Give one with start=, or use mg.infer"
                )
            self._tree.draw(states, lambda _, variable: marks[:, variable])
            return

    @cached_property
    def _tree(self) -> EliminationTree | None:
        """The tree to draw from at once, or None if a search comes first."""
        return None if len(self.graph) > _MANY else self._narrow_tree()

    def _narrow_tree(self) -> EliminationTree | None:
        """Return the tree of the hard constraints after its upward pass, if its width is low.

        It is given up after a share of the time that is left.
        """
        try:
            with Watch(_TREE_SHARE * current().left) as own:
                tree = EliminationTree.ordered(zeros_alone(self.graph), _NARROW / 8)
                total = tree.upward()
        except TooLargeError:
            return None
        except StopError:  # of the inner watch, unless the whole call must end
            if own.signal:
                raise
            return None
        if total == -math.inf:
            raise _impossible(self.graph, "")
        return tree

    def _searched(self, marks: NDArray[np.float64]) -> NDArray[Any] | None:
        """Return values of `bound`: new ones, or old ones once the budget of visits is spent."""
        if self._found and self._visits > _MORE_VISITS:
            return self._found[int(marks[0] * len(self._found))]
        seed = int(marks[0] * 2**53)
        words: NDArray[Any] = np.random.SeedSequence(seed).generate_state(4, np.uint64)
        budget = _MORE_VISITS if self._found else _MOST_VISITS
        values = self._search(words, budget)
        if values is None:
            return self._found[int(marks[0] * len(self._found))] if self._found else None
        self._found.append(values)
        return values

    def _search(self, stream: NDArray[np.uint64], most: int) -> NDArray[Any] | None:
        rules, failures = self.rules, _FAILURES
        owner = np.repeat(np.arange(len(self.left), dtype=np.int32), np.diff(rules.first))
        blame, space = np.ones(len(self.left)), Space.of(rules, len(self.alive))
        levels = np.zeros((len(self.bound) + 1, 4), dtype=np.int64)
        outcome, looks = None, 0  # first in numerical order, often that of a Bayesian network
        while space.length[1] <= most:
            alive, left, order = self.alive.copy(), self.left.copy(), self.bound.copy()
            space.length[0], space.ring[:], space.waiting[:] = 0, 0, False
            outcome = search(
                rules,
                alive,
                left,
                owner,
                blame,
                order,
                levels,
                stream,
                looks,
                most,
                failures,
                *space,
            )
            if outcome in (FOUND, NONE):
                break
            failures, looks = failures + failures // 2, _LOOKS
        self._visits += int(space.length[1])
        if outcome == NONE:
            raise _impossible(self.graph, "")
        if outcome != FOUND:
            return None
        places = np.flatnonzero(alive)  # one for each bound variable among them
        chosen = places[np.searchsorted(places, rules.first[self.bound])]
        return chosen - rules.first[self.bound]  # type: ignore[no-any-return]


def _impossible(graph: FactorGraph, why: str) -> SampleError:
    given = "zeros and evidence" if (graph.evidence >= 0).any() else "zeros"
    return SampleError(
        f"no state of this graph has positive probability: its {given} contradict each other{why}"
    )


def zeros_alone(graph: FactorGraph) -> FactorGraph:
    """Return the constraints alone, with 0 for all else: possible states are equally likely."""
    groups: list[Factors] = []
    begin = 0
    for group in graph.factors:
        if isinstance(group, Implicit) or group.pairs:
            continue
        members = graph.hard[(graph.hard >= begin) & (graph.hard < begin + len(group))] - begin
        begin += len(group)
        if isinstance(group, Unary) and len(members):
            energy = np.where(group.log_potential[members] == -np.inf, -np.inf, 0.0)
            groups.append(Unary(group.scope[members, 0], energy))
        elif isinstance(group, Table) and len(members):
            energy = group.log_potential if group.shared else group.log_potential[members]
            groups.append(Table(group.scope[members], np.where(energy == -np.inf, -np.inf, 0.0)))
    return FactorGraph(graph.domains, groups, evidence=graph.evidence)


def forbidding(graph: FactorGraph, state: NDArray[Any]) -> int | None:
    """Return the number in `packed.factors` of the first factor that forbids a state, or None."""
    model = graph.packed
    for number in graph.hard.tolist():
        factor = model.factors[number]
        slots = model.slots[factor["scope_start"] : factor["scope_end"]]
        place = factor["table_start"] + (slots["key"] * state[slots["variable"]].astype(int)).sum()
        if model.table[place] == -np.inf:
            return int(number)
    return None


def reach(graph: FactorGraph) -> str:
    """Return whether moves of one variable at a time connect all possible states.

    CONNECTED is proved by folding, or by enumerating the states of a small graph. Folding removes a
    value that another can replace whatever the other variables are, because a chain can move from
    one to the other and back. If one state is left, all states are connected to it. SPLIT is proved
    by enumeration. UNKNOWN is returned otherwise, as for relations that tie variables to each
    other.

    >>> import minigibbs as mg, numpy as np
    >>> not_both = mg.Table([[0, 1], [1, 2]], [[0.0, 0.0], [0.0, -np.inf]])
    >>> same = mg.Table([[0, 1]], [[0.0, -np.inf], [-np.inf, 0.0]])
    >>> reach(mg.FactorGraph([2, 2, 2], [not_both])), reach(mg.FactorGraph([2, 2], [same]))
    ('connected', 'split')
    """
    if not len(graph.hard):
        return CONNECTED
    return prepared(graph, "reach", (), lambda: _reach(Support(graph)))


def _reach(support: Support) -> str:
    rules, bound = support.rules, support.bound
    if not len(bound):
        return CONNECTED
    alive, left, space = support.alive.copy(), support.left.copy(), Space.of(rules)
    if fold(rules, alive, left, bound, _FOLD_VISITS, space.digits, space.length) == FOUND:
        return CONNECTED
    if math.prod(int(count) for count in left[bound]) > _ENUMERATED:
        return UNKNOWN
    return _enumerated(support, alive, left)  # folding preserves the connectivity


def _enumerated(support: Support, alive: NDArray[np.bool_], left: NDArray[np.int64]) -> str:
    """Label every state of the bound variables, and spread the labels along single-variable moves.

    Only variables with several values left have an axis, because NumPy allows at most 64 axes.
    Folding leaves many variables with one value.
    """
    rules, several = support.rules, support.bound[left[support.bound] > 1]
    shape = tuple(int(left[v]) for v in several)
    axis_of = {int(v): k for k, v in enumerate(several)}
    possible = np.ones(shape, dtype=np.bool_)
    for factor in rules.factors[support.binding]:
        place = np.asarray(factor["table_start"])
        for variable, key in rules.slots[factor["scope_start"] : factor["scope_end"]].tolist():
            own = np.flatnonzero(alive[rules.first[variable] : rules.first[variable + 1]])
            if variable in axis_of:
                spread = [-1 if k == axis_of[variable] else 1 for k in range(len(shape))]
                own = own.reshape(spread)
            place = place + key * own
        possible &= rules.possible[place]
    label = np.where(possible, np.arange(possible.size).reshape(shape), possible.size)
    while True:
        before = label
        for axis in range(len(shape)):
            least = label.min(axis=axis, keepdims=True)
            label = np.where(possible, np.broadcast_to(least, shape), possible.size)
        if (label == before).all():
            break
    return CONNECTED if len(np.unique(label[possible])) <= 1 else SPLIT
