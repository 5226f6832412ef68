"""Bounds on spectral gaps, the batch sizes that they require, and checks of given batch sizes.

Where a statement of the paper is false, this module uses the corrected one: docs/paper.md has the
proofs.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph

SLOWDOWN = 1.5  # the default guarantee: at least 1/1.5 of plain Gibbs's spectral gap
FAILURE = 0.01  # the probability a in Lemma 2 that an energy estimate's error exceeds delta
LOOSEST = 100.0  # a larger slowdown is useless as a bound, and is not called a guarantee
MOST_WORK = 1e8  # draws per update beyond which a run would not finish
_AT_RANDOM = ("random", "shared")  # scans whose chains visit independent random variables
_IN_ORDER = ("systematic", "chromatic")  # scans that multiply updates in a fixed order
# Largest Poisson means that doubles can draw: at 1e14 the variance of 400,000 draws is off by 1%.
MOST_BATCH = 1e12


def norm_slowdown(slowdown: float) -> float:
    """The factor 2 e^c - 1 of docs/theory.md for systematic scans, given slowdown = e^c."""
    return 2.0 * slowdown - 1.0


def guarantee(slowdown: float | None, scan: str = "random") -> str:
    """Describe what a bound on the slowdown guarantees for a scan; a loose bound is no guarantee.

    Parameters
    ----------
    slowdown : float or None
        What `guaranteed_slowdown` returns for the split that runs.
    scan : str, default "random"
        The order of updates.

    Returns
    -------
    str
        A sentence.

    Examples
    --------
    >>> print(guarantee(1.25))
    Guaranteed: at most 1.25 times slower than plain Gibbs (spectral gap, random scan).
    >>> print(guarantee(1.25, "systematic"))
    Guaranteed: 1 - ||sweep||^2 at most 1.5 times smaller than for plain Gibbs (systematic scan);
    the spectral gap of a random scan would be at most 1.25 times smaller.
    >>> guarantee(3e15)
    'No guarantee of use: the bound on the slowdown is above 100.'
    """
    if slowdown is None:
        return "No guarantee."
    if slowdown == 1.0:
        return "Guaranteed: every update is that of plain Gibbs, with the same spectral gap."
    if slowdown > LOOSEST:
        return f"No guarantee of use: the bound on the slowdown is above {LOOSEST:g}."
    if scan in _AT_RANDOM:
        return (
            f"Guaranteed: at most {slowdown:.3g} times slower than plain Gibbs (spectral gap, "
            "random scan)."
        )
    other = f"the spectral gap of a random scan would be at most {slowdown:.3g} times smaller."
    if scan in _IN_ORDER:
        return (
            f"Guaranteed: 1 - ||sweep||^2 at most {norm_slowdown(slowdown):.3g} times smaller than "
            f"for plain Gibbs ({scan} scan); {other}"
        )
    return f"No guarantee for the {scan} scan; {other}"


def check_settings(name: str, **settings: Any) -> None:
    """Refuse meaningless batch sizes, slowdowns and probabilities."""
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
            raise SampleError(f"{name}: failure is a probability between 0 and 1, got {value!r}")


def check_guarantee(name: str, slowdown: float | None, given: bool, what: str) -> None:
    """Refuse a slowdown together with settings that replace it, and neither of the two.

    `given` is true if all settings that a slowdown would determine are given, and `what` names
    them. A slowdown of None requests no guarantee; given settings override the default slowdown.
    """
    if given and slowdown not in (None, SLOWDOWN):
        raise SampleError(f"{name}: give {what} or a slowdown, not both; got {slowdown!r} as well")
    if not given and slowdown is None:
        raise SampleError(
            f"{name}: slowdown=None asks for no guarantee, so nothing says how much to draw; give "
            f"{what}, or a slowdown such as {SLOWDOWN}"
        )


def check_work(name: str, graph: FactorGraph, draws: float, setting: str = "batch") -> None:
    """Refuse an update with so many draws that a run would never finish."""
    if not draws <= MOST_WORK:
        stats = graph.stats
        raise SampleError(
            f"{name} would make about {draws:.2g} draws in each update of this graph (Psi = "
            f"{stats.total_energy:.3g}, {stats.factors:,} factors, D = {stats.max_domain:,}), "
            f"roughly {draws * 3e-8:.2g} s; give a smaller {setting}, or use mg.PoissonGibbs() or "
            "mg.Gibbs(), whose cost does not depend on Psi"
        )


def check_tail(name: str, energy: float, theta: float, instead: str) -> None:
    """Refuse a tail of energy L_T that needs too many draws; `instead` says what to do."""
    draws = (1 + theta) * energy
    if not draws <= MOST_WORK:
        raise SampleError(
            f"{name} would make about {draws:.2g} draws in each update (a tail of energy L_T = "
            f"{energy:.3g} at theta = {theta:.3g}), roughly {draws * 3e-8:.2g} s; {instead}"
        )


MGPMH_ROOT = 1.0 / math.sqrt(2.0 * math.e)  # largest E|X| / 2 of centered Poisson variables X
MGPMH_SQUARE = math.exp(0.5) - 1.5  # (e^z - 1 - z) / z^2 at z = 1/2, over 4


def mgpmh_slowdown(ratio: Any) -> Any:
    """Bound MGPMH's slowdown for r = L^2 / lambda, given lambda >= L.

    The bound is exp(0.429 sqrt(r) + 0.149 r). docs/theory.md has the proof. The paper's exp(r)
    (Theorem 4) is too small for small r; docs/paper.md has a counterexample.
    """
    return np.exp(MGPMH_ROOT * np.sqrt(ratio) + MGPMH_SQUARE * ratio)


def mgpmh_ratio(slowdown: float) -> float:
    """Compute the largest L^2 / lambda for a slowdown: the root of a quadratic in sqrt(r)."""
    wanted = math.log(slowdown)
    root = 2.0 * wanted / (MGPMH_ROOT + math.sqrt(MGPMH_ROOT**2 + 4.0 * MGPMH_SQUARE * wanted))
    return root * root


def local_batches(
    graph: FactorGraph, batch: float | None, slowdown: float | None
) -> NDArray[np.float64]:
    """Compute MGPMH's lambda / L at each variable: draws per unit of energy.

    A given batch is the paper's lambda, with the graph's L for all variables. Otherwise lambda
    follows from the slowdown (see `mgpmh_slowdown`) and is at least L. In that case each variable
    may use its own L, since the variable is drawn first. A lambda that is too large to draw is
    refused.
    """
    local = graph.local_energies
    if batch is not None:
        return np.full(len(local), batch / max(graph.stats.local_energy, 1e-300))
    assert slowdown is not None  # samplers check that one of the two is given
    density = np.maximum(local / mgpmh_ratio(slowdown), 1.0)
    largest = float((density * local).max(initial=0.0))
    if not largest <= MOST_BATCH:
        raise SampleError(
            f"a slowdown of {slowdown:.3g} asks for a batch of {largest:.2g} draws on this graph "
            f"(L = {local.max():.3g}), and at most {MOST_BATCH:g} can be drawn; give a batch, or "
            "use mg.PoissonGibbs() or mg.Gibbs(), which evaluate strong factors exactly"
        )
    return density


def bernstein_batch(total_energy: float, delta: float, failure: float) -> float:
    """Compute a batch that keeps an energy estimate within delta with probability 1 - failure.

    This is Lemma 2 with the term of Bernstein's inequality that the paper drops.
    """
    ratio = total_energy / delta
    spread = (8.0 * ratio * ratio + 4.0 / 3.0 * ratio) * math.log(2.0 / failure)  # may be inf
    return max(spread, 2.0 * total_energy * ratio)


def deviation_bound(total_energy: float, delta: float, batch: float) -> float:
    """Bound the probability that an energy estimate is off by delta or more.

    The weight W = exp(estimate - energy) is smaller in the convex order than (1 + Psi /
    lambda)^N exp(-Psi), N ~ Poisson(lambda), where every factor is at its maximum. Markov's
    inequality for (W - c)+ and (c - W)+ gives a bound for every c, and for W^p a bound for every
    p >= 1 and p <= 0. docs/theory.md has the proof.
    """
    delta = min(delta, 500.0)  # keep exp(delta) finite
    chernoff = _power_tails(total_energy, delta, batch)
    if batch > _MOST_EXACT:
        return chernoff
    return min(chernoff, _linear_tails(total_energy, delta, batch))


def _linear_tails(total_energy: float, delta: float, batch: float) -> float:
    """Apply Markov's inequality to (W - c)+ and (c - W)+."""
    from scipy.special import pdtr, pdtrc

    step, low, high = math.log1p(total_energy / batch), math.exp(-delta), math.exp(delta)
    above, below = high * (1.0 - _SHARES), low / (1.0 - _SHARES)
    last = np.floor((total_energy + np.log(above)) / step)  # N > last implies W > c
    first = np.floor((total_energy + np.log(below)) / step)  # N <= first implies W <= c
    mean = batch + total_energy  # of N, weighted by W
    upper = pdtrc(np.maximum(last, 0.0), mean) - above * pdtrc(np.maximum(last, 0.0), batch)
    upper = np.where(last < 0.0, 1.0 - above, upper)
    lower = below * pdtr(np.maximum(first, 0.0), batch) - pdtr(np.maximum(first, 0.0), mean)
    lower = np.where(first < 0.0, 0.0, lower)
    tails = (upper / (high - above)).min() + (lower / (below - low)).min()
    return float(max(tails, 0.0))


def _power_tails(total_energy: float, delta: float, batch: float) -> float:
    """Apply Markov's inequality to powers of W, that is, Chernoff's bound."""
    rate = total_energy / batch
    likely = delta / (total_energy * rate)  # the best power for small deviations
    powers = np.maximum(likely * _POWERS, 1.0)
    with np.errstate(over="ignore"):
        upper = batch * (np.expm1(powers * math.log1p(rate)) - powers * rate) - powers * delta
        powers = -likely * _POWERS
        lower = batch * (np.expm1(powers * math.log1p(rate)) - powers * rate) + powers * delta
    return math.exp(min(upper.min(), 0.0)) + math.exp(min(lower.min(), 0.0))


_SHARES = np.geomspace(1e-5, 1.0 - 1e-3, 300)  # positions of c for Markov's inequality
_POWERS = np.geomspace(0.1, 10.0, 200)
_LEAST_BATCH = 1e-100  # products of smaller batches are 0 in double precision
_MOST_EXACT = 1e9  # largest lambda for which differences of Poisson tails are precise


@lru_cache(maxsize=64)
def estimator_batch(total_energy: float, delta: float, failure: float) -> float:
    """Compute the batch that keeps an energy estimate within delta with probability 1 - failure.

    It is the smallest that `deviation_bound` accepts, or Bernstein's if that is smaller.
    """
    high = bernstein_batch(total_energy, delta, failure)
    if not _LEAST_BATCH < high <= 10.0 * MOST_BATCH:  # a fifth of it is too large as well
        return high
    low = high / 1e3
    while high > low * (1.0 + 1e-6):
        middle = math.sqrt(low * high)
        fits = deviation_bound(total_energy, delta, middle) <= failure
        low, high = (low, middle) if fits else (middle, high)
    return high


def min_gibbs_exponent(graph: FactorGraph) -> int:
    """Return k of Theorem 2, repaired: estimates within delta slow MIN-Gibbs by exp(k delta)."""
    return 2 if graph.stats.max_domain <= 2 else 4


def redraw_slowdown(graph: FactorGraph) -> float:
    """Bound the slowdown against plain Gibbs if the energy is redrawn only when the state changes.

    Such a chain waits for the state to change, which Gibbs does with probability at least 1 - T(x,
    x). A variable of D values leaves its present one with probability at least (D - 1) / (D - 1 +
    e^L), and no gap exceeds 1 / n. So the bound is 1 if these probabilities sum to at least 1,
    which fails only for few or strongly coupled variables.
    """
    free = graph.evidence < 0
    others, local = graph.sizes[free] - 1.0, graph.local_energies[free]
    leaving = float((others / (others + np.exp(np.minimum(local, 700.0)))).sum())
    return max(1.0, 1.0 / leaving) if leaving > 0 else 1.0  # leaving is 0 if nothing can change


DOUBLE_MIN_EXPONENT = 2  # Theorem 6, sharpened: estimates within delta slow it by exp(2 * delta)


def unbiased_exponent(graph: FactorGraph) -> int:
    """Return k of `min_gibbs_exponent` for unbiased weights; part (h) of docs/theory.md."""
    return 2 if graph.stats.max_domain <= 2 else 3


class Decay(NamedTuple):
    """Decay of variances in a chain with unbounded estimates, whose spectral gap is 0.

    Var(P^t f) <= (1 - gap / slowdown)^t Var f + floor * (max f - min f)^2, with plain Gibbs's gap.
    """

    slowdown: float
    floor: float


def estimate_decay(slowdown: float, delta: float, failure: float) -> Decay:
    """Compute the decay by part (h) of docs/theory.md.

    `slowdown` is that of a chain whose estimates are always within delta of the energy; `failure`
    is the probability that an estimate is not.
    """
    return Decay(slowdown / (1.0 - failure) ** 2, math.exp(delta) * failure)


def tail_log_slowdown(tail: Any, theta: Any) -> Any:
    """Return Poisson-Gibbs's bound on log(slowdown): L_T * (sqrt(1 + theta) - sqrt(theta))^2.

    It is at most L_T / (4 theta + 1), and is Poisson-MH's exponent too; docs/theory.md has the
    proof.
    """
    return tail / (np.sqrt(1.0 + theta) + np.sqrt(theta)) ** 2


def tail_theta(tail: Any, slowdown: float) -> Any:
    """Return the least theta with `tail_log_slowdown` at most log(slowdown); 0 if any works."""
    ratio = np.maximum(tail / math.log(slowdown), 1.0)
    return (ratio - 1.0) ** 2 / (4.0 * ratio)


def metropolis_slowdown(sizes: Any, exponent: Any) -> float:
    """Return the slowdown of minibatched Metropolis with uniform proposals, at the worst variable.

    Uniform proposals among D values cost a factor of D. `exponent` is twice the Hellinger exponent
    between the minibatch distributions of the present and the proposed state. These distributions
    then overlap by at least 1 - sqrt(1 - exp(-exponent)).
    """
    safe = np.minimum(exponent, 700.0)
    return float((sizes * np.exp(safe) * (1.0 + np.sqrt(-np.expm1(-safe)))).max(initial=1.0))
