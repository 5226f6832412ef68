"""Arrays of other libraries as NumPy arrays: by the DLPack protocol, or sparse ones of SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigibbs.system import memory

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


def is_sparse(kind: type) -> bool:
    """Whether a class is a sparse array or matrix of SciPy, which is not imported to find out.

    >>> is_sparse(np.ndarray)
    False
    """
    return hasattr(kind, "toarray") and hasattr(kind, "tocsr")


def to_numpy(given: Any) -> Any:
    """Another library's array as NumPy's, without a copy if it is on the CPU.

    Anything else is returned as it is. An array on a device is copied from there, and a sparse one
    is filled with its zeros.
    """
    if not is_foreign(type(given)):
        return _dense(given) if is_sparse(type(given)) else given
    if hasattr(given, "detach"):  # PyTorch refuses tensors that require gradients
        given = given.detach()
    try:
        return np.from_dlpack(given)
    except (BufferError, TypeError, RuntimeError, ValueError):  # on a device, or of another type
        for method in ("cpu", "get"):  # of PyTorch and of CuPy
            if hasattr(given, method):
                given = getattr(given, method)()
        return np.asarray(given)


def _dense(given: Any) -> Any:
    memory.require(
        given.dtype.itemsize * float(np.prod(given.shape, dtype=float)),
        f"a sparse array of shape {given.shape} with its zeros",
        "give fewer rows",
    )
    return given.toarray()
