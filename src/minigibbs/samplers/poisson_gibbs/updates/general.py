"""The variant for all graphs: general factors, long tails, implicit groups, any domain size."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.dispatch import register
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import entry_spans
from minigibbs.kernels.alias import alias_rows, draw_alias
from minigibbs.kernels.categorical import draw_linear
from minigibbs.kernels.energy import add_general
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import ALIAS, DRAWS, EVALUATIONS
from minigibbs.kernels.poisson import poisson_beyond
from minigibbs.kernels.random import leftover, uniform
from minigibbs.kernels.touched import (
    DENSE_DOMAIN,
    LISTED,
    PRODUCTS,
    SUMS,
    draw_touched,
    touch,
)
from minigibbs.samplers.gibbs.sampler import base_weights, sum_unary, touched_workspace
from minigibbs.samplers.poisson_gibbs.groups import draw_implicit, prepare_implicit
from minigibbs.samplers.poisson_gibbs.split import Split
from minigibbs.samplers.poisson_gibbs.updates.base import (
    HEAVY_PAIR,
    TAIL_FIELDS,
    Variant,
    heavy_pairs,
    place_heavy,
    place_parts,
    place_rates,
)
from minigibbs.samplers.poisson_gibbs.updates.small import load_base, load_heavy
from minigibbs.samplers.poisson_gibbs.updates.tail import keep_share, touch_kept

# The record of a variable.
GENERAL_PART = np.dtype(
    [
        ("heavy_start", np.int64),  # its exactly evaluated pairs
        ("general_start", np.int64),  # its heavy general factors
        ("tail_start", np.int64),  # its slots of the alias table
        ("heavy", np.int32),  # number of each
        ("general", np.int32),
        ("tail", np.int32),
        ("dense", np.int32),  # whether to compute the weight of every value
        ("theta", np.float64),
        *TAIL_FIELDS,
        ("loss", np.float64),  # keep: the factor by which a repulsive pair multiplies a weight
    ],
    align=True,
)


class GeneralData(NamedTuple):
    """Heavy parts, tails, and the unary factors as base weights."""

    parts: NDArray[np.void]  # [n] of GENERAL_PART
    heavy: NDArray[np.void]  # of HEAVY_PAIR
    general: NDArray[np.int64]  # indices of heavy general factors
    tail: NDArray[np.void]  # of ALIAS, over indices
    base: NDArray[np.float64]  # [sum of sizes] unary weights that sum to the size, or empty
    alias: NDArray[np.void]  # of ALIAS, over values; as long as `base`
    implicit: Any  # see `poisson_gibbs.groups`


def prepare(graph: FactorGraph, split: Split, logs: bool = False) -> GeneralData:
    """Lay out heavy pairs and general factors, and alias tables, by variable.

    With `logs`, pairs, gains and unary factors are stored as logarithms.
    """
    model, rows = graph.packed, graph.packed.rows
    implicit = prepare_implicit(graph, split.implicits, logs)
    if rows.strides == (0,):
        return _nothing_stored(len(rows), int(rows[0]["domain"]), implicit)
    spans = entry_spans(model)
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    place = np.arange(len(spans))
    pair, unary = place < rows["pair_end"][owner], place >= rows["unary_begin"][owner]
    heavy_pair, heavy_general = split.heavy & pair, split.heavy & ~pair & ~unary
    parts = np.zeros(len(rows), dtype=GENERAL_PART)
    place_parts(parts, owner, general=heavy_general, tail=~split.heavy)
    places = place_heavy(parts, owner[heavy_pair])
    place_rates(parts, split)
    parts["theta"], parts["loss"] = split.theta, parts["keep"]
    if logs:
        parts["gain"] = np.log1p(1 / split.theta)
        parts["loss"] = -parts["gain"]
    has_general = np.bincount(owner[~pair & ~unary], minlength=len(rows)) > 0
    parts["dense"] = has_general | (rows["domain"] <= DENSE_DOMAIN)
    base, alias = (sum_unary(model), np.empty(0, ALIAS)) if logs else base_weights(model)
    first, last = parts["tail_start"], parts["tail_start"] + parts["tail"]
    return GeneralData(
        parts=parts,
        heavy=heavy_pairs(graph, heavy_pair, places, logs),
        general=np.flatnonzero(heavy_general),
        tail=alias_rows(first, last, np.flatnonzero(~split.heavy), spans),
        base=base,
        alias=alias,
        implicit=implicit,
    )


def _nothing_stored(variables: int, size: int, implicit: Any) -> GeneralData:
    """Build one part for all variables, if there are no explicit factors."""
    part = np.zeros(1, dtype=GENERAL_PART)
    part["theta"], part["none"], part["some"] = 1.0, 1.0, 1.0  # no draws
    part["dense"] = size <= DENSE_DOMAIN
    return GeneralData(
        parts=np.broadcast_to(part, variables),
        heavy=np.empty(0, HEAVY_PAIR),
        general=np.empty(0, np.int64),
        tail=np.empty(0, ALIAS),
        base=np.empty(0),
        alias=np.empty(0, ALIAS),
        implicit=implicit,
    )


@kernel
def _draw_general(part, model, chain, i, place, mode, size):
    """Keep a drawn general factor or drop it; if kept, multiply every value's weight."""
    factor, weights = model.factors[model.target[place]], chain.weights
    values = weights[size:]
    for value in range(size):
        values[value] = -factor.low
    add_general(model, chain.x, i, place, 1.0, values)
    if keep_share(chain, values[chain.x[i]] / factor.span, part.theta):
        for value in range(size):
            gain = values[value] / (part.theta * factor.span)
            if mode == SUMS:
                weights[value] += math.log1p(gain)
            else:
                weights[value] *= 1.0 + gain


@kernel
def draw_tail(data, part, model, chain, i, mode, u, touched):
    """Do steps 1 to 3: draw factors of the tail, keep some, multiply the weights they favor.

    Returns the number of touched values.
    """
    row = model.rows[i]
    draws = poisson_beyond(u, part.rate, part.none, chain.stream)
    for _ in range(draws):
        first = part.tail_start
        place = draw_alias(data.tail, first, first + part.tail, chain.stream)
        if place >= row.pair_end:
            _draw_general(part, model, chain, i, place, mode, row.domain)
        else:
            value, attracts = chain.x[model.target[place]], model.weight[place] > 0.0
            touched = touch_kept(part, chain, i, value, attracts, mode, row.domain, touched)
    chain.tally[DRAWS] += draws
    return touched


@kernel
def _load_products(data, part, model, chain, i):
    """Set the weight of every value to its base weight times the heavy general factors."""
    row, weights = model.rows[i], chain.weights
    if part.general == 0:
        load_base(data.base, model.first[i], row.domain, weights)
        return
    for value in range(row.domain):
        weights[value] = 0.0
    for k in range(part.general):
        add_general(model, chain.x, i, data.general[part.general_start + k], 1.0, weights)
    top = weights[0]
    for value in range(1, row.domain):
        top = max(top, weights[value])
    for value in range(row.domain):
        own = data.base[model.first[i] + value] if len(data.base) else 1.0
        weights[value] = own * math.exp(weights[value] - top)


@kernel
def general_update(data, model, chain, i):
    """Update by Zhang and De Sa's Algorithm 2 with an exact heavy part."""
    part, row, x = data.parts[i], model.rows[i], chain.x
    mode, touched = PRODUCTS if part.dense != 0 else LISTED, 0
    if mode == PRODUCTS:
        _load_products(data, part, model, chain, i)
        load_heavy(data.heavy, part.heavy_start, part.heavy, chain)
    else:
        for k in range(part.heavy):
            pair = data.heavy[part.heavy_start + k]
            touched = touch(chain, LISTED, row.domain, x[pair.target], pair.factor, touched)
    chain.tally[EVALUATIONS] += part.heavy + part.general
    u = uniform(chain.stream)
    if u >= part.none:
        touched = draw_tail(data, part, model, chain, i, mode, u, touched)
        u = uniform(chain.stream)
    else:
        u = leftover(u, part.none, part.some, chain.stream)
    touched = draw_implicit(data.implicit, chain, i, mode, row.domain, touched)
    if mode == PRODUCTS:
        return draw_linear(chain.weights, row.domain, u)
    first, size = model.first[i], row.domain
    return draw_touched(data.base, data.alias, first, size, chain, touched, u, True, False)


register(GeneralData, general_update)
GENERAL = Variant("general", GeneralData, prepare, touched_workspace)
