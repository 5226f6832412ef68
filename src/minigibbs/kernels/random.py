"""Random numbers inside kernels: xoshiro256++, with its four words as explicit state.

The generator is Blackman and Vigna's xoshiro256++ 1.0 (doi:10.1145/3460772), tested against its
published outputs. A stream is a `uint64[4]`; `streams` seeds one per chain through
`numpy.random.SeedSequence`, so a chain's draws depend on the seed and the chain's number only.
"""

from __future__ import annotations

import numpy as np

from minigibbs.kernels.jit import entry, inlined, kernel

_MASK = np.uint64(0xFFFFFFFF)
_SHIFT_32 = np.uint64(32)
_SHIFT_11 = np.uint64(11)
_SHIFT_17 = np.uint64(17)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_UNIT = 1.0 / 9007199254740992.0  # 2**-53


SEEDED = 4096  # chains that are seeded one by one
_JUMP = np.array(  # 2**128 steps of the generator at once, as published with it
    [0x180EC6D33CFD0ABA, 0xD5A61266F0C9392C, 0xA9582618E03FC9AA, 0x39ABDC4529B1661C],
    dtype=np.uint64,
)


def streams(seed: int | None, chains: int) -> np.ndarray:
    """Return one `uint64[4]` stream per chain: an array of shape (chains, 4).

    The first 4096 are seeded one by one; chain c beyond these is chain c - 4096, jumped 2**128
    steps.
    """
    children = np.random.SeedSequence(seed).spawn(min(chains, SEEDED))
    rows = np.zeros((chains, 4), np.uint64)
    rows[: len(children)] = [child.generate_state(4, np.uint64) for child in children]
    if chains > SEEDED:
        _jump_on(rows, SEEDED, _JUMP)
    return rows


def shared_stream(seed: int) -> np.ndarray:
    """Return a `uint64[4]` stream common to all chains of a run, different from all chains' own."""
    return np.random.SeedSequence(seed, spawn_key=(2**32 - 1,)).generate_state(4, np.uint64)


@inlined
def _rotate(word, left):
    return (word << np.uint64(left)) | (word >> np.uint64(64 - left))


@kernel
def next_word(stream):
    """Return the next 64 random bits."""
    s0, s1, s2, s3 = stream[0], stream[1], stream[2], stream[3]
    word = _rotate(s0 + s3, 23) + s0
    t = s1 << _SHIFT_17
    s2 ^= s0
    s3 ^= s1
    stream[0] = s0 ^ s3
    stream[1] = s1 ^ s2
    stream[2] = s2 ^ t
    stream[3] = _rotate(s3, 45)
    return word


@entry
def _jump_on(rows, seeded, polynomial):
    """Set each row from `seeded` on to the row `seeded` before it, advanced by 2**128 steps."""
    for c in range(seeded, len(rows)):
        far, near = rows[c], rows[c - seeded]
        s0, s1, s2, s3 = near[0], near[1], near[2], near[3]
        for word in range(4):
            for bit in range(64):
                if (polynomial[word] >> np.uint64(bit)) & np.uint64(1):
                    for k in range(4):
                        far[k] ^= near[k]
                next_word(near)
        near[0], near[1], near[2], near[3] = s0, s1, s2, s3


@kernel
def uniform(stream):
    """Return a double uniform on [0, 1), a multiple of 2**-53."""
    return np.float64(next_word(stream) >> _SHIFT_11) * _UNIT


@kernel
def counted_uniform(key, count):
    """Return a double uniform on [0, 1): output number `count` of splitmix64 with this key.

    Steele, Lea and Flood 2014 (doi:10.1145/2660193.2660195). Outputs do not depend on each other.
    """
    z = key + np.uint64(np.int64(count)) * _STEP
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return np.float64(np.int64((z ^ (z >> np.uint64(31))) >> _SHIFT_11)) * _UNIT


@kernel
def positive_uniform(stream):
    """Return a double uniform on (0, 1], safe under a logarithm."""
    return (np.float64(next_word(stream) >> _SHIFT_11) + 1.0) * _UNIT


@kernel
def below(stream, count):
    """Return an integer uniform on 0..count-1, exact below 2**32 (Lemire, arXiv:1805.10941)."""
    n = np.uint64(count)
    product = (next_word(stream) >> _SHIFT_32) * n
    if (product & _MASK) < n:
        threshold = (np.uint64(4294967296) - n) % n
        while (product & _MASK) < threshold:
            product = (next_word(stream) >> _SHIFT_32) * n
    return np.int64(product >> _SHIFT_32)


@kernel
def later_word(stream, skipped):
    """Return what `next_word` returns after some skipped words; the stream does not change."""
    s0, s1, s2, s3 = stream[0], stream[1], stream[2], stream[3]
    k = 0
    while k < skipped:
        t = s1 << _SHIFT_17
        s2 ^= s0
        s3 ^= s1
        s1 ^= s2
        s0 ^= s3
        s2 ^= t
        s3 = _rotate(s3, 45)
        k += 1
    return _rotate(s0 + s3, 23) + s0


@kernel
def likely_below(stream, count, skipped):
    """Return the most likely result of `below` after skipping words; the stream does not change."""
    word = later_word(stream, skipped)
    return np.int64(((word >> _SHIFT_32) * np.uint64(count)) >> _SHIFT_32)


@inlined
def leftover(u, bound, inverse, stream):
    """Reuse a uniform number that is known to be below `bound`, or draw one if it is too coarse.

    Given u < bound, u * (1 / bound) is again uniform on [0, 1), or 1 due to rounding up.
    """
    return u * inverse if bound > 1e-3 else uniform(stream)
