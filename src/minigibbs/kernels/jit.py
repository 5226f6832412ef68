"""How every kernel is compiled: the options and the disk cache, in one place."""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.extending import overload

from minigibbs.system.watch import Compiling

# Two habits of the innermost loops, for the sake of GPUs, where instructions are what is scarce:
# `while` instead of `range`, whose bookkeeping their compiler does not see through, and
# `array[np.uint64(k)]`, so that it does not ask at every access whether k is negative.

F = TypeVar("F", bound=Callable[..., Any])

# No "nnan" or "ninf": weights may overflow to infinity and must then behave as IEEE says.
FAST_MATH = frozenset({"nsz", "arcp", "contract", "afn", "reassoc"})

_COMPILED = (
    "kernels",
    "engine",
    "samplers",
    "observables",
    "running/backends",
    "structure",
)  # folders whose functions compiled code calls

_DIGEST = 32  # bytes of checksum before what is cached

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": set(FAST_MATH),
    "_nrt": False,  # no allocation, and so no counting of references in the inner loops
}


def kernel(function: F) -> F:
    """Compile a function that other compiled functions call, on the CPU or in a CUDA kernel.

    It has no Python entry: unpacking a model's arrays from Python costs more to compile than
    most kernels do. Nor is it kept on disk: what calls it is, with all that it calls.
    """
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)


def inlined(function: F) -> F:
    """As `kernel`, but copied into its caller: for what a loop calls from one place only.

    That is quicker to compile than a function of its own, with all the arrays handed over. Sums and
    products are as exact as in the caller.
    """
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, inline="always")


def literal(function: F) -> F:
    """As `kernel`, but with sums and products exactly as written: no fast-math.

    For numbers that must have the same bits in every layout and on every device. A product that
    is added is written as `kernels.lanes.fused`, since devices would differ in fusing it.
    """
    return _compile(
        function, fastmath=False, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True
    )


def entry(function: F) -> F:
    """Compile a function that Python calls, and keep it on disk."""
    return _cached(function)


def literal_entry(function: F) -> F:
    """As `entry`, with sums and products exactly as written; see `literal`."""
    return _cached(function, fastmath=False)


def _cached(function: F, **options: Any) -> F:
    compiled: Any = _compile(function, no_cfunc_wrapper=True, **options)
    if numba.config.DISABLE_JIT == 0:  # type: ignore[attr-defined, unused-ignore]
        with suppress(RuntimeError, OSError):  # nowhere to write: compile in every process
            compiled._cache = _Cache(function)
    return compiled  # type: ignore[no-any-return]


DISPATCHED: list[tuple[Any, Any]] = []  # what the CUDA backend registers for itself as well


def chosen_by_type(stub: Any) -> Callable[[F], F]:
    """Let compiled code that calls `stub` call what a template chooses by the arguments' types.

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
    """Data with a checksum before it, as it is kept on disk."""
    return hashlib.blake2b(data, digest_size=_DIGEST).digest() + data


def unsealed(path: str | os.PathLike[str]) -> bytes:
    """Read what `sealed` made; a file that was torn or changed is a ValueError."""
    content = Path(path).read_bytes()
    data = content[_DIGEST:]
    if sealed(data) != content:
        raise ValueError(f"{path}: torn or changed since it was written")
    return data


class _CacheFile(IndexDataCacheFile):  # type: ignore[misc]
    """Numba's files of one function: tied to all sources, and sealed by a checksum.

    Numba ties a cached function to its own file alone, so an edit of a callee in another file would
    go unnoticed and stale machine code would run. Versions are compared before the rest is
    unpickled, which fails where a module has moved since. Machine code with a flipped bit would
    crash.
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
    """Numba's disk cache of one function; damaged files and full disks only cost time."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file = _CacheFile(self._cache_file)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load what is there and sound; damaged files are removed, and compiled anew.

        Numba first loads everything that it can compile, which takes 0.4 s and imports
        `scipy.linalg`. Machine code needs none of it. Numba does it later, where it compiles.
        """
        try:
            with _compilations.counted():
                return self._load_overload(sig, target_context)
        except Exception:  # unpickling raises whatever damaged bytes ask for
            with suppress(OSError):
                Path(self._cache_file._index_path).unlink(missing_ok=True)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save if that is possible; the process has the function in any case."""
        try:
            with _compilations.counted():
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
    """While Numba compiles a function of ours, time is counted and no garbage is collected.

    There is hardly any garbage, and looking for it takes an eighth of the time. Reading machine
    code from disk and writing it count as well.
    """

    depth = 0  # Numba compiles one function at a time, and those that it calls within
    was_enabled = False
    begun = 0.0

    def on_start(self, event: Any) -> None:
        if _is_ours(event):
            self._begin()

    def on_end(self, event: Any) -> None:
        if _is_ours(event):
            self._end()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the time of a `with` block."""
        self._begin()
        try:
            yield
        finally:
            self._end()

    def _begin(self) -> None:
        if self.depth == 0:
            self.was_enabled, self.begun = gc.isenabled(), time.monotonic()
            gc.disable()
        self.depth += 1

    def _end(self) -> None:
        self.depth -= 1
        if self.depth == 0:
            Compiling.seconds += time.monotonic() - self.begun
            if self.was_enabled:
                gc.enable()


def _is_ours(event: Any) -> bool:
    module = event.data["dispatcher"].py_func.__module__ or ""  # none of what `exec` made
    return str(module).startswith("minigibbs.")


_compilations = _Compilations()
event.register("numba:compile", _compilations)
