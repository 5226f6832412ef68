"""Trees of products of tables: annealing by rotations, on scopes stored as rows of bits.

Leaves are the first nodes, in the order of the tables. The other nodes are products of their two
children. A node's scope is the set of variables of its product: those of the leaves below it that
also occur elsewhere.
"""

from __future__ import annotations

import math

import numpy as np

from minigibbs.kernels.jit import entry, kernel
from minigibbs.kernels.orders import count_bits
from minigibbs.kernels.random import uniform

_ONE = np.uint64(1)
_MOST_BITS = 900.0  # largest size of a table that is counted


@kernel
def _sum_bits(word, first, bits):
    """Sum `bits` over the bits that are set in a word."""
    total = 0.0
    while word != 0:
        low = word & (~word + _ONE)
        total += bits[first + count_bits(low - _ONE)]
        word ^= low
    return total


@kernel
def _seconds(scopes, left, right, keep, bits, prices):
    """Predict the seconds of the product of two nodes whose result has the scope `keep`."""
    both = rows = columns = depth = more = 0.0
    for w in range(len(keep)):
        one, other, kept = scopes[left, w], scopes[right, w], keep[w]
        if one | other == 0:
            continue
        shared = one & other
        both += _sum_bits(shared & kept, 64 * w, bits)
        depth += _sum_bits(shared & ~kept, 64 * w, bits)
        rows += _sum_bits(one & ~other & kept, 64 * w, bits)
        columns += _sum_bits(other & ~one & kept, 64 * w, bits)
        more += _sum_bits((one ^ other) & ~kept, 64 * w, bits)
    all_bits = both + depth + rows + columns + more
    if all_bits <= _MOST_BITS and 2.0**all_bits < prices[6] + 0.5:
        joint = 2.0**all_bits
        return prices[4] + prices[5] * joint + prices[7] * 2.0 ** (both + rows + columns)
    thin = max(prices[3], prices[2] * 2.0 ** -min(depth, rows, columns))
    products = 2.0 ** min(both + depth + rows + columns, _MOST_BITS)
    result = 2.0 ** min(both + rows + columns, _MOST_BITS)
    read = 2.0 ** min(both + depth + rows + more, _MOST_BITS)
    read += 2.0 ** min(both + depth + columns, _MOST_BITS)
    return prices[0] + prices[1] * read + (prices[1] + prices[7]) * result + thin * products


@entry
def price_tree(children, scopes, bits, prices, costs):
    """Set the scopes of all products and their predicted seconds; return the sum of the seconds.

    Parameters
    ----------
    children
        [n - 1, 2] The children of each product.
    scopes
        [2 n - 1, words] One bit per variable; those of the leaves are given.
    bits
        [variables] log2 of each domain.
    prices
        [8] Seconds per product of two tables, per entry, per multiplication in thin matrices, per
        multiplication in others, per product in compiled code, per multiplication there, the most
        multiplications of such a product, and the additional seconds per entry of a result.
    costs
        [n - 1] Overwritten.
    """
    leaves = len(children) + 1
    total = 0.0
    for k in range(len(children)):
        costs[k] = _seconds(
            scopes, children[k, 0], children[k, 1], scopes[leaves + k], bits, prices
        )
        total += costs[k]
    return total


@entry
def rotate_tree(children, scopes, bits, prices, costs, trials, cold, stream, keep):
    """Propose rotations at random nodes; return the sum of the predicted seconds.

    A rotation turns (a b) c into (a c) b. Only the inner product changes its scope.

    Parameters
    ----------
    children, scopes, bits, prices, costs
        As for `price_tree`; children, scopes and costs are overwritten.
    trials
        Number of proposed rotations.
    cold
        The inverse temperature, of the natural logarithm of the seconds of both products.
    stream
        Random numbers.
    keep
        [2, words] Overwritten.
    """
    leaves = len(children) + 1
    words = scopes.shape[1]
    for _ in range(trials):
        p = int(uniform(stream) * len(children))
        side = int(uniform(stream) * 2.0)
        x, c = children[p, side], children[p, 1 - side]
        if x < leaves:
            continue
        own = x - leaves
        swap = int(uniform(stream) * 2.0)
        a, b = children[own, swap], children[own, 1 - swap]
        for w in range(words):
            keep[0, w] = (scopes[a, w] | scopes[c, w]) & (scopes[b, w] | scopes[leaves + p, w])
            keep[1, w] = scopes[x, w]
        before = costs[own] + costs[p]
        inner = _seconds(scopes, a, c, keep[0], bits, prices)
        if inner > before and cold * math.log(inner / before) > 40.0:
            continue
        for w in range(words):
            scopes[x, w] = keep[0, w]
        outer = _seconds(scopes, x, b, scopes[leaves + p], bits, prices)
        after = inner + outer
        if after <= before or uniform(stream) < math.exp(-cold * math.log(after / before)):
            costs[own], costs[p] = inner, outer
            children[own, 0], children[own, 1] = a, c
            children[p, 0], children[p, 1] = x, b
        else:
            for w in range(words):
                scopes[x, w] = keep[1, w]
    total = 0.0
    for k in range(len(children)):
        total += costs[k]
    return total
