"""The paper's samplers: time and operations per update."""

from __future__ import annotations

import numpy as np

import minigibbs as mg
from benchmarks.report import Report
from benchmarks.timing import Timed, race


def main() -> None:
    report = Report("samplers", "The paper's samplers")
    papers_models(report)
    tables(report)
    star(report)
    report.write()


def papers_models(report: Report) -> None:
    ising, potts = mg.models.ising_rbf(), mg.models.potts_rbf()
    psi_ising, psi = ising.stats.total_energy, potts.stats.total_energy
    batch = potts.stats.local_energy**2
    best = race(
        {
            "gibbs": Timed(potts, mg.Gibbs()),
            "mgpmh": Timed(potts, mg.MGPMH(batch=batch)),
            "local": Timed(ising, mg.LocalMinibatchGibbs(40)),
            "min": Timed(ising, mg.MinGibbs(batch=psi_ising**2)),
            "double": Timed(potts, mg.DoubleMinGibbs(batch=batch, second_batch=psi**2)),
        }
    )
    report.add("plain Gibbs, Potts", f"{best['gibbs']:.0f} ns")
    ratio = best["mgpmh"] / best["gibbs"]
    report.add("MGPMH at L^2, Potts, over plain Gibbs", f"{ratio:.2f}x", "at most 2x", ratio <= 2)
    report.add("Local Minibatch Gibbs at B = 40, Ising", f"{best['local']:.0f} ns")
    taken = best["min"] / 1e3
    report.add("MIN-Gibbs at Psi^2, Ising", f"{taken:.0f} us", "under 200 us", taken < 200)
    taken = best["double"] / 1e3
    report.add("DoubleMIN at L^2, Psi^2, Potts", f"{taken:.0f} us", "under 300 us", taken < 300)


def as_tables(graph: mg.FactorGraph) -> mg.FactorGraph:
    """Return the same model with every pair as a weighted table that all pairs share."""
    (group,) = graph.factors
    states = int(graph.sizes[0])
    kept = group.weight > 0
    return mg.FactorGraph(
        graph.sizes, [mg.Table(group.scope[kept], np.eye(states), weight=group.weight[kept])]
    )


def tables(report: Report) -> None:
    """Measure table factors: plain Gibbs pays D per factor, MGPMH only for those it draws."""
    for side in (20, 40):
        graph = as_tables(mg.models.potts_rbf(side=side))
        batch = graph.stats.local_energy**2
        best = race(
            {"gibbs": Timed(graph, mg.Gibbs()), "mgpmh": Timed(graph, mg.MGPMH(batch=batch))}
        )
        ratio = best["gibbs"] / best["mgpmh"]
        bar = ("faster", ratio > 1) if side == 40 else ("", None)
        report.add(f"plain Gibbs over MGPMH, n = {side**2}, D = 10 tables", f"{ratio:.2f}x", *bar)


def star(report: Report) -> None:
    """Compare a hub with 1e6 factors with one with 1e4, of the same total energy."""
    samplers = {
        "MIN-Gibbs": mg.MinGibbs(batch=200),
        "DoubleMIN": mg.DoubleMinGibbs(batch=20, second_batch=200),
    }
    for name, sampler in samplers.items():
        draws, times = {}, {}
        for leaves in (10_000, 1_000_000):
            hub = np.zeros(leaves, dtype=int)
            graph = mg.FactorGraph(
                np.full(leaves + 1, 2), [mg.Potts(hub, np.arange(1, leaves + 1), 5.0 / leaves)]
            )
            timed = Timed(graph, sampler)
            before = timed.group.chain.tally.copy()
            for _ in range(7):
                timed.turn()
            draws[leaves] = (timed.group.chain.tally - before)[1] / (7 * timed.updates)
            times[leaves] = timed.best
        few, many = draws.values()
        report.add(
            f"{name}: draws per update, 1e4 and 1e6 factors at a variable",
            f"{few:.1f}, {many:.1f}",
            "the same",
            abs(few - many) < 0.02 * few,
        )
        ratio = times[1_000_000] / times[10_000]
        report.add(
            f"{name}: time at 1e6 over 1e4 factors", f"{ratio:.2f}x", "at most 4x", ratio <= 4
        )
