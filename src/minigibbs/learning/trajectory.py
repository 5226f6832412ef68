"""log Z along training: annealed importance sampling whose schedule is the steps of the fit.

Chains follow the parameters, as the chains of annealed importance sampling follow temperatures. A
step multiplies the weight of a chain by the ratio of the new to the old unnormalized probability of
its state. Where few chains have most of the weight, chains are drawn anew by their weights, which
sets all weights equal (sequential Monte Carlo).

The chains are not those that give the gradient. A step depends on the states of those: it lowers
the statistics that are too large in them by chance, and log Z would come out too small.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import TooLargeError
from minigibbs.exact.elimination import log_partition
from minigibbs.graph.data import Data
from minigibbs.graph.graph import FactorGraph
from minigibbs.learning.chains import Threads, seed_of
from minigibbs.learning.placing import model_chains
from minigibbs.learning.settings import Settings
from minigibbs.results.annealed import annealed_log_z
from minigibbs.results.likelihood import unnormalized
from minigibbs.system.watch import current

TRAJECTORY = 4  # what the seed of these chains is for
_CHAINS = 500  # at most
_WARMUP = 20  # sweeps at the first parameters
_ROWS = 1000  # of the data whose likelihood is followed
_FEW = 0.5  # effective share of the chains below which they are drawn anew
_ERROR = 0.02  # of the first log Z, where it is sampled


class Trajectory:
    """The weights of a fit's chains, and log Z of the parameters that they are at."""

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
        self.values = values.copy()
        first = graph.with_flat(self.values)
        try:
            self.base = float(log_partition(first))
        except TooLargeError:
            self.base = annealed_log_z(first, _ERROR, seed, threads.count, current()).value
        self.weights = np.zeros(len(chains))

    def follow(self, values: NDArray[np.float64]) -> None:
        """Weight the chains for a step from the last parameters to these."""
        states = self.chains.states()
        before = self.graph.with_flat(self.values).log_potential(states)
        self.values = values.copy()
        self.weights += np.asarray(self.graph.with_flat(self.values).log_potential(states)) - before
        shares = np.exp(self.weights - self.weights.max())
        shares /= shares.sum()
        if 1.0 / (shares @ shares) < _FEW * len(shares):
            self.base = self.log_z
            places = (self.rng.random() + np.arange(len(shares))) / len(shares)
            ends = np.cumsum(shares)
            chosen = np.searchsorted(ends / ends[-1], places).clip(max=len(shares) - 1)
            self.chains.load(states[chosen].copy())
            self.weights[:] = 0.0
        self.chains.set_weights(self.values)
        self.chains.sweep(self.sweeps)

    @property
    def log_z(self) -> float:
        """Log Z of the last parameters."""
        top = float(self.weights.max())
        return self.base + top + math.log(float(np.exp(self.weights - top).mean()))

    def log_likelihood(self) -> float:
        """The mean log-likelihood of a row at the last parameters."""
        inside = unnormalized(self.graph.with_flat(self.values), self.data)
        return float(self.data.weight @ inside / self.data.weight.sum()) - self.log_z
