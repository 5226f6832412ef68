"""Tables of codes for structure learning, and how frames are converted to them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.graph.domains import MAX_DOMAIN, Domains, Grid
from minigibbs.graph.factors.base import FREE
from minigibbs.structure.binning import MOST_VALUES, Bins, Cuts, bins_of, read_cuts
from minigibbs.structure.frames import Column, read_frame
from minigibbs.system import memory
from minigibbs.system.caller import warn
from minigibbs.system.frames import look_up, places_of

DEFAULT_BINS = 5
_IDENTIFIER = 0.5  # distinct values per row above which a column looks like an identifier
_FEW_ROWS = 100  # columns with at most this many values cause no such warning
_CELL_BYTES = 24


@dataclass(frozen=True, eq=False)
class Reading:
    """The encoding of one column."""

    labels: tuple[Hashable, ...]
    cuts: Cuts | None = None  # bins, if the column is binned

    @property
    def size(self) -> int | Grid:
        """The domain: a number of values, or a grid."""
        if self.cuts is not None and self.cuts.grid is not None:
            return self.cuts.grid
        return len(self.labels)

    def codes(self, name: str, column: Column) -> NDArray[np.int64]:
        """Return the code of each cell, `FREE` if it is missing or its value is unknown."""
        found = np.full(len(column.cells), FREE, dtype=np.int64)
        seen = ~column.missing
        if self.cuts is not None:
            if not column.numeric:
                raise LearnError(f"frame: column {name!r} must hold numbers, as it did before")
            found[seen] = self.cuts.codes(column.cells[seen])
            return found
        number = {label: code for code, label in enumerate(self.labels)}
        values, inverse = _distinct_cells(column)
        codes = np.array([number.get(value, FREE) for value in values], dtype=np.int64)
        found[seen] = codes[inverse] if len(codes) else FREE
        return found


@dataclass(frozen=True, eq=False)
class Codes:
    """A table: codes[column, row], which is the size of the column's domain for a missing cell."""

    domains: Domains
    codes: NDArray[Any]  # [column, row], uint8 or int32
    readings: tuple[Reading, ...]
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.codes.shape[1])

    @property
    def columns(self) -> int:
        """The number of columns."""
        return len(self.codes)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of values per column, not counting the missing one."""
        return self.domains.sizes.astype(np.int64)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """[column, row] which cells are missing."""
        return np.asarray(self.codes == self.sizes[:, None])

    @property
    def complete(self) -> bool:
        """Whether no cell is missing."""
        return not any((self.codes[k] == size).any() for k, size in enumerate(self.sizes.tolist()))

    def resampled(self, rng: np.random.Generator) -> Codes:
        """Return a table of the same length, with rows drawn with replacement."""
        chosen = np.sort(rng.integers(self.rows, size=self.rows))
        return replace(self, codes=np.ascontiguousarray(self.codes[:, chosen]))

    def sampled(self, count: int, rng: np.random.Generator) -> Codes:
        """Return a number of the rows, drawn without replacement."""
        chosen = np.sort(rng.choice(self.rows, count, replace=False))
        return replace(self, codes=np.ascontiguousarray(self.codes[:, chosen]))

    def rows_of(self, frame: Any) -> NDArray[np.int64]:
        """Return [row, variable] codes of another frame, `FREE` if a cell is missing or unknown."""
        columns = read_frame(frame)
        if set(columns) - set(self.domains.numbers):
            strange = next(name for name in columns if name not in self.domains.numbers)
            raise LearnError(f"frame: column {strange!r} is no column of the table learned from")
        length = len(next(iter(columns.values())).cells)
        rows = np.full((length, self.columns), FREE, dtype=np.int64)
        for name, column in columns.items():
            k = self.domains.index(name)
            rows[:, k] = self.readings[k].codes(name, column)
        return rows


def read_table(frame: Any, bins: Bins | Mapping[str, Bins] | None) -> Codes:
    """Return the table of a frame, with its numeric columns binned."""
    columns = read_frame(frame)
    length = len(next(iter(columns.values())).cells)
    memory.require(
        _CELL_BYTES * length + 4.0 * length * len(columns),
        f"a table of {length:,} rows and {len(columns):,} columns",
        "give fewer rows or fewer columns",
    )
    bins = DEFAULT_BINS if bins is None else bins
    if isinstance(bins, Mapping):
        strange = [name for name in bins if name not in columns]
        if strange:
            raise LearnError(f"bins: there is no column {strange[0]!r}")
    if length < 2:
        raise LearnError(f"frame must have at least 2 rows to learn a structure from, got {length}")
    readings, notes, known = [], [], []
    for name, column in columns.items():
        reading, found = _reading(name, column, bins)
        readings.append(reading)
        known.append(found)
        seen = int(np.count_nonzero(~column.missing))
        if len(reading.labels) == 1:
            notes.append(f"column {name!r} has one value: it is independent of all others")
        elif len(reading.labels) > max(_IDENTIFIER * seen, _FEW_ROWS):
            notes.append(
                f"column {name!r} has {len(reading.labels):,} values in {seen:,} rows: it looks "
                "like an identifier; drop it"
            )
    domains = _domains(list(columns), readings)
    kind = np.uint8 if int(domains.sizes.max()) < 255 else np.int32
    codes = np.empty((len(columns), length), dtype=kind)
    for k, column in enumerate(columns.values()):
        codes[k, column.missing] = domains.sizes[k]
        codes[k, ~column.missing] = known[k]
    for note in notes:
        warn(note)
    return Codes(domains, codes, tuple(readings), tuple(notes))


def _domains(names: list[str], readings: list[Reading]) -> Domains:
    """Return the variables of the columns."""
    labels = {
        k: reading.labels for k, reading in enumerate(readings) if isinstance(reading.size, int)
    }
    plain = {
        k
        for k, found in labels.items()
        if found == tuple(range(len(found))) and all(type(label) is int for label in found)
    }
    kept = {k: found for k, found in labels.items() if k not in plain}
    return Domains([reading.size for reading in readings], names, kept or None)


def _reading(
    name: str, column: Column, bins: Bins | Mapping[str, Bins]
) -> tuple[Reading, NDArray[Any]]:
    """Return the encoding of a column, and the codes of its present cells."""
    cells = column.cells[~column.missing]
    if not len(cells):
        raise LearnError(f"frame: column {name!r} has no values: drop it")
    wanted, asked = bins_of(bins, name, DEFAULT_BINS)
    if asked and not column.numeric:
        raise LearnError(f"bins: column {name!r} does not hold numbers")
    if column.categories is not None:
        reading = Reading(column.categories)
        return reading, reading.codes(name, column)[~column.missing]
    values, codes = _distinct_cells(column)
    if column.numeric and (asked or len(values) > MOST_VALUES):
        cuts = read_cuts(name, cells, wanted)
        labels = cuts.labels() if cuts.grid is None else (0,) * len(cuts)
        return Reading(labels, cuts), cuts.codes(cells).astype(np.int32)
    if len(values) > MAX_DOMAIN:
        raise LearnError(f"frame: column {name!r} has too many values")
    return Reading(tuple(values)), codes.astype(np.int32)


def _distinct_cells(column: Column) -> tuple[list[Any], NDArray[np.int64]]:
    """Return `_distinct` of the present cells."""
    if column.texts is None:
        return _distinct(column.cells[~column.missing])
    texts, numbers = column.texts
    order = sorted(range(len(texts)), key=texts.__getitem__)
    place = np.empty(len(texts), dtype=np.int64)
    place[order] = np.arange(len(texts))
    return [texts[number] for number in order], place[numbers[~column.missing]]


def _distinct(cells: NDArray[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the distinct values in order, and the index of each cell's value."""
    if cells.dtype.kind in "iub" and len(cells):
        low, high = int(cells.min()), int(cells.max())
        if high - low <= 4 * len(cells):  # count instead of sorting
            shifted = cells.astype(np.int64) - low
            present = np.flatnonzero(np.bincount(shifted))
            place = np.zeros(high - low + 1, dtype=np.int64)
            place[present] = np.arange(len(present))
            values = (present + low).astype(cells.dtype).tolist()
            return values, place[shifted]
    if cells.dtype.kind != "O":
        sorted_values, inverse = np.unique(cells, return_inverse=True)
        return sorted_values.tolist(), inverse
    try:
        found = dict.fromkeys(cells.tolist())
    except TypeError:
        raise LearnError("frame: a cell must be text, a number or another hashable value") from None
    try:
        order = sorted(found)
    except TypeError:  # of different types: ordered by type, then as text
        order = sorted(found, key=lambda value: (type(value).__name__, str(value)))
    return order, look_up(places_of(order), cells)
