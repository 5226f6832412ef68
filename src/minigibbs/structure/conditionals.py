"""Conditional tables of a network from counts, and the graph of the network."""

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
    """Return one table per column, of shape (*values of parents, values of the column).

    A table is the posterior mean under a Dirichlet prior whose weight `pseudocount` is shared by
    all cells. It counts the rows in which the column and its parents are present.
    """
    found = []
    for child, own in enumerate(parents):
        cells = counter.cells([*own, child])
        if cells > MOST_CELLS:
            raise LearnError(
                f"the table of column {child} given its parents has {cells:.3g} cells; at most "
                f"{MOST_CELLS:,} are possible"
            )
        counts = counter.counts(child, own)  # parents in reverse order
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
    """Return the Bayesian network as a factor graph: one table per column, the column last."""
    factors = [
        TableFactor((*own, child), table)
        for child, (own, table) in enumerate(zip(parents, tables, strict=True))
    ]
    return FactorGraph(domains, group_tables(factors))
