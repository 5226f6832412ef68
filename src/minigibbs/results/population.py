"""Result of population annealing: temperatures, families, and the final population."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.system.boundary import checked

FEW = 100.0  # least population size without a warning, in mean square family sizes


@checked(SampleError, init=False)
@dataclass(frozen=True, eq=False)
class Population:
    """The temperatures and the final replicas of population annealing: `answer.population`.

    Inverse temperatures are relative to the model: 0 is the uniform distribution, 1 the model.

    Attributes
    ----------
    size : int
        Replicas per population.
    betas : ndarray
        [temperature] inverse temperatures, from 0 to 1.
    log_z : ndarray
        [temperature] logarithm of the partition function.
    log_z_error : ndarray
        [temperature] its standard error.
    energy : ndarray
        [temperature] mean energy.
    energy_error : ndarray
        [temperature] its standard error.
    families : ndarray of int
        [temperature] number of initial replicas that have descendants, in all populations.
    family_size : ndarray
        [temperature] mean square family size rho_t (Wang, Machta and Katzgraber 2015), averaged
        over populations. A population has about size / rho_t independent replicas.
    states : ndarray of int
        [replica, variable] final replicas of all populations.
    weights : ndarray
        [replica] weights of the replicas. They sum to 1, and are equal within a population.
    family : ndarray of int
        [replica] the initial replica from which each one descends.

    Examples
    --------
    >>> import minigibbs as mg
    >>> glass = mg.models.spin_glass(side=3, dimensions=2, seed=1)
    >>> annealing = mg.PopulationAnnealing(population=1000)
    >>> answer = mg.infer(glass, exact=False, sampler=annealing, seed=1, progress=False)
    >>> answer.population.states.shape, answer.population.betas[[0, -1]].tolist()
    ((4000, 9), [0.0, 1.0])
    """

    size: int
    betas: NDArray[np.float64]
    log_z: NDArray[np.float64]
    log_z_error: NDArray[np.float64]
    energy: NDArray[np.float64]
    energy_error: NDArray[np.float64]
    families: NDArray[np.int64]
    family_size: NDArray[np.float64]
    states: NDArray[Any] = field(repr=False)
    weights: NDArray[np.float64] = field(repr=False)
    family: NDArray[np.int64] = field(repr=False)

    def __repr__(self) -> str:
        return (
            f"<Population: {len(self.states):,} replicas, {len(self.betas)} temperatures, "
            f"{self.families[-1]:,} families>"
        )

    @property
    def warning(self) -> str | None:
        """Reason why the population is too small; None if it is large enough."""
        wanted = FEW * float(self.family_size[-1])
        if self.size >= wanted:
            return None
        alive, replicas = int(self.families[-1]), len(self.states)
        what = "few families survive" if 2 * alive < replicas else "the population is small"
        return (
            f"{what}: {alive:,} of {replicas:,} replicas, mean "
            f"square family size {self.family_size[-1]:,.1f}; errors may be too small, use a "
            f"population of at least {wanted:,.0f}, or more sweeps per temperature"
        )
