"""Poisson-MH: Metropolis-Hastings on (state, Poisson minibatch), with uniform proposals.

Zhang and De Sa 2019, "Poisson-Minibatching for Gibbs Sampling with Convergence Rate Guarantees"
(arXiv:1911.09771). As published, a step from x draws s_phi ~ Poisson(theta * M_phi + phi(x)) for
each factor, with theta = lambda / L, and proposes y. It accepts y with probability min(1, r), where
r is the ratio of proposals times the product of ((theta * M + phi(y)) / (theta * M + phi(x)))^s.

Here x and y differ in one variable, which is chosen first. Only its factors change, so only these
are drawn. The value of y is uniform over the domain, so the ratio of proposals is 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.dispatch import register
from minigibbs.errors import SampleError
from minigibbs.exact.distributions import poisson_grid
from minigibbs.exact.enumeration import Enumeration
from minigibbs.exact.transition import Transition, on_states
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import entry_spans
from minigibbs.kernels.alias import alias_rows, draw_alias
from minigibbs.kernels.energy import entry_shares
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import ACCEPTED, DRAWS, PROPOSED
from minigibbs.kernels.poisson import poisson
from minigibbs.kernels.random import below, positive_uniform, uniform
from minigibbs.samplers.base import Sampler, far_share, mean_row
from minigibbs.samplers.bounds import (
    check_settings,
    check_work,
    guarantee,
    metropolis_slowdown,
    tail_log_slowdown,
)
from minigibbs.system.boundary import checked


@checked(SampleError)
@dataclass(frozen=True)
class PoissonMH(Sampler):
    """Metropolis-Hastings with a Poisson minibatch and uniform proposals: O(lambda + L).

    Its stationary distribution is that of the model. `PoissonGibbs(heavy=0)` draws the same
    minibatch and evaluates all values with it; this sampler evaluates one. It is faster only if a
    domain is large and factors are tables.

    Parameters
    ----------
    batch : float, optional
        lambda. An update that proposes another value draws lambda + L factors at the variable with
        the largest local energy L. By default L^2.

    Examples
    --------
    >>> import minigibbs as mg
    >>> print(mg.PoissonMH(batch=26).describe(mg.models.potts_rbf()))
    Poisson-MH: exact; a uniform proposal, decided by about 26.3 draws per update. Guaranteed: at
    most 18.2 times slower than plain Gibbs (spectral gap, random scan).
    """

    batch: float | None = None
    name = "poisson-mh"

    def __post_init__(self) -> None:
        check_settings("PoissonMH", batch=self.batch)

    def theta(self, graph: FactorGraph) -> float:
        """Return lambda / L: a factor's expected draws per unit of M, in addition to its energy."""
        local = graph.stats.local_energy
        return local if self.batch is None or local == 0 else self.batch / local

    def prepare(self, graph: FactorGraph, lanes: int = 1) -> Any:
        """Prepare an alias table for each variable; refuse too many draws per update."""
        theta = self.theta(graph)
        check_work("PoissonMH", graph, (1.0 + theta) * graph.stats.local_energy)
        rate = (1.0 + theta) * graph.local_energies
        return PoissonMHData(factor_alias(graph), rate, np.exp(-rate), theta)

    def operations(self, graph: FactorGraph, lanes: int = 1) -> dict[str, float]:
        """Count every draw for two values, if the proposal differs."""
        return metropolis_operations(graph, (1.0 + self.theta(graph)) * graph.local_energies)

    def guaranteed_slowdown(self, graph: FactorGraph, lanes: int = 1) -> float | None:
        """Bound the slowdown of uniform proposals, times that of the minibatch; docs/paper.md."""
        exponent = tail_log_slowdown(graph.local_energies, self.theta(graph))
        return metropolis_slowdown(graph.sizes, exponent)

    def describe(self, graph: FactorGraph, lanes: int = 1) -> str:
        """Describe the cost and the bound."""
        return describe_metropolis("Poisson-MH", self, graph)

    def transition(self, everything: Enumeration) -> Transition:
        """Compute the matrix: counts are enumerated at each state, and decide on a proposal."""
        theta = self.theta(everything.graph)

        def conditionals(i: int, line: NDArray[np.int64]) -> NDArray[np.float64]:
            own = everything.entries(i)
            phi, base = everything.phi[np.ix_(own, line)], theta * everything.spans[own]
            rows = np.zeros((len(line), len(line)))
            for old in range(len(line)):
                rates = base[:, None] + phi
                counts, chance = poisson_grid(rates[:, old])
                log_a = counts @ np.log(rates / rates[:, [old]])
                rows[old] = chance @ np.exp(np.minimum(log_a, 0.0)) / len(line)
                rows[old, old] += 1.0 - rows[old].sum()
            return rows

        return on_states(everything, conditionals, everything.distribution)


class PoissonMHData(NamedTuple):
    """Alias tables over the factors at each variable, and their rates."""

    alias: NDArray[np.void]  # [E] of ALIAS, over indices, by M
    rate: NDArray[np.float64]  # [n] (1 + theta) * L of each variable
    none: NDArray[np.float64]  # [n] exp(-rate)
    theta: float


def factor_alias(graph: FactorGraph) -> NDArray[np.void]:
    """Build an alias table over the factors of each variable, by M."""
    rows, spans = graph.packed.rows, entry_spans(graph.packed)
    return alias_rows(rows["start"].copy(), rows["end"].copy(), np.arange(len(spans)), spans)


def metropolis_operations(graph: FactorGraph, rates: NDArray[np.float64]) -> dict[str, float]:
    """Count the operations of an update that decides on a uniform proposal by minibatches."""
    row, free = mean_row(graph), graph.evidence < 0
    moves = 1.0 - 1.0 / np.maximum(graph.sizes[free], 1)
    draws = float((moves * rates[free]).sum()) / max(int(np.count_nonzero(free)), 1)
    share = draws / max(row["pairs"] + row["general"], 1e-300)
    return {
        "update": 1.0,
        "draw": draws,
        "accept": 1.0,
        "slot": share * row["slots"],
        "far": 2.0 * draws * far_share(16 * len(graph.packed.weight)),
    }


def describe_metropolis(title: str, sampler: Sampler, graph: FactorGraph) -> str:
    """Describe the cost of an update and the bound."""
    draws = sampler.operations(graph)["draw"]
    slowdown = sampler.guaranteed_slowdown(graph)
    return (
        f"{title}: exact; a uniform proposal, decided by about {draws:.3g} draws per update. "
        f"{guarantee(slowdown)}"
    )


@kernel
def decide(log_a, chain, old, new):
    """Return the proposed value with probability min(1, exp(log_a)), else the old one."""
    if log_a < 0.0 and math.log(positive_uniform(chain.stream)) >= log_a:
        return old
    chain.tally[ACCEPTED] += 1
    return new


@kernel
def poisson_mh_update(data, model, chain, i):
    """Update by Zhang and De Sa's Poisson-MH at variable i; draws are thinned to x's rates."""
    row, old = model.rows[i], np.int64(chain.x[i])
    new = below(chain.stream, row.domain)
    chain.tally[PROPOSED] += 1
    log_a, draws = 0.0, 0
    if new != old:
        draws = poisson(data.rate[i], data.none[i], chain.stream)
    for _ in range(draws):
        place = draw_alias(data.alias, row.start, row.end, chain.stream)
        before, after = entry_shares(model, chain.x, i, place, old, new)
        kept = uniform(chain.stream) * (1.0 + data.theta) < data.theta + before
        if kept and before != after:
            log_a += math.log((data.theta + after) / (data.theta + before))
    chain.tally[DRAWS] += draws
    return decide(log_a, chain, old, new)


register(PoissonMHData, poisson_mh_update)
