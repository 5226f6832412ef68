"""Bayesian networks by hill climbing with a tabu list, and by reinsertion of columns.

A step adds, drops or reverses the edge that raises the score most, or lowers it least. Recently
visited networks are tabu. A climb ends after a number of steps without a new best network. Further
rounds follow the optimal reinsertion of Moore and Wong (ICML 2003). Every column in turn loses its
edges and gets the parents or the children that raise the score. Then the network climbs again. A
round begins at an equivalent network, which is found by reversing covered edges at random.

The search is compiled. It returns to Python when it needs a family that was not scored yet.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.kernels.jit import entry, kernel
from minigibbs.structure.counting import MOST_CELLS, Counter, Scoring
from minigibbs.structure.learned import Learned, Rules
from minigibbs.system.watch import Watch

_SAME = 1e-9  # scores that differ by less are equal
_VISITED = 100  # number of latest networks that are tabu
_SHORT = 5  # steps without a better network that end a climb after the first

ADD, DROP, REVERSE = 0, 1, 2
_IDLE = 2  # rounds without a better network that end the search
_ANY = -1  # no column in particular
_ENDED = -1  # returned instead of a column if no family is missing
_STEPS, _WORSE, _CODES = 0, 1, 2  # entries of `Walk.numbers`


class Store(NamedTuple):
    """The scored families."""

    places: NDArray[np.int64]  # [hash] index of a family, or -1; linear probing
    keys: NDArray[np.uint64]  # [family] XOR of the marks of its edges
    own: NDArray[np.float64]  # [family] its score
    add: NDArray[np.float64]  # [family, column] gain from a further parent, or -inf
    drop: NDArray[np.float64]  # [family, column] gain from dropping a parent


class Walk(NamedTuple):
    """The network of a climb, and the best one so far."""

    edge: NDArray[np.bool_]  # [parent, child]
    required: NDArray[np.bool_]  # [parent, child]
    marks: NDArray[np.uint64]  # [parent, child] random numbers
    keys: NDArray[np.uint64]  # [column] of its family; diagonal marks distinguish columns
    family: NDArray[np.int64]  # [column] index of its family in the store
    best: NDArray[np.bool_]  # [parent, child] the best network of this climb
    level: NDArray[np.float64]  # [1] the score of the best network
    numbers: NDArray[np.int64]  # steps, steps since the best network, networks visited
    visited: NDArray[np.uint64]  # codes of the latest `_VISITED` networks
    above: NDArray[np.uint64]  # [column, word] bits of its ancestors, itself included
    nodes: NDArray[np.int64]  # [2, column] scratch


class Search:
    """A network, the best one of its climb, and the scored families.

    Parameters
    ----------
    counter : Counter
        A table without missing cells.
    scoring : Scoring
        The score.
    rules : Rules
        Allowed and required edges, and the largest number of parents.
    rng : Generator
        Random generator for the marks.
    watch : Watch
        The deadline and the signals of the call.
    values : array or None
        Number of values per column of the tables that are fitted later, if rare values are pooled.
    """

    def __init__(
        self,
        counter: Counter,
        scoring: Scoring,
        rules: Rules,
        rng: np.random.Generator,
        watch: Watch,
        values: NDArray[np.int64] | None = None,
    ) -> None:
        self.counter, self.scoring, self.rules, self.watch = counter, scoring, rules, watch
        self.values = (counter.sizes if values is None else values).astype(np.float64)
        columns = counter.columns
        self.free = counter.sizes > 1  # an edge to or from a constant column changes nothing
        self.allowed = rules.allowed & ~np.eye(columns, dtype=np.bool_)
        self.allowed &= self.free[:, None] & self.free
        self.walk = Walk(
            edge=np.zeros((columns, columns), dtype=np.bool_),
            required=rules.required,
            marks=rng.integers(1, 2**63, size=(columns, columns), dtype=np.uint64),
            keys=np.zeros(columns, dtype=np.uint64),
            family=np.zeros(columns, dtype=np.int64),
            best=np.zeros((columns, columns), dtype=np.bool_),
            level=np.full(1, -np.inf),
            numbers=np.zeros(3, dtype=np.int64),
            visited=np.zeros(_VISITED, dtype=np.uint64),
            above=np.zeros((columns, -(-columns // 64)), dtype=np.uint64),
            nodes=np.zeros((2, columns), dtype=np.int64),
        )
        self.steps = self.families = 0
        self.store = self._sized(4 * columns)
        self.load(rules.required)
        if _trace(self.walk) < columns:
            raise LearnError("required: the edges must not form a cycle")
        for child in np.flatnonzero(rules.required.any(axis=0)).tolist():
            cells = self.values[child] * self.values[rules.required[:, child]].prod()
            if cells > MOST_CELLS:
                raise LearnError(
                    f"required: the table of a column and its parents has {cells:.3g} cells; at "
                    f"most {MOST_CELLS:,} are possible. Require fewer parents"
                )

    def load(self, edge: NDArray[np.bool_], without: int = _ANY) -> None:
        """Continue from a network in which the column `without` keeps only its required edges."""
        _load(self.walk, edge, without)

    def wander(self, rng: np.random.Generator) -> None:
        """Reverse covered edges at random: edges whose ends have the same other parents."""
        _wander(self.walk, self.allowed, rng.random(len(self.walk.edge)))

    def climb(self, tabu: int, source: int = _ANY, target: int = _ANY) -> float:
        """Climb, and return the score of the best network, `walk.best`.

        With a source or a target, climbs only add edges from or to this column that raise the
        score.
        """
        _begin(self.walk)
        while not self.watch.ended:
            child = _climb(self.walk, self.store, tabu, source, target)
            if child == _ENDED:
                break
            self._add(child)
        self.steps += int(self.walk.numbers[_STEPS])
        return float(self.walk.level[0])

    def complete(self) -> None:
        """Score all families of the network."""
        while (child := _look_up(self.walk, self.store)) != _ENDED:
            self._add(child)

    def _add(self, child: int) -> None:
        """Score the family of a column, also with one parent more or less."""
        if self.families == len(self.store.keys):
            self._grow()
        column, most = self.walk.edge[:, child], self.rules.max_parents
        parents = np.flatnonzero(column)
        if most is None or len(parents) < most:
            cells = self.values[child] * self.values[parents].prod() * self.values
            candidates = np.flatnonzero(self.allowed[:, child] & ~column & (cells <= MOST_CELLS))
        else:
            candidates = parents[:0]
        own, add, drop = self.counter.scores(child, parents.tolist(), candidates, self.scoring)
        number, store = self.families, self.store
        store.own[number] = own
        add -= own
        drop -= own
        store.add[number, candidates] = add
        store.drop[number, parents] = drop
        store.keys[number] = self.walk.keys[child]
        _place(store, number)
        self.families += 1

    def _sized(self, families: int) -> Store:
        """Return an empty store."""
        places = np.full(1 << (2 * families).bit_length(), -1, dtype=np.int64)
        shape = families, self.counter.columns
        return Store(
            places,
            np.zeros(families, dtype=np.uint64),
            np.zeros(families),
            np.full(shape, -np.inf),
            np.full(shape, -np.inf),
        )

    def _grow(self) -> None:
        """Double the store."""
        full, count = self.store, self.families
        self.store = self._sized(2 * count)
        for old, new in zip(full[1:], self.store[1:], strict=True):
            new[:count] = old
        for number in range(count):
            _place(self.store, number)


def hill_climbing(
    counter: Counter,
    scoring: Scoring,
    rules: Rules,
    tabu: int,
    restarts: int,
    rng: np.random.Generator,
    watch: Watch,
    start: NDArray[np.bool_] | None = None,
    values: NDArray[np.int64] | None = None,
) -> Learned:
    """Return the best network found.

    Parameters
    ----------
    counter : Counter
        A table without missing cells.
    scoring : Scoring
        The score.
    rules : Rules
        Allowed and required edges, and the largest number of parents.
    tabu, restarts : int
        Steps without a better network before the first climb ends, and rounds of further climbs.
    rng : Generator
        Chooses the order of columns, and equivalent networks.
    watch : Watch
        The deadline and the signals of the call.
    start : array or None
        [parent, child] the first network; by default only the required edges.
    values : array or None
        Number of values per column of the tables that are fitted later, if rare values are pooled.
    """
    search = Search(counter, scoring, rules, rng, watch, values)
    if start is not None:
        search.load(start | rules.required)
    level = search.climb(tabu)
    best = search.walk.best.copy()
    idle = 0
    for _ in range(restarts):
        before = level
        search.load(best)
        search.wander(rng)
        best = search.walk.edge.copy()
        for column in rng.permutation(np.flatnonzero(search.free)).tolist():
            for ends in ((_ANY, column), (column, _ANY)):
                if watch.ended:
                    break
                search.load(best, without=column)
                search.climb(0, *ends)
                top = search.climb(min(tabu, _SHORT))
                if top > level - _SAME:
                    best, level = search.walk.best.copy(), max(top, level)
        idle = 0 if level > before + _SAME else idle + 1
        if idle == _IDLE or watch.ended:
            break
    search.load(best)
    search.complete()
    families, drop = search.walk.family, search.store.drop
    pairs = np.argwhere(best.T)[:, ::-1]  # by child
    edges = [(int(parent), int(child)) for parent, child in pairs]
    strengths = [-float(drop[families[child], parent]) for parent, child in edges]
    return Learned(edges, strengths, True, level, search.steps, watch.ended or "converged")


@entry
def _load(walk, edge, without):
    """Start from a network in which the column `without` keeps only its required edges."""
    columns = len(edge)
    for child in range(columns):
        walk.keys[child] = walk.marks[child, child]
        walk.family[child] = -1
    for parent in range(columns):
        for child in range(columns):
            kept = edge[parent, child]
            if parent == without or child == without:
                kept = walk.required[parent, child]
            walk.edge[parent, child] = kept
            if kept:
                walk.keys[child] ^= walk.marks[parent, child]


@entry
def _begin(walk):
    """Begin a climb at the current network."""
    walk.level[0] = -np.inf
    walk.numbers[:] = 0


@kernel
def _flip(walk, parent, child):
    """Add or remove an edge."""
    walk.edge[parent, child] = not walk.edge[parent, child]
    walk.keys[child] ^= walk.marks[parent, child]
    walk.family[child] = -1


@entry
def _place(store, number):
    """Insert a family into the hash table by its key."""
    last = np.uint64(len(store.places) - 1)
    place = store.keys[number] & last
    while store.places[place] >= 0:
        place = (place + np.uint64(1)) & last
    store.places[place] = number


@entry
def _look_up(walk, store):
    """Find the families of all columns; return one that is not in the store, or `_ENDED`."""
    last = np.uint64(len(store.places) - 1)
    for child in range(len(walk.keys)):
        if walk.family[child] < 0:
            place = walk.keys[child] & last
            while store.places[place] >= 0:
                if store.keys[store.places[place]] == walk.keys[child]:
                    break
                place = (place + np.uint64(1)) & last
            walk.family[child] = store.places[place]
            if walk.family[child] < 0:
                return child
    return _ENDED


@entry
def _climb(walk, store, tabu, source, target):
    """Climb until the end, or until a column has a family that is not in the store.

    Returns this column, or `_ENDED`. A further call continues the climb.
    """
    while True:
        missing = _look_up(walk, store)
        if missing != _ENDED:
            return missing
        score, code = 0.0, np.uint64(0)
        for child in range(len(walk.keys)):
            score += store.own[walk.family[child]]
            code ^= walk.keys[child]
        if score > walk.level[0] + _SAME:
            walk.level[0] = score
            _keep(walk)
            walk.numbers[_WORSE] = 0
        walk.visited[walk.numbers[_CODES] % _VISITED] = code
        walk.numbers[_CODES] += 1
        _trace(walk)
        if source == _ANY and target == _ANY:
            change, parent, child, gain = _best_change(walk, store, code)
        else:
            change, parent, child, gain = _best_edge(walk, store, source, target)
        worse = score + gain <= walk.level[0] + _SAME
        if gain == -np.inf or (worse and walk.numbers[_WORSE] >= tabu):
            return _ENDED
        walk.numbers[_STEPS] += 1
        walk.numbers[_WORSE] += 1
        _flip(walk, parent, child)
        if change == REVERSE:
            _flip(walk, child, parent)


@kernel
def _keep(walk):
    """Store the current network as the best one."""
    for parent in range(len(walk.edge)):
        for child in range(len(walk.edge)):
            walk.best[parent, child] = walk.edge[parent, child]


@kernel
def _best_change(walk, store, code):
    """Return the change with the largest gain, among those that do not lead to a tabu network.

    Returns its kind, the parent, the child, and the gain.
    """
    columns, best = len(walk.edge), -np.inf
    change, source, target = ADD, 0, 0
    for child in range(columns):
        own = walk.family[child]
        for parent in range(columns):
            gain = store.add[own, parent]
            if gain > best and _is_open(walk, parent, child, code):
                best, change, source, target = gain, ADD, parent, child
            if walk.edge[parent, child] and not walk.required[parent, child]:
                gain, changed = store.drop[own, parent], code ^ walk.marks[parent, child]
                if gain > best and not _is_visited(walk, changed):
                    best, change, source, target = gain, DROP, parent, child
                gain += store.add[walk.family[parent], child]
                changed ^= walk.marks[child, parent]
                only = gain > best and _is_only_path(walk, parent, child)
                if only and not _is_visited(walk, changed):
                    best, change, source, target = gain, REVERSE, parent, child
    return change, source, target, best


@kernel
def _best_edge(walk, store, source, target):
    """Return the edge from `source` or to `target` with the largest gain, as in `_best_change`."""
    columns, best, parent, child = len(walk.edge), -np.inf, 0, 0
    for other in range(columns):
        begin, end = (source, other) if target == _ANY else (other, target)
        gain = store.add[walk.family[end], begin]
        if gain > best and not _is_above(walk, end, begin):
            best, parent, child = gain, begin, end
    return ADD, parent, child, best


@kernel
def _is_above(walk, a, b):
    """Return whether a path leads from a to b."""
    return (walk.above[b, a // 64] >> np.uint64(a % 64)) & np.uint64(1) == np.uint64(1)


@kernel
def _is_open(walk, parent, child, code):
    """Return whether an edge may be added: it closes no cycle, and the network is not tabu."""
    if _is_above(walk, child, parent):
        return False
    return not _is_visited(walk, code ^ walk.marks[parent, child])


@kernel
def _is_only_path(walk, parent, child):
    """Return whether an edge is the only path between its ends."""
    for other in range(len(walk.edge)):
        if other != child and walk.edge[parent, other] and _is_above(walk, other, child):
            return False
    return True


@kernel
def _is_visited(walk, code):
    """Return whether a network is tabu."""
    found = False
    for place in range(min(walk.numbers[_CODES], _VISITED)):
        found |= walk.visited[place] == code
    return found


@entry
def _trace(walk):
    """Compute the ancestors of each column; return how many columns sort topologically.

    Every column counts as its own ancestor.
    """
    columns, count, done = len(walk.edge), 0, 0
    waiting, ready = walk.nodes[0], walk.nodes[1]
    waiting[:] = 0
    walk.above[:] = np.uint64(0)
    for parent in range(columns):
        walk.above[parent, parent // 64] = np.uint64(1) << np.uint64(parent % 64)
        for child in range(columns):
            waiting[child] += walk.edge[parent, child]
    for column in range(columns):
        if waiting[column] == 0:
            ready[count] = column
            count += 1
    while done < count:
        parent = ready[done]
        done += 1
        for child in range(columns):
            if walk.edge[parent, child]:
                for word in range(walk.above.shape[1]):
                    walk.above[child, word] |= walk.above[parent, word]
                waiting[child] -= 1
                if waiting[child] == 0:
                    ready[count] = child
                    count += 1
    return done


@entry
def _wander(walk, allowed, shares):
    """Reverse one covered edge per share: the first one from that share of all pairs on."""
    columns = len(walk.edge)
    for share in shares:
        begin, found = np.int64(share * columns * columns), False
        for step in range(columns * columns):
            place = (begin + step) % (columns * columns)
            parent, child = place // columns, place % columns
            if walk.edge[parent, child] and _is_covered(walk, allowed, parent, child):
                _flip(walk, parent, child)
                _flip(walk, child, parent)
                found = True
                break
        if not found:
            return


@kernel
def _is_covered(walk, allowed, parent, child):
    """Return whether an edge may be reversed: it is allowed, and gives an equivalent network."""
    if not allowed[child, parent] or walk.required[parent, child]:
        return False
    differ = 0  # the parent itself is one difference
    for other in range(len(walk.edge)):
        differ += walk.edge[other, parent] != walk.edge[other, child]
    return differ == 1
