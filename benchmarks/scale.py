"""Long runs: costs of a checkpoint, a segment and a byte; a prediction for 1,000 machines."""

from __future__ import annotations

import heapq
import pickle
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import minigibbs as mg
from benchmarks.report import Report
from minigibbs.kernels.random import streams
from minigibbs.running.api import time_updates
from minigibbs.running.backends.cpu import CpuGroup
from minigibbs.running.executors import remote, worker
from minigibbs.running.executors.worker import Outline, Parcel, absorb, work
from minigibbs.running.request import Options

NETWORK = 125e6  # bytes per second: a gigabit per second


def main() -> None:
    report = Report("scale", "Long runs: checkpoints, segments, and 1,000 machines")
    report.notes.append(
        "Measured on a busy machine: medians, and ratios of turns taken one after the other."
    )
    models = {
        "the paper's Potts model": mg.models.potts_rbf(),
        "Ising lattice, 1e6 variables": mg.models.ising_lattice(1000, 0.4),
    }
    for name, graph in models.items():
        checkpoints(report, name, graph)
    costs = {name: travel(report, name, graph) for name, graph in models.items()}
    per_segment = dask(report)
    report.notes += ["", *thousand(costs, per_segment)]
    report.write()


def checkpoints(report: Report, name: str, graph: mg.FactorGraph) -> None:
    """Compare the time of a write, which is a checkpoint's only cost, with the default interval."""
    from minigibbs.running.checkpoint import saver

    writes: list[float] = []
    original = saver.Saver._write

    def timed(self: saver.Saver) -> None:
        begun = time.perf_counter()
        original(self)
        writes.append(time.perf_counter() - begun)

    saver.Saver._write = timed  # type: ignore[method-assign]
    folder = Path(tempfile.mkdtemp()) / "run"
    try:
        sweeps = max(1, 4_000_000 // len(graph))
        mg.sample(graph, sweeps=sweeps, seed=1, progress=False, checkpoint=folder, every=0.2)
        size = max(path.stat().st_size for path in folder.glob("state-*"))
    finally:
        saver.Saver._write = original  # type: ignore[method-assign]
        shutil.rmtree(folder.parent, ignore_errors=True)
    write = statistics.median(writes)
    interval = max(saver.EVERY, saver.SHARE * write)
    share = 100 * write / interval
    report.add(f"checkpoint of 4 chains, {name}", f"{size / 1e6:.2f} MB")
    report.add(
        "  share of the time at the default interval",
        f"{share:.2g}%: {write:.3f} s every {interval:.0f} s",
        "under 2%",
        share < 2,
    )


def travel(report: Report, name: str, graph: mg.FactorGraph) -> dict[str, float]:
    """Measure the bytes that a segment sends in both directions, and the cost of its result."""
    sampler = mg.PoissonGibbs()
    record = mg.Record("marginals", "energy", thin=10**6)
    plan = Options(sampler=sampler, chains=1, seed=1, record=record).plan(graph, 10**9, 1)
    data = sampler.prepare(graph)
    group = CpuGroup(plan, data, np.zeros(len(graph), graph.state_type), streams(1, 1)[0])
    group.compile()
    outline = Outline("benchmark", plan.small(), type(data).__name__)
    path = Path(tempfile.mkdtemp()) / "model.mg"
    mg.write(graph, path)
    begun = time.perf_counter()
    worker._plan(outline, Parcel(str(path), None))
    loading = time.perf_counter() - begun
    home = []
    for _ in range(9):
        begun = time.perf_counter()
        state = group.state() | {"counts": np.zeros(1, np.int64)}
        there = pickle.dumps((outline, None, state, 200_000, True))
        home.append(time.perf_counter() - begun)
        segment = work(*pickle.loads(there))
        back = pickle.dumps(segment)
        begun = time.perf_counter()
        absorb(group, pickle.loads(back), 200_000, True, 1.0)
        home[-1] += time.perf_counter() - begun
    shutil.rmtree(path.parent)
    worker.forget("benchmark")
    update = time_updates(graph, sampler)
    cost = {
        "update": update,
        "home": statistics.median(home),
        "bytes": float(len(there) + len(back)),
        "loading": loading,
    }
    report.add(f"a chain, {name}", f"{update * 1e9:.0f} ns/update")
    report.add("  a segment: sent and returned", f"{len(there):,} + {len(back):,} bytes")
    report.add("  a segment: packing and unpacking at home", f"{cost['home'] * 1e3:.2f} ms")
    report.add(
        "  home per byte", f"{cost['home'] / cost['bytes'] * 1e9:.2f} ns (and 8 ns on a gigabit)"
    )
    report.add("  a worker's first segment: reading and preparing the model", f"{loading:.2f} s")
    return cost


def dask(report: Report) -> float:
    """Measure the seconds that a segment costs scheduler and client of a real Dask cluster."""
    from distributed import Client, LocalCluster

    graph = mg.models.ising_lattice(8, 0.3)
    before = remote.segment_seconds
    remote.segment_seconds = lambda chains, size: 0.0  # segments of one update
    options = {"chains": 16, "seed": 1, "progress": False, "record": "marginals"}
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        mg.sample(graph, updates=20, executor=client, **options)
        each = []
        for _ in range(5):
            begun = time.perf_counter()
            mg.sample(graph, updates=16 + 30, executor=client, **options)
            each.append((time.perf_counter() - begun) / (16 * 31))
    remote.segment_seconds = before
    cost = statistics.median(each)
    what = "an empty segment on Dask: client, scheduler and two workers share this machine"
    report.add(what, f"{cost * 1e3:.2f} ms")
    return cost


def thousand(costs: dict[str, dict[str, float]], per_segment: float) -> list[str]:
    """Predict the costs of many machines, by simulating their segments through one process."""
    lines = [
        "## 1,000 machines",
        "",
        "Played, not run: every machine works on 16 chains, whose segments all go through the one "
        "process that started the run, at the costs above and over one gigabit; each machine is "
        "lost once a day, and with it what it was working on. Useful is the share of the machines' "
        "time that ends up in chains.",
        "",
        "| model | machines | chains | seconds a segment | home busy | useful | updates/s |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, cost in costs.items():
        for machines in (1, 10, 100, 1000):
            chains = 16 * machines
            seconds = remote.segment_seconds(chains, cost["bytes"])
            handling = per_segment + max(cost["home"], cost["bytes"] / NETWORK)
            busy, useful = play(chains, seconds, handling)
            rate = useful * chains / cost["update"]
            lines.append(
                f"| {name} | {machines:,} | {chains:,} | {seconds:.0f} | {busy:.0%} | "
                f"{useful:.0%} | {rate:.2g} |"
            )
    return lines


def play(chains: int, seconds: float, handling: float, rounds: int = 20) -> tuple[float, float]:
    """Simulate events; return the central process's busy share and the machines' useful share."""
    rng = np.random.default_rng(0)
    events = [(seconds * rng.random(), chain) for chain in range(chains)]  # already spread out
    heapq.heapify(events)
    home, busy, done, now = 0.0, 0.0, 0, 0.0
    end = rounds * seconds
    while events:
        now, chain = heapq.heappop(events)
        if now > end:
            break
        home = max(home, now) + handling
        busy += handling
        done += rng.random() > seconds / 86400.0
        heapq.heappush(events, (home + seconds * rng.uniform(0.9, 1.1), chain))
    return min(busy / end, 1.0), min(done * seconds / (end * chains), 1.0)
