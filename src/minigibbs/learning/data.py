"""Data to learn from: rows of states, complete or with values missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import LearnError
from minigibbs.graph.domains import Domains
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph

_LARGEST = 2.0**53  # whole numbers that doubles hold


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
    _require_distinct(graph.domains, list(numbers), "columns")
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


def _require_distinct(domains: Domains, variables: list[int], what: str) -> None:
    """Raise where two columns stand for one variable."""
    twice = [v for v, count in Counter(variables).items() if count > 1]
    if twice:
        raise LearnError(f"{what}: {domains.describe(twice[0])} has more than one column")


def _numbers(data: Any) -> NDArray[np.int64]:
    """Integers, -1 where a value is masked, NaN or None."""
    if isinstance(data, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(data), FREE, _numbers(data.filled(0)))
    rule = "data must hold whole numbers, -1 where a value is missing"
    try:
        array = np.asarray(data)
        if array.dtype == object:
            array = np.array([[FREE if v is None else v for v in row] for row in data])
    except (ValueError, TypeError):
        raise LearnError(f"{rule}; got rows of different lengths, or no rows") from None
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), FREE, array)
        wrong = (array != np.round(array)) | (np.abs(array) > _LARGEST)
        if wrong.any():
            raise LearnError(f"{rule}; got {array[wrong][0]}")
    elif array.dtype.kind not in "iub":
        raise LearnError(f"{rule}; got type {array.dtype}; labels need columns with names")
    return array.astype(np.int64)


def _by_name(domains: Domains, data: Any) -> NDArray[np.int64]:
    """Columns by the names of variables, values by label or number; others are hidden."""
    names = list(data.columns) if hasattr(data, "columns") else list(data)
    _require_distinct(domains, [domains.index(name) for name in names], "data")
    columns = {domains.index(name): np.ma.asanyarray(data[name]) for name in names}
    flat = [variable for variable, column in columns.items() if column.ndim != 1]
    if flat:
        raise LearnError(
            f"data: {domains.describe(flat[0])} must have a column of one value a row; got shape "
            f"{columns[flat[0]].shape}"
        )
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise LearnError(f"data must have columns of one length, with rows; got {sorted(lengths)}")
    values = np.full((lengths.pop(), len(domains)), FREE, dtype=np.int64)
    for variable, column in columns.items():
        values[:, variable] = _column(domains, variable, column)
    return values


def _column(domains: Domains, variable: int, column: NDArray[Any]) -> NDArray[np.int64]:
    """One variable's values: labels are looked up once each."""
    values = np.ma.getdata(column).tolist()
    missing = np.array([_is_missing(domains, variable, value) for value in values])
    missing |= np.ma.getmaskarray(column)
    found = np.full(len(column), FREE, dtype=np.int64)
    lookup: dict[Any, int] = {}
    for row in np.flatnonzero(~missing).tolist():
        value = values[row]
        key = type(value), value  # True is equal to 1, and is read otherwise
        if not isinstance(value, Hashable) or key not in lookup:
            number = domains.value(variable, _as_number(domains, variable, value))
            lookup[key] = number
        found[row] = lookup[key]
    return found


def _is_missing(domains: Domains, variable: int, value: Any) -> bool:
    """None, NaN and what else is not equal to itself; -1 where it is a number, and no label."""
    try:
        if value is None or bool(value != value):
            return True
    except TypeError:  # what does not tell, such as the missing value of pandas
        return True
    number = _as_number(domains, variable, value)
    return isinstance(number, int) and number == FREE and variable not in domains.labels


def _as_number(domains: Domains, variable: int, value: Any) -> Any:
    """Whole numbers as such, and truth as 0 or 1, where they are no labels or points of a grid."""
    labels = domains.labels.get(variable, ())
    truth = isinstance(value, bool) and not labels
    whole = isinstance(value, float) and value.is_integer() and value not in labels
    return int(value) if truth or (whole and variable not in domains.grids) else value


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
    try:
        array = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape != (rows,) or not np.isfinite(array).all() or (array < 0).any():
        raise LearnError(
            f"weights must be {rows} finite numbers that are not negative, one per row of data"
        )
    if not array.any():
        raise LearnError("weights must not all be 0")
    array = np.ldexp(array, -np.frexp(array.max())[1])  # so that the sum is finite
    scaled: NDArray[np.float64] = array * (rows / array.sum())
    return scaled
