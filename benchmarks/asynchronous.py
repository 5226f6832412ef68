"""Asynchronous Gibbs beside colours: how fast two threads are on one chain, and how wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

import minigibbs as mg
from benchmarks.report import Report
from benchmarks.sparse import learned

ROUNDS = 5
RUNS = {
    "random scan, one thread": {"sampler": mg.Gibbs(fields=False), "scan": "random", "threads": 1},
    "asynchronous, two threads": {"sampler": mg.AsyncGibbs(threads=2)},
    "colours, two threads": {"sampler": mg.Gibbs(), "scan": "chromatic", "threads": 2},
}


def main() -> None:
    report = Report("asynchronous", "Asynchronous Gibbs and colours: two threads on one chain")
    report.notes.append(
        "Nanoseconds an update of one chain with its marginals counted, the best of "
        f"{ROUNDS} turns, and how many times faster than a random scan on one thread. Energies are "
        "means over turns, each from a start of its own and after a warm-up, with the error of a "
        "difference of such means. Random scans and colours are exact: what is beyond errors in "
        "the second row of each model is its bias."
    )
    models = {
        "Ising lattice 1,000 x 1,000 at beta 0.4": (mg.models.ising_lattice(1000, 0.4), 30, 20),
        "Potts lattice 300 x 300 of 5 values": (mg.models.potts_lattice(300, 5, 1.0), 50, 100),
        "the paper's Ising model, degree 399": (mg.models.ising_rbf(), 200, 2000),
        "learned tables, 136 sites of 5 values": (learned(), 200, 2000),
    }
    for name, (graph, warmup, sweeps) in models.items():
        compare(report, name, graph, warmup, sweeps)
    lockstep(report)
    report.write()


def compare(report: Report, name: str, graph: mg.FactorGraph, warmup: int, sweeps: int) -> None:
    """Turns of all three, one after the other."""
    taken: dict[str, list[float]] = {run: [] for run in RUNS}
    energy: dict[str, list[float]] = {run: [] for run in RUNS}
    for seed in range(1, ROUNDS + 1):
        for run, options in RUNS.items():
            seconds, mean = _turn(graph, warmup, sweeps, seed, options)
            taken[run].append(seconds)
            energy[run].append(mean)
    first = min(taken["random scan, one thread"])
    exact = np.array([*energy["random scan, one thread"], *energy["colours, two threads"]])
    report.add(name, f"energy {exact.mean():.6g} of the two exact ones")
    for run in RUNS:
        best, own = min(taken[run]), np.array(energy[run])
        others = exact if run.startswith("asynchronous") else np.array(_other(energy, run))
        error = np.sqrt(own.var(ddof=1) / len(own) + others.var(ddof=1) / len(others))
        off = (own.mean() - others.mean()) / abs(exact.mean())
        report.add(
            f"  {run}",
            f"{1e9 * best:.1f} ns, {first / best:.2f} times; energy off by {off:+.3%} "
            f"± {error / abs(exact.mean()):.3%}",
        )


def _other(energy: dict[str, list[float]], run: str) -> list[float]:
    """The other of the two that are exact."""
    exact = [name for name in RUNS if not name.startswith("asynchronous")]
    return energy[exact[1 - exact.index(run)]]


def _turn(
    graph: mg.FactorGraph, warmup: int, sweeps: int, seed: int, options: dict[str, Any]
) -> tuple[float, float]:
    """Seconds an update, and the mean energy of the later part."""
    common = {"chains": 1, "seed": seed, "progress": False}
    warm = mg.sample(graph, sweeps=warmup, record=(), **common, **options)
    timed = mg.sample(graph, sweeps=sweeps, start=warm, record="marginals", **common, **options)
    every = mg.Record("energy", thin=max(1, sweeps // 2000))
    run = mg.sample(graph, sweeps=sweeps, start=timed, record=every, **common, **options)
    return timed.info.seconds / timed.info.updates, float(run.energy.mean())


def lockstep(report: Report) -> None:
    """The bias where threads never see each other's update under way, by enumeration."""
    pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 1.0)])
    for graph, name in ((pair, "two spins"), (_ring(8), "ring of 8 spins")):
        plain = mg.theory.transition(graph, mg.Gibbs())
        law = mg.theory.transition(graph, mg.AsyncGibbs(threads=2)).stationary()
        exact, biased = (float(each @ plain.enumeration.energy) for each in (plain.law, law))
        report.add(
            f"{name}, couplings 1, two threads in lockstep, by enumeration",
            f"energy {biased:.4f} in place of {exact:.4f}",
        )


def _ring(spins: int) -> mg.FactorGraph:
    site = np.arange(spins)
    return mg.FactorGraph([2] * spins, [mg.Ising(site, np.roll(site, 1), 1.0)])
