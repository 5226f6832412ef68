"""Draws from a finite distribution given by log weights."""

from __future__ import annotations

import math

import numpy as np

from minigibbs.kernels.jit import inlined, kernel
from minigibbs.kernels.random import uniform


@inlined
def _count_below(cumulative, first, size, mark):
    """Count the cumulative weights from `first`, except the last, that are at most `mark`.

    There is no early exit: an unpredictable branch costs more than the few comparisons.
    """
    value, k = 0, first
    while k < first + size - 1:
        value += cumulative[np.uint64(k)] <= mark
        k += 1
    return value


@kernel
def draw_log(weights, size, stream):
    """Draw a value with probability proportional to exp(weights[value]), for value < size.

    The largest weight is subtracted first, so energies of thousands do not overflow. The second
    half of `weights`, from `size`, is scratch.
    """
    u = uniform(stream)
    return draw_log_by(weights, size, u)


@kernel
def draw_log_by(weights, size, u):
    """Do the same by a given uniform number `u`."""
    if size == 2:
        return 1 if u * (1.0 + math.exp(weights[0] - weights[1])) < 1.0 else 0
    top = weights[0]
    for value in range(1, size):
        top = max(top, weights[value])
    total = 0.0
    for value in range(size):
        total += math.exp(weights[value] - top)
        weights[size + value] = total
    return _count_below(weights, size, size, u * total)


@inlined
def draw_linear(weights, size, u):
    """Draw a value with probability proportional to weights[value], by a uniform number `u`.

    The weights are overwritten by their cumulative sums.
    """
    total = 0.0
    if size == 2:
        return 1 if u * (weights[0] + weights[1]) < weights[1] else 0
    value = 0
    while value < size:
        total += weights[np.uint64(value)]
        weights[np.uint64(value)] = total
        value += 1
    return _count_below(weights, 0, size, u * total)
