"""Implicit groups: every pair of variables is a factor, and none is explicit.

A fully connected model of nine million variables has 4e13 factors. Such a group stores the data
that define them (a table of displacements, a number, two thin matrices), and the default sampler
draws from it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.domains import Domains
from minigibbs.graph.factors.base import Factors
from minigibbs.graph.factors.ising import Ising
from minigibbs.graph.factors.potts import Potts
from minigibbs.system import memory
from minigibbs.system.boundary import checked

PAIR_KINDS = {"potts": Potts, "ising": Ising}
CHUNK = 2**22  # numbers per batch of energies
_STORED_BYTES = 64  # bytes of a pair while it is expanded, stored and packed


@checked(GraphError)
class Implicit(Factors):
    """Every pair of the graph's variables, weighted by a rule.

    `form` is "potts" (phi = weight * [x_i == x_j]) or "ising" (phi = weight * s_i * s_j).
    """

    form: str
    variables: int

    @property
    def scope(self) -> NDArray[np.int32]:
        """Raise an error: implicit groups have no scopes."""
        raise GraphError(f"a {self.kind} group is implicit; use its stored() form")

    def __len__(self) -> int:
        return self.variables * (self.variables - 1) // 2

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self):,} factors, implicit>"

    @property
    def energy_per_weight(self) -> float:
        """The paper's M divided by |weight|: an Ising factor ranges from -weight to +weight."""
        return 2.0 if self.form == "ising" else 1.0

    @property
    def is_counted(self) -> bool:
        """Whether `local_weights` and `degrees` are exact, and not upper bounds."""
        return True

    def energy_cost(self, values: int) -> float:
        """Predict nanoseconds per energy, for a largest domain of `values` values."""
        return 10.0 * self.variables * self._vectors(values)

    def _vectors(self, values: int) -> int:
        """Return the largest number of vectors that `agreement` makes of a state."""
        return 1 if self.form == "ising" else min(values, self.variables)

    @property
    def counting(self) -> int:
        """Approximate number of operations of `local_weights` and `degrees`."""
        return self.variables

    @abstractmethod
    def pair_weights(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[np.float64]:
        """Return the weights of some pairs."""

    @abstractmethod
    def local_weights(self) -> NDArray[np.float64]:
        """Sum |weight| over the pairs of each variable."""

    @abstractmethod
    def degrees(self) -> NDArray[np.int64]:
        """Count the pairs of each variable with nonzero weight."""

    def energies(self, states: NDArray[Any]) -> NDArray[np.float64]:
        """Sum the factors in each row of states, in batches of rows to limit memory."""
        step = max(1, CHUNK // self.variables)
        pieces = [states[first : first + step] for first in range(0, len(states), step)]
        return np.concatenate([np.empty(0), *(self._energies(piece) for piece in pieces)])

    @abstractmethod
    def _energies(self, states: NDArray[Any]) -> NDArray[np.float64]:
        """Sum the factors in each of a few rows of states."""

    def stored(self) -> Factors:
        """Convert to explicit factors, for small graphs."""
        memory.require(
            len(self) * _STORED_BYTES, f"storing {len(self):,} pairs", "keep them implicit"
        )
        i, j = np.triu_indices(self.variables, 1)
        return PAIR_KINDS[self.form](i, j, self.pair_weights(i, j))

    def resolve(self, domains: Domains, group: int) -> Implicit:
        """Return the group itself, which must have as many variables as the graph."""
        if self.variables != len(domains):
            raise GraphError(
                f"{self.kind} group {group} joins {self.variables:,} variables, but the graph has "
                f"{len(domains):,}"
            )
        return self

    def check_domains(self, domains: Domains, group: int) -> None:
        """Raise an error if spins do not have two values."""
        if self.form == "ising" and (domains.sizes != 2).any():
            variable = int(np.flatnonzero(domains.sizes != 2)[0])
            raise GraphError(
                f"{self.kind} group {group}: ising factors need variables with 2 values, but "
                f"{domains.describe(variable)} has {domains.sizes[variable]}"
            )

    def where(self, factor: int, group: int | None = None) -> str:
        """Return the group's description in error messages; its factors have no indices."""
        return f"{self.kind} group" + ("" if group is None else f" {group}")

    def lower(self, sizes: NDArray[np.int32], evidence: NDArray[np.int32]) -> Implicit:  # type: ignore[override]
        """Return the group itself; samplers that can draw from it read `graph.implicits`."""
        return self


def read_form(group: str, form: str) -> str:
    """Check the form of pairs."""
    if form not in PAIR_KINDS:
        raise GraphError(f"{group}: kind must be potts or ising, got {form!r}")
    return form


def value_counts(states: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return (row, value, count) of the values in each row; the cost is independent of domains."""
    ordered = np.sort(states, axis=1, kind="stable")  # this is a radix sort for small types
    new = np.ones(ordered.shape, dtype=np.bool_)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    start = np.flatnonzero(new)
    count = np.diff(start, append=ordered.size)
    return start // states.shape[1], ordered.ravel()[start], count


def agreement(
    states: NDArray[Any], form: str, most: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Yield vectors v, at most `most` at a time, and the row of states of each.

    The factor of a pair is weight * v_i * v_j, summed over the vectors of its row: the spins, or an
    indicator for each value that more than one variable has.
    """
    if form == "ising":
        for first in range(0, len(states), most):
            piece = states[first : first + most]
            yield first + np.arange(len(piece)), 2.0 * piece - 1.0
        return
    row, value, count = value_counts(states)
    row, value = row[count > 1], value[count > 1]
    for first in range(0, len(row), most):
        some = slice(first, first + most)
        yield row[some], (states[row[some]] == value[some, None]).astype(np.float64)
