"""Arrays that begin on a line of memory: records of 32 or 64 bytes then lie on one line each.

A processor waits for a line of 64 bytes whichever of them it asked for. NumPy's arrays begin
anywhere, so that every other record of 32 bytes would lie on two lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

LINE = 64  # bytes


def empty_lines(shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """An array of such a shape, with anything in it."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    room = np.empty(size + LINE, np.uint8)
    first = -room.ctypes.data % LINE
    return room[first : first + size].view(dtype).reshape(shape)


def joined_lines(pieces: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Pieces of an array, one after the other."""
    shape = (sum(len(piece) for piece in pieces), *pieces[0].shape[1:])
    return np.concatenate(pieces, out=empty_lines(shape, pieces[0].dtype))
