"""What factors are worth: at one variable for all its values, or of a whole state."""

from __future__ import annotations

import numpy as np

from minigibbs.kernels.jit import entry, inlined, kernel
from minigibbs.kernels.layout import EQUAL, TABLE


@kernel
def formula_holds(form, true, others, own):
    """Whether a formula holds: `true` of `others` literals hold, and `own` beside them."""
    return (own and true == others) or (form == EQUAL and not own and true == 0)


@kernel
def add_general(model, x, i, place, scale, weights):
    """Add `scale` times a general factor to the weight of each value of variable `i`."""
    factor, size = model.factors[model.target[place]], model.rows[i].domain
    position, true, own = factor.table_start, 0, 0
    for k in range(factor.scope_start, factor.scope_end):
        slot = model.slots[k]
        if slot.variable == i:
            own = slot.key
        else:
            position += slot.key * x[slot.variable]
            true += x[slot.variable] == slot.key
    weight = scale * factor.weight
    if factor.form == TABLE:
        for value in range(size):
            weights[value] += weight * model.table[position + value * own]
        return
    if true == factor.scope_end - factor.scope_start - 1:
        weights[own] += weight
    if factor.form == EQUAL and true == 0:
        for value in range(size):
            if value != own:
                weights[value] += weight


@kernel
def add_entry(model, x, i, place, scale, weights):
    """Add `scale` times any factor at `i` to the weight of each value of variable `i`."""
    if place < model.rows[i].pair_end:
        weights[x[model.target[place]]] += scale * model.weight[place]
    else:
        add_general(model, x, i, place, scale, weights)


@inlined
def add_stored(model, x, i, weights):
    """Add all factors at `i` but the unary ones: O(degree + D) where all are pairs."""
    row = model.rows[i]
    if row.domain == 2:  # a plain sum, which the processor does not have to take one by one
        field = 0.0
        for place in range(row.start, row.pair_end):
            other = x[model.target[place]]
            field += model.weight[place] * (np.float64(other == 1) - np.float64(other == 0))
        weights[1] += field
    else:
        for place in range(row.start, row.pair_end):
            weights[x[model.target[place]]] += model.weight[place]
    for place in range(row.pair_end, row.unary_begin):
        add_general(model, x, i, place, 1.0, weights)


@kernel
def general_values(model, x, i, factor, old, new):
    """What a general factor is worth for two values of variable `i`."""
    position, true, own = factor.table_start, 0, 0
    for k in range(factor.scope_start, factor.scope_end):
        slot = model.slots[k]
        if slot.variable == i:
            own = slot.key
        else:
            position += slot.key * x[slot.variable]
            true += x[slot.variable] == slot.key
    if factor.form == TABLE:
        before, after = model.table[position + old * own], model.table[position + new * own]
    else:
        others = factor.scope_end - factor.scope_start - 1
        before = np.float64(formula_holds(factor.form, true, others, old == own))
        after = np.float64(formula_holds(factor.form, true, others, new == own))
    return factor.weight * before, factor.weight * after


@kernel
def entry_shares(model, x, i, place, old, new):
    """The share phi / M, from 0 to 1, of the factor behind an entry, for two values of `i`."""
    if place < model.rows[i].pair_end:
        other, attracts = x[model.target[place]], model.weight[place] > 0.0
        return np.float64((other == old) == attracts), np.float64((other == new) == attracts)
    factor = model.factors[model.target[place]]
    before, after = general_values(model, x, i, factor, old, new)
    return (before - factor.low) / factor.span, (after - factor.low) / factor.span


@kernel
def energy_change(model, x, i, old, new):
    """How much the sum of the factors at `i` grows when its value goes from `old` to `new`."""
    row, change = model.rows[i], 0.0
    for place in range(row.start, row.pair_end):
        other = x[model.target[place]]
        change += model.weight[place] * ((other == new) - np.float64(other == old))
    for place in range(row.pair_end, row.end):
        factor = model.factors[model.target[place]]
        before, after = general_values(model, x, i, factor, old, new)
        change += after - before
    return change


@inlined
def general_value(model, x, factor):
    """The value of a general factor in state `x`."""
    position, true = factor.table_start, 0
    for place in range(factor.scope_start, factor.scope_end):
        slot = model.slots[place]
        position += slot.key * x[slot.variable]
        true += x[slot.variable] == slot.key
    if factor.form == TABLE:
        return factor.weight * model.table[position]
    if true == factor.scope_end - factor.scope_start or (factor.form == EQUAL and true == 0):
        return factor.weight
    return 0.0


@inlined
def pair_energy(pair, weight, x):
    """The sum of the pairs in state `x`; nobody can predict which agree, so there is no branch."""
    total = 0.0
    for k in range(len(pair)):
        total += weight[k] * np.float64(x[pair[k, 0]] == x[pair[k, 1]])
    return total


@inlined
def row_energy(rows, second, weight, x):
    """The same if pairs are sorted by their first variable: twice as fast."""
    total = 0.0
    for i in range(len(rows) - 1):
        own, part = x[i], 0.0  # a sum of its own, which is rounded less
        for k in range(rows[i], rows[i + 1]):
            other = x[np.uint64(second[np.uint64(k)])]
            part += weight[np.uint64(k)] if other == own else 0.0
        total += part
    return total


@inlined
def general_energy(model, x):
    """The sum of the general factors in state `x`."""
    total = 0.0
    for k in range(len(model.factors)):
        total += general_value(model, x, model.factors[k])
    return total


@inlined
def part_energy(model, x, part, parts):
    """The sum over every `parts`-th factor, from number `part` on, pairs first."""
    total, pairs, k = 0.0, len(model.pair), part
    while k < pairs:
        if x[model.pair[k, 0]] == x[model.pair[k, 1]]:
            total += model.pair_weight[k]
        k += parts
    k -= pairs
    while k < len(model.factors):
        total += general_value(model, x, model.factors[k])
        k += parts
    return total


@inlined
def total_energy(model, x):
    """The log-potential of state `x`, but for the graph's offset: the sum over all factors."""
    return pair_energy(model.pair, model.pair_weight, x) + general_energy(model, x)


@entry
def energies(model, states, out):
    """The log-potential of each row of `states`, but for the graph's offset."""
    for k in range(len(states)):
        out[k] = total_energy(model, states[k])


@entry
def factor_values(model, states, out):
    """out[factor, state]: the value of each factor, pairs first, in each row of `states`."""
    pairs = len(model.pair)
    for s in range(len(states)):
        for k in range(pairs):
            equal = states[s, model.pair[k, 0]] == states[s, model.pair[k, 1]]
            out[k, s] = model.pair_weight[k] if equal else 0.0
        for k in range(len(model.factors)):
            out[pairs + k, s] = general_value(model, states[s], model.factors[k])
