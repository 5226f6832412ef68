"""Couplings of low rank: Hopfield networks and other thin products, implicit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.factors.base import read_energy
from minigibbs.graph.factors.implicit.base import CHUNK, Implicit, agreement, read_form


class LowRank(Implicit):
    """Pairs weighted by J_ij = sum over k of a_ik * b_jk, made symmetric.

    The weight of a pair is (a_i . b_j + a_j . b_i) / 2, which is J_ij itself where J is symmetric.
    Sampling and energies take a time that is linear in the number of variables n; `graph.stats` and
    `graph.local_energies` look at all n^2 pairs, half a minute for n = 30,000.

    Parameters
    ----------
    a, b
        Matrices of one row per variable; `b` is `a` by default. Patterns xi of a Hopfield
        network are `LowRank(xi.T / sqrt(n))`.
    kind
        "ising" or "potts".

    Examples
    --------
    >>> import minigibbs as mg, numpy as np
    >>> patterns = np.sign(np.random.default_rng(0).normal(size=(3, 100)))
    >>> graph = mg.FactorGraph([2] * 100, [mg.LowRank(patterns.T / 10.0)])
    >>> graph.stats.variables
    100
    """

    kind = "low-rank"
    a: NDArray[np.float64]
    b: NDArray[np.float64]

    def __init__(self, a: ArrayLike, b: ArrayLike | None = None, kind: str = "ising") -> None:
        left = read_energy(self.kind, a, None, 1)
        right = left if b is None else read_energy(self.kind, b, None, 1)
        if left.ndim != 2 or left.shape != right.shape or len(left) < 2:
            raise GraphError(
                "low-rank: a and b must have one row per variable and the same shape, got "
                f"{left.shape} and {right.shape}"
            )
        form = read_form("low-rank", kind)
        vars(self).update(a=left, b=right, variables=len(left), form=form)

    def bounds(self) -> NDArray[np.float64]:
        """C with |weight_ij| <= c_i * c_j, by Cauchy and Schwarz."""
        bound: NDArray[np.float64] = np.maximum(
            np.linalg.norm(self.a, axis=1), np.linalg.norm(self.b, axis=1)
        )
        return bound

    def pair_weights(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[np.float64]:
        """The symmetric part of a_i . b_j."""
        weights: NDArray[np.float64] = 0.5 * (
            np.einsum("pk,pk->p", self.a[i], self.b[j])
            + np.einsum("pk,pk->p", self.a[j], self.b[i])
        )
        return weights

    @property
    def counting(self) -> int:
        """All pairs: nothing shorter is known."""
        return self.variables**2

    def local_weights(self) -> NDArray[np.float64]:
        """Row by row."""
        return self._by_row(lambda row: np.abs(row).sum())

    def degrees(self) -> NDArray[np.int64]:
        """Row by row."""
        return self._by_row(np.count_nonzero).astype(np.int64)

    def _by_row(self, reduce: Any) -> NDArray[Any]:
        result = np.empty(self.variables)
        for i in range(self.variables):
            row = 0.5 * (self.b @ self.a[i] + self.a @ self.b[i])
            row[i] = 0.0
            result[i] = reduce(row)
        return result

    def _energies(self, states: NDArray[Any]) -> NDArray[np.float64]:
        """Through the sums of a and b over each value."""
        own, total = np.einsum("ik,ik->i", self.a, self.b), np.zeros(len(states))
        for row, v in agreement(states, self.form, max(1, CHUNK // self.variables)):
            squares = np.einsum("rk,rk->r", v @ self.a, v @ self.b) - v**2 @ own
            total += np.bincount(row, squares, minlength=len(states))
        return 0.5 * total

    def arrays(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"a": self.a, "b": self.b, "kind": self.form}
