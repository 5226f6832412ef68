"""Maximum cuts of graphs as in the G-set, beside the annealer of dwave-samplers in equal time.

    python -m benchmarks.max_cut

The graphs follow the rules of the generator rudy: toroidal grids with weights +1 and -1, and random
graphs with a given number of edges of weight 1. They are not the instances of the G-set, so that
their best known cuts do not apply.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

import minigibbs as mg
from benchmarks.ground_states import annealed
from benchmarks.report import Report

SECONDS = 5.0  # of the search
Edges = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


def toroidal(rows: int, columns: int, seed: int = 1) -> Edges:
    """Return the edges and weights, +1 or -1, of a toroidal grid."""
    place = np.arange(rows * columns).reshape(rows, columns)
    i = np.concatenate([place.ravel(), place.ravel()])
    j = np.concatenate([np.roll(place, -1, axis=axis).ravel() for axis in (0, 1)])
    return i, j, np.random.default_rng(seed).choice([-1.0, 1.0], len(i))


def sparse(vertices: int, edges: int, seed: int = 1) -> Edges:
    """Return different random edges of weight 1."""
    rng = np.random.default_rng(seed)
    pairs = np.sort(rng.integers(0, vertices, (2 * edges, 2)), axis=1)
    pairs = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)
    i, j = rng.permutation(pairs)[:edges].T
    return i, j, np.ones(edges)


GRAPHS = {
    "toroidal grid, 100 x 100": lambda: toroidal(100, 100),
    "toroidal grid, 100 x 200 (as G81)": lambda: toroidal(100, 200),
    "random, 5,000 vertices, 12,498 edges (as G55)": lambda: sparse(5000, 12_498),
    "random, 800 vertices, 19,176 edges (as G1)": lambda: sparse(800, 19_176),
}


def main() -> None:
    """Print and write the table."""
    report = Report("max_cut", "Maximum cuts", "dwave-samplers")
    for name, edges in GRAPHS.items():
        i, j, weight = edges()
        vertices = int(max(i.max(), j.max())) + 1
        graph = mg.FactorGraph([2] * vertices, [mg.Ising(i, j, -weight)])
        mg.maximize(graph, rounds=2, chains=1, progress=False)  # compiles
        begun = time.process_time()
        best = mg.maximize(graph, SECONDS, chains=1, seed=1, threads=1, progress=False)
        spent = time.process_time() - begun
        cut = (weight.sum() + best.log_potential) / 2.0
        other = annealed(graph, spent)
        beside = None if other is None else (weight.sum() + other * vertices) / 2.0
        report.add(
            name,
            f"{cut:,.0f} in {spent:.1f} s ({best.method}: {best.reason})",
            "" if beside is None else f"at least {beside:,.0f}",
            None if beside is None else cut >= beside - 1e-6,
            last="" if beside is None else f"{beside:,.0f}",
        )
    report.notes.append(
        "One search on one core, and the annealer in the same processor time, with the best of "
        "three numbers of sweeps, each with the whole time. The graphs follow the rules of rudy, "
        "but are not the instances of the G-set."
    )
    report.write()


if __name__ == "__main__":
    main()
