"""Orders and plans of graphs, kept for all graphs that differ only in weights or evidence."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from minigibbs.exact.ordering import SEARCHED, Order, order_variables, refuse
from minigibbs.exact.plan import Plan, make_plan, plan_like
from minigibbs.exact.rotation import Rotation
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.prepared import shared

_ALIKE = 1.25  # largest ratio of predicted times at which a plan's tree is reused
_MUCH_ALIKE = 0.75  # least share of a plan's variables that must be free to reuse its tree
_ORDERS = 8  # plans cached for a graph and those derived from it

Leaves = tuple[tuple[int, ...], ...]  # factors of each leaf, then of no leaf; pairs first


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
    digest = hashlib.blake2b(sizes.tobytes())
    for array in (model.pair, model.slots["variable"], model.factors["scope_start"]):
        digest.update(np.ascontiguousarray(array).tobytes())

    def make() -> tuple[Order, Rotation, Leaves]:
        latest = shared(graph, "latest order", (), list[Order])
        plans = shared(graph, "latest plan", draws, list[Rotation])
        free = int(np.count_nonzero(sizes > 1))
        if plans and free >= _MUCH_ALIKE * len(plans[0].plan.leaf_of):
            leaves = _leaves(whole, sizes, latest[0], joint)
            settled = leaves.pop((), ())
            known = plans[0].plan if draws else plans[0].use(pace)
            plan = plan_like(known, tuple(leaves), sizes)
            fast = _ALIKE * known.seconds
            if plan is not None and plan.seconds <= fast and plan.made <= most:
                every = (*leaves.values(), settled)
                return _order_of(plan, sizes), Rotation(plan, sizes, most), every
        scopes = _scopes(whole, sizes) + [np.array([some], dtype=np.int32) for some in joint]
        order = order_variables(sizes, scopes, most, latest[0] if latest else None)
        if not latest or len(order.variables) > len(latest[0].variables):
            latest[:] = [order]
        leaves = _leaves(whole, sizes, order, joint)
        settled = leaves.pop((), ())
        rotation = Rotation(make_plan(order.variables, tuple(leaves), sizes), sizes, most)
        if not draws and len(order.variables) <= SEARCHED:
            rotation.use(pace)
        if not plans or len(rotation.plan.leaf_of) > len(plans[0].plan.leaf_of):
            plans[:] = [rotation]
        return order, rotation, (*leaves.values(), settled)

    key, known = (digest.digest(), joint, draws), True

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
    variables = tuple(v for step in plan.steps for v in step.summed)
    cliques = [(*step.scope, *step.summed) for step in plan.steps]
    products = sum(math.prod(sizes[list(clique)].tolist()) for clique in cliques)
    width = max(map(len, cliques), default=1) - 1
    return Order(variables, width, float(products), plan.made)


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
