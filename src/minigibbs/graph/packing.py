"""Conversion of a factor graph to the flat arrays that kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.base import FREE, Factors, General, Pairs
from minigibbs.graph.factors.implicit.base import Implicit
from minigibbs.kernels.jit import entry, literal_entry
from minigibbs.kernels.layout import FACTOR, ROW, SLOT, Model
from minigibbs.system import memory

_ENTRY_BYTES = 12  # target and weight
IN_ORDER = 8  # entries of a row that NumPy adds one after another
_PAIR, _GENERAL, _UNARY = range(3)  # the parts of a row


def pack(
    sizes: NDArray[np.int32], factors: Sequence[Factors], evidence: NDArray[np.int32]
) -> tuple[Model, float]:
    """Return the graph's arrays, and the constant that converts energies to the user's scale."""
    flat, offset = lower_all(sizes, factors, evidence)
    rows, target, weight = packed_rows(
        sizes, evidence, flat.pair, flat.pair_weight, flat.factors, flat.slots
    )
    return sealed(flat._replace(rows=rows, target=target, weight=weight)), offset


def lower_all(
    sizes: NDArray[np.int32], factors: Sequence[Factors], evidence: NDArray[np.int32]
) -> tuple[Model, float]:
    """Convert all factors to a model without rows; also return the sum of constants."""
    factors = [group for group in factors if not isinstance(group, Implicit)]
    entries = sum(group.entries for group in factors)
    memory.require(
        entries * _ENTRY_BYTES + len(sizes) * 8,
        f"packing {sum(map(len, factors)):,} factors",
        "use fewer factors, or an implicit model",
    )
    lowered = [group.lower(sizes, evidence) for group in factors]
    entries = sum(len(group.table) for group in lowered if isinstance(group, General))
    memory.require(8 * entries, f"packing tables of {entries:,} entries", "use smaller tables")
    pairs = [group for group in lowered if isinstance(group, Pairs)]
    pair = _join([group.scope for group in pairs], np.int32, (0, 2))
    pair_weight = _join([group.weight for group in pairs], np.float64)
    general, slots, table = _join_general([g for g in lowered if isinstance(g, General)])
    first = first_values(sizes)
    none = np.empty(0, np.int32)
    nothing = np.empty(0, ROW), first, none, np.empty(0)
    return Model(*nothing, pair, pair_weight, general, slots, table), sum(
        group.offset for group in lowered
    )


def first_values(sizes: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the index of each variable's first value in concatenated values."""
    if len(sizes) and (sizes == sizes[0]).all():
        return np.arange(0, len(sizes) * int(sizes[0]), int(sizes[0]), dtype=np.int64)
    first: NDArray[np.int64] = np.cumsum(sizes, dtype=np.int64) - sizes
    return first


def sealed(model: Model) -> Model:
    """Make a model's arrays read-only: one type for all graphs, so that kernels compile once."""
    for array in model:
        array.setflags(write=False)
    return model


def packed_rows(
    sizes: NDArray[np.int32],
    evidence: NDArray[np.int32],
    pair: NDArray[np.int32],
    pair_weight: NDArray[np.float64],
    general: NDArray[np.void],
    slots: NDArray[np.void],
    varies: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.void], NDArray[np.int32], NDArray[np.float64]]:
    """Build the CSR rows: one pass over the factors to count, one to fill.

    `varies` marks the pairs to include; by default those that the evidence does not fix.
    """
    if not len(pair) and not len(general) and (sizes == sizes[0]).all():
        row = np.array((0, 0, 0, 0, sizes[0]), dtype=ROW)  # all rows are equal
        return np.broadcast_to(row, len(sizes)), np.empty(0, np.int32), np.empty(0)
    target, weight = np.empty(0, np.int32), np.empty(0)
    if varies is None:
        varies = pairs_vary(pair, pair_weight, sizes, evidence)
    if not len(general):
        return _pair_rows(sizes, evidence, pair, pair_weight, varies)
    count = np.zeros((_UNARY + 1, len(sizes)), dtype=np.int64)
    place = count
    for filling in (False, True):
        if filling:
            parts = np.cumsum(count, axis=0)
            end = np.cumsum(parts[-1])
            start = end - parts[-1]
            place = start + parts - count
            target = np.empty(end[-1], dtype=np.int32)
            weight = np.empty(end[-1], dtype=np.float64)
        if len(pair):
            _place_pairs(pair, pair_weight, varies, evidence, place, target, weight)
        _place_general(general, slots, evidence, place, target, weight)
    rows = np.empty(len(sizes), dtype=ROW)  # after the second pass, each part's place is its end
    rows["start"], rows["pair_end"] = start, place[_PAIR]
    rows["unary_begin"] = place[_GENERAL]
    rows["end"], rows["domain"] = end, sizes
    return rows, target, weight


def _pair_rows(
    sizes: NDArray[np.int32],
    evidence: NDArray[np.int32],
    pair: NDArray[np.int32],
    pair_weight: NDArray[np.float64],
    varies: NDArray[np.bool_],
) -> tuple[NDArray[np.void], NDArray[np.int32], NDArray[np.float64]]:
    """Build the rows of a graph of pairs with little memory besides the rows."""
    place, none = np.zeros((1, len(sizes)), np.int64), np.empty(0)
    rows = np.empty(len(sizes), dtype=ROW)
    _place_pairs(pair, pair_weight, varies, evidence, place, none.astype(np.int32), none)
    total = _bound_rows(place[_PAIR], sizes, rows)
    target, weight = np.empty(total, np.int32), np.empty(total)
    _place_pairs(pair, pair_weight, varies, evidence, place, target, weight)
    return rows, target, weight


def _join(
    arrays: Sequence[NDArray[Any]], dtype: Any, empty: tuple[int, ...] = (0,)
) -> NDArray[Any]:
    """Concatenate to one read-only C-contiguous array; a single array is not copied."""
    if len(arrays) == 1:
        whole = np.ascontiguousarray(arrays[0], dtype=dtype)
    else:
        whole = np.concatenate([np.empty(empty, dtype), *arrays]).astype(dtype, copy=False)
    whole.flags.writeable = False
    return whole


def _join_general(groups: Sequence[General]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Concatenate the factors, slots and tables of all groups."""
    factors = np.empty(sum(len(g.scope) for g in groups), dtype=FACTOR)
    slots = np.empty(sum(g.scope.size for g in groups), dtype=SLOT)
    factor = slot = value = 0
    for group in groups:
        count, arity = group.scope.shape
        part = factors[factor : factor + count]
        part["weight"], part["low"], part["span"] = group.weight, group.low, group.span
        part["table_start"], part["form"] = group.table_start + value, group.form
        part["scope_start"] = slot + np.arange(count) * arity
        part["scope_end"] = part["scope_start"] + arity
        slots["variable"][slot : slot + count * arity] = group.scope.ravel()
        slots["key"][slot : slot + count * arity] = group.key.ravel()
        factor, slot, value = factor + count, slot + count * arity, value + len(group.table)
    factors.flags.writeable = slots.flags.writeable = False
    return factors, slots, _join([g.table for g in groups], np.float64)


def row_sums(rows: NDArray[np.void], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum one value per entry over the rows, without an array of the rows' owners.

    >>> rows = np.zeros(3, ROW)
    >>> rows["start"], rows["end"] = [0, 2, 2], [2, 2, 3]
    >>> row_sums(rows, np.array([1.0, 2.0, 4.0])).tolist()
    [3.0, 0.0, 4.0]
    """
    sums = np.zeros(len(rows))
    if len(values):
        start = rows["start"]
        filled = rows["end"] > start
        if filled.all():
            sums[:] = np.add.reduceat(values, start)
        else:
            sums[filled] = np.add.reduceat(values, start[filled])
    return sums


def energy_at(model: Model) -> NDArray[np.float64]:
    """Return for each free variable the sum of its factors' M; the largest is the paper's L."""
    sums = np.empty(len(model.rows))
    pairs = len(model.weight) and not len(model.factors)
    if pairs and sum_pairs(model.rows, model.weight, 1.0, True, sums):
        return sums
    return row_sums(model.rows, entry_spans(model))


def influence_at(model: Model) -> NDArray[np.float64]:
    """Return for each free variable a bound on how much all others can move its distribution.

    A factor of range M lets each of its other variables move it by M / 2 at most, in total
    variation. If the sum is below 1 for all, Dobrushin's condition holds, and chains that update
    one variable at a time mix fast.
    """
    if not len(model.factors):
        return energy_at(model) / 2
    rows, share = model.rows, entry_spans(model) / 2
    if (rows["pair_end"] < rows["end"]).any():
        owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
        general = np.flatnonzero(np.arange(len(share)) >= rows["pair_end"][owner])
        factors = model.factors[model.target[general]]
        others = factors["scope_end"] - factors["scope_start"] - 1
        own = share[general]  # infinite for unary factors with hard constraints
        share[general] = np.multiply(others, own, out=np.zeros(len(own)), where=others > 0)
    return row_sums(rows, share)


def factor_spans(model: Model, evidence: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the paper's M of every factor, pairs first; 0 if evidence fixes the factor."""
    varies = pairs_vary(model.pair, model.pair_weight, model.rows["domain"], evidence)
    spans = np.abs(model.pair_weight)
    spans *= varies
    return np.concatenate([spans, model.factors["span"]]) if len(model.factors) else spans


def pairs_vary(
    pair: NDArray[np.int32],
    weight: NDArray[np.float64],
    size: NDArray[np.int32],
    evidence: NDArray[np.int32],
) -> NDArray[np.bool_]:
    """Return whether each pair factor varies: its M is positive, given the evidence."""
    (i, j), wide = pair.T, size > 1
    varies: NDArray[np.bool_] = weight != 0
    if not wide.all():
        varies &= wide[i] | wide[j]
    if (evidence != FREE).any():
        for clamped, other in ((i, j), (j, i)):
            value = evidence[clamped]
            fits = (evidence[other] == FREE) & (value < size[other]) & wide[other]
            varies &= (value == FREE) | fits
    return varies


def entry_spans(model: Model) -> NDArray[np.float64]:
    """Return the paper's M of every entry's factor, which for a pair is its absolute weight."""
    spans = np.abs(model.weight)
    first, count = model.rows["pair_end"], model.rows["end"] - model.rows["pair_end"]
    if count.any():
        places = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(count.sum())
        spans[places] = model.factors["span"][model.target[places]]
    return spans


def free_variables(evidence: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the variables that a sampler visits: those without evidence."""
    free = evidence == FREE
    if free.all():
        return np.arange(len(free), dtype=np.int32)
    return np.flatnonzero(free).astype(np.int32)


@entry
def _place_pairs(pair, pair_weight, varies, evidence, place, target, weight):
    """Count the pairs of each row or, if `target` is not empty, write them at indices `place`."""
    filling = len(target) > 0
    for k in range(len(pair)):
        for side in range(2 if varies[k] else 0):
            variable = pair[k, side]
            if evidence[variable] < 0:
                if filling:
                    target[place[_PAIR, variable]] = pair[k, 1 - side]
                    weight[place[_PAIR, variable]] = pair_weight[k]
                place[_PAIR, variable] += 1


@entry
def _bound_rows(place, sizes, rows):
    """Convert counts to first indices, and write the rows; return the number of entries."""
    total = np.int64(0)
    for i in range(len(rows)):
        row, count = rows[i], place[i]
        place[i], row.start, row.domain = total, total, sizes[i]
        total += count
        row.pair_end, row.unary_begin, row.end = total, total, total
    return total


@literal_entry
def sum_pairs(rows, weight, scale, absolute, sums):
    """Sum the scaled weights of each row's pairs, or their absolute values.

    The order of additions is that of `numpy.add.reduceat`: the first one is added last. Returns
    whether all rows are as short as NumPy adds in order.
    """
    for i in range(len(rows)):
        start, end = rows[i]["start"], rows[i]["pair_end"]
        if end - start > IN_ORDER:
            return False
        rest, first = 0.0, 0.0
        for k in range(start, end):
            one = scale * weight[k]
            one = abs(one) if absolute else one
            first = one if k == start else first
            rest += 0.0 if k == start else one
        sums[i] = first + rest
    return True


@entry
def _place_general(factors, slots, evidence, place, target, weight):
    """Count the general factors of each row or, if `target` is not empty, write them at `place`."""
    filling = len(target) > 0
    for k in range(len(factors)):
        factor = factors[k]
        if factor.span > 0.0:
            part = _UNARY if factor.scope_end - factor.scope_start == 1 else _GENERAL
            for slot in range(factor.scope_start, factor.scope_end):
                variable = slots[slot].variable
                if evidence[variable] < 0:
                    if filling:
                        target[place[part, variable]] = k
                        weight[place[part, variable]] = factor.weight
                    place[part, variable] += 1
