"""The pseudo-likelihood: the sum over variables of log p(variable | all others), with gradient."""

from __future__ import annotations

import math

from minigibbs.kernels.energy import add_entry
from minigibbs.kernels.jit import entry, inlined
from minigibbs.kernels.layout import EQUAL, TABLE


@entry
def add_pseudo(model, ties, origin, rows, seen, weight, gradient, scratch, result):
    """Add the log pseudo-likelihood of data rows to result[0], and its gradient.

    Variables are skipped if they or their neighbors are missing in a row (`seen` is 0); with an
    empty `seen` nothing is missing. result[1] counts the other variables. `scratch` has two numbers
    per value.
    """
    for r in range(len(rows)):
        x = rows[r]
        for i in range(len(model.rows)):
            row = model.rows[i]
            if row.end > row.start and _known(model, seen, r, i, row):
                size = row.domain
                for value in range(size):
                    scratch[value] = 0.0
                for place in range(row.start, row.end):
                    add_entry(model, x, i, place, 1.0, scratch)
                top = scratch[0]
                for value in range(1, size):
                    top = max(top, scratch[value])
                total = 0.0
                for value in range(size):
                    total += math.exp(scratch[value] - top)
                result[0] += weight[r] * (scratch[x[i]] - top - math.log(total))
                result[1] += 1.0
                for value in range(size):
                    share = math.exp(scratch[value] - top) / total
                    scratch[value] = weight[r] * ((value == x[i]) - share)
                if len(gradient):
                    for place in range(row.start, row.end):
                        _add_slope(model, ties, origin, x, i, place, scratch, gradient)


@inlined
def _known(model, seen, r, i, row):
    """Return whether a row has a variable and all variables of its factors."""
    if len(seen) == 0:
        return True
    known = seen[r, i] != 0
    for place in range(row.start, row.pair_end):
        known = known and seen[r, model.target[place]] != 0
    for place in range(row.pair_end, row.end):
        factor = model.factors[model.target[place]]
        for slot in range(factor.scope_start, factor.scope_end):
            known = known and seen[r, model.slots[slot].variable] != 0
    return known


@inlined
def _add_slope(model, ties, origin, x, i, place, slope, gradient):
    """Add a factor's part of the gradient: slope[value] is that of the value's log weight."""
    row = model.rows[i]
    if place < row.pair_end:
        k, other = origin[place], x[model.target[place]]
        if len(ties.pair) > 0 and ties.pair[k] >= 0 and other < row.domain:
            gradient[ties.pair[k]] += ties.pair_scale[k] * slope[other]
        return
    k = model.target[place]
    if len(ties.factor) == 0 or ties.factor[k] < 0:
        return
    factor, parameter, scale = model.factors[k], ties.factor[k], ties.factor_scale[k]
    position, true, own = 0, 0, 0
    for s in range(factor.scope_start, factor.scope_end):
        slot = model.slots[s]
        if slot.variable == i:
            own = slot.key
        else:
            position += slot.key * x[slot.variable]
            true += x[slot.variable] == slot.key
    if factor.form == TABLE:
        for value in range(row.domain):
            entry = position + value * own
            if ties.entries[k]:
                gradient[parameter + entry] += scale * slope[value]
            else:
                table = model.table[factor.table_start + entry]
                gradient[parameter] += scale * slope[value] * table
        return
    if true == factor.scope_end - factor.scope_start - 1:
        gradient[parameter] += scale * slope[own]
    if factor.form == EQUAL and true == 0:
        for value in range(row.domain):
            if value != own:
                gradient[parameter] += scale * slope[value]
