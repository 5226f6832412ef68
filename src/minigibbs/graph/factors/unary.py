"""Unary factors: a log-potential for each value of a variable."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.domains import Domains
from minigibbs.graph.factors.base import (
    FREE,
    Factors,
    General,
    finite_range,
    log_probabilities,
    read_energy,
)
from minigibbs.graph.factors.scope import read_scope
from minigibbs.kernels.layout import TABLE


class Unary(Factors):
    """Factors phi = energy[x_v] over single variables.

    Parameters
    ----------
    var
        The variable of each factor, by number or name.
    energy
        One row of log-potentials per factor, a column per value; or one row for all. An energy
        of -inf forbids a value.
    floor
        Energies below it, -inf included, are raised to it: that is another model.

    Examples
    --------
    >>> import minigibbs as mg
    >>> fields = mg.Unary([0, 1], [[0.0, 1.0], [0.5, 0.0]])
    >>> mg.FactorGraph([2, 2], [fields]).energy([1, 0])
    1.5
    >>> named = mg.Unary(["wet"], [0.0, 1.0])
    >>> mg.FactorGraph([2, 2], [named], names=["rain", "wet"]).energy([0, 1])
    1.0
    """

    kind = "unary"
    energy: NDArray[np.float64]

    def __init__(self, var: ArrayLike, energy: ArrayLike, floor: float | None = None) -> None:
        scope = read_scope(self.kind, [var], arity=1)
        array = read_energy(self.kind, energy, floor, arity=1)
        if array.ndim == 1:
            array = np.broadcast_to(array, (len(scope), len(array)))
        if array.ndim != 2 or len(array) != len(scope):
            raise GraphError(
                f"unary: expected energies of shape ({len(scope)}, values), got {array.shape}"
            )
        vars(self).update(_scope=scope, energy=array)

    @classmethod
    def from_probabilities(
        cls, var: ArrayLike, probability: ArrayLike, floor: float | None = None
    ) -> Unary:
        """Give weights exp(phi) in place of energies; they need not sum to 1."""
        return cls(var, log_probabilities(cls.kind, probability, floor, arity=1))

    def check_domains(self, domains: Domains, group: int) -> None:
        """Each variable has as many values as the rows have columns."""
        wrong = domains.sizes[self._scope[:, 0]] != self.energy.shape[1]
        if wrong.any():
            factor = int(np.flatnonzero(wrong)[0])
            variable = int(self._scope[factor, 0])
            raise GraphError(
                f"{self.where(factor, group)}: expected {domains.sizes[variable]} energies, one "
                f"per value of {domains.describe(variable)}, got {self.energy.shape[1]}"
            )

    def lower(self, sizes: NDArray[np.int32], evidence: NDArray[np.int32]) -> General:
        """Lower to tables of arity 1."""
        count, values = self.energy.shape
        low, high, hard = finite_range(self.energy)
        clamped = np.flatnonzero(evidence[self._scope[:, 0]] != FREE)
        high[clamped] = low[clamped]
        hard[clamped] = self.energy[clamped, evidence[self._scope[clamped, 0]]] == -np.inf
        span = np.where(hard, np.inf, high - low)
        return General(
            form=TABLE,
            scope=self._scope,
            key=np.ones((count, 1), dtype=np.int32),
            weight=np.ones(count),
            low=low,
            span=span,
            table=self.energy.ravel(),
            table_start=np.arange(count, dtype=np.int64) * values,
        )

    def arrays(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"var": self._scope[:, 0], "energy": self.energy}
