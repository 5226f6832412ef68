"""Columns of a frame, whichever library it is from: the one place that reads frames.

A missing cell is None, NaN, NaT, the NA of pandas or a masked entry. It is never a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.graph.checks import is_missing
from minigibbs.system.arrays import to_numpy


class Column(NamedTuple):
    """One column: its cells, where they are missing, and the categories that it declares."""

    cells: NDArray[Any]
    missing: NDArray[np.bool_]
    categories: tuple[Any, ...] | None = None

    @property
    def numeric(self) -> bool:
        """Whether the cells are numbers (truth values are not)."""
        return self.cells.dtype.kind in "iuf"


def read_frame(frame: Any) -> dict[str, Column]:
    """The columns of a frame, a mapping or a two-dimensional array by name.

    Columns of an array are called x0, x1 and so on, as the variables of a graph are.
    """
    if isinstance(frame, Mapping) or hasattr(frame, "columns"):
        names = list(frame.columns) if hasattr(frame, "columns") else list(frame)
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise LearnError(f"frame: the name {twice[0]!r} is given to more than one column")
        columns = {str(name): _read_column(str(name), frame[name]) for name in names}
        if len(columns) < len(names):
            raise LearnError("frame: two columns have the same name as text")
    else:
        columns = _read_array(frame)
    lengths = {len(column.cells) for column in columns.values()}
    if not columns or lengths == {0}:
        raise LearnError(f"frame must have rows and columns; got {len(columns)} columns, no rows")
    if len(lengths) > 1:
        raise LearnError(f"frame must have columns of one length; got {sorted(lengths)}")
    return columns


def _read_array(frame: Any) -> dict[str, Column]:
    """The columns of a two-dimensional array."""
    rule = "frame must be a table: a frame, a mapping from names to columns, or rows of one length"
    try:
        array = np.ma.asanyarray(to_numpy(frame))
    except (ValueError, TypeError):
        raise LearnError(f"{rule}; got {type(frame).__name__}") from None
    if array.ndim != 2:
        raise LearnError(f"{rule}; got an array of {array.ndim} dimensions")
    return {f"x{k}": _read_column(f"x{k}", array[:, k]) for k in range(array.shape[1])}


def _read_column(name: str, given: Any) -> Column:
    """One column of whatever kind."""
    categories = None
    if hasattr(given, "cat") and hasattr(given.cat, "categories"):  # pandas
        categories = tuple(given.cat.categories.tolist())
    array = np.ma.asanyarray(to_numpy(given))
    if array.ndim != 1:
        raise LearnError(f"frame: column {name!r} must have one cell per row, got {array.shape}")
    masked = np.ma.getmaskarray(array)
    cells = np.asarray(np.ma.getdata(array))
    if cells.dtype.kind == "O":
        missing = np.fromiter(map(is_missing, cells.tolist()), np.bool_, len(cells)) | masked
        return Column(_narrowed(cells, missing), missing, categories)
    if cells.dtype.kind in "fc":
        missing = np.isnan(cells) | masked
    elif cells.dtype.kind in "mM":
        missing = np.isnat(cells) | masked
    else:
        missing = masked
    if cells.dtype.kind == "c":
        raise LearnError(f"frame: column {name!r} has complex numbers")
    return Column(cells, missing, categories)


def _narrowed(cells: NDArray[Any], missing: NDArray[np.bool_]) -> NDArray[Any]:
    """Objects as numbers where all that are not missing are numbers, such as nullable columns."""
    kinds = set(map(type, cells[~missing].tolist()))
    if not kinds or bool in kinds or not all(issubclass(k, int | float) for k in kinds):
        return cells
    numbers = np.where(missing, 0, cells)
    return numbers.astype(np.int64 if all(issubclass(k, int) for k in kinds) else np.float64)
