"""What an algorithm returns: edges with strengths, and parents where the edges have a direction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Learned:
    """The structure that an algorithm found, by numbers of columns."""

    edges: list[tuple[int, int]]  # (parent, child), or (lower, higher) without directions
    strengths: list[float]  # per edge, in natural units of log-likelihood
    directed: bool
    score: float  # of the whole structure
    steps: int = 0
    ended: str = "converged"
    values: dict[str, Any] = field(default_factory=dict)  # parameters, where they were fitted

    def matrix(self, columns: int) -> NDArray[np.bool_]:
        """The edges as [parent, child]."""
        edge = np.zeros((columns, columns), dtype=np.bool_)
        for parent, child in self.edges:
            edge[parent, child] = True
        return edge

    def parents(self, columns: int) -> list[tuple[int, ...]]:
        """The parents of each column, in order."""
        found: list[list[int]] = [[] for _ in range(columns)]
        for parent, child in self.edges:
            found[child].append(parent)
        return [tuple(sorted(some)) for some in found]


@dataclass(frozen=True, eq=False)
class Rules:
    """Which edges there may be, and which there must be: [from, to]."""

    allowed: NDArray[np.bool_]
    required: NDArray[np.bool_]
    max_parents: int | None = None

    @property
    def directions(self) -> NDArray[np.bool_]:
        """[from, to] the edges that can only be so directed."""
        found: NDArray[np.bool_] = self.required | (self.allowed & ~self.allowed.T)
        return found

    def undirected(self) -> Rules:
        """The rules for edges without direction: a direction that is allowed is enough."""
        return Rules(self.allowed | self.allowed.T, self.required | self.required.T)
