"""Counts of values and pairs of values over all chains on a GPU, for learning.

Values are first converted to bits, 32 chains per word; two values occur together in a chain if both
bits are set.

Importing this module needs numba-cuda.
"""

from __future__ import annotations

import numpy as np

from minigibbs.running.backends.device.toolchain import cuda, entry

THREADS = 128
WORD = 32  # chains per word


@entry
def mark_values(x, first, sizes, marks):
    """Set marks[word, first[variable] + value], of values x[variable, chain]: one bit per chain."""
    item, words = cuda.grid(1), marks.shape[0]
    if item < words * x.shape[0]:
        i, word = item // words, item % words
        begin, end = word * WORD, min((word + 1) * WORD, x.shape[1])
        for value in range(sizes[i]):
            bits = np.uint32(0)
            for chain in range(begin, end):
                if x[i, chain] == value:
                    bits |= np.uint32(np.uint32(1) << np.uint32(chain - begin))
            marks[word, first[i] + value] = bits


@entry
def mark_bits(x, variable, first, last, marks):
    """Mark spins, which are already bits x[place, word]; `last` masks the last word."""
    item, words = cuda.grid(1), marks.shape[0]
    if item < words * x.shape[0]:
        place, word = item // words, item % words
        every = np.uint32(last) if word == words - 1 else np.uint32(0xFFFFFFFF)
        bits, row = np.uint32(np.uint32(x[place, word]) & every), first[variable[place]]
        marks[word, row + 1] = bits
        marks[word, row] = np.uint32(bits ^ every)


@entry
def count_marks(marks, one, other, counts):
    """Count the chains that have both marks of each pair."""
    k = cuda.grid(1)
    if k < counts.size:
        a, b, total = one[k], other[k], 0
        for word in range(marks.shape[0]):
            total += cuda.popc(np.uint32(marks[word, a] & marks[word, b]))
        counts[k] = total
