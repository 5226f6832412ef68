"""Checks that graphs and factors share: lists, arrays, immutability."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError, MinigibbsError
from minigibbs.system import memory
from minigibbs.system.arrays import to_numpy

_ITEM_BYTES = 40  # bytes per entry of a Python list of numbers
_ENTRY_BYTES = 16  # bytes per entry of an array: a copy of 8 bytes, and scratch of its checks


class Frozen:
    """Base class of immutable objects; constructors write to `vars(self)`."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"a {type(self).__name__} is frozen; build a new one to change {name!r}"
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} is frozen; {name!r} cannot be deleted")


def as_list(given: Any, rule: str) -> list[Any]:
    """Convert an argument to a list, or raise a `GraphError` with the rule."""
    _require_room(_length(given), _ITEM_BYTES, rule, "a sequence")
    try:
        return list(given)
    except TypeError:
        raise GraphError(f"{rule}; got {given!r}") from None


def as_array(
    given: Any, kinds: str, rule: str, error: type[MinigibbsError] = GraphError
) -> NDArray[Any]:
    """Convert to an array of one of NumPy's `kinds`, or raise `error` with the rule.

    Masked values are refused: NumPy would use the numbers behind the mask.
    """
    if has_masked(given):
        raise error(
            f"{rule}; got masked values. Replace them with array.filled(value), or drop their rows"
        )
    try:
        given = to_numpy(given)
        if not isinstance(given, np.ndarray):
            _require_room(_length(given), _ITEM_BYTES, rule, "a sequence")
        array = np.asarray(given)
    except ValueError:
        raise error(f"{rule}; got rows of different lengths") from None
    except (NotImplementedError, RuntimeError, TypeError) as reason:  # the other library's
        kind = f"{type(given).__module__}.{type(given).__name__}"
        raise error(f"{rule}; got {kind}: {reason}") from None
    entries = 1 if is_constant(array) else array.size
    _require_room(entries, _ENTRY_BYTES, rule, f"an array of shape {array.shape}")
    if array.size and array.dtype.kind not in kinds:
        raise error(f"{rule}; got type {array.dtype}")
    return array


def has_masked(given: Any) -> bool:
    """Return whether a masked array, or a list that contains one, has a masked entry.

    >>> has_masked([np.ma.array([1.0, 2.0], mask=[False, True])]), has_masked(np.ma.array([1.0]))
    (True, False)
    """
    if isinstance(given, np.ma.MaskedArray):
        return bool(np.ma.is_masked(given))
    if isinstance(given, list | tuple):
        nested = (np.ma.MaskedArray, list, tuple)
        return any(has_masked(entry) for entry in given if isinstance(entry, nested))
    return False


def _length(given: Any) -> int:
    """Return the length of a sequence; 0 for anything else."""
    return len(given) if isinstance(given, Sized) else 0


def _require_room(entries: int, each: int, rule: str, what: str) -> None:
    """Refuse an argument whose copy would not fit into memory; the rule begins with its name."""
    name = rule.partition(" must")[0]
    memory.require(entries * each, f"{name}: {what} of {entries:,} entries", "give fewer entries")


def frozen(array: ArrayLike, dtype: Any) -> NDArray[Any]:
    """Return a read-only copy, so that changes of the original do not affect a graph."""
    copy = np.array(array, dtype=dtype, order="C")
    copy.flags.writeable = False
    return copy


def constant(value: int, count: int) -> NDArray[np.int32]:
    """Return a read-only array of equal numbers, which stores one number.

    >>> constant(2, 10**9).strides
    (0,)
    """
    return np.broadcast_to(np.array(value, np.int32), count)


def is_constant(array: NDArray[Any]) -> bool:
    """Return whether an array of one axis stores one number for all of its entries."""
    return array.strides == (0,) and len(array) > 0


def some_of(array: NDArray[Any]) -> NDArray[Any]:
    """Return the first entry if all are stored as one number, else all entries.

    >>> len(some_of(constant(2, 10**9)))
    1
    """
    return array[:1] if is_constant(array) else array


def total_of(array: NDArray[np.integer]) -> int:
    """Return the sum of all entries.

    >>> total_of(constant(2, 10**9))
    2000000000
    """
    if is_constant(array):
        return len(array) * int(array[0])
    return int(array.sum(dtype=np.int64))


def call_own(function: Callable[..., Any], arguments: Iterable[Any], what: str) -> Any:
    """Call a user's function; convert its exceptions to a `GraphError` that names the function.

    Parameters
    ----------
    function : callable
        The function, called once.
    arguments : iterable
        Its positional arguments.
    what : str
        Description of the function, which begins the message.

    Returns
    -------
    object
        What the function returns.
    """
    try:
        return function(*arguments)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise GraphError(f"{what} failed on arrays of numbers: {reason}") from error
