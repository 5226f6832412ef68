"""Log Z during training: annealed importance sampling whose schedule is the steps of the fit.

The chains are not those of the gradient. A step depends on the states of the latter: it lowers the
statistics that are too large in them by chance. With them, log Z would be estimated too small.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import TooLargeError
from minigibbs.exact.elimination import log_partition
from minigibbs.graph.data import Data
from minigibbs.graph.graph import FactorGraph
from minigibbs.learning.chains import Threads, seed_of
from minigibbs.learning.placing import model_chains
from minigibbs.learning.settings import Settings
from minigibbs.learning.weighted import WeightedChains
from minigibbs.results.annealed import annealed_log_z
from minigibbs.results.likelihood import unnormalized
from minigibbs.system.watch import current

TRAJECTORY = 4  # part of the seed of these chains
_CHAINS = 500  # most chains
_WARMUP = 20  # sweeps at the initial parameters
_ROWS = 1000  # most rows whose likelihood is computed
_ERROR = 0.02  # standard error of the initial log Z, if it is sampled


class Trajectory:
    """Weighted chains during a fit, and log Z of its parameters."""

    def __init__(
        self,
        graph: FactorGraph,
        values: NDArray[np.float64],
        data: Data,
        settings: Settings,
        threads: Threads,
    ) -> None:
        self.graph, self.sweeps, seed = graph, settings.sweeps, settings.seed
        count = min(settings.chains, _CHAINS)
        chains = model_chains(graph, None, count, seed_of((seed, TRAJECTORY)), threads)
        self.chains = chains
        self.rng = np.random.default_rng([seed, TRAJECTORY])
        some = self.rng.permutation(len(data))[:_ROWS]
        self.data = data if len(data) <= _ROWS else data.some(np.sort(some))
        chains.set_weights(values)
        chains.sweep(_WARMUP)
        first = graph.with_flat(values)
        try:
            self.base = float(log_partition(first, progress=False))
        except TooLargeError:
            self.base = annealed_log_z(first, _ERROR, seed, threads.count, current()).value
        self.weighted = WeightedChains(graph, values, chains)

    def follow(self, values: NDArray[np.float64]) -> None:
        """Update the weights for a step to new parameters, then sweep."""
        self.weighted.follow(values, self.rng)
        self.chains.set_weights(values)
        self.chains.sweep(self.sweeps)

    @property
    def log_z(self) -> float:
        """Log Z of the last parameters."""
        return self.base + self.weighted.log_ratio

    def log_likelihood(self) -> float:
        """Return the mean log-likelihood of a row at the last parameters."""
        inside = unnormalized(self.graph.with_flat(self.weighted.values), self.data)
        return float(self.data.weight @ inside / self.data.weight.sum()) - self.log_z
