"""The transition matrix of Poisson-Gibbs, by enumeration."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minigibbs.exact.distributions import poisson_grid
from minigibbs.exact.enumeration import Enumeration, softmax
from minigibbs.exact.transition import Transition, on_states
from minigibbs.samplers.poisson_gibbs.split import Split


def poisson_gibbs_transition(everything: Enumeration, split: Split) -> Transition:
    """Compute the matrix of Gibbs sampling on (state, counts), with new counts in each update."""
    rows = everything.graph.packed.rows

    def conditionals(i: int, line: NDArray[np.int64]) -> NDArray[np.float64]:
        heavy = split.heavy[rows["start"][i] : rows["end"][i]]
        entries, theta = everything.entries(i), split.theta[i]
        phi, span = everything.phi[np.ix_(entries, line)], everything.spans[entries[~heavy]]
        exact, tail = phi[heavy].sum(axis=0), phi[~heavy]
        gain = np.log1p(tail / (theta * span[:, None]))
        matrix = np.empty((len(line), len(line)))
        for old in range(len(line)):
            counts, chance = poisson_grid(theta * span + tail[:, old])
            matrix[old] = chance @ softmax(exact + counts @ gain)
        return matrix

    return on_states(everything, conditionals, everything.distribution)
