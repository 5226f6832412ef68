"""Sufficient statistics: derivatives of the log-potential by each parameter.

States are stored as [variable][state], so that the inner loops run over states.
"""

from __future__ import annotations

import numpy as np

from minigibbs.kernels.jit import entry, inlined
from minigibbs.kernels.layout import EQUAL, TABLE


@entry
def add_statistics(model, ties, x, weight, first, last, out):
    """Add to out[parameter] its statistic, summed over states x[variable, state] by their weight.

    Only factors `first` to `last` are used, pairs first.
    """
    pairs, states = len(model.pair), x.shape[1]
    for k in range(first, min(last, len(ties.pair))):
        if ties.pair[k] >= 0:
            i, j, total = np.uint64(model.pair[k, 0]), np.uint64(model.pair[k, 1]), 0.0
            for s in range(states):  # a product instead of an unpredictable branch
                state = np.uint64(s)
                total += weight[state] * np.float64(x[i, state] == x[j, state])
            out[np.uint64(ties.pair[k])] += ties.pair_scale[k] * total
    for k in range(max(first - pairs, 0), min(last - pairs, len(ties.factor))):
        if ties.factor[k] >= 0:
            _add_factor(model, ties, k, x, weight, out)


@inlined
def _add_factor(model, ties, k, x, weight, out):
    """Add the statistic of one general factor."""
    factor, parameter, scale = model.factors[k], ties.factor[k], ties.factor_scale[k]
    arity = factor.scope_end - factor.scope_start
    if ties.entries[k] and arity == 2:
        a, b = model.slots[factor.scope_start], model.slots[factor.scope_start + 1]
        for s in range(x.shape[1]):
            place = a.key * np.int64(x[a.variable, s]) + b.key * np.int64(x[b.variable, s])
            out[parameter + place] += scale * weight[s]
        return
    total = 0.0
    for s in range(x.shape[1]):
        place, true = 0, 0
        for slot in range(factor.scope_start, factor.scope_end):
            value = np.int64(x[model.slots[slot].variable, s])
            place += model.slots[slot].key * value
            true += value == model.slots[slot].key
        if ties.entries[k]:
            out[parameter + place] += scale * weight[s]
        elif factor.form == TABLE:
            total += weight[s] * model.table[factor.table_start + place]
        elif true == arity or (factor.form == EQUAL and true == 0):
            total += weight[s]
    if not ties.entries[k]:
        out[parameter] += scale * total


@entry
def each_statistic(model, ties, rows, out):
    """Add to out[state, parameter] the statistics of each of rows[state, variable]."""
    for s in range(len(rows)):
        x = rows[s]
        for k in range(len(ties.pair)):
            if ties.pair[k] >= 0 and x[model.pair[k, 0]] == x[model.pair[k, 1]]:
                out[s, ties.pair[k]] += ties.pair_scale[k]
        for k in range(len(ties.factor)):
            if ties.factor[k] >= 0:
                factor, place, true = model.factors[k], 0, 0
                for slot in range(factor.scope_start, factor.scope_end):
                    value = np.int64(x[model.slots[slot].variable])
                    place += model.slots[slot].key * value
                    true += value == model.slots[slot].key
                if ties.entries[k]:
                    out[s, ties.factor[k] + place] += ties.factor_scale[k]
                elif factor.form == TABLE:
                    held = model.table[factor.table_start + place]
                    out[s, ties.factor[k]] += ties.factor_scale[k] * held
                elif true == factor.scope_end - factor.scope_start or (
                    factor.form == EQUAL and true == 0
                ):
                    out[s, ties.factor[k]] += ties.factor_scale[k]


@entry
def add_independent(model, ties, marginal, out):
    """Add the expected statistics of independent variables with these marginals.

    `marginal` has one number per variable and value, indexed by `model.first`. The actual
    statistics minus these are connected correlations.
    """
    for k in range(len(ties.pair)):
        if ties.pair[k] >= 0:
            i, j, total = model.pair[k, 0], model.pair[k, 1], 0.0
            for value in range(min(model.rows[i].domain, model.rows[j].domain)):
                total += marginal[model.first[i] + value] * marginal[model.first[j] + value]
            out[ties.pair[k]] += ties.pair_scale[k] * total
    for k in range(len(ties.factor)):
        if ties.factor[k] >= 0:
            _add_product(model, ties, k, marginal, out)


@inlined
def _add_product(model, ties, k, marginal, out):
    """Add the expected statistic of one general factor under a product of marginals."""
    factor, parameter, scale = model.factors[k], ties.factor[k], ties.factor_scale[k]
    if factor.form != TABLE:
        all_hold, none_hold = 1.0, 1.0
        for slot in range(factor.scope_start, factor.scope_end):
            variable, key = model.slots[slot].variable, model.slots[slot].key
            share = marginal[model.first[variable] + key]
            all_hold, none_hold = all_hold * share, none_hold * (1.0 - share)
        if factor.form == EQUAL:
            all_hold += none_hold
        out[parameter] += scale * all_hold
        return
    size = 1
    for slot in range(factor.scope_start, factor.scope_end):
        size *= model.rows[model.slots[slot].variable].domain
    for place in range(size):
        share, rest = 1.0, place
        for slot in range(factor.scope_start, factor.scope_end):
            variable, key = model.slots[slot].variable, model.slots[slot].key
            share *= marginal[model.first[variable] + rest // key]
            rest = rest % key
        if ties.entries[k]:
            out[parameter + place] += scale * share
        else:
            out[parameter] += scale * share * model.table[factor.table_start + place]


@entry
def set_weights(ties, number, scale, values, pair_weight, factor_weight, weight):
    """Set the weights of pairs, general factors and entries from the parameters.

    `number` and `scale` have the parameter of each entry, -1 for none, and its scale. A table whose
    entries are parameters keeps its weight.
    """
    for k in range(len(ties.pair)):
        if ties.pair[k] >= 0:
            pair_weight[k] = ties.pair_scale[k] * values[ties.pair[k]]
    for k in range(len(ties.factor)):
        if ties.factor[k] >= 0 and not ties.entries[k]:
            factor_weight[k] = ties.factor_scale[k] * values[ties.factor[k]]
    for place in range(len(weight)):
        if number[place] >= 0:
            weight[place] = scale[place] * values[number[place]]


@entry
def fill_layout(scale, origin, values, out):
    """Write the numbers of a layout: each is one of `values` times a scale."""
    for place in range(len(out)):
        out[place] = scale[place] * values[origin[place]]


@entry
def center_tables(pair, place, field, first, share, gradient):
    """Subtract from the gradient of tables the part that single variables explain.

    Table k joins the variables pair[k], and its entries begin at place[k]. The fields of a variable
    begin at field[variable], and their gradient is that of the probabilities of its values. `share`
    has these probabilities, which begin at first[variable].
    """
    for k in range(len(pair)):
        i, j, at = pair[k, 0], pair[k, 1], place[k]
        for a in range(first[i + 1] - first[i]):
            own, more = share[first[i] + a], gradient[field[i] + a]
            for b in range(first[j + 1] - first[j]):
                gradient[at] -= own * gradient[field[j] + b] + share[first[j] + b] * more
                at += 1
