"""The variables of factors as users specify them: by number, by name, or mixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.checks import as_array
from minigibbs.system import memory


def read_scope(kind: str, columns: list[ArrayLike] | ArrayLike, arity: int | None = None) -> Any:
    """Read variables as a read-only array [factors, arity], with all checks that need no graph.

    The array has type int32, or object if it contains names.
    """
    rule = f"{kind}: variables must be integers or names"
    if isinstance(columns, list) and arity is not None:
        arrays = [np.atleast_1d(_read_variables(column, rule)) for column in columns]
        lengths = {len(a) for a in arrays}
        if any(a.ndim != 1 for a in arrays) or len(lengths) != 1:
            shapes = ", ".join(str(a.shape) for a in arrays)
            raise GraphError(f"{kind}: variables must be 1-D arrays of one length, got {shapes}")
    else:
        rule += "; scope must have one row per factor and one column per variable"
        whole = _read_variables(columns, rule)
        if whole.ndim == 1:
            whole = whole[None, :]
        if whole.ndim != 2 or whole.shape[1] == 0:
            raise GraphError(f"{rule}; got shape {whole.shape}")
        if whole.dtype != object:
            return _read_numbers(kind, whole)
        arrays = [whole[:, k] for k in range(whole.shape[1])]
    numbers = len(arrays[0]) * len(arrays)
    memory.require(4 * numbers, f"{kind}: {numbers:,} variables of factors", "use fewer factors")
    for column in arrays:
        bad = np.flatnonzero(_not_variables(column))
        if len(bad):
            raise _no_variable(kind, int(bad[0]), column[bad[:1]].tolist()[0])
    named = any(_has_names(column) for column in arrays)
    scope = np.empty((len(arrays[0]), len(arrays)), dtype=object if named else np.int32)
    for k, column in enumerate(arrays):
        scope[:, k] = column
    if not named:  # otherwise names may refer to the same variable as numbers
        refuse_repeats(scope, lambda factor: f"{kind} factor {factor}")
    scope.flags.writeable = False
    return scope


def _read_numbers(kind: str, whole: NDArray[Any]) -> Any:
    """Read numbers in one array, which may have many columns and no rows."""
    bad = np.argwhere(_not_variables(whole))
    if len(bad):
        factor, place = bad[0].tolist()
        raise _no_variable(kind, factor, whole[factor, place].item())
    scope = whole.astype(np.int32)
    refuse_repeats(scope, lambda factor: f"{kind} factor {factor}")
    scope.flags.writeable = False
    return scope


def _no_variable(kind: str, factor: int, found: Any) -> GraphError:
    return GraphError(
        f"{kind} factor {factor}: a variable must be a name or a non-negative number, got {found!r}"
    )


def _read_variables(given: Any, rule: str) -> NDArray[Any]:
    """Read integers as integers; anything that contains names as objects."""
    array = as_array(given, "iuUTO", rule)
    if array.dtype.kind in "UT":
        # NumPy converts the numbers of a mixed list to text, so lists are read again as objects.
        array = np.array(array if isinstance(given, np.ndarray) else given, dtype=object)
    return array


def _has_names(column: NDArray[Any]) -> bool:
    return column.dtype == object and any(isinstance(entry, str) for entry in column)


def _not_variables(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark entries that are neither names nor numbers that a variable may have."""
    largest = np.iinfo(np.int32).max
    if column.dtype != object:
        return (column < 0) | (column > largest)
    if set(map(type, column)) == {str}:
        return np.zeros(len(column), dtype=np.bool_)
    return np.array(
        [
            not isinstance(entry, str | int | np.integer)
            or isinstance(entry, bool)
            or (not isinstance(entry, str) and not 0 <= entry <= largest)
            for entry in column
        ]
    )


def refuse_repeats(scope: NDArray[np.int32], where: Callable[[int], str]) -> None:
    """Raise an error if a factor has a variable twice; `where` describes a factor in errors."""
    if scope.shape[1] == 2:
        repeated = scope[:, 0] == scope[:, 1]
    elif scope.shape[1] > 2:
        ordered = np.sort(scope, axis=1)
        repeated = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    else:
        return
    if repeated.any():
        factor = int(np.flatnonzero(repeated)[0])
        raise GraphError(
            f"{where(factor)}: the variables of a factor must differ, got {scope[factor].tolist()}"
        )
