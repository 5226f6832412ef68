"""Repeated launches on a GPU: prepared arguments compared with Numba's own launches.

Chromatic runs launch one kernel per color and sweep. `running/backends/device/launch.py` prepares
the arguments of such launches once, with private parts of numba-cuda. This program measures the
gain. Run it on a machine with a GPU: `python -m benchmarks.launches`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import minigibbs as mg
from minigibbs.running.backends.device import launch

SWEEPS = 4_000
REPEATS = 5


def models() -> dict[str, tuple[mg.FactorGraph, int]]:
    """Return graphs and numbers of chains, from dominant launches to dominant kernels."""
    small = mg.models.ising_lattice(side=10, beta=0.4)
    potts = mg.models.potts_lattice(side=10, states=5, beta=0.8)
    large = mg.models.ising_lattice(side=1_000, beta=0.4)
    return {
        "Ising 10 x 10, 1,024 chains": (small, 1_024),
        "Ising 10 x 10, 131,072 chains": (small, 131_072),
        "Potts 10 x 10, 1,024 chains": (potts, 1_024),
        "Potts 10 x 10, 131,072 chains": (potts, 131_072),
        "Ising 1,000 x 1,000, 1 chain": (large, 1),
        "Ising 1,000 x 1,000, 64 chains": (large, 64),
    }


@contextmanager
def plain_launches() -> Iterator[None]:
    """Let Numba make every launch."""
    prepared = launch._quick
    launch._quick = lambda *_: None
    try:
        yield
    finally:
        launch._quick = prepared


def seconds(graph: mg.FactorGraph, chains: int) -> float:
    """Return the median time of one run, without compilation."""
    times = []
    for repeat in range(REPEATS + 1):
        begun = time.perf_counter()
        mg.sample(
            graph,
            mg.Gibbs(),
            sweeps=SWEEPS,
            chains=chains,
            seed=repeat,
            scan="chromatic",
            record=(),
            backend="cuda",
            progress=False,
        )
        times.append(time.perf_counter() - begun)
    return statistics.median(times[1:])


def main() -> None:
    print(f"{'model':<34}{'prepared':>12}{'by Numba':>12}   ratio   (microseconds per sweep)")
    for name, (graph, chains) in models().items():
        ours = seconds(graph, chains)
        with plain_launches():
            numbas = seconds(graph, chains)
        each = [1e6 * value / SWEEPS for value in (ours, numbas)]
        print(f"{name:<34}{each[0]:>12.1f}{each[1]:>12.1f}{numbas / ours:>8.2f}")


if __name__ == "__main__":
    main()
