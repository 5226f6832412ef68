"""Choices by 32 random bits in single precision, correct below probabilities of 2**-32.

Log weights are in units of log 2, so that the power of 2 needs no argument reduction. All
arithmetic is as written (`jit.literal`), so all layouts and devices give bit-identical results. The
bits first decide whether the less likely value is taken: its probability is compared with a number
near 0, where floating-point numbers are densest. If the bits are so small that their resolution of
2**-32 would matter (below `RARE`), further words are drawn and appended (`rare_uniform`).
"""

from __future__ import annotations

import numpy as np

from minigibbs.kernels.jit import literal
from minigibbs.kernels.lanes import as_float, floored, fused
from minigibbs.kernels.philox import chain_bits

RARE = np.uint32(1 << 16)  # smaller bits are extended, for a relative resolution of 2**-16
FURTHER = 1  # the first draw number that extends bits
TAIL = 8  # the first draw number for other uses, such as a minibatch

LEAST = np.float32(-126.0)  # the least exponent of a normal float
NEAR = np.float32(2.0**-18)  # of a total: closer sums may be compared incorrectly
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
    """Compute 2**t for a float t from -126 to 0, with a relative error of 2**-23."""
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
    """Convert 32 bits, except the last, to a float from 0 to 1: signed conversion is faster."""
    return np.float32(np.float32(np.int32(bits >> _S1)) * _HALF_WORD)


@literal
def spin_by_unit(field, u):
    """Return 1 with probability 1 / (1 + 2**-field), by a number uniform on [0, 1)."""
    against = power_of_2(max(-abs(field), LEAST))
    return (field > np.float32(0.0)) != (np.float32(u * (_ONE + against)) < against)


@literal
def spin_by_bits(field, bits):
    """Do the same by 32 bits; below `RARE` the caller must use `rare_spin`."""
    return spin_by_unit(field, unit_of(bits))


@literal
def rare_uniform(bits, key0, key1, chain, variable, sweep):
    """Return a number uniform on [0, 2**-16) from its first 32 bits and 32 further random bits."""
    scale, draw, word = 2.0**-32, FURTHER, bits
    while word == np.uint32(0) and draw < TAIL - 2:
        word = chain_bits(key0, key1, chain, variable, sweep, draw)
        scale *= 2.0**-32
        draw += 1
    more = chain_bits(key0, key1, chain, variable, sweep, draw)
    return (np.float64(word) + np.float64(more) * 2.0**-32) * scale


@literal
def rare_spin(field, bits, key0, key1, chain, variable, sweep):
    """Choose value 0 or 1 if the first 32 bits are below `RARE`."""
    u = np.float32(rare_uniform(bits, key0, key1, chain, variable, sweep))
    return spin_by_unit(field, u)
