"""Shared functions of probabilistic libraries: tables of probabilities over named states."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError
from minigibbs.formats.pruning import restored
from minigibbs.formats.tables import exponentials
from minigibbs.formats.uai import factor_energies
from minigibbs.graph.domains import PrunedDomains
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.system.boundary import checked

_MOST_ENTRIES = 2**20  # maximum number of entries of a factor's table


@checked(GraphError)
class NamedStates(PrunedDomains):
    """Domains whose labels are all that a value may be called, pruned or not."""

    def value(self, variable: int, value: Any) -> int:
        """Return the index of a value from the name of its state; a pruned state is rejected."""
        if not isinstance(value, Hashable) or value not in self.labels[variable]:
            raise GraphError(self._unknown_state(variable, value))
        return self.labels[variable].index(value)

    def _unknown_state(self, variable: int, value: Any) -> str:
        """What an error says of a value that is the name of no state, or of a pruned one."""
        labels, every = self.labels[variable], self.full_values(variable)
        shown = ", ".join(map(repr, labels[:8])) + (", ..." if len(labels) > 8 else "")
        text = f"{self.describe(variable)}: expected the name of a state ({shown}), got {value!r}"
        if value in every:
            return f"{text}, which the factors give probability 0"
        number = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if number and 0 <= value < len(every):
            return f"{text}; state number {value} is called {every[value]!r}"
        return text


def tables(
    graph: FactorGraph, library: str
) -> Iterator[tuple[tuple[int, ...], NDArray[np.float64]]]:
    """Yield tables of exp(log-potential), one per set of variables that share factors."""
    found = {
        scope: _probabilities(e, scope, library) for scope, e in _energies(graph, library).items()
    }
    for variable in np.flatnonzero(graph.evidence != FREE).tolist():
        chosen = np.arange(graph.sizes[variable]) == graph.evidence[variable]
        found[(variable,)] = chosen * found.get((variable,), 1.0)
    for scope, table in found.items():
        yield scope, restored(table, scope, graph.domains)


def _energies(graph: FactorGraph, library: str) -> dict[tuple[int, ...], NDArray[np.float64]]:
    """Return the sum of all factors with the same variables; zeros for a variable without any."""
    if graph.implicits:
        raise GraphError(
            f"{graph.implicits[0].kind}: a {library} model lists every factor, but this group is "
            "implicit; convert graph.stored() if it is small"
        )
    total: dict[tuple[int, ...], NDArray[np.float64]] = {}
    for number, group in enumerate(graph.factors):
        entries = graph.sizes.astype(np.float64)[group.scope].prod(axis=1)
        if len(group) and entries.max() > _MOST_ENTRIES:
            raise GraphError(
                f"{group.where(int(entries.argmax()), number)}: a {library} factor is a table; "
                f"this one would have {entries.max():.3g} entries, more than {_MOST_ENTRIES:,}"
            )
        for row, energy in zip(group.scope, factor_energies(group, graph.sizes), strict=True):
            order = np.argsort(row)
            scope = tuple(row[order].tolist())
            total[scope] = total.get(scope, 0.0) + energy.transpose(order)
    covered = {variable for scope in total for variable in scope}
    for variable in sorted(set(range(len(graph))) - covered):
        total[(variable,)] = np.zeros(graph.sizes[variable])
    return total


def _probabilities(
    energy: NDArray[np.float64], scope: tuple[int, ...], library: str
) -> NDArray[np.float64]:
    try:
        return exponentials(energy)
    except OverflowError as error:
        raise GraphError(
            f"factors of variables {list(scope)}: a {library} factor cannot hold {error}"
        ) from None
