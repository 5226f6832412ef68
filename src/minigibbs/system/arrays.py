"""Arrays of other libraries as NumPy arrays, by the DLPack protocol."""

from __future__ import annotations

from typing import Any

import numpy as np

_KNOWN: dict[type, bool] = {}  # by class, since every argument of a public call is looked at


def is_foreign(kind: type) -> bool:
    """Whether a class is another library's array: PyTorch's, JAX's, CuPy's.

    >>> is_foreign(np.ndarray), is_foreign(list)
    (False, False)
    """
    known = _KNOWN.get(kind)
    if known is None:
        known = hasattr(kind, "__dlpack__") and not issubclass(kind, np.ndarray | np.generic)
        _KNOWN[kind] = known
    return known


def to_numpy(given: Any) -> Any:
    """Another library's array as NumPy's, without a copy if it is on the CPU.

    Anything else is returned as it is. An array on a device is copied from there. Numbers of
    types that NumPy does not have, such as bfloat16, become float32, which holds them exactly.
    """
    if not is_foreign(type(given)):
        return given
    if hasattr(given, "detach"):  # PyTorch refuses tensors that require gradients
        given = given.detach()
    try:
        return np.from_dlpack(given)
    except (BufferError, TypeError, RuntimeError, ValueError):  # on a device, or of another type
        for method in ("cpu", "get"):  # of PyTorch and of CuPy
            if hasattr(given, method):
                given = getattr(given, method)()
        return _widened(given)


def _widened(given: Any) -> Any:
    """An array on the CPU as NumPy's, in a type that NumPy has."""
    try:
        found = np.asarray(given)
    except TypeError:
        if not (hasattr(given, "is_floating_point") and given.is_floating_point()):
            raise
        found = np.asarray(given.float())  # PyTorch's bfloat16
    if found.dtype.kind == "V" and "float" in found.dtype.name:  # JAX's bfloat16
        found = found.astype(np.float32)
    return found
