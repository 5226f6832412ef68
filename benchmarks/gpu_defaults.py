"""The default scan on a GPU against every other valid one, in effective samples per second.

`BENCHMARK_SECONDS` limits the time; rows that do not fit are left out, and a note says so.
"""

from __future__ import annotations

import math
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import minigibbs as mg
from benchmarks.defaults import MODELS, effective
from benchmarks.report import Report
from minigibbs.running.plan import SCANS

CHAINS = (131_072, 1024, 1, 4_194_304)  # in the order in which they are measured
PREPARED = CHAINS[:3]  # their kernels are compiled in parallel
SECONDS = 0.25  # approximate time of sampling per measurement
MOST = 1 << 31  # variables of all chains together
RECORDED = mg.Record("marginals", "energy")
BACKEND = "cuda"


def main() -> None:
    begun, limit = time.monotonic(), float(os.environ.get("BENCHMARK_SECONDS", "inf"))
    report = Report("gpu_defaults", "The default scan on a GPU beside every other valid one")
    report.notes.append(
        "Effective samples of the log-potential per second of sampling, as a share of the best "
        "scan. Marginals and energies are recorded. Preparation and compiling are not counted."
    )
    tasks = [(name, scan) for name in MODELS for scan in SCANS]
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        mixing = dict(zip(tasks, pool.map(prepare, *zip(*tasks, strict=True)), strict=True))
    print(f"  {time.monotonic() - begun:.0f} s to compile and to measure mixing", flush=True)
    graphs = {name: make() for name, (make, _) in MODELS.items()}
    rows = [(name, chains) for chains in CHAINS for name in MODELS]
    rows = [(name, chains) for name, chains in rows if chains * len(graphs[name]) <= MOST]
    left_out = 0
    for name, chains in rows:
        if time.monotonic() - begun > limit:
            left_out += 1
        else:
            _add(report, name, graphs[name], chains, {scan: mixing[name, scan] for scan in SCANS})
    if left_out:
        report.notes.append(f"{left_out} of {len(rows)} rows did not fit into {limit:.0f} s.")
    report.write()


def prepare(name: str, scan: str) -> float:
    """Compile the kernels of a scan; return its effective samples per sweep, 0 if not valid."""
    make, smaller = MODELS[name]
    graph = make()
    for chains in PREPARED:
        if chains * len(graph) <= MOST // 8:  # several processes share the memory of the card
            try:
                _sample(graph, scan, chains, 4)
            except mg.SampleError:
                return 0.0
    return effective(graph if smaller is None else smaller(), scan)


def _sample(graph: mg.FactorGraph, scan: str | None, chains: int, sweeps: int) -> mg.Run:
    options: dict[str, Any] = {"record": RECORDED, "seed": 1, "progress": False, "scan": scan}
    return mg.sample(graph, sweeps=sweeps, chains=chains, backend=BACKEND, **options)


def _add(
    report: Report, name: str, graph: mg.FactorGraph, chains: int, mixing: dict[str, float]
) -> None:
    default = _sample(graph, None, chains, 4).info.scan
    rates = {
        scan: share / _per_sweep(graph, scan, chains) for scan, share in mixing.items() if share
    }
    best = max(rates.values())
    shares = ", ".join(f"{scan} {rate / best:.2f}" for scan, rate in rates.items())
    met = rates[default] / best > 1 / 1.1
    report.add(f"{name}, {chains:,} chains: {default}", shares, "1.1", met)


def _per_sweep(graph: mg.FactorGraph, scan: str, chains: int) -> float:
    """Return seconds per sweep; infinite if there is no space for this scan."""
    try:
        first = _sample(graph, scan, chains, 4)
    except mg.SampleError:
        return math.inf
    sweeps = max(int(4 * SECONDS / max(first.info.seconds, 1e-3)), 4)
    run = _sample(graph, scan, chains, sweeps)
    return run.info.seconds * len(graph) / (run.info.updates + run.info.warmup)
