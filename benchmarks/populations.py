"""Population annealing against parallel tempering: log Z of spin glasses with a known exact value.

    python -m benchmarks.populations

Both get about the same number of updates per glass, on one thread. A row has the error of log Z,
also in predicted standard errors, and the processor time.
"""

from __future__ import annotations

import time

import minigibbs as mg
from benchmarks.report import Report

GLASSES = 4  # per size
SQUARE, CUBE = (12, 2), (4, 3)  # sides and dimensions
POPULATION, POPULATIONS, CHAINS = 2_000, 4, 4


def measure(side: int, dimensions: int, seed: int) -> dict[str, tuple[float, float, float]]:
    """Return by method the error of log Z, the same in standard errors, and processor seconds."""
    graph = mg.models.spin_glass(side, dimensions=dimensions, couplings="signs", seed=seed)
    exact = mg.infer(graph, "600s", progress=False)
    assert exact.exact, "log Z must be known"
    annealing = mg.PopulationAnnealing(population=POPULATION)
    options = {"seed": seed, "threads": 1, "progress": False}
    begun = time.process_time()
    answer = mg.infer(graph, "600s", exact=False, sampler=annealing, chains=POPULATIONS, **options)
    population = answer.population
    found = {
        "population annealing": (answer.log_z, answer.log_z_error, time.process_time() - begun)
    }
    steps = (len(population.betas) - 1) * annealing.sweeps
    begun = time.process_time()
    levels = mg.Tempering().settled(graph)
    each = CHAINS * len(levels.levels) * (2 if levels.houdayer else 1)
    sweeps = POPULATIONS * POPULATION * steps // each
    run = mg.sample(graph, levels, sweeps=sweeps, chains=CHAINS, record=(), **options)
    spent = time.process_time() - begun
    found["tempering"] = (run.ladder.log_z, run.ladder.log_z_error, spent)
    return {
        name: (log_z - exact.log_z, (log_z - exact.log_z) / error, seconds)
        for name, (log_z, error, seconds) in found.items()
    }


def main() -> None:
    """Print and write the table."""
    report = Report("populations", "Population annealing")
    for side, dimensions in (SQUARE, CUBE):
        measure(side, dimensions, 0)  # compiles
        rows = [measure(side, dimensions, seed) for seed in range(1, GLASSES + 1)]
        for method in rows[0]:
            errors = ", ".join(f"{row[method][0]:+.4f}" for row in rows)
            worst = max(abs(row[method][1]) for row in rows)
            seconds = sum(row[method][2] for row in rows) / len(rows)
            report.add(
                f"+-1 glasses of {side}^{dimensions}, errors of log Z by {method}",
                f"{errors}; at most {worst:.1f} standard errors; {seconds:.1f} s",
                "5 standard errors",
                worst < 5.0,
            )
    report.write()


if __name__ == "__main__":
    main()
