"""Implicit groups with one weight for all pairs: the Curie-Weiss model and its Potts form."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.factors.implicit.base import Implicit, read_form, value_counts
from minigibbs.system.boundary import checked


@checked(GraphError)
class Complete(Implicit):
    """The same weight on every pair of n variables.

    Parameters
    ----------
    n : int
        Number of variables of the graph.
    weight : float
        The log-potential of each pair.
    kind : str, default "ising"
        "ising" (phi = weight * s_i * s_j) or "potts" (phi = weight * [x_i == x_j]).

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2] * 1000, [mg.Complete(1000, 0.8 / 1000)])
    >>> graph.stats.max_degree
    999
    """

    kind = "complete"

    def __init__(self, n: int, weight: float, kind: str = "ising") -> None:
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 2:
            raise GraphError(f"complete: n must be an integer of at least 2, got {n!r}")
        if not isinstance(weight, int | float | np.number) or not abs(weight) <= 1e100:
            raise GraphError(f"complete: the weight must be a finite number, got {weight!r}")
        vars(self).update(variables=int(n), weight=float(weight), form=read_form("complete", kind))

    weight: float

    def pair_weights(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[np.float64]:
        """Return the common weight."""
        return np.full(len(i), self.weight)

    def local_weights(self) -> NDArray[np.float64]:
        """Return the sum of |weight|, equal for all variables."""
        return np.full(self.variables, abs(self.weight) * (self.variables - 1))

    def degrees(self) -> NDArray[np.int64]:
        """Return the number of other variables."""
        return np.full(self.variables, (self.variables - 1) if self.weight else 0)

    def energy_cost(self, values: int) -> float:
        """Predict nanoseconds: spins are counted by a sum, other values by sorting."""
        return (0.2 if self.form == "ising" else 15.0) * self.variables

    def _energies(self, states: NDArray[Any]) -> NDArray[np.float64]:
        """Compute energies from the number of variables with each value."""
        n = float(self.variables)
        if self.form == "ising":
            spin = 2.0 * np.count_nonzero(states, axis=1).astype(np.float64) - n
            squares = spin**2 - n
        else:
            row, _, count = value_counts(states)
            squares = np.bincount(row, count * (count - 1.0), minlength=len(states))
        energies: NDArray[np.float64] = 0.5 * self.weight * squares
        return energies

    def arrays(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"n": self.variables, "weight": self.weight, "kind": self.form}
