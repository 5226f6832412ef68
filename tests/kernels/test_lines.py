"""Arrays aligned to cache lines."""

import numpy as np
import pytest

from minigibbs.kernels.lines import LINE, empty_lines, joined_lines


@pytest.mark.parametrize("shape", [(0,), (1,), (5, 3), (10**6, 8)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.dtype([("a", "f8"), ("b", "i4")])])
def test_arrays_begin_on_a_line(shape, dtype):
    array = empty_lines(shape, dtype)
    assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
    assert array.flags["C_CONTIGUOUS"]
    assert array.ctypes.data % LINE == 0 or not array.size


def test_pieces_are_joined_in_order():
    pieces = [np.arange(12.0).reshape(4, 3), np.ones((1, 3)), np.zeros((0, 3))]
    joined = joined_lines(pieces)
    np.testing.assert_array_equal(joined, np.concatenate(pieces))
    assert joined.ctypes.data % LINE == 0
