"""Conversion of arrays of other libraries to NumPy: by the DLPack protocol, or sparse ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigibbs.system import memory

_KNOWN: dict[type, bool] = {}  # by class, because every argument of a public call is tested


def is_foreign(kind: type) -> bool:
    """Return whether a class is another library's array, such as PyTorch's, JAX's or CuPy's.

    >>> is_foreign(np.ndarray), is_foreign(list)
    (False, False)
    """
    known = _KNOWN.get(kind)
    if known is None:
        known = hasattr(kind, "__dlpack__") and not issubclass(kind, np.ndarray | np.generic)
        _KNOWN[kind] = known
    return known


def is_sparse(kind: type) -> bool:
    """Return whether a class is a sparse array or matrix of SciPy, without importing it.

    >>> is_sparse(np.ndarray)
    False
    """
    return hasattr(kind, "toarray") and hasattr(kind, "tocsr")


def to_numpy(given: Any) -> Any:
    """Convert another library's array to NumPy, without a copy if it is on the CPU.

    Other values are returned unchanged. An array on a device is copied to the host, and a sparse
    one becomes dense. Types that NumPy does not have, such as bfloat16, become float32, which
    represents them exactly.
    """
    if not is_foreign(type(given)):
        return _dense(given) if is_sparse(type(given)) else given
    if hasattr(given, "detach"):  # PyTorch refuses tensors that require gradients
        given = given.detach()
    try:
        return np.from_dlpack(given)
    except (BufferError, TypeError, RuntimeError, ValueError):  # on a device, or of a foreign type
        for method in ("cpu", "get"):  # methods of PyTorch and of CuPy
            if hasattr(given, method):
                given = getattr(given, method)()
        return _widened(given)


def to_scalar(given: Any) -> Any:
    """Convert an array without axes, such as an element of a tensor, to a Python number.

    Other values are returned unchanged.

    >>> to_scalar(np.array(2)), to_scalar("yes")
    (2, 'yes')
    """
    found = to_numpy(given)
    plain = isinstance(found, np.ndarray) and not np.ma.is_masked(found)
    return found.item() if plain and not found.ndim else given


def _widened(given: Any) -> Any:
    """Convert an array on the CPU to NumPy, in a type that NumPy has."""
    try:
        found = np.asarray(given)
    except TypeError:
        if not (hasattr(given, "is_floating_point") and given.is_floating_point()):
            raise
        found = np.asarray(given.float())  # PyTorch's bfloat16
    if found.dtype.kind == "V" and "float" in found.dtype.name:  # JAX's bfloat16
        found = found.astype(np.float32)
    return found


def _dense(given: Any) -> Any:
    memory.require(
        given.dtype.itemsize * float(np.prod(given.shape, dtype=float)),
        f"a sparse array of shape {given.shape} with its zeros",
        "give fewer rows",
    )
    return given.toarray()
