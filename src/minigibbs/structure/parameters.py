"""The function `learn_tables`: conditional tables of a Bayesian network with known edges."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import FormatError, LearnError
from minigibbs.formats.networks import conditionals
from minigibbs.graph.data import Data, read_data
from minigibbs.graph.graph import FactorGraph
from minigibbs.running.request import check_counts, entropy_of
from minigibbs.structure.completion import Completion
from minigibbs.structure.conditionals import conditional_tables, network_graph
from minigibbs.structure.counting import Counter
from minigibbs.structure.table import Codes
from minigibbs.system.boundary import checked
from minigibbs.system.progress import Stage

_ROUNDS = 40  # rounds of completing rows and counting them
_LATE = 20  # last rounds, whose tables are averaged
_MIXED = 1e-3  # weight of a uniform distribution in the first tables, so that chains can move


@checked(LearnError)
def learn_tables(
    graph: FactorGraph,
    data: Any,
    *,
    columns: Sequence[int | str] | None = None,
    pseudocount: float = 1.0,
    seed: int | None = None,
    threads: int | None = None,
    progress: bool = True,
) -> FactorGraph:
    """Learn the conditional tables of a Bayesian network from data; the edges are given.

    Parameters
    ----------
    graph : FactorGraph
        A Bayesian network with one conditional table per variable: read from a `.bif` file, made by
        `mg.from_pgmpy` or learned by `mg.learn_structure`.
    data : array, mapping or frame
        Rows as in `mg.learn`; variables without a column are hidden.
    columns : list, optional
        The variables of the columns of an array.
    pseudocount : float, default 1.0
        Total weight of the uniform Dirichlet prior of a table. 0 gives relative frequencies, and a
        uniform distribution for parent configurations that do not occur.
    seed : int, optional
        Seed of all random draws.
    threads : int, optional
        Number of threads. By default one per processor.
    progress : bool, default True
        Whether to show progress if stderr is a terminal.

    Returns
    -------
    FactorGraph
        The network with the learned tables. `mg.write` writes it to a `.bif` file, and
        `mg.to_pgmpy(graph, network=True)` converts it.

    Raises
    ------
    LearnError
        If the graph is not a Bayesian network.

    Notes
    -----
    A table of complete rows is counted directly. Otherwise stochastic EM makes 40 rounds and
    averages the tables of the last 20. A round draws the missing cells by Gibbs sampling from the
    current network, and counts all rows. The first network has the tables of the graph.

    Examples
    --------
    >>> import minigibbs as mg, numpy as np
    >>> rain = mg.Unary([0], np.log([[0.5, 0.5]]))
    >>> wet = mg.Table([[0, 1]], np.log([[0.9, 0.1], [0.5, 0.5]]))
    >>> network = mg.FactorGraph([2, 2], [rain, wet], names=["rain", "wet"])
    >>> rows = [[0, 0]] * 6 + [[1, 0]] + [[1, 1]] * 3
    >>> learned = mg.learn_tables(network, rows, pseudocount=0.0, progress=False)
    >>> mg.infer(learned).marginal("wet").probability.round(3).tolist()
    [0.7, 0.3]
    """
    check_counts(threads=threads)
    if not 0 <= pseudocount < np.inf:
        raise LearnError(f"pseudocount must not be negative, got {pseudocount}")
    try:
        tables = conditionals(graph, "learn_tables")
    except FormatError as error:
        raise LearnError(str(error)) from None
    parents = [one.parents for one in tables]
    with Stage("reading data", progress):
        rows = read_data(graph, data, columns, None)
    with Stage("learning tables", progress):
        if rows.complete:
            whole = _codes(graph, rows)
            found = _counted(whole, parents, pseudocount, threads)
        else:
            first = [(1 - _MIXED) * t.table + _MIXED / t.table.shape[-1] for t in tables]
            found = _completed(graph, rows, parents, first, pseudocount, entropy_of(seed), threads)
    return network_graph(graph.domains, parents, found)


def _codes(graph: FactorGraph, data: Data) -> Codes:
    """Return the rows as a table of codes; a missing value has the size of the domain."""
    codes = data.rows.T.astype(np.int32)
    if data.seen is not None:
        codes = np.where(data.seen.T != 0, codes, graph.sizes[:, None])
    kind = np.uint8 if int(graph.sizes.max()) < 255 else np.int32
    return Codes(graph.domains, np.ascontiguousarray(codes, dtype=kind), ())


def _counted(
    table: Codes, parents: Sequence[Sequence[int]], pseudocount: float, threads: int | None
) -> list[NDArray[np.float64]]:
    with closing(Counter(table.codes, table.sizes, threads)) as counter:
        return conditional_tables(counter, table.sizes, parents, pseudocount)


def _completed(
    graph: FactorGraph,
    data: Data,
    parents: Sequence[Sequence[int]],
    tables: Sequence[NDArray[np.float64]],
    pseudocount: float,
    seed: int,
    threads: int | None,
) -> list[NDArray[np.float64]]:
    """Run stochastic EM from the first tables."""
    completion = Completion(_codes(graph, data), seed, threads)
    total = [np.zeros_like(table) for table in tables]
    for number in range(_ROUNDS):
        drawn = completion.draw(network_graph(graph.domains, parents, tables))
        tables = _counted(drawn, parents, max(pseudocount, 1.0), threads)
        if number >= _ROUNDS - _LATE:
            found = tables if pseudocount >= 1 else _counted(drawn, parents, pseudocount, threads)
            total = [a + b for a, b in zip(total, found, strict=True)]
    return [table / table.sum(axis=-1, keepdims=True) for table in total]
