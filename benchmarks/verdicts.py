"""Mistakes of the verdict on random models that it was not designed on.

Every seed draws a new model of a family, and samples it once from default starts. A run is wrong if
a marginal is off by more than 0.1. True marginals come from elimination, or from sums over counts.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import minigibbs as mg
from benchmarks.report import Report

FIRST, SEEDS = 40_000, 40
KINDS = ("weak", "mixed", "strong")
SWEEPS = 300  # short: by default a run has 1,000
OFF = 0.1  # of a marginal, in a wrong run

Marginals = list[NDArray[np.float64]]
Model = tuple[mg.FactorGraph, Marginals]


def solved(graph: mg.FactorGraph) -> Model:
    """Return a graph and its marginals by elimination."""
    answer = mg.infer(graph, exact=True, progress=False)
    return graph, [np.asarray(answer.marginals[k]) for k in range(len(graph))]


def hidden_causes(rng: np.random.Generator, strength: float) -> Model:
    """Three coupled causes with 12 observable spins each, and fields on all of them."""
    children = np.arange(3, 39)
    weights = strength * rng.uniform(0.5, 1.0, 36) * rng.choice([-1.0, 1.0], 36)
    causes = mg.Ising([0, 0, 1], [1, 2, 2], rng.normal(0.0, 0.3, 3))
    effects = mg.Ising(np.repeat(np.arange(3), 12), children, weights)
    scale = np.where(np.arange(39) < 3, 0.7, 0.3)
    fields = np.stack([np.zeros(39), rng.normal(size=39) * scale], axis=1)
    return solved(mg.FactorGraph([2] * 39, [causes, effects, mg.Unary(range(39), fields)]))


def complete_potts(rng: np.random.Generator, strength: float) -> Model:
    """A 4-state Potts model of 60 variables, all coupled, in the same weak field everywhere."""
    n, states = 60, 4
    field = rng.normal(0.0, 0.03, states)
    coupling = strength / n
    pairs = mg.Potts(*np.triu_indices(n, 1), coupling)
    graph = mg.FactorGraph([states] * n, [pairs, mg.Unary(range(n), np.tile(field, (n, 1)))])
    rows = [(*cut, n) for cut in itertools.combinations_with_replacement(range(n + 1), states - 1)]
    counts = np.diff(np.array(rows), axis=1, prepend=0)
    lgamma = np.array([math.lgamma(k + 1) for k in range(n + 1)])
    logs = (coupling * counts * (counts - 1) / 2 + counts * field - lgamma[counts]).sum(axis=1)
    share = np.exp(logs - logs.max())
    return graph, [share @ counts / share.sum() / n] * n


def lattice_potts(rng: np.random.Generator, strength: float) -> Model:
    """A 6 x 6 Potts model of 3 states in weak random fields."""
    base = mg.models.potts_lattice(side=6, states=3, beta=strength, periodic=False)
    fields = mg.Unary(range(36), rng.normal(0.0, 0.2, size=(36, 3)))
    return solved(mg.FactorGraph([3] * 36, [*base.factors, fields]))


def boltzmann(rng: np.random.Generator, strength: float) -> Model:
    """A restricted Boltzmann machine of 30 and 8 units with two random patterns, and biases."""
    patterns, hidden = rng.choice([-1.0, 1.0], (2, 30)), rng.choice([-1.0, 1.0], (2, 8))
    weights = strength / 8 * patterns.T @ hidden + rng.normal(0.0, 0.05, (30, 8))
    i, j = (index.ravel() for index in np.indices((30, 8)))
    fields = np.stack([np.zeros(38), rng.normal(0.0, 0.1, 38)], axis=1)
    pairs = mg.Ising(i, 30 + j, weights.ravel())
    return solved(mg.FactorGraph([2] * 38, [pairs, mg.Unary(range(38), fields)]))


def corridors(rng: np.random.Generator, strength: float) -> Model:
    """A chain of 30 variables with 6 values; steps between values 0 to 2 and 3 to 5 are penalized.

    A quarter of the other steps is forbidden.
    """
    table = rng.normal(0.0, 0.5, (6, 6))
    apart = (np.arange(6)[:, None] < 3) != (np.arange(6) < 3)
    table[apart] -= strength
    table[~apart & (rng.random((6, 6)) < 0.25) & ~np.eye(6, dtype=bool)] = -np.inf
    steps = np.stack([np.arange(29), np.arange(1, 30)], axis=1)
    fields = mg.Unary(range(30), rng.normal(0.0, 0.3, (30, 6)))
    return solved(mg.FactorGraph([6] * 30, [mg.Table(steps, table), fields]))


def exclusions(rng: np.random.Generator, strength: float) -> Model:
    """A lattice gas without occupied neighbors on a random bipartite graph of 32 sites."""
    edges = np.unique(rng.integers(0, 16, (56, 2)), axis=0) + [0, 16]
    apart = mg.Table(edges, [[0.0, 0.0], [0.0, -np.inf]])
    occupied = strength + rng.normal(0.0, 0.3, 32)
    fields = mg.Unary(range(32), np.stack([np.zeros(32), occupied], axis=1))
    return solved(mg.FactorGraph([2] * 32, [apart, fields]))


def pattern(rng: np.random.Generator, strength: float) -> Model:
    """60 variables of 20 values with one random pattern, which attracts by pairs.

    Near its first-order transition, chains stay in a phase in which all values are about equal. The
    search for phases was designed on this family, so the table leaves it out.
    """
    n, states = 60, 20
    hidden = rng.integers(0, states, n)
    i, j = np.triu_indices(n, 1)
    tables = np.zeros((len(i), states, states))
    tables[np.arange(len(i)), hidden[i], hidden[j]] = strength / n
    graph = mg.FactorGraph([states] * n, [mg.Table(np.stack([i, j], axis=1), tables)])
    held = np.arange(n + 1)  # how many variables have their value of the pattern
    lgamma = np.array([math.lgamma(k + 1) for k in held])
    logs = strength / n * held * (held - 1) / 2 + (n - held) * math.log(states - 1)
    logs -= lgamma + lgamma[::-1]
    share = np.exp(logs - logs.max())
    mean = float(share @ held / share.sum() / n)
    truth = np.full((n, states), (1.0 - mean) / (states - 1))
    truth[np.arange(n), hidden] = mean
    return graph, list(truth)


# Family, strengths of couplings of models that mix, and of models that may not.
FAMILIES: dict[str, tuple[Callable[[np.random.Generator, float], Model], float, float]] = {
    "three hidden causes": (hidden_causes, 0.3, 1.2),
    "4-state Potts, 60 variables, all pairs": (complete_potts, 2.0, 3.8),
    "3-state Potts, 6 x 6, weak random fields": (lattice_potts, 0.5, 1.5),
    "restricted Boltzmann machine, two patterns": (boltzmann, 0.4, 2.0),
    "chain with two corridors, hard constraints": (corridors, 0.5, 5.0),
    "exclusions on a random bipartite graph": (exclusions, 0.0, 2.5),
}


class Counts:
    """Numbers of runs: all, warned, wrong, wrong and unwarned; and how far those are off."""

    def __init__(self) -> None:
        self.runs = self.warned = self.wrong = self.missed = 0
        self.off = 0.0

    def add(self, off: float, warned: bool) -> None:
        wrong = not off <= OFF
        self.runs += 1
        self.warned += warned
        self.wrong += wrong
        self.missed += wrong and not warned
        if not warned:
            self.off = max(self.off, off)

    def __str__(self) -> str:
        rate = self.warned / self.runs
        text = f"{rate:.0%} ± {math.sqrt(max(rate * (1 - rate), 0.01) / self.runs):.0%} warned"
        if not self.wrong:
            return text
        text += f"; {self.wrong} wrong, {self.missed} of them unwarned"
        return text + (f", off by up to {self.off:.2f}" if self.missed else "")


def counted(name: str, kind: str, seeds: range) -> Counts:
    """Sample one model per seed."""
    make, weak, strong = FAMILIES[name]
    counts = Counts()
    for seed in seeds:
        rng = np.random.default_rng(seed)
        strength = {"weak": weak, "strong": strong, "mixed": rng.uniform(weak, strong)}[kind]
        graph, truth = make(rng, strength)
        run = mg.sample(graph, sweeps=SWEEPS, seed=seed, progress=False, threads=1)
        found = zip(run.marginals, truth, strict=True)
        off = max(float(np.abs(row[: len(wanted)] - wanted).max()) for row, wanted in found)
        counts.add(off, bool(run.summary().warnings))
    return counts


def main() -> None:
    report = Report("verdicts", "Mistakes of the verdict on random models", "runs")
    warnings.simplefilter("ignore")
    for name in FAMILIES:
        for kind in KINDS:
            counts = counted(name, kind, range(FIRST, FIRST + SEEDS))
            most = 0.05 * (counts.runs if kind == "weak" else max(counts.wrong, 20))
            met = (counts.warned if kind == "weak" else counts.missed) <= most
            report.add(f"{kind}: {name}", str(counts), "5%", met, str(counts.runs))
    report.notes.append(
        f"Each seed draws one model, which is sampled for {SWEEPS} sweeps from default starts. A "
        f"run is wrong if a marginal is off by more than {OFF}. Weak models mix, so their warnings "
        "are false alarms. Couplings of mixed models are uniform between those of weak and of "
        "strong ones."
    )
    report.write()
