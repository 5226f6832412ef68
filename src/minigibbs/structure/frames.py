"""Columns of a frame as structure learning needs them: cells, missing cells, categories."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.system import memory
from minigibbs.system.arrays import to_numpy
from minigibbs.system.frames import (
    advice_on_paths,
    as_column,
    column_of,
    has_columns,
    missing_in,
    names_of,
    texts_of,
)

_CELL_BYTES, _PAIR_BYTES = 4, 2  # per cell; per pair of columns


class Column(NamedTuple):
    """One column: its cells, which of them are missing, and its declared categories.

    `texts` has the distinct cells and the index of each cell, -1 if it is missing. It is None
    unless the column was given in this form.
    """

    cells: NDArray[Any]
    missing: NDArray[np.bool_]
    categories: tuple[Any, ...] | None = None
    texts: tuple[list[str], NDArray[np.int64]] | None = None

    @property
    def numeric(self) -> bool:
        """Whether the cells are numbers (truth values are not)."""
        return self.cells.dtype.kind in "iuf"


def read_frame(frame: Any) -> dict[str, Column]:
    """Return the columns of a frame, a mapping or a two-dimensional array by name.

    Columns of an array are called x0, x1 and so on, like the variables of a graph.
    """
    if has_columns(frame):
        names = names_of(frame, "frame", LearnError)
        texts = texts_of(frame, "frame", LearnError)
        columns = {
            str(name): _text_column(*texts[name])
            if name in texts
            else _column(str(name), column_of(frame, name, "frame", LearnError))._replace(
                categories=_categories(frame, name)
            )
            for name in names
        }
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
    """Return the columns of a two-dimensional array."""
    rule = "frame must be a table: a frame, a mapping from names to columns, or rows of one length"
    try:
        array = np.ma.asanyarray(to_numpy(frame))
    except (ValueError, TypeError):
        raise LearnError(f"{rule}; got {type(frame).__name__}") from None
    if array.ndim != 2:
        advice = advice_on_paths(frame)
        raise LearnError(f"{rule}; got an array of {array.ndim} dimensions{advice}")
    rows, columns = array.shape
    memory.require(
        _CELL_BYTES * float(rows) * columns + _PAIR_BYTES * float(columns) ** 2,
        f"a table of {rows:,} rows and {columns:,} columns",
        "give fewer rows or fewer columns",
    )
    names = [f"x{k}" for k in range(columns)]
    array = array.T.copy()  # columns that are contiguous
    return {
        name: _column(name, as_column(array[k], f"frame, column {name!r}", LearnError))
        for k, name in enumerate(names)
    }


def _column(name: str, cells: NDArray[Any]) -> Column:
    """Return a column: mark its missing cells, and convert objects to numbers if possible."""
    if cells.dtype.kind == "c":
        raise LearnError(f"frame: column {name!r} has complex numbers")
    missing = missing_in(cells)
    return Column(_narrowed(cells, missing), missing)


def _text_column(texts: list[str], numbers: NDArray[np.int64]) -> Column:
    """Return a column of text whose distinct cells are known."""
    cells = np.array([*texts, None], dtype=object)[numbers]  # -1 selects None
    return Column(cells, numbers < 0, texts=(texts, numbers))


def _categories(frame: Any, name: Any) -> tuple[Any, ...] | None:
    """Return the categories that a pandas column declares, in their order."""
    kind = getattr(frame[name], "dtype", None)
    found = getattr(kind, "categories", None)
    return None if found is None or not hasattr(kind, "ordered") else tuple(found.tolist())


def _narrowed(cells: NDArray[Any], missing: NDArray[np.bool_]) -> NDArray[Any]:
    """Convert objects to numbers if all present cells are numbers, as in nullable columns."""
    if cells.dtype.kind != "O":
        return cells
    kinds = set(map(type, cells[~missing].tolist()))
    if not kinds or bool in kinds or not all(issubclass(k, int | float) for k in kinds):
        return cells
    numbers = np.where(missing, 0, cells)
    try:
        return numbers.astype(np.int64 if all(issubclass(k, int) for k in kinds) else np.float64)
    except OverflowError:  # integers that do not fit into 64 bits
        return cells
