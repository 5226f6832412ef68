"""The energy as an observable: at every record, independent of a run's budget for energies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.exact.queries import mean_log_potential
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.energy import energies, total_energy
from minigibbs.kernels.jit import kernel
from minigibbs.observables.base import Measure, Observable, Sums
from minigibbs.results.answer import Answer
from minigibbs.system.boundary import checked


@checked(SampleError)
@dataclass(frozen=True)
class Energy(Observable):
    """The energy of the state, `graph.energy(x)`: beta E in physics. Lower is more probable.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> energy = mg.observables.Energy()
    >>> run = mg.sample(graph, sweeps=4000, seed=1, observe={"e": energy}, progress=False)
    >>> abs(run.observables["e"].mean + 0.5 * 0.46212) < 0.03
    True
    """

    name = "energy"

    def bind(self, graph: FactorGraph) -> Measure:
        """For all graphs; on a GPU for those whose factors are stored."""

        def evaluate(states: NDArray[Any], out: NDArray[np.float64]) -> None:
            found = np.empty(len(states))
            energies(graph.rest.packed, states, found)
            found += graph.rest.offset
            for stencil in graph.stencils:
                found += stencil.energies(states)
            if graph.implicits:  # one by one: sums of several at a time may differ in the last bit
                found += [float(graph.implicit_energies(state[None])[0]) for state in states]
            out[:, 0] = 0.0 - found

        if graph.implicits or graph.stencils:
            return Measure(("",), evaluate)

        def from_sums(sums: NDArray[Any], out: NDArray[np.float64]) -> None:
            out[:] = 0.0 - (sums + graph.offset)

        of = Measure(("",), from_sums, energy_of_sum, (graph.offset,))
        return Measure(("",), evaluate, energy, (graph.packed, graph.offset), Sums(of))

    def expected(self, answer: Answer) -> float | None:
        """By the joint marginals of all factors."""
        return None if answer.graph is None else 0.0 - mean_log_potential(answer.graph)


@kernel
def energy(x, parameters, out):
    """The energy of one state."""
    out[0] = 0.0 - (total_energy(parameters[0], x) + parameters[1])


@kernel
def energy_of_sum(sums, parameters, out):
    """The energy, from the sum of the factors."""
    out[0] = 0.0 - (sums[0] + parameters[0])
