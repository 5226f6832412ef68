"""Checks that graphs and factors share: lists, arrays, missing values, immutability."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError, MinigibbsError


class Frozen:
    """What cannot change once it is built; constructors write to `vars(self)`."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"a {type(self).__name__} is frozen; build a new one to change {name!r}"
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} is frozen; {name!r} cannot be deleted")


def as_list(given: Any, rule: str) -> list[Any]:
    """What was given as a list, or a `GraphError` that states the rule."""
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
        array = np.asarray(given)
    except ValueError:
        raise error(f"{rule}; got rows of different lengths") from None
    if array.size and array.dtype.kind not in kinds:
        raise error(f"{rule}; got type {array.dtype}")
    return array


def has_masked(given: Any) -> bool:
    """Whether a masked array, or a list with one inside, holds a masked entry.

    >>> has_masked([np.ma.array([1.0, 2.0], mask=[False, True])]), has_masked(np.ma.array([1.0]))
    (True, False)
    """
    if isinstance(given, np.ma.MaskedArray):
        return bool(np.ma.is_masked(given))
    if isinstance(given, list | tuple):
        nested = (np.ma.MaskedArray, list, tuple)
        return any(has_masked(entry) for entry in given if isinstance(entry, nested))
    return False


def is_missing(value: Any) -> bool:
    """Whether a cell is missing: None, NaN, NaT, the NA of pandas.

    >>> [is_missing(value) for value in (None, float("nan"), np.datetime64("NaT"), 0, "")]
    [True, True, True, False, False]
    """
    try:
        return value is None or value is np.ma.masked or bool(value != value)
    except TypeError:  # comparisons with the NA of pandas have no truth value
        return True


def frozen(array: ArrayLike, dtype: Any) -> NDArray[Any]:
    """A read-only copy, so that a graph cannot change behind its own back."""
    copy = np.array(array, dtype=dtype, order="C")
    copy.flags.writeable = False
    return copy
