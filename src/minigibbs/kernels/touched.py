"""Draws that cost nothing per domain value: only the values that factors touch are looked at.

A Potts factor changes the weight of one value. All others keep their base weight: 1, or that of
the unary factors, from which an alias table draws in constant time. What a value's weight has
gained over its base, as a share of it, is in `carried[value]`, and 0 between updates. Which values
are touched is listed in `scratch`, each as often as it was touched: to look whether it is listed
already would cost more. How long the list is the caller knows.
"""

from __future__ import annotations

import math

import numpy as np

from minigibbs.kernels.jit import inlined, kernel
from minigibbs.kernels.random import uniform

DENSE_DOMAIN = 16  # up to this size it is faster to look at all values

# How a variable's weights are kept: those of touched values on a list, those of every value, or
# their logarithms, for fields so strong that exp would overflow.
LISTED, PRODUCTS, SUMS = range(3)
LARGEST = 600.0  # weights up to exp(this), and sums of such, do not overflow
LEAST = 1e-6  # gains are precise where all values together keep at least this share of their base

_TRIES = 32
_ROUNDING = 1e-14  # losses up to this come from gains that cancel, but for rounding


def touched_space(max_domain: int) -> tuple[int, int]:
    """How many numbers to carry for the gains, and how many integers of scratch for the list."""
    return (0, 0) if max_domain <= DENSE_DOMAIN else (max_domain, 2 * max_domain)


@kernel
def _shorten(chain, touched):
    """Leave each value on the list once."""
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
    """Set the gain of a value, and list it; returns how long the list is."""
    chain.carried[value] = gain
    if touched == len(chain.weights):  # as many as `_collect` has space for
        touched = _shorten(chain, touched)
    chain.scratch[np.uint64(touched)] = value
    return touched + 1


@kernel
def multiply(chain, value, factor, touched):
    """Multiply the weight of a value; returns how long the list is."""
    return set_gain(chain, value, chain.carried[value] * factor + (factor - 1.0), touched)


@kernel
def touch(chain, mode, size, value, factor, touched):
    """Multiply the weight of a value of the variable at hand, if it is one of its values.

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
    """Begin anew."""
    for k in range(touched):
        chain.carried[chain.scratch[k]] = 0.0


@inlined
def _collect(base, first, chain, touched, logs):
    """Move the gains to `weights`, by place on the list, and begin anew.

    Of a value that is listed several times, the first place has all. Returns what all values
    together have gained, on the scale of the base.
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
    """Whether a value has lost, after `_collect`."""
    loss = 0.0
    for k in range(touched):
        loss = min(loss, chain.weights[k])
    return loss < -_ROUNDING


@kernel
def _draw_gained(base, first, chain, touched, mark):
    """The touched value in whose share of all that was gained `mark` falls."""
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
    """A value by the base weights; `mark` is uniform on [0, size)."""
    place = min(int(mark), size - 1)
    if len(alias) == 0:
        return place
    slot = alias[first + place]
    return int(slot.place if mark - place < slot.accept else slot.other)


@kernel
def _gain_of(chain, touched, value):
    """The gain of a value after `_collect`."""
    for k in range(touched):
        if chain.scratch[k] == value:
            return chain.weights[k]
    return 0.0


@kernel
def _draw_dense(base, first, size, chain, touched, u, logs):
    """The same draw with every value looked at, or -1; see `draw_touched`."""
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
    """A value with probability proportional to its base weight times 1 + its gain.

    `base` and `alias`, from `first` on, hold weights that sum to `size` and their alias table; both
    are empty for a uniform base. The envelope base * (1 + max(0, gain)) is drawn from directly, by
    the uniform number `u`; a value that has lost is then kept with the probability 1 + gain. If
    that fails time and again, or values are few, all are looked at, which is as exact. `repels`
    says whether a value can have lost at all. With `logs`, what is carried is the logarithm of 1 +
    the gain, and -1 says that all values have lost so much that their gains tell too little.
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
