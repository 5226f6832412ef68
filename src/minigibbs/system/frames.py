"""Columns by name, of any library: the only module that reads cells and detects missing ones.

Mappings and structured arrays are read directly. Frames of pandas, Polars, PyArrow and other
libraries are read and created through narwhals, which is imported with the first frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import repeat
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError, MinigibbsError
from minigibbs.system import memory
from minigibbs.system.arrays import is_sparse, to_numpy

_CELL_BYTES = 24  # bytes of memory per entry of a column that is read
_WIDEST = 2**63  # bound of integers that every library stores
_NOT_PLAIN = (list, dict, set, np.ndarray)  # entries that cannot be looked up


def is_missing(value: Any) -> bool:
    """Return whether a cell is missing: None, NaN, NaT, the NA of pandas.

    >>> [is_missing(value) for value in (None, float("nan"), np.datetime64("NaT"), 0, "")]
    [True, True, True, False, False]
    """
    try:
        return value is None or value is np.ma.masked or bool(value != value)
    except TypeError:  # comparisons with the NA of pandas have no truth value
        return True


def has_columns(given: Any) -> bool:
    """Return whether columns can be looked up by name.

    >>> has_columns({"a": [1]}), has_columns([[1]]), has_columns(np.zeros((1, 1)))
    (True, False, False)
    """
    return _is_mapping(given) or _fields(given) is not None or _is_frame(given)


def names_of(
    frame: Any, where: str = "frame", error: type[MinigibbsError] = GraphError
) -> list[Any]:
    """Return the names of a frame's columns; raise `error` without names or for a repeated name.

    >>> names_of({"a": [1], "b": [2]})
    ['a', 'b']
    """
    if _is_mapping(frame):
        return list(frame)
    fields = _fields(frame)
    if fields is not None:
        return list(fields)
    if not _is_frame(frame):
        what = f"{type(frame).__name__}{advice_on_paths(frame)}"
        raise error(f"{where}: expected columns by name, got {what}")
    return list(_narwhal(frame, where, error).columns)


def advice_on_paths(given: Any) -> str:
    """Return what to do with the name of a file that was given instead of a table.

    >>> advice_on_paths("rows.csv")
    '. Read the file first: pandas.read_csv(path), with dtype=str for mg.repair'
    """
    if not isinstance(given, str | PathLike):
        return ""
    return ". Read the file first: pandas.read_csv(path), with dtype=str for mg.repair"


def column_of(
    frame: Any, name: Any, where: str = "frame", error: type[MinigibbsError] = GraphError
) -> NDArray[Any]:
    """Return one column as an array of plain entries, with None for each missing cell.

    >>> column_of({"a": [1.0, float("nan")]}, "a").tolist()
    [1.0, None]
    """
    known = names_of(frame, where, error)
    if name not in known:
        shown = ", ".join(map(repr, known)) or "none"
        raise error(f"{where}: there is no column {name!r}; there are {shown}")
    if not _is_frame(frame):
        return as_column(frame[name], f"{where}, column {name!r}", error)
    series = _narwhal(frame, where, error).get_column(name)
    kind = series.dtype
    whole = kind.is_float() or (_is_small(kind) and not series.null_count())
    entries = series.to_numpy() if whole else _objects(series.to_list())  # integers stay integers
    return as_column(entries, f"{where}, column {name!r}", error)


def _is_small(kind: Any) -> bool:
    """Return whether a type of narwhals holds integers that NumPy has a type for."""
    return bool(kind.is_integer()) and not str(kind).endswith("128")


def texts_of(
    frame: Any, where: str = "frame", error: type[MinigibbsError] = GraphError
) -> dict[Any, tuple[list[str], NDArray[np.int64]]]:
    """Return the distinct texts of each column of text, and each row's index; -1 if missing.

    PyArrow finds distinct texts in compiled code. Without it, and for anything but a frame, no
    column is returned, and `column_of` must read it.
    """
    if not _is_frame(frame) or find_spec("pyarrow") is None:
        return {}
    import narwhals.stable.v2 as nw

    held, found = _narwhal(frame, where, error), {}
    for name, kind in held.schema.items():
        if kind == nw.String:
            try:
                arrow = held.get_column(name).to_arrow()
            except UnicodeEncodeError:  # lone surrogates, which PyArrow cannot store
                continue
            arrow = arrow.combine_chunks() if hasattr(arrow, "combine_chunks") else arrow
            encoded = arrow.dictionary_encode()
            numbers = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            found[name] = encoded.dictionary.to_pylist(), numbers.astype(np.int64)
    return found


def as_column(given: Any, where: str, error: type[MinigibbsError] = GraphError) -> NDArray[Any]:
    """Return an array of entries that can be looked up; missing ones are None."""
    masked = np.ma.getmaskarray(given) if isinstance(given, np.ma.MaskedArray) else None
    try:
        column = np.asarray(to_numpy(given))
    except ValueError:  # rows of different lengths
        column = np.empty(0)[None]
    texts = isinstance(given, list | tuple) and column.ndim == 1 and column.dtype.kind in "US"
    if texts and len(set(map(type, given))) > 1:  # numbers in a list with text stay numbers
        column = _objects(given)
    if column.ndim != 1:
        raise error(f"{where}: expected a plain entry in each row")
    memory.require(
        _CELL_BYTES * len(column), f"{where}: a column of {len(column):,} rows", "give fewer rows"
    )
    if column.dtype == object:
        entries = column.tolist()
        if any(issubclass(kind, _NOT_PLAIN) for kind in set(map(type, entries))):
            row = next(row for row, entry in enumerate(entries) if isinstance(entry, _NOT_PLAIN))
            raise error(f"{where}, row {row}: expected a plain entry, got {entries[row]!r}")
    missing = missing_in(column)
    if masked is not None:
        missing = missing | masked
    if missing.any():
        column = column.astype(object)
        column[missing] = None
    return column


def missing_in(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the missing entries of a column.

    >>> missing_in(np.array(["a", None, float("nan")], dtype=object)).tolist()
    [False, True, True]
    """
    if column.dtype.kind in "biuUS":
        return np.zeros(len(column), dtype=np.bool_)
    if column.dtype.kind in "fcmM":
        unequal: NDArray[np.bool_] = column != column  # NaN and NaT
        return unequal
    entries = column.tolist()
    found = {id(entry) for entry in dict.fromkeys(entries) if is_missing(entry)}
    if not found:
        return np.zeros(len(entries), dtype=np.bool_)
    return np.fromiter(map(found.__contains__, map(id, entries)), np.bool_, len(entries))


def numbered(column: NDArray[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the distinct entries in order of appearance, and each row's index; -1 if missing.

    >>> numbered(np.array(["b", None, "a", "b"], dtype=object))[0]
    ['b', 'a']
    """
    found = [entry for entry in dict.fromkeys(column.tolist()) if entry is not None]
    return found, look_up(places_of(found), column)


def places_of(entries: list[Any]) -> dict[Any, int]:
    """Return the index of each entry."""
    return dict(zip(entries, range(len(entries)), strict=True))


def look_up(places: Mapping[Any, int], column: NDArray[Any]) -> NDArray[np.int64]:
    """Return the index of each entry of a column; -1 if it is not in `places`."""
    return np.fromiter(map(places.get, column.tolist(), repeat(-1)), np.int64, len(column))


def frame_like(frame: Any, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> Any:
    """Return new columns as a frame of the same library; else as a dictionary of arrays.

    >>> frame_like({}, {"a": [1, 2]})
    {'a': array([1, 2])}
    """
    if not _is_frame(frame):
        return {
            name: column if isinstance(column, np.ndarray) else np.asarray(column)
            for name, column in columns.items()
        }
    import narwhals.stable.v2 as nw

    backend = nw.from_native(frame, eager_only=True).implementation
    mixed = backend.is_pandas()  # stores entries of several types in a column
    ready = {
        name: _plain(column) if mixed else _uniform(column) for name, column in columns.items()
    }
    return nw.from_dict(ready, backend=backend).to_native()


def with_cells(
    frame: Any,
    cells: Mapping[Any, tuple[NDArray[np.int64], Sequence[Any] | NDArray[Any]]],
    where: str = "frame",
    error: type[MinigibbsError] = GraphError,
) -> Any:
    """Return a copy of a frame with other entries in some rows of some columns.

    Columns keep their types, and a pandas frame keeps its index. A categorical column of pandas
    gets new categories where entries need them.

    >>> with_cells({"a": np.array(["x", None])}, {"a": (np.array([1]), ["y"])})["a"].tolist()
    ['x', 'y']
    """
    if not _is_frame(frame):
        whole = {name: np.array(column_of(frame, name)) for name in names_of(frame)}
        for name, (rows, entries) in cells.items():
            if whole[name].dtype.kind in "US":  # string arrays would truncate longer texts
                whole[name] = whole[name].astype(object)
            whole[name][rows] = entries
        return whole
    import narwhals.stable.v2 as nw

    held = nw.from_native(frame, eager_only=True)
    changed = []
    for name, (rows, entries) in cells.items():
        if len(rows):
            series, plain = held.get_column(name), _plain(entries)
            try:
                changed.append(_replaced(series, rows, plain).alias(name))
            except Exception as reason:  # errors of these libraries have no common base
                raise error(
                    f"{where}, column {name!r}: type {series.dtype} cannot hold all of the entries "
                    f"{', '.join(map(repr, list(plain)[:3]))}: {reason}"
                ) from None
    return (held.with_columns(*changed) if changed else held).to_native()


def _replaced(series: Any, rows: NDArray[np.int64], entries: Any) -> Any:
    """Return a series of narwhals with other entries in some rows, and of the same type.

    A series without any value gets the type of the entries: one row of missing text is read as a
    column of floats by pandas.
    """
    import narwhals.stable.v2 as nw

    backend, native = series.implementation, series.to_native()
    untyped = series.dtype.is_float() or series.dtype == nw.Unknown  # a column of nulls is Unknown
    whole = untyped and isinstance(entries, list) and len(rows) == len(series)
    if whole and missing_in(as_column(native, "a column")).all():
        return nw.new_series("", entries, backend=backend)
    kind: Any = getattr(native, "dtype", None)
    if backend.is_pyarrow():
        return nw.from_native(_with_entries(native, rows, entries), series_only=True)
    if backend.is_polars():
        if series.dtype == nw.Object:  # has no scatter
            whole = native.to_list()
            for row, entry in zip(rows.tolist(), entries, strict=True):
                whole[row] = entry
            return nw.from_native(type(native)("", whole, dtype=native.dtype), series_only=True)
        # scatters times of other units without conversion
        return series.scatter(rows, nw.new_series("", entries, series.dtype, backend=backend))
    if hasattr(kind, "ordered"):
        new = [one for one in dict.fromkeys(entries) if one not in kind.categories]
        if new:
            series = nw.from_native(native.cat.add_categories(new), series_only=True)
    elif hasattr(kind, "subtype") and hasattr(kind, "fill_value"):  # sparse: has no scatter
        dense: Any = nw.from_native(native.astype(kind.subtype), series_only=True)
        return nw.from_native(
            dense.scatter(rows, entries).to_native().astype(kind), series_only=True
        )
    return series.scatter(rows, entries)


def _with_entries(column: Any, rows: NDArray[np.int64], entries: Any) -> Any:
    """Return a column of PyArrow, of any type, with other entries in some rows."""
    import pyarrow

    kind = held = column.type
    coded = pyarrow.types.is_dictionary(kind)
    if coded:
        held = kind.value_type
    elif pyarrow.types.is_string_view(kind):  # does not support `take`
        held = pyarrow.large_string()
    place = np.arange(len(column))
    place[rows] = len(column) + np.arange(len(rows))
    chunks = [*column.cast(held).chunks, pyarrow.array(entries).cast(held)]
    made = pyarrow.chunked_array(chunks).take(place)
    return (made.dictionary_encode() if coded else made).cast(kind)


def _is_frame(given: Any) -> bool:
    """Return whether narwhals may know this frame, without any import."""
    if isinstance(given, np.ndarray | Mapping | list | tuple):
        return False
    kind = type(given)
    columns = getattr(kind, "columns", None)  # a method of other classes
    return (columns is not None and not callable(columns)) or hasattr(kind, "column_names")


def _is_mapping(given: Any) -> bool:
    """Return whether it is a mapping from names to columns; some sparse matrices are mappings."""
    return isinstance(given, Mapping) and not is_sparse(type(given))


def _fields(given: Any) -> tuple[str, ...] | None:
    """Return the field names of a structured array."""
    return given.dtype.names if isinstance(given, np.ndarray) else None


def _narwhal(frame: Any, where: str, error: type[MinigibbsError]) -> Any:
    import narwhals.stable.v2 as nw
    from narwhals.exceptions import NarwhalsError

    try:
        return nw.from_native(frame, eager_only=True)
    except (TypeError, NarwhalsError, ValueError) as reason:
        if hasattr(frame, "collect"):
            raise error(f"{where}: a lazy frame has no cells yet; call collect() first") from None
        twice = _repeated(getattr(frame, "column_names", getattr(frame, "columns", ())))
        if twice is not None:
            raise error(f"{where}: more than one column is called {twice!r}") from None
        raise error(f"{where}: expected a frame, got {type(frame).__name__}: {reason}") from None


def _repeated(names: Any) -> Any:
    """Return the first name that appears twice, or None."""
    seen: list[Any] = []
    for name in names:
        if any(name is other or name == other for other in seen if type(name) is type(other)):
            return name
        seen.append(name)
    return None


def _plain(entries: Sequence[Any] | NDArray[Any]) -> Any:
    """Return entries as a list of Python types, or an array of numbers."""
    if isinstance(entries, np.ndarray) and entries.dtype.kind in "biuf":
        return entries
    return list(np.asarray(entries, dtype=object).tolist())


def _uniform(column: Sequence[Any] | NDArray[Any]) -> Any:
    """Return a column that Polars and PyArrow can store: mixed types become text."""
    plain = _plain(column)
    if isinstance(plain, list):
        kinds = {type(entry) for entry in plain if entry is not None}
        wide = int in kinds and any(
            type(entry) is int and not -_WIDEST <= entry < _WIDEST for entry in plain
        )
        if kinds == {int, float} and not wide:
            return [None if entry is None else float(entry) for entry in plain]
        if len(kinds) > 1 or wide:
            return [None if entry is None else str(entry) for entry in plain]
    return plain


def _objects(entries: Sequence[Any]) -> NDArray[Any]:
    column = np.empty(len(entries), dtype=object)
    column[:] = entries
    return column
