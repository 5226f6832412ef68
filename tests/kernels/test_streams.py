"""Streams beyond the first 4,096, computed in a second way; and the common stream of chains."""

import numpy as np

from minigibbs.kernels.random import SEEDED, shared_stream, streams


def step(word):
    """Make one step of xoshiro256++ on a state of 256 bits, as an integer: a linear map."""
    mask = 2**64 - 1
    s0, s1, s2, s3 = ((word >> 64 * k) & mask for k in range(4))
    t = (s1 << 17) & mask
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= t
    s3 = ((s3 << 45) | (s3 >> 19)) & mask
    return s0 | s1 << 64 | s2 << 128 | s3 << 192


def bits(word):
    return np.array([(word >> k) & 1 for k in range(256)], dtype=np.float32)


def integer(words):
    return sum(int(word) << 64 * k for k, word in enumerate(words))


def test_chains_beyond_the_seeded_ones_are_2_to_the_128_steps_further():
    """The generator's matrix over GF(2) is squared 128 times; no polynomial is used."""
    matrix = np.stack([bits(step(1 << k)) for k in range(256)], axis=1)
    for _ in range(128):
        matrix = (matrix @ matrix) % 2  # sums of at most 256 ones: exact
    rows = streams(7, 2 * SEEDED + 3)
    for chain in (SEEDED, SEEDED + 1, 2 * SEEDED - 1, 2 * SEEDED, 2 * SEEDED + 2):
        before = bits(integer(rows[chain - SEEDED]))
        np.testing.assert_array_equal(matrix @ before % 2, bits(integer(rows[chain])))


def test_the_step_above_is_that_of_the_generator():
    word = integer([1, 2, 3, 4])
    for _ in range(3):
        word = step(word)
    # The state after three published outputs of the state 1, 2, 3, 4 gives the fourth.
    s0, s3 = word & (2**64 - 1), word >> 192
    total = (s0 + s3) % 2**64
    assert (((total << 23) | (total >> 41)) + s0) % 2**64 == 3591011842654386


def test_the_shared_stream_goes_by_the_seed_and_is_no_chains_own():
    several = [shared_stream(seed) for seed in range(50)]
    own = [row for seed in range(50) for row in streams(seed, 20)]
    assert len(np.unique(np.concatenate([several, own]), axis=0)) == 50 * 21
    # This value pins the order of visits on a GPU; changing it is a breaking change.
    assert shared_stream(0)[0] == 1115911174736451823
