"""Draws that cost nothing per domain value: only the values that factors touch are looked at.

A Potts factor changes the weight of one value. All others keep their base weight: 1, or that of
the unary factors, from which an alias table draws in constant time. The multipliers of the touched
values lie in `weights[value]`; which ones are touched is kept in integer scratch, as a stamp, a
mark per value, and a list. A new stamp forgets them all.
"""

from __future__ import annotations

import numpy as np

from minigibbs.kernels.alias import draw_alias
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.random import below, uniform

DENSE_DOMAIN = 16  # up to this size it is faster to look at all values
_TRIES = 32


def touched_scratch(max_domain: int) -> int:
    """How many integers of scratch the marks and the list need."""
    return 0 if max_domain <= DENSE_DOMAIN else 2 + 2 * max_domain


@kernel
def begin_touching(scratch):
    """Forget all touched values."""
    scratch[0] += 1
    scratch[1] = 0


@kernel
def first_touch(scratch, value):
    """Whether `value` was not touched yet; it is from now on."""
    if scratch[2 + value] == scratch[0]:
        return False
    scratch[2 + value] = scratch[0]
    scratch[len(scratch) // 2 + 1 + scratch[1]] = value
    scratch[1] += 1
    return True


@kernel
def multiply(scratch, weights, value, factor):
    """Multiply the weight of a value."""
    if first_touch(scratch, value):
        weights[value] = factor
    else:
        weights[value] *= factor


@kernel
def touch(chain, dense, size, value, factor):
    """Multiply the weight of a value of the variable at hand, if it is one of its values."""
    if dense:
        chain.weights[value] *= factor  # beyond `size` is scratch
    elif value < size:
        multiply(chain.scratch, chain.weights, value, factor)


@kernel
def touched_value(scratch, k):
    """The k-th touched value."""
    return scratch[len(scratch) // 2 + 1 + k]


@kernel
def _draw_excess(base, first, weights, scratch, mark):
    """The touched value in whose share of the excess `mark` falls."""
    value = 0
    for k in range(scratch[1]):
        value = touched_value(scratch, k)
        if weights[value] > 1.0:
            own = base[first + value] if len(base) else 1.0
            mark -= own * (weights[value] - 1.0)
            if mark < 0.0:
                return value
    return value


@kernel
def _draw_dense(base, first, size, weights, scratch, stream):
    """The same draw with every value looked at."""
    total, mark, value = 0.0, 0.0, 0
    for choosing in range(2):
        if choosing:
            mark = uniform(stream) * total
        for v in range(size):
            weight = weights[v] if scratch[2 + v] == scratch[0] else 1.0
            weight *= base[first + v] if len(base) else 1.0
            if choosing:
                mark -= weight
                value = v
                if mark < 0.0:
                    return value
            total += weight
    return value


@kernel
def draw_touched(base, alias, first, size, weights, scratch, stream):
    """A value with probability proportional to its base weight times its multiplier.

    `base` and `alias`, from `first` on, hold weights that sum to `size` and their alias table; both
    are empty for a uniform base. The envelope base * max(1, multiplier) is drawn from directly; a
    value with a multiplier below 1 is then kept with that chance. If that fails time and again, all
    values are looked at, which is as exact.
    """
    excess = 0.0
    for k in range(scratch[1]):
        value = touched_value(scratch, k)
        if weights[value] > 1.0:
            excess += (base[first + value] if len(base) else 1.0) * (weights[value] - 1.0)
    for _ in range(_TRIES):
        mark = uniform(stream) * (size + excess)
        if mark < excess:
            return _draw_excess(base, first, weights, scratch, mark)
        if len(base):
            value = np.int64(draw_alias(alias, first, first + size, stream))
        else:
            value = below(stream, size)
        if scratch[2 + value] != scratch[0] or weights[value] >= 1.0:
            return value
        if uniform(stream) < weights[value]:
            return value
    return _draw_dense(base, first, size, weights, scratch, stream)
