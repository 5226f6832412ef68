"""Bootstrap confidence in edges: how often resampled tables have them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from minigibbs.structure.equivalence import compelled
from minigibbs.structure.learned import Learned
from minigibbs.structure.table import Codes
from minigibbs.system.watch import Watch


def confidences(
    table: Codes,
    algorithm: Callable[[Codes], Learned],
    replicates: int,
    rng: np.random.Generator,
    watch: Watch,
    given: NDArray[np.bool_],
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Return how often edges are found in tables whose rows are drawn with replacement.

    Parameters
    ----------
    table : Codes
        The table.
    algorithm : callable
        Returns the structure learned from a table.
    replicates : int
        Number of resampled tables.
    rng : Generator
        Random generator for the rows.
    watch : Watch
        Replicates end with the time of the call.
    given : array
        [a, b] edges whose direction is known by rules.

    Returns
    -------
    tuple
        Three results: [a, b] the share of tables with an edge between a and b; [a, b] the share of
        these tables whose edge leads from a to b; and the number of tables used. An edge without a
        determined direction counts as half in each direction.
    """
    present = np.zeros((table.columns, table.columns))
    towards = np.zeros_like(present)
    made = 0
    while made < replicates and not watch.ended:
        found = algorithm(table.resampled(rng))
        edge = found.matrix(table.columns)
        present += edge | edge.T
        fixed = compelled(edge, given) if found.directed else np.zeros_like(edge)
        towards += np.where(fixed, 1.0, np.where((edge | edge.T) & ~fixed.T, 0.5, 0.0))
        made += 1
    shares = np.divide(towards, present, out=np.zeros_like(towards), where=present > 0)
    return present / max(made, 1), shares, made
