"""Estimators for analysis only: drawing from them would require the log-potential."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minigibbs.errors import SampleError
from minigibbs.exact.distributions import Distribution
from minigibbs.exact.enumeration import Enumeration
from minigibbs.graph.graph import FactorGraph
from minigibbs.samplers import Estimator
from minigibbs.system.boundary import checked


@checked(SampleError)
class PaperEstimator(Estimator):
    """Estimator for transition matrices that cannot be run."""

    def prepare(self, graph: FactorGraph) -> Any:
        """Raise an error: the estimator cannot be run."""
        name = type(self).__name__
        raise SampleError(f"{name} exists on paper only: use it with mg.theory")

    def work(self, graph: FactorGraph) -> float:
        """Return the number of all factors, which the log-potential requires."""
        return float(graph.stats.factors)


@checked(SampleError)
@dataclass(frozen=True)
class TruncatedEstimator(PaperEstimator):
    """Estimator conditioned on being within `delta` of the log-potential (Theorems 2 and 6).

    Parameters
    ----------
    estimator : Estimator
        The estimator.
    delta : float
        Largest deviation from the log-potential.

    Examples
    --------
    >>> import minigibbs as mg
    >>> mg.theory.TruncatedEstimator(mg.PoissonEstimator(10.0), 0.5).delta
    0.5
    """

    estimator: Estimator
    delta: float

    def describe(self) -> str:
        """Describe the estimator."""
        return f"{self.estimator.describe()}, given that it is within {self.delta:g}"

    def distribution(self, everything: Enumeration, state: int) -> Distribution:
        """Return the estimator's distribution, restricted to points within delta."""
        points, chances = self.estimator.distribution(everything, state)
        near = np.abs(points - everything.phi[:, state].sum()) <= self.delta
        if not near.any():
            raise SampleError(
                f"TruncatedEstimator: no estimate of state {state} is within {self.delta:g} "
                "of its energy; use a larger delta or batch"
            )
        return points[near], chances[near] / chances[near].sum()


@checked(SampleError)
@dataclass(frozen=True)
class TwoPointEstimator(PaperEstimator):
    """Estimator of the log-potential plus `delta` with probability `chance`, else minus `delta`.

    It has the simplest distribution that Theorem 2 covers. For one uniform spin, the spectral gap
    is about 1/2, while that of plain Gibbs is 1.

    Parameters
    ----------
    delta : float
        The deviation.
    chance : float, default 0.5
        Probability of the larger estimate.

    Examples
    --------
    >>> import minigibbs as mg
    >>> spin = mg.FactorGraph([2], [])
    >>> sampler = mg.MinGibbs(estimator=mg.theory.TwoPointEstimator(0.01))
    >>> round(mg.theory.transition(spin, sampler).spectral_gap(), 3)
    0.5
    """

    delta: float
    chance: float = 0.5

    def describe(self) -> str:
        """Describe the estimator."""
        return f"the energy plus or minus {self.delta:g}"

    def distribution(self, everything: Enumeration, state: int) -> Distribution:
        """Return the two points and their probabilities."""
        energy = everything.phi[:, state].sum()
        points = np.array([energy - self.delta, energy + self.delta])
        return points, np.array([1 - self.chance, self.chance])


@checked(SampleError)
def estimate_distribution(
    everything: Enumeration, estimator: Estimator, state: int
) -> Distribution:
    """Compute the paper's mu_x: the values of an estimator in a state, and their probabilities.

    Log-potentials are on the scale on which every factor has minimum 0.

    Parameters
    ----------
    everything : Enumeration
        All states of a graph.
    estimator : Estimator
        The estimator.
    state : int
        Index of the state.

    Returns
    -------
    tuple
        Values, and their probabilities.

    Examples
    --------
    >>> import minigibbs as mg
    >>> everything = mg.theory.Enumeration(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)]))
    >>> mg.theory.estimate_distribution(everything, mg.theory.TwoPointEstimator(0.25), 0)
    (array([0.75, 1.25]), array([0.5, 0.5]))
    """
    last = len(everything.states) - 1
    if not 0 <= state <= last:
        raise SampleError(f"state must be a number from 0 to {last:,}, got {state!r}")
    return estimator.distribution(everything, state)
