"""Arrays aligned to cache lines, so that records of 32 or 64 bytes do not cross a line.

A processor loads entire lines of 64 bytes. NumPy's arrays begin at any address, so every other
record of 32 bytes could extend over two lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

LINE = 64  # bytes


def empty_lines(shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """Return an uninitialized array of this shape."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    buffer = np.empty(size + LINE, np.uint8)
    first = -buffer.ctypes.data % LINE
    return buffer[first : first + size].view(dtype).reshape(shape)


def joined_lines(pieces: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate pieces of an array."""
    shape = (sum(len(piece) for piece in pieces), *pieces[0].shape[1:])
    return np.concatenate(pieces, out=empty_lines(shape, pieces[0].dtype))
