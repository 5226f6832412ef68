"""`infer_many`: exact answers for many sets of evidence, on one elimination tree."""

from __future__ import annotations

import math
from concurrent.futures import Executor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError, SampleError, TooLargeError
from minigibbs.exact.elimination import EliminationTree, exact_answer, possible
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.rounding import warn_of_rounding
from minigibbs.results.answers import Answers
from minigibbs.system import memory as machine
from minigibbs.system.arrays import to_numpy
from minigibbs.system.boundary import checked
from minigibbs.system.frames import column_of, has_columns, is_missing, names_of
from minigibbs.system.memory import read_size
from minigibbs.system.progress import Stage
from minigibbs.system.watch import Watch, current

_BATCH_BYTES = 2**27  # bytes of the tables of rows that are evaluated together
_CELL_BYTES = 48  # bytes per cell of evidence, as an object and as a number
_MOST_ROWS = 4096  # rows that are evaluated together
_TASKS = 16  # groups of rows that are submitted to an executor


@checked(SampleError)
def infer_many(
    graph: FactorGraph,
    frame: Any,
    *,
    memory: str | float | None = None,
    executor: Executor | Any = None,
    progress: bool = True,
) -> Answers:
    """Compute exact marginals and log Z for each of many rows of evidence.

    The elimination tree of the graph is built once, and many rows are evaluated on it together. If
    the treewidth without evidence is too large, every row gets its own tree.

    Parameters
    ----------
    graph : FactorGraph
        The model; its own evidence applies to all rows.
    frame : DataFrame, mapping or array
        One row per evidence set. Columns are variables, by name or number, with values or labels;
        an array has one column per variable. NaN, None and other missing values are unobserved.
    memory : str, float or None, default None
        Memory limit of the tree, "4G" or bytes. By default 4 GiB, or half of the free memory if
        that is less.
    executor : Executor, Dask client or None, default None
        Executor of groups of rows: a `concurrent.futures.Executor` or the client of a Dask
        cluster, whose workers build the tree once each. By default this process.
    progress : bool, default True
        Whether to show progress if stderr is a terminal.

    Returns
    -------
    Answers
        Marginals, log Z and log-probabilities by row.

    Raises
    ------
    SampleError
        If the frame has unknown columns or values.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)], names=["a", "b"])
    >>> answers = mg.infer_many(graph, {"a": [1, None], "b": [1, 0]})
    >>> answers.log_probability.round(3)
    array([-1.006, -0.693])
    """
    clock = Watch()
    budget = None if memory is None else read_size(memory, "memory")
    with Stage("reading rows", progress):
        rows = _read(graph, frame)
    if executor is not None and not hasattr(executor, "submit"):
        raise SampleError(
            "executor must be a concurrent.futures.Executor or a Dask client, got "
            f"{type(executor).__name__}"
        )
    machine.require(
        8.0 * len(rows) * float(graph.sizes.sum()),
        f"marginals of {len(rows):,} rows",
        "give fewer rows at a time",
    )
    with Watch(), Stage(f"answering {len(rows):,} rows", progress):
        if executor is None or len(rows) == 0:
            flat, log_z, whole = _answer(graph, rows, budget)
        else:
            flat, log_z, whole = _elsewhere(graph, rows, budget, executor)
    warn_of_rounding(graph, whole)
    return Answers(graph.domains, flat, log_z, log_z - whole, clock.spent)


def _read(graph: FactorGraph, frame: Any) -> NDArray[np.int64]:
    """Return [row, variable] the indices of observed values, FREE for unobserved variables."""
    domains = graph.domains
    if has_columns(frame):
        names = names_of(frame, "frame", SampleError)
        columns = {name: column_of(frame, name, "frame", SampleError).tolist() for name in names}
    else:
        try:
            given = to_numpy(frame)
            masked = isinstance(given, np.ma.MaskedArray)  # None in lists of its columns
            array = given if masked else np.asarray(given)
        except ValueError as error:  # rows of several lengths
            raise SampleError(f"frame must be a table: {error}") from None
        if array.ndim != 2 or array.shape[1] != len(graph):
            raise SampleError(
                "frame must have named columns, or be an array with one column for each of "
                f"{len(graph):,} variables; got shape {array.shape}"
            )
        machine.require(
            _CELL_BYTES * float(array.size), f"a frame of {len(array):,} rows", "give fewer rows"
        )
        columns = {k: array[:, k].tolist() for k in range(len(graph))}
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise SampleError(f"frame must have columns of one length, got {sorted(lengths)}")
    rows = np.full((lengths.pop(), len(graph)), FREE, dtype=np.int64)
    grids = domains.grids  # their values are numbers themselves
    for name, values in columns.items():
        try:
            number = domains.index(name)
        except GraphError as error:
            raise SampleError(f"frame: {error}. Leave out columns that are no variables") from None
        if (rows[:, number] != FREE).any():
            raise SampleError(f"frame: {domains.describe(number)} has more than one column")
        known: dict[Any, int] = {}
        for k, value in enumerate(values):
            if is_missing(value):
                continue
            if value not in known:
                whole = isinstance(value, float) and value.is_integer() and number not in grids
                try:
                    known[value] = domains.value(number, int(value) if whole else value)
                except GraphError as error:
                    raise SampleError(f"frame, row {k}: {error}") from None
            rows[k, number] = known[value]
    fixed = graph.evidence != FREE
    against = fixed & (rows != FREE) & (rows != graph.evidence)
    if against.any():
        row, variable = np.argwhere(against)[0].tolist()
        raise GraphError(
            f"frame, row {row}: {domains.describe(variable)} is clamped to "
            f"{graph.evidence[variable]} already; got {rows[row, variable]}"
        )
    rows[:, fixed] = FREE
    return rows


_Numbers = tuple[NDArray[np.float64], NDArray[np.float64], float]


def _answer(graph: FactorGraph, rows: NDArray[np.int64], memory: float | None) -> _Numbers:
    """Return marginals [row, value], log Z of each row, and log Z without their evidence."""
    try:
        return _together(graph, rows, memory)
    except TooLargeError:
        return _one_by_one(graph, rows, memory)


def _elsewhere(
    graph: FactorGraph, rows: NDArray[np.int64], memory: float | None, executor: Any
) -> _Numbers:
    """Answer groups of rows on an executor; every task gets the graph and its rows."""
    groups = np.array_split(rows, min(len(rows), _TASKS))
    # a Dask client would treat calls with equal arguments as one task
    options = {"pure": False} if hasattr(executor, "scatter") else {}
    tasks = [executor.submit(_answer, graph, group, memory, **options) for group in groups]
    try:
        done = [task.result() for task in tasks]
    except BaseException:
        for task in tasks:
            task.cancel()
        raise
    flat, log_z = (np.concatenate([part[k] for part in done]) for k in (0, 1))
    return flat, log_z, float(done[0][2])


def _together(
    graph: FactorGraph, rows: NDArray[np.int64], memory: float | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Answer rows on one tree; return the same as `_answer`."""
    observed = np.flatnonzero((rows != FREE).any(axis=0)).tolist()
    tree = EliminationTree.of(graph, memory, joint=tuple((v,) for v in observed))
    first = np.cumsum(graph.sizes, dtype=np.int64) - graph.sizes
    flat = np.zeros((len(rows), int(graph.sizes.sum(dtype=np.int64))))
    log_z = np.full(len(rows), -math.inf)
    with tree.reserved():
        whole = possible(tree)
        for variable in np.flatnonzero(tree.sizes == 1).tolist():
            flat[:, first[variable] + tree.values(variable)] = 1.0
        batch = int(min(max(_BATCH_BYTES / (8 * max(tree.plan.entries, 1)), 1), _MOST_ROWS))
        for begin in range(0, len(rows), batch):
            current().check()
            some = slice(begin, begin + batch)
            allowed, weights = _weights(tree, rows[some], observed)
            log_z[some] = np.where(allowed, tree.upward_rows(weights), -math.inf)
            for variable, marginals in tree.marginal_rows():
                flat[some, first[variable] + tree.values(variable)] = marginals
    flat[log_z == -math.inf] = np.nan
    return flat, log_z, whole


def _weights(
    tree: EliminationTree, rows: NDArray[np.int64], observed: list[int]
) -> tuple[NDArray[np.bool_], dict[int, NDArray[np.float64]]]:
    """Return whether rows are possible, and log-weights [row, value] of observed variables."""
    allowed = np.ones(len(rows), dtype=np.bool_)
    weights: dict[int, NDArray[np.float64]] = {}
    for variable in observed:
        values, given = tree.values(variable), rows[:, variable]
        allowed &= (given == FREE) | np.isin(given, values)
        if len(values) > 1:
            agrees = (given[:, None] == values) | (given == FREE)[:, None]
            weights[variable] = np.where(agrees, 0.0, -np.inf)
    return allowed, weights


def _one_by_one(
    graph: FactorGraph, rows: NDArray[np.int64], memory: float | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Answer rows with one tree per row; log Z without evidence is unknown."""
    flat = np.full((len(rows), int(graph.sizes.sum(dtype=np.int64))), np.nan)
    log_z = np.full(len(rows), -math.inf)
    for number, row in enumerate(rows):
        current().check()
        seen = np.flatnonzero(row != FREE)
        given = graph.condition(dict(zip(seen.tolist(), row[seen].tolist(), strict=True)))
        tree = EliminationTree.of(given, memory)
        if tree.upward() > -math.inf:
            flat[number], log_z[number] = exact_answer(tree)
    return flat, log_z, math.nan
