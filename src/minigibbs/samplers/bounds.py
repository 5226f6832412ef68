"""Bounds on spectral gaps, the batches that follow from them, and checks on batches given by hand.

Where the paper's statement is false, what is here is its repair: docs/paper.md has the proofs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph

SLOWDOWN = 1.5  # the default guarantee: at least 1/1.5 of plain Gibbs's spectral gap
FAILURE = 0.01  # the chance a in Lemma 2 that an energy estimate is off by more than delta
LOOSEST = (
    100.0  # a slowdown beyond which a bound says nothing of use, and is not called a guarantee
)
MOST_WORK = 1e8  # draws in one update beyond which a run would not finish
# Poisson means up to which doubles draw them: at 1e14 the variance of 400,000 draws is off by 1%.
MOST_BATCH = 1e12


def guarantee(slowdown: float | None) -> str:
    """A bound on the slowdown in words; one that is no help is not called a guarantee.

    >>> print(guarantee(1.25))
    Guaranteed: at most 1.25 times slower than plain Gibbs (spectral gap, random scan).
    >>> guarantee(3e15)
    'No guarantee of use: the bound on the slowdown is above 100.'
    """
    if slowdown is None:
        return "No guarantee."
    if slowdown > LOOSEST:
        return f"No guarantee of use: the bound on the slowdown is above {LOOSEST:g}."
    return (
        f"Guaranteed: at most {slowdown:.3g} times slower than plain Gibbs (spectral gap, random "
        "scan)."
    )


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


def check_work(name: str, graph: FactorGraph, draws: float, setting: str = "batch") -> None:
    """Refuse an update that would take so long that a run could never finish."""
    if not draws <= MOST_WORK:
        stats = graph.stats
        raise SampleError(
            f"{name} would make about {draws:.2g} draws in each update of this graph (Psi = "
            f"{stats.total_energy:.3g}, {stats.factors:,} factors, D = {stats.max_domain:,}), "
            f"roughly {draws * 3e-8:.2g} s; give a smaller {setting}, or use mg.PoissonGibbs() or "
            "mg.Gibbs(), whose cost does not depend on Psi"
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
    """A bound on MGPMH's slowdown for r = L^2 / lambda, given lambda >= 2L.

    The paper's exp(r) (Theorem 4) is too small where r is small. docs/paper.md has a
    counterexample, proves exp(sqrt(r) / 2 + 0.149 r) for lambda >= L, and shows that the bound
    here is weaker. It is kept because it fixes the batches, and so the draws, of `MGPMH()`.
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
    may use its own L, since the variable is drawn first. A lambda that cannot be drawn is refused.
    """
    local = graph.local_energies
    if batch is not None:
        return np.full(len(local), batch / max(graph.stats.local_energy, 1e-300))
    assert slowdown is not None  # samplers check that one of the two is given
    density = np.maximum(local / mgpmh_ratio(slowdown), 2.0)
    largest = float((density * local).max(initial=0.0))
    if not largest <= MOST_BATCH:
        raise SampleError(
            f"a slowdown of {slowdown:.3g} asks for a batch of {largest:.2g} draws on this graph "
            f"(L = {local.max():.3g}), and at most {MOST_BATCH:g} can be drawn; give a batch, or "
            "use mg.PoissonGibbs() or mg.Gibbs(), which evaluate strong factors exactly"
        )
    return density


def estimator_batch(total_energy: float, delta: float, failure: float) -> float:
    """The batch that keeps an energy estimate within delta, but for a chance `failure`.

    Lemma 2 with the term of Bernstein's inequality that the paper drops.
    """
    ratio = total_energy / delta
    spread = (8.0 * ratio**2 + 4.0 / 3.0 * ratio) * math.log(2.0 / failure)
    return max(spread, 2.0 * total_energy * ratio)


def min_gibbs_exponent(graph: FactorGraph) -> int:
    """Theorem 2, repaired: estimates within delta slow MIN-Gibbs by exp(this * delta)."""
    return 2 if graph.stats.max_domain <= 2 else 4


def redraw_slowdown(graph: FactorGraph) -> float:
    """How much slower than plain Gibbs a chain is whose energy is redrawn with the state only.

    Such a chain waits for the state to change, which Gibbs does with probability 1 - T(x, x) at
    least. A variable of D values leaves its present one with probability (D - 1) / (D - 1 + e^L)
    at least, and no gap exceeds 1 / n. So it is 1 where these sum to 1: all but for few variables,
    or strongly bound ones.
    """
    free = graph.evidence < 0
    others, local = graph.sizes[free] - 1.0, graph.local_energies[free]
    leaving = float((others / (others + np.exp(np.minimum(local, 700.0)))).sum())
    return max(1.0, 1.0 / leaving) if leaving > 0 else 1.0  # 0 where nothing can change


DOUBLE_MIN_EXPONENT = 2  # Theorem 6, sharpened: estimates within delta slow it by exp(2 * delta)


def tail_log_slowdown(tail: Any, theta: Any) -> Any:
    """Poisson-Gibbs's bound on log(slowdown): L_T * (sqrt(1 + theta) - sqrt(theta))^2.

    At most L_T / (4 theta + 1), and Poisson-MH's exponent too; docs/theory.md has the proof.
    """
    return tail / (np.sqrt(1.0 + theta) + np.sqrt(theta)) ** 2


def tail_theta(tail: Any, slowdown: float) -> Any:
    """The least theta for which `tail_log_slowdown` is at most log(slowdown); 0 if any will do."""
    ratio = np.maximum(tail / math.log(slowdown), 1.0)
    return (ratio - 1.0) ** 2 / (4.0 * ratio)


def metropolis_slowdown(sizes: Any, exponent: Any) -> float:
    """The slowdown of a minibatched Metropolis step with uniform proposals, at the worst variable.

    Uniform proposals among D values cost a factor of D. `exponent` is twice the Hellinger exponent
    between the minibatches of the present and the proposed state, whose laws then overlap by at
    least 1 - sqrt(1 - exp(-exponent)).
    """
    safe = np.minimum(exponent, 700.0)
    return float((sizes * np.exp(safe) * (1.0 + np.sqrt(-np.expm1(-safe)))).max(initial=1.0))
