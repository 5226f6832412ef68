"""Sums of products of tables over some of their axes: the inner loop of variable elimination."""

from __future__ import annotations

import math

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from minigibbs.kernels.jit import entry, inlined


@intrinsic
def _at(context, place):
    """The double at a place in memory, counted in doubles: what `place_of` gave, and on."""

    def generate(context, builder, signature, arguments):
        address = builder.mul(arguments[0], ir.Constant(ir.IntType(64), 8))
        return builder.load(builder.inttoptr(address, ir.DoubleType().as_pointer()))

    return types.float64(types.int64), generate


def place_of(table):
    """Where a contiguous array of doubles lies, in doubles; it must outlive what reads it."""
    return table.ctypes.data // 8


@inlined
def _step(digits, sizes, first, last, strides, offsets):
    """Go to the next entry of axes [first, last), the last one fastest, as an odometer does."""
    axis = last - 1
    while axis >= first:
        digits[axis] += 1
        if digits[axis] < sizes[axis]:
            for part in range(len(offsets)):
                offsets[part] += strides[part, axis]
            return
        digits[axis] = 0
        for part in range(len(offsets)):
            offsets[part] -= strides[part, axis] * (sizes[axis] - 1)
        axis -= 1


@inlined
def _sum(offsets):
    total = 0.0
    for part in range(len(offsets)):
        total += _at(offsets[part])
    return total


@inlined
def _multiply(offsets, summed, s, index, product):
    """Set product[t] to the product of all parts at entry t of the block, for one summed entry."""
    parts, block = index.shape
    for t in range(block):
        product[t] = _at(offsets[0] + summed[0, s] + index[0, t])
    part = 1
    while part + 1 < parts:  # two at a time, since every pass reads and writes the products
        one, two = offsets[part] + summed[part, s], offsets[part + 1] + summed[part + 1, s]
        for t in range(block):
            product[t] *= _at(one + index[part, t]) * _at(two + index[part + 1, t])
        part += 2
    if part < parts:
        one = offsets[part] + summed[part, s]
        for t in range(block):
            product[t] *= _at(one + index[part, t])


@entry
def sum_products(offsets, strides, sizes, digits, index, summed, product, out):
    """Set `out` to sums of products of parts, block by block.

    Axes are those of blocks, with `sizes` and `strides` [part, axis], 0 where a part does not have
    that axis; then those within a block, whose places in each part are in `index` [part, entry];
    then those that are summed over, whose places are in `summed` [part, entry]. The first block is
    that of `digits`, where parts begin at `offsets`, as `place_of` gave them. `product` is scratch,
    as long as a block.
    """
    block = index.shape[1]
    for first in range(0, len(out), block):
        for t in range(block):
            out[first + t] = 0.0
        for s in range(summed.shape[1]):
            _multiply(offsets, summed, s, index, product)
            for t in range(block):
                out[first + t] += product[t]
        _step(digits, sizes, 0, len(sizes), strides, offsets)


@entry
def log_sum_products(offsets, strides, sizes, digits, outer, out):
    """The same where values and results are logarithms: for numbers beyond the range of doubles."""
    inner = 1
    for axis in range(outer, len(sizes)):
        inner *= sizes[axis]
    for k in range(len(out)):
        top = -math.inf
        for _ in range(inner):
            top = max(top, _sum(offsets))
            _step(digits, sizes, outer, len(sizes), strides, offsets)
        total = 0.0
        for _ in range(inner):
            total += math.exp(_sum(offsets) - top) if top > -math.inf else 0.0
            _step(digits, sizes, outer, len(sizes), strides, offsets)
        out[k] = top + math.log(total) if total > 0.0 else -math.inf
        _step(digits, sizes, 0, outer, strides, offsets)
