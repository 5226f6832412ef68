"""Sums of products of tables over some of their axes: the inner loop of variable elimination."""

from __future__ import annotations

import math

from minigibbs.kernels.jit import entry, inlined


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
def _product(values, offsets):
    total = 1.0
    for part in range(len(offsets)):
        total *= values[offsets[part]]
    return total


@inlined
def _sum(values, offsets):
    total = 0.0
    for part in range(len(offsets)):
        total += values[offsets[part]]
    return total


@entry
def sum_products(values, offsets, strides, sizes, digits, outer, out):
    """Set out[k] to the sum over the inner axes of the product of the parts, from `digits` on.

    The first `outer` axes are those of `out`, the others are summed over. `values` holds all parts
    end to end; part p begins at the entry that `digits` names at `offsets[p]`, and an axis moves it
    by `strides[p, axis]`, 0 where the part does not have that axis.
    """
    inner = 1
    for axis in range(outer, len(sizes)):
        inner *= sizes[axis]
    for k in range(len(out)):
        total = 0.0
        for _ in range(inner):
            total += _product(values, offsets)
            _step(digits, sizes, outer, len(sizes), strides, offsets)
        out[k] = total
        _step(digits, sizes, 0, outer, strides, offsets)


@entry
def log_sum_products(values, offsets, strides, sizes, digits, outer, out):
    """The same where values and results are logarithms: for numbers beyond the range of doubles."""
    inner = 1
    for axis in range(outer, len(sizes)):
        inner *= sizes[axis]
    for k in range(len(out)):
        top = -math.inf
        for _ in range(inner):
            top = max(top, _sum(values, offsets))
            _step(digits, sizes, outer, len(sizes), strides, offsets)
        total = 0.0
        for _ in range(inner):
            total += math.exp(_sum(values, offsets) - top) if top > -math.inf else 0.0
            _step(digits, sizes, outer, len(sizes), strides, offsets)
        out[k] = top + math.log(total) if total > 0.0 else -math.inf
        _step(digits, sizes, 0, outer, strides, offsets)
