"""From a factor graph to the flat arrays that kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.base import FREE, Factors, General, Pairs
from minigibbs.graph.factors.implicit.base import Implicit
from minigibbs.kernels.jit import entry
from minigibbs.kernels.layout import FACTOR, ROW, SLOT, Model
from minigibbs.system import memory

_ENTRY_BYTES = 12  # target and weight
_PAIR, _GENERAL, _UNARY = range(3)  # the parts of a row


def pack(
    sizes: NDArray[np.int32], factors: Sequence[Factors], evidence: NDArray[np.int32]
) -> tuple[Model, float]:
    """The graph's arrays, and the constant that brings energies back to the user's scale."""
    flat, offset = lower_all(sizes, factors, evidence)
    rows, target, weight = packed_rows(
        sizes, evidence, flat.pair, flat.pair_weight, flat.factors, flat.slots
    )
    return sealed(flat._replace(rows=rows, target=target, weight=weight)), offset


def lower_all(
    sizes: NDArray[np.int32], factors: Sequence[Factors], evidence: NDArray[np.int32]
) -> tuple[Model, float]:
    """A model of all factors without rows, and its constant."""
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
    """Where the values of each variable begin, if those of all follow one another."""
    if len(sizes) and (sizes == sizes[0]).all():
        return np.arange(0, len(sizes) * int(sizes[0]), int(sizes[0]), dtype=np.int64)
    first: NDArray[np.int64] = np.cumsum(sizes, dtype=np.int64) - sizes
    return first


def sealed(model: Model) -> Model:
    """The model with its arrays read-only: one type for every graph, so kernels compile once."""
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
    """The CSR rows: one pass over the factors to count, one to fill.

    `varies` says which pairs to write down; by default those that still depend on something.
    """
    if not len(pair) and not len(general) and (sizes == sizes[0]).all():
        row = np.array((0, 0, 0, 0, sizes[0]), dtype=ROW)  # one for all: they are the same
        return np.broadcast_to(row, len(sizes)), np.empty(0, np.int32), np.empty(0)
    target, weight = np.empty(0, np.int32), np.empty(0)
    place = np.zeros((3, len(sizes)), dtype=np.int64)
    if varies is None:
        varies = pairs_vary(pair, pair_weight, sizes, evidence)
    for filling in (False, True):
        if filling:
            end = np.cumsum(place.sum(axis=0))
            start = end - place.sum(axis=0)
            ends = start + np.cumsum(place, axis=0)
            place = np.stack([start, ends[_PAIR], ends[_GENERAL]])
            target = np.empty(end[-1], dtype=np.int32)
            weight = np.empty(end[-1], dtype=np.float64)
        if len(pair):
            _place_pairs(pair, pair_weight, varies, evidence, place, target, weight)
        if len(general):
            _place_general(general, slots, evidence, place, target, weight)
    rows = np.empty(len(sizes), dtype=ROW)
    rows["start"], rows["pair_end"], rows["unary_begin"] = start, ends[_PAIR], ends[_GENERAL]
    rows["end"], rows["domain"] = end, sizes
    return rows, target, weight


def _join(
    arrays: Sequence[NDArray[Any]], dtype: Any, empty: tuple[int, ...] = (0,)
) -> NDArray[Any]:
    """One read-only C-contiguous array; without a copy where there is only one."""
    if len(arrays) == 1:
        whole = np.ascontiguousarray(arrays[0], dtype=dtype)
    else:
        whole = np.concatenate([np.empty(empty, dtype), *arrays]).astype(dtype, copy=False)
    whole.flags.writeable = False
    return whole


def _join_general(groups: Sequence[General]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The factors, slots and tables of all groups."""
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


def energy_at(model: Model) -> NDArray[np.float64]:
    """For each free variable the sum of its factors' M; the largest is the paper's L."""
    rows = model.rows
    if not len(model.weight):
        return np.zeros(len(rows))
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    return np.bincount(owner, entry_spans(model), minlength=len(rows)).astype(np.float64)


def influence_at(model: Model) -> NDArray[np.float64]:
    """For each free variable a bound on how much all others together can move its distribution.

    A factor of range M lets each of its other variables move it by M / 2 at most, in total
    variation. Where the sum is below 1 for all, Dobrushin's condition holds, and chains that update
    one variable at a time mix fast.
    """
    rows = model.rows
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    others, place = np.ones(len(owner)), np.arange(len(owner))
    general = np.flatnonzero(place >= rows["pair_end"][owner])
    factors = model.factors[model.target[general]]
    others[general] = factors["scope_end"] - factors["scope_start"] - 1
    spans = entry_spans(model)  # infinite for unary ones with zeros, which have no others
    share = np.multiply(others, spans, out=np.zeros(len(spans)), where=others > 0)
    return np.bincount(owner, share / 2, minlength=len(rows)).astype(np.float64)


def factor_spans(model: Model, evidence: NDArray[np.int32]) -> NDArray[np.float64]:
    """The paper's M of every factor, pairs first; 0 where the evidence leaves nothing to vary."""
    varies = pairs_vary(model.pair, model.pair_weight, model.rows["domain"], evidence)
    return np.concatenate([np.where(varies, np.abs(model.pair_weight), 0.0), model.factors["span"]])


def pairs_vary(
    pair: NDArray[np.int32],
    weight: NDArray[np.float64],
    size: NDArray[np.int32],
    evidence: NDArray[np.int32],
) -> NDArray[np.bool_]:
    """Whether pair factors still depend on something: not if their M is 0 under the evidence."""
    (i, j), wide = pair.T, size > 1
    varies: NDArray[np.bool_] = (weight != 0) & (wide[i] | wide[j])
    if (evidence != FREE).any():
        for clamped, other in ((i, j), (j, i)):
            value = evidence[clamped]
            fits = (evidence[other] == FREE) & (value < size[other]) & wide[other]
            varies &= (value == FREE) | fits
    return varies


def entry_spans(model: Model) -> NDArray[np.float64]:
    """The paper's M of the factor behind every entry: of a pair, the size of its weight."""
    spans = np.abs(model.weight)
    first, count = model.rows["pair_end"], model.rows["end"] - model.rows["pair_end"]
    if count.any():
        places = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(count.sum())
        spans[places] = model.factors["span"][model.target[places]]
    return spans


def free_variables(evidence: NDArray[np.int32]) -> NDArray[np.int32]:
    """The variables that a sampler visits: those that no evidence clamps."""
    free = evidence == FREE
    if free.all():
        return np.arange(len(free), dtype=np.int32)
    return np.flatnonzero(free).astype(np.int32)


@entry
def _place_pairs(pair, pair_weight, varies, evidence, place, target, weight):
    """Count the pairs of each row, or write them where `place` says if they fit."""
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
def _place_general(factors, slots, evidence, place, target, weight):
    """Count the general factors of each row, or write them where `place` says if they fit."""
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
