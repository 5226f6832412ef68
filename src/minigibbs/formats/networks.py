"""Bayesian networks: detection of the conditional probabilities among a graph's factors."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import FormatError
from minigibbs.formats.pruning import restored
from minigibbs.formats.tables import exponentials
from minigibbs.formats.uai import factor_energies
from minigibbs.graph.domains import Domains
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph

SUM_TOLERANCE = 0.01  # error of a row's sum; published networks are rounded to a few digits
MOST_ARITY = 32
_MOST_ENTRIES = 2**20  # of a table


class Conditional(NamedTuple):
    """The probabilities of a variable given its parents."""

    child: int
    parents: tuple[int, ...]
    table: NDArray[np.float64]  # parents first, the child last


def row_error(
    table: NDArray[np.float64],
    child: str,
    parents: Sequence[str],
    labels: Mapping[str, Sequence[str]],
) -> str | None:
    """Describe the worst row of a table, child first, if it does not sum to 1; else None."""
    sums = table.sum(axis=0)
    if abs(sums - 1).max() <= SUM_TOLERANCE:
        return None
    wrong = np.unravel_index(int(abs(sums - 1).argmax()), sums.shape)
    states = zip(parents, wrong, strict=True)
    given = ", ".join(f"{name}={labels[name][int(x)]}" for name, x in states)
    return (
        f"the probabilities of {child!r}{' given ' if given else ''}{given} must sum to 1, got "
        f"{sums[wrong]:.6g}"
    )


def conditionals(graph: FactorGraph, path: str | os.PathLike[str]) -> list[Conditional]:
    """Return one conditional table for each variable of a graph, in the order of variables.

    The graph must be a product of them, such as a graph read from a network. Tables are over all
    states, pruned ones included.
    """
    if (graph.evidence != FREE).any():
        variable = int(np.flatnonzero(graph.evidence != FREE)[0])
        raise FormatError(
            f"{path}: a Bayesian network has no evidence, but {graph.domains.describe(variable)} "
            "is clamped; write the graph as it was before graph.condition"
        )
    scopes, tables = _tables(graph, path)
    if len(scopes) != len(graph):
        raise FormatError(
            f"{path}: a Bayesian network has one table per variable; the graph has {len(graph):,} "
            f"variables and {len(scopes):,} factors. Write a .uai or .mg file"
        )
    children = _children(scopes, tables, len(graph))
    if children is None or not _acyclic(scopes, children):
        raise FormatError(
            f"{path}: a Bayesian network is a product of conditional probabilities without cycles, "
            "and this graph is not one. Write a .uai or .mg file"
        )
    found = []
    for scope, table, child in zip(scopes, tables, children, strict=True):
        axis = scope.index(child)
        parents = tuple(v for v in scope if v != child)
        one = Conditional(child, parents, np.moveaxis(table, axis, -1))
        found.append(_over_all_states(one, graph.domains))
    return sorted(found, key=lambda one: one.child)


def _over_all_states(one: Conditional, domains: Domains) -> Conditional:
    """Return a table with the pruned states, which have probability 0.

    Rows that condition on them are arbitrary: uniform over the remaining states of the child.
    """
    table = restored(one.table, (*one.parents, one.child), domains)
    if table is not one.table:
        rows = table.reshape(-1, table.shape[-1])
        rows[~rows.any(axis=1)] = restored(
            np.full(one.table.shape[-1], 1 / one.table.shape[-1]), (one.child,), domains
        )
    return one._replace(table=table)


def _tables(
    graph: FactorGraph, path: str | os.PathLike[str]
) -> tuple[list[tuple[int, ...]], list[NDArray[np.float64]]]:
    """Return the scope and the probabilities of each factor."""
    if graph.implicits:
        raise FormatError(
            f"{path}: a Bayesian network lists every table, but {graph.implicits[0].kind} factors "
            "are implicit"
        )
    scopes: list[tuple[int, ...]] = []
    tables: list[NDArray[np.float64]] = []
    for number, group in enumerate(graph.factors):
        entries = graph.sizes.astype(np.float64)[group.scope].prod(axis=1)
        if len(group) and (entries.max() > _MOST_ENTRIES or group.scope.shape[1] > MOST_ARITY):
            raise FormatError(
                f"{path}: {group.where(int(entries.argmax()), number)}: a conditional table has "
                f"at most {_MOST_ENTRIES:,} entries over {MOST_ARITY} variables"
            )
        scopes += map(tuple, group.scope.tolist())
        for factor, energy in enumerate(factor_energies(group, graph.sizes)):
            try:
                tables.append(exponentials(energy))
            except OverflowError as error:
                where = group.where(factor, number)
                raise FormatError(f"{path}: {where}: a table cannot hold {error}") from None
    return scopes, tables


def _children(
    scopes: Sequence[tuple[int, ...]], tables: Sequence[NDArray[np.float64]], count: int
) -> list[int] | None:
    """Assign a different child variable to each conditional table; None if impossible."""
    possible = [
        [v for axis, v in enumerate(scope) if abs(table.sum(axis=axis) - 1).max() <= SUM_TOLERANCE]
        for scope, table in zip(scopes, tables, strict=True)
    ]
    for place in (0, -1):  # usual positions of the child in files
        chosen = [scope[place] for scope in scopes]
        fits = all(child in some for child, some in zip(chosen, possible, strict=True))
        if fits and len(set(chosen)) == count and _acyclic(scopes, chosen):
            return chosen
    rows = np.repeat(np.arange(count), [len(some) for some in possible])
    columns = np.array([v for some in possible for v in some], dtype=np.int64)
    from scipy.sparse import csr_array  # a third of the import time of `mg.sample`
    from scipy.sparse.csgraph import maximum_bipartite_matching

    edges = csr_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(count, count))
    matched = maximum_bipartite_matching(edges, perm_type="column")
    return None if (matched < 0).any() else matched.tolist()


def _acyclic(scopes: Sequence[tuple[int, ...]], children: Sequence[int]) -> bool:
    """Return whether no variable is its own ancestor."""
    below: dict[int, list[int]] = {child: [] for child in children}
    waiting = dict.fromkeys(children, 0)
    for scope, child in zip(scopes, children, strict=True):
        waiting[child] = len(scope) - 1
        for parent in scope:
            if parent != child:
                below[parent].append(child)
    ready = [child for child, count in waiting.items() if not count]
    done = 0
    while ready:
        done += 1
        for child in below[ready.pop()]:
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    return done == len(children)
