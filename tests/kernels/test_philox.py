"""Counter-based bits against published vectors, and values by bits against plain arithmetic."""

import numpy as np
import pytest

from minigibbs.kernels.choice import (
    RARE,
    power_of_2,
    rare_uniform,
    spin_by_bits,
    spin_by_unit,
)
from minigibbs.kernels.jit import literal_entry
from minigibbs.kernels.philox import chain_bits, key_of, philox

# Random123's known answers: counter, key, and the words after 7 and after 10 rounds.
PI = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0]
PUBLISHED = [
    (7, [0] * 6, [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]),
    (7, [0xFFFFFFFF] * 6, [0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662]),
    (7, PI, [0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A]),
    (10, [0] * 6, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    (10, [0xFFFFFFFF] * 6, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (10, PI, [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
]


@literal_entry
def _philox(words, rounds, out):
    out[:] = philox(words[0], words[1], words[2], words[3], words[4], words[5], rounds)


@literal_entry
def _bits(key, chain, variable, sweep, draw, out):
    for k in range(len(chain)):
        out[k] = chain_bits(key[0], key[1], chain[k], variable[k], sweep[k], draw[k])


@literal_entry
def _powers(t, out):
    for k in range(len(t)):
        out[k] = power_of_2(t[k])


@literal_entry
def _spins(field, bits, out):
    for k in range(len(bits)):
        out[k] = spin_by_bits(field, bits[k])


@literal_entry
def _spin(field, u):
    return spin_by_unit(field, u)


@literal_entry
def _rare(bits, key, chain, variable, sweep):
    return rare_uniform(bits, key[0], key[1], chain, variable, sweep)


def plain_philox(counter, key, rounds=7):
    """Compute Philox in Python integers."""
    c, (k0, k1) = list(counter), key
    for _ in range(rounds):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 % 2**32, (p0 >> 32) ^ c[3] ^ k1, p0 % 2**32]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c


def bits_at(key, chain, variable, sweep, draw):
    """Return the bits of the contract in Python integers."""
    counter = (chain // 4, variable, sweep % 2**32, draw)
    return plain_philox(counter, (int(key[0]), (int(key[1]) + (sweep >> 32)) % 2**32))[chain % 4]


@pytest.mark.parametrize(("rounds", "words", "answer"), PUBLISHED)
def test_published_vectors(rounds, words, answer):
    out = np.empty(4, np.uint32)
    _philox(np.array(words, np.uint32), rounds, out)
    assert out.tolist() == answer == plain_philox(words[:4], words[4:], rounds)


def test_bits_are_a_function_of_who_asks():
    rng, key = np.random.default_rng(1), key_of(7)
    chain = rng.integers(0, 1000, 500)
    variable, draw = rng.integers(0, 2**31, 500), rng.integers(0, 20, 500)
    sweep = rng.integers(0, 2**40, 500)
    out = np.empty(500, np.uint32)
    _bits(key, chain, variable, sweep, draw, out)
    each = zip(chain.tolist(), variable.tolist(), sweep.tolist(), draw.tolist(), strict=True)
    assert out.tolist() == [bits_at(key, *four) for four in each]


def test_keys_differ_by_seed_and_are_fixed():
    assert key_of(0).tolist() != key_of(1).tolist()
    assert key_of(0).dtype == np.uint32
    assert key_of(2**200).shape == (2,)


def test_powers_of_2():
    t = np.linspace(-126.0, 0.0, 1_000_001).astype(np.float32)
    out = np.empty_like(t)
    _powers(t, out)
    np.testing.assert_allclose(out, np.exp2(t.astype(np.float64)), rtol=2.0**-22, atol=0)
    whole = np.arange(-126.0, 1.0, dtype=np.float32)
    exact = np.empty_like(whole)
    _powers(whole, exact)
    assert (exact == np.exp2(whole)).all()


def least_bits_for_minority(field):
    """Count by bisection the 2**32 words that give the less likely value: they come first."""
    low, high = 0, 2**32
    likely = field > 0
    while low < high:
        middle = (low + high) // 2
        out = np.empty(1, np.bool_)
        _spins(np.float32(field), np.array([middle], np.uint32), out)
        low, high = (middle + 1, high) if out[0] != likely else (low, middle)
    return low


@pytest.mark.parametrize("field", [0.0, 1e-6, 0.1, -0.1, 1.0, -3.7, 8.0, -11.3, 15.5])
def test_the_less_likely_value_has_its_share_of_the_words(field):
    share = least_bits_for_minority(field) / 2**32
    p = 1 / (1 + 2.0 ** abs(field))
    assert share == pytest.approx(p, rel=2.0**-15 if p < 1e-3 else 2.0**-21)


@pytest.mark.parametrize("p", [1e-6, 1e-8, 1e-12, 1e-20, 1e-37])
@pytest.mark.parametrize("sign", [-1, 1])
def test_events_rarer_than_the_grain_of_a_word(p, sign):
    field = np.float32(sign * np.log2(1 / p - 1))
    exact = 1 / (1 + 2.0 ** abs(float(field)))
    assert _spin(field, np.float32(exact * (1 - 1e-5))) == (sign < 0)
    assert _spin(field, np.float32(exact * (1 + 1e-5))) == (sign > 0)


@pytest.mark.parametrize("size", [1e3, 1e10, 1e30])
def test_strong_fields_decide(size):
    for u in (2.0**-100, 0.3, 1.0):
        assert _spin(np.float32(size), np.float32(u))
        assert not _spin(np.float32(-size), np.float32(u))


def test_bits_that_are_few_are_continued():
    key = key_of(3)
    first, second = (bits_at(key, 5, 9, 11, draw) for draw in (1, 2))
    assert _rare(np.uint32(77), key, 5, 9, 11) == (77 + first / 2**32) / 2**32
    assert _rare(np.uint32(0), key, 5, 9, 11) == (first + second / 2**32) / 2**64
    assert int(RARE) / 2**32 == 2.0**-16
