"""Bayesian networks by hill climbing with a tabu list, and restarts from perturbed networks.

A step adds, drops or reverses the edge that raises the score most, or lowers it least. Networks
that were visited recently are tabu. A climb ends after a number of steps without a new best
network. Restarts then move from the best one to another of the same distributions, by reversing
covered edges at random; every second one also changes a third as many edges as there are columns.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.kernels.jit import entry, kernel
from minigibbs.structure.counting import Counter, Family
from minigibbs.structure.learned import Learned, Rules
from minigibbs.system.watch import Watch

_SAME = 1e-9  # scores that differ by less are equal
_VISITED = 100  # networks that are tabu

ADD, DROP, REVERSE = 0, 1, 2


class Search:
    """A network on its way: its families, and what each change of an edge would score."""

    def __init__(self, counter: Counter, kind: int, strength: float, rules: Rules) -> None:
        self.counter, self.kind, self.strength, self.rules = counter, kind, strength, rules
        columns = counter.columns
        self.edge = np.zeros((columns, columns), dtype=np.bool_)  # [parent, child]
        self.add = np.full((columns, columns), -np.inf)
        self.drop = np.full((columns, columns), -np.inf)
        self.own = np.zeros(columns)
        self.known: dict[tuple[int, bytes], tuple[NDArray[np.float64], ...]] = {}
        self.allowed = rules.allowed & ~np.eye(columns, dtype=np.bool_)
        constant = counter.sizes < 2  # an edge to or from one changes nothing
        self.allowed[constant] = self.allowed[:, constant] = False
        for parent, child in np.argwhere(rules.required).tolist():
            self.edge[parent, child] = True
        for child in range(columns):
            self.update(child)
        self._found = np.empty((3, columns, columns))  # see `changes`
        self._paths = np.empty((2, columns, columns), dtype=np.bool_)
        self._nodes = np.empty((2, columns), dtype=np.int64)
        if not self._write_changes():
            raise LearnError("required: the edges must not form a cycle")

    @property
    def score(self) -> float:
        """The score of the network."""
        return float(self.own.sum())

    def update(self, child: int) -> None:
        """Score the family of a column anew, and every change of one of its parents."""
        column = self.edge[:, child]
        key = child, column.tobytes()
        if key not in self.known:
            self.known[key] = self._scored(child, tuple(np.flatnonzero(column).tolist()))
        own, add, drop = self.known[key]
        self.own[child] = own[0]
        self.add[:, child], self.drop[:, child] = add, drop

    def _scored(self, child: int, parents: tuple[int, ...]) -> tuple[NDArray[np.float64], ...]:
        columns, most = len(self.edge), self.rules.max_parents
        family = Family(self.counter, child, parents)
        own = family.score(self.kind, self.strength)
        add, drop = np.full(columns, -np.inf), np.full(columns, -np.inf)
        candidates = np.flatnonzero(self.allowed[:, child] & ~self.edge[:, child])
        if len(candidates) and (most is None or len(parents) < most):
            add[candidates] = family.with_each(candidates, self.kind, self.strength) - own
        for parent in parents:
            drop[parent] = family.without(parent, self.kind, self.strength) - own
        return np.array([own]), add, drop

    def changes(self) -> NDArray[np.float64]:
        """[kind, parent, child] what each change adds to the score; -inf if it is not possible.

        The array is written anew by the next call.
        """
        acyclic = self._write_changes()
        assert acyclic
        return self._found

    def _write_changes(self) -> bool:
        """Write what `changes` returns; whether the edges form no cycle."""
        above, single = self._paths
        waiting, ready = self._nodes
        required, found = self.rules.required, self._found
        return bool(
            _changes(self.edge, required, self.add, self.drop, waiting, ready, above, single, found)
        )

    def apply(self, change: int, parent: int, child: int) -> None:
        """Make a change."""
        self.edge[parent, child] = change == ADD
        if change == REVERSE:
            self.edge[child, parent] = True
            self.update(parent)
        self.update(child)

    def become(self, edge: NDArray[np.bool_]) -> None:
        """Continue from another network."""
        different = np.flatnonzero((self.edge != edge).any(axis=0))
        self.edge[:] = edge
        for child in different.tolist():
            self.update(child)


def hill_climbing(
    counter: Counter,
    kind: int,
    strength: float,
    rules: Rules,
    tabu: int,
    restarts: int,
    rng: np.random.Generator,
    watch: Watch,
    start: NDArray[np.bool_] | None = None,
) -> Learned:
    """The best network found.

    Parameters
    ----------
    counter : Counter
        A table without missing cells.
    kind, strength : int, float
        The score, and the equivalent sample size of BDeu.
    rules : Rules
        Allowed and required edges, and the largest number of parents.
    tabu, restarts : int
        Steps without a better network before the search ends, and how often it starts again.
    rng : Generator
        Chooses the changes of restarts.
    watch : Watch
        The deadline and the signals of the call.
    start : array or None
        [parent, child] the first network; by default only the required edges.
    """
    search = Search(counter, kind, strength, rules)
    if start is not None:
        search.become(start | rules.required)
    marks = rng.integers(1, 2**63, size=search.edge.shape, dtype=np.uint64)
    best, level = search.edge.copy(), search.score
    steps, ended = 0, "converged"
    for attempt in range(restarts + 1):
        if attempt:
            search.become(best)
            _wander(search, rng)
            if attempt % 2 == 0:
                _perturb(search, max(len(best) // 3, 3), rng)
        made, found, top = _climb(search, marks, tabu, watch)
        steps += made
        if top > level - _SAME:
            best, level = found, max(top, level)
        if watch.ended:
            ended = watch.ended
            break
    search.become(best)
    pairs = np.argwhere(best.T)[:, ::-1]  # by child
    edges = [(int(parent), int(child)) for parent, child in pairs]
    strengths = [-float(search.drop[edge]) for edge in edges]
    return Learned(edges, strengths, True, level, steps, ended)


def _climb(
    search: Search, marks: NDArray[np.uint64], tabu: int, watch: Watch
) -> tuple[int, NDArray[np.bool_], float]:
    """Climb from where the search is; returns steps, the best network and its score."""
    best, level = search.edge.copy(), search.score
    code = np.bitwise_xor.reduce(marks[search.edge], initial=np.uint64(0))
    visited: deque[np.uint64] = deque([code], maxlen=_VISITED)
    steps = worse = 0
    flips = np.stack([marks, marks, marks ^ marks.T]).ravel()  # of the code, by change
    while worse <= tabu and not watch.ended:
        changes = search.changes().ravel()
        place = int(changes.argmax())
        while changes[place] > -np.inf and code ^ flips[place] in visited:
            changes[place] = -np.inf
            place = int(changes.argmax())
        if changes[place] == -np.inf:
            break
        code ^= flips[place]
        change, rest = divmod(place, marks.size)
        search.apply(change, *divmod(rest, len(marks)))
        visited.append(code)
        steps += 1
        worse += 1
        if search.score > level + _SAME:
            best, level, worse = search.edge.copy(), search.score, 0
    return steps, best, level


def _wander(search: Search, rng: np.random.Generator) -> None:
    """Reverse covered edges at random: their ends have the same other parents."""
    covered = np.empty((search.edge.size, 2), dtype=np.int64)
    for _ in range(len(search.edge)):
        count = _covered(search.edge, search.allowed, search.rules.required, covered)
        if not count:
            return
        parent, child = covered[rng.integers(count)].tolist()
        search.apply(REVERSE, parent, child)


def _perturb(search: Search, count: int, rng: np.random.Generator) -> None:
    """Make some possible changes at random."""
    for _ in range(count):
        possible = np.argwhere(search.changes() > -np.inf)
        if not len(possible):
            return
        change, parent, child = possible[rng.integers(len(possible))].tolist()
        search.apply(change, parent, child)


@entry
def _covered(edge, allowed, required, covered):
    """Write the covered edges that may be reversed as (parent, child); returns their number."""
    columns, count = len(edge), 0
    for parent in range(columns):
        for child in range(columns):
            if edge[parent, child] and allowed[child, parent] and not required[parent, child]:
                differ = 0  # the parent itself is one difference
                for other in range(columns):
                    differ += edge[other, parent] != edge[other, child]
                if differ == 1:
                    covered[count, 0], covered[count, 1] = parent, child
                    count += 1
    return count


@entry
def _changes(edge, required, add, drop, waiting, ready, above, single, found):
    """Write `Search.changes` to `found`; returns whether the edges form no cycle.

    `waiting` and `ready` are scratch. Afterwards above[to, from] says where paths lead, and
    `single` which edges are the only path between their ends.
    """
    columns = len(edge)
    if _trace(edge, waiting, ready, above, single) < columns:
        return False
    for parent in range(columns):
        for child in range(columns):
            for change in range(3):
                found[change, parent, child] = -np.inf
            if edge[parent, child]:
                if not required[parent, child]:
                    found[DROP, parent, child] = drop[parent, child]
                    if single[parent, child]:
                        found[REVERSE, parent, child] = drop[parent, child] + add[child, parent]
            elif not edge[child, parent] and not above[parent, child]:
                found[ADD, parent, child] = add[parent, child]
    return True


@kernel
def _trace(edge, waiting, ready, above, single):
    """Follow the edges in topological order; returns how many columns are in no cycle.

    Every column has a path to itself. The edges beside which there is another path are not single.
    """
    columns, count, done = len(edge), 0, 0
    for column in range(columns):
        waiting[column] = 0
        for other in range(columns):
            above[column, other] = column == other
            single[other, column] = edge[other, column]
            waiting[column] += edge[other, column]
        if waiting[column] == 0:
            ready[count] = column
            count += 1
    while done < count:
        node = ready[done]
        done += 1
        for child in range(columns):
            if edge[node, child]:
                for other in range(columns):
                    above[child, other] |= above[node, other]
                waiting[child] -= 1
                if waiting[child] == 0:
                    ready[count] = child
                    count += 1
    for parent in range(columns):
        for child in range(columns):
            if edge[parent, child]:
                for other in range(columns):
                    if other != child and edge[parent, other] and above[child, other]:
                        single[parent, child] = False
    return done
