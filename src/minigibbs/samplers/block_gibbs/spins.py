"""Trees of pairs between two-valued variables: odds instead of tables, and no exponentials.

A message to the next variable is the ratio of two sums, (1 + odds * w) / (odds + w), where w is the
exponential of the pair's weight. All numbers stay in range if no variable's factors sum to more
than e^600 in magnitude.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.dispatch import register_sweep
from minigibbs.graph.factors.potts import Potts
from minigibbs.graph.factors.unary import Unary
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.simple import simplified
from minigibbs.kernels.jit import inlined, kernel
from minigibbs.kernels.layout import EVALUATIONS
from minigibbs.kernels.random import below, uniform
from minigibbs.samplers.block_gibbs.program import OUTSIDE, BlockData
from minigibbs.samplers.gibbs.sampler import sum_unary

_LARGEST = 600.0  # of all factors of a variable together

# The elimination of one variable, with its pairs outside the block, [pair_start, pair_end).
_SPIN = np.dtype(
    [
        ("odds", np.float64),  # of 1 against 0, from its unary factors
        ("tie", np.float64),  # exp(weight) of its pair with `next`
        ("pair_start", np.int64),
        ("pair_end", np.int64),
        ("variable", np.int32),
        ("next", np.int32),  # the step that receives its message; -1 for none
    ],
    align=True,
)
_PAIR = np.dtype([("factor", np.float64, 2), ("other", np.int64)], align=True)


class SpinData(NamedTuple):
    """Covers of blocks of steps, as in `BlockData`."""

    cover_end: NDArray[np.int64]
    block_end: NDArray[np.int64]
    evaluations: NDArray[np.int64]  # [blocks] factors that a block evaluates
    steps: NDArray[np.void]  # of _SPIN
    pairs: NDArray[np.void]  # of _PAIR
    numbers: int
    widest: int


def as_spins(graph: FactorGraph) -> FactorGraph | None:
    """Convert a graph to pairs and unary factors of two values; None if impossible or too strong.

    Tables over two two-valued variables are such factors.
    """
    if (graph.sizes > 2).any() or not np.isfinite(graph.local_energies).all():
        return None
    simple = simplified(graph)
    if len(simple.rest):
        return None
    i, j = simple.pair.T
    groups: list[Any] = [Potts(i, j, simple.pair_weight)] if len(i) else []
    fielded = np.flatnonzero(np.logical_or.reduceat(simple.unary != 0, graph.packed.first))
    fielded = fielded[graph.sizes[fielded] == 2]
    if len(fielded):
        places = graph.packed.first[fielded][:, None] + np.arange(2)
        groups.append(Unary(fielded, simple.unary[places]))
    spins = FactorGraph(graph.domains, groups, evidence=graph.evidence)
    return spins if float(spins.local_energies.max()) < _LARGEST else None


def spin_data(graph: FactorGraph, data: BlockData) -> SpinData:
    """Convert the program of a graph from `as_spins` to odds."""
    model, steps, items = graph.packed, data.steps, data.items
    owner = np.repeat(np.arange(len(steps)), steps["item_end"] - steps["item_start"])
    inside, outside = items["axis"] > 0, items["axis"] == OUTSIDE
    spins = np.zeros(len(steps), dtype=_SPIN)
    spins["variable"], spins["next"] = steps["variable"], steps["target"]
    tie = np.bincount(owner[inside], items["weight"][inside], minlength=len(steps))
    spins["tie"] = np.exp(tie)
    spins["pair_end"] = np.cumsum(np.bincount(owner[outside], minlength=len(steps)))
    spins["pair_start"][1:] = spins["pair_end"][:-1]
    unary, first = sum_unary(model), model.first[steps["variable"]]
    spins["odds"] = np.exp(unary[first + 1] - unary[first]) if len(unary) else 1.0
    pairs = np.zeros(int(np.count_nonzero(outside)), dtype=_PAIR)
    pairs["other"] = items["other"][outside]
    for value, sign in ((0, -1.0), (1, 1.0)):
        pairs["factor"][:, value] = np.exp(sign * items["weight"][outside])
    counts = np.append(0, steps["item_end"])[np.append(0, data.block_end)]
    numbers = int(np.diff(data.block_end, prepend=0).max(initial=0))
    return SpinData(
        data.cover_end, data.block_end, np.diff(counts), spins, pairs, numbers, data.widest
    )


@inlined
def _redraw(data, chain, first, last, odds):
    """Sum out a block's variables, then draw them in reverse order."""
    x = chain.x
    for s in range(first, last):
        odds[s - first] = data.steps[s].odds
    for s in range(first, last):
        step, own = data.steps[s], odds[s - first]
        for k in range(step.pair_start, step.pair_end):
            own *= data.pairs[k].factor[x[data.pairs[k].other]]
        odds[s - first] = own
        if step.next >= 0:
            odds[step.next - first] *= (1.0 + own * step.tie) / (own + step.tie)
    for s in range(last - 1, first - 1, -1):
        step, own = data.steps[s], odds[s - first]
        if step.next >= 0:
            own *= step.tie if x[data.steps[step.next].variable] == 1 else 1.0 / step.tie
        x[step.variable] = 1 if uniform(chain.stream) * (1.0 + own) < own else 0


@kernel
def spin_sweep(data, model, chain, replicas):
    """Redraw all blocks of a cover."""
    odds = chain.weights[len(chain.weights) - data.numbers :]
    chosen = below(chain.stream, len(data.cover_end)) if len(data.cover_end) > 1 else 0
    begin = data.cover_end[chosen - 1] if chosen > 0 else 0
    for block in range(begin, data.cover_end[chosen]):
        first = data.block_end[block - 1] if block > 0 else 0
        _redraw(data, chain, first, data.block_end[block], odds)
        chain.tally[EVALUATIONS] += data.evaluations[block]


@kernel
def spin_begin(data, model, chain, replicas):
    """Do nothing: no state persists between sweeps."""


register_sweep(SpinData, spin_sweep, spin_begin)
