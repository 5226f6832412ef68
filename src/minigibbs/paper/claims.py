"""Claims: the paper's lemmas and theorems, repaired versions of false ones, and our own bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minigibbs import theory
from minigibbs.graph.graph import FactorGraph
from minigibbs.paper.search import (
    Make,
    Tape,
    Trial,
    any_estimates,
    bounded_estimates,
    hostile_graph,
    local_batch,
)
from minigibbs.samplers import MGPMH, Estimator, PoissonGibbs, PoissonMH, TunaMH
from minigibbs.theory.bounds import Comparison

Check = Callable[..., Comparison]  # a function of `minigibbs.theory`


@dataclass(frozen=True)
class Claim:
    """A claim, and a generator of random trials of it."""

    title: str
    words: str
    holds: bool  # known truth: docs/paper.md has a proof or a counterexample
    make: Make
    axes: tuple[str, str]


def _estimates(check: Check, draw: Callable[[Tape], tuple[FactorGraph, Estimator]]) -> Make:
    """Return a generator of trials with a graph and an estimator."""

    def make(tape: Tape) -> Trial:
        graph, estimator = draw(tape)
        return Trial(graph, {"estimator": estimator}, check(graph, estimator))

    return make


def _both_batches(
    check: Check, draw: Callable[[Tape], tuple[FactorGraph, Estimator]], largest: float
) -> Make:
    """Return a generator of trials with a graph, a first batch and an estimator."""

    def make(tape: Tape) -> Trial:
        graph, estimator = draw(tape)
        batch = min(local_batch(tape, graph), largest)
        settings = {"batch": batch, "estimator": estimator}
        return Trial(graph, settings, check(graph, batch, estimator))

    return make


def _concentrates(check: Check) -> Make:
    """Return a generator of trials about deviations of estimates."""

    def make(tape: Tape) -> Trial:
        graph = hostile_graph(tape, 1.0, indicators=True)
        delta = graph.stats.total_energy * tape.log_uniform(0.3, 1e3)
        failure = tape.log_uniform(1e-6, 0.9)
        return Trial(graph, {"delta": delta, "a": failure}, check(graph, delta, failure))

    return make


def _batched(check: Check, draw: Callable[[Tape, FactorGraph], float]) -> Make:
    """Return a generator of trials with a graph and a batch."""

    def make(tape: Tape) -> Trial:
        graph = hostile_graph(tape, 1.5)
        batch = draw(tape, graph)
        return Trial(graph, {"batch": batch}, check(graph, batch))

    return make


def _unbiased(tape: Tape) -> Trial:
    graph, batch = hostile_graph(tape, 4.0, indicators=True), tape.log_uniform(0.3, 30.0)
    return Trial(graph, {"batch": batch}, theory.lemma_1(graph, batch))


def _promises(sampler: Callable[[Tape], Any], strongest: float) -> Make:
    """Return a generator of trials about a sampler's guaranteed slowdown."""

    def make(tape: Tape) -> Trial:
        graph, chosen = hostile_graph(tape, strongest), sampler(tape)
        return Trial(graph, {"sampler": chosen}, theory.promise(graph, chosen))

    return make


def _poisson_gibbs(tape: Tape) -> PoissonGibbs:
    return PoissonGibbs(theta=tape.log_uniform(0.1, 8.0), heavy=tape.below(2))


_PROBABILITIES = ("claimed probability", "stationary probability")
_RATIO = "true ratio of gaps"

CLAIMS = {
    "theorem-1": Claim(
        "Theorem 1",
        "MIN-Gibbs has a stationary distribution proportional to E exp(estimate)",
        True,
        _estimates(theory.theorem_1, any_estimates),
        _PROBABILITIES,
    ),
    "lemma-1": Claim(
        "Lemma 1",
        "log E exp(estimate) is the log-potential",
        True,
        _unbiased,
        (r"log-potential $\zeta(x)$", r"$\log\,E\,\exp$(estimate)"),
    ),
    "theorem-2": Claim(
        "Theorem 2",
        "MIN-Gibbs's gap is at least exp(-6 delta) of Gibbs's",
        False,
        _estimates(theory.theorem_2, bounded_estimates),
        (r"bound $e^{-6\delta}$", _RATIO),
    ),
    "theorem-2-repaired": Claim(
        "Theorem 2, repaired",
        "it is at least exp(-4 delta) min(gamma, least 1 - T(x, x)); for two values exp(-2 delta)",
        True,
        _estimates(theory.theorem_2_repaired, bounded_estimates),
        ("bound", _RATIO),
    ),
    "lemma-2": Claim(
        "Lemma 2",
        "with its batch an estimate deviates by delta with probability at most a",
        False,
        _concentrates(theory.lemma_2),
        ("a, the allowed probability", "true probability"),
    ),
    "lemma-2-repaired": Claim(
        "Lemma 2, repaired",
        "the same with the batch that Bernstein's inequality gives",
        True,
        _concentrates(theory.lemma_2_repaired),
        ("a, the allowed probability", "true probability"),
    ),
    "lemma-2-sharper": Claim(
        "Lemma 2, sharper",
        "the same with the batch that the convex order of weights gives",
        True,
        _concentrates(theory.lemma_2_sharper),
        ("a, the allowed probability", "true probability"),
    ),
    "theorem-3": Claim(
        "Theorem 3",
        "MGPMH has the model's distribution",
        True,
        _batched(theory.theorem_3, lambda tape, graph: tape.log_uniform(0.3, 8.0)),
        ("model's probability", "stationary probability"),
    ),
    "theorem-4": Claim(
        "Theorem 4",
        "MGPMH's gap is at least exp(-L^2 / lambda) of Gibbs's, for lambda of at least L",
        False,
        _batched(theory.theorem_4, local_batch),
        (r"bound $e^{-L^2/\lambda}$", _RATIO),
    ),
    "theorem-4-repaired": Claim(
        "Theorem 4, repaired",
        "it is at least exp(-0.429 sqrt(r) - 0.149 r), r = L^2 / lambda",
        True,
        _batched(theory.theorem_4_repaired, local_batch),
        ("bound", _RATIO),
    ),
    "mgpmh": Claim(
        "MGPMH's promise",
        "MGPMH(slowdown=s): the gap is at least 1/s of Gibbs's",
        True,
        _promises(lambda tape: MGPMH(slowdown=tape.log_uniform(1.3, 8.0)), 0.7),
        ("bound 1/s", _RATIO),
    ),
    "theorem-5": Claim(
        "Theorem 5",
        "DoubleMIN-Gibbs has MIN-Gibbs's distribution",
        True,
        _both_batches(theory.theorem_5, any_estimates, 2.0),
        _PROBABILITIES,
    ),
    "theorem-6": Claim(
        "Theorem 6",
        "DoubleMIN's gap is at least exp(-4 delta) of MGPMH's",
        True,
        _both_batches(theory.theorem_6, bounded_estimates, 4.0),
        (r"bound $e^{-4\delta}$", _RATIO),
    ),
    "theorem-6-sharper": Claim(
        "Theorem 6, sharper",
        "it is at least exp(-2 delta) of MGPMH's",
        True,
        _both_batches(theory.theorem_6_sharper, bounded_estimates, 4.0),
        (r"bound $e^{-2\delta}$", _RATIO),
    ),
    "poisson-gibbs": Claim(
        "Poisson-Gibbs's bound",
        "the gap is at least exp(-L_T / (4 theta + 1)) of Gibbs's",
        True,
        _promises(_poisson_gibbs, 1.5),
        ("bound", _RATIO),
    ),
    "poisson-mh": Claim(
        "Poisson-MH's bound",
        "the gap is at least (1 - sqrt(1 - exp(-L^2/(4 lambda + L)))) / D of Gibbs's",
        True,
        _promises(lambda tape: PoissonMH(batch=tape.log_uniform(0.1, 10.0)), 1.5),
        ("bound", _RATIO),
    ),
    "tuna-mh": Claim(
        "TunaMH's bound",
        "the gap is at least (1 - sqrt(1 - exp(-L/(2 chi L + 1)))) / D of Gibbs's",
        True,
        _promises(lambda tape: TunaMH(chi=tape.log_uniform(0.05, 5.0)), 1.2),
        ("bound", _RATIO),
    ),
}
