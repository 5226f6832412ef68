"""Tables of counts, computed by compiled code in threads.

Columns of few values are stored as bits: one row of words per value, with one bit per row of data.
The number of rows with two given values is then the number of common bits in their words. Tables of
many cells are counted row by row instead. A missing cell counts as one more value, so that every
table is complete. Callers that need available cases remove its entries afterwards.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.counts import bits_set
from minigibbs.kernels.jit import entry, kernel
from minigibbs.structure.scores import family_score

MOST_CELLS = 2**22  # cells of the largest table; larger families are not considered
_BY_BITS = 96  # cells of the largest table for which counting bits is faster
_MOST_MARKED = 16  # maximum number of values of a column stored as bits
_WORD = 64
_BLOCK = 512  # words that are counted together, so that they stay in the cache
_ALONE = 2_000_000  # cells times rows below which one thread is faster
_LOGS = 2**15  # smaller counts have a tabulated x log(x)
_ONE, _NONE = np.uint64(1), np.uint64(0)


class Table(NamedTuple):
    """A table as the kernels read it."""

    codes: NDArray[Any]  # [column, row]
    bits: NDArray[np.uint64]  # [value, word] of all columns that are stored as bits
    first: NDArray[np.int64]  # [column + 1] start of a column's values in `bits`
    sizes: NDArray[np.int64]  # [column]
    logs: NDArray[np.float64]  # [count] count * log(count)


class Scratch(NamedTuple):
    """Arrays that one thread writes to."""

    cell_of: NDArray[np.int32]  # [row] the cell of each row
    planes: NDArray[np.uint64]  # [cell, word] bits of the rows in each cell, for one block of words
    counts: NDArray[np.int64]  # [cell]
    space: NDArray[np.int64]  # tables of the candidates


class Scoring(NamedTuple):
    """The score of families: a kind, the equivalent sample size of BDeu, and the number of rows."""

    kind: int
    strength: float
    rows: int


class Counter:
    """Counts of a table of codes.

    Parameters
    ----------
    codes : array [column, row]
        Codes from 0 to the size of the column less 1.
    sizes : array [column]
        Number of codes per column, including the code of missing cells.
    threads : int or None
        Number of threads; by default one per processor.
    """

    def __init__(
        self, codes: NDArray[Any], sizes: NDArray[np.int64], threads: int | None = None
    ) -> None:
        self.codes, self.sizes = np.ascontiguousarray(codes), sizes
        self.columns, self.rows = codes.shape
        self.threads = threads or os.cpu_count() or 1
        self._pool: ThreadPoolExecutor | None = None
        marked = np.where(sizes <= _MOST_MARKED, sizes, 0)
        self.first = np.concatenate([[0], np.cumsum(marked)]).astype(np.int64)
        words = -(-self.rows // _WORD)
        self.bits = np.zeros((int(self.first[-1]), words), dtype=np.uint64)
        self.totals = np.zeros(int(sizes.sum()), dtype=np.int64)
        self.start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.spread(
            lambda begin, end: _mark(
                self.codes, self.first, self.start, begin, end, self.bits, self.totals
            ),
            self.columns,
            self.rows,
        )
        counts = np.arange(min(self.rows + 1, _LOGS), dtype=np.float64)
        logs = counts * np.log(np.maximum(counts, 1.0))
        self.table = Table(self.codes, self.bits, self.first, sizes, logs)
        self._sizes: list[int] = sizes.tolist()
        self._spare: list[Scratch] = []  # not in use by a thread

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def spread(self, work: Callable[[int, int], None], pieces: int, cost: float) -> None:
        """Call work(begin, end) for parts of `pieces`, in threads if the total cost is high."""
        parts = min(self.threads, pieces) if pieces * cost > _ALONE else 1
        if parts <= 1:
            work(0, pieces)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads)
        cuts = np.linspace(0, pieces, parts + 1).astype(int).tolist()
        list(self._pool.map(work, cuts[:-1], cuts[1:]))

    def counts_of(self, column: int) -> NDArray[np.int64]:
        """Return how often each code of a column occurs."""
        return self.totals[self.start[column] : self.start[column + 1]]

    def pairs(
        self, first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the tables of pairs, concatenated, and the start of each.

        Cell [x_first, x_second] of pair k is entry starts[k] + x_first * size_second + x_second.
        """
        cells = self.sizes[first] * self.sizes[second]
        starts = np.concatenate([[0], np.cumsum(cells)]).astype(np.int64)
        out = np.zeros(int(starts[-1]), dtype=np.int64)
        arrays = (self.codes, self.bits, self.first, self.sizes, self.totals, self.start)

        def work(begin: int, end: int) -> None:
            _count_pairs(*arrays, first, second, starts, begin, end, out)

        self.spread(work, len(first), self.rows)
        return out, starts

    def cells(self, family: Sequence[int]) -> float:
        """Return the number of cells of the table of some columns."""
        return math.prod(float(self._sizes[column]) for column in family)

    def counts(self, child: int, parents: Sequence[int]) -> NDArray[np.int64]:
        """Return the table of a column and its parents: the last parent first, the column last."""
        family = np.array([child, *parents], dtype=np.int64)
        shape = self.sizes[family[::-1]]
        counts = np.zeros(int(shape.prod()), dtype=np.int64)
        scratch = self._scratch(0, 0)
        _count_rows(self.table, family, scratch.cell_of, counts)
        self._spare.append(scratch)
        return counts.reshape((*shape[:-1], shape[-1]))

    def scores(
        self, child: int, parents: Sequence[int], candidates: NDArray[np.int64], scoring: Scoring
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """Score a family, the family with each candidate as a further parent, and without a parent.

        The score of a candidate whose table would be too large is -inf.
        """
        family = np.array([child, *parents], dtype=np.int64)
        cells = math.prod(self._sizes[column] for column in (child, *parents))
        space = max(min(cells * max(self._sizes), MOST_CELLS), cells)
        if cells <= _BY_BITS:
            space = max(space, len(candidates) * (_BY_BITS + cells))
        own, drop = np.empty(1), np.empty(len(parents))
        add = np.full(len(candidates), -np.inf)

        def work(begin: int, end: int) -> None:
            scratch = self._scratch(cells, space)
            out = (own, drop) if begin == 0 else (own[:0], drop[:0])
            _score_family(
                self.table, family, candidates[begin:end], scoring, scratch, *out, add[begin:end]
            )
            self._spare.append(scratch)

        self.spread(work, max(len(candidates), 1), self.rows)
        return float(own[0]), add, drop

    def _scratch(self, cells: int, space: int) -> Scratch:
        """Return arrays for one thread."""
        try:
            found = self._spare.pop()
        except IndexError:
            planes = np.empty((_BY_BITS, _BLOCK), dtype=np.uint64)
            nothing = np.empty(0, dtype=np.int64)
            found = Scratch(np.empty(self.rows, dtype=np.int32), planes, nothing, nothing)
        if len(found.counts) < cells:
            found = found._replace(counts=np.empty(cells, dtype=np.int64))
        if len(found.space) < space:
            found = found._replace(space=np.empty(space, dtype=np.int64))
        return found


@entry
def _mark(codes, first, start, begin, end, bits, totals):
    """Set the bits of the columns from `begin` to `end`, and count their codes."""
    for column in range(begin, end):
        marked = first[column + 1] > first[column]
        for row in range(codes.shape[1]):
            code = np.int64(codes[column, row])
            totals[start[column] + code] += 1
            if marked:
                bits[first[column] + code, row // _WORD] |= _ONE << np.uint64(row % _WORD)


@entry
def _count_pairs(codes, bits, first, sizes, totals, start, left, right, starts, begin, end, out):
    """Count the tables of the pairs from `begin` to `end`."""
    for pair in range(begin, end):
        i, j = left[pair], right[pair]
        rows, columns, base = sizes[i], sizes[j], starts[pair]
        marked = first[i + 1] > first[i] and first[j + 1] > first[j]
        if marked and (rows - 1) * (columns - 1) <= _BY_BITS:
            for x in range(rows - 1):
                rest = totals[start[i] + x]
                for y in range(columns - 1):
                    count = 0
                    for word in range(bits.shape[1]):
                        count += bits_set(bits[first[i] + x, word] & bits[first[j] + y, word])
                    out[base + x * columns + y] = count
                    rest -= count
                out[base + x * columns + columns - 1] = rest
            for y in range(columns):
                rest = totals[start[j] + y]
                for x in range(rows - 1):
                    rest -= out[base + x * columns + y]
                out[base + (rows - 1) * columns + y] = rest
        else:
            for row in range(codes.shape[1]):
                out[base + np.int64(codes[i, row]) * columns + np.int64(codes[j, row])] += 1


@entry
def _count_rows(table, family, cell_of, counts):
    """Compute the cell of each row, and count the rows per cell."""
    _fill_cells(table, family, cell_of)
    for row in range(len(cell_of)):
        counts[np.uint64(cell_of[row])] += 1


@entry
def _score_family(table, family, candidates, scoring, scratch, own, drop, add):
    """Score a family, the family with each candidate as a further parent, and without each parent.

    `family` is the column and its parents. If `own` is empty, only the candidates are scored.
    """
    size, cells = table.sizes[family[0]], 1
    marked = True
    for column in family:
        cells *= table.sizes[column]
        marked &= table.first[column + 1] > table.first[column]
    counts = scratch.counts[:cells]
    counts[:] = 0
    by_bits = cells <= _BY_BITS
    if not (marked and by_bits):
        _fill_cells(table, family, scratch.cell_of)
        for row in range(len(scratch.cell_of)):
            counts[np.uint64(scratch.cell_of[row])] += 1
    if by_bits:
        _count_by_bits(table, family, candidates, marked, scratch, counts)
        _score_by_bits(table, size, candidates, counts, scoring, scratch.space, add)
    _score_by_rows(table, family, candidates, cells, scoring, scratch, marked and by_bits, add)
    if len(own):
        own[0] = family_score(counts, cells, size, scoring, table.logs)
        stride = size
        for k in range(len(drop)):
            values = table.sizes[family[k + 1]]
            smaller = scratch.space[: cells // values]
            _sum_out(counts, stride, values, smaller)
            drop[k] = family_score(smaller, cells // values, size, scoring, table.logs)
            stride *= values


@kernel
def _is_marked(table, column, cells):
    """Return whether a further parent is counted by bits: stored as bits, with a small table."""
    values = table.first[column + 1] - table.first[column]
    return values > 1 and cells * (values - 1) <= _BY_BITS


@kernel
def _fill_cells(table, family, cell_of):
    """Compute the cell of each row: the column itself varies fastest, its last parent slowest."""
    codes, stride = table.codes[family[0]], np.int32(table.sizes[family[0]])
    for row in range(len(cell_of)):
        cell_of[row] = codes[row]
    for k in range(1, len(family)):
        codes = table.codes[family[k]]
        for row in range(len(cell_of)):
            cell_of[row] += np.int32(codes[row]) * stride
        stride *= np.int32(table.sizes[family[k]])


@kernel
def _count_by_bits(table, family, candidates, marked, scratch, counts):
    """Count the family, if `marked`, and all but the last value of candidates counted by bits."""
    cells, words, planes = len(counts), table.bits.shape[1], scratch.planes
    total = 0
    for column in candidates:
        if _is_marked(table, column, cells):
            total += cells * table.sizes[column]
    scratch.space[:total] = 0
    for begin in range(0, words, _BLOCK):
        length = min(_BLOCK, words - begin)
        if marked:
            _join_planes(table, family, begin, length, planes)
            for cell in range(cells):
                counts[cell] += _together(planes[cell], planes[cell], 0, length)
        else:
            _mark_planes(scratch.cell_of, begin, length, planes[:cells])
        first = 0
        for column in candidates:
            if _is_marked(table, column, cells):
                row = table.first[column]
                for x in range(table.sizes[column] - 1):
                    for cell in range(cells):
                        shared = _together(planes[cell], table.bits[row + x], begin, length)
                        scratch.space[first + x * cells + cell] += shared
                first += cells * table.sizes[column]


@kernel
def _join_planes(table, family, begin, length, planes):
    """Compute the bits of the rows in each cell, for a block of words: the AND of its values."""
    cells = 1
    for k in range(len(family)):
        row = table.first[family[k]]
        for x in range(table.sizes[family[k]] - 1, -1, -1):  # x = 0 overwrites the inputs
            for cell in range(cells):
                for word in range(length):
                    bits = table.bits[row + x, begin + word]
                    if k > 0:
                        bits &= planes[cell, word]
                    planes[x * cells + cell, word] = bits
        cells *= table.sizes[family[k]]


@kernel
def _mark_planes(cell_of, begin, length, planes):
    """Compute the bits of the rows in each cell, for a block of words, from the rows' cells."""
    planes[:, :length] = np.uint64(0)
    for row in range(begin * _WORD, min((begin + length) * _WORD, len(cell_of))):
        planes[cell_of[row], row // _WORD - begin] |= _ONE << np.uint64(row % _WORD)


@kernel
def _together(a, b, begin, length):
    """Return the number of common bits of the first words of `a` and those of `b` from `begin`."""
    total = 0
    for word in range(length):
        total += bits_set(a[word] & b[begin + word])
    return total


@kernel
def _score_by_bits(table, size, candidates, counts, scoring, space, add):
    """Score the candidates counted by bits; counts of their last values are the remainders."""
    cells, first = len(counts), 0
    for k in range(len(candidates)):
        if _is_marked(table, candidates[k], cells):
            values = table.sizes[candidates[k]]
            found = space[first : first + cells * values]
            for cell in range(cells):
                rest = counts[cell]
                for x in range(values - 1):
                    rest -= found[x * cells + cell]
                found[(values - 1) * cells + cell] = rest
            add[k] = family_score(found, cells * values, size, scoring, table.logs)
            first += cells * values


@kernel
def _score_by_rows(table, family, candidates, cells, scoring, scratch, to_fill, add):
    """Score the candidates not counted by bits whose tables are not too large."""
    for k in range(len(candidates)):
        values = table.sizes[candidates[k]]
        large = cells * values > MOST_CELLS
        if not large and not _is_marked(table, candidates[k], cells):
            if to_fill:
                _fill_cells(table, family, scratch.cell_of)
                to_fill = False
            found, codes = scratch.space[: cells * values], table.codes[candidates[k]]
            found[:] = 0
            for row in range(len(scratch.cell_of)):
                found[np.uint64(scratch.cell_of[row] + cells * np.int64(codes[row]))] += 1
            size = table.sizes[family[0]]
            add[k] = family_score(found, cells * values, size, scoring, table.logs)


@kernel
def _sum_out(counts, stride, values, smaller):
    """Sum a parent out of the table; its values are `stride` cells apart."""
    for cell in range(len(smaller)):
        total, first = 0, cell // stride * stride * values + cell % stride
        for x in range(values):
            total += counts[first + x * stride]
        smaller[cell] = total
