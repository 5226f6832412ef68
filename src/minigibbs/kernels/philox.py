"""Counter-based random bits: Philox4x32 (Salmon et al. 2011, doi:10.1145/2063384.2063405).

If many variables or chains are updated together, the bits are a function of the seed, the chain,
the sweep, the variable and the draw number. They do not depend on threads, on the order of work, or
on the device. Seven rounds pass every test of BigCrush (Table 2 there); the function is checked
against the published vectors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.jit import literal

ROUNDS = 7

_MULTIPLY_0, _MULTIPLY_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_ADD_0, _ADD_1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_S8, _S32, _LOWER = np.uint64(8), np.uint64(32), np.uint64(0xFFFFFFFF)


def key_of(seed: int) -> NDArray[np.uint32]:
    """Return the two words of the key of a run's bits; no stream of the seed is equal to it."""
    words = np.random.SeedSequence(seed, spawn_key=(2**32 - 3,)).generate_state(2, np.uint32)
    return words.astype(np.uint32)


@literal
def philox(c0, c1, c2, c3, k0, k1, rounds):
    """Compute four random words from a counter of four words and a key of two: all `uint32`.

    Words are stored in 64 bits, of which the lower half is used, so that vectors need no
    conversion.
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
    """Return the bits of the four chains 4 * quad, ..., 4 * quad + 3: one word each.

    `quad`, `variable` and `draw` are `uint32`, `sweep` is an `int64`.
    """
    high = np.uint32(key1 + np.uint32(sweep >> 32))
    return philox(quad, variable, np.uint32(sweep), draw, key0, high, ROUNDS)


@literal
def site_draw(site, draw):
    """Add the upper half of a site's number to a draw number, above its lowest byte."""
    high = np.uint32((np.uint64(site) >> _S32) << _S8)
    return np.uint32(np.uint32(draw) + high)


@literal
def site_bits(key0, key1, quad, site, sweep, draw):
    """Return `quad_bits` of a site, an `int64` or `uint64` that may exceed 2^32."""
    return quad_bits(key0, key1, quad, np.uint32(site), sweep, site_draw(site, draw))


@literal
def chain_bits(key0, key1, chain, variable, sweep, draw):
    """Return 32 bits for one chain, variable and sweep; `draw` numbers the words of an update."""
    a, b, c, d = quad_bits(
        key0, key1, np.uint32(chain >> 2), np.uint32(variable), sweep, np.uint32(draw)
    )
    word = chain & 3
    low, high = (b if word & 1 else a), (d if word & 1 else c)
    return high if word & 2 else low
