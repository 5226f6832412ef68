"""Poisson-Gibbs for pairs and unary factors over small domains: every value's weight is at hand.

The same algorithm, law and draws as `poisson_gibbs`, without what general factors, large domains
and implicit factors need there: it compiles in a fraction of the time, and an update reads a record
of its variable, its heavy pairs, and nothing of the model.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import entry_spans
from minigibbs.kernels.alias import alias_rows, draw_alias
from minigibbs.kernels.categorical import draw_linear
from minigibbs.kernels.jit import inlined, kernel
from minigibbs.kernels.layout import DRAWS, EVALUATIONS
from minigibbs.kernels.poisson import FEW_DRAWS, poisson_by_inversion
from minigibbs.kernels.random import uniform
from minigibbs.samplers.base import register
from minigibbs.samplers.gibbs.sampler import base_weights
from minigibbs.samplers.poisson_gibbs.split import Split

SMALL = np.dtype(
    [
        ("heavy_start", np.int64),  # its heavy pairs
        ("tail_start", np.int64),  # its slots of the alias table
        ("first", np.int64),  # its first place in `base`
        ("heavy", np.int32),  # how many
        ("tail", np.int32),
        ("domain", np.int32),  # how many values it has
        ("repels", np.int32),  # whether a pair at it does
        ("rate", np.float64),  # (1 + theta) * L_T
        ("none", np.float64),  # exp(-rate)
        ("some", np.float64),  # exp(rate)
        ("keep", np.float64),  # theta / (1 + theta): how often a draw at its minimum is kept
        ("gain", np.float64),  # 1 / keep: what a draw that is kept multiplies a weight by
    ],
    align=True,
)
# A heavy pair: what the weight of the other variable's value is multiplied by, exp(weight).
HEAVY = np.dtype([("factor", np.float64), ("target", np.uint32)], align=True)
BLOCK = 4  # a variable's heavy pairs are filled up to a multiple of this with pairs of no effect


class SmallData(NamedTuple):
    """Heavy pairs and alias tables, a part per variable, and the unary factors."""

    parts: NDArray[np.void]  # [n] of SMALL
    heavy: NDArray[np.void]  # of HEAVY
    tail: NDArray[np.void]  # of ALIAS; place: the other variable plus 1, signed like the weight
    base: NDArray[np.float64]  # [sum of sizes] unary weights, or empty


def lean_fits(graph: FactorGraph, split: Split) -> bool:
    """Whether every factor is a stored pair or unary, and no variable has many draws."""
    rows, rate = graph.packed.rows, (1 + split.theta) * split.tail
    pairs = graph.implicit is None and bool((rows["pair_end"] == rows["unary_begin"]).all())
    return pairs and bool((rate <= FEW_DRAWS).all())


def small_data(graph: FactorGraph, split: Split) -> SmallData:
    """Lay out the split, variable by variable."""
    model, rows = graph.packed, graph.packed.rows
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    heavy = split.heavy & (np.arange(len(owner)) < rows["unary_begin"][owner])
    parts = np.zeros(len(rows), dtype=SMALL)
    place_parts(parts, owner, tail=~split.heavy)
    places = place_heavy(parts, owner[heavy])
    place_rates(parts, split)
    parts["domain"], parts["first"] = rows["domain"], model.first
    parts["repels"] = np.bincount(owner, model.weight < 0, minlength=len(rows)) > 0
    base, _ = base_weights(model)
    pairs = heavy_pairs(graph, heavy, places)
    return SmallData(parts, pairs, signed_tail(graph, parts, split), base)


def place_parts(
    parts: NDArray[np.void], owner: NDArray[np.int64], **masks: NDArray[np.bool_]
) -> None:
    """For each kind of entry set how many a variable has, and where its first one is."""
    for name, mask in masks.items():
        count = np.bincount(owner[mask], minlength=len(parts))
        parts[name], parts[f"{name}_start"] = count, np.cumsum(count) - count


def place_heavy(parts: NDArray[np.void], owner: NDArray[np.int64]) -> NDArray[np.int64]:
    """Set how many heavy pairs a variable has, and where its first one is; returns their places.

    `owner` is each pair's variable, in ascending order. The last place is followed by room.
    """
    count = np.bincount(owner, minlength=len(parts))
    room = -(-count // BLOCK) * BLOCK
    parts["heavy"], parts["heavy_start"] = count, np.cumsum(room) - room
    shift: NDArray[np.int64] = parts["heavy_start"] - (np.cumsum(count) - count)
    return np.arange(len(owner)) + shift[owner]


def fill_blocks(kind: np.dtype[np.void], places: NDArray[np.int64], **values: Any) -> Any:
    """Records at these places, and zeros between them, up to the end of a block."""
    size = int(places[-1]) // BLOCK * BLOCK + BLOCK if len(places) else 0
    records = np.zeros(size, dtype=kind)
    for name, value in values.items():
        records[name][places] = value
    return records


def place_rates(parts: NDArray[np.void], split: Split) -> None:
    """Set how many draws to expect, and what they do."""
    parts["rate"] = (1 + split.theta) * split.tail
    parts["none"] = np.exp(-parts["rate"])
    parts["some"] = np.exp(np.minimum(parts["rate"], 700.0))  # unused where `none` is that small
    parts["keep"], parts["gain"] = split.theta / (1 + split.theta), 1 + 1 / split.theta


def heavy_pairs(
    graph: FactorGraph, heavy: NDArray[np.bool_], places: NDArray[np.int64]
) -> NDArray[np.void]:
    """The heavy pairs at their places; those of no effect multiply by 1."""
    factor, target = np.exp(graph.packed.weight[heavy]), graph.packed.target[heavy]
    pairs = fill_blocks(HEAVY, places, factor=factor, target=target)
    empty = np.ones(len(pairs), dtype=bool)
    empty[places] = False
    pairs["factor"][empty] = 1.0
    return pairs  # type: ignore[no-any-return]


def signed_tail(graph: FactorGraph, parts: NDArray[np.void], split: Split) -> NDArray[np.void]:
    """The tails' alias tables, whose places are other variables plus 1, signed like the weight."""
    model, start = graph.packed, parts["tail_start"]
    tail = alias_rows(
        start, start + parts["tail"], np.flatnonzero(~split.heavy), entry_spans(model)
    )
    sign = np.sign(model.weight).astype(np.int32) * (model.target + np.int32(1))
    for name in ("place", "other"):
        tail[name] = sign[tail[name]]
    return tail


@inlined
def load_base(base, first, size, weights):
    """Set the weight of every value to that of the unary factors."""
    value = 0
    while value < size:
        weights[np.uint64(value)] = base[np.uint64(first + value)] if len(base) else 1.0
        value += 1


@inlined
def load_heavy(heavy, start, count, chain):
    """Multiply the values that the heavy pairs favour; beyond the domain is scratch.

    A block at a time, all read before any is written, so that no read waits for a write. Indices
    are unsigned, so that nobody asks whether they are negative.
    """
    x, weights = chain.x, chain.weights
    k, end = start, start + count
    while k < end:
        a, b = heavy[np.uint64(k)], heavy[np.uint64(k + 1)]
        c, d = heavy[np.uint64(k + 2)], heavy[np.uint64(k + 3)]
        at_a, at_b, at_c, at_d = x[a.target], x[b.target], x[c.target], x[d.target]
        by_a, by_b, by_c, by_d = a.factor, b.factor, c.factor, d.factor
        weights[at_a] *= by_a
        weights[at_b] *= by_b
        weights[at_c] *= by_c
        weights[at_d] *= by_d
        k += BLOCK


@inlined
def _draw_tail(data, part, chain, i, u):
    """Draw pairs of the tail, keep some, and multiply the values they favour."""
    draws, first = poisson_by_inversion(u, part.rate, part.none), part.tail_start
    for _ in range(draws):
        place = draw_alias(data.tail, first, first + part.tail, chain.stream)
        attracts, other = place > 0, chain.x[abs(place) - 1]
        if (other == chain.x[i]) == attracts or uniform(chain.stream) < part.keep:
            chain.weights[other] *= part.gain if attracts else part.keep
    chain.tally[DRAWS] += draws


@kernel
def small_update(data, model, chain, i):
    """Zhang and De Sa's Algorithm 2 with an exact heavy part; see `poisson_gibbs`."""
    part = data.parts[i]
    load_base(data.base, part.first, part.domain, chain.weights)
    load_heavy(data.heavy, part.heavy_start, part.heavy, chain)
    chain.tally[EVALUATIONS] += part.heavy
    u = uniform(chain.stream)
    if u >= part.none:
        _draw_tail(data, part, chain, i, u)
        u = uniform(chain.stream)
    else:
        u *= part.some  # uniform again
    return draw_linear(chain.weights, part.domain, u)


register(SmallData, small_update)
