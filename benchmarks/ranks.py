"""One model on several ranks, and large models of stored pairs until their first sweep.

Run it with `python -m benchmarks ranks`; it launches `mpiexec -n 2`. Processor times of a rank are
those of its updates; waiting for other ranks and for other programs is left out.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import minigibbs as mg
from benchmarks.lattices import CRITICAL
from benchmarks.report import Report
from minigibbs.running.backends.lockstep import LockstepGroup
from minigibbs.running.backends.mpi import world
from minigibbs.running.backends.partition import BANDWIDTH, LATENCY
from minigibbs.samplers.chromatic.stencil_tiles import StencilTile

RANKS = 2
LARGE = (32_768, 30_720)  # 1.007e9 sites
EACH = (3_200, 3_136)  # 1.0e7 sites per rank
SWEEPS = 3
STORED = 4096
PAIR_BYTES = 16  # of a stored pair of the model: two variables and a weight
SIMULATED = (8, 64, 1024)
COLORS = 400  # simulated


def lattice(shape: tuple[int, int]) -> mg.FactorGraph:
    """Return a critical lattice that stores one size for all sites."""
    stencil = mg.Stencil(shape, [(0, 1), (1, 0)], CRITICAL)
    return mg.FactorGraph(np.broadcast_to(2, stencil.variables), [stencil])


def peak() -> float:
    """Return the largest resident memory of this process so far, in bytes."""
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def rank(folder: str) -> None:
    """Measure on one rank, and write the results as JSON."""
    comm, options = world(), {"chains": 1, "seed": 1, "warmup": 0, "progress": False}
    mg.sample(lattice((64, 64)), sweeps=2, backend="mpi", record="energy", **options)
    found: dict[str, Any] = {"import": peak(), **link(comm)}
    for name, shape in (("each", (comm.size * EACH[0], EACH[1])), ("large", LARGE)):
        spent: list[list[float]] = []  # [segment of a color][wall, processor]
        sweep = StencilTile._sweep

        def timed(tile: StencilTile, *arguments: Any) -> Any:
            begun = time.perf_counter(), time.thread_time()
            moved = sweep(tile, *arguments)  # noqa: B023
            ended = time.perf_counter(), time.thread_time()
            spent.append([ended[0] - begun[0], ended[1] - begun[1]])  # noqa: B023
            return moved

        StencilTile._sweep = timed  # type: ignore[method-assign]
        begun = time.perf_counter()
        run = mg.sample(lattice(shape), sweeps=SWEEPS, backend="mpi", record="energy", **options)
        wall = time.perf_counter() - begun
        StencilTile._sweep = sweep  # type: ignore[method-assign]
        seconds = np.array([one for one in spent if one[0] > 0]).sum(axis=0)
        found[name] = {
            "sites": int(np.prod(shape)),
            "wall": wall,
            "sampling": run.info.seconds / SWEEPS,
            "updates": seconds[1] / SWEEPS,
            "peak": peak(),
            "energy": float(run.energy[0, -1]) / np.prod(shape),
        }
    Path(folder, f"{comm.rank}.json").write_text(json.dumps(found))


def link(comm: Any) -> dict[str, float]:
    """Measure the time of a message between two ranks, and bytes per second."""
    least = {}
    for size in (8, 1 << 22):
        data, times = np.zeros(size, np.uint8), []
        for _ in range(300 if size == 8 else 30):
            comm.Barrier()
            begun = time.perf_counter()
            if comm.rank == 0:
                comm.Send(data, 1)
                comm.Recv(data, 1)
            elif comm.rank == 1:
                comm.Recv(data, 0)
                comm.Send(data, 0)
            times.append((time.perf_counter() - begun) / 2)
        least[size] = min(times)
    return {"latency": least[8], "bandwidth": (1 << 22) / (least[1 << 22] - least[8])}


def simulated(ranks: int, color: float, latency: float, bandwidth: float) -> float:
    """Return the efficiency of ranks that each own `EACH` sites of a lattice.

    Every rank updates its two outer rows, sends them, and updates the rest; then it waits for the
    rows of its neighbors. Times of a color vary by a tenth, at random.
    """
    rng, clock = np.random.default_rng(ranks), np.zeros(ranks)
    row = EACH[1] / 16  # bytes of a color's sites in a row
    for _ in range(COLORS):
        own = color * rng.uniform(0.9, 1.1, ranks)
        early = clock + own * 2 / EACH[0]
        arrival = early + 2 * (latency + row / bandwidth)
        clock = np.maximum(clock + own, np.maximum(np.roll(arrival, 1), np.roll(arrival, -1)))
    return COLORS * color / float(clock.max())


def stored() -> dict[str, float]:
    """Measure calls of `mg.sample` for a lattice of stored pairs, in a process of its own."""
    options = {"chains": 1, "seed": 1, "warmup": 0, "progress": False, "record": "energy"}
    mg.sample(mg.models.ising_lattice(64, CRITICAL, implicit=False), sweeps=1, **options)
    first, advance = [], LockstepGroup.advance

    def noted(group: LockstepGroup, *arguments: Any) -> None:
        first.append((time.perf_counter(), time.process_time()))
        begun = time.process_time()
        advance(group, *arguments)
        chain.append(time.process_time() - begun)

    LockstepGroup.advance = noted  # type: ignore[method-assign]
    graph, before = mg.models.ising_lattice(STORED, CRITICAL, implicit=False), None
    found: dict[str, float] = {}
    for call in ("first", "second"):
        chain: list[float] = []
        first.clear()
        begun = time.perf_counter(), time.process_time()
        mg.sample(graph, sweeps=1, **options)
        found[f"{call} wall"], found[call] = np.subtract(first[0], begun).tolist()
        found[f"{call} call"] = time.process_time() - begun[1] - sum(chain)
        before = before or peak()
    found["memory"] = peak() / (PAIR_BYTES * 2 * len(graph))
    return found


def child(*arguments: str, launcher: tuple[str, ...] = ()) -> None:
    """Run a part of this benchmark in processes of its own."""
    program = [*launcher, sys.executable, "-m", "benchmarks.ranks", *arguments]
    subprocess.run(program, check=True)


def main() -> None:
    """Measure, and write the table."""
    with tempfile.TemporaryDirectory() as folder:
        child("stored", folder)
        child("rank", folder, launcher=("mpiexec", "-n", str(RANKS)))
        found = json.loads(Path(folder, "stored.json").read_text())
        ranks = [json.loads(Path(folder, f"{k}.json").read_text()) for k in range(RANKS)]
    tabulate(found, ranks)


def tabulate(found: dict[str, float], ranks: list[dict[str, Any]]) -> None:
    """Write the table of the measurements."""
    report = Report("ranks", "One model on two ranks, and models of stored pairs until they start")
    name = f"{STORED:,} x {STORED:,} stored pairs"
    report.add(f"{name}: processor seconds to the first sweep", f"{found['first']:.1f}")
    report.add(f"{name}: wall seconds to the first sweep", f"{found['first wall']:.1f}")
    what = f"{name}: processor seconds of a second call beyond its chain"
    report.add(what, f"{found['second call']:.2f}", "0.3", found["second call"] <= 0.3)
    report.add(f"{name}: largest memory, in units of the model's", f"{found['memory']:.1f}")
    for key, what in (("each", "1e7 spins per rank"), ("large", "1e9 spins")):
        own = [one[key] for one in ranks]
        sites = f"{what} on {RANKS} ranks"
        most = max(one["updates"] for one in own)
        report.add(f"{sites}: processor seconds of a rank's updates per sweep", f"{most:.3g}")
        report.add(f"{sites}: wall seconds per sweep", f"{own[0]['sampling']:.3g}")
        report.add(f"{sites}: wall seconds of the call", f"{own[0]['wall']:.3g}")
    memory = [f"{one['large']['peak'] / 2**30:.1f}" for one in ranks]
    report.add(f"1e9 spins: largest memory of each of {RANKS} ranks, GiB", " and ".join(memory))
    latency = min(one["latency"] for one in ranks)
    bandwidth = max(one["bandwidth"] for one in ranks)
    report.add("message of 8 bytes between two ranks, us", f"{1e6 * latency:.2g}")
    report.add("bandwidth between two ranks, GB/s", f"{1e-9 * bandwidth:.2g}")
    color = ranks[0]["each"]["updates"] / 2
    links = {
        "the measured link": (latency, bandwidth),
        f"{1e6 * LATENCY:g} us and {1e-9 * BANDWIDTH:g} GB/s": (LATENCY, BANDWIDTH),
        "50 us and 1 GB/s": (5e-5, 1e9),
    }
    for size in SIMULATED:
        for link_name, numbers in links.items():
            part = simulated(size, color, *numbers)
            report.add(f"simulated weak scaling, {size:,} ranks, {link_name}", f"{part:.2f}")
    load = os.getloadavg()[0]
    report.notes.append(
        f"The machine was shared: its load was {load:.0f} on {os.cpu_count()} cores, so wall times "
        "say little. A simulated color takes the measured processor time, with variations of a "
        "tenth; efficiency is relative to one rank without variations."
    )
    report.notes.append("")
    report.notes.append(
        "The simulation leaves out records, the commands of rank 0, the interpreter, and memory "
        "that cores share. It was not checked on more than two ranks."
    )
    report.write()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        main()
    elif sys.argv[1] == "rank":
        rank(sys.argv[2])
    else:
        Path(sys.argv[2], "stored.json").write_text(json.dumps(stored()))
