"""Repeated kernel launches whose arguments are prepared once.

Numba determines the types of all arguments at every launch and unpacks arrays. With a dozen arrays
this takes longer than a sweep of a million spins. Here Numba makes the first two launches. Later
launches reuse the argument words of the second, in which only the sweep number changes. This relies
on internals of Numba that may change. If one is missing, Numba makes every launch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from minigibbs.running.backends.device.shapes import configure


class Again:
    """A configured kernel and its arguments, one of which may be a number that changes.

    Parameters
    ----------
    launch : kernel with a launch shape
    before : tuple
        The arguments before the number, or all of them.
    after : tuple or None
        The arguments after the number; None if there is no number.
    """

    def __init__(self, launch: Any, before: tuple[Any, ...], after: tuple[Any, ...] | None) -> None:
        self.launch, self.before, self.after = launch, before, after
        self._quick: Callable[[int], None] | None = None
        self._made, self._thread = 0, 0

    def __call__(self, number: int = 0) -> None:
        """Launch the kernel; returns before it is done."""
        given = self.before if self.after is None else (*self.before, number, *self.after)
        if self._quick is not None and threading.get_ident() == self._thread:
            self._quick(number)
            return
        self._made += 1
        if self._made != 2:  # many kernels are launched only once
            self.launch(*given)
            return
        kernel = _launched(self.launch, given)
        if kernel is not None:
            self._quick = _quick(self.launch, kernel, self.before, self.after)
            self._thread = threading.get_ident()  # the thread in which the device is current


def blocks_at_once(kernel: Any, threads: tuple[int, ...], arguments: tuple[Any, ...]) -> int:
    """Return how many blocks of a kernel fit on the device at once.

    All blocks of a kernel must fit if they wait for each other.

    Parameters
    ----------
    kernel : kernel
    threads : tuple of int
        The threads of a block.
    arguments : tuple
        Arguments for which the kernel does nothing.

    Returns
    -------
    int
        0 if such a kernel cannot be linked, or if Numba does not tell.
    """
    try:
        compiled = _launched(configure(kernel, threads, threads), arguments)
        compiled = compiled or kernel.overloads[()]  # the simulator's
        return int(compiled.max_cooperative_grid_blocks(threads))
    except (AttributeError, KeyError, OSError, RuntimeError):
        return 0


def _launched(launch: Any, arguments: tuple[Any, ...]) -> Any:
    """Launch through Numba; return the compiled kernel, or None if Numba's internals differ."""
    callbacks: Any = getattr(launch, "pre_launch_callbacks", None)
    if not isinstance(callbacks, list):
        launch(*arguments)
        return None
    seen, own = [], threading.get_ident()

    def watch(kernel: Any, launch: Any) -> None:  # other threads may launch the same kernel
        if threading.get_ident() == own:
            seen.append(kernel)

    callbacks.append(watch)
    try:
        launch(*arguments)
    finally:
        callbacks.remove(watch)
    return seen[-1] if seen else None


def _quick(
    launch: Any, kernel: Any, before: tuple[Any, ...], after: tuple[Any, ...] | None
) -> Callable[[int], None] | None:
    """Return a function that launches a kernel with a number; None if Numba's internals differ."""
    try:
        core: Any = import_module("cuda.core")
        if kernel.debug or kernel.extensions:
            return None
        words: list[Any] = []
        places: list[int] = []
        given = before if after is None else (*before, 0, *after)
        for kind, value in zip(kernel.argument_types, given, strict=True):
            places.append(len(words))
            kernel._prepare_args(kind, value, launch.stream, [], words)
        number = None if after is None else words[places[len(before)]]
        if number is not None:
            number.value = 0
        together = {"is_cooperative": True} if kernel.cooperative else {}
        shape = core.LaunchConfig(
            grid=launch.griddim, block=launch.blockdim, shmem_size=launch.sharedmem, **together
        )
        start, stream = core.launch, launch.stream
        function = kernel._codelibrary.get_cufunc().kernel
    except (AttributeError, ImportError, TypeError, ValueError):
        return None

    def run(which: int) -> None:
        if number is not None:
            number.value = which
        start(stream, shape, function, *words)

    return run
