"""Couplings of low rank: Hopfield networks and other thin products, implicit."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.factors.base import read_log_potential
from minigibbs.graph.factors.implicit.base import CHUNK, Implicit, agreement, read_form
from minigibbs.system.boundary import checked

_MOST_COUNTED = 10**9  # pairs that can be evaluated one by one in a few seconds


@checked(GraphError)
class LowRank(Implicit):
    """Pairs weighted by J_ij = sum over k of a_ik * b_jk, made symmetric.

    The weight of a pair is (a_i . b_j + a_j . b_i) / 2, which is J_ij if J is symmetric. An update
    of the default sampler takes O(rank) time for spins (times the number of values for Potts
    factors), because chains maintain running sums. Energies take time linear in the number of
    variables n. `graph.stats` and `graph.local_energies` evaluate all n^2 pairs up to n = 30,000;
    for larger n they are upper bounds.

    Parameters
    ----------
    a : array-like
        One row per variable, one column per rank. Patterns xi of a Hopfield network are
        `LowRank(xi.T / sqrt(n))`.
    b : array-like, optional
        A second matrix of the same shape. By default `a`.
    kind : str, default "ising"
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
        left = read_log_potential(self.kind, a, None, 1)
        right = left if b is None else read_log_potential(self.kind, b, None, 1)
        if right.shape == left.shape and (right == left).all():
            right = left  # so that equal matrices from a file are shared
        if left.ndim != 2 or left.shape != right.shape or len(left) < 2:
            raise GraphError(
                "low-rank: a and b must have one row per variable and the same shape, got "
                f"{left.shape} and {right.shape}"
            )
        form = read_form("low-rank", kind)
        vars(self).update(a=left, b=right, variables=len(left), form=form)

    def bounds(self) -> NDArray[np.float64]:
        """Return c with |weight_ij| <= c_i * c_j, by the Cauchy-Schwarz inequality."""
        bound: NDArray[np.float64] = np.maximum(
            np.linalg.norm(self.a, axis=1), np.linalg.norm(self.b, axis=1)
        )
        return bound

    def reach(self) -> NDArray[np.float64]:
        """Bound the sum of |weight| over the pairs of each variable, in O(n * rank)."""
        bound, (a, b) = self.bounds(), (np.abs(self.a), np.abs(self.b))
        columns = 0.5 * (a @ b.sum(axis=0) + b @ a.sum(axis=0))
        reach: NDArray[np.float64] = np.minimum(columns, bound * bound.sum())
        return reach

    @property
    def thin(self) -> tuple[int, int]:
        """The rank, and the number of different matrices."""
        return self.a.shape[1], 1 if self.b is self.a else 2

    def pair_weights(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[np.float64]:
        """Compute the symmetric part of a_i . b_j."""
        weights: NDArray[np.float64] = 0.5 * (
            np.einsum("pk,pk->p", self.a[i], self.b[j])
            + np.einsum("pk,pk->p", self.a[j], self.b[i])
        )
        return weights

    @property
    def counting(self) -> int:
        """The number of ordered pairs, all of which are evaluated."""
        return self.variables**2

    @property
    def is_counted(self) -> bool:
        """Whether the pairs are few enough to be evaluated."""
        return self.counting <= _MOST_COUNTED

    def local_weights(self) -> NDArray[np.float64]:
        """Compute sums by row, or the bound `reach` for very many rows."""
        return self._rows[0]

    def degrees(self) -> NDArray[np.int64]:
        """Count by row; for very many rows assume that nonzero rows have pairs with all others."""
        return self._rows[1]

    @cached_property
    def _rows(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        n = self.variables
        if not self.is_counted:
            return self.reach(), np.where(self.bounds() > 0.0, n - 1, 0).astype(np.int64)
        local, degrees = np.empty(n), np.empty(n, dtype=np.int64)
        step = max(1, CHUNK // n)
        for first in range(0, n, step):
            some = slice(first, first + step)
            weights = self.a[some] @ self.b.T
            weights += self.b[some] @ self.a.T
            weights[np.arange(len(weights)), np.arange(first, first + len(weights))] = 0.0
            degrees[some] = np.count_nonzero(weights, axis=1)
            local[some] = 0.5 * np.abs(weights, out=weights).sum(axis=1)
        return local, degrees

    def energy_cost(self, values: int) -> float:
        """Predict nanoseconds for the sums of the matrices over each value."""
        return (5.0 + 2.0 * float(self.a.shape[1])) * self.variables * self._vectors(values)

    def _energies(self, states: NDArray[Any]) -> NDArray[np.float64]:
        """Compute energies from the sums of a and b over each value."""
        own, total = np.einsum("ik,ik->i", self.a, self.b), np.zeros(len(states))
        for row, v in agreement(states, self.form, max(1, CHUNK // self.variables)):
            squares = np.einsum("rk,rk->r", v @ self.a, v @ self.b) - v**2 @ own
            total += np.bincount(row, squares, minlength=len(states))
        return 0.5 * total

    def arrays(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"a": self.a, "b": self.b, "kind": self.form}
