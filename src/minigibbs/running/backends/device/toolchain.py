"""The compiler of GPU kernels, and the options that only numba-cuda has.

Kernels are written with `cuda` of this module. Modules of kernels must import it by the name
`cuda`, because the simulator replaces that name. Importing this module needs numba-cuda.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from numba import config, cuda

from minigibbs.running.backends.device.stored import StoredKernels

__all__ = ["SIMULATED", "at_most", "cuda", "dispatch_by_type", "entry", "inlined"]

SIMULATED = bool(vars(config)["ENABLE_CUDASIM"])  # kernels run as plain Python

with suppress(ImportError):  # the simulator has no such module
    from numba.cuda.core import config as _own

    # A small model has few blocks of threads, about which its user can do nothing.
    _own.CUDA_LOW_OCCUPANCY_WARNINGS = 0

# A device function inlined into its callers, with sums and products exactly as written.
inlined = cuda.jit(device=True, fastmath=False, **({} if SIMULATED else {"forceinline": True}))


def entry(function: Any = None, **options: Any) -> Any:
    """Compile a kernel that Python launches, and store it on disk.

    Parameters
    ----------
    function : function, optional
        The kernel; if omitted, a decorator is returned.
    **options
        Options of `cuda.jit`.
    """
    if function is None:
        return partial(entry, **options)
    compiled = cuda.jit(**options)(function)
    if not SIMULATED:
        from numba.cuda.dispatcher import _Kernel  # type: ignore[attr-defined, unused-ignore]

        compiled._cache = StoredKernels(function, options, _Kernel)
    return compiled


def at_most(registers: int | None) -> dict[str, Any]:
    """Options of `cuda.jit` that limit the registers of a thread; None sets no limit."""
    return {} if SIMULATED or registers is None else {"max_registers": registers}


def dispatch_by_type(dispatched: Iterable[tuple[Any, Any]]) -> None:
    """Let kernels choose functions by argument types, as compiled code on the CPU does.

    Parameters
    ----------
    dispatched : iterable of (stub, template)
        Stubs that kernels call, and templates that return the function for given types.
    """
    if SIMULATED:  # the stubs choose for themselves in Python
        return
    from numba.cuda.extending import overload  # type: ignore[attr-defined, unused-ignore]

    for stub, template in dispatched:
        overload(stub, jit_options={"forceinline": True})(template)
