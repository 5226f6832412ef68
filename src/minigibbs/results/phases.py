"""Search for a phase of higher log-potential that no chain visited.

Near a first-order transition all chains can stay in a disordered phase, in which no variable
prefers a value. `modes` starts at variables that rarely moved, so it finds nothing there. This
module anneals the last state of a chain, and then updates it without annealing. A phase counts as
missed if its log-potential stays above all that were recorded, and if its weight is not small.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.results.marginals import LEAST_SWEEPS, Marginals
from minigibbs.results.modes import SHARE, Mode, Search
from minigibbs.results.run import Run

_SCALES = (1.5, 2.0, 3.0, math.inf, math.inf)  # of log-potentials, one sweep of annealing each
_SWEEPS = (40, 200)  # after annealing, at least and at most; models with fewer are not searched
_EVALUATIONS = 150_000  # in all, about 15 us each; models that mix leave the phase in a few sweeps
_MOST_VARIABLES = 1_000  # annealing more would take longer than many runs
_SETTLING = 0.25  # share of these sweeps before the phase is measured
_LEAST_INFLUENCE = 1.0  # of any variable; below it there is one phase
_ELSEWHERE = 0.5  # largest share, in the run, of the values that a variable has in the new phase
_LEAST_ENERGIES = 20  # recorded per chain


def hidden_phase(graph: FactorGraph, run: Run) -> Mode | None:
    """Return a phase of considerable weight that no chain visited, or None.

    Its weight follows from the mean log-potentials of both phases and from the entropies of single
    variables. This neglects correlations within a phase, which are weak if many weak factors hold
    it together.

    Parameters
    ----------
    graph : FactorGraph
        The model. Graphs with implicit factors, and large ones, are not searched.
    run : Run
        Recorded marginals, energies and last states of the chains.

    Returns
    -------
    Mode or None
    """
    if graph.implicits or graph.influence < _LEAST_INFLUENCE or run.state is None:
        return None
    marginals = run.known_marginals
    if marginals is None or marginals.sweeps < LEAST_SWEEPS or run.energy is None:
        return None
    free = np.flatnonzero(~marginals.fixed)
    if len(free) > _MOST_VARIABLES or run.energy.shape[1] < _LEAST_ENERGIES:
        return None
    rows = graph.packed.rows
    work = len(free) + int((rows["end"] - rows["pair_end"])[free].sum())
    sweeps = min(_EVALUATIONS // max(work, 1), _SWEEPS[1])
    if sweeps < _SWEEPS[0]:
        return None
    search = Search(graph.packed, ~marginals.fixed, run.state[0].astype(np.int64))
    return _found(graph, run, marginals, search, free, sweeps)


def _found(
    graph: FactorGraph,
    run: Run,
    marginals: Marginals,
    search: Search,
    free: NDArray[np.int64],
    sweeps: int,
) -> Mode | None:
    assert run.energy is not None
    rng, state = np.random.default_rng(run.info.seed), search.state.copy()
    for scale in _SCALES:
        search.sweep(state, free, rng, scale)
    log_potential, highest = float(graph.log_potential(state)), -float(run.energy.min())
    shares, total, measured = np.zeros((len(graph), int(graph.sizes.max()))), 0.0, 0
    for sweep in range(sweeps):
        if not log_potential > highest:
            return None
        settled = sweep >= _SETTLING * sweeps
        log_potential += search.sweep(state, free, rng, shares=shares if settled else None)
        total += log_potential if settled else 0.0
        measured += settled
    if not log_potential > highest:
        return None
    gain = total / measured + float(run.energy.mean())
    gain += _entropy(shares[free] / measured) - _entropy(marginals.pooled)
    there = marginals.pooled[marginals.first + state]
    moved = free[there[free] < _ELSEWHERE]
    share = 1.0 / (1.0 + math.exp(min(-gain, 700.0)))
    if share < SHARE or len(moved) < 2:
        return None
    return Mode(int(moved[there[moved].argmin()]), len(moved), share)


def _entropy(shares: NDArray[np.float64]) -> float:
    """Return the sum of the entropies of single variables. Fixed variables contribute 0."""
    return -float((shares * np.log(np.where(shares > 0.0, shares, 1.0))).sum())
