"""MGPMH, Algorithm 4 of the paper: a minibatch proposes, the exact energies accept or reject."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.dispatch import register
from minigibbs.errors import SampleError
from minigibbs.exact.distributions import poisson_grid
from minigibbs.exact.enumeration import Enumeration, softmax
from minigibbs.exact.transition import Transition, on_states
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import entry_spans
from minigibbs.kernels.categorical import draw_log
from minigibbs.kernels.energy import energy_change
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import ACCEPTED, EVALUATIONS, PROPOSED
from minigibbs.kernels.minibatch import load_minibatch
from minigibbs.kernels.poisson import expected_draws, poisson_vector
from minigibbs.kernels.random import positive_uniform
from minigibbs.samplers.base import Sampler, choice_operations, far_share, mean_row
from minigibbs.samplers.bounds import (
    SLOWDOWN,
    check_guarantee,
    check_settings,
    guarantee,
    local_batches,
    mgpmh_slowdown,
)
from minigibbs.system.boundary import checked


@checked(SampleError)
@dataclass(frozen=True)
class MGPMH(Sampler):
    """Minibatch-Gibbs-Proposal Metropolis-Hastings: O(lambda * D + Delta) per update.

    Its stationary distribution is that of the model. Delta is the largest number of factors at a
    variable, D the number of values, L the largest sum of factor ranges at a variable.

    Parameters
    ----------
    batch : float, optional
        The paper's lambda: the expected number of draws at the variable with the largest local
        energy L. L^2 is a good start. A batch replaces `slowdown`.
    slowdown : float or None, default 1.5
        A guarantee: the spectral gap of the random scan is at least 1/slowdown of that of plain
        Gibbs (Theorem 4, repaired: see docs/theory.md). None disables the guarantee and requires a
        batch.

    Raises
    ------
    SampleError
        If both settings are None, or a number is not positive.

    Examples
    --------
    >>> import minigibbs as mg
    >>> print(mg.MGPMH(slowdown=2).describe(mg.models.potts_rbf()))
    MGPMH: exact; lambda up to 19.43 (about 7.07 draws per update), and 399 factors once where
    the proposal differs. Guaranteed: at most 2 times slower than plain Gibbs (spectral gap,
    random scan).
    """

    batch: float | None = None
    slowdown: float | None = SLOWDOWN
    name = "mgpmh"

    def __post_init__(self) -> None:
        check_settings("MGPMH", batch=self.batch, slowdown=self.slowdown)
        check_guarantee("MGPMH", self.slowdown, self.batch is not None, "a batch")

    def prepare(self, graph: FactorGraph, lanes: int = 1) -> Any:
        """Prepare a Poisson vector for each variable."""
        return MGPMHData(*minibatch_rows(graph, self.batch, self.slowdown))

    def operations(self, graph: FactorGraph, lanes: int = 1) -> dict[str, float]:
        """Count the minibatch, and one evaluation of the factors if the proposal differs."""
        row = mean_row(graph)
        moves = 1.0 - 1.0 / max(row["values"], 1.0)  # an upper bound: all values equally likely
        vector = self.prepare(graph)
        total = minibatch_operations(graph, vector.rows)
        total["general"] += moves * row["general"]
        total["slot"] += moves * row["slots"]
        return {
            **total,
            **choice_operations(row["values"]),
            "swap": moves * row["pairs"],
            "accept": 1.0,
            "far": total["far"] + row["far"],
        }

    def guaranteed_slowdown(self, graph: FactorGraph, lanes: int = 1) -> float | None:
        """Compute the bound of Theorem 4, repaired, if lambda is at least L."""
        density = local_batches(graph, self.batch, self.slowdown)
        return local_slowdown(graph, density)

    def describe(self, graph: FactorGraph, lanes: int = 1) -> str:
        """Describe the batch, the cost and the bound."""
        density = local_batches(graph, self.batch, self.slowdown)
        batch = float((density * graph.local_energies).max())
        return (
            f"MGPMH: exact; lambda up to {batch:.4g} (about {self._draws(graph):.3g} draws per "
            f"update), and {graph.stats.max_degree:,} factors once where the proposal differs. "
            f"{local_bound(graph, density)}"
        )

    def _draws(self, graph: FactorGraph) -> float:
        rows = expected_draws(self.prepare(graph).rows)[graph.evidence < 0]
        return float(rows.mean()) if len(rows) else 0.0

    def transition(self, everything: Enumeration) -> Transition:
        """Compute the matrix of Algorithm 4."""
        density = local_batches(everything.graph, self.batch, self.slowdown or SLOWDOWN)

        def conditionals(i: int, line: NDArray[np.int64]) -> NDArray[np.float64]:
            chance, estimates = proposals(everything, i, line, density[i])
            psi, exact = softmax(estimates), everything.log_potential[line]
            rows = np.empty((len(line), len(line)))
            for old in range(len(line)):
                log_a = exact - exact[old] + estimates[:, [old]] - estimates
                rows[old] = chance @ (psi * np.exp(np.minimum(log_a, 0.0)))
                rows[old, old] += 1.0 - rows[old].sum()
            return rows

        return on_states(everything, conditionals, everything.distribution)


def proposals(
    everything: Enumeration, i: int, line: NDArray[np.int64], density: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the probabilities of minibatches, and the estimates eps_u of Algorithm 4 for each."""
    around = everything.adjacent[i]
    spans = everything.spans[around]
    counts, chance = poisson_grid(spans * density)
    share = everything.phi[np.ix_(around, line)] / spans[:, None]
    return chance, counts @ share / density


class MGPMHData(NamedTuple):
    """A `PoissonVector` with one row per variable, and L / lambda of each variable."""

    rows: NDArray[np.void]
    strong: NDArray[np.void]
    weak: NDArray[np.void]
    step: NDArray[np.float64]  # [n]


def minibatch_rows(
    graph: FactorGraph, batch: float | None, slowdown: float | None
) -> tuple[Any, ...]:
    """Prepare the rows of s_phi ~ Poisson(lambda * M_phi / L), and L / lambda."""
    density = local_batches(graph, batch, slowdown)
    rows = graph.packed.rows
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    rates = entry_spans(graph.packed) * density[owner]
    vector = poisson_vector(rows["start"].copy(), rows["end"].copy(), rates)
    return (*vector, 1.0 / density)


def minibatch_operations(graph: FactorGraph, rows: NDArray[np.void]) -> dict[str, float]:
    """Count strong variates and weak draws of a minibatch, averaged over the variables."""
    free = rows[graph.evidence < 0]
    count, per_general = max(len(free), 1), mean_row(graph)
    strong = float((free["strong_end"] - free["strong_start"]).sum()) / count
    weak = float(free["weak_total"].sum()) / count
    every = max(per_general["general"] + per_general["pairs"], 1e-300)
    visits = (strong + weak) / every  # per factor that may be general
    return {
        "update": 1.0,
        "strong": strong,
        "draw": weak,
        "general": visits * per_general["general"],
        "slot": visits * per_general["slots"],
        "cell": visits * per_general["general"] * per_general["values"],
        "far": 2.0 * weak * far_share(16 * len(graph.packed.weight)),
    }


def local_slowdown(graph: FactorGraph, density: NDArray[np.float64]) -> float | None:
    """Compute Theorem 4's bound, repaired, for lambda / L at each variable; None if lambda < L."""
    local = graph.local_energies
    if (density[local > 0] < 1.0 - 1e-12).any():
        return None
    return float(mgpmh_slowdown(np.minimum(local / density, 1e3)).max(initial=1.0))


def local_bound(graph: FactorGraph, density: NDArray[np.float64]) -> str:
    """Describe the bound of Theorem 4 for lambda / L at each variable."""
    worst = local_slowdown(graph, density)
    if worst is None:
        return "No guarantee: the bound needs lambda of at least L."
    return guarantee(worst)


@kernel
def mgpmh_update(data, model, chain, i):
    """Update by Algorithm 4: propose from the minibatch's psi, accept with probability min(a, 1).

    The exact energies in a are computed only if the proposal differs from the present value.
    """
    load_minibatch(data, data.step[i], model, chain, i)
    row, old = model.rows[i], chain.x[i]
    new = draw_log(chain.weights, row.domain, chain.stream)
    chain.tally[PROPOSED] += 1
    if new != old:
        chain.tally[EVALUATIONS] += row.end - row.start
        log_a = energy_change(model, chain.x, i, old, new)
        log_a += chain.weights[old] - chain.weights[new]
        if log_a < 0.0 and math.log(positive_uniform(chain.stream)) >= log_a:
            return old
    chain.tally[ACCEPTED] += 1
    return new


register(MGPMHData, mgpmh_update)
