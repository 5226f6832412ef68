"""Potts factors: a weight where two variables agree."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.graph.domains import Domains
from minigibbs.graph.factors.base import Factors, Pairs, read_weight
from minigibbs.graph.factors.scope import read_scope


class Potts(Factors):
    """Factors phi = weight * [x_i == x_j] over pairs of variables.

    Parameters
    ----------
    i, j
        The two variables of each factor, by number or name, as arrays of one length.
    weight
        One log-potential per factor, or one for all; negative weights repel.

    Examples
    --------
    >>> import minigibbs as mg
    >>> ring = mg.Potts([0, 1, 2], [1, 2, 0], 0.8)
    >>> mg.FactorGraph([3, 3, 3], [ring]).energy([2, 2, 1])
    0.8
    """

    kind = "potts"
    pairs = True
    weight: NDArray[np.float64]

    def __init__(self, i: ArrayLike, j: ArrayLike, weight: ArrayLike) -> None:
        scope = read_scope(self.kind, [i, j], arity=2)
        vars(self).update(_scope=scope, weight=read_weight(self.kind, weight, len(scope)))

    def check_domains(self, domains: Domains, group: int) -> None:
        """Any two domains fit: values are compared by number."""

    def lower(self, sizes: NDArray[np.int32], evidence: NDArray[np.int32]) -> Pairs:
        """Lower to pairs as they are."""
        return Pairs(self._scope, self.weight)

    def arrays(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"i": self._scope[:, 0], "j": self._scope[:, 1], "weight": self.weight}
