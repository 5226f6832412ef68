"""The split that Poisson-Gibbs chooses against a grid search, per effective sample."""

from __future__ import annotations

import numpy as np

import minigibbs as mg
from benchmarks.data import data_models
from benchmarks.report import Report
from benchmarks.timing import Timed
from minigibbs.results import diagnostics

SWEEPS = 2000


def models() -> dict[str, mg.FactorGraph]:
    wanted = {
        "Potts, the paper's": mg.models.potts_rbf(),
        "Ising, the paper's": mg.models.ising_rbf(),
        "Curie-Weiss, n = 1,000, beta 0.9": mg.models.curie_weiss(1000, 0.9),
        "long-range Ising, n = 1,000, alpha 2": mg.models.long_range_ising(1000, 2.0, 0.3),
    }
    real = data_models()
    return wanted | {name: real[name].graph() for name in real if name.startswith("densecrf")}


def per_sample(graph: mg.FactorGraph, sampler: mg.Sampler, timed: Timed) -> float:
    """Return nanoseconds per effective sample of a variable's value, averaged over 40 variables."""
    run = mg.sample(
        graph,
        sampler,
        sweeps=SWEEPS,
        warmup=100,
        chains=4,
        seed=1,
        record=mg.Record("draws", thin=1),
        progress=False,
    )
    some = run.draws[:, :, :: max(1, len(graph) // 40)]
    ess = np.nanmean(diagnostics.ess(some == 1)) / (4 * SWEEPS * len(graph))
    return timed.best * 1e9 / (ess * len(graph))


def main() -> None:
    report = Report("split", "The split chosen against a grid search")
    for name, graph in models().items():
        settings = {"ours": mg.PoissonGibbs(), "plain Gibbs": mg.Gibbs()}
        for heavy in (0, 4, 8, 20):
            for theta in (0.15, 0.3, 1.0, 3.0):
                settings[f"heavy {heavy}, theta {theta}"] = mg.PoissonGibbs(
                    heavy=heavy, theta=theta
                )
        timed = {key: Timed(graph, sampler, seconds=0.05) for key, sampler in settings.items()}
        for _ in range(7):
            for rival in timed.values():
                rival.turn()
        cost = {key: per_sample(graph, settings[key], timed[key]) for key in settings}
        best = min(cost, key=cost.__getitem__)
        ratio = cost["ours"] / cost[best]
        report.add(
            f"{name}: ns per effective sample over the best found ({best})",
            f"{ratio:.2f}x ({cost['ours']:.0f}, plain Gibbs {cost['plain Gibbs']:.0f})",
            "at most 1.3x",
            ratio <= 1.3,
        )
    report.write()
