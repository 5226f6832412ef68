"""Variants of the update, and the arrays that several variants share.

All variants implement the same algorithm (see `poisson_gibbs.sampler`). A variant is a file with a
NamedTuple of arrays, the update that reads them, and a `Variant`. `samplers.registry.VARIANTS` has
the condition under which it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import Workspace
from minigibbs.engine.dispatch import compiled_for
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import entry_spans
from minigibbs.kernels.alias import alias_rows
from minigibbs.kernels.poisson import FEW_DRAWS
from minigibbs.kernels.touched import LARGEST, LEAST
from minigibbs.samplers.poisson_gibbs.split import Split

HEAVY_STEP = 4  # exactly evaluated pairs of a variable are padded to a multiple of this

# The tail of a variable: fields of every variant's record of a variable.
TAIL_FIELDS: list[tuple[str, Any]] = [
    ("rate", np.float64),  # (1 + theta) * L_T
    ("none", np.float64),  # exp(-rate)
    ("some", np.float64),  # exp(rate)
    ("keep", np.float64),  # theta / (1 + theta): probability of keeping a draw at its minimum
    ("gain", np.float64),  # 1 / keep: the factor by which a kept pair multiplies a weight
]
# A heavy pair: its other variable, and the factor for the weight of that variable's value, which is
# exp(weight) or its logarithm.
HEAVY_PAIR = np.dtype([("factor", np.float64), ("target", np.uint32)], align=True)


@dataclass(frozen=True)
class Variant:
    """One implementation of the update of a variable, registered for the type of `data`."""

    name: str
    data: type  # what `prepare` returns
    prepare: Callable[[FactorGraph, Split], Any]
    workspace: Callable[[FactorGraph], Workspace]

    @property
    def update(self) -> Any:
        """The compiled update(data, model, chain, i)."""
        return compiled_for(self.data).update


def one_per_value(graph: FactorGraph) -> Workspace:
    """Return the workspace of variants that store one weight per value and nothing else."""
    return Workspace(weights=1)


def nothing_drawn(graph: FactorGraph, split: Split) -> bool:
    """Return whether every factor is evaluated, so that the update is plain Gibbs's."""
    return not graph.implicits and not split.tail.any()


def few_pairs_drawn(graph: FactorGraph, split: Split) -> bool:
    """Return whether all factors are explicit pairs or unary, draws few, and products in range."""
    rows = graph.packed.rows
    if graph.implicits or (rows["pair_end"] < rows["unary_begin"]).any():
        return False
    few = bool(((1 + split.theta) * split.tail <= FEW_DRAWS).all())
    return few and split.log_range <= LARGEST


def losses_stay_precise(graph: FactorGraph, split: Split, listed: NDArray[np.bool_]) -> bool:
    """Return whether no `listed` variable's values lose so much weight that gains lose precision.

    If factors of energy R repel and unary ones have a range U, the D values keep a share of their
    base weights of at least exp(-R), and of at least exp(-R / D - U).
    """
    model, rows = graph.packed, graph.packed.rows
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    place = np.arange(len(owner))
    repels = (model.weight < 0) & (place < rows["pair_end"][owner])
    if not listed.any() or (not graph.implicits and not repels.any()):
        return True
    heavy, unary = repels & split.heavy, place >= rows["unary_begin"][owner]
    drawn = np.bincount(owner[repels & ~heavy], minlength=len(rows)) > 0
    lost = np.where(drawn, split.tail_range, 0.0) + split.implicit_range
    lost += np.bincount(owner[heavy], -model.weight[heavy], minlength=len(rows))
    spread = np.bincount(owner[unary], entry_spans(model)[unary], minlength=len(rows))
    least = np.minimum(lost, lost / rows["domain"] + spread)
    return bool((least[listed] <= -math.log(LEAST)).all())


def place_parts(
    parts: NDArray[np.void], owner: NDArray[np.int64], **masks: NDArray[np.bool_]
) -> None:
    """Set each variable's number of entries of each kind, and the index of the first."""
    for name, mask in masks.items():
        count = np.bincount(owner[mask], minlength=len(parts))
        parts[name], parts[f"{name}_start"] = count, np.cumsum(count) - count


def place_heavy(parts: NDArray[np.void], owner: NDArray[np.int64]) -> NDArray[np.int64]:
    """Set each variable's number and start of heavy pairs; return the pairs' indices.

    `owner` is each pair's variable, in ascending order. The last index is followed by padding.
    """
    count = np.bincount(owner, minlength=len(parts))
    room = -(-count // HEAVY_STEP) * HEAVY_STEP
    parts["heavy"], parts["heavy_start"] = count, np.cumsum(room) - room
    shift: NDArray[np.int64] = parts["heavy_start"] - (np.cumsum(count) - count)
    return np.arange(len(owner)) + shift[owner]


def fill_blocks(kind: np.dtype[np.void], places: NDArray[np.int64], **values: Any) -> Any:
    """Store records at these indices, with zeros between them, up to the end of a block."""
    size = int(places[-1]) // HEAVY_STEP * HEAVY_STEP + HEAVY_STEP if len(places) else 0
    records = np.zeros(size, dtype=kind)
    for name, value in values.items():
        records[name][places] = value
    return records


def place_rates(parts: NDArray[np.void], split: Split) -> None:
    """Set the expected number of draws, and their effect on weights."""
    parts["rate"] = (1 + split.theta) * split.tail
    parts["none"] = np.exp(-parts["rate"])
    parts["some"] = np.exp(np.minimum(parts["rate"], 700.0))  # unused if `none` is that small
    parts["keep"], parts["gain"] = split.theta / (1 + split.theta), 1 + 1 / split.theta


def heavy_pairs(
    graph: FactorGraph,
    heavy: NDArray[np.bool_],
    places: NDArray[np.int64],
    logs: bool = False,
) -> NDArray[np.void]:
    """Lay out the heavy pairs; padding multiplies by 1."""
    weight, target = graph.packed.weight[heavy], graph.packed.target[heavy]
    factor = weight if logs else np.exp(weight)
    pairs = fill_blocks(HEAVY_PAIR, places, factor=factor, target=target)
    empty = np.ones(len(pairs), dtype=bool)
    empty[places] = False
    pairs["factor"][empty] = 0.0 if logs else 1.0
    return pairs  # type: ignore[no-any-return]


def signed_tail(graph: FactorGraph, parts: NDArray[np.void], split: Split) -> NDArray[np.void]:
    """Build the tails' alias tables; entries are other variables plus 1, signed like the weight."""
    model, start = graph.packed, parts["tail_start"]
    tail = alias_rows(
        start, start + parts["tail"], np.flatnonzero(~split.heavy), entry_spans(model)
    )
    sign = np.sign(model.weight).astype(np.int32) * (model.target + np.int32(1))
    for name in ("place", "other"):
        tail[name] = sign[tail[name]]
    return tail
