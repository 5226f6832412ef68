"""Statistics from bit sets: 64 states per word, one row of words per value of each variable.

The number of states in which two values occur together is the number of common bits of two rows.
Counts are integers, so that they do not depend on the order of summation.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from minigibbs.kernels.jit import entry, inlined

_ONE, _WORD = np.uint64(1), 64


@intrinsic
def bits_set(context, word):  # type: ignore[no-untyped-def]
    """Count the bits of a word that are 1."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        kind = ir.IntType(64)
        count = builder.module.declare_intrinsic("llvm.ctpop", [kind])
        return builder.call(count, [arguments[0]])

    return types.int64(types.uint64), generate


@entry
def mark_values(first, states, begin, end, bits):
    """Set bits[first[variable] + value, state // 64] for the variables from `begin` to `end`.

    `states` is [state, variable]. The words of these variables are cleared first; `first` has one
    more entry than there are variables.
    """
    for i in range(begin, end):
        for row in range(first[i], first[i + 1]):
            for word in range(bits.shape[1]):
                bits[row, word] = np.uint64(0)
    for word in range(bits.shape[1]):
        for s in range(word * _WORD, min((word + 1) * _WORD, len(states))):
            mark = _ONE << np.uint64(s % _WORD)
            for i in range(begin, end):
                bits[np.uint64(first[i] + states[s, i]), np.uint64(word)] |= mark


@entry
def count_values(first, states, counts):
    """Count the values of variables in states: counts[first[variable] + value]."""
    for s in range(len(states)):
        for i in range(states.shape[1]):
            counts[np.uint64(first[i] + states[s, i])] += 1


@inlined
def _together(a, b):
    """Count the common bits of two rows."""
    total = 0
    for word in range(len(a)):
        total += bits_set(a[word] & b[word])
    return total


@inlined
def _alone(a):
    total = 0
    for word in range(len(a)):
        total += bits_set(a[word])
    return total


@entry
def add_counts(model, ties, bits, begin, end, out):
    """Add to out[parameter] its statistic, summed over the states that the bits mark.

    Only factors `begin` to `end` are used, pairs first: pairs, and tables of one or two variables
    whose entries are learned.
    """
    pairs = len(model.pair)
    for k in range(begin, min(end, len(ties.pair))):
        if ties.pair[k] >= 0:
            i, j, total = model.pair[k, 0], model.pair[k, 1], 0
            for value in range(min(model.rows[i].domain, model.rows[j].domain)):
                total += _together(bits[model.first[i] + value], bits[model.first[j] + value])
            out[ties.pair[k]] += ties.pair_scale[k] * total
    for k in range(max(begin - pairs, 0), min(end - pairs, len(ties.factor))):
        if ties.factor[k] >= 0:
            factor, scale = model.factors[k], ties.factor_scale[k]
            a = model.slots[factor.scope_start]
            if factor.scope_end - factor.scope_start == 1:
                for value in range(model.rows[a.variable].domain):
                    count = _alone(bits[model.first[a.variable] + value])
                    out[ties.factor[k] + a.key * value] += scale * count
            else:
                b = model.slots[factor.scope_start + 1]
                for u in range(model.rows[a.variable].domain):
                    row = bits[model.first[a.variable] + u]
                    for v in range(model.rows[b.variable].domain):
                        count = _together(row, bits[model.first[b.variable] + v])
                        out[ties.factor[k] + a.key * u + b.key * v] += scale * count
