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
    """Time per update of the extra sweeps of a longer run: set-up cancels out."""
    extra = int(2e6 / variables)
    best = {}
    for _ in range(repeats):
        for sweeps in (10, 10 + extra):
            begun = time.perf_counter()
            run(sweeps)
            best[sweeps] = min(best.get(sweeps, np.inf), time.perf_counter() - begun)
    return (best[10 + extra] - best[10]) / (extra * variables) * 1e9
