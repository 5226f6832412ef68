"""Data to learn from: rows of states, complete or with missing values.

NaN, None and masked entries are missing, and so is -1, unless the data look like spins: if
two-valued variables have entries -1 and +1 and no 0, then -1 is ambiguous and is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError, LearnError
from minigibbs.graph.checks import as_array, has_masked
from minigibbs.graph.domains import Domains, is_hashable
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.system import memory
from minigibbs.system.arrays import to_numpy
from minigibbs.system.frames import column_of, has_columns, is_missing, missing_in, names_of

_ENTRY_BYTES = 24  # bytes of a value while it is read, checked and stored
_LARGEST = 2.0**53  # integers up to this size are exact as doubles
_NEUTRAL = 2  # replaces a missing number: not a value of a spin


@dataclass(frozen=True, eq=False)
class Data:
    """Rows of states; a missing value has `seen` 0 and is stored as 0."""

    rows: NDArray[Any]  # [row, variable] of the graph's state type
    seen: NDArray[np.uint8] | None  # [row, variable]; None if nothing is missing
    weight: NDArray[np.float64]  # [row], with mean 1

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def complete(self) -> bool:
        """Whether no value is missing."""
        return self.seen is None

    def some(self, rows: NDArray[np.integer]) -> Data:
        """Select some of the rows."""
        seen = None if self.seen is None else self.seen[rows]
        weight = self.weight[rows]
        return Data(self.rows[rows], seen, weight / weight.mean())

    def evidence(self, row: int) -> NDArray[np.int32]:
        """Return a row as evidence: `FREE` if a value is missing."""
        values = self.rows[row].astype(np.int32)
        return values if self.seen is None else np.where(self.seen[row] != 0, values, FREE)


def read_data(
    graph: FactorGraph,
    data: Any,
    columns: Sequence[int | str] | None = None,
    weights: ArrayLike | None = None,
) -> Data:
    """Read rows from an array, a mapping or a frame; by default the graph's own evidence."""
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
    """Read indices of values [row, variable], `FREE` if one is missing."""
    if has_columns(data):
        if columns is not None:
            raise LearnError("data with named columns says which variables they are: no columns=")
        return _by_name(graph.domains, data)
    numbers = range(len(graph)) if columns is None else [graph.domains.index(c) for c in columns]
    _require_distinct(graph.domains, list(numbers), "columns")
    array, absent = _numbers(data)
    if array.ndim == 1 and len(array) == len(numbers) and len(numbers) > 1:
        array, absent = array[None], absent[None]
    if array.ndim != 2 or array.shape[1] != len(numbers) or not len(array):
        raise _wrong_shape(array.shape, len(numbers), columns is None)
    _refuse_spins(array[:, graph.sizes[list(numbers)] == 2])
    values = np.full((len(array), len(graph)), FREE, dtype=np.int64)
    values[:, list(numbers)] = np.where(absent, FREE, array)
    wrong = (values < FREE) | (values >= graph.sizes)
    if wrong.any():
        row, variable = np.argwhere(wrong)[0].tolist()
        raise LearnError(
            f"data, row {row}: {graph.domains.describe(variable)} must have a value from 0 to "
            f"{graph.sizes[variable] - 1}, or -1 where it is missing; got {values[row, variable]}"
        )
    return values


def _require_distinct(domains: Domains, variables: list[int], what: str) -> None:
    """Raise an error if two columns belong to one variable."""
    twice = [v for v, count in Counter(variables).items() if count > 1]
    if twice:
        raise LearnError(f"{what}: {domains.describe(twice[0])} has more than one column")


def _wrong_shape(shape: tuple[int, ...], variables: int, every: bool) -> LearnError:
    """Return the error for an array without rows, or without one column per variable."""
    hint = ""
    if every and len(shape) == 2 and shape[1] != variables:
        hint = ". Drop columns that are no variables, such as an index"
        if shape[1] < variables:
            hint = ". Name the variables of the columns with columns=[...]"
    return LearnError(
        f"data must have at least one row, and one column for each of {variables} variables; got "
        f"shape {shape}{hint}"
    )


def _numbers(data: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the integers, and where a value is masked, NaN or None."""
    if isinstance(data, np.ma.MaskedArray):
        masked = np.ma.getmaskarray(data)
        array, absent = _numbers(data.filled(_NEUTRAL))
        return array, absent | masked
    if has_masked(data):
        return _numbers(np.ma.array(data))
    rule = "data must hold whole numbers, -1 where a value is missing"
    try:
        array = np.asarray(to_numpy(data))
        what = f"data of shape {array.shape}"
        memory.require(_ENTRY_BYTES * array.size, what, "give fewer rows or fewer variables")
        if array.dtype == object:
            known = [[np.nan if is_missing(v) else v for v in row] for row in array]
            array = np.array(known).reshape(array.shape)  # also without rows
    except (ValueError, TypeError):
        raise LearnError(f"{rule}; got rows of different lengths, or no rows") from None
    absent = np.zeros(array.shape, dtype=np.bool_)
    if array.dtype.kind == "f":
        absent = np.isnan(array)
        array = np.where(absent, _NEUTRAL, array)
        wrong = (array != np.round(array)) | (np.abs(array) > _LARGEST)
        if wrong.any():
            raise LearnError(f"{rule}; got {array[wrong][0]}")
    elif array.dtype.kind not in "iub":
        raise LearnError(f"{rule}; got type {array.dtype}; labels need columns with names")
    return array.astype(np.int64), absent


def _refuse_spins(values: NDArray[np.int64]) -> None:
    """Refuse numbers of two-valued variables that are -1 and +1 and never 0."""
    if (values == FREE).any() and (values == 1).any() and not (values == 0).any():
        raise LearnError(
            "data: two-valued variables have the values 0 and 1, but their columns hold -1 and 1 "
            "and no 0. If these are spins, give (data + 1) // 2; if -1 means missing, give NaN or "
            "a masked array in its place"
        )


def _by_name(domains: Domains, data: Any) -> NDArray[np.int64]:
    """Read columns by the names of variables, values by label or index; others are hidden."""
    names = names_of(data, "data", LearnError)
    numbers = [_variable_of(domains, name) for name in names]
    _require_distinct(domains, numbers, "data")
    columns = {
        variable: column_of(data, name, "data", LearnError)
        for variable, name in zip(numbers, names, strict=True)
    }
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise LearnError(f"data must have columns of one length, with rows; got {sorted(lengths)}")
    values = np.full((lengths.pop(), len(domains)), _NEUTRAL, dtype=np.int64)
    absent = np.ones(values.shape, dtype=np.bool_)
    for variable, column in columns.items():
        absent[:, variable] = missing_in(column)
        values[:, variable] = _column(domains, variable, column, absent[:, variable])
    unlabeled = [v for v in columns if domains.sizes[v] == 2 and v not in domains.labels]
    _refuse_spins(values[:, unlabeled])
    return np.where(absent, FREE, values)


def _variable_of(domains: Domains, name: Any) -> int:
    """Return the variable of a column."""
    try:
        return domains.index(name)
    except GraphError as error:
        raise LearnError(
            f"data: column {name!r} is not a variable of the graph ({error}); drop or rename it"
        ) from None


def _column(
    domains: Domains, variable: int, column: NDArray[Any], absent: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Read one variable's values, -1 included if it is not a label; equal entries are read once."""
    values = column.tolist()
    found = np.full(len(column), _NEUTRAL, dtype=np.int64)
    lookup: dict[Any, int] = {}
    for row in np.flatnonzero(~absent).tolist():
        value = values[row]
        key = type(value), value  # True is equal to 1, but is read differently
        if not is_hashable(value) or key not in lookup:
            number = _as_number(domains, variable, value)
            free = type(number) is int and number == FREE and variable not in domains.labels
            lookup[key] = FREE if free else domains.value(variable, number)
        found[row] = lookup[key]
    return found


def _as_number(domains: Domains, variable: int, value: Any) -> Any:
    """Convert integral floats to int, bools to 0 or 1, except labels and grid points."""
    labels = domains.labels.get(variable, ())
    truth = isinstance(value, bool) and not labels
    whole = isinstance(value, float) and value.is_integer() and value not in labels
    return int(value) if truth or (whole and variable not in domains.grids) else value


def _with_evidence(graph: FactorGraph, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Add the graph's evidence to the rows, which they must not contradict."""
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
    rule = f"weights must be {rows} finite numbers that are not negative, one per row of data"
    array = as_array(weights, "iufb", rule, LearnError).astype(np.float64)
    if array.shape != (rows,):
        raise LearnError(f"{rule}; got shape {array.shape}")
    wrong = np.flatnonzero(~((array >= 0) & (array < np.inf)))
    if len(wrong):
        raise LearnError(f"{rule}; got {array[wrong[0]]} in row {wrong[0]}")
    if not array.any():
        raise LearnError("weights must not all be 0")
    shares = array / array.max()  # so that their sum is finite
    scaled: NDArray[np.float64] = shares * (rows / shares.sum())
    return scaled
