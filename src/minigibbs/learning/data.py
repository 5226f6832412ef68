"""Data to learn from: rows of states, complete or with values missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import LearnError
from minigibbs.graph.domains import Domains
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph


@dataclass(frozen=True, eq=False)
class Data:
    """Rows of states; where `seen` is 0 a value is missing, and 0 stands in its place."""

    rows: NDArray[Any]  # [row, variable] of the graph's state type
    seen: NDArray[np.uint8] | None  # [row, variable]; None where nothing is missing
    weight: NDArray[np.float64]  # [row], of mean 1

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return self.seen is None

    def some(self, rows: NDArray[np.integer]) -> Data:
        """Some of the rows."""
        seen = None if self.seen is None else self.seen[rows]
        weight = self.weight[rows]
        return Data(self.rows[rows], seen, weight / weight.mean())

    def evidence(self, row: int) -> NDArray[np.int32]:
        """A row as evidence: `FREE` where a value is missing."""
        values = self.rows[row].astype(np.int32)
        return values if self.seen is None else np.where(self.seen[row] != 0, values, FREE)


def read_data(
    graph: FactorGraph,
    data: Any,
    columns: Sequence[int | str] | None = None,
    weights: ArrayLike | None = None,
) -> Data:
    """Rows from an array, a mapping or a frame; without any, the graph's own evidence."""
    if data is None:
        if (graph.evidence == FREE).all():
            raise LearnError(
                "there is nothing to learn from: the graph has no evidence; give data, or "
                "condition the graph on what is known"
            )
        values = graph.evidence[None].astype(np.int64)
    else:
        values = _read_values(graph, data, columns)
        values = _with_evidence(graph, values)
    rows, seen = values.astype(graph.state_type), (values != FREE).astype(np.uint8)
    rows[seen == 0] = 0
    weight = _read_weights(weights, len(rows))
    return Data(rows, None if seen.all() else seen, weight)


def _read_values(
    graph: FactorGraph, data: Any, columns: Sequence[int | str] | None
) -> NDArray[np.int64]:
    """[row, variable] numbers of values, `FREE` where one is missing."""
    if isinstance(data, Mapping) or hasattr(data, "columns"):
        if columns is not None:
            raise LearnError("data with named columns says which variables they are: no columns=")
        return _by_name(graph.domains, data)
    numbers = range(len(graph)) if columns is None else [graph.domains.index(c) for c in columns]
    array = _numbers(data)
    if array.ndim == 1 and len(array) == len(numbers) and len(numbers) > 1:
        array = array[None]
    if array.ndim != 2 or array.shape[1] != len(numbers) or not len(array):
        raise LearnError(
            f"data must have at least one row, and a column for each of {len(numbers)} variables; "
            f"got shape {array.shape}"
        )
    values = np.full((len(array), len(graph)), FREE, dtype=np.int64)
    values[:, list(numbers)] = array
    wrong = (values < FREE) | (values >= graph.sizes)
    if wrong.any():
        row, variable = np.argwhere(wrong)[0].tolist()
        raise LearnError(
            f"data, row {row}: {graph.domains.describe(variable)} must have a value from 0 to "
            f"{graph.sizes[variable] - 1}, or -1 where it is missing; got {values[row, variable]}"
        )
    return values


def _numbers(data: Any) -> NDArray[np.int64]:
    """Integers, -1 where a value is masked, NaN or None."""
    if isinstance(data, np.ma.MaskedArray):
        data = data.filled(FREE)
    rule = "data must hold whole numbers, -1 where a value is missing"
    try:
        array = np.asarray(data)
        if array.dtype == object:
            array = np.array([[FREE if v is None else v for v in row] for row in data])
    except (ValueError, TypeError):
        raise LearnError(f"{rule}; got rows of different lengths, or no rows") from None
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), FREE, array)
        if (array != np.round(array)).any():
            raise LearnError(f"{rule}; got {array[array != np.round(array)][0]}")
    elif array.dtype.kind not in "iub":
        raise LearnError(f"{rule}; got type {array.dtype}; labels need columns with names")
    return array.astype(np.int64)


def _by_name(domains: Domains, data: Any) -> NDArray[np.int64]:
    """Columns by the names of variables, values by label or number; others are hidden."""
    names = list(data.columns) if hasattr(data, "columns") else list(data)
    columns = {domains.index(name): np.asarray(data[name]) for name in names}
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise LearnError(f"data must have columns of one length, with rows; got {sorted(lengths)}")
    values = np.full((lengths.pop(), len(domains)), FREE, dtype=np.int64)
    for variable, column in columns.items():
        values[:, variable] = _column(domains, variable, column)
    return values


def _column(domains: Domains, variable: int, column: NDArray[Any]) -> NDArray[np.int64]:
    """One variable's values: labels are looked up once each."""
    missing = np.array([value is None or value != value for value in column.tolist()])
    found = np.full(len(column), FREE, dtype=np.int64)
    if column.dtype.kind in "iu" and variable not in domains.labels:
        missing |= column == FREE
    kept = np.flatnonzero(~missing)
    lookup: dict[Any, int] = {}
    for row, value in zip(kept.tolist(), column[kept].tolist(), strict=True):
        if value not in lookup:
            whole = isinstance(value, float) and value.is_integer()
            plain = int(value) if whole and value not in domains.labels.get(variable, ()) else value
            lookup[value] = domains.value(variable, plain)
        found[row] = lookup[value]
    return found


def _with_evidence(graph: FactorGraph, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows with the graph's evidence, which they must not contradict."""
    clamped = graph.evidence != FREE
    wrong = clamped & (values != FREE) & (values != graph.evidence)
    if wrong.any():
        row, variable = np.argwhere(wrong)[0].tolist()
        raise LearnError(
            f"data, row {row}: {graph.domains.describe(variable)} is clamped to "
            f"{graph.evidence[variable]} in the graph, got {values[row, variable]}"
        )
    return np.where(clamped, graph.evidence, values)


def _read_weights(weights: ArrayLike | None, rows: int) -> NDArray[np.float64]:
    if weights is None:
        return np.ones(rows)
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (rows,) or not np.isfinite(array).all() or (array < 0).any():
        raise LearnError(
            f"weights must be {rows} finite numbers that are not negative, one per row of data"
        )
    if not array.sum() > 0:
        raise LearnError("weights must not all be 0")
    scaled: NDArray[np.float64] = array * (rows / array.sum())
    return scaled
