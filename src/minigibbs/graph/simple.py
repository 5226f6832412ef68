"""The same model with less to look at: what a chain that visits it often should read.

Pairs between the same two variables become one. A table over two two-valued variables becomes a
pair and unary factors. Factors with one free variable become unary. All unary factors of a variable
are summed. Variables of one value count as clamped. Energies stay the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.base import FREE, Factors
from minigibbs.graph.factors.potts import Potts
from minigibbs.graph.factors.unary import Unary
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.prepared import prepared
from minigibbs.kernels.energy import general_value
from minigibbs.kernels.jit import entry
from minigibbs.kernels.layout import TABLE, Model
from minigibbs.system import memory
from minigibbs.system.watch import current

_PAIR_BYTES = 64  # two variables that share a factor, while they are sorted


class Simple(NamedTuple):
    """A graph's packed energy as constant + unary + pairs + the rest; fixed variables are left out.

    A variable is fixed if it is clamped or has one value.
    """

    constant: float
    unary: NDArray[np.float64]  # [sum of sizes], 0 at fixed variables
    pair: NDArray[np.int32]  # [pairs, 2] of variables that change, the smaller first, each once
    pair_weight: NDArray[np.float64]  # [pairs] of [x_i == x_j]
    rest: NDArray[np.int64]  # numbers of general factors that are none of these


def simplified(graph: FactorGraph) -> Simple:
    """The graph's explicit factors, simplified under its evidence; computed once per graph."""
    return prepared(graph, "simplified", None, lambda: _simplified(graph))


def _simplified(graph: FactorGraph) -> Simple:
    """Compute what `simplified` returns."""
    model, evidence, values = graph.packed, _fixed(graph), int(graph.sizes.sum(dtype=np.int64))
    what = f"energies of {values:,} values of all variables"
    memory.require(16 * values, what, "use smaller domains")
    unary = np.zeros(values)
    constant = _fold_pairs(model, evidence, unary)
    both_free = (evidence[model.pair] == FREE).all(axis=1)
    pair, weight = model.pair[both_free], model.pair_weight[both_free]
    counts = open_slots(graph)
    state = np.maximum(evidence, 0).astype(graph.state_type)
    constant += _fold_general(model, counts, state, evidence, unary)
    several = counts > 1
    spins = several & _is_spin_table(model, graph.sizes, evidence)
    own_pair, own_weight, shift = _spin_tables(model, np.flatnonzero(spins), unary)
    pair, weight = _merged(
        np.concatenate([pair, own_pair]), np.concatenate([weight, own_weight]), len(graph)
    )
    rest = np.flatnonzero(several & ~spins)
    return Simple(constant + shift, unary, pair, weight, rest)


def lighter(graph: FactorGraph) -> FactorGraph:
    """A graph of the same distribution in pairs and unary factors, if possible."""
    if graph.implicits:
        return graph
    simple = simplified(graph)
    if len(simple.rest) or not np.isfinite(simple.unary).all():
        return graph
    groups: list[Factors] = []
    if len(simple.pair):
        groups.append(Potts(simple.pair[:, 0], simple.pair[:, 1], simple.pair_weight))
    first, free = graph.packed.first, graph.evidence == FREE
    for size in np.unique(graph.sizes[free]).tolist():
        some = np.flatnonzero(free & (graph.sizes == size))
        groups.append(Unary(some, simple.unary[first[some, None] + np.arange(size)]))
    return FactorGraph(graph.domains, groups, evidence=graph.evidence)


def _fixed(graph: FactorGraph) -> NDArray[np.int32]:
    """Return the value of every variable that does not change, and FREE for the others."""
    return np.where(graph.sizes == 1, np.int32(0), graph.evidence)


def neighbors(graph: FactorGraph, simple: Simple) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Which variables that change share a factor, by rows: where each begins, and all of them."""
    model, evidence, (i, j) = graph.packed, _fixed(graph), simple.pair.T.astype(np.int64)
    widths = open_slots(graph)[simple.rest].astype(np.float64)
    pairs = len(i) + float((widths * (widths - 1)).sum()) / 2
    what = f"a table of {pairs:,.0f} pairs of variables that share a factor"
    memory.require(_PAIR_BYTES * pairs, what, "use factors of fewer variables")
    rows, columns = [i], [j]
    begin = model.factors["scope_start"][simple.rest]
    arity = model.factors["scope_end"][simple.rest] - begin
    for width in np.unique(arity).tolist():
        current().check()
        places = begin[arity == width][:, None] + np.arange(width)
        scopes = model.slots["variable"][places].astype(np.int64)
        scopes = np.unique(np.where(evidence[scopes] == FREE, scopes, -1), axis=0)
        one, other = np.triu_indices(width, 1)
        first, second = scopes[:, one], scopes[:, other]
        joined = (first >= 0) & (second >= 0) & (first != second)
        rows.append(np.minimum(first, second)[joined])
        columns.append(np.maximum(first, second)[joined])
    low, high = np.concatenate(rows), np.concatenate(columns)
    key = np.unique(np.concatenate([low * len(graph) + high, high * len(graph) + low]))
    owner, other = np.divmod(key, len(graph))
    start = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(graph)))])
    return start.astype(np.int64), other.astype(np.int32)


def _fold_pairs(model: Model, evidence: NDArray[np.int32], unary: NDArray[np.float64]) -> float:
    """Add pairs with one clamped end to the other end's values; returns those with two."""
    fixed, weight = evidence[model.pair] != FREE, model.pair_weight
    constant = 0.0
    for clamped, other in ((0, 1), (1, 0)):
        value = evidence[model.pair[:, clamped]]
        one = fixed[:, clamped] & ~fixed[:, other]
        owner = model.pair[one, other]
        inside = value[one] < model.rows["domain"][owner]
        np.add.at(unary, model.first[owner[inside]] + value[one][inside], weight[one][inside])
    both = fixed.all(axis=1)
    ends = evidence[model.pair[both]]
    constant += float(weight[both][ends[:, 0] == ends[:, 1]].sum())
    return constant


def open_slots(graph: FactorGraph) -> NDArray[np.int64]:
    """How many variables that change each general factor has."""
    model = graph.packed
    free = np.concatenate([[0], np.cumsum(_fixed(graph)[model.slots["variable"]] == FREE)])
    return free[model.factors["scope_end"]] - free[model.factors["scope_start"]]  # type: ignore[no-any-return]


def _fold_general(
    model: Model,
    open_slots: NDArray[np.int64],
    state: NDArray[np.unsignedinteger],
    evidence: NDArray[np.int32],
    unary: NDArray[np.float64],
) -> float:
    """Add factors of one free variable to its values; returns the sum of constant factors."""
    few = np.flatnonzero(open_slots <= 1)
    if not len(few):
        return 0.0
    constant = np.zeros(1)
    _add_few(model, few, open_slots, state, evidence, unary, constant)
    return float(constant[0])


@entry
def _add_few(model, few, open_slots, state, evidence, unary, constant):
    for k in few:
        factor = model.factors[k]
        if open_slots[k] == 0:
            constant[0] += general_value(model, state, factor)
            continue
        variable = -1
        for place in range(factor.scope_start, factor.scope_end):
            candidate = model.slots[place].variable
            if evidence[candidate] < 0:
                variable = candidate
        before = state[variable]
        for value in range(model.rows[variable].domain):
            state[variable] = value
            unary[model.first[variable] + value] += general_value(model, state, factor)
        state[variable] = before


def _is_spin_table(
    model: Model, sizes: NDArray[np.int32], evidence: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Which factors are finite tables over two free two-valued variables, and nothing else."""
    factors, variable = model.factors, model.slots["variable"]
    found = (factors["form"] == TABLE) & (factors["scope_end"] - factors["scope_start"] == 2)
    places = factors["scope_start"][found]
    ends = np.stack([variable[places], variable[places + 1]], axis=1)
    right = (sizes[ends] == 2).all(axis=1) & (evidence[ends] == FREE).all(axis=1)
    right &= (ends[:, 0] != ends[:, 1]) & np.isfinite(_corners(model, found)).all(axis=1)
    found[found] = right
    return found  # type: ignore[no-any-return]


def _corners(model: Model, chosen: NDArray[np.generic]) -> NDArray[np.float64]:
    """The four entries of two-valued tables: 00, 01, 10, 11."""
    factors = model.factors[chosen]
    first = model.slots["key"][factors["scope_start"]].astype(np.int64)
    second = model.slots["key"][factors["scope_start"] + 1].astype(np.int64)
    start = factors["table_start"]
    places = np.stack([start, start + second, start + first, start + first + second], axis=1)
    within = np.clip(places, 0, max(len(model.table) - 1, 0))
    return factors["weight"][:, None] * model.table[within] if len(model.table) else places * 0.0


def _spin_tables(
    model: Model, chosen: NDArray[np.int64], unary: NDArray[np.float64]
) -> tuple[NDArray[np.int32], NDArray[np.float64], float]:
    """Two-valued tables as c + a x_i + b x_j + d [x_i == x_j]; adds a and b to `unary`."""
    factors, variable = model.factors[chosen], model.slots["variable"]
    i, j = variable[factors["scope_start"]], variable[factors["scope_start"] + 1]
    t00, t01, t10, t11 = _corners(model, chosen).T
    both, difference = t11 - t00, t10 - t01
    c = (t10 + t01 - both) / 2
    np.add.at(unary, model.first[i] + 1, (both + difference) / 2)
    np.add.at(unary, model.first[j] + 1, (both - difference) / 2)
    return np.stack([i, j], axis=1).astype(np.int32), t00 - c, float(c.sum())


def _merged(
    pair: NDArray[np.int32], weight: NDArray[np.float64], variables: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Each pair once, the smaller variable first; pairs of weight 0 are dropped."""
    low, high = pair.min(axis=1).astype(np.int64), pair.max(axis=1).astype(np.int64)
    key, place = np.unique(low * variables + high, return_inverse=True)
    total = np.bincount(place, weight, minlength=len(key)).astype(np.float64)
    low, high = np.divmod(key[total != 0], variables)
    return np.stack([low, high], axis=1).astype(np.int32), total[total != 0]
