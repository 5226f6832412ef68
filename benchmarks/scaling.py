"""Weak scaling of one lattice over the cores of a machine, beside the simulation of `ranks`.

Run it with `python -m benchmarks scaling`; it launches `mpiexec` for 1, 2, 4, ... ranks. Every
number of ranks is also printed as a line of JSON, so that an interrupted run is not lost.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import minigibbs as mg
from benchmarks.ranks import EACH, lattice, link, simulated
from benchmarks.report import Report
from minigibbs.running.backends.mpi import world
from minigibbs.samplers.chromatic.stencil_tiles import StencilTile

SWEEPS, REPEATS = 150, 3
THRESHOLDS = {8: 0.85}  # ranks: least efficiency
COLORS = 2  # per sweep
LIMIT = 120  # seconds of one launch


def rank(folder: str) -> None:
    """Measure on one rank, and write the results as JSON."""
    comm = world()
    options: dict[str, Any] = {"chains": 1, "seed": 1, "warmup": 0, "progress": False}
    options |= {"backend": "mpi", "record": mg.Record("energy", thin=SWEEPS), "sweeps": SWEEPS}
    mg.sample(lattice((64, 64)), **options)  # compiles
    graph, spent = lattice((comm.size * EACH[0], EACH[1])), [0.0]
    sweep = StencilTile._sweep

    def timed(tile: StencilTile, *arguments: Any) -> Any:
        begun = time.thread_time()
        moved = sweep(tile, *arguments)
        spent[-1] += time.thread_time() - begun
        return moved

    StencilTile._sweep = timed  # type: ignore[method-assign]
    found: dict[str, Any] = link(comm) if comm.size > 1 else {}
    found |= {"sweep": [], "call": []}
    for _ in range(REPEATS):
        begun = time.perf_counter()
        run = mg.sample(graph, **options)
        found["call"].append(time.perf_counter() - begun)
        found["sweep"].append(run.info.seconds / SWEEPS)
        spent.append(0.0)
    found["updates"] = [one / SWEEPS for one in spent[:-1]]
    Path(folder, f"{comm.rank}.json").write_text(json.dumps(found))


def measure(ranks: int) -> list[dict[str, Any]]:
    """Launch this number of ranks, and return what each of them measured."""
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "-m", "benchmarks.scaling", folder]
        environment = os.environ | {"NUMBA_NUM_THREADS": "1"}
        command = ["mpiexec", "-n", str(ranks), *program]
        subprocess.run(command, check=True, env=environment, timeout=LIMIT)
        return [json.loads(Path(folder, f"{k}.json").read_text()) for k in range(ranks)]


def main() -> None:
    """Measure, and write the table."""
    cores = len(os.sched_getaffinity(0))
    counts = [1 << k for k in range(cores.bit_length()) if 1 << k <= cores]
    report = Report(
        "scaling", "One lattice on 1 to all cores of a machine, 1e7 spins per rank", "as simulated"
    )
    alone, color, last = 0.0, 0.0, {}
    for ranks in counts:
        every = measure(ranks)
        seconds = statistics.median(every[0]["sweep"])
        updates = [statistics.median(one["updates"]) for one in every]
        if ranks == 1:
            alone, color = seconds, updates[0] / COLORS
        last = every[0]
        told = {
            "ranks": ranks,
            "sweep": every[0]["sweep"],
            "efficiency": alone / seconds,
            "updates of ranks": updates,
            "call": every[0]["call"],
            **{name: last[name] for name in ("latency", "bandwidth") if name in last},
        }
        print(json.dumps(told), flush=True)
        text = f"{alone / seconds:.3f}"
        if ranks > 1:
            text = f"{simulated(ranks, color, last['latency'], last['bandwidth']):.3f}"
        met = alone / seconds >= THRESHOLDS[ranks] if ranks in THRESHOLDS else None
        name = f"{ranks} ranks: efficiency" if ranks > 1 else "1 rank: efficiency"
        bound = f"{THRESHOLDS.get(ranks, '')}"
        report.add(name, f"{alone / seconds:.3f}", bound, met, text)
        report.add(f"{ranks} ranks: milliseconds per sweep", f"{1e3 * seconds:.2f}")
        report.add(
            f"{ranks} ranks: milliseconds of updates per sweep, fastest and slowest rank",
            f"{1e3 * min(updates):.2f} to {1e3 * max(updates):.2f}",
        )
    report.notes.append(
        f"Medians of {REPEATS} runs of {SWEEPS} sweeps on {cores} cores. Updates are processor "
        "time of a rank. The simulation uses the measured time of one rank, latency and "
        "bandwidth, and lets the time of a color vary by a tenth."
    )
    report.write()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        main()
    else:
        rank(sys.argv[1])
