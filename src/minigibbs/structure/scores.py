"""Scores of a family: a column given its parents, from their table of counts.

A table of counts is flat: cell j * size + x holds how many rows have parent configuration j and
value x of the child. All scores are sums over families, so that a search changes them locally.
"""

from __future__ import annotations

import math

from minigibbs.kernels.jit import entry, kernel

LIKELIHOOD, BIC, BDEU = 0, 1, 2
SCORES = {"likelihood": LIKELIHOOD, "bic": BIC, "bdeu": BDEU}


@kernel
def family_score(counts, cells, size, rows, kind, strength):
    """The score of a family with this table.

    Parameters
    ----------
    counts : array
        The table; its first `cells` entries are used.
    cells, size : int
        Entries of the table, and values of the child.
    rows : int
        Rows of the data, for the penalty of BIC.
    kind : int
        LIKELIHOOD, BIC or BDEU.
    strength : float
        The equivalent sample size of BDeu.
    """
    total = 0.0
    if kind == BDEU:
        each, row = strength / cells, strength / (cells // size)
        base, base_row = math.lgamma(each), math.lgamma(row)
        for first in range(0, cells, size):
            count = 0
            for cell in range(first, first + size):
                if counts[cell] > 0:
                    count += counts[cell]
                    total += math.lgamma(each + counts[cell]) - base
            if count > 0:
                total -= math.lgamma(row + count) - base_row
        return total
    for first in range(0, cells, size):
        count = 0
        for cell in range(first, first + size):
            if counts[cell] > 0:
                count += counts[cell]
                total += counts[cell] * math.log(counts[cell])
        if count > 0:
            total -= count * math.log(count)
    if kind == BIC:
        total -= 0.5 * math.log(rows) * (cells // size) * (size - 1)
    return total


@entry
def score_of(counts, cells, size, rows, kind, strength):
    """`family_score` for Python."""
    return family_score(counts, cells, size, rows, kind, strength)
