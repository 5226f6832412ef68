"""A table as codes: indices of values by row and column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.system.frames import column_of, is_missing, names_of, numbered, places_of

MISSING = -1


@dataclass(frozen=True, eq=False)
class Table:
    """Codes of cells, and their meanings.

    Attributes
    ----------
    names
        The names of the columns.
    values
        By column, its distinct values in order of appearance.
    codes
        [row, column] indices of values, -1 if a cell is missing.
    blank
        Entries that mean a missing cell, besides None and NaN.
    """

    names: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    codes: NDArray[np.int64]
    blank: tuple[Any, ...] = ()  # entries that mean a missing cell

    def __len__(self) -> int:
        return len(self.codes)

    def size(self, column: int) -> int:
        """Return the number of distinct values of a column."""
        return len(self.values[column])

    def index(self, name: Any, what: str) -> int:
        """Return the index of a column by its name."""
        if name not in self.names:
            raise LearnError(
                f"{what}: there is no column {name!r}; there are {', '.join(map(repr, self.names))}"
            )
        return self.names.index(name)

    def is_blank(self, value: Any) -> bool:
        """Whether an entry means a missing cell."""
        return is_missing(value) or value in self.blank

    def read(self, frame: Any, what: str = "frame") -> Table:
        """Return another frame with the same columns as a table; new values get new codes."""
        other = read_table(frame, what, self.blank)
        if other.names != self.names:
            raise LearnError(f"{what}: expected the columns {', '.join(map(repr, self.names))}")
        codes, values = other.codes.copy(), []
        for column, known in enumerate(self.values):
            place = {value: code for code, value in enumerate(known)}
            for value in other.values[column]:
                place.setdefault(value, len(place))
            lookup = np.array([place[v] for v in other.values[column]] + [MISSING], dtype=np.int64)
            codes[:, column] = lookup[other.codes[:, column]]
            values.append(tuple(place))
        return Table(self.names, tuple(values), codes, self.blank)


def read_table(frame: Any, what: str = "frame", blank: Sequence[Any] = ()) -> Table:
    """Return the table of a frame, or of a mapping from names to columns.

    >>> read_table({"a": ["x", "y", None, "x"]}).codes[:, 0].tolist()
    [0, 1, -1, 0]
    """
    names = names_of(frame, what, LearnError)
    columns = [column_of(frame, name, what, LearnError) for name in names]
    return from_columns([str(name) for name in names], columns, what, blank)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def from_columns(
    names: Sequence[str], columns: Sequence[NDArray[Any]], what: str, blank: Sequence[Any] = ()
) -> Table:
    """Return the table of columns that were read."""
    lengths = {len(column) for column in columns}
    if not columns or lengths == {0}:
        raise LearnError(f"{what} must have rows and columns")
    if len(lengths) > 1:
        raise LearnError(f"{what} must have columns of one length, got {sorted(lengths)}")
    if len(set(names)) < len(names):
        raise LearnError(f"{what}: two columns have the same name")
    for one in blank:
        if isinstance(one, tuple) or not _is_hashable(one):
            raise LearnError(
                f'missing must hold entries of cells, such as "" or "NA"; got {one!r} among them'
            )
    values, codes, blanks = [], np.empty((lengths.pop(), len(columns)), dtype=np.int64), set(blank)
    for number, column in enumerate(columns):
        found, own = numbered(column)
        kept = [value for value in found if value not in blanks]
        place = places_of(kept)
        renumbered = np.array([*(place.get(value, MISSING) for value in found), MISSING])
        codes[:, number] = renumbered[own]
        values.append(tuple(kept))
    return Table(tuple(names), tuple(values), codes, tuple(blank))
