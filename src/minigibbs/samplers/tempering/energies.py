"""Energies of implicit groups in compiled code, for exchanges between levels.

Energies of complete graphs and low rank need one pass over the variables. Those of kernels and
points need a pass over all pairs, so exchanges between large graphs of these are rare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.implicit.base import Implicit
from minigibbs.graph.factors.implicit.complete import Complete
from minigibbs.graph.factors.implicit.kernel import Kernel
from minigibbs.graph.factors.implicit.low_rank import LowRank
from minigibbs.graph.factors.implicit.points import Points
from minigibbs.kernels.decay import FEATURES, decay_value
from minigibbs.kernels.jit import chosen_by_type, kernel
from minigibbs.samplers.costs import COSTS
from minigibbs.samplers.poisson_gibbs.updates.implicit import displacements, neighbor


class NoEnergy(NamedTuple):
    """The data of a graph without implicit groups."""

    unused: int


class SeveralEnergies(NamedTuple):
    """The sum of one group's energy and those of the others."""

    group: Any
    others: Any  # another group, or `SeveralEnergies`


class CompleteEnergy(NamedTuple):
    """All pairs with one weight."""

    weight: float
    spins: bool


class LowRankEnergy(NamedTuple):
    """Low rank, by sums over the variables of each value; `own` is the sum of self-pairs."""

    a: NDArray[np.float64]  # [n, rank]
    b: NDArray[np.float64]
    own: float
    spins: bool


class KernelEnergy(NamedTuple):
    """Displacements and weights that count each pair once, or twice with half its weight."""

    shape: NDArray[np.int64]  # [3]
    periodic: bool
    steps: NDArray[np.int64]  # [displacements, 3]
    weight: NDArray[np.float64]
    spins: bool


class PointsEnergy(NamedTuple):
    """Points in the tree's order."""

    rule: Any
    features: NDArray[np.float32]
    points: NDArray[np.float32]
    order: NDArray[np.int32]
    weight: float
    spins: bool


def prepare_energies(groups: tuple[Implicit, ...]) -> Any:
    """Prepare the data from which the energies of some groups are computed."""
    data: Any = NoEnergy(0)
    for group in reversed(groups):
        own = _PREPARE[type(group)](group)
        data = own if isinstance(data, NoEnergy) else SeveralEnergies(own, data)
    return data


def energy_cost(group: Implicit) -> float:
    """Predict the nanoseconds of a group's energy from the table of costs."""
    n = float(group.variables)
    if isinstance(group, Kernel):
        return COSTS["touch"] * n * float(np.count_nonzero(group.half))
    if isinstance(group, Points):
        return (COSTS["read"] + COSTS["exp"]) * 0.5 * n * n
    rank = 2.0 * group.a.shape[1] if isinstance(group, LowRank) else 1.0
    return COSTS["read"] * n * rank


def _prepare_complete(group: Complete) -> CompleteEnergy:
    return CompleteEnergy(group.weight, group.form == "ising")


def _prepare_low_rank(group: LowRank) -> LowRankEnergy:
    own = float(np.einsum("ik,ik->", group.a, group.b))
    return LowRankEnergy(group.a, group.b, own, group.form == "ising")


def _prepare_kernel(group: Kernel) -> KernelEnergy:
    places = np.flatnonzero(group.half)
    weight = group.half[places] * (0.5 if group.periodic else 1.0)  # periodic: pairs occur twice
    shape = np.array((1,) * (3 - len(group.shape)) + group.shape, dtype=np.int64)
    steps = np.ascontiguousarray(displacements(group, places))
    return KernelEnergy(shape, group.periodic, steps, weight, group.form == "ising")


def _prepare_points(group: Points) -> PointsEnergy:
    tree, spins = group.tree, group.form == "ising"
    return PointsEnergy(group.rule, tree.features, tree.points, tree.order, group.weight, spins)


@kernel
def no_energy(data, x, numbers):
    """Return 0."""
    return 0.0


@kernel
def several_energies(data, x, numbers):
    """Add the energy of one group and those of the others."""
    return group_energy(data.group, x, numbers) + group_energy(data.others, x, numbers)


@kernel
def complete_energy(data, x, numbers):
    """Compute the energy from the counts of values; `numbers` has space for two per value."""
    n, values = float(len(x)), len(numbers) // 2
    for value in range(values):
        numbers[value] = 0.0
    for i in range(len(x)):
        numbers[x[i]] += 1.0
    squares = 0.0
    if data.spins:
        squares = (numbers[1] - numbers[0]) ** 2 - n
    else:
        for value in range(values):
            squares += numbers[value] * (numbers[value] - 1.0)
    return 0.5 * data.weight * squares


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


@kernel
def _pair_sign(spins, same):
    """Return the factor of a pair's weight."""
    return 1.0 if same else (-1.0 if spins else 0.0)


@kernel
def kernel_energy(data, x, numbers):
    """Sum over every displacement from every variable."""
    total = 0.0
    for i in range(len(x)):
        rest = i // data.shape[2]
        a, b, c = rest // data.shape[1], rest % data.shape[1], i % data.shape[2]
        for k in range(len(data.weight)):
            other = neighbor(data, a, b, c, data.steps[k, 0], data.steps[k, 1], data.steps[k, 2])
            if other >= 0:
                total += data.weight[k] * _pair_sign(data.spins, x[other] == x[i])
    return total


@kernel
def points_energy(data, x, numbers):
    """Sum over all pairs with equal values, or all pairs of spins."""
    total = 0.0
    for i in range(len(x)):
        value, row = x[data.order[i]], 0.0
        for j in range(i):
            sign = _pair_sign(data.spins, x[data.order[j]] == value)
            if sign != 0.0:
                scale = sign * np.float64(data.points[j, FEATURES])
                row += scale * decay_value(data.rule, data.features, data.points, i, j)
        total += row * np.float64(data.points[i, FEATURES])
    return data.weight * total


_PREPARE: dict[type, Callable[[Any], Any]] = {
    Complete: _prepare_complete,
    LowRank: _prepare_low_rank,
    Kernel: _prepare_kernel,
    Points: _prepare_points,
}
_COMPILED = {
    NoEnergy: no_energy,
    SeveralEnergies: several_energies,
    CompleteEnergy: complete_energy,
    LowRankEnergy: low_rank_energy,
    KernelEnergy: kernel_energy,
    PointsEnergy: points_energy,
}


def group_energy(data: Any, x: Any, numbers: Any) -> float:
    """Compute the energy of the implicit groups in a state; compiled code only."""
    return _COMPILED[type(data)](data, x, numbers)  # type: ignore[no-any-return]


@chosen_by_type(group_energy)
def _energy_for_type(data, x, numbers):
    return _COMPILED[data.instance_class].py_func
