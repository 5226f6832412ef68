"""Spins without fields whose pairs have one strength: bit-sliced counts of unsatisfied pairs.

The cost of a state is its number of unsatisfied pairs, and the probability to flip a spin depends
on how many of its own pairs are unsatisfied. Counts, random numbers and comparisons are bit-sliced
(`kernels.slices`): this is multispin coding with independent random numbers for all replicas.
Updates are those of Metropolis, variable by variable. Probabilities of flips are rounded to
multiples of 2^-16. That suffices for a search, but not for samples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.lanes import lanes_of
from minigibbs.kernels.slices import (
    CHANCE_BITS,
    WORDS,
    add_counts,
    add_unlike,
    flip_by_chance,
)
from minigibbs.samplers.tempering.sliced import (
    MOST_AT_ONCE,
    STACK,
    SUM,
    clear,
    register_model,
    spins_and_fields,
    sum_planes,
)

_HALVES = (2, 3, 5, 8)  # few, because each one is compiled
MOST_NEIGHBORS = 2 * _HALVES[-1]
_EQUAL = 1e-12  # relative difference of equal strengths
_NONE, _ALL, _ONE = np.uint64(0), np.uint64(2**64 - 1), np.uint64(1)


class CountModel(NamedTuple):
    """The updated variables and their pairs, common to all ladders."""

    order: NDArray[np.int32]  # [n] the graph's variables
    unit: float  # the strength of every pair: what a log-potential loses where it is unsatisfied
    even: bool  # whether all values can change without a change of the energy: true
    start: NDArray[np.int64]  # [n + 1] start of the neighbors of each variable
    target: NDArray[np.int64]  # neighbors
    flip: NDArray[np.uint64]  # all ones where equal values are unsatisfied
    pair: NDArray[np.int64]  # [P, 2]
    pair_flip: NDArray[np.uint64]  # [P]
    halves: tuple[int, ...]  # its length is at least half of the largest number of neighbors
    length: tuple[int, ...]  # the planes of a count of pairs or variables

    @property
    def cost_type(self) -> type[np.int32]:
        """The type of costs."""
        return np.int32

    @property
    def strengths(self) -> NDArray[np.float64]:
        """The strengths of some pairs."""
        return np.array([self.unit])

    def table_bytes(self, replicas: int) -> int:
        """Return the size of `table`."""
        return self._rows * CHANCE_BITS * replicas // 8

    @property
    def _rows(self) -> int:
        """The number of rows of chances: -2H to 2H more satisfied pairs than unsatisfied ones."""
        return 4 * len(self.halves) + 1

    def table(self, beta: NDArray[np.float64], ladders: int) -> NDArray[np.uint64]:
        """Return the chances of flips [row, bit, word].

        Row 2H + m is the bits of min(1, exp(-beta * unit * m)), for m more satisfied pairs than
        unsatisfied ones.
        """
        half = 2 * len(self.halves)
        more = np.maximum(np.arange(-half, half + 1), 0)
        chance = np.exp(-self.unit * more[:, None] * beta) * 2.0**CHANCE_BITS
        whole = np.minimum(np.rint(chance), 2**CHANCE_BITS - 1).astype(np.int64)
        bits = whole[:, None, :] >> np.arange(CHANCE_BITS)[:, None] & 1
        kind = np.dtype(f"u{ladders // 8}")
        full = np.where(bits == 1, np.iinfo(kind).max, 0).astype(kind)
        return full.view(np.uint64).ravel()


def count_model(graph: FactorGraph) -> CountModel | None:
    """Lay out a graph of spins without fields whose pairs have one strength; None for others."""
    found = spins_and_fields(graph)
    if found is None:
        return None
    simple, spin, fields = found
    strength, field = np.abs(simple.pair_weight), np.abs(fields).max(initial=0.0)
    most = float(strength.max())
    if max(most - float(strength.min()), float(field)) > _EQUAL * most:
        return None
    pair = (np.cumsum(spin) - 1)[simple.pair].astype(np.int64)
    n = int(spin.sum())
    degree = np.bincount(pair.ravel(), minlength=n)
    if degree.max() > MOST_NEIGHBORS:
        return None
    flip = np.where(simple.pair_weight > 0, _NONE, _ALL)
    owner, other = np.concatenate([pair, pair[:, ::-1]]).T
    order = np.lexsort((other, owner))
    return CountModel(
        order=np.flatnonzero(spin).astype(np.int32),
        unit=most,
        even=True,
        start=np.concatenate([[0], np.cumsum(degree)]),
        target=other[order],
        flip=np.tile(flip, 2)[order],
        pair=pair,
        pair_flip=flip,
        halves=(0,) * next(half for half in _HALVES if 2 * half >= degree.max()),
        length=sum_planes(max(n, len(pair))),
    )


@kernel
def _sweep(model, data):
    """Update every variable in all replicas."""
    width, half = data.width, len(model.halves)
    planes = lanes_of(STACK, _NONE)
    row = CHANCE_BITS * width
    for column in range(0, width, WORDS):
        for i in range(len(model.order)):
            clear(planes, STACK)
            place, first, end = i * width + column, model.start[i], model.start[i + 1]
            for k in range(first, end):
                target = model.target[k] * width + column
                add_unlike(planes, data.x, place, target, model.flip[k], model.halves)
            line = (2 * half + end - first) * row + column
            flip_by_chance(
                data.x, place, planes, data.table, line, 2 * row, data.streams, column, width,
                model.halves,
            )  # fmt: skip


@kernel
def _add_costs(model, data):
    """Count the unsatisfied pairs of every replica."""
    width, planes = data.width, lanes_of(STACK, _NONE)
    clear(planes, STACK)
    clear(data.sums, len(data.sums))
    for column in range(0, width, WORDS):
        for k in range(len(model.pair)):
            i, j = model.pair[k, 0] * width + column, model.pair[k, 1] * width + column
            add_unlike(planes, data.x, i, j, model.pair_flip[k], SUM)
            if k % MOST_AT_ONCE == MOST_AT_ONCE - 1:
                add_counts(planes, data.sums, column, width, model.length)
        add_counts(planes, data.sums, column, width, model.length)
    for lane in range(len(data.cost)):
        data.cost[lane] = 0
    for plane in range(len(model.length)):
        for k in range(width):
            word = data.sums[plane * width + k]
            for bit in range(64):
                one = np.int32((word >> np.uint64(bit)) & _ONE)
                data.cost[64 * k + bit] += one << plane


register_model(CountModel, _sweep, _add_costs)
