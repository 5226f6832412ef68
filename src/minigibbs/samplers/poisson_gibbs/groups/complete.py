"""`Complete` groups: every pair of variables has the same weight, and all pairs are minibatched."""

from __future__ import annotations

import math
from typing import NamedTuple

from minigibbs.graph.factors.implicit.complete import Complete
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import DRAWS
from minigibbs.kernels.poisson import poisson
from minigibbs.kernels.random import below
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
from minigibbs.samplers.poisson_gibbs.groups.rates import rates_of
from minigibbs.samplers.poisson_gibbs.updates.tail import touch_kept


class CompleteData(NamedTuple):
    """The number of variables, the sign of the weight, and the fields of `groups.rates.Rates`."""

    variables: int
    attracts: bool
    rate: float
    none: float
    keep: float
    gain: float
    loss: float


class CompleteEnergy(NamedTuple):
    """The weight of every pair."""

    weight: float
    spins: bool


def split(group: Complete, wish: Wish) -> ImplicitSplit:
    """Minibatch all pairs."""
    energy = group.energy_per_weight * abs(group.weight) * (group.variables - 1)
    return all_drawn(energy, energy, wish)


def prepare(group: Complete, how: ImplicitSplit, place: Place) -> CompleteData:
    """Prepare the data of draws."""
    return CompleteData(group.variables, group.weight > 0, *rates_of(how, place.logs))


def prepare_energy(group: Complete) -> CompleteEnergy:
    """Prepare the data of log-potentials."""
    return CompleteEnergy(group.weight, group.form == "ising")


def energy_cost(group: Complete) -> float:
    """Predict the nanoseconds of a log-potential: one read per variable."""
    return COSTS["read"] * float(group.variables)


@kernel
def complete_draw(data, chain, i, mode, size, touched):
    """Draw a Poisson number of the other variables."""
    draws = poisson(data.rate, data.none, chain.stream) if data.rate > 0.0 else 0
    for _ in range(draws):
        other = below(chain.stream, data.variables - 1)
        other += other >= i
        value = chain.x[other]
        touched = touch_kept(data, chain, i, value, data.attracts, mode, size, touched)
    chain.tally[DRAWS] += draws
    return touched


@kernel
def complete_copy(data, copies, number):
    """Return the data of one scaled copy."""
    rate, none = data.rate * copies.scales[number], math.exp(-data.rate * copies.scales[number])
    variables, attracts = data.variables, data.attracts
    return CompleteData(variables, attracts, rate, none, data.keep, data.gain, data.loss)


@kernel
def complete_energy(data, x, numbers):
    """Compute the log-potential from the counts of values."""
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


register_kind(Complete, Kind(split, prepare, prepare_energy, energy_cost))
register_draws(CompleteData, Draws(complete_draw, complete_copy))
register_energy(CompleteEnergy, complete_energy)
