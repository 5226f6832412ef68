"""Elimination orders by randomized greedy search, on graphs stored as rows of bits.

Row v of `near` has one bit per neighbor of v. A variable's table covers the variable and its
neighbors; `bits` has log2 of the domain sizes.
"""

from __future__ import annotations

import math

import numpy as np

from minigibbs.kernels.jit import entry, inlined, kernel
from minigibbs.kernels.random import uniform

_ONE = np.uint64(1)
_ODD, _PAIRS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_NIBBLES, _BYTES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)

_FAR = 1e6  # added to the score of variables that no eliminated variable has touched
_MOST_BITS = 1000.0  # largest size of a table that is counted
_AGE = 1e-4  # of the score per step since a variable was touched


@inlined
def count_bits(word):
    """Count the bits of a word that are set."""
    word = word - ((word >> np.uint64(1)) & _ODD)
    word = (word & _PAIRS) + ((word >> np.uint64(2)) & _PAIRS)
    word = (word + (word >> np.uint64(4))) & _NIBBLES
    return np.int64((word * _BYTES) >> np.uint64(56))


@kernel
def _members(row, out):
    """List the bits that are set; return their number."""
    count = 0
    for w in range(len(row)):
        word = row[w]
        while word != 0:
            low = word & (~word + _ONE)
            out[count] = 64 * w + count_bits(low - _ONE)
            count += 1
            word ^= low
    return count


@kernel
def _rate(near, bits, v, fill_weight, noise, stream, some, score):
    """Score a variable; one without missing edges between its neighbors has priority."""
    count = _members(near[v], some)
    table, common = bits[v], 0
    for k in range(count):
        u = some[k]
        table += bits[u]
        for w in range(near.shape[1]):
            common += count_bits(near[v, w] & near[u, w])
    fill = (count * (count - 1) - common) // 2
    if fill == 0:
        score[v] = -_FAR * _FAR + table
    else:
        score[v] = fill_weight * math.log2(fill) + (1.0 - fill_weight) * table
        score[v] += noise * uniform(stream)
    return count * near.shape[1]


@kernel
def _join(near, v, some, count, dirty):
    """Remove a variable and join its neighbors; return whether an edge was added."""
    word, bit = v >> 6, _ONE << np.uint64(v & 63)
    added = False
    for k in range(count):
        u = some[k]
        dirty[u] = True
        for w in range(near.shape[1]):
            joined = near[u, w] | near[v, w]
            if w == word:
                joined &= ~bit
            if w == u >> 6:
                joined &= ~(_ONE << np.uint64(u & 63))
            if joined & ~near[u, w] != 0:
                added = True
            near[u, w] = joined
    return added


@entry
def greedy_order(
    near,
    bits,
    fill_weight,
    noise,
    sweep,
    given,
    kept,
    bound,
    stream,
    order,
    tables,
    scratch,
    totals,
):
    """Eliminate all variables greedily; return False once the cost exceeds `bound`.

    Parameters
    ----------
    near
        The graph; overwritten.
    bits
        [n] log2 of each domain.
    fill_weight, noise
        A variable's score is fill_weight * log2(missing edges) + (1 - fill_weight) * log2(table)
        + noise * (a random number). The lowest is eliminated.
    sweep
        Whether the eliminated region grows from one variable. Neighbors of it come first, and among
        equal scores those that became neighbors earlier.
    given, kept
        The first `kept` variables of the order `given` are eliminated first.
    bound
        Largest sum of table sizes.
    order, tables
        [n] The result: variables, and log2 of their table sizes.
    scratch
        An `ordering.Scratch`.
    totals
        [3] Sums of table sizes and of message sizes, and words of bits read.
    """
    n = len(bits)
    some, others, touched = scratch.some, scratch.others, scratch.touched
    dirty, gone, score = scratch.dirty, scratch.gone, scratch.score
    totals[0], totals[1] = 0.0, 0.0
    for v in range(n):
        dirty[v], gone[v], touched[v] = True, False, 0
    for step in range(n):
        v, least = -1, math.inf
        if step < kept:
            v = given[step]
        else:
            for u in range(n):
                if gone[u]:
                    continue
                if dirty[u]:
                    totals[2] += _rate(near, bits, u, fill_weight, noise, stream, some, score)
                    dirty[u] = False
                rank = score[u]
                if sweep and touched[u] == 0:
                    rank += _FAR
                elif sweep:
                    rank += _AGE * touched[u]
                if rank < least:
                    v, least = u, rank
        totals[2] += n / 8
        count = _members(near[v], some)
        table = bits[v]
        for k in range(count):
            table += bits[some[k]]
            if touched[some[k]] == 0:
                touched[some[k]] = step + 1
        order[step], tables[step] = v, table
        totals[0] += 2.0 ** min(table, _MOST_BITS)
        totals[1] += 2.0 ** min(table - bits[v], _MOST_BITS)
        if totals[0] >= bound:
            return False
        gone[v] = True
        totals[2] += count * near.shape[1]
        if _join(near, v, some, count, dirty):
            for k in range(count):
                u = some[k]
                more = _members(near[u], others)
                for j in range(more):
                    dirty[others[j]] = True
        for w in range(near.shape[1]):
            near[v, w] = np.uint64(0)
    return True
