"""TunaMH: exact minibatch Metropolis-Hastings with a batch for each pair of states.

Zhang, Cooper and De Sa 2020, "Asymptotically Optimal Exact Minibatch Metropolis-Hastings"
(arXiv:2006.11677). As published, with |U_i(x) - U_i(y)| <= c_i M(x, y) and C the sum of c_i:
propose y, and draw Poisson(chi C^2 M^2 + C M) factors, each with probability c_i / C. Keep a factor
with probability

    (chi c_i C M^2 + (U_i(y) - U_i(x) + c_i M) / 2) / (chi c_i C M^2 + c_i M);

Accept y with probability min(1, r), where r is the ratio of proposals times the product over kept
factors of
exp(2 artanh((U_i(x) - U_i(y)) / (c_i M (1 + 2 chi C M)))).

Here x and y differ in one variable, which is chosen first, and y's value is uniform over the
domain. The energies are U = -phi, M(x, y) is 1, and c_i is a factor's M_phi. Only factors at the
variable change: C is the variable's local energy.
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
from minigibbs.kernels.alias import draw_alias
from minigibbs.kernels.energy import entry_shares
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import DRAWS, PROPOSED
from minigibbs.kernels.poisson import poisson
from minigibbs.kernels.random import below, uniform
from minigibbs.samplers.base import Sampler
from minigibbs.samplers.bounds import check_settings, check_work, metropolis_slowdown
from minigibbs.samplers.poisson_mh import (
    decide,
    describe_metropolis,
    factor_alias,
    metropolis_operations,
)
from minigibbs.system.boundary import checked


@checked(SampleError)
@dataclass(frozen=True)
class TunaMH(Sampler):
    """Metropolis-Hastings with a minibatch tuned to the move, and uniform proposals.

    Its stationary distribution is that of the model. An update that proposes another value draws
    chi L^2 + L factors, with L the sum of the factor ranges at the variable.

    Parameters
    ----------
    chi : float, default 1.0
        Larger values draw more and come closer to Metropolis-Hastings on all factors.

    Examples
    --------
    >>> import minigibbs as mg
    >>> print(mg.TunaMH(chi=1.0).describe(mg.models.potts_rbf()))
    TunaMH: exact; a uniform proposal, decided by about 25.3 draws per update. Guaranteed: at most
    25.3 times slower than plain Gibbs (spectral gap, random scan).
    """

    chi: float = 1.0
    name = "tuna-mh"

    def __post_init__(self) -> None:
        check_settings("TunaMH", chi=self.chi)
        if not self.chi > 0:
            raise SampleError(f"TunaMH: chi must be above 0, got {self.chi!r}")

    def prepare(self, graph: FactorGraph, lanes: int = 1) -> Any:
        """Prepare an alias table for each variable; refuse too many draws per update."""
        rate = self._rates(graph)
        check_work("TunaMH", graph, float(rate.max(initial=0.0)), "chi")
        return TunaMHData(factor_alias(graph), rate, np.exp(-rate), self.chi * graph.local_energies)

    def operations(self, graph: FactorGraph, lanes: int = 1) -> dict[str, float]:
        """Count every draw for two values, if the proposal differs."""
        return metropolis_operations(graph, self._rates(graph))

    def guaranteed_slowdown(self, graph: FactorGraph, lanes: int = 1) -> float | None:
        """Bound the slowdown of uniform proposals, times that of the minibatch; docs/paper.md."""
        local = graph.local_energies
        return metropolis_slowdown(graph.sizes, local / (2.0 * self.chi * local + 1.0))

    def describe(self, graph: FactorGraph, lanes: int = 1) -> str:
        """Describe the cost and the bound."""
        return describe_metropolis("TunaMH", self, graph)

    def transition(self, everything: Enumeration) -> Transition:
        """Compute the matrix: counts are enumerated for each pair of values."""

        def conditionals(i: int, line: NDArray[np.int64]) -> NDArray[np.float64]:
            own = everything.entries(i)
            phi, spans = everything.phi[np.ix_(own, line)], everything.spans[own]
            base = self.chi * spans * spans.sum() + spans / 2
            rows = np.zeros((len(line), len(line)))
            for old in range(len(line)):
                for new in range(len(line)):
                    half = (phi[:, old] - phi[:, new]) / 2
                    counts, chance = poisson_grid(base + half)
                    log_a = counts @ (-2 * np.arctanh(half / base))
                    rows[old, new] = chance @ np.exp(np.minimum(log_a, 0.0)) / len(line)
                rows[old, old] += 1.0 - rows[old].sum()
            return rows

        return on_states(everything, conditionals, everything.distribution)

    def _rates(self, graph: FactorGraph) -> NDArray[np.float64]:
        return graph.local_energies * (1.0 + self.chi * graph.local_energies)


class TunaMHData(NamedTuple):
    """Alias tables over the factors at each variable, and their rates."""

    alias: NDArray[np.void]  # [E] of ALIAS, over indices, by M
    rate: NDArray[np.float64]  # [n] chi * C^2 + C of each variable
    none: NDArray[np.float64]  # [n] exp(-rate)
    tuned: NDArray[np.float64]  # [n] chi * C


@kernel
def tuna_mh_update(data, model, chain, i):
    """Update by Zhang, Cooper and De Sa's Algorithm 2, for the factors at i."""
    row, old, tuned = model.rows[i], np.int64(chain.x[i]), data.tuned[i]
    new = below(chain.stream, row.domain)
    chain.tally[PROPOSED] += 1
    log_a, draws = 0.0, 0
    if new != old:
        draws = poisson(data.rate[i], data.none[i], chain.stream)
    for _ in range(draws):
        place = draw_alias(data.alias, row.start, row.end, chain.stream)
        before, after = entry_shares(model, chain.x, i, place, old, new)
        kept = uniform(chain.stream) * (tuned + 1.0) < tuned + 0.5 * (before - after + 1.0)
        if kept and before != after:
            log_a += 2.0 * math.atanh((after - before) / (1.0 + 2.0 * tuned))
    chain.tally[DRAWS] += draws
    return decide(log_a, chain, old, new)


register(TunaMHData, tuna_mh_update)
