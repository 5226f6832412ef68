"""Marginals of weakly dependent variables with less variance, and a comparison of two methods.

Counts of visits vary as much as the variables themselves. Exact marginals of trees given all other
variables vary only as much as the neighbors of the trees make them vary. Their mean over states has
the same expectation (Rao-Blackwell).
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from minigibbs.graph.domains import Domains
from minigibbs.graph.graph import FactorGraph
from minigibbs.results.marginals import Known, Marginals, Shares
from minigibbs.results.run import Run
from minigibbs.running.api import sample
from minigibbs.running.request import Record
from minigibbs.samplers import Sampler
from minigibbs.samplers.block_gibbs.conditional import ConditionalMarginals, conditional_program
from minigibbs.system.quantiles import fisher
from minigibbs.system.watch import Watch, current

_STATES = 500  # per chain, at most
_LEAST_STATES = 10  # per chain
_MOST_THIN = 100  # sweeps between two states
_VALUES = 1 << 26  # of all states together
_PIECE = 10  # states between two looks at the clock
_FALSE_ALARM = 0.001  # of the comparison of two methods


def conditional_marginals(
    graph: FactorGraph,
    sampler: Sampler,
    run: Run,
    chains: int | None,
    seed: int | None,
    threads: int | None,
    progress: bool,
    executor: Any = None,
) -> Known | None:
    """Continue the chains of a run, and average exact marginals of trees given their states.

    The number of states is chosen so that the time limit of the current call is met. About half of
    the time is spent on sweeps between the states.

    Returns
    -------
    Known or None
        Marginals with standard errors from differences between chains. None if the counts of the
        run have smaller errors, or there is no time.
    """
    counted = Marginals.of(run)
    rows, free = len(counted.counts), max(int((~run.clamped).sum()), 1)
    if rows < 2 or run.state is None or len(run.state) != rows:
        return None
    data = conditional_program(graph)
    sums = [ConditionalMarginals(graph, data) for _ in range(rows)]
    trial = ConditionalMarginals(graph, data)
    trial.add(run.state[:1])  # compiles
    begun = time.perf_counter()
    trial.add(run.state[:1])
    workers = min(threads or os.cpu_count() or 1, rows)
    cost = (time.perf_counter() - begun) * rows / workers
    made = (run.info.updates + run.info.warmup) / (free * rows)  # sweeps per chain
    sweep = run.info.seconds / max(made, 1.0)
    thin = int(np.clip(cost / max(sweep, 1e-9), 1, _MOST_THIN))
    half = current().left / 2
    count = min(half / (thin * sweep), half / cost, _STATES, _VALUES / (rows * len(graph)))
    if count < _LEAST_STATES:
        return None
    with Watch(half):
        more = sample(
            graph,
            sampler,
            sweeps=int(count) * thin,
            start=run,
            record=Record("draws", thin=thin),
            chains=chains,
            seed=seed,
            threads=threads,
            progress=progress,
            executor=executor,
        )
    states, watch = more.kept_draws, current()
    if more.interrupted or states is None:
        return None

    def work(row: int) -> None:
        for first in range(0, states.shape[1], _PIECE):
            if watch.ended:
                return
            sums[row].add(states[row, first : first + _PIECE])

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(rows)))
    if min(one.count for one in sums) < _LEAST_STATES:
        return None
    means = np.array([one.means for one in sums])
    variance = means.var(axis=0, ddof=1) / rows + counted.unseen
    if variance.sum() >= (counted.standard_errors**2).sum():
        return None
    return Known(means.mean(axis=0), np.sqrt(variance), graph.sizes, counted.degrees)


def disagreement(one: Shares, other: Shares, domains: Domains) -> str | None:
    """Return a warning if two methods differ by more than their standard errors explain.

    The sum of squared differences of all marginals is compared with its expectation. The limit
    holds even if a single mode moves all variables together. Then the ratio has an F distribution
    with 1 and at least as many degrees of freedom as the smaller of the two errors has, and the
    probability of a false alarm is at most 0.001.
    """
    off, variance = one.pooled - other.pooled, one.standard_errors**2 + other.standard_errors**2
    expected, degrees = float(variance.sum()), min(one.degrees, other.degrees)
    if not (expected > 0.0 and degrees > 0.0):
        return None
    if float(off @ off) <= expected * fisher(1, degrees, 1 - _FALSE_ALARM):
        return None
    value = int(np.abs(off).argmax())
    variable = int(np.searchsorted(one.first, value, side="right")) - 1
    shares = ", ".join(f"{flat.pooled[value]:.3g}" for flat in (one, other))
    return (
        "single chains and the temperature ladder disagree on the marginals by more than their "
        f"errors, most on {domains.describe(variable)} ({shares}): one of them missed probable "
        "states; give more time"
    )
