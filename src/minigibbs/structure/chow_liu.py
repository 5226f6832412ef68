"""Trees by Chow and Liu (doi:10.1109/TIT.1968.1054142): the heaviest spanning forest.

The weight of a pair is its mutual information times the number of rows, minus the penalty of BIC
unless the score is "likelihood". Pairs of negative weight are left out, so that the result can be a
forest. Each pair is counted in the rows where both cells are present.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.jit import entry
from minigibbs.structure.counting import MOST_CELLS, Counter
from minigibbs.structure.learned import Learned, Rules
from minigibbs.structure.scores import BIC
from minigibbs.system.watch import current

_LEAST = 1e-6  # smaller gains are rounding errors
_CELLS = 2**24  # cells of the pair tables that are counted at a time


def pair_gains(
    counter: Counter,
    values: NDArray[np.int64],
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    penalized: bool,
) -> NDArray[np.float64]:
    """Return the gain in score from each pair as an edge; -inf if its table is too large.

    Parameters
    ----------
    counter : Counter
        The table; a missing cell is the last code of its column.
    values : array
        Number of values per column, without missing cells.
    first, second : array
        The pairs.
    penalized : bool
        Whether the penalty of BIC is subtracted.
    """
    gains = np.full(len(first), -np.inf)
    cells = counter.sizes[first].astype(np.float64) * counter.sizes[second]
    fits = np.flatnonzero(cells <= MOST_CELLS)
    ends = np.cumsum(cells[fits])
    begin = 0
    while begin < len(fits):
        current().check()
        done = ends[begin - 1] if begin else 0.0
        end = max(int(np.searchsorted(ends, done + _CELLS, side="right")), begin + 1)
        chosen = fits[begin:end]
        i, j = first[chosen], second[chosen]
        tables, starts = counter.pairs(i, j)
        found = np.empty(len(chosen))
        _gains(
            tables, starts, counter.sizes[j], values[i], values[j], counter.rows, penalized, found
        )
        gains[chosen] = found
        begin = end
    return gains


def chow_liu(counter: Counter, values: NDArray[np.int64], kind: int, rules: Rules) -> Learned:
    """Return the best forest; edges lead away from the first column of each tree."""
    columns = counter.columns
    rules = rules.undirected()
    first, second = np.triu_indices(columns, 1)
    gains = pair_gains(counter, values, first, second, kind == BIC)
    wanted = rules.required[first, second]
    usable = (rules.allowed[first, second] & (gains > _LEAST)) | wanted
    order = np.lexsort((-gains, ~wanted))
    group = list(range(columns))

    def root(column: int) -> int:
        while group[column] != column:
            group[column] = group[group[column]]
            column = group[column]
        return column

    near: list[list[int]] = [[] for _ in range(columns)]
    gain_of: dict[tuple[int, int], float] = {}
    for pair in order[usable[order]].tolist():
        i, j = int(first[pair]), int(second[pair])
        a, b = root(i), root(j)
        if a != b:
            group[a] = b
            near[i].append(j)
            near[j].append(i)
            gain_of[i, j] = gain_of[j, i] = float(gains[pair])
            if len(gain_of) == 2 * (columns - 1):
                break
    edges, seen = [], [False] * columns
    for start in range(columns):
        waiting = [] if seen[start] else [start]
        seen[start] = True
        while waiting:
            parent = waiting.pop()
            for child in sorted(near[parent]):
                if not seen[child]:
                    seen[child] = True
                    edges.append((parent, child))
                    waiting.append(child)
    strengths = [gain_of[edge] for edge in edges]
    return Learned(edges, strengths, True, math.fsum(strengths), len(edges))


@entry
def _gains(tables, starts, stride, left, right, rows, penalized, found):
    """Compute the mutual information of pairs where both are present, times all rows."""
    for pair in range(len(found)):
        start, total, information = starts[pair], 0, 0.0
        for x in range(left[pair]):
            count = 0
            for y in range(right[pair]):
                cell = tables[start + x * stride[pair] + y]
                if cell > 0:
                    count += cell
                    information += cell * math.log(cell)
            if count > 0:
                information -= count * math.log(count)
            total += count
        for y in range(right[pair]):
            count = 0
            for x in range(left[pair]):
                count += tables[start + x * stride[pair] + y]
            if count > 0:
                information -= count * math.log(count)
        if total == 0:
            found[pair] = -math.inf
            continue
        information += total * math.log(total)
        if penalized:
            information -= 0.5 * math.log(total) * (left[pair] - 1) * (right[pair] - 1)
        found[pair] = information * rows / total
