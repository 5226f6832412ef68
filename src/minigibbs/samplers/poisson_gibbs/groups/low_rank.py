"""`LowRank` groups: weights are scalar products of feature vectors.

By default a chain maintains running sums (`projected`), which are exact. Pairs are drawn if the
user requests it, or if the predicted cost of draws is lower.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.implicit.low_rank import LowRank
from minigibbs.kernels.alias import draw_alias, fill_alias
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import ALIAS, DRAWS
from minigibbs.kernels.poisson import poisson
from minigibbs.kernels.touched import SUMS, touch
from minigibbs.samplers.costs import COSTS
from minigibbs.samplers.poisson_gibbs.groups.base import (
    Draws,
    ImplicitSplit,
    Kind,
    Place,
    Wish,
    all_drawn,
    register_draws,
    register_energy,
    register_kind,
)
from minigibbs.samplers.poisson_gibbs.groups.projected import prepare_projected
from minigibbs.samplers.poisson_gibbs.theta import (
    DRAW,
    LARGEST_EXPONENT,
    TAIL,
    UPDATE,
    stickiness,
)
from minigibbs.samplers.poisson_gibbs.updates.tail import keep_share


class LowRankData(NamedTuple):
    """Thin matrices, bounds c, and one alias table over c for all variables."""

    a: NDArray[np.float64]  # [n, rank]
    b: NDArray[np.float64]  # [n, rank]
    bound: NDArray[np.float64]  # [n] c
    total: float  # energy per weight times the sum of c
    alias: NDArray[np.void]  # of ALIAS
    theta: float


class LowRankEnergy(NamedTuple):
    """Thin matrices, and `own`, the sum of self-pairs."""

    a: NDArray[np.float64]  # [n, rank]
    b: NDArray[np.float64]
    own: float
    spins: bool


def split(group: LowRank, wish: Wish) -> ImplicitSplit:
    """Choose running sums, unless draws are requested or cheaper."""
    bound = group.bounds()
    total = group.energy_per_weight * float(bound.sum())
    drawn = all_drawn(total * float(bound.max()), total * float(bound.mean()), wish)
    values, (rank, sides) = 1 if group.form == "ising" else wish.values, group.thin
    time = UPDATE + TAIL + drawn.draws * (DRAW + rank * sides * COSTS["cell"])
    sticky = drawn.tail * stickiness(drawn.theta, wish.stickiness)
    time *= math.exp(min(sticky, LARGEST_EXPONENT))
    projected = UPDATE + values * (COSTS["exp"] + rank * sides * COSTS["cell"])
    everything = wish.heavy is not None and wish.heavy >= group.variables - 1
    told = wish.theta is not None or wish.heavy is not None
    if (projected <= time and not told) or everything:
        exact = group.energy_per_weight * float(group.reach().max())
        return ImplicitSplit(1.0, 0.0, 0.0, exact=exact, projected=values * rank * sides)
    return drawn


def prepare(group: LowRank, how: ImplicitSplit, place: Place) -> Any:
    """Prepare the data of running sums or of draws."""
    if how.projected:
        return prepare_projected(group, place.values, place.first)
    bound = group.bounds()
    table = np.empty(len(bound), dtype=ALIAS)
    table["place"], table["accept"] = np.arange(len(bound)), bound
    fill_alias(table)
    total = group.energy_per_weight * float(bound.sum())
    return LowRankData(group.a, group.b, bound, total, table, how.theta)


def prepare_energy(group: LowRank) -> LowRankEnergy:
    """Prepare the data of log-potentials."""
    own = float(np.einsum("ik,ik->", group.a, group.b))
    return LowRankEnergy(group.a, group.b, own, group.form == "ising")


def energy_cost(group: LowRank) -> float:
    """Predict the nanoseconds of a log-potential: both matrices are read once."""
    rank, _ = group.thin
    return COSTS["read"] * float(group.variables) * 2.0 * rank


@kernel
def low_rank_draw(data, chain, i, mode, size, touched):
    """Draw a Poisson number of variables by their bounds; each draw computes its own weight."""
    rate = (1.0 + data.theta) * data.total * data.bound[i]
    draws = poisson(rate, math.exp(-rate), chain.stream)
    for _ in range(draws):
        other = draw_alias(data.alias, 0, len(data.alias), chain.stream)
        if other == i:
            continue
        weight = 0.0
        for k in range(data.a.shape[1]):
            weight += data.a[i, k] * data.b[other, k] + data.a[other, k] * data.b[i, k]
        share = 0.5 * weight / (data.bound[i] * data.bound[other])  # relative to the bound, signed
        value = chain.x[other]
        on = (value == chain.x[i]) == (share > 0.0)
        if keep_share(chain, abs(share) if on else 0.0, data.theta):
            gain = abs(share) / data.theta
            if mode == SUMS:
                factor = math.copysign(math.log1p(gain), share)
            else:
                factor = 1.0 + gain if share > 0.0 else 1.0 / (1.0 + gain)
            touched = touch(chain, mode, size, value, factor, touched)
    chain.tally[DRAWS] += draws
    return touched


@kernel
def low_rank_copy(data, copies, number):
    """Return the data of one scaled copy."""
    total = data.total * copies.scales[number]
    return LowRankData(data.a, data.b, data.bound, total, data.alias, data.theta)


@kernel
def low_rank_energy(data, x, numbers):
    """Sum over columns the products of sums of a and b over the variables of each value."""
    values, total = len(numbers) // 2, -data.own
    for k in range(data.a.shape[1]):
        for value in range(2 * values):
            numbers[value] = 0.0
        for i in range(len(x)):
            numbers[x[i]] += data.a[i, k]
            numbers[values + x[i]] += data.b[i, k]
        if data.spins:
            total += (numbers[1] - numbers[0]) * (numbers[values + 1] - numbers[values])
        else:
            for value in range(values):
                total += numbers[value] * numbers[values + value]
    return 0.5 * total


register_kind(LowRank, Kind(split, prepare, prepare_energy, energy_cost))
register_draws(LowRankData, Draws(low_rank_draw, low_rank_copy))
register_energy(LowRankEnergy, low_rank_energy)
