"""A value by 32 random bits, in single precision, without losing what is rarer than 2**-32.

Log weights are in units of log 2 here, so that the power of 2 needs no reduction of its argument.
All arithmetic is as written (`jit.literal`), so that every layout and device agrees to the last
bit. The bits first decide whether the less likely value is taken: its probability is compared
with a number near 0, where floating point is finest. Where the bits are so few that their grain of
2**-32 would tell (below `RARE`), further words are drawn and appended (`rare_uniform`).
"""

from __future__ import annotations

import numpy as np

from minigibbs.kernels.jit import literal
from minigibbs.kernels.lanes import as_float, floored, fused
from minigibbs.kernels.philox import chain_bits

RARE = np.uint32(1 << 16)  # bits below it are continued: at its grain, 2**-16 of a probability
FURTHER = 1  # the first draw that continues bits
TAIL = 8  # the first draw that is free for other uses, such as a minibatch

LEAST = np.float32(-126.0)  # the least exponent of a float that has all its bits
NEAR = np.float32(2.0**-18)  # of a total: sums nearer to a number than that may be misjudged
_ONE = np.float32(1.0)
_HALF_WORD = np.float32(2.0**-31)
_P1 = np.float32(0.6931470632553101)  # 2**z - 1 = z * (P1 + z * (P2 + ...)) to 2e-9, on [0, 1)
_P2 = np.float32(0.2402293086051941)
_P3 = np.float32(0.055485282093286514)
_P4 = np.float32(0.009675451554358006)
_P5 = np.float32(0.0012467845808714628)
_P6 = np.float32(0.00021612914861179888)
_S1, _S23 = np.uint32(1), np.uint32(23)
_BIAS = np.int32(127)


@literal
def power_of_2(t):
    """2**t for a float t from -126 to 0, to 2**-23 of itself."""
    whole = floored(t)
    z = np.float32(t - whole)
    p = fused(z, _P6, _P5)
    p = fused(z, p, _P4)
    p = fused(z, p, _P3)
    p = fused(z, p, _P2)
    p = fused(z, p, _P1)
    p = fused(z, p, _ONE)
    return np.float32(p * as_float(np.uint32(np.uint32(np.int32(whole) + _BIAS) << _S23)))


@literal
def unit_of(bits):
    """A float from 0 to 1 by 32 bits but the last: signed numbers convert faster."""
    return np.float32(np.float32(np.int32(bits >> _S1)) * _HALF_WORD)


@literal
def spin_by_unit(field, u):
    """Value 1 with probability 1 / (1 + 2**-field), by a number uniform on [0, 1)."""
    against = power_of_2(max(-abs(field), LEAST))
    return (field > np.float32(0.0)) != (np.float32(u * (_ONE + against)) < against)


@literal
def spin_by_bits(field, bits):
    """The same by 32 bits; where they are below `RARE`, the caller asks `rare_spin` instead."""
    return spin_by_unit(field, unit_of(bits))


@literal
def rare_uniform(bits, key0, key1, chain, variable, sweep):
    """A number uniform on [0, 2**-16) whose first 32 bits are given, with 32 more that count."""
    scale, draw, word = 2.0**-32, FURTHER, bits
    while word == np.uint32(0) and draw < TAIL - 2:
        word = chain_bits(key0, key1, chain, variable, sweep, draw)
        scale *= 2.0**-32
        draw += 1
    more = chain_bits(key0, key1, chain, variable, sweep, draw)
    return (np.float64(word) + np.float64(more) * 2.0**-32) * scale


@literal
def rare_spin(field, bits, key0, key1, chain, variable, sweep):
    """Value 0 or 1 where the first 32 bits are below `RARE`."""
    u = np.float32(rare_uniform(bits, key0, key1, chain, variable, sweep))
    return spin_by_unit(field, u)
