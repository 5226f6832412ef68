"""Sums of products of tables over some of their axes: the inner loops of exact elimination."""

from __future__ import annotations

import math

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from minigibbs.kernels.jit import entry, inlined


@intrinsic
def _at(context, place):
    """Return the double at an address in units of doubles, as computed from `place_of`."""

    def generate(context, builder, signature, arguments):
        address = builder.mul(arguments[0], ir.Constant(ir.IntType(64), 8))
        return builder.load(builder.inttoptr(address, ir.DoubleType().as_pointer()))

    return types.float64(types.int64), generate


def place_of(table):
    """Return the address of a contiguous array of doubles, in doubles; keep the array alive."""
    return table.ctypes.data // 8


@inlined
def _step(digits, sizes, first, last, strides, offsets):
    """Advance to the next entry of axes [first, last), the last one fastest."""
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
def _scale_row(number, right, at, right_step, out, to, out_step, width, first):
    """Set, or add to, a row of the result: a number times a row of the right matrix."""
    if right_step == 1 and out_step == 1:
        if first:
            for j in range(width):
                out[to + j] = number * right[at + j]
        else:
            for j in range(width):
                out[to + j] += number * right[at + j]
    elif first:
        for j in range(width):
            out[to + j * out_step] = number * right[at + j * right_step]
    else:
        for j in range(width):
            out[to + j * out_step] += number * right[at + j * right_step]


@entry
def small_products(left, right, out, left_steps, right_steps, out_steps, shape):
    """Multiply stacks of small matrices: out[r, b] = left[r, b] @ right[r, b].

    Parameters
    ----------
    left, right, out
        Flat arrays of [r, b, m, k], [r, b, k, n] and [r, b, m, n].
    left_steps, right_steps, out_steps
        Strides of their axes; 0 along a broadcast axis.
    shape
        (r, b, m, n, k)
    """
    for r in range(shape[0]):
        for b in range(shape[1]):
            for i in range(shape[2]):
                to = r * out_steps[0] + b * out_steps[1] + i * out_steps[2]
                of = r * left_steps[0] + b * left_steps[1] + i * left_steps[2]
                at = r * right_steps[0] + b * right_steps[1]
                for k in range(shape[4]):
                    _scale_row(
                        left[of + k * left_steps[3]],
                        right,
                        at + k * right_steps[2],
                        right_steps[3],
                        out,
                        to,
                        out_steps[3],
                        shape[3],
                        k == 0,
                    )


@entry
def gather(source, rows, columns, out):
    """Copy entries: out[i, j] = source[rows[i] + columns[j]]."""
    for i in range(len(rows)):
        start = rows[i]
        for j in range(len(columns)):
            out[i, j] = source[start + columns[j]]


@entry
def max_products(offsets, strides, sizes, digits, outer, out):
    """Find the largest products of parts whose entries are logarithms.

    Axes have `sizes` and `strides` [part, axis], 0 where a part does not have that axis. The first
    `outer` axes are those of the result; the others are maximized over. The first entry of `out`
    has indices `digits`, where parts begin at the addresses `offsets` from `place_of`.
    """
    inner = 1
    for axis in range(outer, len(sizes)):
        inner *= sizes[axis]
    for k in range(len(out)):
        top = -math.inf
        for _ in range(inner):
            top = max(top, _sum(offsets))
            _step(digits, sizes, outer, len(sizes), strides, offsets)
        out[k] = top
        _step(digits, sizes, 0, outer, strides, offsets)
