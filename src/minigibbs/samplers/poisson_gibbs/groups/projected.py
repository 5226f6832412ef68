"""Groups of low rank, evaluated through running sums: exact, and O(rank) per update.

With S_u the sum of b_j over the variables that have value u, the factors of value u at variable i
sum to a_i . S_u, so a chain that maintains these sums evaluates no pair. A change adds a row to one
sum and subtracts it from another. Rounding errors would accumulate over many changes. So the sums
are recomputed after a fixed number of changes. The number of changes is part of the chain's state,
so a run that is stopped and resumed recomputes at the same update.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.implicit.low_rank import LowRank
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.lanes import fetch
from minigibbs.kernels.layout import EVALUATIONS
from minigibbs.kernels.random import likely_below
from minigibbs.kernels.touched import SUMS, touch
from minigibbs.samplers.poisson_gibbs.groups.base import Draws, register_draws

_REFRESH = 16  # changes per variable between two recomputations of the sums
_LINES = 8  # lines of a row to prefetch; the hardware prefetches the others


class ProjectedData(NamedTuple):
    """Thin matrices; `carried` has a counter of changes, then the running sums."""

    a: NDArray[np.float64]  # [n, rank] scaled, so that rows times sums are log weights
    b: NDArray[np.float64]  # [n, rank]
    spins: bool  # one sum, of the spins; else one sum per value
    alike: bool  # whether a is b, so that both share one set of sums
    values: int  # sums of each matrix
    refresh: int  # changes until the sums are recomputed
    first: int  # index of the counter in `carried`; the sums follow
    share: float  # factor of log weights: below 1 for a weaker copy of the group
    ahead: bool  # whether to prefetch data of a random scan's next update; not for copies


def prepare_projected(group: LowRank, values: int, first: int) -> ProjectedData:
    """Lay out the matrices: half of each product, since a and b are both rows; 2 for spins."""
    spins, alike = group.form == "ising", group.b is group.a
    scale = math.sqrt((2.0 if spins else 1.0) * (1.0 if alike else 0.5))
    a = np.ascontiguousarray(scale * group.a)
    b = a if alike else np.ascontiguousarray(scale * group.b)
    count = 1 if spins else values
    return ProjectedData(a, b, spins, alike, count, _REFRESH * len(a), first, 1.0, True)


def space(data: ProjectedData) -> tuple[int, int]:
    """Return the length of `carried`: a count of changes, and the sums."""
    return 1 + (1 if data.alike else 2) * data.values * int(data.a.shape[1]), 0


@kernel
def _product(rows, others, i, share, sums, begin):
    """Multiply a row by the sum at `begin`, without the variable's own share of that sum."""
    row, other, own = rows[i], others[i], sums[begin : begin + rows.shape[1]]
    total = 0.0
    for k in range(len(row)):
        total += row[k] * (own[k] - share * other[k])
    return total


@kernel
def _add_row(rows, i, share, sums, begin):
    """Add a share of a row to the sum at `begin`."""
    row, own = rows[i], sums[begin : begin + rows.shape[1]]
    for k in range(len(row)):
        own[k] += share * row[k]


@kernel
def _add(data, chain, i, place, share):
    """Add a share of a variable's rows to the sums of one value."""
    rank = data.a.shape[1]
    begin = data.first + 1 + place * rank
    _add_row(data.b, i, share, chain.carried, begin)
    if not data.alike:
        _add_row(data.a, i, share, chain.carried, begin + data.values * rank)


@kernel
def _add_value(data, chain, i, value):
    """Add a variable's rows to the sums of its value."""
    if data.spins:
        _add(data, chain, i, 0, 2.0 * value - 1.0)
    else:
        _add(data, chain, i, np.int64(value), 1.0)


@kernel
def projected_begin(data, chain):
    """Recompute all sums."""
    chain.carried[data.first] = 0.0
    for k in range((1 if data.alike else 2) * data.values * data.a.shape[1]):
        chain.carried[data.first + 1 + k] = 0.0
    for i in range(len(data.a)):
        _add_value(data, chain, i, chain.x[i])


@kernel
def projected_note(data, chain, i, new):
    """Update the sums for a change of variable `i` that is not yet in the state."""
    old = chain.x[i]
    if new == old:
        return
    chain.carried[data.first] += 1.0
    if chain.carried[data.first] >= data.refresh:
        projected_begin(data, chain)
    if data.spins:
        _add(data, chain, i, 0, 2.0 * (np.float64(new) - np.float64(old)))
    else:
        _add(data, chain, i, np.int64(old), -1.0)
        _add(data, chain, i, np.int64(new), 1.0)


@kernel
def _log_weight(data, chain, i, place, share):
    """Sum the factors at `i` for one value, or for a spin up minus down."""
    rank = data.a.shape[1]
    begin = data.first + 1 + place * rank
    total = _product(data.a, data.b, i, share, chain.carried, begin)
    if not data.alike:
        total += _product(data.b, data.a, i, share, chain.carried, begin + data.values * rank)
    return total


@kernel
def _fetch_next(data, chain):
    """Prefetch data of the next update of a random scan, if no number is drawn before it."""
    i = likely_below(chain.stream, len(chain.x), 0)
    fetch(chain.x, i, 0)
    for line in range(min((8 * data.a.shape[1] + 126) // 64, _LINES)):
        fetch(data.a, i, line)
        if not data.alike:
            fetch(data.b, i, line)


@kernel
def projected_draw(data, chain, i, mode, size, touched):
    """Multiply the weights of all values by their factors; nothing is drawn."""
    here = chain.x[i]
    if data.ahead:
        _fetch_next(data, chain)
    if data.spins:
        field = data.share * _log_weight(data, chain, i, 0, 2.0 * here - 1.0)
        factor = field if mode == SUMS else math.exp(field)
        touched = touch(chain, mode, size, 1, factor, touched)
    else:
        for value in range(size):
            own = 1.0 if value == here else 0.0
            field = data.share * _log_weight(data, chain, i, value, own)
            factor = field if mode == SUMS else math.exp(field)
            touched = touch(chain, mode, size, value, factor, touched)
    chain.tally[EVALUATIONS] += (1 if data.alike else 2) * data.values * data.a.shape[1]
    return touched


@kernel
def projected_copy(data, copies, number):
    """Return the data of one scaled copy, which has its own sums."""
    return ProjectedData(
        data.a,
        data.b,
        data.spins,
        data.alike,
        data.values,
        data.refresh,
        data.first + number * copies.room,
        copies.scales[number],
        False,
    )


register_draws(
    ProjectedData, Draws(projected_draw, projected_copy, projected_begin, projected_note, space)
)
