"""Local Minibatch Gibbs, Algorithm 3 of the paper. It has no guarantee."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.chain import Workspace
from minigibbs.engine.dispatch import register
from minigibbs.errors import SampleError
from minigibbs.exact.distributions import poisson_grid
from minigibbs.exact.enumeration import Enumeration, softmax
from minigibbs.exact.transition import Transition, on_states
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.alias import draw_alias
from minigibbs.kernels.categorical import draw_log
from minigibbs.kernels.energy import add_entry, add_general
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import DRAWS
from minigibbs.kernels.poisson import poisson
from minigibbs.kernels.subset import begin_subset, next_member, subset_scratch
from minigibbs.samplers.base import Sampler, choice_operations, mean_row
from minigibbs.samplers.bounds import check_settings
from minigibbs.samplers.mgpmh import minibatch_operations, minibatch_rows
from minigibbs.system.boundary import checked


@checked(SampleError)
@dataclass(frozen=True)
class LocalMinibatchGibbs(Sampler):
    """Gibbs sampling on a random subset of the factors of a variable, the same for all values.

    It has no guarantee: the chain is not reversible with respect to a known distribution, and in
    general it does not converge to that of the model. Use `MGPMH` for that.

    Parameters
    ----------
    batch : float, optional
        Number of factors to evaluate, drawn uniformly without replacement. A variable with fewer
        factors uses all. By default 40, or the largest degree if that is less.
    adjusted : bool, default False
        Whether to use the bias-adjusted weights of equation (2): Poisson draws, `batch` expected at
        the variable with the largest local energy L, each with weight log(1 + L / (lambda * M) *
        phi).

    Examples
    --------
    >>> import minigibbs as mg
    >>> print(mg.LocalMinibatchGibbs(40).describe(mg.models.potts_rbf()))
    Local Minibatch Gibbs: BIASED, with no guarantee; an update evaluates 40 factors
    without replacement.
    """

    batch: float | None = None
    adjusted: bool = False
    name = "local"
    exact: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_settings("LocalMinibatchGibbs", batch=self.batch)
        if not self.adjusted and self.batch is not None and self.batch != int(self.batch):
            raise SampleError(
                f"LocalMinibatchGibbs: batch is a number of factors, got {self.batch!r}"
            )

    def prepare(self, graph: FactorGraph, lanes: int = 1) -> Any:
        """Prepare the batch, or a Poisson vector for each variable."""
        if self.adjusted:
            return LocalPoissonData(*minibatch_rows(graph, self.batch_for(graph), math.e))
        if self.batch_for(graph) > graph.stats.max_degree:
            raise SampleError(
                f"LocalMinibatchGibbs: a batch of {self.batch} cannot be drawn, since no variable "
                f"has more than {graph.stats.max_degree} factors; give a smaller one, or none"
            )
        return LocalData(int(self.batch_for(graph)))

    def batch_for(self, graph: FactorGraph) -> float:
        """Return the given batch, or 40, or the largest degree if that is less."""
        return float(min(40, graph.stats.max_degree) if self.batch is None else self.batch)

    def workspace(self, graph: FactorGraph, data: Any) -> Workspace:
        """Return the size of the subset's scratch."""
        return Workspace(scratch=0 if self.adjusted else subset_scratch(data.batch))

    def operations(self, graph: FactorGraph, lanes: int = 1) -> dict[str, float]:
        """Count every member of the subset, or every draw."""
        values = mean_row(graph)["values"]
        if self.adjusted:
            rows = self.prepare(graph).rows
            return {**minibatch_operations(graph, rows), **choice_operations(values)}
        return {"update": 1.0, **choice_operations(values), "member": self.batch_for(graph)}

    def describe(self, graph: FactorGraph, lanes: int = 1) -> str:
        """Describe the batch, and that there is no guarantee."""
        how = "Poisson draws, bias-adjusted" if self.adjusted else "factors without replacement"
        return (
            f"Local Minibatch Gibbs: BIASED, with no guarantee; an update evaluates "
            f"{self.batch_for(graph):g} "
            f"{how}."
        )

    def transition(self, everything: Enumeration) -> Transition:
        """Compute the matrix of Algorithm 3, or of its variant with the weights of equation (2)."""
        batch = self.batch_for(everything.graph)

        def conditionals(i: int, line: NDArray[np.int64]) -> NDArray[np.float64]:
            around = everything.adjacent[i]
            phi = everything.phi[np.ix_(around, line)]
            if self.adjusted:
                spans = everything.spans[around]
                step = everything.graph.stats.local_energy / batch
                counts, chance = poisson_grid(spans / step)
                energies = counts @ np.log1p(step * phi / spans[:, None])
            else:
                size = min(int(batch), len(around))
                members = list(itertools.combinations(range(len(around)), size))
                chance = np.full(len(members), 1.0 / len(members))
                energies = np.array([phi[list(m)].sum(axis=0) for m in members])
                energies *= len(around) / max(size, 1)
            return np.tile(chance @ softmax(energies), (len(line), 1))

        return on_states(everything, conditionals, None)


class LocalData(NamedTuple):
    """The number of factors to evaluate."""

    batch: int


class LocalPoissonData(NamedTuple):
    """A `PoissonVector` with one row per variable, and L / lambda of each variable."""

    rows: NDArray[np.void]
    strong: NDArray[np.void]
    weak: NDArray[np.void]
    step: NDArray[np.float64]  # [n]


@kernel
def local_update(data, model, chain, i):
    """Update by Algorithm 3: eps_u = |A[i]| / |S| times the sum over a uniform subset S of A[i]."""
    row = model.rows[i]
    degree = row.end - row.start
    batch = min(data.batch, degree)
    for value in range(row.domain):
        chain.weights[value] = 0.0
    begin_subset(chain.scratch)
    for last in range(degree - batch, degree):
        place = row.start + next_member(chain.scratch, last, chain.stream)
        add_entry(model, chain.x, i, place, degree / batch, chain.weights)
    chain.tally[DRAWS] += batch
    return draw_log(chain.weights, row.domain, chain.stream)


@kernel
def _add_adjusted(model, chain, i, place, step, count):
    """Add count * log(1 + step * phi / M) for each value of `i`, up to a common constant."""
    weights, row = chain.weights, model.rows[i]
    if place < row.pair_end:
        gain = math.copysign(count * math.log1p(step), model.weight[place])
        weights[chain.x[model.target[place]]] += gain
        return
    factor = model.factors[model.target[place]]
    values = weights[row.domain :]
    for value in range(row.domain):
        values[value] = -factor.low
    add_general(model, chain.x, i, place, 1.0, values)
    for value in range(row.domain):
        weights[value] += count * math.log1p(step * values[value] / factor.span)


@kernel
def local_poisson_update(data, model, chain, i):
    """Update by Algorithm 3 with the weights of equation (2), for the factors at i."""
    batch, row = data.rows[i], model.rows[i]
    for value in range(row.domain):
        chain.weights[value] = 0.0
    for k in range(batch.strong_start, batch.strong_end):
        strong = data.strong[k]
        count = poisson(strong.rate, strong.none, chain.stream)
        if count > 0:
            _add_adjusted(model, chain, i, strong.place, data.step[i], count)
    draws = poisson(batch.weak_total, batch.none, chain.stream)
    for _ in range(draws):
        place = draw_alias(data.weak, batch.weak_start, batch.weak_end, chain.stream)
        _add_adjusted(model, chain, i, place, data.step[i], 1)
    chain.tally[DRAWS] += batch.strong_end - batch.strong_start + draws
    return draw_log(chain.weights, row.domain, chain.stream)


register(LocalData, local_update)
register(LocalPoissonData, local_poisson_update)
