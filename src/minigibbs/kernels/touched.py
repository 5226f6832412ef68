"""Draws without cost per domain value: only the weights of touched values are computed.

A Potts factor changes the weight of one value. All others keep their base weight: 1, or that of the
unary factors, from which an alias table draws in constant time. The relative gain of a value's
weight over its base is in `carried[value]`, and 0 between updates. The touched values are listed in
`scratch`, with repetitions, because a test for repetition would cost more. The caller stores the
length of the list.
"""

from __future__ import annotations

import math

import numpy as np

from minigibbs.kernels.jit import inlined, kernel
from minigibbs.kernels.random import uniform

DENSE_DOMAIN = 16  # up to this size it is faster to compute all weights

# Representation of a variable's weights: those of touched values in a list, those of every value,
# or their logarithms, for fields so strong that exp would overflow.
LISTED, PRODUCTS, SUMS = range(3)
LARGEST = 600.0  # weights up to exp(this), and their sums, do not overflow
LEAST = 1e-6  # gains are precise if all values together keep at least this share of their base

_TRIES = 32
_ROUNDING = 1e-14  # smaller losses are rounding errors of gains that cancel


def touched_space(max_domain: int) -> tuple[int, int]:
    """Return the lengths of the gains in `carried` and of the list in `scratch`."""
    return (0, 0) if max_domain <= DENSE_DOMAIN else (max_domain, 2 * max_domain)


@kernel
def _shorten(chain, touched):
    """Remove repeated values from the list."""
    left = 0
    for k in range(touched):
        value = chain.scratch[k]
        gain = chain.carried[value]
        if gain != 0.0:
            chain.scratch[left], chain.weights[left] = value, gain
            chain.carried[value] = 0.0
            left += 1
    for k in range(left):
        chain.carried[chain.scratch[k]] = chain.weights[k]
    return left


@kernel
def set_gain(chain, value, gain, touched):
    """Set the gain of a value, and list it; return the length of the list."""
    chain.carried[value] = gain
    if touched == len(chain.weights):  # the capacity of `_collect`
        touched = _shorten(chain, touched)
    chain.scratch[np.uint64(touched)] = value
    return touched + 1


@kernel
def multiply(chain, value, factor, touched):
    """Multiply the weight of a value; return the length of the list."""
    return set_gain(chain, value, chain.carried[value] * factor + (factor - 1.0), touched)


@kernel
def touch(chain, mode, size, value, factor, touched):
    """Multiply the weight of a value of the variable being updated, if it is in the domain.

    In SUMS, `factor` is a logarithm.
    """
    if mode == PRODUCTS:
        chain.weights[value] *= factor  # beyond `size` is scratch
    elif mode == SUMS:
        chain.weights[value] += factor
    elif value < size:
        touched = multiply(chain, value, factor, touched)
    return touched


@inlined
def forget(chain, touched):
    """Reset the gains."""
    for k in range(touched):
        chain.carried[chain.scratch[k]] = 0.0


@inlined
def _collect(base, first, chain, touched, logs):
    """Move the gains to `weights`, in the order of the list, and reset them.

    A repeated value has its gain at its first index. Returns the total gain of all values, on the
    scale of the base.
    """
    gained, k = 0.0, 0
    while k < touched:
        value = np.uint64(chain.scratch[np.uint64(k)])
        gain = chain.carried[value]
        chain.carried[value] = 0.0
        if logs and gain != 0.0:
            gain = math.expm1(gain)
        chain.weights[np.uint64(k)] = gain
        own = base[first + np.int64(value)] if len(base) else 1.0
        gained += own * max(gain, 0.0)
        k += 1
    return gained


@kernel
def _any_lost(chain, touched):
    """Return whether a value has lost weight, after `_collect`."""
    loss = 0.0
    for k in range(touched):
        loss = min(loss, chain.weights[k])
    return loss < -_ROUNDING


@kernel
def _draw_gained(base, first, chain, touched, mark):
    """Return the touched value whose part of the total gain contains `mark`."""
    last = 0
    for k in range(touched):
        gain = chain.weights[k]
        if gain > 0.0:
            last = k
            mark -= gain * base[first + chain.scratch[k]] if len(base) else gain
            if mark < 0.0:
                break
    return chain.scratch[last]


@kernel
def _draw_base(alias, first, size, mark):
    """Draw a value by the base weights; `mark` is uniform on [0, size)."""
    place = min(int(mark), size - 1)
    if len(alias) == 0:
        return place
    slot = alias[first + place]
    return int(slot.place if mark - place < slot.accept else slot.other)


@kernel
def _gain_of(chain, touched, value):
    """Return the gain of a value after `_collect`."""
    for k in range(touched):
        if chain.scratch[k] == value:
            return chain.weights[k]
    return 0.0


@kernel
def _draw_dense(base, first, size, chain, touched, u, logs):
    """Draw a value with every weight computed, or return -1; see `draw_touched`."""
    total, value = np.float64(size), 0
    for k in range(touched):
        total += chain.weights[k] * (base[first + chain.scratch[k]] if len(base) else 1.0)
    if logs and total < LEAST * size:
        return -1
    mark = u * total
    for value in range(size):
        own = base[first + value] if len(base) else 1.0
        mark -= own * (1.0 + _gain_of(chain, touched, value))
        if mark < 0.0:
            break
    return value


@inlined
def draw_touched(base, alias, first, size, chain, touched, u, repels, logs):
    """Draw a value with probability proportional to its base weight times 1 + its gain.

    `base` and `alias`, from `first` on, have weights that sum to `size` and their alias table; both
    are empty for a uniform base. The envelope base * (1 + max(0, gain)) is drawn from directly, by
    the uniform number `u`; a value that has lost weight is then kept with probability 1 + gain. If
    that fails repeatedly, or values are few, all weights are computed, with the same distribution.
    `repels` is true if a value may have lost weight. With `logs`, the stored numbers are the
    logarithms of 1 + gain, and -1 is returned if all values have lost so much that their gains are
    imprecise.
    """
    gained = _collect(base, first, chain, touched, logs)
    lost = repels and _any_lost(chain, touched)
    tries = 0 if lost and size <= DENSE_DOMAIN else _TRIES
    while tries > 0:
        mark = u * (size + gained)
        if mark < gained:
            return _draw_gained(base, first, chain, touched, mark)
        value = _draw_base(alias, first, size, mark - gained)
        if not lost or uniform(chain.stream) < 1.0 + _gain_of(chain, touched, value):
            return value
        u, tries = uniform(chain.stream), tries - 1
    return _draw_dense(base, first, size, chain, touched, u, logs)
