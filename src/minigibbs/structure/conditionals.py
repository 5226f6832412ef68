"""Conditional tables of a network from counts, and the graph that they make."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.formats.pruning import TableFactor
from minigibbs.formats.tables import group_tables
from minigibbs.graph.domains import Domains
from minigibbs.graph.graph import FactorGraph
from minigibbs.structure.counting import MOST_CELLS, Counter


def conditional_tables(
    counter: Counter,
    values: NDArray[np.int64],
    parents: Sequence[Sequence[int]],
    pseudocount: float,
) -> list[NDArray[np.float64]]:
    """One table per column, of shape (*values of parents, values of the column).

    The posterior mean under a Dirichlet prior whose weight `pseudocount` is shared by all cells of
    a table. Rows count where the column and its parents are present.
    """
    found = []
    for child, own in enumerate(parents):
        cells = counter.cells([*own, child])
        if cells > MOST_CELLS:
            raise LearnError(
                f"the table of column {child} given its parents has {cells:.3g} cells; at most "
                f"{MOST_CELLS:,} are possible"
            )
        counts = counter.counts(child, own)  # the last parent first
        counts = counts.transpose([*reversed(range(len(own))), len(own)])
        seen = tuple(slice(int(values[column])) for column in (*own, child))
        prior = pseudocount / float(np.prod(values[[*own, child]]))
        weighted = counts[seen] + prior
        sums = weighted.sum(axis=-1, keepdims=True)
        uniform = np.full(weighted.shape, 1.0 / weighted.shape[-1])
        found.append(np.divide(weighted, sums, out=uniform, where=sums > 0))
    return found


def network_graph(
    domains: Domains,
    parents: Sequence[Sequence[int]],
    tables: Sequence[NDArray[np.float64]],
) -> FactorGraph:
    """The Bayesian network as a factor graph: one table per column, the column last."""
    factors = [
        TableFactor((*own, child), table)
        for child, (own, table) in enumerate(zip(parents, tables, strict=True))
    ]
    return FactorGraph(domains, group_tables(factors))
