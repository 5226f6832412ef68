"""Statistics counted by bits: 64 states in a word, a word for each value of each variable.

How often two values occur together is the number of bits that two rows of words share. Counts are
whole numbers, so that they do not depend on the order in which they are made.
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
    """How many bits of a word are 1."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        kind = ir.IntType(64)
        count = builder.module.declare_intrinsic("llvm.ctpop", [kind])
        return builder.call(count, [arguments[0]])

    return types.int64(types.uint64), generate


@entry
def mark_values(first, states, begin, end, bits):
    """Set bits[first[variable] + value, state // 64] for the variables from `begin` to `end`.

    `states` is [state, variable]. The words of these variables are cleared before; `first` has one
    number more than there are variables.
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
    """Add to counts[first[variable] + value] how often the variable has it in states."""
    for s in range(len(states)):
        for i in range(states.shape[1]):
            counts[np.uint64(first[i] + states[s, i])] += 1


@inlined
def _together(a, b):
    """How many bits two rows share."""
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

    Of the factors, pairs first, those from `begin` to `end`: pairs, and tables of one or two
    variables whose entries are learned.
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
