"""MIN-Gibbs, Algorithm 2 of the paper: Gibbs sampling on estimated energies."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minigibbs.engine.chain import Workspace
from minigibbs.engine.dispatch import register
from minigibbs.errors import SampleError
from minigibbs.exact.enumeration import Enumeration
from minigibbs.exact.transition import Transition
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.categorical import draw_log
from minigibbs.kernels.jit import kernel
from minigibbs.samplers.base import Sampler, choice_operations, mean_row
from minigibbs.samplers.bounds import (
    FAILURE,
    LOOSEST,
    SLOWDOWN,
    Decay,
    check_guarantee,
    check_settings,
    check_work,
    estimate_decay,
    estimator_batch,
    redraw_slowdown,
    unbiased_exponent,
)
from minigibbs.samplers.estimators import Estimator, PoissonEstimator, estimate, joint_space
from minigibbs.system.boundary import checked


@checked(SampleError)
@dataclass(frozen=True)
class MinGibbs(Sampler):
    """Minibatch Gibbs: the energy of every value is estimated, that of the current value cached.

    Its stationary distribution is that of Theorem 1, pi(x) proportional to E exp(estimate). With
    the default estimator this is the distribution of the model.

    Parameters
    ----------
    batch : float, optional
        lambda of the Poisson estimator, in expected draws per estimate. Psi^2 is a good start, with
        Psi the sum of all factor ranges. A batch replaces `slowdown`.
    estimator : Estimator, optional
        Any estimator, such as `mg.SubsetEstimator(100)`, instead of a batch.
    slowdown : float or None, default 1.5
        A recipe for the batch. Poisson estimates are unbounded, so the spectral gap of this chain
        is 0. With g the gap of plain Gibbs, the variance of a bounded function decays as fast as
        with a gap of g * (1 - failure)^2 / slowdown. This holds until the variance reaches
        exp(delta) * failure times the squared range of the function (docs/theory.md, part (h)).
        Here delta is log(slowdown)/3, or log(slowdown)/2 if no variable has more than two values,
        and an estimate exceeds delta with probability at most `failure`. The slowdown is larger for
        graphs of few or strongly coupled variables; `describe` states it. None disables the recipe
        and requires a batch or an estimator.
    failure : float, default 0.01
        The probability that an estimate exceeds delta.

    Raises
    ------
    SampleError
        If no batch is determined, or a number is out of range.

    Examples
    --------
    >>> import minigibbs as mg
    >>> print(mg.MinGibbs(batch=1e5).describe(mg.models.potts_rbf()))
    MIN-Gibbs: Poisson estimates, lambda = 1e+05, unbiased in exp: exact; about 2.31e+04 draws
    per update.
    """

    batch: float | None = None
    estimator: Estimator | None = None
    slowdown: float | None = SLOWDOWN
    failure: float = FAILURE
    name = "min-gibbs"

    def __post_init__(self) -> None:
        check_settings("MinGibbs", batch=self.batch, slowdown=self.slowdown, failure=self.failure)
        check_estimator("MinGibbs", self.estimator, self.batch)
        given = self.batch is not None or self.estimator is not None
        check_guarantee("MinGibbs", self.slowdown, given, "a batch or an estimator")

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """Whether its stationary distribution is the model's, which depends on the estimator."""
        return self.estimator is None or self.estimator.exact

    def prepare(self, graph: FactorGraph, lanes: int = 1) -> Any:
        """Prepare the estimator; refuse too many draws per update."""
        chosen = self.estimator_for(graph)
        check_work("MinGibbs", graph, self._work(graph, chosen))
        return MinGibbsData(chosen.prepare(graph))

    def workspace(self, graph: FactorGraph, data: Any) -> Workspace:
        """Return the sizes: the present state's energy estimate is stored between updates."""
        return Workspace(carried=1, scratch=self.estimator_for(graph).scratch(graph))

    def operations(self, graph: FactorGraph, lanes: int = 1) -> dict[str, float]:
        """Count an estimate for every value except the present one."""
        chosen, values = self.estimator_for(graph), mean_row(graph)["values"]
        check_work("MinGibbs", graph, self._work(graph, chosen))
        estimates = {k: (values - 1) * count for k, count in chosen.operations(graph).items()}
        return {"update": 1.0, **choice_operations(values), **estimates}

    def proviso(self, graph: FactorGraph) -> str:
        """Describe how variances decay, though the spectral gap is 0: docs/theory.md, part (h)."""
        if self._recipe is None:
            return ""
        slowdown = self._recipe * redraw_slowdown(graph)
        return estimate_bound(estimate_decay(slowdown, self._delta(graph), self.failure))

    def describe(self, graph: FactorGraph, lanes: int = 1) -> str:
        """Describe the estimator, the cost and the bound."""
        chosen = self.estimator_for(graph)
        text = (
            f"MIN-Gibbs: {chosen.describe()}; about {self._work(graph, chosen):.3g} draws per "
            "update."
        )
        return text + describe_proviso(self.proviso(graph))

    def estimator_for(self, graph: FactorGraph) -> Estimator:
        """Return the given estimator, or a Poisson one with the given batch or Lemma 2's."""
        if self.estimator is not None:
            return self.estimator
        if self.batch is not None:
            return PoissonEstimator(self.batch)
        return PoissonEstimator(recipe_batch("MinGibbs", graph, self._delta(graph), self.failure))

    def _delta(self, graph: FactorGraph) -> float:
        assert self._recipe is not None
        return math.log(self._recipe) / unbiased_exponent(graph)

    @property
    def _recipe(self) -> float | None:
        """The slowdown that determines the batch; None if a batch or an estimator is given."""
        return self.slowdown if self.batch is None and self.estimator is None else None

    def _work(self, graph: FactorGraph, chosen: Estimator) -> float:
        return (graph.stats.max_domain - 1) * chosen.work(graph)

    def transition(self, everything: Enumeration) -> Transition:
        """Compute the matrix of Algorithm 2, on pairs (state, energy)."""
        joint = joint_space(everything, self.estimator_for(everything.graph))
        matrix = joint.empty()
        for i in everything.free:
            for line in everything.lines(i):
                for old, new in itertools.permutations(range(len(line)), 2):
                    others = [s for k, s in enumerate(line) if k not in (old, new)]
                    mass, chance = joint.sum_exp(others)
                    a, b = joint.points(line[old])[:, None], joint.points(line[new])
                    top = np.maximum(a, b)
                    both = np.exp(a - top) + np.exp(b - top)
                    odds = np.zeros_like(top)
                    for rest, own in zip(mass, chance, strict=True):
                        odds += own * np.exp(b - top) / (both + rest * np.exp(joint.shift - top))
                    flow = odds * joint.chances(line[new]) / len(everything.free)
                    matrix[joint.block(line[old], line[new])] += flow
        return joint.finish(matrix)


def check_estimator(name: str, estimator: Estimator | None, batch: float | None) -> None:
    """Refuse an estimator together with a batch."""
    if estimator is not None and batch is not None:
        raise SampleError(f"{name}: give an estimator or a batch, not both")


def recipe_batch(name: str, graph: FactorGraph, delta: float, failure: float) -> float:
    """Compute Lemma 2's batch for a graph; raise an error if it is too large to draw."""
    batch = max(estimator_batch(graph.stats.total_energy, delta, failure), 1e-9)
    try:
        check_settings(name, batch=batch)
    except SampleError:
        raise SampleError(
            f"{name}: Lemma 2 asks for a batch of {batch:.2g} on this graph (Psi = "
            f"{graph.stats.total_energy:.3g}), which would never finish; give a batch, or use "
            "mg.PoissonGibbs() or mg.Gibbs(), whose cost does not depend on Psi"
        ) from None
    return batch


_LOOSE = f"no guarantee of use: the bound on the slowdown is above {LOOSEST:g}"


def estimate_bound(decay: Decay) -> str:
    """Describe the proven decay of a chain with unbounded estimates, or say that it is useless."""
    if decay.slowdown > LOOSEST:
        return _LOOSE
    return (
        f"spectral gap 0; slowdown {decay.slowdown:.3g} until variances fall to "
        f"{decay.floor:.2g} of the squared range"
    )


def describe_proviso(proviso: str) -> str:
    """Format a proviso as a sentence."""
    return f" {proviso[0].upper()}{proviso[1:]}." if proviso else ""


class MinGibbsData(NamedTuple):
    """The estimator's prepared data."""

    estimator: Any


@kernel
def min_gibbs_begin(data, model, chain):
    """Estimate the energy of the first state."""
    chain.carried[0] = estimate(data.estimator, model, chain)


@kernel
def min_gibbs_update(data, model, chain, i):
    """Update by Algorithm 2: the present value keeps its estimate, other values get new ones."""
    old, size = chain.x[i], model.rows[i].domain
    chain.weights[old] = chain.carried[0]
    for value in range(size):
        if value != old:
            chain.x[i] = value
            chain.weights[value] = estimate(data.estimator, model, chain)
    chain.x[i] = old
    new = draw_log(chain.weights, size, chain.stream)
    chain.carried[0] = chain.weights[new]
    return new


register(MinGibbsData, min_gibbs_update, min_gibbs_begin)
