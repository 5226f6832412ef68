"""Similarity of texts by edit distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.jit import entry

_LONGEST = 256  # maximum number of characters that are compared


def similarities(
    pairs: NDArray[np.int64], first: Sequence[Any], second: Sequence[Any]
) -> NDArray[np.float64]:
    """Return 1 - edit distance / length of the longer text, for pairs of indices of values.

    >>> similarities(np.array([[0, 0]]), ["berlin"], ["berlxn"]).round(3)
    array([0.833])
    """
    if not len(pairs):
        return np.empty(0)
    one, one_ends = _texts(first)
    two, two_ends = _texts(second)
    found = np.empty(len(pairs))
    room = np.empty((2, _LONGEST + 1), dtype=np.int64)
    _fill(np.ascontiguousarray(pairs), one, one_ends, two, two_ends, room, found)
    return found


def _texts(values: Sequence[Any]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the code points of concatenated texts, and the start of each; the last is the end."""
    texts = [str(value)[:_LONGEST] for value in values]
    ends = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
    joined = "".join(texts).encode("utf-32-le", "surrogatepass")
    return np.frombuffer(joined, dtype=np.uint32), ends


@entry
def _fill(pairs, one, one_ends, two, two_ends, room, found):  # type: ignore[no-untyped-def]
    for pair in range(len(pairs)):
        a, b = pairs[pair, 0], pairs[pair, 1]
        begin, rows = one_ends[a], one_ends[a + 1] - one_ends[a]
        other, columns = two_ends[b], two_ends[b + 1] - two_ends[b]
        for k in range(columns + 1):
            room[0, k] = k
        for i in range(rows):
            now, before = (i + 1) % 2, i % 2
            room[now, 0] = i + 1
            for k in range(columns):
                differs = 0 if one[begin + i] == two[other + k] else 1
                best = room[before, k] + differs
                if room[before, k + 1] + 1 < best:
                    best = room[before, k + 1] + 1
                if room[now, k] + 1 < best:
                    best = room[now, k] + 1
                room[now, k + 1] = best
        longer = max(rows, columns)
        found[pair] = 1.0 if longer == 0 else 1.0 - room[rows % 2, columns] / longer
