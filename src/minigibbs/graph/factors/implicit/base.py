"""Dense groups that are never written out: every pair of variables is a factor.

A fully connected model of nine million variables has 4e13 factors. Such a group keeps what fixes
them all (a table of displacements, a number, two thin matrices), and the default sampler draws from
it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.domains import Domains
from minigibbs.graph.factors.base import Factors
from minigibbs.graph.factors.ising import Ising
from minigibbs.graph.factors.potts import Potts
from minigibbs.system import memory

PAIR_KINDS = {"potts": Potts, "ising": Ising}
_STORED_BYTES = 64  # a pair while it is expanded, stored and packed


class Implicit(Factors):
    """Every pair of the graph's variables, weighted by a rule.

    `form` is "potts" (phi = weight * [x_i == x_j]) or "ising" (phi = weight * s_i * s_j).
    """

    form: str
    variables: int

    @property
    def scope(self) -> NDArray[np.int32]:
        """There is none: the scopes are all pairs."""
        raise GraphError(f"a {self.kind} group is never stored; use its stored() form")

    def __len__(self) -> int:
        return self.variables * (self.variables - 1) // 2

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self):,} factors, implicit>"

    @property
    def energy_per_weight(self) -> float:
        """The paper's M over |weight|: an Ising factor goes from -weight to +weight."""
        return 2.0 if self.form == "ising" else 1.0

    @property
    def counting(self) -> int:
        """About how many steps `local_weights` and `degrees` take."""
        return self.variables

    @abstractmethod
    def pair_weights(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[np.float64]:
        """The weights of some pairs."""

    @abstractmethod
    def local_weights(self) -> NDArray[np.float64]:
        """For each variable the sum of |weight| over its pairs."""

    @abstractmethod
    def degrees(self) -> NDArray[np.int64]:
        """For each variable how many of its pairs have a weight other than 0."""

    @abstractmethod
    def energy(self, x: NDArray[Any]) -> float:
        """The sum of the factors in a state."""

    def stored(self) -> Factors:
        """The same factors written out, for small graphs."""
        memory.require(
            len(self) * _STORED_BYTES, f"storing {len(self):,} pairs", "keep them implicit"
        )
        i, j = np.triu_indices(self.variables, 1)
        return PAIR_KINDS[self.form](i, j, self.pair_weights(i, j))

    def resolve(self, domains: Domains, group: int) -> Implicit:
        """Return the group itself, which must join all variables of the graph."""
        if self.variables != len(domains):
            raise GraphError(
                f"{self.kind} group {group} joins {self.variables:,} variables, but the graph has "
                f"{len(domains):,}"
            )
        return self

    def check_domains(self, domains: Domains, group: int) -> None:
        """Spins have two values."""
        if self.form == "ising" and (domains.sizes != 2).any():
            variable = int(np.flatnonzero(domains.sizes != 2)[0])
            raise GraphError(
                f"{self.kind} group {group}: ising factors need variables with 2 values, but "
                f"{domains.describe(variable)} has {domains.sizes[variable]}"
            )

    def lower(self, sizes: NDArray[np.int32], evidence: NDArray[np.int32]) -> Implicit:  # type: ignore[override]
        """Stay as it is: samplers that can draw from it find it in `graph.implicit`."""
        return self


def read_form(group: str, form: str) -> str:
    """Check the kind of pair."""
    if form not in PAIR_KINDS:
        raise GraphError(f"{group}: kind must be potts or ising, got {form!r}")
    return form


def agreement(x: NDArray[Any], form: str) -> list[NDArray[np.float64]]:
    """Vectors v with weight * sum over v of v_i * v_j = the pair's factor: spins, or indicators."""
    if form == "ising":
        return [2.0 * x - 1.0]
    return [(x == value).astype(np.float64) for value in np.unique(x)]
