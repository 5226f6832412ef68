"""Temperature ladders of spin glasses: updates per second, exchanges and energies included.

    python -m benchmarks.ladders [cuda]

Without a GPU one core of the CPU runs 64 ladders. Times are those of `mg.sample` as called, after a
first call that compiles. An update is one of one spin at one temperature.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import minigibbs as mg

# side, temperatures, ladders, sweeps
CARD = ((16, 73, 256, 400), (8, 31, 1024, 2000), (10, 40, 32, 4000))
CORE = ((8, 31, 64, 100), (10, 40, 64, 50))


def glass(side: int, normal: bool = False, seed: int = 1) -> mg.FactorGraph:
    """A spin glass on a cubic torus, with couplings +-1 or normal ones."""
    rng, site = np.random.default_rng(seed), np.arange(side**3).reshape(side, side, side)
    first = np.tile(site.ravel(), 3)
    second = np.concatenate([np.roll(site, -1, axis).ravel() for axis in range(3)])
    size = len(first)
    coupling = rng.normal(0, 1, size) if normal else rng.choice([-1.0, 1.0], size)
    return mg.FactorGraph([2] * side**3, [mg.Ising(first, second, coupling)])


def rate(graph: mg.FactorGraph, temperatures: int, chains: int, sweeps: int, **options: Any) -> str:
    """One row: updates per second of the chain, and as called."""
    houdayer = options.pop("houdayer")
    levels = tuple(np.linspace(0.0, 1.0, temperatures) ** 1.0)
    sampler = mg.Tempering(levels=levels, houdayer=houdayer)
    for count in (4, sweeps):
        begun = time.perf_counter()
        run = mg.sample(
            graph, sampler, chains=chains, sweeps=count, seed=1, progress=False, **options
        )
        seconds = time.perf_counter() - begun
    updates = len(graph) * temperatures * (1 + houdayer) * chains * sweeps
    trips = run.ladder.round_trips if run.ladder else 0
    return f"{updates / run.info.seconds:.3g} | {updates / seconds:.3g} | {trips}"


def main() -> None:
    """Print the table."""
    card = sys.argv[1:] == ["cuda"]
    options: dict[str, Any] = {"backend": "cuda"} if card else {"threads": 1}
    print(
        "| side | temperatures | ladders | couplings | clusters | updates/s | as called | trips |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for side, temperatures, chains, sweeps in CARD if card else CORE:
        for normal in (False, True):
            for houdayer in (False, True):
                found = rate(
                    glass(side, normal), temperatures, chains, sweeps, houdayer=houdayer, **options
                )
                kind = "normal" if normal else "+-1"
                name = "Houdayer" if houdayer else "-"
                print(
                    f"| {side}^3 | {temperatures} | {chains} | {kind} | {name} | {found} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
