"""The equivalence class of a network: the directions that the data determine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def compelled(edge: NDArray[np.bool_], given: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
    """[parent, child] whether every network of the same distributions has the edge so directed.

    The edges of colliders whose parents are not adjacent, those whose direction is given, and those
    that follow from them by Meek's rules (arXiv:1302.4972).

    Parameters
    ----------
    edge : array
        [parent, child] of a network without cycles.
    given : array, optional
        [parent, child] edges whose direction is known otherwise, such as by rules.

    Examples
    --------
    >>> collider = np.array([[0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]], bool)
    >>> compelled(collider).sum(), compelled(np.triu(np.ones((3, 3), bool), 1)).sum()
    (np.int64(3), np.int64(0))
    """
    adjacent = edge | edge.T
    fixed = np.zeros_like(edge) if given is None else edge & given
    for child in range(len(edge)):
        parents = np.flatnonzero(edge[:, child])
        apart = ~adjacent[np.ix_(parents, parents)]
        np.fill_diagonal(apart, False)
        fixed[parents[apart.any(axis=1)], child] = True
    changed = True
    while changed:
        changed = False
        for a, b in np.argwhere(edge & ~fixed).tolist():
            if _follows(a, b, fixed, adjacent, edge):
                fixed[a, b] = changed = True
    return fixed


def _follows(
    a: int,
    b: int,
    fixed: NDArray[np.bool_],
    adjacent: NDArray[np.bool_],
    edge: NDArray[np.bool_],
) -> bool:
    """Return whether a -> b follows from the fixed directions."""
    into_a = fixed[:, a]
    if (into_a & ~adjacent[:, b] & (np.arange(len(edge)) != b)).any():  # no new collider
        return True
    if (fixed[a] & fixed[:, b]).any():  # no cycle
        return True
    loose = adjacent[a] & ~fixed[a] & ~fixed[:, a]
    sources = np.flatnonzero(loose & fixed[:, b])  # the rule needs two that are not adjacent
    apart = ~adjacent[np.ix_(sources, sources)]
    np.fill_diagonal(apart, False)
    if apart.any():
        return True
    middle = fixed[:, b] & adjacent[a]  # of a path to b that begins beside a, and not beside b
    return bool((fixed[:, middle] & (loose & ~adjacent[:, b])[:, None]).any())


def class_distance(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> int:
    """Return the structural Hamming distance between two networks' equivalence classes.

    It counts pairs of columns. The edge of a counted pair is present in one class only, or has
    different directions, or has a direction in one class only.
    """
    total = 0
    patterns = []
    for edge in (first, second):
        fixed = compelled(edge)
        patterns.append(
            np.where(edge | edge.T, 1, 0) + np.where(fixed, 1, 0) - np.where(fixed.T, 3, 0)
        )
    upper = np.triu_indices(len(first), 1)
    total += int(np.count_nonzero(patterns[0][upper] != patterns[1][upper]))
    return total
