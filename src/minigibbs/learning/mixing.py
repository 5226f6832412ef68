"""Detection of persistent chains that do not move between the modes of the model.

Two signs are read from the states that the steps visit anyway, so that no draw depends on them.

1. Chains keep their statistic along the direction in which the statistics of the chains differ
   most. The moments of data and model may then agree, while the parameters give the modes other
   weights. Single modes mix in fewer than `LAG` steps.
2. The difference of the moments returns after it was small. Parameters then swing across a
   first-order transition, which all chains cross together and late.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.learning.chains import Chains, Threads

FIRST, LAG = 100, 50  # first step of a comparison, and its length; it is repeated at 200, 400, ...
_KEPT = 0.6  # correlation of a statistic with itself after the lag
_ALARM = 5.0  # least correlation, times the root of the number of chains: 1 of 3 million by chance
_ROUNDS = 4  # rounds of the power iteration
_SETTLED = 200  # step from which swings are looked for
_SWING, _TIMES = 0.1, 2.0  # error of a swing as a share of a range, and as a multiple of the least
_NOISE = 2.5  # least such error, times the root of the number of chains: 5 standard deviations


class Mixing:
    """One comparison at a time of the chains of a fit with themselves.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    """

    def __init__(self, graph: FactorGraph) -> None:
        self._graph = graph
        self.direction = np.empty(0)  # [parameter] in which statistics of chains differ most
        self.before = np.empty(0)  # [chain] statistic along it at the first step

    def stuck(self, step: int, gap: NDArray[np.float64], chains: Chains, threads: Threads) -> bool:
        """Begin or end a comparison where one is due; return whether chains were stuck in it.

        Parameters
        ----------
        step : int
            Number of steps made.
        gap : array [parameter]
            Difference of moments, the first direction of the power iteration.
        chains : Chains
            Chains at their present states.
        threads : Threads
            Threads that share the work.
        """
        if _begins(step):
            self._begin(gap, chains, threads)
        elif _begins(step - LAG) and len(self.before):
            now = self._along(self.direction, chains)
            if self.before.std() and now.std():
                kept = float(np.corrcoef(self.before, now)[0, 1])
                return kept > max(_KEPT, _ALARM / math.sqrt(len(now)))
        return False

    def _begin(self, gap: NDArray[np.float64], chains: Chains, threads: Threads) -> None:
        """Find the first principal component of the statistics of the chains."""
        frame, direction = self._graph.frame, gap
        for _ in range(_ROUNDS):
            found = self._along(np.where(frame.fixed, 0.0, direction), chains)
            weights = (found - found.mean()) / (found.std() or 1.0)
            direction = chains.summed(frame, weights, threads)
        self.direction = np.where(frame.fixed, 0.0, direction)
        self.before = self._along(self.direction, chains)

    def _along(self, direction: NDArray[np.float64], chains: Chains) -> NDArray[np.float64]:
        """Return the statistic of each chain along a direction."""
        found = self._graph.with_flat(direction).log_potential(chains.states())
        return np.asarray(found, dtype=np.float64)


def _begins(step: int) -> bool:
    """Return whether a comparison begins at this step: at 100, 200, 400 and so on."""
    times, left = divmod(step, FIRST)
    return step > 0 and left == 0 and times & (times - 1) == 0


def swings(step: int, errors: list[float], chains: int) -> bool:
    """Return whether the last error is large after it was small.

    Parameters
    ----------
    step : int
        Number of steps made.
    errors : list of float
        Largest differences of moments so far, as shares of their ranges.
    chains : int
        Number of chains.
    """
    large = max(_SWING, _NOISE / math.sqrt(chains), _TIMES * min(errors))
    return step >= _SETTLED and errors[-1] > large
