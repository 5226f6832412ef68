"""The coverage of 95% intervals, and the error rate of the verdict.

Every row counts runs with a known truth. Coverage refers to runs without a warning. The share of
such runs and the coverage of all runs are next to it. Errors are binomial, or estimated from the
spread of runs if a run has several values.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import minigibbs as mg
from benchmarks.report import Report

LENGTHS = (10, 100, 1000)  # sweeps
RUNS = 1000
SEVERAL = 200  # fits that are not exact, and runs of mg.infer
FEW = 80  # runs of each model for the verdict
JUDGED = 20  # runs without a warning, at the least
LOW, HIGH = 0.93, 0.97
QUIET: dict[str, Any] = {"progress": False, "threads": 1}
OBSERVE = {"m": "magnetization", "m2": mg.observables.Magnetization(power=2), "e": "energy"}


class Known(NamedTuple):
    """A model of spins, and the truth about it."""

    graph: mg.FactorGraph
    marginals: NDArray[np.float64]  # [variable] of the value 1
    means: dict[str, float]  # of observables and derived quantities
    log_z: float


class Covered(NamedTuple):
    """One run: the share of its intervals that cover, and whether it has a warning."""

    share: float
    warned: bool


def known(graph: mg.FactorGraph) -> Known:
    """Enumerate a small graph of spins."""
    n = len(graph)
    states = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    return _known(graph, states, np.zeros(len(states)))


def complete(n: int, coupling: float) -> Known:
    """Build a Curie-Weiss model: states with equal numbers of up spins have the same energy."""
    ups = np.arange(n + 1)
    states = (np.arange(n) < ups[:, None]).astype(np.int64)
    count = [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in ups]
    found = _known(mg.models.curie_weiss(n, coupling), states, np.array(count))
    return found._replace(marginals=np.full(n, 0.5))


def _known(graph: mg.FactorGraph, states: NDArray[Any], count: NDArray[np.float64]) -> Known:
    energy = np.asarray(graph.energy(states))
    logs = count - energy
    share = np.exp(logs - logs.max())
    log_z = float(logs.max() + np.log(share.sum()))
    share /= share.sum()
    m, n = 2.0 * states.mean(axis=1) - 1.0, len(graph)
    mean = {"m2": share @ m**2, "e": share @ energy}
    mean["susceptibility"] = n * (share @ m**2 - (share @ np.abs(m)) ** 2)
    mean["specific heat"] = (share @ energy**2 - (share @ energy) ** 2) / n
    mean["Binder cumulant"] = 1.0 - share @ m**4 / (3.0 * (share @ m**2) ** 2)
    means = {name: float(value) for name, value in mean.items()}
    return Known(graph, share @ states, means, log_z)


MODELS: dict[str, Callable[[], Known]] = {
    "4 x 4 lattice, beta 0.3": lambda: known(mg.models.ising_lattice(side=4, beta=0.3)),
    "two spins, J = 1.5": lambda: known(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 1.5)])),
    "Curie-Weiss, 50 spins, critical": lambda: complete(50, 1.0),
}


def main() -> None:
    report = Report("coverage", "Coverage of 95% intervals, and mistakes of the verdict", "runs")
    report.notes.append(
        f"Share of intervals that cover the truth. It should lie between {LOW:.0%} and {HIGH:.0%}, "
        "up to two standard errors, for runs without a warning. Rows with fewer than "
        f"{JUDGED} such runs are not judged."
    )
    warnings.simplefilter("ignore")
    for name, make in MODELS.items():
        model = make()
        for sweeps in LENGTHS:
            runs = [sampled(model, sweeps, seed) for seed in range(RUNS)]
            for what in runs[0]:
                add(report, f"{what}, {name}, {sweeps} sweeps", (run[what] for run in runs))
        for what, options in RULES.items():
            runs = [until(model, options, seed) for seed in range(RUNS)]
            for quantity in runs[0]:
                label = f"sample_until({what}): {quantity}, {name}"
                add(report, label, (run[quantity] for run in runs))
        for sweeps in LENGTHS[1:]:
            found = (ladder(model, sweeps, seed) for seed in range(RUNS))
            add(report, f"log Z, Tempering, {name}, {sweeps} sweeps", found)
        found = (inferred(model, seed) for seed in range(SEVERAL))
        add(report, f"infer, marginals, {name}, 0.3 s", found)
    for method, count in {"exact": RUNS, "pseudo": SEVERAL, "pcd": SEVERAL}.items():
        fits = [learned(method, seed) for seed in range(count)]
        for what in fits[0]:
            add(report, f"learn({method}): {what}", (fit[what] for fit in fits))
    mistakes(report)
    report.write()


RULES: dict[str, dict[str, Any]] = {
    "default": {},
    "standard_error=0.02": {"standard_error": 0.02, "rhat": None, "ess": None},
    "ess=1000": {"ess": 1000, "rhat": None},
}


def sampled(model: Known, sweeps: int, seed: int) -> dict[str, Covered]:
    """Return the results of one run, by quantity."""
    record = mg.Record("marginals", "energy", thin=1)
    options: dict[str, Any] = {"sweeps": sweeps, "observe": OBSERVE, "record": record}
    return said(model, mg.sample(model.graph, seed=seed, **options, **QUIET))


def until(model: Known, options: dict[str, Any], seed: int) -> dict[str, Covered]:
    """Return the results of a run with a stopping criterion."""
    more: dict[str, Any] = {"observe": OBSERVE, "max_time": "20s", **options}
    found = said(model, mg.sample_until(model.graph, seed=seed, **more, **QUIET))
    return {name: found[name] for name in ("marginals", "m2")}


def said(model: Known, run: mg.Run) -> dict[str, Covered]:
    """Return which intervals of a run cover."""
    warned = bool(run.summary().warnings)
    low, high = run.shares.intervals().reshape(-1, 2, 2)[:, 1].T
    inside = float(np.mean((low <= model.marginals) & (model.marginals <= high)))
    intervals = {name: run.observables[name].interval() for name in ("m2", "e")}
    derived = mg.observables
    intervals["susceptibility"] = derived.susceptibility(run).interval()
    intervals["specific heat"] = derived.specific_heat(run, "e").interval()
    intervals["Binder cumulant"] = derived.binder(run).interval()
    found = {"marginals": Covered(inside, warned)}
    for name, (a, b) in intervals.items():
        found[name] = Covered(float(a <= model.means[name] <= b), warned)
    return found


def ladder(model: Known, sweeps: int, seed: int) -> Covered:
    """Return whether log Z of a temperature ladder is covered."""
    run = mg.sample(model.graph, mg.Tempering(), sweeps=sweeps, seed=seed, **QUIET)
    assert run.ladder is not None
    low, high = run.ladder.log_z_interval()
    return Covered(float(low <= model.log_z <= high), bool(run.summary().warnings))


def inferred(model: Known, seed: int) -> Covered:
    """Return whether marginals of `mg.infer` are covered."""
    answer = mg.infer(model.graph, 0.3, exact=False, seed=seed, **QUIET)
    low, high = answer.shares.intervals().reshape(-1, 2, 2)[:, 1].T
    inside = float(np.mean((low <= model.marginals) & (model.marginals <= high)))
    return Covered(inside, bool(answer.warnings))


def learned(method: str, seed: int) -> dict[str, Covered]:
    """Return whether a coupling and a field (a difference of two parameters) are covered."""
    ring = mg.Ising(range(6), [1, 2, 3, 4, 5, 0], 0.0, name="J", tied=0)
    graph = mg.FactorGraph([2] * 6, [ring, mg.Unary(range(6), [0.0, 0.0], name="h")])
    truth = graph.with_parameters({"J": 0.5, "h": [0.0, 0.5]})
    rows = mg.exact_draws(truth, 400, seed=seed)
    fit = mg.learn(graph, rows, method=method, seed=seed, **QUIET)
    found = {}
    for name, weights in {"J": {"J": 1.0}, "h": {"h": [-1.0, 1.0]}}.items():
        value, error = fit.contrast(weights)
        covers = abs(value - 0.5) <= 1.96 * error
        found["coupling" if name == "J" else "field"] = Covered(float(covers), bool(fit.warnings))
    return found


def add(report: Report, what: str, found: Iterable[Covered]) -> None:
    """Add a row: the coverage of runs without a warning, and of all."""
    runs = list(found)
    every = np.array([run.share for run in runs])
    quiet = np.array([run.share for run in runs if not run.warned])
    share = len(quiet) / len(runs)
    text, count = f"{share:.0%} unwarned; all {_percent(every)}", f"{len(runs):,}"
    if len(quiet) < JUDGED:
        report.add(what, text, "too few unwarned", last=count)
        return
    error = max(float(quiet.std()), math.sqrt(0.05 * 0.95)) / math.sqrt(len(quiet))
    met = LOW - 2 * error <= quiet.mean() <= HIGH + 2 * error
    text = f"{_percent(quiet)} of unwarned; {text}"
    report.add(what, text, f"{LOW:.0%} to {HIGH:.0%}", met, count)


def _percent(shares: NDArray[np.float64]) -> str:
    error = float(shares.std()) / math.sqrt(len(shares))
    return f"{shares.mean():.1%} ± {error:.1%}"


class Case(NamedTuple):
    """Runs that are all healthy, or that may be wrong."""

    graph: mg.FactorGraph
    truth: float | NDArray[np.float64] | None  # of probabilities of the value 1; None: healthy
    options: dict[str, Any]


def cases() -> dict[str, Case]:
    """Return models for the verdict.

    Marginals of unhealthy ones are known by symmetry, by size, by elimination, or from sums over
    the number of up spins.
    """
    coins = mg.FactorGraph([2] * 20, [mg.Unary(range(20), [0.0, 0.0])])
    frozen = mg.FactorGraph([2] * 12, [mg.Ising(range(11), range(1, 12), 5.0)])
    rng = np.random.default_rng(1)
    i, j = np.triu_indices(40, 1)
    glass = mg.FactorGraph([2] * 40, [mg.Ising(i, j, rng.normal(size=len(i)) * 2 / math.sqrt(40))])
    base = mg.models.curie_weiss(500, 1.2)
    pulled = mg.FactorGraph([2] * 500, [*base.factors, mg.Unary(range(500), [0.0, -0.1])])
    opposed = {"start": np.ones(500, dtype=int), "warmup": 0}
    two = mg.Tempering(levels=2)
    return {
        "50 x 50 lattice, beta 0.3": Case(mg.models.ising_lattice(50, 0.3), None, {}),
        "coins, 2,000 chains of 10 sweeps": Case(coins, None, {"chains": 2000, "sweeps": 10}),
        "20 coins, 100 sweeps": Case(coins, None, {"sweeps": 100}),
        "Curie-Weiss, 500 spins, 0.8": Case(mg.models.curie_weiss(500, 0.8), None, {}),
        "Curie-Weiss, 500 spins, critical": Case(mg.models.curie_weiss(500, 1.0), None, {}),
        "4 x 4 lattice, tempered": Case(
            mg.models.ising_lattice(4, 0.5), None, {"sampler": mg.Tempering()}
        ),
        "Curie-Weiss, 100 spins, 1.5": Case(mg.models.curie_weiss(100, 1.5), 0.5, {}),
        "the same, two temperatures": Case(
            mg.models.curie_weiss(100, 1.5), 0.5, {"sampler": two, "sweeps": 300}
        ),
        "the same, from random states": Case(
            mg.models.curie_weiss(100, 1.5), 0.5, {"start": "random"}
        ),
        "16 x 16 lattice, beta 0.6": Case(mg.models.ising_lattice(16, 0.6), 0.5, {}),
        "frozen chain of 12 spins": Case(frozen, 0.5, {}),
        "spin glass, 40 spins, beta 2": Case(glass, 0.5, {}),
        "Curie-Weiss in an opposing field, from one state": Case(pulled, math.nan, opposed),
        **more_cases(),
    }


def more_cases() -> dict[str, Case]:
    """Return modes that differ in weight or in kind, and healthy models that resemble these."""
    rng = np.random.default_rng(1)
    potts = mg.FactorGraph([3] * 100, [mg.Potts(*np.triu_indices(100, 1), 0.029)])
    odd = mg.models.ising_lattice(9, -0.6)
    odd = mg.FactorGraph([2] * 81, [*odd.factors, mg.Unary(range(81), [0.0, 0.3])])
    patterns = rng.choice([-1.0, 1.0], size=(3, 64))
    i, j = np.triu_indices(64, 1)
    hopfield = mg.FactorGraph([2] * 64, [mg.Ising(i, j, 1.6 / 64 * (patterns.T @ patterns)[i, j])])
    cells = np.arange(36).reshape(6, 6)
    sides = np.vstack(
        [
            pair.reshape(2, -1).T
            for pair in (np.stack([cells[:, :-1], cells[:, 1:]]), np.stack([cells[:-1], cells[1:]]))
        ]
    )
    apart = mg.Table(sides, [[0.0, 0.0], [0.0, -np.inf]])
    gas = mg.FactorGraph([2] * 36, [apart, mg.Unary(range(36), [0.0, math.log(6.0)])])
    signs = rng.choice([-1.0, 1.0], size=30)
    mixture = mg.FactorGraph(
        [2] * 31, [mg.Ising([0] * 30, range(1, 31), 0.6 * signs), mg.Unary([0], [0.0, 1.4])]
    )
    random = mg.models.potts_lattice(side=6, states=3, beta=0.9)
    fields = mg.Unary(range(36), rng.normal(size=(36, 3)))
    random = mg.FactorGraph([3] * 36, [*random.factors, fields])
    disorder = mg.models.ising_lattice(8, 0.4)
    pulls = mg.Unary(range(64), np.stack([np.zeros(64), rng.normal(0.1, 1.0, 64)], axis=1))
    disorder = mg.FactorGraph([2] * 64, [*disorder.factors, pulls])
    found = {
        f"Curie-Weiss, {coupling:g}, in a weak field": biased(coupling, np.ones(100))
        for coupling in (1.3, 1.5)
    }
    signs = rng.choice([-1.0, 1.0], size=100)
    return {
        "3-state Potts lattice in random fields": Case(random, None, {}),
        "8 x 8 lattice, beta 0.4, in random fields": Case(disorder, None, {}),
        **found,
        "Curie-Weiss, 1.5, two chains": found["Curie-Weiss, 1.5, in a weak field"]._replace(
            options={"chains": 2}
        ),
        "random signs, 1.3, in a weak field": biased(1.3, signs),
        "random signs, 1.5, in a weak field": biased(1.5, signs),
        "3-state Potts, all pairs": Case(potts, 1 / 3, {}),
        "9 x 9 antiferromagnet, beta 0.6, in a field": exactly(odd),
        "Hopfield, 3 patterns, 64 spins": Case(hopfield, 0.5, {}),
        "hard-core lattice gas, 6 x 6, activity 6": exactly(gas),
        "hidden cause of 30 spins": exactly(mixture),
    }


def exactly(graph: mg.FactorGraph) -> Case:
    """Return a case whose marginals are known by elimination."""
    return Case(graph, mg.infer(graph, exact=True, progress=False).marginals[:, 1], {})


def biased(coupling: float, signs: NDArray[np.float64]) -> Case:
    """Return a Curie-Weiss model with signs and a field: one of two modes has weight 1/5."""
    n = len(signs)
    i, j = np.triu_indices(n, 1)
    field = 0.016 if coupling > 1.4 else 0.02
    fields = mg.Unary(range(n), np.stack([np.zeros(n), field * signs], axis=1))
    pairs = mg.Ising(i, j, coupling / n * signs[i] * signs[j])
    graph = mg.FactorGraph([2] * n, [pairs, fields])
    ups = np.arange(n + 1)
    states = (np.arange(n) < ups[:, None]) == (signs > 0)
    logs = graph.log_potential(states.astype(np.int64)) - np.array(
        [math.lgamma(k + 1) + math.lgamma(n - k + 1) for k in ups]
    )
    share = np.exp(logs - logs.max())
    up = float(share @ ups / share.sum() / n)
    return Case(graph, np.where(signs > 0, up, 1.0 - up), {})


def mistakes(report: Report) -> None:
    """Count false alarms of healthy models, and wrong runs without a warning."""
    for name, case in cases().items():
        warned, wrong = [], []
        for seed in range(FEW):
            run = mg.sample(case.graph, seed=seed, **case.options, **QUIET)
            warned.append(bool(run.summary().warnings))
            if case.truth is not None:
                off = np.abs(run.marginals[:, 1] - case.truth).max()
                wrong.append(not off <= 0.1)  # also true if the truth is NaN
        if case.truth is None:
            rate = float(np.mean(warned))
            text = f"{rate:.0%} ± {math.sqrt(max(rate * (1 - rate), 0.01) / FEW):.0%} warned"
            report.add(f"healthy: {name}", text, "5%", rate <= 0.05, str(FEW))
            continue
        missed = int(np.sum(np.array(wrong) & ~np.array(warned)))
        text = f"{np.mean(warned):.0%} warned; {sum(wrong)} wrong, {missed} of them unwarned"
        report.add(f"unhealthy: {name}", text, "2 unwarned", missed <= 2, str(FEW))
