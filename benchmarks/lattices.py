"""One chain of a lattice: stencils, stored as bits, against explicit pairs.

Run it with `python -m benchmarks lattices`. Times are processor times of one thread.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

import minigibbs as mg
from benchmarks.report import Report
from minigibbs.running.backends.lockstep import LockstepGroup

SWEEPS = 20
REPEATS = 3
SQUARE, CUBE = [(0, 1), (1, 0)], [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
CRITICAL = math.log(1.0 + math.sqrt(2.0)) / 2.0


def graph_of(shape: tuple[int, ...], offsets: Any, weights: Any, periodic: bool) -> mg.FactorGraph:
    """Return spins on a lattice."""
    stencil = mg.Stencil(shape, offsets, weights, periodic)
    return mg.FactorGraph(np.full(math.prod(shape), 2), [stencil])


def models() -> dict[str, mg.FactorGraph]:
    """Return lattices of about a million spins."""
    signs = np.random.default_rng(1).choice([-0.9, 0.9], (3, 96, 96, 128))
    return {
        "1,024 x 1,024, periodic": graph_of((1024, 1024), SQUARE, CRITICAL, True),
        "1,024 x 1,024, open": graph_of((1024, 1024), SQUARE, CRITICAL, False),
        "96 x 96 x 128, +-J": graph_of((96, 96, 128), CUBE, signs, True),
    }


def nanoseconds(graph: mg.FactorGraph) -> float:
    """Return the smallest processor time per update in the chain."""
    options: Any = {"chains": 1, "threads": 1, "record": (), "progress": False, "warmup": 0}
    mg.sample(graph, mg.Gibbs(), sweeps=1, scan="chromatic", seed=1, **options)
    spent = []
    advance = LockstepGroup.advance

    def timed(group: LockstepGroup, *arguments: Any) -> None:
        begun = time.thread_time()
        advance(group, *arguments)
        spent[-1] += time.thread_time() - begun

    LockstepGroup.advance = timed  # type: ignore[method-assign]
    try:
        for seed in range(REPEATS):
            spent.append(0.0)
            mg.sample(graph, mg.Gibbs(), sweeps=SWEEPS, scan="chromatic", seed=seed, **options)
    finally:
        LockstepGroup.advance = advance  # type: ignore[method-assign]
    return min(spent) / (SWEEPS * len(graph)) * 1e9


def until_first_sweep(graph: mg.FactorGraph) -> float:
    """Return processor seconds from the call to the first sweep."""
    seen: list[float] = []
    advance = LockstepGroup.advance

    def noted(group: LockstepGroup, *arguments: Any) -> None:
        seen.append(time.process_time())
        advance(group, *arguments)

    LockstepGroup.advance = noted  # type: ignore[method-assign]
    begun = time.process_time()
    try:
        mg.sample(graph, sweeps=1, warmup=0, chains=1, seed=1, record="energy", progress=False)
    finally:
        LockstepGroup.advance = advance  # type: ignore[method-assign]
    return seen[0] - begun


def main() -> None:
    """Measure, and write the table."""
    report = Report("lattices", "One chain of a lattice, as a stencil and as stored pairs")
    for name, graph in models().items():
        own, stored = nanoseconds(graph), nanoseconds(graph.stored())
        report.add(f"{name}: ns per update, stencil", f"{own:.2f}")
        report.add(f"{name}: ns per update, stored pairs", f"{stored:.2f}")
    large = mg.models.ising_lattice(4096, CRITICAL)
    first, second = until_first_sweep(large), until_first_sweep(large)
    what = "4,096 x 4,096, stencil: processor seconds from call to first sweep"
    report.add(what, f"{first:.2f}", "0.5", first <= 0.5)
    report.add(f"{what}, second call", f"{second:.2f}", "0.3", second <= 0.3)
    report.notes.append("Measured with one thread while other programs used the same two cores.")
    report.write()


if __name__ == "__main__":
    main()
