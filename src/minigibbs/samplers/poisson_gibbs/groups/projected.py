"""Groups of low rank, evaluated through running sums: exact, and O(rank) per update.

With S_u the sum of b_j over the variables that have value u, the factors of value u at variable i
sum to a_i . S_u, so a chain that maintains these sums needs no pair. A change adds a row to one sum
and subtracts it from another. Rounding errors would build up over many changes. So the sums are
recomputed after a fixed number of changes. Their count is part of the chain's state, so a run that
is stopped and resumed recomputes at the same update.
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

_REFRESH = 16  # changes a variable between two times that the sums are taken anew
_LINES = 8  # of a row that are asked for at most; a processor sees the others come by itself


class ProjectedData(NamedTuple):
    """Thin matrices; the sums lie in what the chain carries, after a count of changes."""

    a: NDArray[np.float64]  # [n, rank] scaled, so that rows times sums are log weights
    b: NDArray[np.float64]  # [n, rank]
    spins: bool  # one sum, of the spins; else one for each value
    alike: bool  # whether a is b, so that one set of sums serves both
    values: int  # sums of each matrix
    refresh: int  # changes until the sums are taken anew
    first: int  # where in `carried` the count is; the sums follow
    share: float  # what log weights are multiplied by: below 1 for a weaker copy of the group
    ahead: bool  # whether to ask for what a random scan reads next; not for copies


def prepare_projected(group: LowRank, values: int, first: int) -> ProjectedData:
    """Lay out the matrices: half of each product, since a and b take turns; 2 for spins."""
    spins, alike = group.form == "ising", group.b is group.a
    scale = math.sqrt((2.0 if spins else 1.0) * (1.0 if alike else 0.5))
    a = np.ascontiguousarray(scale * group.a)
    b = a if alike else np.ascontiguousarray(scale * group.b)
    count = 1 if spins else values
    return ProjectedData(a, b, spins, alike, count, _REFRESH * len(a), first, 1.0, True)


def space(data: ProjectedData) -> tuple[int, int]:
    """Return how many numbers a chain carries: a count of changes, and the sums."""
    return 1 + (1 if data.alike else 2) * data.values * int(data.a.shape[1]), 0


@kernel
def _product(rows, others, i, share, sums, begin):
    """A row times the sum of others that begins there, less its own share in that sum."""
    row, other, own = rows[i], others[i], sums[begin : begin + rows.shape[1]]
    total = 0.0
    for k in range(len(row)):
        total += row[k] * (own[k] - share * other[k])
    return total


@kernel
def _add_row(rows, i, share, sums, begin):
    """Add a share of a row to the sum that begins there."""
    row, own = rows[i], sums[begin : begin + rows.shape[1]]
    for k in range(len(row)):
        own[k] += share * row[k]


@kernel
def _add(data, chain, i, place, share):
    """Add a share of a variable's rows to the sums at a place."""
    rank = data.a.shape[1]
    begin = data.first + 1 + place * rank
    _add_row(data.b, i, share, chain.carried, begin)
    if not data.alike:
        _add_row(data.a, i, share, chain.carried, begin + data.values * rank)


@kernel
def _add_value(data, chain, i, value):
    """Let a variable take a value."""
    if data.spins:
        _add(data, chain, i, 0, 2.0 * value - 1.0)
    else:
        _add(data, chain, i, np.int64(value), 1.0)


@kernel
def projected_begin(data, chain):
    """Take all sums anew."""
    chain.carried[data.first] = 0.0
    for k in range((1 if data.alike else 2) * data.values * data.a.shape[1]):
        chain.carried[data.first + 1 + k] = 0.0
    for i in range(len(data.a)):
        _add_value(data, chain, i, chain.x[i])


@kernel
def projected_note(data, chain, i, new):
    """Bring the sums up to date with a change of variable `i`, before the state shows it."""
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
    """The factors at `i` for one value, or for a spin up as against down."""
    rank = data.a.shape[1]
    begin = data.first + 1 + place * rank
    total = _product(data.a, data.b, i, share, chain.carried, begin)
    if not data.alike:
        total += _product(data.b, data.a, i, share, chain.carried, begin + data.values * rank)
    return total


@kernel
def _fetch_next(data, chain):
    """Ask for what the next update of a random scan will read, if no number is drawn before it."""
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
    """Return the data of one scaled copy, which has sums of its own."""
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
