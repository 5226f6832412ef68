"""Batch sizes that follow from the paper's bounds, and the checks on batches given by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph

SLOWDOWN = 1.5  # the default guarantee: at least 1/1.5 of plain Gibbs's spectral gap
FAILURE = 0.01  # the chance a in Lemma 2 that an energy estimate is off by more than delta
MOST_WORK = 1e8  # draws in one update beyond which a run would not finish
MOST_BATCH = 1e15  # Poisson means beyond which doubles no longer count


def check_settings(name: str, **settings: Any) -> None:
    """Refuse batches, slowdowns and chances that mean nothing."""
    for key, value in settings.items():
        if value is None:
            continue
        number = isinstance(value, int | float | np.integer | np.floating)
        if isinstance(value, bool) or not number or not math.isfinite(value):
            raise SampleError(f"{name}: {key} must be a finite number, got {value!r}")
        if key.endswith("batch") and not 0 < value <= MOST_BATCH:
            raise SampleError(
                f"{name}: {key} is an expected number of draws and must be above 0 and at most "
                f"{MOST_BATCH:g}, got {value!r}"
            )
        if key == "slowdown" and not value > 1:
            raise SampleError(f"{name}: slowdown must be above 1 (1.5, say), got {value!r}")
        if key == "failure" and not 0 < value < 1:
            raise SampleError(f"{name}: failure is a chance between 0 and 1, got {value!r}")


def check_guarantee(name: str, slowdown: float | None, given: bool, what: str) -> None:
    """Refuse a slowdown beside what takes its place, and neither of the two.

    `given` says whether all that a slowdown would fix is given, and `what` names it. A slowdown of
    None asks for no guarantee; the default gives way to what is given.
    """
    if given and slowdown not in (None, SLOWDOWN):
        raise SampleError(f"{name}: give {what} or a slowdown, not both; got {slowdown!r} as well")
    if not given and slowdown is None:
        raise SampleError(
            f"{name}: slowdown=None asks for no guarantee, so nothing says how much to draw; give "
            f"{what}, or a slowdown such as {SLOWDOWN}"
        )


def check_work(name: str, graph: FactorGraph, draws: float) -> None:
    """Refuse an update that would take so long that a run could never finish."""
    if draws > MOST_WORK:
        stats = graph.stats
        raise SampleError(
            f"{name} would make about {draws:.2g} draws in each update of this graph (Psi = "
            f"{stats.total_energy:.3g}, {stats.factors:,} factors, D = {stats.max_domain:,}), "
            f"roughly {draws * 3e-8:.2g} s; give a smaller batch, or use MGPMH or Gibbs, whose "
            "cost does not depend on Psi"
        )


def check_tail(name: str, energy: float, theta: float, instead: str) -> None:
    """Refuse a tail of energy L_T whose draws would take so long; `instead` says what to do."""
    draws = (1 + theta) * energy
    if not draws <= MOST_WORK:
        raise SampleError(
            f"{name} would make about {draws:.2g} draws in each update (a tail of energy L_T = "
            f"{energy:.3g} at theta = {theta:.3g}), roughly {draws * 3e-8:.2g} s; {instead}"
        )


def mgpmh_slowdown(ratio: Any) -> Any:
    """Theorem 4 as it can be proved: the slowdown for L^2 / lambda, given lambda >= 2L.

    The paper's exp(L^2 / lambda) is too small where that is close to 1; docs/paper.md has a
    counterexample and the proof of this one.
    """
    near = np.exp(ratio) + np.sqrt(np.expm1(4.0 * ratio) / 2.0)
    return np.minimum(2.0 * np.exp(ratio), near)


def mgpmh_ratio(slowdown: float) -> float:
    """The largest L^2 / lambda that guarantees a slowdown, by bisection."""
    low, high = 0.0, 700.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        with np.errstate(over="ignore"):
            low, high = (middle, high) if mgpmh_slowdown(middle) <= slowdown else (low, middle)
    return low


def local_batches(
    graph: FactorGraph, batch: float | None, slowdown: float | None
) -> NDArray[np.float64]:
    """MGPMH's lambda / L at each variable: draws per unit of energy.

    A batch that is given is the paper's lambda, with the graph's L for all variables. Otherwise
    it follows from the slowdown (see `mgpmh_slowdown`), and is not below 2L. There each variable
    may use its own L, since the variable is drawn first.
    """
    local = graph.local_energies
    if batch is not None:
        return np.full(len(local), batch / max(graph.stats.local_energy, 1e-300))
    assert slowdown is not None  # samplers check that one of the two is given
    return np.maximum(local / mgpmh_ratio(slowdown), 2.0)


def estimator_batch(total_energy: float, delta: float, failure: float) -> float:
    """Lemma 2: the batch that keeps an energy estimate within delta, but for a chance `failure`."""
    square = total_energy**2
    return max(8.0 * square / delta**2 * math.log(2.0 / failure), 2.0 * square / delta)
