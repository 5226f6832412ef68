"""Proven bounds on log Z: mini-buckets with tables of bounded size, by Hölder's inequality.

Variables are eliminated in an order. If the product of a variable's tables is too large, the tables
are split into groups (mini-buckets). Each group is summed with its own weight:
(sum over x of f(x)^(1/w))^w. With positive weights that sum to 1, the result is an upper bound on
the sum of the product. With one weight above 1, negative others and a sum of 1, it is a lower bound
(Liu and Ihler, 2011, "Bounding the partition function using Hölder's inequality").

For upper bounds, each group of a variable is multiplied by a function of that variable, so that all
groups get the same mean (moment matching). The product of these functions is 1. This tightens the
bounds.

Another lower bound is log Z of the graph with some variables fixed at their values in a probable
state, because its sum is over fewer states. Variables are fixed where tables would be too large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.exact.costs import cost_functions
from minigibbs.graph.graph import FactorGraph
from minigibbs.system.boundary import checked
from minigibbs.system.progress import Delayed
from minigibbs.system.watch import current

_ENTRIES = 1 << 16  # per table
_DECODED = 1 << 10  # entries per table of the messages that choose a state
_NEGATIVE = -0.05  # weight of every group after the first, in lower bounds


class Part(NamedTuple):
    """A table of logarithms over some variables."""

    scope: tuple[int, ...]
    logs: NDArray[np.float64]


class Bounds(NamedTuple):
    """Bounds on log Z.

    Attributes
    ----------
    lower : float
        Log Z is at least this number.
    upper : float
        Log Z is at most this number.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> mg.theory.log_z_bounds(pair)
    Bounds(lower=1.506..., upper=1.506...)
    """

    lower: float
    upper: float


@checked(SampleError)
def log_z_bounds(
    graph: FactorGraph,
    entries: int = _ENTRIES,
    order: Sequence[int] | None = None,
    state: Sequence[int] | NDArray[Any] | None = None,
) -> Bounds:
    """Compute proven lower and upper bounds on log Z, by weighted mini-buckets.

    The lower bound is the better of two: mini-buckets with negative weights, and log Z with some
    variables fixed at their values in a probable state.

    Parameters
    ----------
    graph : FactorGraph
        The model, conditioned on evidence or not.
    entries : int, default 65536
        Largest number of entries of a table; more entries give tighter bounds and take longer.
    order : sequence of int or None, default None
        The order of elimination; by default greedy, by the sizes of tables.
    state : sequence of int or None, default None
        Values of all variables, as indices. The more probable the state, the better the lower
        bound. By default mini-buckets with small tables choose it.

    Returns
    -------
    Bounds
        The lower bound is -inf if hard constraints allow no finite one.

    Examples
    --------
    >>> import minigibbs as mg
    >>> grid = mg.models.ising_lattice(side=6, beta=0.3, periodic=False)
    >>> bounds = log_z_bounds(grid, entries=16)
    >>> bounds.lower < mg.infer(grid).log_z < bounds.upper
    True
    """
    if entries < 1:
        raise SampleError(f"entries must be at least 1, got {entries}")
    if order is not None and sorted(order) != list(range(len(graph))):
        raise SampleError(
            f"order must hold each variable, 0 to {len(graph) - 1}, once; got {len(order)} entries"
        )
    if state is not None and not possible_state(graph, state):
        raise SampleError(f"state must hold a value of each of {len(graph)} variables, as indices")
    constant, costs = cost_functions(graph)
    parts = [Part(scope, -table) for scope, table in costs]
    sizes = graph.sizes.tolist()
    chosen = greedy(parts, sizes) if order is None else list(order)
    with Delayed("bounding log Z"):
        upper = constant + _eliminate(parts, sizes, chosen, entries, upper=True)
        lower = constant + _eliminate(parts, sizes, chosen, entries, upper=False)
        if state is None:
            state = _decoded(parts, sizes, chosen, min(entries, _DECODED))
        lower = max(lower, constant + _fixed(parts, sizes, np.asarray(state).tolist(), entries))
    if upper == -math.inf:
        return Bounds(-math.inf, -math.inf)
    margin = 1e-9 * (1.0 + abs(constant) + abs(upper))  # rounding of sums
    return Bounds(lower - margin, upper + margin)


def possible_state(graph: FactorGraph, state: Any) -> bool:
    """Return whether a state has an index of a value for each variable."""
    values = np.asarray(state)
    if values.shape != (len(graph),) or values.dtype.kind not in "iu":
        return False
    return bool(((values >= 0) & (values < graph.sizes)).all())


def _decoded(parts: list[Part], sizes: list[int], order: list[int], entries: int) -> list[int]:
    """Choose a value of each variable, last one first, by the tables that mini-buckets give it."""
    seen: list[tuple[int, list[Part]]] = []
    _eliminate(parts, sizes, order, entries, upper=True, seen=seen)
    state = [0] * len(sizes)
    for v, own in reversed(seen):
        scores = np.zeros(sizes[v])
        for part in own:
            scores = (
                scores + part.logs[tuple(slice(None) if u == v else state[u] for u in part.scope)]
            )
        state[v] = int(scores.argmax())
    return state


def _fixed(parts: list[Part], sizes: list[int], state: list[int], entries: int) -> float:
    """Return log Z with variables fixed where the table of every variable is too large."""
    near: list[set[int]] = [set() for _ in sizes]
    held: list[list[Part]] = [[] for _ in sizes]
    for part in parts:
        for v in part.scope:
            near[v] |= set(part.scope) - {v}
            held[v].append(part)
    bits, limit = np.log2(sizes), math.log2(entries) + 1e-9
    table = np.array([bits[v] + sum(bits[u] for u in near[v]) for v in range(len(sizes))])
    total = sum(float(part.logs) for part in parts if not part.scope)
    for _ in sizes:
        current().check()
        v = int(table.argmin())
        fixed = table[v] > limit
        if fixed:
            v = max((u for u in range(len(sizes)) if table[u] < np.inf), key=lambda u: len(near[u]))
        own, around = held[v], near[v]
        for part in own:
            for u in part.scope:
                if u != v:
                    held[u] = [one for one in held[u] if one is not part]
        for u in around:
            near[u].discard(v)
            if not fixed:
                near[u] |= around - {u}
            table[u] = bits[u] + sum(bits[w] for w in near[u])
        table[v] = np.inf
        if fixed:
            rest = [_sliced(part, v, state[v]) for part in own]
        else:
            scope = tuple(sorted({v, *(u for part in own for u in part.scope)}))
            rest = [_power_sum(product(scope, own, sizes), v, 1.0)]
        for part in rest:
            if not part.scope:
                total += float(part.logs)
            for u in part.scope:
                held[u].append(part)
    return total


def _sliced(part: Part, v: int, value: int) -> Part:
    """Return a table with a variable fixed at a value."""
    axis = part.scope.index(v)
    logs = np.asarray(part.logs.take(value, axis=axis))
    return Part(tuple(u for u in part.scope if u != v), logs)


def greedy(parts: list[Part], sizes: list[int]) -> list[int]:
    """Return an elimination order by the least number of neighbors."""
    near: list[set[int]] = [set() for _ in sizes]
    for scope, _ in parts:
        for v in scope:
            near[v] |= set(scope)
    left, order = set(range(len(sizes))), []
    for v in left:
        near[v].discard(v)
    while left:
        current().check()
        v = min(left, key=lambda u: (len(near[u]), u))
        left.discard(v)
        order.append(v)
        for u in near[v]:
            near[u] |= near[v]
            near[u] -= {u, v}
    return order


def _eliminate(
    parts: list[Part],
    sizes: list[int],
    order: list[int],
    entries: int,
    upper: bool,
    seen: list[tuple[int, list[Part]]] | None = None,
) -> float:
    """Eliminate all variables; return the bound. `seen` gets the tables of each variable."""
    total, held = 0.0, dict[int, list[Part]]()
    rank = {v: k for k, v in enumerate(order)}

    def hold(part: Part) -> None:
        nonlocal total
        if part.scope:
            held.setdefault(min(part.scope, key=rank.__getitem__), []).append(part)
        else:
            total += float(part.logs)

    for part in parts:
        hold(part)
    for v in order:
        current().check()
        own = held.pop(v, [])
        if seen is not None:
            seen.append((v, own))
        if not own:
            total += math.log(sizes[v])
            continue
        groups = _grouped(own, sizes, entries)
        if upper and len(groups) > 1:
            groups = _matched(groups, v)
        weights = _weights(len(groups), upper)
        for group, weight in zip(groups, weights, strict=True):
            hold(_power_sum(group, v, weight))
        if total == -math.inf:
            break
    return total


def _weights(count: int, upper: bool) -> list[float]:
    if upper:
        return [1.0 / count] * count
    return [1.0 - (count - 1) * _NEGATIVE] + [_NEGATIVE] * (count - 1)


def _grouped(parts: list[Part], sizes: list[int], entries: int) -> list[Part]:
    """Multiply parts into groups with bounded tables: largest first, into the first that fits."""
    groups: list[tuple[set[int], list[Part]]] = []
    for part in sorted(parts, key=lambda one: -one.logs.size):
        for scope, members in groups:
            if math.prod(sizes[v] for v in scope | set(part.scope)) <= entries:
                scope |= set(part.scope)
                members.append(part)
                break
        else:
            groups.append((set(part.scope), [part]))
    return [product(tuple(sorted(scope)), members, sizes) for scope, members in groups]


def product(scope: tuple[int, ...], parts: list[Part], sizes: list[int]) -> Part:
    """Return the sum of tables of logarithms over a scope that holds all of their variables."""
    logs = np.zeros([sizes[v] for v in scope])
    for part in parts:
        axes = sorted(range(len(part.scope)), key=lambda k: scope.index(part.scope[k]))
        shape = [sizes[v] if v in part.scope else 1 for v in scope]
        logs = logs + part.logs.transpose(axes).reshape(shape)
    return Part(scope, logs)


def _matched(groups: list[Part], v: int) -> list[Part]:
    """Multiply the groups by functions of the variable that give them all the same mean."""
    weight = 1.0 / len(groups)
    own = [_others_summed(group, v, weight) for group in groups]
    if any((one == -np.inf).any() for one in own):
        return groups
    mean = np.mean(own, axis=0)
    moved = []
    for group, one in zip(groups, own, strict=True):
        shape = [len(mean) if u == v else 1 for u in group.scope]
        moved.append(Part(group.scope, group.logs + (mean - one).reshape(shape)))
    return moved


def _others_summed(group: Part, v: int, weight: float) -> NDArray[np.float64]:
    """Return weight * log of the sum of f^(1/weight) over all variables but one."""
    axis = group.scope.index(v)
    rows = np.moveaxis(group.logs, axis, 0).reshape(group.logs.shape[axis], -1) / weight
    top = rows.max(axis=1, keepdims=True)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        found = safe[:, 0] + np.log(np.exp(rows - safe).sum(axis=1))
    return weight * found  # type: ignore[no-any-return]


def _power_sum(group: Part, v: int, weight: float) -> Part:
    """Return the logarithm of (sum of f^(1/weight) over a variable)^weight."""
    axis = group.scope.index(v)
    logs = group.logs / weight
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        top = logs.max(axis=axis, keepdims=True)
        safe = np.where(np.isfinite(top), top, 0.0)
        found = safe.squeeze(axis) + np.log(np.exp(logs - safe).sum(axis=axis))
        if weight < 0:  # f = 0 makes f^(1/weight) infinite, and the power 0
            found = np.where(np.isposinf(logs).any(axis=axis), np.inf, found)
    scope = tuple(u for u in group.scope if u != v)
    return Part(scope, weight * found)
