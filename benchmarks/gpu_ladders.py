"""A thousand ladders at once on a GPU: updates of all levels a second."""

from __future__ import annotations

import time

import numpy as np

import minigibbs as mg
from benchmarks.report import Report


def main() -> None:
    report = Report("gpu_ladders", "Ladders on a GPU")
    levels = tuple(np.linspace(0.0, 1.0, 16).tolist())
    for name, graph in (
        ("32 x 32 spin glass", glass(32)),
        ("32 x 32 Potts of 3 values", mg.models.potts_lattice(32, 3, 1.0)),
    ):
        sampler = mg.Tempering(levels=levels, houdayer=False)
        for chains in (1_000, 16_000):
            options = {"chains": chains, "seed": 1, "backend": "cuda", "progress": False}
            mg.sample(graph, sampler, sweeps=2, **options)
            begun = time.perf_counter()
            run = mg.sample(graph, sampler, sweeps=20, **options)
            whole = time.perf_counter() - begun
            made = chains * 20 * len(levels) * len(graph)
            rate = f"{made / run.info.seconds:.2e} updates/s ({whole:.1f} s in all)"
            trips = f"{run.ladder.round_trips:,} round trips"
            report.add(f"{chains:,} ladders of 16 levels, {name}", f"{rate}, {trips}")
    report.write()


def glass(side: int) -> mg.FactorGraph:
    """A square lattice with couplings of either sign."""
    site = np.arange(side * side).reshape(side, side)
    i = np.concatenate([site[:, :-1].ravel(), site[:-1].ravel()])
    j = np.concatenate([site[:, 1:].ravel(), site[1:].ravel()])
    weight = np.random.default_rng(1).normal(0.0, 1.0, len(i))
    return mg.FactorGraph(np.full(side * side, 2), [mg.Ising(i, j, weight)])
