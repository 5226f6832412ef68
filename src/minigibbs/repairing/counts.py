"""Co-occurrence counts of the values of a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minigibbs.repairing.table import MISSING


@dataclass(frozen=True, eq=False)
class Pairs:
    """Counts of (key, value) pairs; the key is the value of one or several context columns."""

    size: int  # of the target's domain
    keys: NDArray[np.int64]  # sorted key * size + value
    counts: NDArray[np.int64]
    totals: NDArray[np.int64]  # [key] number of rows
    single: NDArray[np.int64]  # [key] number of values that co-occur with it once

    @classmethod
    def of(cls, key: NDArray[np.int64], value: NDArray[np.int64], size: int) -> Pairs:
        """Count the rows in which neither is missing."""
        seen = (key != MISSING) & (value != MISSING)
        keys, counts = np.unique(key[seen] * size + value[seen], return_counts=True)
        length = int(key.max(initial=0)) + 1
        totals = np.bincount(key[seen], minlength=length)
        single = np.bincount(keys[counts == 1] // size, minlength=length)
        return cls(size, keys, counts, totals, single)

    def count(self, key: NDArray[np.int64], value: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how often each key and value co-occur; 0 if either is missing or unknown."""
        if not len(self.keys):
            return np.zeros(len(key), dtype=np.int64)
        known = (key >= 0) & (value >= 0) & (value < self.size)
        wanted = key * self.size + value
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(known & (self.keys[place] == wanted), self.counts[place], 0)

    def total(self, key: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how often each key occurs with any value."""
        return _at(self.totals, key)

    def singles(self, key: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many values co-occur with each key in one row only."""
        return _at(self.single, key)

    def top(self, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the most frequent values of each key, as (key, value, count)."""
        key, value = np.divmod(self.keys, self.size)
        order = np.lexsort((value, -self.counts, key))
        key, value, count = key[order], value[order], self.counts[order]
        first = np.searchsorted(key, key, side="left")
        some = np.arange(len(key)) - first < most
        return key[some], value[some], count[some]

    def loo_accuracy(self) -> tuple[float, float]:
        """Return the leave-one-out accuracy of the majority value of each key, and its coverage.

        The accuracy is a share of the cells with another cell of the same key. The coverage is the
        share of cells that have one.
        """
        if not len(self.keys):
            return 0.0, 0.0
        key = self.keys // self.size
        largest = np.zeros(len(self.totals), dtype=np.int64)
        np.maximum.at(largest, key, self.counts)
        ties = np.bincount(key[self.counts == largest[key]], minlength=len(self.totals))
        several = self.totals >= 2
        rows = int(self.totals[several].sum())
        # A cell with a tied value loses the vote once it is left out.
        right = np.where(ties > 1, 0, largest)
        alone = largest <= 1
        right = np.where(alone, 0, right)
        return (
            float(right[several].sum() / rows) if rows else 0.0,
            rows / max(int(self.totals.sum()), 1),
        )


def _at(numbers: NDArray[np.int64], key: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the entry of each key; 0 if a key is missing or unknown."""
    known = (key >= 0) & (key < len(numbers))
    return np.where(known, numbers[np.where(known, key, 0)], 0)


def joined(columns: NDArray[np.int64], sizes: list[int]) -> NDArray[np.int64]:
    """Return one key per row of codes, -1 if any of them is missing.

    >>> joined(np.array([[0, 1], [1, -1], [1, 1], [0, 1]]), [2, 2]).tolist()
    [0, -1, 1, 0]
    """
    if columns.shape[1] == 1:
        return columns[:, 0]
    whole = (columns != MISSING).all(axis=1)
    keys = np.full(len(columns), MISSING, dtype=np.int64)
    if whole.any():
        keys[whole] = np.unique(columns[whole], axis=0, return_inverse=True)[1].ravel()
    return keys
