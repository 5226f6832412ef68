"""Tables of counts, in compiled code, by bits and on threads.

Columns of few values are stored as bits: one row of words per value, with one bit per row of data.
How often two events occur together is then the number of bits that their words share. Tables of
many cells are counted row by row instead. A missing cell counts as one more value, so that every
table is complete; its rows and columns are cut off afterwards where available cases are wanted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.counts import bits_set
from minigibbs.kernels.jit import entry, kernel
from minigibbs.structure.scores import family_score, score_of

MOST_CELLS = 2**22  # of a table; larger families are not considered
_BY_BITS = 64  # cells of a table up to which bits are quicker than rows
_MOST_MARKED = 16  # values of a column up to which it is stored as bits
_WORD = 64
_BLOCK = 512  # words that are counted together, so that they stay in the cache
_ALONE = 2_000_000  # cells times rows below which one thread is quicker
_ONE, _NONE = np.uint64(1), np.uint64(0)


class Counter:
    """Counts of a table of codes.

    Parameters
    ----------
    codes : array [column, row]
        Codes from 0 to the size of the column less 1.
    sizes : array [column]
        How many codes each column has, the one for missing cells included.
    threads : int or None
        Threads to count on; by default one per processor.
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
        self.words = -(-self.rows // _WORD)
        self.bits = np.zeros((int(self.first[-1]), self.words), dtype=np.uint64)
        self.totals = np.zeros(int(sizes.sum()), dtype=np.int64)
        self.start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.spread(
            lambda begin, end: _mark(
                self.codes, self.first, self.start, begin, end, self.bits, self.totals
            ),
            self.columns,
            self.rows,
        )

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def spread(self, work: Callable[[int, int], None], pieces: int, cost: float) -> None:
        """Call work(begin, end) for parts of `pieces`, on threads if each costs much."""
        parts = min(self.threads, pieces) if pieces * cost > _ALONE else 1
        if parts <= 1:
            work(0, pieces)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads)
        cuts = np.linspace(0, pieces, parts + 1).astype(int).tolist()
        list(self._pool.map(work, cuts[:-1], cuts[1:]))

    def counts_of(self, column: int) -> NDArray[np.int64]:
        """How often each code of a column occurs."""
        return self.totals[self.start[column] : self.start[column + 1]]

    def pairs(
        self, first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tables of pairs, one after the other, and where each starts.

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

    def family(self, child: int, parents: Sequence[int]) -> Family:
        """The table of a column and its parents."""
        return Family(self, child, tuple(parents))


class Family:
    """A column and its parents: their table, and what a further parent would score."""

    def __init__(self, counter: Counter, child: int, parents: tuple[int, ...]) -> None:
        self.counter, self.child, self.parents = counter, child, parents
        sizes = counter.sizes
        self.size = int(sizes[child])
        self.shape = (*(int(sizes[p]) for p in reversed(parents)), self.size)
        self.cells = int(np.prod(self.shape, dtype=np.float64))
        self._index: NDArray[np.int32] | None = None
        self._bits: NDArray[np.uint64] | None = None
        self.counts = self._count()

    def _count(self) -> NDArray[np.int64]:
        """The flat table: the last parent is slowest, the child is fastest."""
        counts = np.zeros(self.cells, dtype=np.int64)
        _count_rows(self.index, counts)
        return counts

    @property
    def index(self) -> NDArray[np.int32]:
        """[row] the cell of each row."""
        if self._index is None:
            counter, stride = self.counter, self.size
            index = counter.codes[self.child].astype(np.int32)
            for parent in self.parents:
                _extend(index, counter.codes[parent], stride)
                stride *= int(counter.sizes[parent])
            self._index = index
        return self._index

    @property
    def bits(self) -> NDArray[np.uint64]:
        """[cell, word] the rows in each cell."""
        if self._bits is None:
            bits = np.zeros((self.cells, self.counter.words), dtype=np.uint64)
            _mark_cells(self.index, bits)
            self._bits = bits
        return self._bits

    def score(self, kind: int, strength: float) -> float:
        """The score of the family."""
        return float(
            score_of(self.counts, self.cells, self.size, self.counter.rows, kind, strength)
        )

    def without(self, parent: int, kind: int, strength: float) -> float:
        """The score with one parent less, from the table alone."""
        axis = len(self.parents) - 1 - self.parents.index(parent)
        smaller = np.ascontiguousarray(self.counts.reshape(self.shape).sum(axis=axis)).ravel()
        rows = self.counter.rows
        return float(score_of(smaller, len(smaller), self.size, rows, kind, strength))

    def with_each(
        self, candidates: NDArray[np.int64], kind: int, strength: float
    ) -> NDArray[np.float64]:
        """The score with one parent more, for each candidate; -inf if its table is too large."""
        counter = self.counter
        scores = np.full(len(candidates), -np.inf)
        sizes = counter.sizes[candidates]
        cells = sizes * self.cells
        marked = counter.first[candidates + 1] > counter.first[candidates]
        by_bits = marked & ((sizes - 1) * self.cells <= _BY_BITS)
        by_rows = ~by_bits & (cells <= MOST_CELLS)
        for chosen, bits in ((np.flatnonzero(by_bits), True), (np.flatnonzero(by_rows), False)):
            if not len(chosen):
                continue
            found, some = np.empty(len(chosen)), candidates[chosen]
            largest = int(cells[chosen].max())
            settings = (self.size, counter.rows, kind, strength)
            base: Any = self.bits if bits else self.index  # made before threads ask for it

            def work(
                begin: int,
                end: int,
                some: NDArray[np.int64] = some,
                found: NDArray[np.float64] = found,
                largest: int = largest,
                base: Any = base,
                bits: bool = bits,
                settings: tuple[int, int, int, float] = settings,
            ) -> None:
                space = np.zeros(largest, dtype=np.int64)
                if bits:
                    planes = (counter.bits, counter.first)
                    _score_by_bits(
                        base, self.counts, *planes, some, begin, end, *settings, space, found
                    )
                else:
                    columns = (counter.codes, counter.sizes)
                    _score_by_rows(
                        base, self.cells, *columns, some, begin, end, *settings, space, found
                    )

            counter.spread(work, len(chosen), counter.rows * (0.2 if bits else 1.0))
            scores[chosen] = found
        return scores


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
def _extend(index, codes, stride):
    """Add one more column to the cells of rows."""
    for row in range(len(index)):
        index[row] += np.int32(codes[row] * stride)


@entry
def _count_rows(index, counts):
    """Count how many rows each cell has."""
    for row in range(len(index)):
        counts[np.uint64(index[row])] += 1


@entry
def _mark_cells(index, bits):
    """Set the bit of each row in the words of its cell."""
    for row in range(len(index)):
        bits[index[row], row // _WORD] |= _ONE << np.uint64(row % _WORD)


@kernel
def _together(a, b, begin, end):
    """How many bits two rows of words share, from word `begin` to `end`."""
    total = 0
    for word in range(begin, end):
        total += bits_set(a[word] & b[word])
    return total


@entry
def _score_by_bits(
    cells, counts, bits, first, candidates, begin, end, size, rows, kind, strength, space, found
):
    """Score the candidates from `begin` to `end` as further parents, by the bits of the cells."""
    base, words = len(cells), cells.shape[1]
    for k in range(begin, end):
        row, values = first[candidates[k]], first[candidates[k] + 1] - first[candidates[k]]
        for cell in range(base * values):
            space[cell] = 0
        for block in range(0, words, _BLOCK):
            stop = min(block + _BLOCK, words)
            for x in range(values - 1):
                for cell in range(base):
                    shared = _together(cells[cell], bits[row + x], block, stop)
                    space[x * base + cell] += shared
        for cell in range(base):
            rest = counts[cell]
            for x in range(values - 1):
                rest -= space[x * base + cell]
            space[(values - 1) * base + cell] = rest
        found[k] = family_score(space, base * values, size, rows, kind, strength)


@entry
def _score_by_rows(
    index, base, codes, sizes, candidates, begin, end, size, rows, kind, strength, space, found
):
    """Score the candidates from `begin` to `end` as further parents, row by row."""
    for k in range(begin, end):
        column = candidates[k]
        cells = base * sizes[column]
        for cell in range(cells):
            space[cell] = 0
        for row in range(len(index)):
            space[np.uint64(index[row] + base * np.int64(codes[column, row]))] += 1
        found[k] = family_score(space, cells, size, rows, kind, strength)
