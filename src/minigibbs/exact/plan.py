"""Plans of elimination: trees of products of two tables each.

A plan depends only on scopes and domain sizes. The same plan is valid for other weights, and for
other values of the same observed variables.

Variables are eliminated in the given order. The tables of a variable are multiplied in pairs, and
every variable that occurs in no other table is summed out. A large table is not multiplied by a
small one at once. The small tables of several eliminations are multiplied with each other first, if
one larger matrix product is faster than several thin ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Container, Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_LARGE = 1 << 12  # entries of a table whose products are delayed
_SMALL = 1 << 12  # entries of the tables that are collected for it
_COMPARED = 6  # tables of which the best pair is searched for
_SMALL_SECONDS = (3e-7, 2e-9)  # of a product in compiled code, and per number multiplied
_STEP_SECONDS = 3e-5  # of another product, beside what follows
_ENTRY_SECONDS = 2e-9  # per entry of the two tables and of the result
_THIN_SECONDS = 8e-10  # per number multiplied, in thin matrices
_BLAS_SECONDS = 6e-11  # the same in matrices of 16 rows and columns or more
SMALL_PRODUCTS = 1 << 14  # numbers multiplied by a step that compiled code makes
SMALL_BITS = math.log2(SMALL_PRODUCTS) + 1e-6
PRICES = (_STEP_SECONDS, _ENTRY_SECONDS, _THIN_SECONDS, _BLAS_SECONDS, *_SMALL_SECONDS)
PASSES = 3  # products with the size of a step: on the way up, and twice on the way down


class Step(NamedTuple):
    """A product of two nodes, summed over some variables. Leaves are the first nodes."""

    left: int
    right: int  # -1 if the left table is only summed
    scope: tuple[int, ...]  # variables of the result
    summed: tuple[int, ...]


class PlanArrays(NamedTuple):
    """Letters: N nodes, K steps."""

    start: NDArray[np.int64]  # [N + 1] where the scope of each node begins
    variable: NDArray[np.int64]  # the variables of all scopes
    left: NDArray[np.int64]  # [K] the nodes that each step multiplies
    right: NDArray[np.int64]  # [K] -1 for none
    summed_start: NDArray[np.int64]  # [K + 1] the same for the variables that each step sums out
    summed: NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """Steps that eliminate all variables.

    Attributes
    ----------
    scopes
        The scope of every node: first leaves, then results of steps.
    steps
        The products that define the nodes after the leaves.
    roots
        Nodes without variables that no step uses; log Z is the sum of their logarithms.
    leaf_of
        The leaf with the fewest entries that contains each variable.
    """

    scopes: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]
    roots: tuple[int, ...]
    leaf_of: dict[int, int]
    arrays: PlanArrays  # the nodes and steps
    entries: float  # entries of all nodes
    written: float  # entries of all leaves
    largest: float  # entries of the largest node
    largest_leaf: float
    seconds: float  # predicted for all passes

    @property
    def leaves(self) -> int:
        """Number of nodes that are leaves."""
        return len(self.scopes) - len(self.steps)

    @property
    def made(self) -> float:
        """Entries of all products."""
        return self.entries - self.written

    @property
    def rest(self) -> list[int]:
        """The nodes with variables that no step uses: tables over the variables that are kept."""
        used = {node for step in self.steps for node in (step.left, step.right)}
        return [node for node, scope in enumerate(self.scopes) if scope and node not in used]


def _flattened(
    scopes: Sequence[tuple[int, ...]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each scope begins, and the variables of all."""
    lengths = np.array([len(scope) for scope in scopes], dtype=np.int64)
    variables = np.fromiter(chain.from_iterable(scopes), np.int64, int(lengths.sum()))
    return np.append(0, np.cumsum(lengths)), variables


def _priced(
    scopes: tuple[tuple[int, ...], ...],
    steps: tuple[Step, ...],
    roots: tuple[int, ...],
    leaf_of: dict[int, int],
    sizes: NDArray[np.int64],
) -> Plan:
    """Return a plan with the sizes of its tables and its predicted time."""
    left = np.array([step.left for step in steps], dtype=np.int64)
    right = np.array([step.right for step in steps], dtype=np.int64)
    ranges = (*_flattened(scopes), left, right, *_flattened([step.summed for step in steps]))
    arrays = PlanArrays(*ranges)
    wide, joint = table_bits(arrays, sizes)
    with np.errstate(over="ignore"):
        entries = np.rint(np.exp2(wide))
    leaves = entries[: len(scopes) - len(steps)]
    return Plan(
        scopes,
        steps,
        roots,
        leaf_of,
        arrays,
        float(entries.sum()),
        float(leaves.sum()),
        float(entries.max(initial=1.0)),
        float(leaves.max(initial=1.0)),
        PASSES * _pass_seconds(arrays, wide, joint),
    )


def make_plan(
    order: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    sizes: NDArray[np.int64],
    kept: Collection[int] = (),
) -> Plan:
    """Plan the products for an order of all variables that occur in the scopes.

    Parameters
    ----------
    order
        The variables in the order of elimination.
    scopes
        The variables of each leaf; every variable of the order occurs in one.
    sizes
        Number of possible values of each variable.
    kept
        Variables of the scopes that are not in the order. Their tables are in `Plan.rest`.
    """
    return _Planner(order, scopes, sizes, kept).plan()


def plan_of_tree(
    scopes: Sequence[tuple[int, ...]],
    children: Sequence[tuple[int, int]],
    sizes: NDArray[np.int64],
) -> Plan:
    """Return the plan of a given tree of products.

    Parameters
    ----------
    scopes
        The variables of each leaf.
    children
        The two nodes that each product multiplies. Leaves are the first nodes. The last product is
        the root.
    sizes
        Number of possible values of each variable.
    """
    made = _Tree(scopes, sizes)
    below = tree_scopes(scopes, children)
    first, nodes, waiting = len(scopes), dict[int, int](), [len(scopes) + len(children) - 1]
    while waiting:  # children before parents
        node = waiting[-1]
        todo = [child for child in children[node - first] if child >= first and child not in nodes]
        if todo:
            waiting += todo
            continue
        waiting.pop()
        used = []
        for child in children[node - first]:
            own = nodes.get(child, child)
            if below[child]:
                used.append(own)
            elif child < first:  # its variables occur in no other leaf
                made.step(own, -1, frozenset(scopes[child]))
        used.sort(key=lambda one: -made.entries(made.scopes[one]))
        if len(used) == 2:
            together = set(made.scopes[used[0]]) | set(made.scopes[used[1]])
            nodes[node] = made.step(used[0], used[1], together - below[node])
        else:  # the other child is a separate component
            nodes[node] = used[0] if used else -1
    return made.plan()


def tree_of(plan: Plan) -> list[tuple[int, int]]:
    """Return the children of each product of two tables; components are joined to one tree.

    A sum of a single table becomes part of the product that uses it. The last product is the root.
    """
    children = list[tuple[int, int]]()
    alias = list(range(plan.leaves))
    for step in plan.steps:
        if step.right < 0:
            alias.append(alias[step.left])
            continue
        alias.append(plan.leaves + len(children))
        children.append((alias[step.left], alias[step.right]))
    top, *others = [alias[root] for root in plan.roots]
    for other in others:
        children.append((top, other))
        top = plan.leaves + len(children) - 1
    return children


def plan_within(known: Plan, sizes: NDArray[np.int64]) -> Plan | None:
    """Return a known plan without the variables that now have one possible value.

    It has the leaves and the steps of the known plan. Some of them have no variables. It is None if
    a variable with several possible values is missing in the known plan.
    """
    arrays, left = known.arrays, known.leaves
    gone = sizes == 1
    if not known.leaf_of.keys() >= set(np.flatnonzero(~gone).tolist()):
        return None
    scopes, steps = list(known.scopes), list(known.steps)
    for node in _ranges_with(gone[arrays.variable], arrays.start):
        scopes[node] = tuple(v for v in scopes[node] if not gone[v])
        if node >= left:
            steps[node - left] = steps[node - left]._replace(scope=scopes[node])
    for step in _ranges_with(gone[arrays.summed], arrays.summed_start):
        summed = tuple(v for v in steps[step].summed if not gone[v])
        steps[step] = steps[step]._replace(summed=summed)
    leaf_of = {v: leaf for v, leaf in known.leaf_of.items() if not gone[v]}
    return _priced(tuple(scopes), tuple(steps), known.roots, leaf_of, sizes)


def _ranges_with(marked: NDArray[np.bool_], start: NDArray[np.int64]) -> list[int]:
    """Return the ranges of an array that contain a mark."""
    places = np.flatnonzero(marked)
    return np.unique(np.searchsorted(start, places, side="right") - 1).tolist()  # type: ignore[no-any-return]


def plan_like(
    known: Plan, scopes: Sequence[tuple[int, ...]], sizes: NDArray[np.int64]
) -> Plan | None:
    """Return the plan of other leaves with the tree of a known plan; None if there is no tree.

    It is for a graph with other evidence, whose leaves are nearly those of the known plan. A leaf
    replaces the smallest of the known leaves that share most variables with it.

    Parameters
    ----------
    known
        The plan of a graph with other evidence.
    scopes
        The variables of each leaf.
    sizes
        Number of possible values of each variable.
    """
    if len(scopes) < 2 or not known.steps:
        return None
    holders: dict[int, list[int]] = {}
    for leaf, scope in enumerate(known.scopes[: known.leaves]):
        for v in scope:
            holders.setdefault(v, []).append(leaf)
    nodes: dict[int, int] = {}  # from nodes of the known tree to new ones
    children = list[tuple[int, int]]()

    def join(place: int, node: int) -> None:
        if place in nodes:
            children.append((nodes[place], node))
            node = len(scopes) + len(children) - 1
        nodes[place] = node

    for number, scope in enumerate(scopes):
        shared = Counter(leaf for v in scope for leaf in holders.get(v, ()))
        places = sorted(shared, key=lambda leaf: (-shared[leaf], len(known.scopes[leaf]), leaf))
        join(places[0] if places else 0, number)
    for product, pair in enumerate(tree_of(known)):
        for child in pair:
            if child in nodes:
                join(known.leaves + product, nodes[child])
    return plan_of_tree(scopes, children, sizes)


def tree_scopes(
    scopes: Sequence[tuple[int, ...]], children: Sequence[tuple[int, int]]
) -> list[set[int]]:
    """Return the variables of every node that also occur in leaves that are not below it."""
    left = Counter(v for scope in scopes for v in scope)
    first, last = len(scopes), len(scopes) + len(children) - 1
    found: list[dict[int, int]] = [dict[int, int]()] * (last + 1)
    for leaf, scope in enumerate(scopes):
        found[leaf] = {v: 1 for v in scope if left[v] > 1}
    order, waiting = [], [last]
    while waiting:
        node = waiting.pop()
        if node >= first:
            order.append(node)
            waiting += children[node - first]
    for node in reversed(order):
        one, other = (found[child] for child in children[node - first])
        seen = one | {v: count + one.get(v, 0) for v, count in other.items()}
        found[node] = {v: count for v, count in seen.items() if count < left[v]}
    return [set(own) for own in found]


class _Tree:
    """Steps that are added one by one, and their predicted time."""

    def __init__(self, scopes: Sequence[tuple[int, ...]], sizes: NDArray[np.int64]) -> None:
        self.sizes: list[int] = sizes.tolist()
        self.scopes: list[tuple[int, ...]] = list(scopes)
        self.steps: list[Step] = []
        self.roots: list[int] = []
        self.leaves = len(scopes)

    def step(self, left: int, right: int, summed: Collection[int]) -> int:
        """Add a step with the axes of a matrix product; return its node."""
        one = self.scopes[left]
        other = () if right < 0 else self.scopes[right]
        together = dict.fromkeys((*one, *other))
        scope = natural_scope(one, other, together.keys() - summed)
        self.scopes.append(scope)
        gone = tuple(v for v in together if v in summed)
        self.steps.append(Step(left, right, scope, gone))
        if not scope:
            self.roots.append(len(self.scopes) - 1)
        return len(self.scopes) - 1

    def plan(self) -> Plan:
        """Return the plan of all steps."""
        leaf_of: dict[int, int] = {}
        entries = [self.entries(scope) for scope in self.scopes[: self.leaves]]
        for leaf in sorted(range(self.leaves), key=entries.__getitem__, reverse=True):
            leaf_of.update(dict.fromkeys(self.scopes[leaf], leaf))
        sizes = np.array(self.sizes, dtype=np.int64)
        return _priced(tuple(self.scopes), tuple(self.steps), tuple(self.roots), leaf_of, sizes)

    def entries(self, scope: Iterable[int]) -> int:
        """Return the number of entries of a table."""
        return math.prod(self.sizes[v] for v in scope)

    def cost(self, a: Set[int], b: Set[int], out: Set[int]) -> float:
        """Predicted seconds of a product."""
        joint = self.entries(a | b)
        if joint <= SMALL_PRODUCTS:
            return _SMALL_SECONDS[0] + _SMALL_SECONDS[1] * joint
        shared = a & b
        parts = (shared & out, a - b, b - a, shared - out, a, b, out)
        return float(product_seconds(*(float(self.entries(part)) for part in parts)))


def natural_scope(
    left: tuple[int, ...], right: tuple[int, ...], kept: Container[int]
) -> tuple[int, ...]:
    """Return the axes of a matrix product in the order in which it writes them."""
    one, other = set(left), set(right)
    return (
        *(v for v in left if v in other and v in kept),
        *(v for v in left if v not in other and v in kept),
        *(v for v in right if v not in one and v in kept),
    )


class _Item(NamedTuple):
    """An unused table: a node, or the delayed product of a large node and a small one."""

    node: int
    scope: frozenset[int]
    small: int = -1  # the other node, if the product is delayed
    parts: tuple[frozenset[int], ...] = ()  # the scopes of both


_KEPT = _Item(-1, frozenset())  # holds the variables that are not eliminated


class _Planner:
    def __init__(
        self,
        order: Sequence[int],
        scopes: Sequence[tuple[int, ...]],
        sizes: NDArray[np.int64],
        kept: Collection[int],
    ) -> None:
        self.order, self.made = order, _Tree(scopes, sizes)
        self.entries, self.cost = self.made.entries, self.made.cost
        self.holders: dict[int, set[_Item]] = {v: set() for v in order} | {v: {_KEPT} for v in kept}
        for number, scope in enumerate(scopes):
            self._hold(_Item(number, frozenset(scope)))

    def plan(self) -> Plan:
        for variable in self.order:
            if self.holders[variable]:
                self._eliminate(variable)
        for item in {item for own in self.holders.values() for item in own if item is not _KEPT}:
            self._now(item)
        return self.made.plan()

    def _eliminate(self, variable: int) -> None:
        items = list(self.holders[variable])
        items.sort(key=lambda item: (self.entries(item.scope), item.node))
        while len(items) > 1:
            large = items[-1]
            others = frozenset().union(*(item.scope for item in items[:-1]))
            if self.entries(large.scope) >= _LARGE and self.entries(others) <= _SMALL:
                while len(items) > 2:
                    items = self._multiply(items, 0, 1)
                self._delay(items[1], self._now(items[0]))
                return
            first, second = self._best_pair(items)
            items = self._multiply(items, first, second)
        if items and variable in items[0].scope:
            item = self._now(items[0])
            self._drop(item)
            summed = {v for v in item.scope if not self.holders[v]}
            self._hold(_Item(self._step(item, None, summed), item.scope - summed))

    def _best_pair(self, items: list[_Item]) -> tuple[int, int]:
        """Return the pair with the smallest product; of many tables, the two smallest."""
        if len(items) > _COMPARED:
            return 0, 1
        pairs = [(a, b) for b in range(len(items)) for a in range(b)]
        return min(pairs, key=lambda pair: self._result(items[pair[0]], items[pair[1]]))

    def _result(self, a: _Item, b: _Item) -> tuple[float, float]:
        """Return the entries of the product of two tables, and of their joint scope."""
        both = a.scope | b.scope
        kept = [v for v in both if not self.holders[v] <= {a, b}]
        return self.entries(kept), self.entries(both)

    def _multiply(self, items: list[_Item], first: int, second: int) -> list[_Item]:
        """Replace two of the items by their product."""
        a, b = self._now(items[first]), self._now(items[second])
        rest = [item for k, item in enumerate(items) if k not in (first, second)]
        product = self._product(a, b)
        rest.append(product)
        rest.sort(key=lambda item: (self.entries(item.scope), item.node))
        return rest

    def _product(self, a: _Item, b: _Item) -> _Item:
        self._drop(a)
        self._drop(b)
        both = a.scope | b.scope
        summed = {v for v in both if not self.holders[v]}
        item = _Item(self._step(a, b, summed), both - summed)
        self._hold(item)
        return item

    def _delay(self, large: _Item, small: _Item) -> None:
        """Multiply a large table by a small one, or delay the product."""
        if large.small >= 0:
            grouped = self._grouped(large, small)
            if grouped:
                return
            large = self._now(large)
        self._drop(large)
        self._drop(small)
        both = large.scope | small.scope
        summed = {v for v in both if not self.holders[v]}
        self._wait(_Item(large.node, both - summed, small.node, (large.scope, small.scope)))

    def _wait(self, item: _Item) -> None:
        """Store a delayed product; compute it if nothing is left that could use it."""
        self._hold(item)
        if not item.scope:
            self._now(item)

    def _grouped(self, large: _Item, small: _Item) -> bool:
        """Multiply a small table with the one that waits for a large table, if that is faster."""
        base, waiting = large.parts
        elsewhere = {v for v in waiting | small.scope if self.holders[v] - {large, small}}
        together = (waiting | small.scope) & (base | elsewhere)
        result = (large.scope | small.scope) & (
            elsewhere | {v for v in large.scope if self.holders[v] - {large, small}}
        )
        if self.entries(together) > _SMALL:
            return False
        now = self.cost(base, waiting, large.scope) + self.cost(large.scope, small.scope, result)
        later = self.cost(base, together, result) + self.cost(waiting, small.scope, together)
        if later > now:
            return False
        self._drop(large)
        self._drop(small)
        summed = (waiting | small.scope) - together
        node = self._step(_Item(large.small, waiting), small, summed)
        self._wait(_Item(large.node, result, node, (base, together)))
        return True

    def _now(self, item: _Item) -> _Item:
        """Return the item with its delayed product computed."""
        if item.small < 0:
            return item
        self._drop(item)
        base, waiting = item.parts
        summed = (base | waiting) - item.scope
        node = self._step(_Item(item.node, base), _Item(item.small, waiting), summed)
        made = _Item(node, item.scope)
        self._hold(made)
        return made

    def _step(self, a: _Item, b: _Item | None, summed: Collection[int]) -> int:
        return self.made.step(a.node, -1 if b is None else b.node, summed)

    def _hold(self, item: _Item) -> None:
        for v in item.scope:
            self.holders[v].add(item)

    def _drop(self, item: _Item) -> None:
        for v in item.scope:
            self.holders[v].discard(item)


def product_seconds(
    matrices: Any, rows: Any, columns: Any, depth: Any, left: Any, right: Any, out: Any
) -> Any:
    """Predict the seconds of products of stacks of matrices and of reading and writing them.

    All arguments are numbers of entries, or arrays of them.
    """
    products = matrices * rows * columns * depth
    narrowest = np.minimum(np.minimum(depth, rows), columns)
    thin = np.maximum(_BLAS_SECONDS, _THIN_SECONDS / np.maximum(narrowest, 1))
    return _STEP_SECONDS + _ENTRY_SECONDS * (left + right + out) + thin * products


def table_bits(
    arrays: PlanArrays, sizes: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return log2 of the entries of every node, and of the numbers that every step multiplies."""
    bits = np.log2(sizes)
    wide = _sums(bits[arrays.variable], arrays.start)
    return wide, wide[len(wide) - len(arrays.left) :] + _sums(
        bits[arrays.summed], arrays.summed_start
    )


def _sums(numbers: NDArray[np.float64], start: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return sums of ranges of an array, which follow one another."""
    return np.diff(np.append(0.0, np.cumsum(numbers))[start])  # type: ignore[no-any-return]


def _pass_seconds(
    arrays: PlanArrays, wide: NDArray[np.float64], joint: NDArray[np.float64]
) -> float:
    """Predict the seconds of all steps, from `table_bits`."""
    left, out = wide[arrays.left], wide[len(wide) - len(joint) :]
    right = np.where(arrays.right >= 0, wide[arrays.right], 0.0)
    shared = left + right - joint
    depth = np.minimum(joint - out, shared)
    exponents = (shared - depth, left - shared, right - shared, depth, left, right, out)
    with np.errstate(over="ignore"):
        large = product_seconds(*map(np.exp2, exponents))
        small = _SMALL_SECONDS[0] + _SMALL_SECONDS[1] * np.exp2(joint)
    return float(np.where(joint <= SMALL_BITS, small, large).sum())
