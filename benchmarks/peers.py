"""Other samplers on the same models, timed the same way; each is optional."""

from __future__ import annotations

import time

import numpy as np

import minigibbs as mg


def dwave(graph: mg.FactorGraph, zeros: bool = False, repeats: int = 3) -> float | None:
    """Nanoseconds per update of dwave-samplers' Gibbs at constant temperature."""
    try:
        import dimod
        from dwave.samplers import SimulatedAnnealingSampler
    except ImportError:
        return None
    (group,) = graph.factors
    kept = slice(None) if zeros else group.coupling != 0
    i, j = group.scope[kept].T
    model = dimod.BinaryQuadraticModel.from_numpy_vectors(
        np.zeros(len(graph)), (i, j, -group.coupling[kept]), 0.0, "SPIN"
    )
    sampler = SimulatedAnnealingSampler()

    def run(sweeps: int) -> None:
        sampler.sample(
            model,
            num_reads=1,
            num_sweeps=sweeps,
            beta_range=(1.0, 1.0),
            proposal_acceptance_criteria="Gibbs",
            randomize_order=True,
            seed=1,
        )

    return _slope(run, len(graph), repeats)


def openjij(graph: mg.FactorGraph, repeats: int = 3) -> float | None:
    """Nanoseconds per update of OpenJij's dense single spin flips at constant temperature."""
    try:
        import openjij as oj
    except ImportError:
        return None
    (group,) = graph.factors
    pairs = zip(group.scope.tolist(), group.coupling.tolist(), strict=True)
    couplings = {tuple(pair): -coupling for pair, coupling in pairs}
    model = oj.BinaryQuadraticModel({}, couplings, 0.0, "SPIN", sparse=False)

    def run(sweeps: int) -> None:
        oj.SASampler().sample(
            model, beta_min=1, beta_max=1, num_sweeps=sweeps, num_reads=1, sparse=False
        )

    return _slope(run, len(graph), repeats)


def _slope(run, variables: int, repeats: int) -> float:
    """The least time of the extra sweeps of a longer run: set-up cancels out."""
    short = max(20, int(1e5 / variables))
    best = np.inf
    for _ in range(repeats):
        times = []
        for sweeps in (short, 5 * short):
            begun = time.perf_counter()
            run(sweeps)
            times.append(time.perf_counter() - begun)
        best = min(best, (times[1] - times[0]) / (4 * short * variables))
    return best * 1e9
