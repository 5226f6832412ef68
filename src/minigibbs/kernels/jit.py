"""How every kernel is compiled: the options and the disk cache, in one place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.extending import overload

# Two habits of the innermost loops, for the sake of GPUs, where instructions are what is scarce:
# `while` in place of `range`, whose bookkeeping their compiler does not see through, and
# `array[np.uint64(k)]`, so that it does not ask at every access whether k is negative.

F = TypeVar("F", bound=Callable[..., Any])

# No "nnan" or "ninf": weights may overflow to infinity and must then behave as IEEE says.
FAST_MATH = frozenset({"nsz", "arcp", "contract", "afn", "reassoc"})

_COMPILED = ("kernels", "samplers", "backends")  # folders whose functions compiled code calls

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": set(FAST_MATH),
    "_nrt": False,  # no allocation, and so no counting of references in the inner loops
}


def kernel(function: F) -> F:
    """Compile a function that other compiled functions call, on the CPU or in a CUDA kernel.

    It has no Python entry: unpacking a model's arrays from Python costs more to compile than
    most kernels do.
    """
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)


def inlined(function: F) -> F:
    """As `kernel`, but copied into its caller: for what is called from one place only."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, inline="always")


def entry(function: F) -> F:
    """Compile a function that Python calls."""
    return _compile(function, no_cfunc_wrapper=True)


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
    try:
        compiled = numba.njit(cache=True, **_OPTIONS, **options)(function)
    except RuntimeError:  # nowhere to write a cache: compile in every process instead
        return numba.njit(**_OPTIONS, **options)(function)  # type: ignore[no-any-return]
    if numba.config.DISABLE_JIT == 0:  # type: ignore[attr-defined, unused-ignore]
        _stamp(compiled)
    return compiled  # type: ignore[no-any-return]


def _stamp(compiled: Any) -> None:
    """Tie the cache to all sources that compiled functions call.

    Numba ties a cached function to its own file alone, so an edit of a callee in another file
    would go unnoticed and stale machine code would run.
    """
    file = compiled._cache._cache_file
    file._source_stamp = (file._source_stamp, _SOURCES)


def _sources() -> tuple[tuple[str, float, int], ...]:
    root = Path(__file__).parent.parent
    paths = sorted(path for folder in _COMPILED for path in (root / folder).rglob("*.py"))
    stats = [(path, path.stat()) for path in paths]
    return tuple((str(p.relative_to(root)), s.st_mtime, s.st_size) for p, s in stats)


_SOURCES = _sources()
