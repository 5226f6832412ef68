"""Counts of the first part of every chain, so that R-hat of marginals can split chains.

The loop stores them when a group is in the middle of the run. A checkpoint contains them with the
states. A group that is resumed from before its middle stores the same counts again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from minigibbs.running.goal import Goal
from minigibbs.running.group import Collected, Counted

_NAME = "half."  # prefix of the arrays in a checkpoint


def first_part(
    halves: Mapping[int, Counted], goal: Goal | None, parts: Sequence[Collected]
) -> Counted | None:
    """Return the counts of the first part of every row; None if some row has none.

    Parameters
    ----------
    halves : mapping from the index of a group to its counts
        Counts stored by the loop.
    goal : Goal or None
        The goal of the run, with counts at the ends of its rounds.
    parts : sequence of Collected
        Records of the groups so far.
    """
    early = None
    if goal is not None:
        middle = goal.middle(np.concatenate([part.clock for part in parts]))
        early = None if middle is None else Counted(middle.counts, middle.visits)
    elif len(halves) == len(parts):
        chosen = [halves[number] for number in range(len(parts))]
        early = Counted(*(np.concatenate(arrays) for arrays in zip(*chosen, strict=True)))
    visits = np.concatenate([part.visits for part in parts])
    if early is None or len(early.visits) != len(visits):
        return None
    return early if ((early.visits > 0) & (early.visits < visits)).all() else None


def save_halves(halves: Mapping[int, Counted]) -> dict[str, NDArray[np.int64]]:
    """Return the arrays to store in a checkpoint."""
    return {
        f"{_NAME}{number}.{name}": array
        for number, half in halves.items()
        for name, array in half._asdict().items()
    }


def load_halves(
    arrays: Mapping[str, NDArray[np.int64]], values: int, groups: int
) -> dict[int, Counted]:
    """Return the counts of `save_halves`; raise `ValueError` for impossible arrays."""
    found = {}
    for number in range(groups):
        if f"{_NAME}{number}.counts" not in arrays:
            continue
        half = Counted(*(arrays[f"{_NAME}{number}.{name}"] for name in Counted._fields))
        shape = (len(half.visits), values)
        if half.visits.ndim != 1 or half.counts.shape != shape:
            raise ValueError(f"half {number}: expected counts in shape {shape}")
        if any(array.dtype != np.int64 or (array < 0).any() for array in half):
            raise ValueError(f"half {number}: expected counts")
        found[number] = half
    return found
