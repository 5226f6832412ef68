"""Orders and plans of graphs, kept for all graphs that differ only in weights or evidence."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.exact.ordering import SEARCHED, Order, order_variables, refuse
from minigibbs.exact.plan import Plan, make_plan, plan_like, plan_within, table_bits
from minigibbs.exact.rotation import Rotation
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.prepared import shared

_ALIKE = 1.25  # largest ratio of predicted times at which a plan's tree is reused
_MUCH_ALIKE = 0.75  # least share of a plan's variables that must be free to reuse its tree
_ORDERS = 8  # plans cached for a graph and those derived from it

Leaves = tuple[tuple[int, ...], ...]  # factors of each leaf, then of no leaf; pairs first


class _Latest(NamedTuple):
    """The latest plan that did not follow another one."""

    rotation: Rotation
    leaves: Leaves
    structure: bytes  # digest of the scopes of all factors


def prepared_plan(
    graph: FactorGraph,
    whole: FactorGraph,
    sizes: NDArray[np.int64],
    joint: tuple[tuple[int, ...], ...],
    most: float,
    draws: bool,
    pace: float,
) -> tuple[Order, Plan, Leaves]:
    """Return an order and a plan, computed once for all graphs that differ only in weights.

    A graph with other evidence reuses the tree of products of the latest plan if it is nearly as
    fast. Otherwise the search starts from the latest order.
    """
    model = whole.packed
    structure = hashlib.blake2b()
    for array in (model.pair, model.slots["variable"], model.factors["scope_start"]):
        structure.update(np.ascontiguousarray(array).tobytes())

    def make() -> tuple[Order, Rotation, Leaves]:
        orders = shared(graph, "latest order", (), list[Order])
        latest = shared(graph, "latest plan", draws, list[_Latest])
        free = int(np.count_nonzero(sizes > 1))
        if latest and free >= _MUCH_ALIKE * len(latest[0].rotation.plan.leaf_of):
            known = latest[0].rotation.plan if draws else latest[0].rotation.use(pace)
            own, plan = latest[0].leaves, None
            if not joint and structure.digest() == latest[0].structure:
                plan = plan_within(known, sizes)
            if plan is None:
                found = _leaves(whole, sizes, orders[0], joint)
                settled = found.pop((), ())
                plan, own = plan_like(known, tuple(found), sizes), (*found.values(), settled)
            if plan is not None and plan.seconds <= _ALIKE * known.seconds and plan.made <= most:
                return _order_of(plan, sizes), Rotation(plan, sizes, most), own
        scopes = _scopes(whole, sizes) + [np.array([some], dtype=np.int32) for some in joint]
        order = order_variables(sizes, scopes, most, orders[0] if orders else None)
        if not orders or len(order.variables) > len(orders[0].variables):
            orders[:] = [order]
        leaves = _leaves(whole, sizes, order, joint)
        settled = leaves.pop((), ())
        rotation = Rotation(make_plan(order.variables, tuple(leaves), sizes), sizes, most)
        if not draws and len(order.variables) <= SEARCHED:
            rotation.use(pace)
        every = (*leaves.values(), settled)
        if not latest or len(rotation.plan.leaf_of) > len(latest[0].rotation.plan.leaf_of):
            latest[:] = [_Latest(rotation, every, structure.digest())]
        return order, rotation, every

    narrowed = hashlib.blake2b(sizes.tobytes()).digest()
    key, known = (structure.digest(), narrowed, joint, draws), True

    def first() -> tuple[Order, Rotation, Leaves]:
        nonlocal known
        known = False
        return make()

    order, rotation, leaves = shared(graph, "elimination", key, first, _ORDERS)
    searched = known and not draws and len(order.variables) <= SEARCHED
    plan = rotation.use(pace) if searched else rotation.plan
    if plan.made > most:
        refuse(order.width + 1, math.log2(plan.made), most)
    return order, plan, leaves


def plan_keeping(
    whole: FactorGraph, sizes: NDArray[np.int64], kept: Collection[int], most: float
) -> tuple[Order, Plan, Leaves]:
    """Return an order and a plan that sum out all variables but some."""
    order = order_variables(sizes, _scopes(whole, sizes), most, kept=kept)
    leaves = _leaves(whole, sizes, order, ())
    settled = leaves.pop((), ())
    plan = make_plan(order.variables, tuple(leaves), sizes, kept)
    if plan.made > most:
        refuse(order.width + 1, math.log2(plan.made), most)
    return order, plan, (*leaves.values(), settled)


def _order_of(plan: Plan, sizes: NDArray[np.int64]) -> Order:
    """Return the order in which a plan sums out variables."""
    arrays = plan.arrays
    axes = np.diff(arrays.start)[plan.leaves :] + np.diff(arrays.summed_start)
    products = np.exp2(table_bits(arrays, sizes)[1]).sum()
    width = int(axes.max(initial=1)) - 1
    return Order(tuple(arrays.summed.tolist()), width, float(products), plan.made)


def _leaves(
    graph: FactorGraph,
    sizes: NDArray[np.int64],
    order: Order,
    joint: tuple[tuple[int, ...], ...],
) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Return the numbers of all factors by the variables that they depend on; pairs first."""
    place = np.zeros(len(sizes), dtype=np.int64)
    place[list(order.variables)] = np.arange(len(order.variables))
    found: dict[tuple[int, ...], list[int]] = {}
    model, rank = graph.packed, place.tolist()
    wide = (sizes > 1).tolist()
    scopes = model.pair.tolist()
    slots = model.slots["variable"].tolist()
    for first, last in zip(
        model.factors["scope_start"].tolist(), model.factors["scope_end"].tolist(), strict=True
    ):
        scopes.append(slots[first:last])
    lonely = dict.fromkeys(np.flatnonzero(sizes > 1).tolist())  # variables without factors
    for number, scope in enumerate([*scopes, *joint]):
        key = tuple(sorted({v for v in scope if wide[v]}, key=rank.__getitem__))
        own = found.setdefault(key, [])
        if number < len(scopes):
            own.append(number)
        for v in key:
            lonely.pop(v, None)
    return {key: tuple(numbers) for key, numbers in found.items()} | {(v,): () for v in lonely}


def _scopes(graph: FactorGraph, sizes: NDArray[np.int64]) -> list[NDArray[np.int32]]:
    """Return the scopes of all factors, with -1 for variables with one possible value."""
    model, wide = graph.packed, sizes > 1
    slots = np.where(wide[model.slots["variable"]], model.slots["variable"], -1)
    arity = model.factors["scope_end"] - model.factors["scope_start"]
    scopes = [np.where(wide[model.pair], model.pair, -1)]
    for count in np.unique(arity):
        start = model.factors["scope_start"][arity == count]
        scopes.append(slots[start[:, None] + np.arange(count)])
    return scopes
