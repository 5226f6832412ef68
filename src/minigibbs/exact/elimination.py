"""Exact marginals, log Z, maxima and independent draws of graphs of low treewidth.

Variables are eliminated one at a time: all tables of a variable are multiplied, and the variable is
summed out. `ordering` finds a good order, `plan` turns it into products of two tables each, and
`contraction` computes them. The upward pass computes log Z, the downward pass all marginals.

Values that hard constraints and evidence exclude (`graph.pruning`) are omitted, which often reduces
the treewidth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError, SampleError
from minigibbs.exact.contraction import LOGS, SUM, Choose, Contraction, UnderflowError, slowness
from minigibbs.exact.device import FASTER, LAUNCHES, Card
from minigibbs.exact.ordering import Order, refuse_dense
from minigibbs.exact.passes import Passes, Written
from minigibbs.exact.plan import Plan, make_plan
from minigibbs.exact.preparation import plan_keeping, prepared_plan
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.factors.implicit.base import Implicit
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.pruning import prune
from minigibbs.graph.rounding import warn_of_rounding
from minigibbs.kernels.layout import EQUAL, TABLE
from minigibbs.kernels.passes import Values, write_leaves
from minigibbs.system import memory as machine
from minigibbs.system.boundary import checked
from minigibbs.system.progress import Stage

Table = NDArray[np.float64]
DEFAULT_MEMORY = 4 * 2**30  # bytes, or half of the free memory if that is less
_DRAWS = 1 << 16  # independent draws per batch
_WEIGHTS = 1 << 20  # weights of values evaluated at a time
_VARIABLE_BYTES = 2000  # Python objects of the order and the plan, per variable
_FACTOR_BYTES = 300  # Python objects per factor
_WRITTEN = 5  # arrays of a leaf's size while it is expanded
_WORKING = 4  # arrays of the largest table's size while it is used
_SMALL_BUDGET = 2**24  # bytes that are always allowed
_MORE_MEMORY = "sample the graph (mg.sample), or allow more memory (memory=...)"


@checked(SampleError)
def exact_marginals(
    graph: FactorGraph, memory: float | None = None, *, progress: bool = True
) -> NDArray[np.float64]:
    """Compute exact marginals by variable elimination.

    It suits graphs of low treewidth: chains, trees and narrow grids of any length, and small
    graphs. Time and memory grow exponentially with the treewidth. A graph that would need too much
    memory is rejected before any memory is allocated.

    Parameters
    ----------
    graph : FactorGraph
        The model, with or without evidence.
    memory : float, optional
        Bytes that may be used. By default 4 GiB, or half of the free memory if that is less.
    progress : bool, default True
        Whether to show what is done if stderr is a terminal.

    Returns
    -------
    ndarray
        [variable, value] probabilities, 0 beyond a variable's domain.

    Raises
    ------
    TooLargeError
        If the treewidth of the graph is too large.

    Examples
    --------
    A chain of 1,000 spins, far too many states to enumerate:

    >>> import minigibbs as mg
    >>> chain = mg.FactorGraph([2] * 1000, [mg.Ising(range(999), range(1, 1000), 0.7)])
    >>> exact_marginals(chain.condition({0: 1}))[1].round(4)
    array([0.1978, 0.8022])
    """
    warn_of_rounding(graph)
    tree = _tree(graph, memory, progress)
    with Stage(_eliminating(tree), progress):
        return graph.domains.square(exact_answer(tree)[0])


def _tree(
    graph: FactorGraph, memory: float | None, progress: bool, draws: bool = False
) -> EliminationTree:
    if memory is not None and not memory > 0:
        raise SampleError(f"memory must be a positive number of bytes, got {memory!r}")
    with Stage("looking for an elimination order", progress):
        return EliminationTree.of(graph, memory, draws=draws)


def _eliminating(tree: EliminationTree) -> str:
    """Say what is done, and how long it takes where that is worth telling."""
    seconds = f", about {tree.seconds:,.0f} s" if tree.seconds >= 1 else ""
    return f"eliminating variables{seconds}"


def exact_answer(tree: EliminationTree) -> tuple[NDArray[np.float64], float]:
    """Return marginals [sum of sizes] and log Z from a tree's two passes.

    Raises `GraphError` if no state is possible.
    """
    with tree.reserved():
        log_z, graph = possible(tree), tree.graph
        first = np.cumsum(graph.sizes, dtype=np.int64) - graph.sizes
        result = np.zeros(int(graph.sizes.sum(dtype=np.int64)))
        result[np.repeat(first, tree.sizes) + tree.left.value] = tree.flat_marginals()
    return result, log_z


@checked(SampleError)
def log_partition(
    graph: FactorGraph, memory: float | None = None, *, progress: bool = True
) -> float:
    """Compute log Z: the logarithm of the sum of exp(log-potential) over all states.

    The sum is over the states that agree with the evidence. The method is that of
    `exact_marginals`.

    Parameters
    ----------
    graph : FactorGraph
        The model, with or without evidence.
    memory : float, optional
        Bytes that may be used. By default 4 GiB, or half of the free memory if that is less.
    progress : bool, default True
        Whether to show what is done if stderr is a terminal.

    Returns
    -------
    float
        log Z; -inf if no state is possible.

    Raises
    ------
    TooLargeError
        If the treewidth of the graph is too large.

    Examples
    --------
    >>> import minigibbs as mg
    >>> round(log_partition(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])), 6)
    1.506409
    """
    tree = _tree(graph, memory, progress)
    with tree.reserved(), Stage(_eliminating(tree), progress):
        return tree.upward()


@checked(SampleError)
def exact_draws(
    graph: FactorGraph,
    count: int,
    seed: int | None = None,
    memory: float | None = None,
    *,
    progress: bool = True,
) -> NDArray[np.unsignedinteger]:
    """Draw independent states from the model by variable elimination.

    The method is that of `exact_marginals`. Each draw then costs O(variables).

    Parameters
    ----------
    graph : FactorGraph
        The model, with or without evidence.
    count : int
        Number of draws.
    seed : int, optional
        Seed of the draws.
    memory : float, optional
        Bytes that may be used. By default 4 GiB, or half of the free memory if that is less.
    progress : bool, default True
        Whether to show what is done if stderr is a terminal.

    Returns
    -------
    ndarray of int
        [draw, variable] indices of values.

    Raises
    ------
    TooLargeError
        If the treewidth of the graph is too large.

    Examples
    --------
    >>> import minigibbs as mg
    >>> grid = mg.models.ising_lattice(side=8, beta=0.4, periodic=False)
    >>> exact_draws(grid, 1000, seed=1).shape
    (1000, 64)
    """
    for name, number in (("count", count), ("seed", seed)):
        if number is not None and (number < 0 or isinstance(number, bool)):
            raise SampleError(f"{name} must be an integer of at least 0, got {number!r}")
    size = min(count, 2**62) * len(graph) * graph.state_type.itemsize
    machine.require(size, f"{count:,} draws of {len(graph):,} variables", "use a smaller count")
    warn_of_rounding(graph)
    tree = _tree(graph, memory, progress, draws=True)
    with tree.reserved(), Stage(f"drawing {count:,} states", progress):
        possible(tree)
        rng = np.random.default_rng(seed)
        states = np.empty((count, len(graph)), dtype=graph.state_type)
        for first in range(0, count, _DRAWS):
            tree.draw(states[first : first + _DRAWS], lambda rows, _: rng.random(rows))
    return states


@checked(SampleError)
def treewidth_bound(graph: FactorGraph) -> int:
    """Compute the width of the elimination order that `exact_marginals` would use.

    Parameters
    ----------
    graph : FactorGraph
        The model, with or without evidence.

    Returns
    -------
    int
        An upper bound on the treewidth.

    Examples
    --------
    >>> import minigibbs as mg
    >>> treewidth_bound(mg.models.ising_lattice(side=5, beta=0.4, periodic=False))
    5
    """
    return EliminationTree.of(graph).order.width


def possible(tree: EliminationTree) -> float:
    """Return log Z from a tree's upward pass; raise `GraphError` if no state is possible."""
    log_z = tree.upward()
    if log_z == -math.inf:
        clamped = (tree.graph.evidence != FREE).any()
        what = "the evidence" if clamped else "every state"
        why = "its zeros exclude it" if clamped else "its zeros contradict each other"
        raise GraphError(f"{what} has probability 0 in this graph: {why}; there are no marginals")
    return log_z


def budget_of(memory: float | None, card: Card | None = None) -> float:
    """Return the bytes that an exact answer may use; `memory` is the limit of the call, if any."""
    free = machine.available() if card is None else card.free()
    usual = min(DEFAULT_MEMORY, free / 2) if card is None else free
    return usual if memory is None else min(memory, free)


class Turn(NamedTuple):
    """Variables that are drawn together given earlier ones, and the tables they depend on."""

    variables: tuple[int, ...]
    tables: list[tuple[tuple[int, ...], Table]]  # scope and logarithms


@dataclass
class EliminationTree:
    """A graph with its elimination order, its plan, and the tables of the latest pass."""

    graph: FactorGraph
    order: Order
    plan: Plan
    leaves: tuple[tuple[int, ...], ...]  # factors of each leaf, then of no leaf; pairs first
    sizes: NDArray[np.int64]  # number of possible values of each variable
    alive: NDArray[np.bool_] | None = None  # [sum of sizes] possible values, with hard constraints
    possible: bool = True  # False if pruning found no possible state
    contraction: Contraction | None = field(default=None, repr=False)
    card: Card | None = field(default=None, repr=False)
    _weights: Mapping[int, Table] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        graph: FactorGraph,
        memory: float | None = None,
        joint: tuple[tuple[int, ...], ...] = (),
        card: Card | None = None,
        draws: bool = False,
        kept: Sequence[int] = (),
    ) -> EliminationTree:
        """Return the tree of a graph; raise `TooLargeError` if its two passes need too much memory.

        Every set of variables in `joint` gets a leaf, and thus a joint marginal. With a card the
        limit is the memory of the card. A tree for draws sums few variables at a time, because
        every draw evaluates the weights of all their joint values. Variables in `kept` are not
        eliminated: `rest` has the tables that are left.
        """
        budget = budget_of(memory, card)
        stored = sum(len(one) for one in graph.factors if not isinstance(one, Implicit))
        objects = _VARIABLE_BYTES * (graph.evidence == FREE).sum() + _FACTOR_BYTES * stored
        if objects > max(budget, _SMALL_BUDGET):
            raise machine.too_large(objects, budget, "exact elimination", _MORE_MEMORY)
        pace = 1.0 if card is None else 1.0 / FASTER
        tree = cls.ordered(graph, max(budget / 8, 1.0), joint, draws, kept, pace)
        if tree.size > max(budget, _SMALL_BUDGET):
            raise machine.too_large(tree.size, budget, "exact elimination", _MORE_MEMORY)
        tree.card = card
        return tree

    @classmethod
    def ordered(
        cls,
        graph: FactorGraph,
        most: float,
        joint: tuple[tuple[int, ...], ...] = (),
        draws: bool = False,
        kept: Sequence[int] = (),
        pace: float = 1.0,
    ) -> EliminationTree:
        """Return the tree of a graph; `TooLargeError` for more than `most` entries of messages."""
        if graph.implicits and (graph.evidence == FREE).all():
            most_pairs = max(int(group.degrees().sum()) // 2 for group in graph.implicits)
            refuse_dense(most_pairs, graph.sizes, most)
        whole = graph.stored() if graph.implicits else graph
        alive = prune(whole) if len(whole.hard) else None
        if alive is not None:
            sizes = np.add.reduceat(alive, whole.packed.first, dtype=np.int64)
        elif len(whole.hard):  # no state is possible
            nothing = np.ones(len(whole), dtype=np.int64)
            plan = make_plan((), (), nothing)
            return cls(whole, Order((), 0, 0.0, 0.0), plan, ((),), nothing, possible=False)
        else:
            sizes = np.where(whole.evidence == FREE, whole.sizes, 1).astype(np.int64)
        wanted = tuple(tuple(v for v in some if sizes[v] > 1) for some in joint)
        if kept:
            order, plan, leaves = plan_keeping(
                whole, sizes, [v for v in kept if sizes[v] > 1], most
            )
        else:
            order, plan, leaves = prepared_plan(graph, whole, sizes, wanted, most, draws, pace)
        return cls(whole, order, plan, leaves, sizes, alive)

    @classmethod
    def written(cls, graph: FactorGraph) -> EliminationTree:
        """Return a tree without an order or a plan, for `factor` and `values`."""
        sizes = np.where(graph.evidence == FREE, graph.sizes, 1).astype(np.int64)
        return cls(graph, Order((), 0, 0.0, 0.0), make_plan((), (), sizes), ((),), sizes)

    @cached_property
    def size(self) -> float:
        """Bytes that the two passes need: all tables, and temporary copies."""
        return max(
            self.bytes(self.plan.entries, self.plan.largest),
            8.0 * (self.plan.entries + _WRITTEN * self.plan.largest_leaf),
        )

    @staticmethod
    def bytes(entries: float, largest: float) -> float:
        """Bytes of tables with some entries in all, and of copies of the largest one."""
        return 8.0 * (entries + _WORKING * largest)

    def reserved(self) -> AbstractContextManager[None]:
        """Reserve the memory of the two passes; raise `TooLargeError` if it is not available."""
        if self.card is not None:
            return nullcontext()
        what = "an exact answer for this graph, in addition to other work under way,"
        return machine.reserved(self.size, what, "wait for the other work, or sample the graph")

    @property
    def seconds(self) -> float:
        """Predicted seconds of the two passes on this machine."""
        if self.card is not None:
            return self.plan.seconds / FASTER + LAUNCHES * len(self.plan.steps)
        return self.plan.seconds * slowness()

    def values(self, variable: int) -> NDArray[np.int64]:
        """Return the possible values of a variable."""
        if self.alive is not None:
            first = int(self.graph.packed.first[variable])
            return np.flatnonzero(self.alive[first : first + int(self.graph.sizes[variable])])
        fixed = int(self.graph.evidence[variable])
        return np.arange(self.graph.sizes[variable]) if fixed == FREE else np.array([fixed])

    def upward(self, mode: str = SUM) -> float:
        """Sum out the variables one by one; return log Z, -inf if no state is possible.

        With mode LARGEST the result is the log-potential of the most probable state.
        """
        return float(self.upward_rows({}, mode)[0])

    def upward_rows(self, weights: Mapping[int, Table], mode: str = SUM) -> NDArray[np.float64]:
        """Sum out the variables for several rows of hard or soft evidence; return log Z of each.

        `weights` contains log-weights [row, value] for variables that have a leaf of their own.
        """
        self._weights = weights
        if not self.possible:
            return np.array([-math.inf])
        constant, written = self._write()
        if constant == -math.inf:
            return np.array([constant])
        ranges = None
        if self.alive is None and not weights:
            ranges = self.graph.local_energies
        try:
            if mode == SUM and self.card is None and not weights:
                self.contraction = Passes(self.plan, self.sizes, written, ranges)
            else:
                tables = self._tables(written, weights)
                self.contraction = Contraction(
                    self.plan, self.sizes, tables, mode, ranges, self.card
                )
            return constant + self.contraction.upward()
        except UnderflowError:
            tables = self._tables(written, weights)
            self.contraction = Contraction(self.plan, self.sizes, tables, LOGS, ranges)
            return constant + self.contraction.upward()

    def rest(self) -> tuple[float, list[tuple[tuple[int, ...], Table]]]:
        """Sum out all variables that are not kept; return a constant and tables of logarithms.

        The logarithm of the sum is the constant plus the tables, in the order of their axes.
        """
        if not self.possible:
            return -math.inf, []
        constant, written = self._write()
        tables = self._tables(written, {})
        try:  # not a single product may be lost, so that there are no ranges
            made = Contraction(self.plan, self.sizes, tables)
            total = made.upward()
        except UnderflowError:
            made = Contraction(self.plan, self.sizes, tables, LOGS)
            total = made.upward()
        found = [(made.scope(node), made.unscaled(node)[0]) for node in self.plan.rest]
        return constant + float(total[0]), found

    def flat_marginals(self) -> NDArray[np.float64]:
        """The marginals of all variables one behind the other, after `upward`.

        Each is over the values that its variable may take.
        """
        found, first = np.ones(int(self.sizes.sum())), np.cumsum(self.sizes) - self.sizes
        if isinstance(self._made, Passes):
            try:
                self._made.marginals(first, found)
                return found
            except UnderflowError:
                self.upward(LOGS)
        for variable, marginal in self.marginals():
            found[first[variable] : first[variable] + len(marginal)] = marginal
        return found

    def leaf_marginals(self) -> Iterator[tuple[tuple[int, ...], Table]]:
        """Yield the scope and the joint marginal of each leaf, after `upward`.

        Tables are over the possible values of the variables.
        """
        for scope, joint in self.leaf_rows():
            yield scope, joint[0]

    def leaf_rows(self) -> Iterator[tuple[tuple[int, ...], Table]]:
        """Yield the scope and the joint marginals [row, ...] of each leaf, after `upward_rows`."""
        try:
            joints = self._made.joints()
        except UnderflowError:
            self.upward_rows(self._weights, LOGS)
            joints = self._made.joints()
        for leaf in range(self.plan.leaves):
            yield self.plan.scopes[leaf], joints(leaf)

    def marginals(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield each variable's marginal over its possible values, after `upward`."""
        for variable, rows in self.marginal_rows():
            yield variable, rows[0]

    def marginal_rows(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield each variable's marginals [row, value], after `upward_rows`."""
        for leaf, (scope, joint) in enumerate(self.leaf_rows()):
            for axis, variable in enumerate(scope):
                if self.plan.leaf_of[variable] == leaf:
                    others = tuple(k + 1 for k in range(len(scope)) if k != axis)
                    yield variable, joint.sum(axis=others)

    @property
    def _made(self) -> Contraction:
        assert self.contraction is not None, "upward comes first"
        return self.contraction

    def draw(
        self,
        states: NDArray[np.unsignedinteger],
        marks: Callable[[int, int], NDArray[np.float64]],
    ) -> None:
        """Fill rows with independent draws, the last variable first, after `upward`.

        `marks(rows, variable)` returns one uniform number per row.
        """
        uniform = np.empty(0)

        def choose(variables: tuple[int, ...], rows: slice, weights: Table) -> NDArray[np.int64]:
            nonlocal uniform
            if rows.start == 0:
                uniform = marks(len(states), variables[0])
            return _drawn(weights, uniform[rows])

        self._fill(states, choose)

    def turns(self) -> Iterator[Turn]:
        """Yield variables to draw and the tables they depend on, in this order, after `upward`."""
        made = self._made
        for step in reversed(self.plan.steps):
            if step.summed:
                nodes = [node for node in (step.left, step.right) if node >= 0]
                tables = [(made.scope(node), made.logs(node)[0]) for node in nodes]
                yield Turn(step.summed, tables)

    def most_probable(self, states: NDArray[np.unsignedinteger]) -> None:
        """Fill rows with the most probable state, after `upward(LARGEST)`."""
        self._fill(states, lambda _, __, weights: weights.argmax(axis=1))

    def _fill(
        self,
        states: NDArray[np.unsignedinteger],
        choose: Choose,
    ) -> None:
        for variable in np.flatnonzero(self.sizes == 1).tolist():
            states[:, variable] = self.values(variable)[0]
        self._made.trace(states, choose, _WEIGHTS)
        if self.alive is not None:  # from indices of possible values to values
            for variable in self.order.variables:
                states[:, variable] = self.values(variable)[states[:, variable]]

    def tables(self) -> tuple[float, list[Table]]:
        """The sum of factors without variables, and the logarithms of each leaf's factors."""
        constant, written = self._write()
        return constant, self._tables(written, {})

    @cached_property
    def left(self) -> Values:
        """The values that are left to each variable, and the factors of each leaf."""
        sizes, first = self.graph.sizes, np.cumsum(self.sizes) - self.sizes
        if self.alive is not None:
            begin = np.cumsum(sizes, dtype=np.int64) - sizes
            value = np.flatnonzero(self.alive) - np.repeat(begin, self.sizes)
        else:
            value = np.arange(int(self.sizes.sum())) - np.repeat(first, self.sizes)
            clamped = np.flatnonzero(self.graph.evidence != FREE)
            value[first[clamped]] = self.graph.evidence[clamped]
        counts = np.array([len(numbers) for numbers in self.leaves], dtype=np.int64)
        numbers = np.fromiter(chain.from_iterable(self.leaves), np.int64, int(counts.sum()))
        return Values(np.append(first, len(value)), value, np.append(0, np.cumsum(counts)), numbers)

    def _write(self) -> tuple[float, Written]:
        """The sum of factors without variables, and the logarithms of each leaf's factors."""
        leaves, shapes = self.plan.scopes[: self.plan.leaves], self.sizes.tolist()
        counts = [math.prod([shapes[v] for v in scope]) for scope in leaves]
        begin = np.append(0, np.cumsum([*counts, 1], dtype=np.int64))
        whole = Written(np.empty(int(begin[-1])), begin)
        start = np.append(
            self.plan.arrays.start[: len(leaves) + 1], self.plan.arrays.start[len(leaves)]
        )
        digits = np.zeros(len(self.sizes), dtype=np.int64)
        for first, last in whole.pieces():
            write_leaves(
                self.graph.packed,
                self.left,
                start,
                self.plan.arrays.variable,
                self.sizes,
                begin,
                digits,
                whole.logs,
                first,
                last,
            )
        constant = self.graph.offset + float(whole.logs[-1])
        return constant, Written(whole.logs[:-1], begin[:-1])

    def _tables(self, written: Written, weights: Mapping[int, Table]) -> list[Table]:
        """The logarithms of each leaf as a table [row, ...]."""
        tables = []
        for leaf, scope in enumerate(self.plan.scopes[: self.plan.leaves]):
            logs = written.logs[written.begin[leaf] : written.begin[leaf + 1]]
            tables.append(logs.reshape(1, *(int(self.sizes[v]) for v in scope)))
        for variable, rows in weights.items():
            leaf = self.plan.leaf_of[variable]
            assert self.plan.scopes[leaf] == (variable,)
            tables[leaf] = tables[leaf] + rows
        return tables

    def factor(self, number: int) -> tuple[tuple[int, ...], Table]:
        """Return a factor as a table over its variables with several possible values."""
        model = self.graph.packed
        if number < len(model.pair):
            i, j = model.pair[number].tolist()
            return self._pair(i, j, float(model.pair_weight[number]))
        factor = model.factors[number - len(model.pair)]
        slots = model.slots[factor["scope_start"] : factor["scope_end"]]
        return self._general(factor, slots)

    def _pair(self, i: int, j: int, weight: float) -> tuple[tuple[int, ...], Table]:
        """Return a pair's weight where its variables agree, as a table over possible values."""
        equal = self.values(i)[:, None] == self.values(j)
        scope = tuple(v for v in (i, j) if self.sizes[v] > 1)
        return scope, weight * equal.reshape([int(self.sizes[v]) for v in scope])

    def _general(self, factor: np.void, slots: NDArray[np.void]) -> tuple[tuple[int, ...], Table]:
        """Return a table or a formula as a table over variables with several possible values."""
        scope = tuple(v for v in slots["variable"].tolist() if self.sizes[v] > 1)
        place, true = np.int64(factor["table_start"]), np.int64(0)
        for variable, key in slots.tolist():
            values = self.values(variable)
            if len(values) > 1:
                axis = scope.index(variable)
                values = values.reshape([-1 if k == axis else 1 for k in range(len(scope))])
            else:
                values = values[0]
            place, true = place + key * values, true + (values == key)
        if factor["form"] == TABLE:
            return scope, factor["weight"] * self.graph.packed.table[place]
        holds = true == len(slots)
        if factor["form"] == EQUAL:
            holds = holds | (true == 0)
        return scope, factor["weight"] * np.asarray(holds, dtype=np.float64)


def _drawn(weights: Table, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """Draw a value from each row of log-weights, by inversion."""
    weights -= weights.max(axis=1, keepdims=True)
    totals = np.exp(weights, out=weights).cumsum(axis=1)
    marked = uniform * totals[:, -1]
    return (totals[:, :-1] <= marked[:, None]).sum(axis=1)  # type: ignore[no-any-return]
