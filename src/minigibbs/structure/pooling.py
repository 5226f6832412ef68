"""Pooling of rare values while the structure is learned.

A column of typed text has many values that occur once, such as typos. The penalty of BIC counts
parameters for all of them, and so hides every dependency of the column. Here rare values share one
code: given the other columns, they are drawn from the pool with fixed shares. This is a model of
the given table too, and its BIC is the score that is maximized.

A value that occurs n times raises the log-likelihood of a column of two values by at most n log 2,
and costs log(N) / 2 for its own parameter, where N is the number of rows. Values with
n < log2(N) / 2 are pooled.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.domains import Domains
from minigibbs.structure.table import Codes

_FEW = 5  # fewer values that occur once are not mentioned


def pooled(table: Codes) -> tuple[Codes, float]:
    """Return the table with one code for all rare values of a column, and the score of the pools.

    The score is the BIC of the shares of values in their pools, 0 if there are none. Tables without
    two rare values in a column are returned as they are.
    """
    sizes, codes, score = table.sizes.copy(), None, 0.0
    for column, size in enumerate(table.sizes.tolist()):
        if size <= 2:
            continue
        counts = np.bincount(table.codes[column], minlength=size + 1)[:size]
        rare = is_rare(counts, table.rows)
        if np.count_nonzero(rare) < 2:
            continue
        codes = table.codes.copy() if codes is None else codes
        sizes[column] = np.count_nonzero(~rare) + 1
        place = np.append(np.where(rare, sizes[column] - 1, np.cumsum(~rare) - 1), sizes[column])
        codes[column] = place[table.codes[column]]
        score += _score(counts[rare], table.rows)
    if codes is None:
        return table, 0.0
    return replace(table, domains=Domains(sizes.tolist()), codes=codes), score


def is_rare(counts: NDArray[np.int64], rows: int) -> NDArray[np.bool_]:
    """Return which values are pooled, given how often each occurs.

    >>> is_rare(np.array([0, 5, 6, 1000]), 2000).tolist()
    [True, True, False, False]
    """
    found: NDArray[np.bool_] = counts < 0.5 * math.log2(rows)
    return found


def hidden_by_rare_values(table: Codes) -> list[str]:
    """Return a note on the column with the most values that occur once, if they are the majority.

    For tables in which no column depends on another one.
    """
    most, note = _FEW, []
    for column, size in enumerate(table.sizes.tolist()):
        counts = np.bincount(table.codes[column], minlength=size + 1)[:size]
        once = int(np.count_nonzero(counts == 1))
        if once >= most and 2 * once > size and once < 0.5 * table.rows:
            most = once + 1
            note = [
                f"no column depends on another one: {once:,} of the {size:,} values of "
                f"{table.domains.name(column)!r} occur once. If they are typos, repair the table "
                "first (mg.repair)"
            ]
    return note


def _score(counts: NDArray[np.int64], rows: int) -> float:
    """Return the BIC of the shares of values in a pool."""
    some = counts[counts > 0]
    shares = float((some * np.log(some / some.sum())).sum())
    return shares - 0.5 * math.log(rows) * (len(counts) - 1)
