"""Launch shapes: the only module that knows the limits of blocks and threads of a device.

Every kernel is configured by `configure`. The second and third axes of a grid are capped, so
kernels stride along them: thread k of `cuda.gridsize` threads computes items k, k + gridsize, ...
If the threads of a kernel must not stride, its second axis is folded over the second and third
axes of the device. The block along this axis is blockIdx.z * gridDim.y + blockIdx.y.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from minigibbs.errors import TooLargeError


class Limits(NamedTuple):
    """Limits of a launch, the same for every GPU of compute capability 3.0 or later."""

    grid: tuple[int, int, int] = (2**31 - 1, 65_535, 65_535)  # blocks per axis
    threads: int = 1024  # per block
    shared: int = 48 * 1024  # bytes of shared memory per block


LIMITS = Limits()


class Shape(NamedTuple):
    """Blocks and threads per axis."""

    grid: tuple[int, ...]
    block: tuple[int, ...]


def launch_shape(
    items: int | tuple[int, ...],
    threads: int | tuple[int, ...],
    shared: int = 0,
    folded: bool = False,
    most: int | None = None,
) -> Shape:
    """Compute the shape of a launch within the limits of a device.

    Parameters
    ----------
    items : int or tuple of int
        Number of threads that have work, per axis: one, two or three axes.
    threads : int or tuple of int
        Threads of a block, per axis; omitted axes have one.
    shared : int, default 0
        Bytes of dynamic shared memory per block.
    folded : bool, default False
        Whether all blocks of the second axis are launched, folded over the second and third
        axes of the grid. Otherwise the second and third axes are capped and the kernel strides.
    most : int, optional
        Most blocks of a grid of two axes, along both of which the kernel strides.

    Returns
    -------
    Shape
        At least one block per axis.

    Raises
    ------
    TooLargeError
        If the first axis or a folded axis needs more blocks than a device can launch, or a
        block needs more threads or shared memory than a device has.
    """
    limits = LIMITS
    items = (items,) if isinstance(items, int) else items
    block = (threads,) if isinstance(threads, int) else threads
    block = block + (1,) * (len(items) - len(block))
    grid = [max(-(-count // each), 1) for count, each in zip(items, block, strict=True)]
    if most is not None:
        across = min(grid[0], most)
        grid = [across, min(grid[1], most // across)]
    if folded:
        layers = -(-grid[1] // limits.grid[1])
        grid = [grid[0], -(-grid[1] // layers), layers]
    asked = {
        "blocks along the first axis": (grid[0], limits.grid[0]),
        "blocks along the folded axis": (grid[2] if folded else 1, limits.grid[2]),
        "threads per block": (math.prod(block), limits.threads),
        "bytes of shared memory per block": (shared, limits.shared),
    }
    for what, (needed, most) in asked.items():
        if needed > most:
            raise TooLargeError(
                f"this run needs {needed:,} {what} of a GPU, which has at most {most:,}; use fewer "
                'chains, or backend="cpu"'
            )
    capped = (min(count, most) for count, most in zip(grid, limits.grid, strict=False))
    return Shape(tuple(capped), block + (1,) * (len(grid) - len(block)))


def configure(
    kernel: Any,
    items: int | tuple[int, ...],
    threads: int | tuple[int, ...],
    shared: int = 0,
    folded: bool = False,
    most: int | None = None,
) -> Any:
    """Return `kernel` with the `launch_shape` of these items; call it with its arguments."""
    grid, block = launch_shape(items, threads, shared, folded, most)
    return kernel[grid, block, 0, shared]
