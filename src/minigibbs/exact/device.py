"""Products of tables on a GPU by CuPy, with the same plan and the same scales.

`Card` needs a module with NumPy's functions and `asnumpy`. Tests use NumPy itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.system.optional import optional

FASTER = 30.0  # times as fast as predicted for a processor
LAUNCHES = 1e-4  # seconds of the calls that a step needs on the way up and down
_SHARE = 0.9  # of the free memory of a card


class Card:
    """Arrays on a GPU.

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
        return self.arrays.asarray(table)

    def get(self, table: Any) -> NDArray[np.float64]:
        """Copy a table from the GPU."""
        return self.arrays.asnumpy(table)  # type: ignore[no-any-return]

    def least(self, table: Any) -> float:
        """Return the logarithm of the smallest entry that is not 0."""
        return math.log(float(self.arrays.where(table > 0, table, 1.0).min()))

    def multiply(
        self,
        sizes: Sequence[int],
        left: tuple[int, ...],
        a: Any,
        right: tuple[int, ...] | None,
        b: Any,
        scope: tuple[int, ...],
    ) -> Any:
        """Multiply as `contraction.multiply` does: permute all axes, then multiply matrices."""
        kept, other = set(scope), set(right or ())
        left, a = self._summed(left, a, kept | other)
        if b is None or right is None:
            return a
        one = set(left)
        right, b = self._summed(right, b, kept | one)
        both = [v for v in left if v in other and v in kept]
        depth = [v for v in left if v in other and v not in kept]
        rows = [v for v in left if v not in other]
        columns = [v for v in right if v not in one]
        first = self._matrices(sizes, left, a, (both, rows, depth))
        second = self._matrices(sizes, right, b, (both, depth, columns))
        out = self.arrays.matmul(first, second)
        return out.reshape(len(out), *(sizes[v] for v in (*both, *rows, *columns)))

    @staticmethod
    def _summed(scope: tuple[int, ...], table: Any, kept: set[int]) -> tuple[tuple[int, ...], Any]:
        axes = tuple(1 + k for k, v in enumerate(scope) if v not in kept)
        if not axes:
            return scope, table
        return tuple(v for v in scope if v in kept), table.sum(axis=axes)

    def _matrices(
        self,
        sizes: Sequence[int],
        scope: tuple[int, ...],
        table: Any,
        groups: tuple[list[int], list[int], list[int]],
    ) -> Any:
        """Return a table as a stack of matrices [row of evidence, matrix, row, column]."""
        wanted = [v for group in groups for v in group]
        moved = table.transpose([0, *(1 + scope.index(v) for v in wanted)])
        shape = [math.prod(sizes[v] for v in group) for group in groups]
        return self.arrays.ascontiguousarray(moved).reshape(len(table), *shape)
