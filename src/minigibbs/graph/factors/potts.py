"""Potts factors: a weight if two variables are equal."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.domains import Domains
from minigibbs.graph.factors.base import Pairs, Weighted
from minigibbs.graph.factors.scope import read_scope
from minigibbs.graph.factors.ties import given_ties, read_tie
from minigibbs.system.boundary import checked


@checked(GraphError)
class Potts(Weighted):
    """Factors phi = weight * [x_i == x_j] over pairs of variables.

    Parameters
    ----------
    i : array-like
        The first variable of each factor, by number or name.
    j : array-like
        The second variable of each factor, an array of the same length.
    weight : array-like
        One log-potential per factor, or one for all. Negative weights repel.
    name : str, optional
        Name of the weights, to learn them with `mg.learn`.
    tied : array-like, optional
        A number per factor, or one for all. Factors with the same number share a weight, which is
        then given once per number.
    fixed : array-like, default False
        Weights that are not learned.
    scale : array-like, optional
        A multiplier of the weight, per factor.

    Examples
    --------
    >>> import minigibbs as mg
    >>> ring = mg.Potts([0, 1, 2], [1, 2, 0], 0.8)
    >>> mg.FactorGraph([3, 3, 3], [ring]).log_potential([2, 2, 1])
    0.8
    """

    kind = "potts"
    pairs = True
    weight: NDArray[np.float64]

    def __init__(
        self,
        i: ArrayLike,
        j: ArrayLike,
        weight: ArrayLike,
        *,
        name: str | None = None,
        tied: ArrayLike | None = None,
        fixed: ArrayLike = False,
        scale: ArrayLike | None = None,
    ) -> None:
        scope = read_scope(self.kind, [i, j], arity=2)
        vars(self).update(_scope=scope)
        tie = read_tie(self.kind, len(scope), name, tied, fixed, scale)
        self._set_weights(weight, tie, len(scope))

    def check_domains(self, domains: Domains, group: int) -> None:
        """Accept any two domains: values are compared by index."""

    def lower(self, sizes: NDArray[np.int32], evidence: NDArray[np.int32]) -> Pairs:
        """Convert to pairs without changes."""
        return Pairs(self._scope, self.weight)

    def arrays(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        scope = {"i": self._scope[:, 0], "j": self._scope[:, 1]}
        return {**scope, "weight": self._numbers, **given_ties(self.tie)}
