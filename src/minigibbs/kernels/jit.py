"""Compilation of all kernels: the options and the disk cache."""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.extending import overload

from minigibbs.system.watch import Compiling

# Two conventions of the innermost loops avoid instructions on GPUs, which limit their speed.
# `while` replaces `range`, whose bookkeeping the CUDA compiler does not optimize away.
# `array[np.uint64(k)]` avoids a test at every access whether k is negative.

F = TypeVar("F", bound=Callable[..., Any])

# No "nnan" or "ninf": weights may overflow to infinity and must then behave as IEEE says.
FAST_MATH = frozenset({"nsz", "arcp", "contract", "afn", "reassoc"})

_COMPILED = (
    "kernels",
    "samplers",
    "observables",
    "running/backends",
    "structure",
)  # folders with functions that compiled code calls

_DIGEST = 32  # bytes of checksum before cached data

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": set(FAST_MATH),
    "_nrt": False,  # no allocation, and so no reference counting in the inner loops
}


def kernel(function: F) -> F:
    """Compile a function that other compiled functions call, on the CPU or in a CUDA kernel.

    It has no Python entry point: unpacking a model's arrays from Python takes longer to compile
    than most kernels. It is not cached on disk either, because its callers are, including all
    functions that they call.
    """
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)


def inlined(function: F) -> F:
    """Compile like `kernel`, but inline at the Numba level: for functions with a single call site.

    This compiles faster than a separate function with all arrays as arguments.
    """
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, inline="always")


def literal(function: F) -> F:
    """Compile like `kernel`, but with sums and products exactly as written: no fast-math.

    This is for numbers that must be bit-identical in every layout and on every device. A product
    that is added is written as `kernels.lanes.fused`, since compilers would differ in fusing it.
    """
    return _compile(
        function, fastmath=False, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True
    )


def entry(function: F) -> F:
    """Compile a function that Python calls, and cache it on disk."""
    return _cached(function)


def literal_entry(function: F) -> F:
    """Compile like `entry`, with sums and products exactly as written; see `literal`."""
    return _cached(function, fastmath=False)


def _cached(function: F, **options: Any) -> F:
    compiled: Any = _compile(function, no_cfunc_wrapper=True, **options)
    if numba.config.DISABLE_JIT == 0:  # type: ignore[attr-defined, unused-ignore]
        with suppress(RuntimeError, OSError):  # the cache is not writable: compile in every process
            compiled._cache = _Cache(function)
    return compiled  # type: ignore[no-any-return]


DISPATCHED: list[tuple[Any, Any]] = []  # the CUDA backend registers these, too


def chosen_by_type(stub: Any) -> Callable[[F], F]:
    """Replace calls of `stub` in compiled code by the function that a template selects by type.

    A call would copy every array of every argument, so it is inlined.
    """

    def register(template: F) -> F:
        options: Any = {"forceinline": True, "_nrt": False}
        overload(stub, jit_options=options)(template)
        DISPATCHED.append((stub, template))
        return template

    return register


def _compile(function: F, **options: Any) -> F:
    return numba.njit(**(_OPTIONS | options))(function)  # type: ignore[no-any-return]


def sealed(data: bytes) -> bytes:
    """Prepend a checksum to data for storage on disk."""
    return hashlib.blake2b(data, digest_size=_DIGEST).digest() + data


def unsealed(path: str | os.PathLike[str]) -> bytes:
    """Read data stored by `sealed`; raise ValueError for a truncated or changed file."""
    content = Path(path).read_bytes()
    data = content[_DIGEST:]
    if sealed(data) != content:
        raise ValueError(f"{path}: torn or changed since it was written")
    return data


class _CacheFile(IndexDataCacheFile):  # type: ignore[misc]
    """Numba's files of one function, with a stamp of all sources and a checksum.

    Numba compares a cached function only with its own file, so after an edit of a callee in another
    file stale machine code would run. Versions are compared before the rest is unpickled, which
    fails if a module has moved since. Machine code with a flipped bit would crash.
    """

    def __init__(self, file: IndexDataCacheFile) -> None:
        vars(self).update(vars(file))
        self._version = (file._version, SOURCES)

    def _load_index(self) -> dict[Any, str]:
        if not os.path.exists(self._index_path):
            return {}
        version, rest = pickle.loads(unsealed(self._index_path))
        stamp, overloads = pickle.loads(rest) if version == self._version else (None, {})
        return overloads if stamp == self._source_stamp else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        rest = self._dump((self._source_stamp, overloads))
        self._write(self._index_path, pickle.dumps((self._version, rest)))

    def _load_data(self, name: str) -> Any:
        return pickle.loads(unsealed(self._data_path(name)))

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), self._dump(data))

    def _write(self, path: str, data: bytes) -> None:
        with self._open_for_write(path) as stream:
            stream.write(sealed(data))


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's disk cache of one function; damaged files and full disks cost only time."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file = _CacheFile(self._cache_file)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load an intact file; damaged files are removed, and the function is compiled again."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # unpickling damaged bytes can raise any exception
            with suppress(OSError):
                Path(self._cache_file._index_path).unlink(missing_ok=True)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the function if possible; the process has it in any case."""
        try:
            super().save_overload(sig, data)
        except (OSError, ValueError):  # no space, or damaged files that cannot be removed
            self.disable()


def _sources() -> tuple[tuple[str, float, int], ...]:
    root = Path(__file__).parent.parent
    paths = sorted(path for folder in _COMPILED for path in (root / folder).rglob("*.py"))
    stats = [(path, path.stat()) for path in paths]
    return tuple((str(p.relative_to(root)), s.st_mtime, s.st_size) for p, s in stats)


SOURCES = _sources()  # file names, times and sizes of all compiled code


class _Compilations(event.Listener):
    """A listener that measures the time of our compilations and disables garbage collection.

    Compilation produces hardly any garbage, and searching for it takes an eighth of the time.
    """

    depth = 0  # compilations of callees are nested
    was_enabled = False
    begun = 0.0

    def on_start(self, event: Any) -> None:
        if _is_ours(event):
            if self.depth == 0:
                self.was_enabled, self.begun = gc.isenabled(), time.monotonic()
                gc.disable()
            self.depth += 1

    def on_end(self, event: Any) -> None:
        if _is_ours(event):
            self.depth -= 1
            if self.depth == 0:
                Compiling.seconds += time.monotonic() - self.begun
                if self.was_enabled:
                    gc.enable()


def _is_ours(event: Any) -> bool:
    module = event.data["dispatcher"].py_func.__module__ or ""  # None after `exec`
    return str(module).startswith("minigibbs.")


event.register("numba:compile", _Compilations())
