"""Plain Gibbs with cached local fields: O(D) to choose a value, O(degree) to change it.

Each variable stores the sum of factors of every value, which is updated when a neighbor changes.
This is faster if changes are rare. It supports graphs of pairs and unary factors.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import Pilot, Workspace, pilot_state
from minigibbs.engine.dispatch import register
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.graph.prepared import prepared
from minigibbs.kernels.categorical import draw_log
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import EVALUATIONS
from minigibbs.kernels.touched import DENSE_DOMAIN
from minigibbs.system.watch import current

LEAST_DEGREE = 32.0  # a smaller mean degree makes evaluating the factors cheap anyway
RARE = 0.35  # flip rate below which caching is faster: a change writes where an evaluation reads
_PILOT = 2e7  # factor evaluations spent on estimating the flip rate
_PILOT_SWEEPS = 20
_UNCOMPILED = 20_000  # updates of a pilot that are too few to justify compilation


class FieldData(NamedTuple):
    """The sums of the unary factors; the fields themselves are in the chain's `carried` array."""

    unary: NDArray[np.float64]  # [sum of sizes] log weights; empty if there are none


def fields_are_defined(graph: FactorGraph) -> bool:
    """Return whether fields can be cached: soft pairs and unary factors over small domains."""
    rows = graph.packed.rows
    general = (rows["pair_end"] < rows["unary_begin"]).any()
    return not general and not len(graph.hard) and graph.stats.max_domain <= DENSE_DOMAIN


def rare_changes(graph: FactorGraph, data: FieldData) -> float | None:
    """Return the flip rate if caching fields is faster, else None.

    It is faster with many factors per variable and few changes.
    """
    free = int(np.count_nonzero(graph.evidence < 0))
    if not fields_are_defined(graph) or len(graph.packed.weight) < LEAST_DEGREE * max(free, 1):
        return None
    rate = change_rate(graph, data)
    return rate if rate < RARE else None


def change_rate(graph: FactorGraph, data: FieldData) -> float:
    """Return the share of updates that change the value, from a short pilot run, once per graph.

    The pilot is the same for the same graph, so that a seed determines the chain.
    """
    return prepared(graph, "change rate", (), lambda: _measure_rate(graph, data))


def _measure_rate(graph: FactorGraph, data: FieldData) -> float:
    free = free_variables(graph.evidence)
    degree = len(graph.packed.weight) / max(len(free), 1)
    updates = int(min(_PILOT_SWEEPS * len(free), _PILOT / max(degree, 1.0)))
    if not len(free):
        return 0.0
    counted = updates // 2
    if updates <= _UNCOMPILED:
        changed = _plain_pilot(graph, data, updates)
    else:
        pilot = Pilot(graph, data, field_workspace(graph))
        pilot.advance(updates - counted)
        changed = pilot.advance(counted)
    return float(changed) / max(counted, 1)


def _plain_pilot(graph: FactorGraph, data: FieldData, updates: int) -> int:
    """Make a pilot in NumPy; return the changes of its second half."""
    rng, model = np.random.default_rng(0), graph.packed
    x, order = pilot_state(graph, rng), free_variables(graph.evidence)
    starts, ends = model.rows["start"].tolist(), model.rows["pair_end"].tolist()
    sizes, firsts, marks = model.rows["domain"].tolist(), model.first.tolist(), rng.random(updates)
    changed = 0
    for step, i in zip(range(updates), itertools.cycle(order.tolist())):
        current().check_droppable()
        pairs, size, first = slice(starts[i], ends[i]), sizes[i], firsts[i]
        others, weights = x[model.target[pairs]], model.weight[pairs]
        fields: NDArray[Any] = np.bincount(others, weights, minlength=size)[:size]
        if len(data.unary):
            fields = fields + data.unary[first : first + size]
        cumulative = np.exp(fields - fields.max()).cumsum()
        value = int(cumulative.searchsorted(marks[step] * cumulative[-1], side="right"))
        changed += int(value != x[i] and step >= updates - updates // 2)
        x[i] = min(value, size - 1)
    return changed


@kernel
def _add_to_fields(model, fields, i, value, sign):
    """Add or subtract the factors of `i` at a value in the fields of its neighbors."""
    row = model.rows[i]
    for place in range(row.start, row.pair_end):
        other = model.target[place]
        if value < model.rows[other].domain:
            fields[model.first[other] + value] += sign * model.weight[place]


@kernel
def field_begin(data, model, chain):
    """Sum all factors for every variable and value."""
    for k in range(len(chain.carried)):
        chain.carried[k] = data.unary[k] if len(data.unary) else 0.0
    for i in range(len(model.rows)):
        row = model.rows[i]
        for place in range(row.start, row.pair_end):
            value = chain.x[model.target[place]]
            if value < row.domain:
                chain.carried[model.first[i] + value] += model.weight[place]


@kernel
def field_update(data, model, chain, i):
    """Update by Algorithm 1 with cached local fields; a change updates the neighbors' fields."""
    size, old = model.rows[i].domain, chain.x[i]
    for value in range(size):
        chain.weights[value] = chain.carried[model.first[i] + value]
    new = draw_log(chain.weights, size, chain.stream)
    if new != old:
        _add_to_fields(model, chain.carried, i, old, -1.0)
        _add_to_fields(model, chain.carried, i, new, 1.0)
        chain.tally[EVALUATIONS] += model.rows[i].pair_end - model.rows[i].start
    return new


register(FieldData, field_update, field_begin)


def field_workspace(graph: FactorGraph) -> Workspace:
    """Return the sizes: one field per variable and value."""
    return Workspace(carried=int(graph.sizes.sum()))
