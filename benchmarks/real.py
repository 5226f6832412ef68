"""Real models: time per effective sample against plain Gibbs, and errors of marginals."""

from __future__ import annotations

import numpy as np

import minigibbs as mg
from benchmarks.data import data_models
from benchmarks.report import Report
from benchmarks.split import per_sample
from benchmarks.timing import Timed, race
from minigibbs.explanation import costs


def main() -> None:
    report = Report("real", "Real models, the default sampler against plain Gibbs")
    constants = costs.machine_costs()
    for name, real in data_models().items():
        graph = real.graph()
        stats = graph.stats
        report.add(
            name,
            f"n = {stats.variables:,}, Delta = {stats.max_degree:,}, L = {stats.local_energy:.3g}",
        )
        samplers = {"ours": mg.PoissonGibbs(), "gibbs": mg.Gibbs()}
        timed = {key: Timed(graph, sampler) for key, sampler in samplers.items()}
        best = race(timed, rounds=9)
        for key, sampler in samplers.items():
            ratio = costs.predict(constants, sampler.operations(graph)) / best[key]
            report.add(
                f"  {sampler.name}: predicted over measured",
                f"{ratio:.2f} ({best[key]:.0f} ns)",
                "within 2x",
                0.5 <= ratio <= 2,
            )
        if real.pays:
            cost = {key: per_sample(graph, samplers[key], timed[key]) for key in samplers}
            report.add(
                "  plain Gibbs over ours, time per effective sample",
                f"{cost['gibbs'] / cost['ours']:.1f}x",
            )
        else:
            ratio = best["ours"] / best["gibbs"]
            report.add("  ours over plain Gibbs", f"{ratio:.2f}x", "at most 1.1x", ratio <= 1.1)
        report.add("  explain says", mg.PoissonGibbs().reason(graph))
        if real.truth is not None:
            distribution(report, graph, real.truth())
    if not report.rows:
        report.notes.append("No folder of real models was found.")
    report.write()


def distribution(report: Report, graph: mg.FactorGraph, truth: np.ndarray) -> None:
    run = mg.sample(graph, sweeps=20_000, warmup=500, seed=1, record="marginals", progress=False)
    width = min(truth.shape[1], run.marginals.shape[1])
    error = np.abs(run.marginals[:, :width] - truth[:, :width]).max()
    spread = run.chain_marginals.std(axis=0, ddof=1).max() / 2
    report.add(
        "  largest error of a marginal after 4 x 20,000 sweeps",
        f"{error:.4f} (largest standard error by chains {spread:.4f})",
    )
