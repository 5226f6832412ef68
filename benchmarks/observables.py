"""Costs of a call besides its chain: default energies, observables, memory of long runs."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import numpy as np

import minigibbs as mg
from benchmarks.report import Report
from benchmarks.timing import Timed

ROUNDS = 5
BAR = 1.2  # of the default call over the bare chain
OBSERVED = 1.1  # of a run with observables over one without


def main() -> None:
    report = Report("observables", "What is measured, and what it costs", "of that")
    for name, (graph, sweeps) in models().items():
        default_call(report, name, graph, sweeps)
    lattice(report)
    memory(report)
    report.notes.append(
        "Processor time of the second and later calls, one chain, the best of five; bare chain and "
        "call take turns. The last column is what marginals alone cost, without energies."
    )
    report.write()


def dense(kind: Any, side: int, values: int, beta: float) -> mg.FactorGraph:
    """Return the paper's models: every pair of a grid, weighted by a Gaussian of the distance."""
    n = side * side
    i, j = np.triu_indices(n, 1)
    square = (i // side - j // side) ** 2 + (i % side - j % side) ** 2
    return mg.FactorGraph([values] * n, [kind(i, j, beta * np.exp(-1.5 * square))])


def models() -> dict[str, tuple[mg.FactorGraph, int]]:
    """Return models by name, and sweeps per call."""
    gaussian = mg.Kernel((100, 100), lambda a, b: 0.1 * np.exp(-(a * a + b * b) / 4))
    patterns = np.random.default_rng(0).normal(size=(4000, 5)) / 60
    return {
        "paper's Potts, n = 400": (dense(mg.Potts, 20, 10, 4.6), 5000),
        "dense Ising, n = 4,096": (dense(mg.Ising, 64, 2, 0.3), 1000),
        "Ising lattice, n = 10,000": (mg.models.ising_lattice(side=100, beta=0.4), 1000),
        "Kernel, n = 10,000": (mg.FactorGraph([2] * 10_000, [gaussian]), 500),
        "Complete, n = 10,000": (mg.FactorGraph([2] * 10_000, [mg.Complete(10_000, 5e-5)]), 1000),
        "LowRank, n = 4,000, rank 5": (mg.FactorGraph([2] * 4000, [mg.LowRank(patterns)]), 1000),
    }


def call(graph: mg.FactorGraph, sweeps: int, **options: Any) -> tuple[float, mg.Run]:
    """Return nanoseconds of processor time per update, of the whole call."""
    begun = time.process_time()
    run = mg.sample(graph, sweeps=sweeps, chains=1, threads=1, seed=1, progress=False, **options)
    return (time.process_time() - begun) / (sweeps * len(graph)) * 1e9, run


def default_call(report: Report, name: str, graph: mg.FactorGraph, sweeps: int) -> None:
    begun = time.perf_counter()
    call(graph, 2)
    first = time.perf_counter() - begun
    bare = Timed(graph, mg.PoissonGibbs())
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        bare.turn()
        for what, options in (("default", {}), ("marginals", {"record": "marginals"})):
            took, run = call(graph, sweeps, **options)
            best[what] = min(best.get(what, np.inf), took)
            if what == "default":
                taken = run.energy.shape[1]
    chain = bare.best * 1e9
    ratio = best["default"] / chain
    report.add(
        f"{name}: bare chain, and the default call ({taken:,} energies in {sweeps:,} sweeps; first "
        f"call {first:.1f} s)",
        f"{chain:.1f} ns, {best['default']:.1f} ns: {ratio:.2f}x",
        f"at most {BAR}x",
        ratio <= BAR,
        f"marginals {best['marginals'] / chain:.2f}x",
    )


def lattice(report: Report) -> None:
    """Measure a magnetization every sweep on a million spins."""
    graph, sweeps = mg.models.ising_lattice(side=1000, beta=0.44), 100
    record = mg.Record("marginals", thin=1)
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for what, observe in (("plain", None), ("observed", {"m": "magnetization"})):
            took, run = call(graph, sweeps, record=record, observe=observe)
            best[what] = min(best.get(what, np.inf), took)
    measured, last = run.observables["m"].series[0, -1], run.state[0].mean()
    assert abs(measured - (2.0 * last - 1.0)) < 1e-9, "what was observed is not the state"
    ratio = best["observed"] / best["plain"]
    report.add(
        "1,000 x 1,000 lattice, the magnetization of every sweep",
        f"{best['plain']:.1f} ns without, {best['observed']:.1f} ns with: {ratio:.3f}x",
        f"at most {OBSERVED}x",
        ratio <= OBSERVED,
    )


def memory(report: Report) -> None:
    """Measure peak memory with space for all records of a long run; all of it is touched."""
    script = """
import numpy as np, minigibbs as mg
from minigibbs.running.api import _place
from minigibbs.running.request import Options
graph = mg.models.ising_lattice(side=1000, beta=0.44)
observe = {"m": "magnetization", "e": "energy", "up": lambda x: x.mean()}
record = mg.Record("marginals", thin=1)
options = Options(seed=1, observe=observe, record=record)
plan = options.plan(graph, 10**6, 10**6)
data, groups = _place(plan)
for group in groups:
    group.observer.series[:] = 0.5
    group.advance(10**6, True)
print(int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024)
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    size = int(out.stdout)
    report.add(
        "a run of 1e6 variables and 1e6 sweeps, four chains, three observables of every sweep",
        f"{size / 1e9:.2f} GB at the peak, interpreter and compiler included",
        "under 1 GB",
        size < 1e9,
    )


if __name__ == "__main__":
    main()
