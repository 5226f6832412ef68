"""Compiled GPU kernels on disk, so that only the first process on a machine compiles them.

Numba's own cache is not sufficient. It compares only the file of the kernel, not the files of the
functions that the kernel calls. It also identifies captured functions by numbers that differ in
every process.
"""

from __future__ import annotations

import hashlib
import pickle
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core.caching import FunctionCache

from minigibbs.kernels.jit import SOURCES, sealed, unsealed
from minigibbs.system import files

_OURS = "minigibbs."
_CODE_OF = ("numpy", "numba", "builtins", "minigibbs")  # packages whose types have stable names
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)


class UnstoredError(Exception):
    """A kernel depends on a value without a description that is stable across processes."""


class StoredKernels:
    """Compiled versions of one kernel on disk; replaces the cache of a dispatcher.

    Damaged files and full disks cost only time. A kernel that cannot be read is compiled. A kernel
    that cannot be written is compiled again in the next process. Kernels that call functions
    outside this package, such as a user's own observables, are never stored.

    Parameters
    ----------
    function : function
        The Python function of the kernel.
    options : dict
        The options of its compilation.
    kind : type
        The class of compiled kernels of numba-cuda. It serializes a kernel by
        `kernel._reduce_states()` and restores it by `kind._rebuild(**states)`.
    """

    compiled = 0  # kernels that this process compiled and could store
    loaded = 0  # kernels that this process read from disk

    def __init__(self, function: Any, options: dict[str, Any], kind: Any) -> None:
        self._function, self._options, self._kind = function, options, kind
        self._folder: Path | None = None
        with suppress(RuntimeError, OSError):  # there is no writable folder
            self._folder = Path(FunctionCache(function)._cache_path)

    @property
    def cache_path(self) -> str:
        """The folder of the files, which Numba's statistics read."""
        return str(self._folder)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the kernel for these argument types, or None if it must be compiled."""
        path, version = self._place(signature, context.codegen())
        if path is None:
            return None
        try:
            stated, payload = pickle.loads(unsealed(path))
            if stated != version:
                return None
            kernel = self._kind._rebuild(**pickle.loads(payload))
        except Exception:  # unpickling damaged bytes may raise any exception
            return None
        StoredKernels.loaded += 1
        return kernel

    def save_overload(self, signature: Any, kernel: Any) -> None:
        """Store a compiled kernel if possible."""
        path, version = self._place(signature, kernel.codegen)
        if path is None:
            return
        StoredKernels.compiled += 1
        with suppress(Exception):  # unpicklable values, a full disk, a read-only folder
            payload = pickle.dumps(kernel._reduce_states())
            data = sealed(pickle.dumps((version, payload)))
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_whole(path, lambda stream: stream.write(data))

    def flush(self) -> None:
        """Do nothing: files of other versions are replaced when kernels are compiled."""

    def _place(self, signature: Any, codegen: Any) -> tuple[Path | None, Any]:
        """Return the file of a version and its expected key; (None, None) if it is not stored."""
        try:
            what = (identity(self._function), identity(signature), identity(self._options))
        except UnstoredError:
            return None, None
        if self._folder is None:
            return None, None
        key = (what, codegen.magic_tuple())  # CUDA runtime and architecture
        digest = hashlib.blake2b(repr(key).encode(), digest_size=12).hexdigest()
        name = f"{self._function.__name__}-{digest}.cuda"
        return self._folder / name, (key, _versions(), SOURCES)


def identity(value: Any) -> Any:
    """Describe what a kernel depends on, identically in every process.

    Parameters
    ----------
    value : object
        A function, a captured value, an option, or argument types.

    Returns
    -------
    nested tuples of text and numbers

    Raises
    ------
    UnstoredError
        If the value, or one of its parts, has no such description.
    """
    if isinstance(value, _PLAIN):
        return type(value).__name__, repr(value)
    if isinstance(value, tuple | list):
        return tuple(identity(one) for one in value)
    if isinstance(value, set | frozenset):
        return tuple(sorted(repr(identity(one)) for one in value))
    if isinstance(value, dict):
        return tuple((str(name), identity(value[name])) for name in sorted(value, key=str))
    if isinstance(value, types.Type):
        return _type_identity(value)
    if isinstance(value, type):
        return _named(value)
    if isinstance(value, FunctionType):
        return _function_identity(value)
    function = getattr(value, "py_func", None)  # attribute of Numba's dispatchers
    if isinstance(function, FunctionType):
        return "compiled", _function_identity(function), identity(_options_of(value))
    if hasattr(value, "args") and hasattr(value, "return_type"):  # a signature
        return "signature", identity(tuple(value.args))
    raise UnstoredError(type(value).__name__)


def _type_identity(kind: Any) -> Any:
    if isinstance(kind, types.BaseTuple):
        named = getattr(kind, "instance_class", None)  # attribute of named tuples
        return "tuple", named and _named(named), identity(tuple(getattr(kind, "types", ())))
    if isinstance(kind, types.Array | types.Number | types.Boolean | types.Record | types.NoneType):
        return "type", str(kind)
    raise UnstoredError(str(kind))


def _function_identity(function: FunctionType) -> Any:
    """Describe its location and captured values; `SOURCES` covers this package's sources."""
    if not (function.__module__ or "").startswith(_OURS):  # generated functions have no module
        raise UnstoredError(function.__qualname__)
    captured = tuple(cell.cell_contents for cell in function.__closure__ or ())
    line = function.__code__.co_firstlineno
    return function.__module__, function.__qualname__, line, identity(captured)


def _options_of(dispatcher: Any) -> dict[str, Any]:
    return {
        name: option
        for name, option in dispatcher.targetoptions.items()
        if isinstance(option, (*_PLAIN, set, frozenset))
    }


def _named(kind: type) -> Any:
    if kind.__module__.split(".")[0] not in _CODE_OF:
        raise UnstoredError(kind.__qualname__)
    return kind.__module__, kind.__qualname__


def _versions() -> tuple[str, ...]:
    from llvmlite import __version__ as llvmlite

    return numba.__version__, llvmlite, np.__version__
