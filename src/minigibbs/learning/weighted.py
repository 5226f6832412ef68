"""Weighted chains for changing parameters, so that slow mixing does not bias moments.

A parameter step multiplies the weight of a chain by the ratio of the new to the old unnormalized
probability of its state. Weighted averages over chains then estimate the moments at the present
parameters, whether or not chains move between modes. The mean weight estimates the ratio of the
partition functions (annealed importance sampling; for learning see Carbone et al. 2023,
arXiv:2305.19414). If few chains have most of the weight, chains are resampled by their weights,
which makes all weights equal (sequential Monte Carlo).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.learning.chains import Chains

_FEW = 0.5  # effective share of the chains below which they are resampled


class WeightedChains:
    """Weighted chains of a graph whose parameters change.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    values : array
        Present parameters; the chains sample their distribution.
    chains : Chains
        The chains.
    """

    def __init__(self, graph: FactorGraph, values: NDArray[np.float64], chains: Chains) -> None:
        self.graph, self.values, self.chains = graph, values.copy(), chains
        self.weights = np.zeros(len(chains))  # logarithms
        self._gained = 0.0  # increase of log Z up to the last resampling

    @property
    def shares(self) -> NDArray[np.float64]:
        """The weights, normalized to a sum of 1."""
        found = np.exp(self.weights - self.weights.max())
        shares: NDArray[np.float64] = found / found.sum()
        return shares

    @property
    def log_ratio(self) -> float:
        """Increase of log Z since the initial parameters."""
        top = float(self.weights.max())
        return self._gained + top + math.log(float(np.exp(self.weights - top).mean()))

    def follow(self, values: NDArray[np.float64], rng: np.random.Generator) -> None:
        """Update the weights for a step to new parameters; resample if necessary."""
        states = self.chains.states()
        before = self.graph.with_flat(self.values).log_potential(states)
        self.values = values.copy()
        self.weights += np.asarray(self.graph.with_flat(self.values).log_potential(states)) - before
        shares = self.shares
        if 1.0 / (shares @ shares) < _FEW * len(shares):
            self.resample(rng)

    def resample(self, rng: np.random.Generator) -> None:
        """Resample chains by their weights, which are equal afterwards."""
        shares, self._gained = self.shares, self.log_ratio
        places = (rng.random() + np.arange(len(shares))) / len(shares)
        ends = np.cumsum(shares)
        chosen = np.searchsorted(ends / ends[-1], places).clip(max=len(shares) - 1)
        self.chains.load(self.chains.states()[chosen].copy())
        self.weights[:] = 0.0
