"""Checks that graphs and factors share: lists, arrays, and what cannot change."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError


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


def as_array(given: Any, kinds: str, rule: str) -> NDArray[Any]:
    """What was given as an array of one of NumPy's `kinds`, or a `GraphError` with the rule."""
    try:
        array = np.asarray(given)
    except ValueError:
        raise GraphError(f"{rule}; got rows of different lengths") from None
    if array.size and array.dtype.kind not in kinds:
        raise GraphError(f"{rule}; got type {array.dtype}")
    return array


def frozen(array: ArrayLike, dtype: Any) -> NDArray[Any]:
    """A read-only copy, so that a graph cannot change behind its own back."""
    copy = np.array(array, dtype=dtype, order="C")
    copy.flags.writeable = False
    return copy
