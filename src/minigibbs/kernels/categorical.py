"""Draws from a finite distribution given by log weights."""

from __future__ import annotations

import math

from minigibbs.kernels.jit import kernel
from minigibbs.kernels.random import uniform


@kernel
def draw_log(weights, size, stream):
    """A value with probability proportional to exp(weights[value]), for value < size.

    The largest weight is subtracted first, so energies of thousands do not overflow. The second
    half of `weights`, from `size` on, is scratch.
    """
    u = uniform(stream)
    if size == 2:
        return 1 if u * (1.0 + math.exp(weights[0] - weights[1])) < 1.0 else 0
    top = weights[0]
    for value in range(1, size):
        top = max(top, weights[value])
    total = 0.0
    for value in range(size):
        total += math.exp(weights[value] - top)
        weights[size + value] = total
    mark = u * total
    for value in range(size - 1):
        if mark < weights[size + value]:
            return value
    return size - 1
