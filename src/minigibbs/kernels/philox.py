"""Counter-based random bits: Philox4x32 (Salmon et al. 2011, doi:10.1145/2063384.2063405).

Where many variables or chains are updated together, bits are a function of their user:
the seed, the chain, the sweep, the variable and the number of the draw. They then depend on nothing
else: neither on threads, nor on the order of work, nor on the device. Seven rounds pass every test
of BigCrush (Table 2 there); the function is checked against the published vectors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.jit import literal

ROUNDS = 7

_MULTIPLY_0, _MULTIPLY_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_ADD_0, _ADD_1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_S32, _LOWER = np.uint64(32), np.uint64(0xFFFFFFFF)


def key_of(seed: int) -> NDArray[np.uint32]:
    """The two words that a run's bits are keyed by; no stream of the seed is the same."""
    words = np.random.SeedSequence(seed, spawn_key=(2**32 - 3,)).generate_state(2, np.uint32)
    return words.astype(np.uint32)


@literal
def philox(c0, c1, c2, c3, k0, k1, rounds):
    """Four random words for a counter of four words and a key of two: all `uint32`.

    Words are kept in 64 bits, of which the lower half counts: vectors then need no conversion.
    """
    a, b, c, d = np.uint64(c0), np.uint64(c1), np.uint64(c2), np.uint64(c3)
    for _ in range(rounds):
        p = _MULTIPLY_0 * (a & _LOWER)
        q = _MULTIPLY_1 * (c & _LOWER)
        a = (q >> _S32) ^ b ^ np.uint64(k0)
        b = q
        c = (p >> _S32) ^ d ^ np.uint64(k1)
        d = p
        k0 = np.uint32(k0 + _ADD_0)
        k1 = np.uint32(k1 + _ADD_1)
    return np.uint32(a), np.uint32(b), np.uint32(c), np.uint32(d)


@literal
def quad_bits(key0, key1, quad, variable, sweep, draw):
    """The bits of the four chains 4 * quad, ..., 4 * quad + 3: a word each.

    `quad`, `variable` and `draw` are `uint32`, `sweep` is an `int64`.
    """
    high = np.uint32(key1 + np.uint32(sweep >> 32))
    return philox(quad, variable, np.uint32(sweep), draw, key0, high, ROUNDS)


@literal
def chain_bits(key0, key1, chain, variable, sweep, draw):
    """32 bits for one chain, variable and sweep; `draw` counts those of one update, from 0."""
    a, b, c, d = quad_bits(
        key0, key1, np.uint32(chain >> 2), np.uint32(variable), sweep, np.uint32(draw)
    )
    word = chain & 3
    low, high = (b if word & 1 else a), (d if word & 1 else c)
    return high if word & 2 else low
