"""Ising factors: a coupling between two spins."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.domains import Domains
from minigibbs.graph.factors.base import Pairs, Weighted, require_two_valued
from minigibbs.graph.factors.scope import read_scope
from minigibbs.graph.factors.ties import given_ties, read_tie
from minigibbs.system.boundary import checked


@checked(GraphError)
class Ising(Weighted):
    """Factors phi = coupling * s_i * s_j, where value 0 is spin -1 and value 1 is spin +1.

    Parameters
    ----------
    i : array-like
        The first variable of each factor, by number or name.
    j : array-like
        The second variable of each factor, an array of the same length.
    coupling : array-like
        One coupling per factor, or one for all. Positive couplings align.
    name : str, optional
        Name of the couplings, to learn them with `mg.learn`.
    tied : array-like, optional
        A number per factor, or one for all. Factors with the same number share a coupling, which is
        then given once per number.
    fixed : array-like, default False
        Couplings that are not learned.
    scale : array-like, optional
        A multiplier of the coupling, per factor.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> graph.log_potential([[0, 0], [0, 1]])
    array([ 0.5, -0.5])
    >>> named = mg.Ising(["rain"], ["wet"], 0.5)
    >>> mg.FactorGraph([2, 2], [named], names=["rain", "wet"]).log_potential([1, 1])
    0.5
    """

    kind = "ising"
    pairs = True
    weight_name = "coupling"
    lowered = (2.0, -1.0)
    coupling: NDArray[np.float64]

    def __init__(
        self,
        i: ArrayLike,
        j: ArrayLike,
        coupling: ArrayLike,
        *,
        name: str | None = None,
        tied: ArrayLike | None = None,
        fixed: ArrayLike = False,
        scale: ArrayLike | None = None,
    ) -> None:
        scope = read_scope(self.kind, [i, j], arity=2)
        vars(self).update(_scope=scope)
        tie = read_tie(self.kind, len(scope), name, tied, fixed, scale)
        self._set_weights(coupling, tie, len(scope))

    def check_domains(self, domains: Domains, group: int) -> None:
        """Raise an error if spins do not have two values."""
        require_two_valued(self, domains, group)

    def lower(self, sizes: NDArray[np.int32], evidence: NDArray[np.int32]) -> Pairs:
        """Convert to pairs by s_i * s_j = 2 * [x_i == x_j] - 1."""
        return Pairs(self._scope, 2.0 * self.coupling, offset=-float(self.coupling.sum()))

    def arrays(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        scope = {"i": self._scope[:, 0], "j": self._scope[:, 1]}
        return {**scope, "coupling": self._numbers, **given_ties(self.tie)}
