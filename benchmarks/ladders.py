"""Temperature ladders of spin glasses: updates per second, exchanges and energies included.

Here one core of the CPU runs 64 ladders; `gpu_ladders` measures a GPU. An update changes one
variable at one temperature. A first call compiles and is not counted.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import minigibbs as mg
from benchmarks import peers
from benchmarks.report import Report

CORE = ((8, 31, 64, 1000), (10, 40, 64, 500))  # side, temperatures, ladders, sweeps
POTTS = (32, 3, 16, 64, 30)  # side, values, temperatures, ladders, sweeps


def glass(side: int, normal: bool = False, seed: int = 1) -> mg.FactorGraph:
    """Return a spin glass on a cubic torus, with couplings +-1 or normal ones."""
    return mg.models.spin_glass(side, couplings="normal" if normal else "signs", seed=seed)


def main() -> None:
    report = Report("ladders", "Temperature ladders on one core")
    report.notes += [NOTE, CORE_NOTE]
    add_glasses(report, CORE, 1.5, threads=1)
    side, values, temperatures, ladders, sweeps = POTTS
    potts = mg.models.potts_lattice(side, values, 1.0)
    name = (
        f"{side} x {side} Potts of {values} values, {temperatures} temperatures, {ladders} ladders"
    )
    for houdayer in (False, True):
        own = name + (", Houdayer clusters" if houdayer else "")
        add(report, own, potts, temperatures, houdayer, None, sweeps, chains=ladders, threads=1)
    add_peers(report)
    one = mg.Tempering(mg.PoissonGibbs(), tuple(np.linspace(0.0, 1.0, temperatures).tolist()))
    setting = {"chains": ladders, "threads": 1, "sampler": one}
    add(report, name + ", level by level", potts, temperatures, False, None, 5, **setting)
    report.write()


def add_peers(report: Report) -> None:
    """Add the time per update of annealers at constant temperature, without any exchanges."""
    for side, *_ in CORE:
        graph = glass(side, normal=True)
        found = {
            "dwave-samplers": peers.dwave(graph),
            "OpenJij": peers.openjij(graph, sparse=True),
        }
        for name, nanoseconds in found.items():
            if nanoseconds is not None:
                own = f"{nanoseconds:.3g} ns per update, no exchanges"
                report.add(f"{side}^3, normal, {name}, one temperature", own)


CORE_NOTE = (
    "On a CPU, rates are per second of processor time, because the machine was shared. Level by "
    "level: `mg.Tempering(mg.PoissonGibbs(), ...)`, the default of such models before 0.3. "
    "dwave-samplers and OpenJij have no parallel tempering: their annealers ran at one temperature."
)

NOTE = (
    "Updates per second of `mg.sample(graph, mg.Tempering(levels=...))`, exchanges, energies and "
    "records included, in the chain and as called: with preparation and the result. With Houdayer "
    "clusters a chain has two ladders, whose updates are both counted."
)


def add_glasses(
    report: Report, sizes: tuple[tuple[int, ...], ...], most: float | None = None, **options: Any
) -> None:
    """Add a row per size, kind of coupling and cluster moves; `most` is in ns per update."""
    for side, temperatures, chains, sweeps in sizes:
        for normal in (False, True):
            for houdayer in (False, True):
                couplings = "normal" if normal else "+-1"
                clusters = ", Houdayer clusters" if houdayer else ""
                name = f"{side}^3, {couplings}, {temperatures} temperatures, {chains:,} ladders"
                graph = glass(side, normal)
                setting = {"chains": chains, **options}
                add(report, name + clusters, graph, temperatures, houdayer, most, sweeps, **setting)


def add(
    report: Report,
    name: str,
    graph: mg.FactorGraph,
    temperatures: int,
    houdayer: bool,
    most: float | None,
    sweeps: int,
    sampler: mg.Tempering | None = None,
    **options: Any,
) -> None:
    """Add one row: updates per second in the chain and as called, and round trips."""
    levels = tuple(np.linspace(0.0, 1.0, temperatures).tolist())
    sampler = sampler or mg.Tempering(levels=levels, houdayer=houdayer)
    clock = time.perf_counter if "backend" in options else time.process_time
    for count in (4, sweeps):
        begun = clock()
        run = mg.sample(graph, sampler, sweeps=count, seed=1, progress=False, **options)
        seconds = clock() - begun
    made = (run.info.updates + run.info.warmup) * temperatures * (1 + houdayer)
    nanoseconds = seconds / made * 1e9
    trips = run.ladder.round_trips if run.ladder else 0
    measured = f"as called {made / seconds:.3g}"
    if "backend" in options:
        measured = f"{made / run.info.seconds:.3g} updates/s, {measured}"
    else:
        measured += f" updates/s ({nanoseconds:.3g} ns per update)"
    threshold = "" if most is None else f"{most:g} ns per update"
    met = None if most is None else nanoseconds <= most
    report.add(name, f"{measured}, {trips:,} round trips", threshold, met)
