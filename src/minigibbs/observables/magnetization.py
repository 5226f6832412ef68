"""Magnetization of spins, and its powers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import entry, kernel, literal
from minigibbs.observables.base import Measure, Observable, Sums, all_with, need_spins, plain
from minigibbs.results.answer import Answer
from minigibbs.system.boundary import checked

_HIGHEST = 1000  # largest power, computed by repeated multiplication at every record


@checked(SampleError)
@dataclass(frozen=True)
class Magnetization(Observable):
    """Mean of the spins, from -1 to 1: value 0 is spin -1, value 1 is spin +1.

    Parameters
    ----------
    power : int, default 1
        Exponent of the mean.
    absolute : bool, default False
        Whether to use the absolute value.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=8, beta=0.3)
    >>> m2 = mg.observables.Magnetization(power=2)
    >>> run = mg.sample(graph, sweeps=500, seed=1, observe={"m2": m2}, progress=False)
    >>> 0 < run.observables["m2"].mean < 0.3
    True
    """

    name = "magnetization"
    power: int = 1
    absolute: bool = False

    def __post_init__(self) -> None:
        whole = isinstance(self.power, int | np.integer) and not isinstance(self.power, bool)
        if not whole or not 1 <= self.power <= _HIGHEST:
            raise SampleError(f"magnetization: power must be 1 to {_HIGHEST}, got {self.power!r}")

    def bind(self, graph: FactorGraph) -> Measure:
        """Prepare the observable for a graph of spins."""
        need_spins(graph, "magnetization", "use mg.observables.PottsOrder() or Count()")
        parameters = (int(self.power), bool(self.absolute), len(graph))
        of = plain(powers_of_means, power_of_mean, parameters, ("",))
        sums = Sums(of, lambda: all_with([1], len(graph)), ones=True)
        return plain(magnetizations, magnetization, parameters, ("",), sums)

    def expected(self, answer: Answer) -> float | None:
        """Compute the mean of the spins from their marginals; powers must be measured."""
        if self.power != 1 or self.absolute or (answer.domains.sizes != 2).any():
            return None
        return float(2.0 * answer.shares.given[1::2].mean() - 1.0)


@kernel
def magnetization(x, parameters, out):
    """Compute the mean spin of a state, to a power."""
    up = 0
    for i in range(len(x)):
        up += np.int64(x[i])
    _power(up, parameters, out)


@literal
def _power(up, parameters, out):
    """Compute a power of the mean spin from the number of spins 1, by one division."""
    power, absolute, spins = parameters
    mean = (2 * up - spins) / spins
    if absolute and mean < 0.0:
        mean = -mean
    value = 1.0
    for _ in range(power):
        value *= mean
    out[0] = value


@literal
def power_of_mean(sums, parameters, out):
    """Compute the power from the number of spins 1."""
    _power(np.int64(sums[0]), parameters, out)


@entry
def magnetizations(states, parameters, out):
    """Compute the power for each row of states."""
    for k in range(len(states)):
        magnetization(states[k], parameters, out[k])


@entry
def powers_of_means(sums, parameters, out):
    """Compute the power for each row of sums."""
    for k in range(len(sums)):
        power_of_mean(sums[k], parameters, out[k])
