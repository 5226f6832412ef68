"""The current GPU: whether there is one, and its memory."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from minigibbs.errors import MissingDependencyError, SampleError


def load(name: str) -> Any:
    """Import a module of kernels.

    Parameters
    ----------
    name : str
        Name of the module in `minigibbs.running.backends`.

    Returns
    -------
    module

    Raises
    ------
    MissingDependencyError
        If numba-cuda is not installed.
    SampleError
        If there is no GPU.
    """
    if not hasattr(np, "row_stack"):  # numba-cuda still uses a name that NumPy 2.5 removed
        setattr(np, "row_stack", np.vstack)  # noqa: B010
    try:
        from numba import cuda

        kernels = import_module(f"minigibbs.running.backends.{name}")
    except ImportError:
        raise MissingDependencyError(
            'backend="cuda" needs numba-cuda: pip install "minigibbs[cuda]"'
        ) from None
    if not cuda.is_available():
        raise SampleError(
            'backend="cuda" needs an NVIDIA GPU and its driver, and found none; '
            'backend="cpu" runs everywhere'
        )
    return kernels


class Device:
    """Memory of the current GPU."""

    def __init__(self) -> None:
        from numba import cuda

        self._cuda: Any = cuda

    def free_bytes(self) -> int:
        """Return the number of free bytes; the simulator reports infinitely many."""
        free: int = self._cuda.current_context().get_memory_info().free
        return free

    def device_array(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Any:
        """Return an array on the GPU, with arbitrary contents."""
        return self._cuda.device_array(shape, dtype)

    def to_device(self, array: NDArray[Any]) -> Any:
        """Copy an array to the GPU."""
        return self._cuda.to_device(array)

    def synchronize(self) -> None:
        """Wait until all launches have ended."""
        self._cuda.synchronize()


def to_device(device: Device, value: Any) -> Any:
    """Copy the arrays of a value to the GPU; tuples keep their type, scalars are unchanged."""
    if isinstance(value, tuple):
        parts = [to_device(device, part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return device.to_device(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value
