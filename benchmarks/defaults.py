"""The default scan against every other valid one, in effective samples per second."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import minigibbs as mg
from benchmarks.report import Report
from benchmarks.sparse import lattice, learned
from minigibbs.results.diagnostics import ess_of_mean
from minigibbs.running.plan import SCANS

CHAINS = (1, 4, 64)
SECONDS = 0.5  # approximate processor time of a turn
TURNS = 3
SWEEPS = 4000  # of all chains of a run together, for the effective sample size per sweep
SEEDS = 4  # runs that are averaged: one estimate varies by 5% or more
LEAST = 3  # sweeps of a turn
LAWN = Path(__file__).parent.parent / "tests" / "models" / "sprinkler.bif"


def kernel(side: int, values: int) -> mg.FactorGraph:
    """Return a Gaussian kernel over a grid: all pairs of variables, as implicit factors."""
    couplings = mg.Kernel((side, side), lambda r, c: 0.3 * np.exp(-0.5 * (r**2 + c**2)))
    return mg.FactorGraph([values] * side * side, [couplings])


# By name: the model, and a smaller one of the same kind with the same mixing.
MODELS: dict[str, tuple[Callable[[], mg.FactorGraph], Callable[[], mg.FactorGraph] | None]] = {
    "lattice 8 x 8": (lambda: lattice(8), None),
    "lattice 64 x 64": (lambda: lattice(64), None),
    "dense Ising (paper)": (mg.models.ising_rbf, None),
    "dense Potts (paper)": (mg.models.potts_rbf, None),
    "tables, 40 x 5 values": (lambda: learned(40, 5), None),
    "Kernel, 1e4 spins": (lambda: kernel(100, 2), None),
    "Kernel, 1e6 variables, D = 10": (lambda: kernel(1000, 10), lambda: kernel(60, 10)),
    "Bayesian network": (lambda: mg.read(LAWN), None),
}


def main() -> None:
    report = Report("defaults", "The default scan beside every other valid one")
    report.notes.append(
        "Effective samples of the log-potential per second of processor time, as a share of the "
        f"best scan. Time per sweep is the best of {TURNS} turns of whole calls of mg.sample with "
        "default recording, without compiling; effective samples per sweep are measured apart, as "
        f"the mean of {SEEDS} seeds."
    )
    for name, (make, smaller) in MODELS.items():
        graph = make()
        like = graph if smaller is None else smaller()
        mixing = {scan: effective(like, scan) for scan in SCANS}
        for chains in CHAINS:
            if chains * len(graph) > 10**7:
                continue
            default, rates = _rates(graph, chains, mixing)
            best = max(rates.values())
            shares = ", ".join(f"{scan} {r / best:.2f}" for scan, r in rates.items() if r)
            share = rates[default] / best
            report.add(f"{name}, {chains} chains: {default}", shares, "1.1", share > 1 / 1.1)
    report.write()


def _rates(
    graph: mg.FactorGraph, chains: int, mixing: dict[str, float]
) -> tuple[str, dict[str, float]]:
    """Return the default scan, and effective samples per second of processor time of each scan."""
    options: dict[str, Any] = {"chains": chains, "seed": 1, "progress": False}
    default = mg.sample(graph, sweeps=2, **options).info.scan
    sweeps = {scan: _sweeps(graph, scan, options) for scan in SCANS if mixing[scan]}
    best = dict.fromkeys(SCANS, 0.0)
    for _ in range(TURNS):
        for scan, count in sweeps.items():
            taken = _timed(graph, count, scan, options)
            best[scan] = max(best[scan], mixing[scan] * chains * count / taken)
    return default, best


def _sweeps(graph: mg.FactorGraph, scan: str, options: dict[str, Any]) -> int:
    """Return the number of sweeps per turn; compilation happens before."""
    _timed(graph, LEAST, scan, options)
    return max(int(LEAST * SECONDS / _timed(graph, LEAST, scan, options)), LEAST)


def _timed(graph: mg.FactorGraph, sweeps: int, scan: str, options: dict[str, Any]) -> float:
    begun = time.process_time()
    mg.sample(graph, sweeps=sweeps, scan=scan, **options)
    return time.process_time() - begun


def effective(graph: mg.FactorGraph, scan: str) -> float:
    """Return effective samples of the log-potential per sweep; 0 if the scan is not valid."""
    record, found = mg.Record("energy", thin=1), []
    for seed in range(1, SEEDS + 1):
        try:
            run = mg.sample(
                graph,
                sweeps=SWEEPS // 4,
                warmup=200,
                scan=scan,
                record=record,
                seed=seed,
                progress=False,
            )
        except mg.SampleError:
            return 0.0
        found.append(float(ess_of_mean(run.energy)) / SWEEPS)
    return float(np.mean(found))
