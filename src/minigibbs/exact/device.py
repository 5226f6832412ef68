"""Products of tables on a GPU by CuPy, with the same plan and the same scales.

`Card` needs a module with NumPy's functions and `asnumpy`. Tests use NumPy itself.

Tables are flat: [row of evidence, entry]. Arrays with one axis per variable would have more axes
than CuPy supports, and CuPy compiles its kernels for every number of axes. Entries are permuted by
computed offsets instead. Products of thin matrices, and sums, are elementwise, because libraries of
matrix products and reductions are slow for millions of tiny matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.system.optional import optional

FASTER = 70.0  # times as fast as predicted for a processor, measured on an H200
LAUNCHES = 1.2e-3  # seconds of the calls that a step needs on the way up and down
_SHARE = 0.9  # of the free memory of a card
_THIN = 8  # rows, columns or depth below which matrices are multiplied elementwise
_MATRICES = 1 << 15  # matrices that are multiplied by one call
_PLACES = 1 << 24  # entries that are permuted at a time
_PARTS = 1 << 12  # parts of a table whose largest entries are found at the same time


class Card:
    """Tables on a GPU.

    Parameters
    ----------
    arrays
        CuPy, or a module with the same functions.
    """

    def __init__(self, arrays: Any) -> None:
        self.arrays = arrays

    @classmethod
    def found(cls) -> Card:
        """Return the GPU of this machine, or raise an error that names what is missing."""
        cupy = optional("cupy", "cupy")
        try:
            cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise SampleError(f"backend='cuda' needs a GPU: {error}") from None
        return cls(cupy)

    def free(self) -> float:
        """Return the number of bytes that may be used."""
        self.arrays.get_default_memory_pool().free_all_blocks()
        return float(_SHARE * self.arrays.cuda.runtime.memGetInfo()[0])

    def put(self, table: NDArray[np.float64]) -> Any:
        """Copy a table to the GPU."""
        return self.arrays.asarray(table.reshape(len(table), -1))

    def get(self, table: Any) -> NDArray[np.float64]:
        """Copy a table, or a column of numbers, from the GPU."""
        return self.arrays.asnumpy(table)  # type: ignore[no-any-return]

    def largest(self, table: Any) -> NDArray[np.float64]:
        """Return the largest entry of each row."""
        return self.get(self._in_parts(table).max(axis=1))

    def least(self, table: Any) -> float:
        """Return the logarithm of the smallest entry that is not 0."""
        positive = self.arrays.where(table > 0, table, 1.0)
        return math.log(float((-self._in_parts(-positive).max(axis=1)).min()))

    def _in_parts(self, table: Any) -> Any:
        """Return the largest entries of parts of each row: one per thread group of a reduction."""
        whole = table.shape[1] - table.shape[1] % _PARTS
        if whole == 0:
            return table
        parts = table[:, :whole].reshape(len(table), _PARTS, -1).max(axis=2)
        return self.arrays.concatenate([parts, table[:, whole:]], axis=1)

    def multiply(
        self,
        sizes: Sequence[int],
        left: tuple[int, ...],
        a: Any,
        right: tuple[int, ...] | None,
        b: Any,
        scope: tuple[int, ...],
    ) -> Any:
        """Multiply as `contraction.multiply` does; the result is flat."""
        kept, other = set(scope), set(right or ())
        left, a = self._summed(sizes, left, a, kept | other)
        if b is None or right is None:
            return a
        one = set(left)
        right, b = self._summed(sizes, right, b, kept | one)
        both = [v for v in left if v in other and v in kept]
        depth = [v for v in left if v in other and v not in kept]
        rows = [v for v in left if v not in other]
        columns = [v for v in right if v not in one]
        groups = (both, rows, columns, depth)
        count, high, wide, deep = (math.prod(sizes[v] for v in some) for some in groups)
        if deep < _THIN or (count > _MATRICES and min(high, wide) < _THIN):
            first = self._stack(sizes, left, a, (depth, both, rows))
            second = self._stack(sizes, right, b, (depth, both, columns))
            out = self._outer(first, second)
        else:
            first = self._stack(sizes, left, a, (both, rows, depth))
            second = self._stack(sizes, right, b, (both, depth, columns))
            out = self._matmul(first, second)
        return out.reshape(len(out), -1)

    def _outer(self, first: Any, second: Any) -> Any:
        """Sum the products of stacks [row, depth, matrix, row or column] over their depth."""
        out = first[:, 0, :, :, None] * second[:, 0, :, None, :]
        for k in range(1, first.shape[1]):
            out += first[:, k, :, :, None] * second[:, k, :, None, :]
        return out

    def _matmul(self, first: Any, second: Any) -> Any:
        """Multiply stacks [row, matrix, row, depth] and [row, matrix, depth, column]."""
        count = first.shape[1]
        if count <= _MATRICES:
            return self.arrays.matmul(first, second)
        pieces = [
            self.arrays.matmul(first[:, k : k + _MATRICES], second[:, k : k + _MATRICES])
            for k in range(0, count, _MATRICES)
        ]
        return self.arrays.concatenate(pieces, axis=1)

    def _summed(
        self, sizes: Sequence[int], scope: tuple[int, ...], table: Any, kept: set[int]
    ) -> tuple[tuple[int, ...], Any]:
        """Sum a table over the variables that are not kept, by adding halves."""
        inner = tuple(v for v in scope if v not in kept)
        if not inner:
            return scope, table
        outer = tuple(v for v in scope if v in kept)
        left = self._stack(sizes, scope, table, (inner, outer))
        while left.shape[1] > 1:
            half, odd = divmod(left.shape[1], 2)
            rest = left[:, 2 * half :]
            left = left[:, :half] + left[:, half : 2 * half]
            if odd:
                left[:, 0] += rest[:, 0]
        return outer, left[:, 0]

    def _stack(
        self,
        sizes: Sequence[int],
        scope: tuple[int, ...],
        table: Any,
        groups: Sequence[Sequence[int]],
    ) -> Any:
        """Return a table with permuted entries, as [row of evidence, one axis per group]."""
        wanted = tuple(v for group in groups for v in group)
        shape = [math.prod(sizes[v] for v in group) for group in groups]
        if wanted != scope:
            table = self._permuted(sizes, scope, table, wanted)
        return table.reshape(len(table), *shape)

    def _permuted(
        self,
        sizes: Sequence[int],
        scope: tuple[int, ...],
        table: Any,
        wanted: tuple[int, ...],
    ) -> Any:
        """Return a table with its entries in the order of other axes."""
        step, strides = 1, dict[int, int]()
        for v in reversed(scope):
            strides[v] = step
            step *= sizes[v]
        shape = [sizes[v] for v in wanted]
        split, inner = len(shape), 1
        while split > 0 and inner * inner < table.shape[1]:
            split -= 1
            inner *= shape[split]
        steps = [strides[v] for v in wanted]
        first = self.arrays.asarray(offsets(shape[:split], steps[:split]))
        rest = self.arrays.asarray(offsets(shape[split:], steps[split:]))
        out = self.arrays.empty((len(table), len(first), len(rest)))
        length = max(1, _PLACES // len(rest))
        for k in range(0, len(first), length):
            some = first[k : k + length, None] + rest
            out[:, k : k + length] = self.arrays.take(table, some, axis=1)
        return out


def offsets(shape: Sequence[int], strides: Sequence[int]) -> NDArray[np.int64]:
    """Return the offsets of all entries of some axes, the last axis fastest."""
    found = np.zeros(1, dtype=np.int64)
    for size, stride in zip(shape, strides, strict=True):
        found = (found[:, None] + np.arange(size) * stride).reshape(-1)
    return found
