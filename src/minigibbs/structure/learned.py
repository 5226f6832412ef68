"""The result of a structure learning algorithm, and the constraints on edges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Learned:
    """The structure that an algorithm found, in column numbers."""

    edges: list[tuple[int, int]]  # (parent, child), or (lower, higher) without directions
    strengths: list[float]  # per edge, in units of log-likelihood
    directed: bool
    score: float  # of the whole structure
    steps: int = 0
    ended: str = "converged"
    values: dict[str, Any] = field(default_factory=dict)  # parameters, if the algorithm fits them

    def matrix(self, columns: int) -> NDArray[np.bool_]:
        """Return the edges as a matrix [parent, child]."""
        edge = np.zeros((columns, columns), dtype=np.bool_)
        for parent, child in self.edges:
            edge[parent, child] = True
        return edge

    def parents(self, columns: int) -> list[tuple[int, ...]]:
        """Return the parents of each column, in order."""
        found: list[list[int]] = [[] for _ in range(columns)]
        for parent, child in self.edges:
            found[child].append(parent)
        return [tuple(sorted(some)) for some in found]


@dataclass(frozen=True, eq=False)
class Rules:
    """The allowed and the required edges: [from, to]."""

    allowed: NDArray[np.bool_]
    required: NDArray[np.bool_]
    max_parents: int | None = None

    @property
    def directions(self) -> NDArray[np.bool_]:
        """[from, to] the edges that can only be so directed."""
        found: NDArray[np.bool_] = self.required | (self.allowed & ~self.allowed.T)
        return found

    def undirected(self) -> Rules:
        """Return the constraints on undirected edges; one allowed direction is enough."""
        return Rules(self.allowed | self.allowed.T, self.required | self.required.T)
