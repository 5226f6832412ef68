"""The default scan on a GPU against every other valid one, in effective samples per second."""

from __future__ import annotations

from typing import Any

import minigibbs as mg
from benchmarks.defaults import MODELS, effective
from benchmarks.report import Report
from minigibbs.running.plan import SCANS

CHAINS = (1, 1024, 131_072, 4_194_304)
SECONDS = 0.25  # approximate time of sampling per measurement
MOST = 1 << 31  # variables of all chains together
RECORDED = mg.Record("marginals", "energy")


def main() -> None:
    report = Report("gpu_defaults", "The default scan on a GPU beside every other valid one")
    report.notes.append(
        "Effective samples of the log-potential per second of sampling, as a share of the best "
        "scan. Marginals and energies are recorded. Preparation and compiling are not counted."
    )
    for name, (make, smaller) in MODELS.items():
        graph = make()
        like = graph if smaller is None else smaller()
        mixing = {scan: effective(like, scan) for scan in SCANS}
        for chains in CHAINS:
            if chains * len(graph) <= MOST:
                _add(report, name, graph, chains, mixing)
    report.write()


def _add(
    report: Report, name: str, graph: mg.FactorGraph, chains: int, mixing: dict[str, float]
) -> None:
    options: dict[str, Any] = {"chains": chains, "record": RECORDED, "seed": 1, "progress": False}
    options["backend"] = "cuda"
    default = mg.sample(graph, sweeps=4, **options).info.scan
    rates = {}
    for scan, share in mixing.items():
        if share:
            seconds = _per_sweep(graph, scan, options)
            rates[scan] = share / seconds if seconds else 0.0
    best = max(rates.values())
    shares = ", ".join(f"{scan} {rate / best:.2f}" for scan, rate in rates.items() if rate)
    met = rates[default] / best > 1 / 1.1
    report.add(f"{name}, {chains:,} chains: {default}", shares, "1.1", met)


def _per_sweep(graph: mg.FactorGraph, scan: str, options: dict[str, Any]) -> float:
    """Return seconds per sweep; 0 if a GPU has no such scan."""
    try:
        first = mg.sample(graph, sweeps=4, scan=scan, **options)
    except mg.SampleError:
        return 0.0
    sweeps = max(int(4 * SECONDS / max(first.info.seconds, 1e-3)), 4)
    run = mg.sample(graph, sweeps=sweeps, scan=scan, **options)
    return run.info.seconds * len(graph) / (run.info.updates + run.info.warmup)
