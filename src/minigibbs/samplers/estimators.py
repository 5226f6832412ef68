"""Energy estimators: the distributions mu_x of the estimates of MIN-Gibbs and DoubleMIN-Gibbs.

An estimator is a frozen dataclass that prepares arrays for a compiled function
`estimate(data, model, chain) -> energy of chain.x`, chosen by the type of `data`.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.exact.distributions import Distribution, check_minibatches, merge, poisson_points
from minigibbs.exact.enumeration import Enumeration
from minigibbs.exact.transition import Joint
from minigibbs.graph.checks import has_masked
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import factor_spans
from minigibbs.kernels.alias import draw_alias
from minigibbs.kernels.energy import general_value, total_energy
from minigibbs.kernels.jit import chosen_by_type, kernel
from minigibbs.kernels.layout import DRAWS, EVALUATIONS
from minigibbs.kernels.poisson import STRONG_RATE, poisson, poisson_vector
from minigibbs.kernels.subset import begin_subset, next_member, subset_scratch
from minigibbs.samplers.base import far_share
from minigibbs.samplers.bounds import check_settings
from minigibbs.system.boundary import checked

_BLOCK = 128  # weak draws that are made before their factors are evaluated


@checked(SampleError)
class Estimator(ABC):
    """The base class of energy estimators for `mg.MinGibbs` and `mg.DoubleMinGibbs`.

    Attributes
    ----------
    exact : bool
        Whether E exp(estimate) = exp(log-potential), so that chains have the distribution of the
        model.

    Examples
    --------
    >>> import minigibbs as mg
    >>> isinstance(mg.PoissonEstimator(batch=10.0), mg.Estimator), mg.SubsetEstimator.exact
    (True, False)
    """

    exact: ClassVar[bool] = True

    @abstractmethod
    def prepare(self, graph: FactorGraph) -> Any:
        """Prepare the arrays that the compiled function reads."""

    @abstractmethod
    def work(self, graph: FactorGraph) -> float:
        """Return the expected number of factors that one estimate evaluates."""

    def operations(self, graph: FactorGraph) -> dict[str, float]:
        """Return the expected operations of one estimate, by kind; see `Sampler.operations`."""
        return {"read": self.work(graph)}

    def scratch(self, graph: FactorGraph) -> int:
        """Return the number of scratch integers that an estimate needs."""
        return 0

    @abstractmethod
    def describe(self) -> str:
        """Describe the estimate and the distribution to which chains with it converge.

        Returns
        -------
        str
            A sentence or two.
        """

    def distribution(self, everything: Enumeration, state: int) -> Distribution:
        """Return the paper's mu_x: the possible estimates of a state, and their probabilities.

        Energies are shifted so that every factor's minimum is 0.
        """
        raise SampleError(
            f"{type(self).__name__} has no distribution that can be enumerated: it needs a method "
            "distribution(everything, state), as mg.PoissonEstimator has"
        )


@checked(SampleError)
@dataclass(frozen=True)
class PoissonEstimator(Estimator):
    """The bias-adjusted estimator (2) of the paper.

    eps = sum of s_phi * log(1 + Psi / (lambda * M_phi) * phi(x)) with independent s_phi that are
    Poisson(lambda * M_phi / Psi). Here M_phi is the range of a factor and Psi the sum of all
    ranges. The estimator satisfies E exp(eps) = exp(log-potential) (Lemma 1), so the stationary
    distribution of MIN-Gibbs with it is that of the model.

    Parameters
    ----------
    batch : float
        The paper's lambda: expected draws per estimate.

    Examples
    --------
    >>> import minigibbs as mg
    >>> print(mg.MinGibbs(estimator=mg.PoissonEstimator(1e5)).describe(mg.models.potts_rbf()))
    MIN-Gibbs: Poisson estimates, lambda = 1e+05, unbiased in exp: exact; about 2.31e+04 draws
    per update.
    """

    batch: float

    def __post_init__(self) -> None:
        check_settings("PoissonEstimator", batch=self.batch)

    def prepare(self, graph: FactorGraph) -> Any:
        """Prepare one Poisson vector over all factors."""
        spans = factor_spans(graph.packed, graph.evidence)
        total = spans.sum()
        ratio = total / self.batch
        ends = np.array([0]), np.array([len(spans)])
        vector = poisson_vector(*ends, spans / ratio if total > 0 else spans)
        for table, name in (
            (vector.strong, "place"),
            (vector.weak, "place"),
            (vector.weak, "other"),
        ):
            table[name] = signed_places(graph, table[name])
        return PoissonData(*vector, ratio, math.log1p(ratio))

    def work(self, graph: FactorGraph) -> float:
        """Return the sum of min(1, rate) over all factors."""
        return float(np.minimum(1.0, self._rates(graph)).sum())

    def operations(self, graph: FactorGraph) -> dict[str, float]:
        """Count one Poisson variate per strong rate, and the alias draws of the weak ones."""
        rates = self._rates(graph)
        strong = rates >= STRONG_RATE
        draws = float(rates[~strong].sum())
        far = 2.0 * draws * far_share(16 * len(rates))
        return {"strong": float(np.count_nonzero(strong)), "draw": draws, "far": far}

    def _rates(self, graph: FactorGraph) -> NDArray[np.float64]:
        spans = factor_spans(graph.packed, graph.evidence)
        return spans * (self.batch / max(float(spans.sum()), 1e-300))

    def scratch(self, graph: FactorGraph) -> int:
        """Return the size of a block of draws."""
        return _BLOCK

    def describe(self) -> str:
        """Describe the estimate, with which the distribution is the model's."""
        return f"Poisson estimates, lambda = {self.batch:.4g}, unbiased in exp: exact"

    def distribution(self, everything: Enumeration, state: int) -> Distribution:
        """Convolve independent Poisson counts, each times the gain of one draw of its factor."""
        ratio = everything.spans.sum() / self.batch
        points, chances = np.zeros(1), np.ones(1)
        for value, span in zip(everything.phi[:, state], everything.spans, strict=True):
            if value > 0:
                counts, own = poisson_points(span / ratio, value)
                check_minibatches(len(points) * len(counts))
                gains = counts * math.log1p(ratio * value / span)
                points, chances = merge(
                    (points[:, None] + gains).ravel(), (chances[:, None] * own).ravel()
                )
        return points, chances


@checked(SampleError)
@dataclass(frozen=True)
class SubsetEstimator(Estimator):
    """|Phi| / size times the sum over a uniform subset of `size` factors, without replacement.

    It is biased: the chain converges to pi(x) proportional to E exp(eps_x) (Theorem 1). By Jensen's
    inequality this raises the probability of states whose estimates vary most.

    Parameters
    ----------
    size : int
        Number of factors per estimate.

    Examples
    --------
    >>> import minigibbs as mg
    >>> print(mg.MinGibbs(estimator=mg.SubsetEstimator(100)).describe(mg.models.potts_rbf()))
    MIN-Gibbs: sums over 100 factors drawn without replacement: BIASED towards states whose
    estimate varies most; about 900 draws per update.
    """

    exact: ClassVar[bool] = False
    size: int

    def __post_init__(self) -> None:
        whole = isinstance(self.size, int | np.integer) and not isinstance(self.size, bool)
        if not whole or self.size < 1:
            raise SampleError(
                f"SubsetEstimator: size must be an integer of at least 1, got {self.size!r}"
            )

    def prepare(self, graph: FactorGraph) -> Any:
        """List the factors that vary."""
        factors = np.flatnonzero(factor_spans(graph.packed, graph.evidence) > 0)
        if self.size > len(factors):
            raise SampleError(
                f"SubsetEstimator: a subset of {self.size} cannot be drawn from the graph's "
                f"{len(factors)} factors"
            )
        return SubsetData(signed_places(graph, factors), int(self.size))

    def work(self, graph: FactorGraph) -> float:
        """Return the size of the subset."""
        return float(self.size)

    def operations(self, graph: FactorGraph) -> dict[str, float]:
        """Count every member of the subset."""
        return {"member": float(self.size)}

    def scratch(self, graph: FactorGraph) -> int:
        """Return the size of the subset's scratch."""
        return subset_scratch(self.size)

    def describe(self) -> str:
        """Describe the estimate, with which the distribution is not the model's."""
        return (
            f"sums over {self.size} factors drawn without replacement: BIASED towards states "
            "whose estimate varies most"
        )

    def distribution(self, everything: Enumeration, state: int) -> Distribution:
        """Enumerate all subsets, which are equally likely."""
        phi = everything.phi[:, state]
        members = list(itertools.combinations(range(len(phi)), self.size))
        sums = np.array([phi[list(m)].sum() for m in members]) * len(phi) / self.size
        return merge(sums, np.full(len(sums), 1.0 / len(sums)))


@checked(SampleError)
@dataclass(frozen=True)
class ExactEstimator(Estimator):
    """The energy itself: MIN-Gibbs becomes plain Gibbs, at the cost of all factors per value.

    Examples
    --------
    >>> import minigibbs as mg
    >>> print(mg.MinGibbs(estimator=mg.ExactEstimator()).describe(mg.models.potts_rbf()))
    MIN-Gibbs: exact energies: plain Gibbs at the cost of all factors per value; about 7.14e+05
    draws per update.
    """

    def prepare(self, graph: FactorGraph) -> Any:
        """Store the number of factors, for the counters."""
        return ExactData(graph.stats.factors)

    def work(self, graph: FactorGraph) -> float:
        """Return the number of all factors."""
        return float(graph.stats.factors)

    def describe(self) -> str:
        """Describe the estimate, with which the distribution is the model's."""
        return "exact energies: plain Gibbs at the cost of all factors per value"

    def distribution(self, everything: Enumeration, state: int) -> Distribution:
        """Return a single point with probability 1."""
        return np.array([everything.phi[:, state].sum()]), np.ones(1)


@checked(SampleError)
@dataclass(frozen=True, eq=False)
class CustomEstimator(Estimator):
    """A user-defined estimator.

    Parameters
    ----------
    function : compiled function
        A function compiled with `numba.njit`, of (model, x, stream, parameters): the packed model,
        the state, the generator's `uint64[4]`, and the parameters given here. It returns an
        estimate of the log-potential of `x`, up to a constant. Draw random numbers only with
        `minigibbs.kernels.random.uniform(stream)`.
    parameters : float, ndarray or tuple, default 0.0
        A number, an array, or a tuple of these.

    Examples
    --------
    >>> import minigibbs as mg, numba
    >>> @numba.njit
    ... def zero(model, x, stream, parameters):
    ...     return 0.0
    >>> mg.CustomEstimator(zero).parameters
    0.0
    """

    function: Any
    parameters: Any = 0.0

    def __post_init__(self) -> None:
        if not hasattr(self.function, "py_func"):
            raise SampleError(
                "CustomEstimator: function must be compiled with numba.njit, got "
                f"{type(self.function).__name__}"
            )
        if has_masked(self.parameters):
            raise SampleError("CustomEstimator: parameters must not have masked values")

    def prepare(self, graph: FactorGraph) -> Any:
        """Store the function and its parameters."""
        return CustomData(self.function, self.parameters)

    def work(self, graph: FactorGraph) -> float:
        """Return 1, since the number is unknown."""
        return 1.0

    def describe(self) -> str:
        """Describe the estimate; the distribution depends on the function."""
        name = self.function.py_func.__name__
        return f"estimates by {name}: exact only if E exp(estimate) = exp(energy)"


def signed_places(graph: FactorGraph, places: NDArray[Any]) -> NDArray[Any]:
    """Return factor indices, pairs first, with a repulsive pair p encoded as -1 - p.

    So a draw need not read the sign of the weight, which saves one of three cache lines.
    """
    weights = graph.packed.pair_weight
    pair = places < len(weights)
    repels = pair & (weights[np.where(pair, places, 0)] < 0) if len(weights) else pair
    return np.where(repels, -1 - places, places)


def joint_space(everything: Enumeration, estimator: Estimator) -> Joint:
    """Return the state space of MIN-Gibbs and DoubleMIN-Gibbs: pairs (state, estimate)."""
    states = range(len(everything.states))
    return Joint(everything, [estimator.distribution(everything, state) for state in states])


class PoissonData(NamedTuple):
    """A `PoissonVector` over all signed indices, Psi/lambda and log(1 + Psi/lambda)."""

    rows: NDArray[np.void]
    strong: NDArray[np.void]
    weak: NDArray[np.void]
    ratio: float
    gain: float


class SubsetData(NamedTuple):
    """The factors that vary, and the number of them to draw."""

    factors: NDArray[np.int64]  # signed indices
    size: int


class ExactData(NamedTuple):
    """The number of factors."""

    factors: int


class CustomData(NamedTuple):
    """A user's compiled function and its parameters."""

    function: Any
    parameters: Any


@kernel
def _pair_is_on(model, x, place):
    """Return whether a pair, given by its signed index, is at its maximum."""
    k = place if place >= 0 else -1 - place
    return (x[model.pair[k, 0]] == x[model.pair[k, 1]]) == (place >= 0)


@kernel
def _share(model, x, place):
    """Return phi / M of a factor, given by its signed index, with phi shifted to minimum 0."""
    if place < len(model.pair):
        return 1.0 if _pair_is_on(model, x, place) else 0.0
    factor = model.factors[place - len(model.pair)]
    return (general_value(model, x, factor) - factor.low) / factor.span


@kernel
def _span(model, place):
    """Return the paper's M of a factor, given by its signed index."""
    if place < len(model.pair):
        return abs(model.pair_weight[place if place >= 0 else -1 - place])
    return model.factors[place - len(model.pair)].span


@kernel
def _weak_estimate(data, row, model, chain, block):
    """Sum a block of weak draws; draws and evaluations are in separate loops to overlap misses."""
    total, on = 0.0, 0
    for k in range(block):
        chain.scratch[k] = draw_alias(data.weak, row.weak_start, row.weak_end, chain.stream)
    for k in range(block):
        place = chain.scratch[k]
        if place < len(model.pair):
            on += _pair_is_on(model, chain.x, place)
        else:
            total += math.log1p(data.ratio * _share(model, chain.x, place))
    return total + data.gain * on


@kernel
def poisson_estimate(data, model, chain):
    """Evaluate equation (2): the sum of s * log(1 + Psi / (lambda * M) * phi(x)).

    A factor at its minimum contributes 0 for any s, so its s is not drawn.
    """
    row, total = data.rows[0], 0.0
    for k in range(row.strong_start, row.strong_end):
        strong = data.strong[k]
        share = _share(model, chain.x, strong.place)
        if share > 0.0:
            gain = data.gain if share == 1.0 else math.log1p(data.ratio * share)
            total += gain * poisson(strong.rate, strong.none, chain.stream)
    draws = poisson(row.weak_total, row.none, chain.stream)
    for begun in range(0, draws, len(chain.scratch)):
        block = min(draws - begun, len(chain.scratch))
        total += _weak_estimate(data, row, model, chain, block)
    chain.tally[DRAWS] += row.strong_end - row.strong_start + draws
    return total


@kernel
def subset_estimate(data, model, chain):
    """Compute |Phi| / B times the sum over a uniform subset of B factors (Section 2)."""
    count, total = len(data.factors), 0.0
    begin_subset(chain.scratch)
    for last in range(count - data.size, count):
        place = data.factors[next_member(chain.scratch, last, chain.stream)]
        total += _share(model, chain.x, place) * _span(model, place)
    chain.tally[DRAWS] += data.size
    return total * (count / data.size)


@kernel
def exact_estimate(data, model, chain):
    """Compute the energy."""
    chain.tally[EVALUATIONS] += data.factors
    return total_energy(model, chain.x)


@kernel
def custom_estimate(data, model, chain):
    """Call a user-defined estimator."""
    return data.function(model, chain.x, chain.stream, data.parameters)


_COMPILED = {
    PoissonData: poisson_estimate,
    SubsetData: subset_estimate,
    ExactData: exact_estimate,
    CustomData: custom_estimate,
}


def estimate(data: Any, model: Any, chain: Any) -> float:
    """Estimate the energy of the chain's state; compiled code only."""
    return _COMPILED[type(data)](data, model, chain)  # type: ignore[no-any-return]


@chosen_by_type(estimate)
def _estimate_for_type(data, model, chain):
    chosen = _COMPILED[data.instance_class]

    def call(data, model, chain):
        return chosen(data, model, chain)

    return call


__all__ = [
    "CustomEstimator",
    "Estimator",
    "ExactEstimator",
    "PoissonEstimator",
    "SubsetEstimator",
    "estimate",
]
