"""Lemmas and theorems of the paper on one graph: claimed and true numbers.

Each function enumerates a small graph and returns a `Comparison`. Distributions are compared state
by state, spectral gaps as a ratio to plain Gibbs's (Theorem 6: to MGPMH's). Lemma 2 and Theorems 2
and 4 are false as the paper states them; docs/paper.md has counterexamples, and proofs of repaired
versions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError, TooLargeError
from minigibbs.exact.distributions import Distribution
from minigibbs.exact.enumeration import Enumeration
from minigibbs.graph.graph import FactorGraph
from minigibbs.samplers import (
    MGPMH,
    DoubleMinGibbs,
    Estimator,
    Gibbs,
    MinGibbs,
    PoissonEstimator,
    PoissonGibbs,
    Sampler,
)
from minigibbs.samplers.bounds import (
    DOUBLE_MIN_EXPONENT,
    bernstein_batch,
    check_settings,
    estimator_batch,
    mgpmh_slowdown,
    min_gibbs_exponent,
    norm_slowdown,
    redraw_slowdown,
)
from minigibbs.system.boundary import checked
from minigibbs.theory.estimates import estimate_distribution
from minigibbs.theory.transitions import Transition, sweep_gap, transition

_MOST_DELTA = 1e100  # largest deviation of an estimate: its square is finite
EQUAL, AT_LEAST, AT_MOST = "equal", "at least", "at most"
_MOST_SECONDS = 60.0  # of the processor, for the distributions of estimates in all states
_TRIED = 1.0  # seconds of the first states, by which the time of all is predicted
_UNSEEN = 1e-12  # smaller probabilities are lost, because Poisson tails are cut


@checked(SampleError, init=False)
@dataclass(frozen=True, eq=False)
class Comparison:
    """Claimed numbers and the true numbers.

    Attributes
    ----------
    sense : str
        "equal", "at least" or "at most": how the true numbers relate to the claimed ones.
    claimed : ndarray
        The numbers according to the claim.
    true : ndarray
        The same numbers, computed by enumeration.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> found = mg.theory.theorem_3(pair, batch=2.0)
    >>> found.holds(), found.strain < 1
    (True, True)
    """

    sense: str
    claimed: NDArray[np.float64]
    true: NDArray[np.float64]

    @property
    def margin(self) -> float:
        """Smallest distance to a violation of the claim; negative if the claim is false.

        For distributions it is minus the largest difference, for bounds the smallest logarithm of
        the ratio.
        """
        if self.sense == EQUAL:
            return -float(np.abs(self.claimed - self.true).max())
        with np.errstate(divide="ignore"):
            ratio = np.log(np.maximum(self.true, 0.0)) - np.log(self.claimed)
        return float((ratio if self.sense == AT_LEAST else -ratio).min())

    @property
    def strain(self) -> float:
        """Largest share of the claim that is used: 1 if it is just true, larger if it is false.

        For bounds it is a ratio of logarithms, so that a bound close to 1 can be tested too. For
        distributions it is the largest difference divided by 1e-9.
        """
        if self.sense == EQUAL:
            return -self.margin / 1e-9
        with np.errstate(divide="ignore"):
            claimed, true = np.log(self.claimed), np.log(np.maximum(self.true, 0.0))
        if self.sense == AT_LEAST:
            return float((true / np.minimum(claimed, -1e-6)).max())
        return float((claimed / np.minimum(true, -1e-6)).max())

    def holds(self, tolerance: float = 1e-9) -> bool:
        """Return whether the claim is true up to rounding.

        Parameters
        ----------
        tolerance : float, default 1e-09
            Allowed error.

        Returns
        -------
        bool
            Whether `margin` is at least minus the tolerance.
        """
        return self.margin >= -tolerance


def _check_bounded(graph: FactorGraph) -> None:
    """Refuse hard constraints: the paper's bounds contain L and Psi, which are infinite then."""
    if len(graph.hard):
        raise SampleError(
            f"there is no such bound for this graph: {graph.where(graph.hard[0])} has a hard "
            "constraint (a log-potential of -inf), so that L and Psi are infinite"
        )


@checked(SampleError)
def theorem_1(graph: FactorGraph, estimator: Estimator) -> Comparison:
    """Check Theorem 1: MIN-Gibbs has stationary distribution pi(x) proportional to E exp(estimate).

    Parameters
    ----------
    graph : FactorGraph
        A small model.
    estimator : Estimator
        The estimator of MIN-Gibbs.

    Returns
    -------
    Comparison
        The claimed distribution, and the computed one.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5), mg.Unary([0], [[0.0, 0.3]])])
    >>> theorem_1(graph, mg.SubsetEstimator(1)).holds()
    True
    """
    return _distribution(transition(graph, MinGibbs(estimator=estimator)), estimator)


@checked(SampleError)
def theorem_3(graph: FactorGraph, batch: float) -> Comparison:
    """Check Theorem 3: the stationary distribution of MGPMH is that of the model.

    Parameters
    ----------
    graph : FactorGraph
        A small model.
    batch : float
        The paper's lambda.

    Returns
    -------
    Comparison
        The distribution of the model, and that of the chain.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> mg.theory.theorem_3(pair, batch=2.0).holds()
    True
    """
    return _stationary(transition(graph, MGPMH(batch=batch)), Enumeration(graph).distribution)


@checked(SampleError)
def theorem_5(graph: FactorGraph, batch: float, estimator: Estimator) -> Comparison:
    """Check Theorem 5: DoubleMIN-Gibbs has the stationary distribution of MIN-Gibbs.

    Parameters
    ----------
    graph : FactorGraph
        A small model.
    batch : float
        The first batch, lambda_1.
    estimator : Estimator
        The estimator that accepts or rejects.

    Returns
    -------
    Comparison
        The claimed distribution, and the computed one.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> mg.theory.theorem_5(pair, 2.0, mg.theory.TwoPointEstimator(0.1)).holds()
    True
    """
    return _distribution(
        transition(graph, DoubleMinGibbs(batch=batch, estimator=estimator)), estimator
    )


@checked(SampleError)
def lemma_1(graph: FactorGraph, batch: float) -> Comparison:
    """Check Lemma 1: log E exp(estimate) is the log-potential, for the Poisson estimator.

    Parameters
    ----------
    graph : FactorGraph
        A small model without hard constraints.
    batch : float
        The paper's lambda.

    Returns
    -------
    Comparison
        The claimed log-potentials, and the computed ones.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> mg.theory.lemma_1(pair, batch=2.0).holds()
    True
    """
    _check_bounded(graph)
    everything = Enumeration(graph)
    return Comparison(
        EQUAL,
        everything.phi.sum(axis=0),
        np.log(_mean_exp(everything, PoissonEstimator(batch))),
    )


@checked(SampleError)
def lemma_2(graph: FactorGraph, delta: float, failure: float) -> Comparison:
    """Check Lemma 2: an estimate deviates by `delta` with probability at most `failure`.

    The batch is that of the lemma. The lemma is false if delta is much larger than Psi, the sum of
    all factor ranges.

    Parameters
    ----------
    graph : FactorGraph
        A small model without hard constraints.
    delta : float
        The deviation of an estimate.
    failure : float
        The probability of a larger deviation.

    Returns
    -------
    Comparison
        `failure`, and the largest probability over all states.

    Examples
    --------
    >>> import minigibbs as mg
    >>> spin = mg.FactorGraph([2], [mg.Unary([0], [[0.0, 1e-4]])])
    >>> stated, repaired = (check(spin, 0.01, 9e-5) for check in (lemma_2, lemma_2_repaired))
    >>> round(stated.true[0] / stated.claimed[0]), repaired.holds()
    (89, True)
    """
    _check_bounded(graph)
    _check_chance("lemma_2", delta, failure)
    total = graph.stats.total_energy
    ratio = total / delta  # delta**2 may underflow to 0
    batch = max(8 * ratio * ratio * math.log(2 / failure), 2 * ratio * total)
    return _concentration(graph, batch, delta, failure)


@checked(SampleError)
def lemma_2_repaired(graph: FactorGraph, delta: float, failure: float) -> Comparison:
    """Check Lemma 2 with the batch that Bernstein's inequality gives.

    Parameters
    ----------
    graph : FactorGraph
        A small model without hard constraints.
    delta : float
        The deviation of an estimate.
    failure : float
        The probability of a larger deviation.

    Returns
    -------
    Comparison
        `failure`, and the largest probability over all states.

    Examples
    --------
    >>> import minigibbs as mg
    >>> spin = mg.FactorGraph([2], [mg.Unary([0], [[0.0, 1.0]])])
    >>> mg.theory.lemma_2_repaired(spin, 0.3, 0.05).holds()
    True
    """
    _check_bounded(graph)
    _check_chance("lemma_2_repaired", delta, failure)
    batch = bernstein_batch(graph.stats.total_energy, delta, failure)
    return _concentration(graph, batch, delta, failure)


@checked(SampleError)
def lemma_2_sharper(graph: FactorGraph, delta: float, failure: float) -> Comparison:
    """Check Lemma 2 with the batch from the convex order of weights, which recipes use.

    docs/theory.md has the proof.

    Parameters
    ----------
    graph : FactorGraph
        A small model without hard constraints.
    delta : float
        The deviation of an estimate.
    failure : float
        The probability of a larger deviation.

    Returns
    -------
    Comparison
        `failure`, and the largest probability over all states.

    Examples
    --------
    >>> import minigibbs as mg
    >>> spin = mg.FactorGraph([2], [mg.Unary([0], [[0.0, 1.0]])])
    >>> lemma_2_sharper(spin, 0.3, 0.05).holds()
    True
    """
    _check_bounded(graph)
    _check_chance("lemma_2_sharper", delta, failure)
    batch = estimator_batch(graph.stats.total_energy, delta, failure)
    return _concentration(graph, batch, delta, failure)


def _check_chance(name: str, delta: float, failure: float) -> None:
    check_settings(name, failure=failure)
    if not 0 < delta <= _MOST_DELTA:
        raise SampleError(f"{name}: delta must be above 0 and at most {_MOST_DELTA:g}, got {delta}")


def _concentration(graph: FactorGraph, batch: float, delta: float, failure: float) -> Comparison:
    everything, worst = Enumeration(graph), _UNSEEN
    distributions = _distributions(everything, PoissonEstimator(batch))
    for (points, chances), energy in zip(distributions, everything.phi.sum(axis=0), strict=True):
        far = np.abs(points - energy) >= delta
        worst = max(worst, float(chances[far].sum()))
    return Comparison(AT_MOST, np.array([failure]), np.array([worst]))


@checked(SampleError)
def theorem_2(graph: FactorGraph, estimator: Estimator) -> Comparison:
    """Check Theorem 2 as stated: the gap of MIN-Gibbs is at least exp(-6 delta) of plain Gibbs.

    Estimates are within delta of the log-potential. The statement is false if the
    expected time to a change of the state exceeds the mixing time, because the energy is redrawn
    only at a change. See `theorem_2_repaired`.

    Parameters
    ----------
    graph : FactorGraph
        A small model.
    estimator : Estimator
        A bounded estimator.

    Returns
    -------
    Comparison
        The claimed bound, and the spectral gap.

    Examples
    --------
    >>> import minigibbs as mg
    >>> spin = mg.FactorGraph([2], [])
    >>> mg.theory.theorem_2(spin, mg.theory.TwoPointEstimator(0.01)).holds()
    False
    """
    bound = math.exp(-6 * largest_deviation(graph, estimator))
    return _gaps(graph, MinGibbs(estimator=estimator), Gibbs(), bound)


@checked(SampleError)
def theorem_2_repaired(graph: FactorGraph, estimator: Estimator) -> Comparison:
    """Check Theorem 2, repaired: the gap is at least exp(-4 delta) min(gamma, least 1 - T(x, x)).

    T is the transition matrix of plain Gibbs and gamma its spectral gap. With two values per
    variable exp(-2 delta) suffices. The second number claims the same for gamma over
    `redraw_slowdown`, which needs no enumeration. docs/paper.md has the proof.

    Parameters
    ----------
    graph : FactorGraph
        A small model.
    estimator : Estimator
        A bounded estimator.

    Returns
    -------
    Comparison
        The claimed bounds, and the spectral gap.

    Examples
    --------
    >>> import minigibbs as mg
    >>> spin = mg.FactorGraph([2], [])
    >>> mg.theory.theorem_2_repaired(spin, mg.theory.TwoPointEstimator(0.01)).holds()
    True
    """
    gibbs, sampler = transition(graph, Gibbs()), MinGibbs(estimator=estimator)
    gap, leaving = _positive_gap(graph, Gibbs()), 1.0 - float(np.diag(gibbs.matrix).max())
    bound = math.exp(-min_gibbs_exponent(graph) * largest_deviation(graph, estimator))
    claimed = bound * np.array([min(1.0, leaving / gap), 1.0 / redraw_slowdown(graph)])
    ratio = transition(graph, sampler).spectral_gap() / gap
    return Comparison(AT_LEAST, claimed, np.full(2, ratio))


@checked(SampleError)
def theorem_4(graph: FactorGraph, batch: float) -> Comparison:
    """Check Theorem 4 as stated: the gap of MGPMH is at least exp(-L^2 / lambda) of plain Gibbs.

    It assumes lambda >= L, the largest sum of factor ranges at a variable. The statement is too
    strong: its proof moves a factor out of a maximum as if it could not be negative. It fails if
    L^2 / lambda is small; see `theorem_4_repaired`.

    Parameters
    ----------
    graph : FactorGraph
        A small model.
    batch : float
        The paper's lambda.

    Returns
    -------
    Comparison
        The claimed bound, and the spectral gap.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> len(mg.theory.theorem_4(pair, batch=4.0).claimed)
    1
    """
    _check_bounded(graph)
    check_settings("theorem_4", batch=batch)
    local = graph.stats.local_energy
    return _gaps(graph, MGPMH(batch=batch), Gibbs(), math.exp(-(local**2) / batch))


@checked(SampleError)
def theorem_4_repaired(graph: FactorGraph, batch: float) -> Comparison:
    """Check Theorem 4, repaired: the gap is at least exp(-0.429 sqrt(r) - 0.149 r) of plain Gibbs.

    r is L^2 / lambda, with L the largest sum of factor ranges at a variable. docs/theory.md has the
    proof.

    Parameters
    ----------
    graph : FactorGraph
        A small model.
    batch : float
        The paper's lambda.

    Returns
    -------
    Comparison
        The claimed bound, and the spectral gap.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> mg.theory.theorem_4_repaired(pair, batch=4.0).holds()
    True
    """
    _check_bounded(graph)
    check_settings("theorem_4_repaired", batch=batch)
    ratio = graph.stats.local_energy**2 / batch
    return _gaps(graph, MGPMH(batch=batch), Gibbs(), 1.0 / float(mgpmh_slowdown(ratio)))


@checked(SampleError)
def theorem_6(graph: FactorGraph, batch: float, estimator: Estimator) -> Comparison:
    """Check Theorem 6: the gap of DoubleMIN-Gibbs is at least exp(-4 delta) of MGPMH.

    Parameters
    ----------
    graph : FactorGraph
        A small model.
    batch : float
        The first batch, lambda_1.
    estimator : Estimator
        A bounded estimator, within delta of the log-potential.

    Returns
    -------
    Comparison
        The claimed bound, and the spectral gap.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> mg.theory.theorem_6(pair, 2.0, mg.theory.TwoPointEstimator(0.1)).holds()
    True
    """
    return _theorem_6(graph, batch, estimator, 4)


@checked(SampleError)
def theorem_6_sharper(graph: FactorGraph, batch: float, estimator: Estimator) -> Comparison:
    """Check a sharper Theorem 6: the gap is at least exp(-2 delta) of MGPMH.

    docs/paper.md has the proof.

    Parameters
    ----------
    graph : FactorGraph
        A small model.
    batch : float
        The first batch, lambda_1.
    estimator : Estimator
        A bounded estimator, within delta of the log-potential.

    Returns
    -------
    Comparison
        The claimed bound, and the spectral gap.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> mg.theory.theorem_6_sharper(pair, 2.0, mg.theory.TwoPointEstimator(0.1)).holds()
    True
    """
    return _theorem_6(graph, batch, estimator, DOUBLE_MIN_EXPONENT)


def _theorem_6(graph: FactorGraph, batch: float, estimator: Estimator, exponent: int) -> Comparison:
    bound = math.exp(-exponent * largest_deviation(graph, estimator))
    double = DoubleMinGibbs(batch=batch, estimator=estimator)
    return _gaps(graph, double, MGPMH(batch=batch), bound)


@checked(SampleError)
def poisson_gibbs_bound(graph: FactorGraph, theta: float, heavy: int = 0) -> Comparison:
    """Check the bound on the spectral gap of Poisson-Gibbs.

    It is at least exp(-L_T (sqrt(1 + theta) - sqrt(theta))^2) times that of plain Gibbs, where L_T
    is the largest sum of the ranges of minibatched factors at a variable. docs/theory.md has the
    proof.

    Parameters
    ----------
    graph : FactorGraph
        A small model.
    theta : float
        The rate of auxiliary draws.
    heavy : int, default 0
        Number of strongest factors per variable that are evaluated exactly.

    Returns
    -------
    Comparison
        The bound, and the spectral gap.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> mg.theory.poisson_gibbs_bound(pair, theta=0.5).holds()
    True
    """
    return promise(graph, PoissonGibbs(theta=theta, heavy=heavy))


@checked(SampleError)
def promise(graph: FactorGraph, sampler: Sampler) -> Comparison:
    """Check `guaranteed_slowdown` of any sampler against the spectral gap of its random scan.

    Parameters
    ----------
    graph : FactorGraph
        A small model.
    sampler : Sampler
        A sampler with a guaranteed slowdown.

    Returns
    -------
    Comparison
        The smallest spectral gap that the guarantee allows, and the true one.

    Raises
    ------
    SampleError
        If the sampler has no guaranteed slowdown.

    Examples
    --------
    >>> import minigibbs as mg
    >>> promise(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)]), mg.TunaMH()).holds()
    True
    """
    return _gaps(graph, sampler, Gibbs(), 1.0 / _promised(graph, sampler))


@checked(SampleError)
def systematic_slowdown(slowdown: float) -> float:
    """Bound the slowdown of a systematic or chromatic scan, given that of the random scan.

    `guaranteed_slowdown` bounds the spectral gap of the random scan. The same bound is false for a
    systematic scan. Let e^c be the slowdown, P_1, ..., P_n the sampler's updates of single
    variables, and G_1, ..., G_n those of plain Gibbs. Then, in the norm of L2_0(pi),

        1 / (1 - ||P_n ... P_1||^2) <= (2 e^c - 1) / (1 - ||G_n ... G_1||^2) - (e^c - 1).

    So 1 - ||sweep||^2 is at most 2 e^c - 1 times smaller than for plain Gibbs. docs/theory.md has
    the proof.

    Parameters
    ----------
    slowdown : float
        Result of `guaranteed_slowdown`: e^c, at least 1.

    Returns
    -------
    float
        2 e^c - 1.

    Raises
    ------
    SampleError
        If the slowdown is below 1 or not finite.

    Examples
    --------
    >>> import minigibbs as mg
    >>> systematic_slowdown(1.5)
    2.0
    """
    if not 1.0 <= slowdown < math.inf:
        raise SampleError(
            "systematic_slowdown: slowdown must be a finite number of at least 1, as "
            f"guaranteed_slowdown returns, got {slowdown!r}"
        )
    return norm_slowdown(slowdown)


@checked(SampleError)
def systematic_promise(graph: FactorGraph, sampler: Sampler) -> Comparison:
    """Check the guaranteed slowdown for systematic scans, by the bound of `systematic_slowdown`.

    Parameters
    ----------
    graph : FactorGraph
        A small model.
    sampler : Sampler
        A sampler of single variables with a guaranteed slowdown.

    Returns
    -------
    Comparison
        The smallest `sweep_gap` that the theorem allows, and the true one.

    Raises
    ------
    SampleError
        If the sampler has no guaranteed slowdown.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> systematic_promise(pair, mg.PoissonGibbs(heavy=0, theta=0.5)).holds()
    True
    """
    slowdown, gibbs = _promised(graph, sampler), sweep_gap(graph, Gibbs())
    claimed = gibbs / (systematic_slowdown(slowdown) - (slowdown - 1.0) * gibbs)
    return Comparison(AT_LEAST, np.array([claimed]), np.array([sweep_gap(graph, sampler)]))


def _promised(graph: FactorGraph, sampler: Sampler) -> float:
    slowdown = sampler.guaranteed_slowdown(graph)
    if slowdown is None:
        raise SampleError(
            f"{sampler} has no guaranteed slowdown on this graph; use a sampler that has one, such "
            "as mg.PoissonGibbs()"
        )
    return slowdown


@checked(SampleError)
def largest_deviation(graph: FactorGraph, estimator: Estimator) -> float:
    """Compute the delta of Theorems 2 and 6: the largest deviation of an estimate.

    Parameters
    ----------
    graph : FactorGraph
        A small model without hard constraints.
    estimator : Estimator
        The estimator.

    Returns
    -------
    float
        The largest difference between an estimate and the log-potential.

    Examples
    --------
    >>> import minigibbs as mg
    >>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    >>> mg.theory.largest_deviation(pair, mg.theory.TwoPointEstimator(0.25))
    0.25
    """
    _check_bounded(graph)
    everything = Enumeration(graph)
    energies = everything.phi.sum(axis=0)
    distributions = _distributions(everything, estimator)
    return max(
        float(np.abs(points - energy).max())
        for (points, _), energy in zip(distributions, energies, strict=True)
    )


def _distribution(chain: Transition, estimator: Estimator) -> Comparison:
    weights = _mean_exp(chain.enumeration, estimator)
    return _stationary(chain, weights / weights.sum())


def _stationary(chain: Transition, distribution: NDArray[np.float64]) -> Comparison:
    """Compare a distribution over states with the independently computed stationary one."""
    return Comparison(EQUAL, distribution, chain.marginal(chain.stationary()))


def _gaps(graph: FactorGraph, sampler: Sampler, baseline: Sampler, bound: float) -> Comparison:
    ratio = transition(graph, sampler).spectral_gap() / _positive_gap(graph, baseline)
    return Comparison(AT_LEAST, np.array([bound]), np.array([ratio]))


def _positive_gap(graph: FactorGraph, sampler: Sampler) -> float:
    """Return a spectral gap; raise `SampleError` if it is 0, so that nothing is relative to it."""
    gap = transition(graph, sampler).spectral_gap()
    if gap == 0.0:
        raise SampleError(
            f"the spectral gap of {sampler} is 0 on this graph: its updates do not connect all "
            "states, or too rarely for double precision, so there is nothing to compare with"
        )
    return gap


def _mean_exp(everything: Enumeration, estimator: Estimator) -> NDArray[np.float64]:
    """Return E exp(estimate) for every state."""
    means = []
    for points, chances in _distributions(everything, estimator):
        means.append(float(chances @ np.exp(points)))
    return np.array(means)


def _distributions(everything: Enumeration, estimator: Estimator) -> Iterator[Distribution]:
    """Yield the distribution of the estimate for every state.

    The time of the first states predicts that of all.
    """
    begun, states = time.process_time(), len(everything.states)
    for state in range(states):
        yield estimate_distribution(everything, estimator, state)
        spent = time.process_time() - begun
        if spent > _TRIED and spent * states / (state + 1) > _MOST_SECONDS:
            raise TooLargeError(
                f"the distributions of estimates for {states:,} states would take about "
                f"{spent * states / (state + 1):,.0f} s; use a smaller batch or a smaller graph"
            )
