"""Scores of a family: a column given its parents, from their table of counts.

A table of counts is flat: cell j * size + x is the number of rows with parent configuration j and
value x of the child. All scores are sums over families, so that a search updates them locally.
"""

from __future__ import annotations

import math

import numpy as np

from minigibbs.kernels.jit import kernel

LIKELIHOOD, BIC, BDEU = 0, 1, 2
SCORES = {"likelihood": LIKELIHOOD, "bic": BIC, "bdeu": BDEU}


@kernel
def family_score(counts, cells, size, scoring, logs):
    """Return the score of a family with this table.

    Parameters
    ----------
    counts : array
        The table; its first `cells` entries are used.
    cells, size : int
        Number of entries of the table, and of values of the child.
    scoring : NamedTuple
        `kind`: LIKELIHOOD, BIC or BDEU. `strength`: the equivalent sample size of BDeu. `rows`: the
        number of rows, for the penalty of BIC.
    logs : array
        x log(x) of the counts x below its length.
    """
    total = 0.0
    if scoring.kind == BDEU:
        each, row = scoring.strength / cells, scoring.strength / (cells // size)
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
            count += counts[cell]
            total += _times_log(counts[cell], logs)
        total -= _times_log(count, logs)
    if scoring.kind == BIC:
        total -= 0.5 * math.log(scoring.rows) * (cells // size) * (size - 1)
    return total


@kernel
def _times_log(count, logs):
    """Return x log(x), which is 0 at 0."""
    if count < len(logs):
        return logs[np.uint64(count)]
    return count * math.log(count)
