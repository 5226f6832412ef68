"""`Kernel` groups: weights by displacement on a grid.

Strong displacements are evaluated exactly. The others are drawn from one alias table over
displacements, which all variables share.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.implicit.kernel import Kernel
from minigibbs.kernels.alias import draw_alias, fill_alias
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import ALIAS, DRAWS, EVALUATIONS
from minigibbs.kernels.poisson import poisson
from minigibbs.kernels.random import next_word
from minigibbs.kernels.touched import PRODUCTS, touch
from minigibbs.samplers.costs import COSTS
from minigibbs.samplers.poisson_gibbs.groups.base import (
    Draws,
    ImplicitSplit,
    Kind,
    Place,
    Wish,
    pair_sign,
    register_draws,
    register_energy,
    register_kind,
)
from minigibbs.samplers.poisson_gibbs.groups.rates import rates_of
from minigibbs.samplers.poisson_gibbs.theta import (
    DRAW,
    LARGEST_EXPONENT,
    QUIETLY,
    TAIL,
    UPDATE,
    best_theta,
    stickiness,
)
from minigibbs.samplers.poisson_gibbs.updates.tail import touch_kept

_CHUNK = 2**20  # weights per batch, since there may be tens of millions


class KernelData(NamedTuple):
    """A list of heavy displacements, and an alias table of the others over the half table.

    An index in the alias table is relative to the center of the flat table of displacements. Its
    sign is that of the weight.
    """

    shape: NDArray[np.int64]  # [3] the grid, with sides of 1 in front
    sides: NDArray[np.int64]  # [3] of the table of displacements
    reach: NDArray[np.int64]  # [3] the coordinates of its center
    periodic: bool
    heavy: NDArray[np.int64]  # [heavy, 3] displacements
    factor: NDArray[np.float64]  # [heavy, 2] exp(-weight), exp(weight), in pair weights, or logs
    tail: NDArray[np.void]  # of ALIAS
    rate: float  # this and the following: see `groups.rates.Rates`
    none: float
    keep: float
    gain: float
    loss: float


class KernelEnergy(NamedTuple):
    """Displacements and weights that count each pair once, or twice with half its weight."""

    shape: NDArray[np.int64]  # [3]
    periodic: bool
    steps: NDArray[np.int64]  # [displacements, 3]
    weight: NDArray[np.float64]
    spins: bool


def split(group: Kernel, wish: Wish) -> ImplicitSplit:
    """Split the displacements as the factors of one variable, once for all variables."""
    copies = 1 if group.periodic else 2  # the half table represents both d and -d
    scale = group.energy_per_weight
    least, chosen, tail = _split_weights(group.half, scale, copies, wish)
    strong = heavy_displacements(group, least)
    exact = copies * scale * float(np.abs(group.half[strong]).sum())
    count = copies * int(np.count_nonzero(strong))
    return ImplicitSplit(chosen, tail, (1 + chosen) * tail, least, count, exact)


def heavy_displacements(group: Kernel, least: float) -> NDArray[np.bool_]:
    """Mark the entries of the half table with |weight| >= `least`."""
    return (group.half >= least) | (group.half <= -least)


@QUIETLY
def _split_weights(
    weights: NDArray[np.float64], scale: float, copies: int, wish: Wish
) -> tuple[float, float, float]:
    """Return the smallest heavy weight, theta and L_T with the least time per effective sample.

    Each weight represents `copies` factors of energy scale * |weight|.
    """
    sums, counts, lowest = _by_exponent(weights)
    best: tuple[float, float, float, float] | None = None
    if wish.heavy is not None:
        ordered = np.sort(np.abs(weights))[::-1]
        most = min(wish.heavy // copies, len(ordered))
        cuts = [float(ordered[most - 1])] if most else [math.inf]
    else:
        used = np.flatnonzero(counts) + lowest
        cuts = [math.inf, *(math.ldexp(1.0, int(exponent) - 1) for exponent in used)]
    for cut in cuts:
        if wish.heavy is None:  # cuts are powers of two
            light = math.frexp(cut)[1] - lowest if math.isfinite(cut) else len(counts)
            energy, exact = sums[:light].sum(), counts[light:].sum()
        else:
            energy = sums.sum() - np.abs(weights[np.abs(weights) >= cut]).sum()
            exact = wish.heavy
        energy = copies * scale * max(float(energy), 0.0)
        tail = np.array([energy])
        chosen = wish.theta
        if chosen is None:
            chosen = float(best_theta(tail, wish.slowdown, DRAW, wish.stickiness)[0])
        time = UPDATE + copies * COSTS["touch"] * float(exact)
        time += TAIL + DRAW * (1 + chosen) * energy
        time *= math.exp(min(energy * stickiness(chosen, wish.stickiness), LARGEST_EXPONENT))
        if best is None or time < best[0]:
            best = (time, cut, float(chosen), energy)
    assert best is not None
    return best[1:]


def _by_exponent(
    weights: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.int64], int]:
    """Return sums and counts of |weight| by power of two, and the first power."""
    lowest, bins = -1100, 2200
    sums, counts = np.zeros(bins), np.zeros(bins, dtype=np.int64)
    for first in range(0, len(weights), _CHUNK):
        size = np.abs(weights[first : first + _CHUNK])
        size = size[size > 0]
        exponent = np.frexp(size)[1] - lowest
        sums += np.bincount(exponent, size, minlength=bins)
        counts += np.bincount(exponent, minlength=bins)
    return sums, counts, lowest


def prepare(group: Kernel, how: ImplicitSplit, place: Place) -> KernelData:
    """Prepare the data of draws."""
    strong = heavy_displacements(group, how.least)
    places = np.flatnonzero(strong)
    weights, steps = group.energy_per_weight * group.half[places], displacements(group, places)
    if not group.periodic:
        steps, weights = np.concatenate([steps, -steps]), np.concatenate([weights, weights])
    pad, either = 3 - len(group.shape), np.stack([-weights, weights], axis=1)
    return KernelData(
        np.array((1,) * pad + group.shape, dtype=np.int64),
        np.array((1,) * pad + group.sides, dtype=np.int64),
        np.array((0,) * pad + group.reach, dtype=np.int64),
        group.periodic,
        np.ascontiguousarray(steps),
        either if place.logs else np.exp(either),
        displacement_alias(group.half, strong),
        *rates_of(how, place.logs),
    )


def copied_factors(
    data: KernelData, scales: NDArray[np.float64], logs: bool
) -> NDArray[np.float64]:
    """Return `factor` of each scaled copy: [copies, heavy, 2]."""
    by = scales[:, None, None]
    copied: NDArray[np.float64] = data.factor * by if logs else data.factor**by
    return copied


def displacement_alias(half: NDArray[np.float64], strong: NDArray[np.bool_]) -> NDArray[np.void]:
    """Build the alias table of the displacements that are not strong, in pieces to save memory."""
    light = ~strong & (half != 0)
    tail, filled = np.empty(int(np.count_nonzero(light)), dtype=ALIAS), 0
    for first in range(0, len(half), _CHUNK):
        places = np.flatnonzero(light[first : first + _CHUNK]) + first
        part = tail[filled : filled + len(places)]
        part["accept"] = np.abs(half[places])
        part["place"] = np.where(half[places] > 0, places + 1, -1 - places)
        filled += len(places)
    fill_alias(tail)
    return tail


def displacements(group: Kernel, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return displacements [index, 3] of indices of the half table."""
    index = np.unravel_index(places + group.center + 1, group.sides)
    steps = np.stack([axis - reach for axis, reach in zip(index, group.reach, strict=True)], axis=1)
    return np.pad(steps, [(0, 0), (3 - len(group.shape), 0)]).astype(np.int64)


def prepare_energy(group: Kernel) -> KernelEnergy:
    """Prepare the data of log-potentials."""
    places = np.flatnonzero(group.half)
    weight = group.half[places] * (0.5 if group.periodic else 1.0)  # periodic: pairs occur twice
    shape = np.array((1,) * (3 - len(group.shape)) + group.shape, dtype=np.int64)
    steps = np.ascontiguousarray(displacements(group, places))
    return KernelEnergy(shape, group.periodic, steps, weight, group.form == "ising")


def energy_cost(group: Kernel) -> float:
    """Predict the nanoseconds of a log-potential: all displacements from all variables."""
    return COSTS["touch"] * float(group.variables) * float(np.count_nonzero(group.half))


@kernel
def _move(at, step, side, periodic):
    """Return a coordinate after a step, or -1 if that is off the grid."""
    to = at + step
    if periodic:
        return to - side if to >= side else to
    return to if 0 <= to < side else -1


@kernel
def neighbor(data, a, b, c, step_a, step_b, step_c):
    """Return the variable one step away from coordinates (a, b, c), or -1."""
    to_a = _move(a, step_a, data.shape[0], data.periodic)
    to_b = _move(b, step_b, data.shape[1], data.periodic)
    to_c = _move(c, step_c, data.shape[2], data.periodic)
    if to_a < 0 or to_b < 0 or to_c < 0:
        return -1
    return (to_a * data.shape[1] + to_b) * data.shape[2] + to_c


@kernel
def kernel_draw(data, chain, i, mode, size, touched):
    """Evaluate the heavy displacements; draw a Poisson number of the others by alias table."""
    x, rest = chain.x, i // data.shape[2]
    a, b, c = rest // data.shape[1], rest % data.shape[1], i % data.shape[2]
    odds, spin = 1.0, size == 2 and mode == PRODUCTS
    for k in range(len(data.heavy)):
        other = neighbor(data, a, b, c, data.heavy[k, 0], data.heavy[k, 1], data.heavy[k, 2])
        if other >= 0:
            if spin and x[other] < 2:
                odds *= data.factor[k, x[other]]
            else:
                touched = touch(chain, mode, size, x[other], data.factor[k, 1], touched)
    if spin:
        chain.weights[1] *= odds
    chain.tally[EVALUATIONS] += len(data.heavy)
    draws = poisson(data.rate, data.none, chain.stream) if data.rate > 0.0 else 0
    center = (data.reach[0] * data.sides[1] + data.reach[1]) * data.sides[2] + data.reach[2]
    for _ in range(draws):
        place = draw_alias(data.tail, 0, len(data.tail), chain.stream)
        flat = center + abs(place)
        rest = flat // data.sides[2]
        step_c = flat % data.sides[2] - data.reach[2]
        step_b = rest % data.sides[1] - data.reach[1]
        step_a = rest // data.sides[1] - data.reach[0]
        if not data.periodic and next_word(chain.stream) & np.uint64(1):
            step_a, step_b, step_c = -step_a, -step_b, -step_c
        other = neighbor(data, a, b, c, step_a, step_b, step_c)
        if other >= 0:
            touched = touch_kept(data, chain, i, x[other], place > 0, mode, size, touched)
    chain.tally[DRAWS] += draws
    return touched


@kernel
def kernel_copy(data, copies, number):
    """Return the data of one scaled copy."""
    rate = data.rate * copies.scales[number]
    return KernelData(
        data.shape,
        data.sides,
        data.reach,
        data.periodic,
        data.heavy,
        copies.factor[number],
        data.tail,
        rate,
        math.exp(-rate),
        data.keep,
        data.gain,
        data.loss,
    )


@kernel
def kernel_energy(data, x, numbers):
    """Compute the log-potential: the sum over all displacements from all variables."""
    total = 0.0
    for i in range(len(x)):
        rest = i // data.shape[2]
        a, b, c = rest // data.shape[1], rest % data.shape[1], i % data.shape[2]
        for k in range(len(data.weight)):
            other = neighbor(data, a, b, c, data.steps[k, 0], data.steps[k, 1], data.steps[k, 2])
            if other >= 0:
                total += data.weight[k] * pair_sign(data.spins, x[other] == x[i])
    return total


register_kind(Kernel, Kind(split, prepare, prepare_energy, energy_cost))
register_draws(KernelData, Draws(kernel_draw, kernel_copy))
register_energy(KernelEnergy, kernel_energy)
