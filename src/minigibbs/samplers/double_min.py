"""DoubleMIN-Gibbs, Algorithm 5 of the paper: MGPMH with an estimated acceptance probability."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import Workspace
from minigibbs.engine.dispatch import register
from minigibbs.errors import SampleError
from minigibbs.exact.enumeration import Enumeration, softmax
from minigibbs.exact.transition import Transition
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.categorical import draw_log
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import ACCEPTED, PROPOSED
from minigibbs.kernels.minibatch import load_minibatch
from minigibbs.kernels.poisson import expected_draws
from minigibbs.kernels.random import positive_uniform
from minigibbs.samplers.base import Sampler, choice_operations, mean_row
from minigibbs.samplers.bounds import (
    DOUBLE_MIN_EXPONENT,
    FAILURE,
    SLOWDOWN,
    check_guarantee,
    check_settings,
    check_work,
    estimate_decay,
    local_batches,
)
from minigibbs.samplers.estimators import Estimator, PoissonEstimator, estimate, joint_space
from minigibbs.samplers.mgpmh import minibatch_operations, minibatch_rows, proposals
from minigibbs.samplers.min_gibbs import (
    check_estimator,
    describe_proviso,
    estimate_bound,
    recipe_batch,
)
from minigibbs.system.boundary import checked


@checked(SampleError)
@dataclass(frozen=True)
class DoubleMinGibbs(Sampler):
    """Doubly minibatched Gibbs: a local minibatch proposes, an energy estimate accepts or rejects.

    Its stationary distribution is that of MIN-Gibbs (Theorem 5), and with the default estimator
    that of the model. An update costs O(D * L^2 + Psi^2) and does not depend on the degree. D is
    the number of values, L the largest sum of factor ranges at a variable, Psi the sum of all
    ranges.

    Parameters
    ----------
    batch : float, optional
        The first batch, lambda_1: expected draws at the variable with the largest local energy L.
        L^2 is a good start.
    second_batch : float, optional
        The second batch, lambda_2 of the Poisson estimator. Psi^2 is a good start.
    estimator : Estimator, optional
        Any estimator, instead of a second batch.
    slowdown : float or None, default 1.5
        A recipe for the batches. Half of log(slowdown) fixes the first batch if none is given
        (Theorem 4, repaired), the other half the second, with delta = log(slowdown)/4. Poisson
        estimates are unbounded, so the spectral gap of this chain is 0. The proven statement is
        about the decay of variances, as for `mg.MinGibbs` (docs/theory.md, part (h)). None disables
        the recipe and requires both batches.
    failure : float, default 0.01
        The probability that an estimate exceeds delta.

    Raises
    ------
    SampleError
        If a batch is missing or not positive.

    Examples
    --------
    >>> import minigibbs as mg
    >>> print(mg.DoubleMinGibbs(batch=26, second_batch=1e5).describe(mg.models.potts_rbf()))
    DoubleMIN-Gibbs: Poisson estimates, lambda = 1e+05, unbiased in exp: exact; about 7.71 draws
    to propose and 2.57e+03 to decide an update.
    """

    batch: float | None = None
    second_batch: float | None = None
    estimator: Estimator | None = None
    slowdown: float | None = SLOWDOWN
    failure: float = FAILURE
    name = "double-min"

    def __post_init__(self) -> None:
        check_settings(
            "DoubleMinGibbs",
            batch=self.batch,
            second_batch=self.second_batch,
            slowdown=self.slowdown,
            failure=self.failure,
        )
        check_estimator("DoubleMinGibbs", self.estimator, self.second_batch)
        second = self.second_batch is not None or self.estimator is not None
        what = "both batches (or an estimator for the second)"
        check_guarantee("DoubleMinGibbs", self.slowdown, self.batch is not None and second, what)

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """Whether its stationary distribution is the model's, which depends on the estimator."""
        return self.estimator is None or self.estimator.exact

    def prepare(self, graph: FactorGraph, lanes: int = 1) -> Any:
        """Prepare both minibatches; refuse too many draws per update."""
        chosen = self.estimator_for(graph)
        check_work("DoubleMinGibbs", graph, chosen.work(graph))
        rows, strong, weak, step = minibatch_rows(graph, self.batch, self._half)
        return DoubleMinData(rows, strong, weak, step, chosen.prepare(graph))

    def workspace(self, graph: FactorGraph, data: Any) -> Workspace:
        """Return the sizes: the present state's energy estimate is stored between updates."""
        return Workspace(carried=1, scratch=self.estimator_for(graph).scratch(graph))

    def operations(self, graph: FactorGraph, lanes: int = 1) -> dict[str, float]:
        """Return the operations of a proposal's minibatch and an acceptance's estimate."""
        chosen = self.estimator_for(graph)
        check_work("DoubleMinGibbs", graph, chosen.work(graph))
        rows, *_ = minibatch_rows(graph, self.batch, self._half)
        total = minibatch_operations(graph, rows)
        for kind, count in chosen.operations(graph).items():
            total[kind] = total.get(kind, 0.0) + count
        return {**total, **choice_operations(mean_row(graph)["values"]), "accept": 1.0}

    def proviso(self, graph: FactorGraph) -> str:
        """Describe how variances decay, though the spectral gap is 0: docs/theory.md, part (h)."""
        given = (self.batch, self.second_batch, self.estimator)
        if self.slowdown is None or any(one is not None for one in given):
            return ""
        return estimate_bound(estimate_decay(self.slowdown, self._delta, self.failure))

    def describe(self, graph: FactorGraph, lanes: int = 1) -> str:
        """Describe both batches, the cost and the bound."""
        chosen = self.estimator_for(graph)
        first = minibatch_rows(graph, self.batch, self._half)
        draws = expected_draws(first[0])[graph.evidence < 0]
        return (
            f"DoubleMIN-Gibbs: {chosen.describe()}; about {draws.mean() if len(draws) else 0:.3g} "
            f"draws to propose and {chosen.work(graph):.3g} to decide an update."
            f"{describe_proviso(self.proviso(graph))}"
        )

    def estimator_for(self, graph: FactorGraph) -> Estimator:
        """Return the given estimator, or a Poisson one with the given batch or Lemma 2's."""
        if self.estimator is not None:
            return self.estimator
        if self.second_batch is not None:
            return PoissonEstimator(self.second_batch)
        return PoissonEstimator(recipe_batch("DoubleMinGibbs", graph, self._delta, self.failure))

    @property
    def _delta(self) -> float:
        assert self._half is not None
        return math.log(self._half) / DOUBLE_MIN_EXPONENT

    @property
    def _half(self) -> float | None:
        """Return the slowdown that either batch may cause."""
        return None if self.slowdown is None else math.sqrt(self.slowdown)

    def transition(self, everything: Enumeration) -> Transition:
        """Compute the matrix of Algorithm 5, on pairs (state, energy)."""
        joint = joint_space(everything, self.estimator_for(everything.graph))
        density = local_batches(everything.graph, self.batch, self._half)
        matrix = joint.empty()
        for i in everything.free:
            for line in everything.lines(i):
                chance, estimates = proposals(everything, int(i), line, density[i])
                psi = softmax(estimates)
                for old, new in itertools.product(range(len(line)), repeat=2):
                    a, b = joint.points(line[old])[:, None], joint.points(line[new])
                    drift = estimates[:, old] - estimates[:, new]
                    flow = _accepted(chance * psi[:, new], drift, b - a)
                    flow *= joint.chances(line[new]) / len(everything.free)
                    matrix[joint.block(line[old], line[new])] += flow
        return joint.finish(matrix)


def _accepted(
    weight: NDArray[np.float64], drift: NDArray[np.float64], gain: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Sum weight * min(1, exp(gain + drift)) for each gain: the probability of acceptance.

    In order of drift, the minimum is 1 for the last terms, and the others share the factor
    exp(gain).
    """
    order = np.argsort(drift)
    weight, drift = weight[order], drift[order]
    sure = np.append(np.cumsum(weight[::-1])[::-1], 0.0)
    likely = np.append(0.0, np.cumsum(weight * np.exp(drift)))
    place = np.searchsorted(drift, -gain)
    total: NDArray[np.float64] = sure[place] + np.exp(gain) * likely[place]
    return total


class DoubleMinData(NamedTuple):
    """The first minibatch as in `MGPMHData`, and the estimator's prepared data."""

    rows: NDArray[np.void]
    strong: NDArray[np.void]
    weak: NDArray[np.void]
    step: NDArray[np.float64]  # [n]
    estimator: Any


@kernel
def double_min_begin(data, model, chain):
    """Estimate the energy of the first state."""
    chain.carried[0] = estimate(data.estimator, model, chain)


@kernel
def double_min_update(data, model, chain, i):
    """Update by Algorithm 5: a = exp(xi_y - xi_x + eps_x(i) - eps_y(i)), xi_y new even if y = x."""
    load_minibatch(data, data.step[i], model, chain, i)
    old = chain.x[i]
    new = draw_log(chain.weights, model.rows[i].domain, chain.stream)
    log_a = chain.weights[old] - chain.weights[new] - chain.carried[0]
    chain.x[i] = new
    energy = estimate(data.estimator, model, chain)
    chain.x[i] = old
    chain.tally[PROPOSED] += 1
    log_a += energy
    if log_a < 0.0 and math.log(positive_uniform(chain.stream)) >= log_a:
        return old
    chain.tally[ACCEPTED] += 1
    chain.carried[0] = energy
    return new


register(DoubleMinData, double_min_update, double_min_begin)
