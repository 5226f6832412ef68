"""Residual energies of 3D +-1 glasses against sweeps and time, beside published ones.

    python -m benchmarks.residuals

One chain of `mg.maximize(graph, rounds=...)` per glass and number of rounds. A chain has 8 or 16
temperature ladders. A round is a sweep of every temperature of all of them. It counts as one sweep.
The residual energy is that above the putative ground energy, per spin. Published values are of
adaptive tempering with cluster moves (Chowdhury et al. 2025) on glasses of 16^3.
"""

from __future__ import annotations

import time

import numpy as np

import minigibbs as mg
from benchmarks.data import DATA
from benchmarks.pictures import PUBLISHED
from benchmarks.report import Report

SIDES = (8, 10, 12, 16)
ROUNDS = (100, 300, 1_000, 3_000, 10_000)


def glasses(side: int) -> list[tuple[mg.FactorGraph, float]]:
    """Return the glasses of a size with their ground energies."""
    found = []
    for path in sorted((DATA / "spin_glass_3d").glob(f"L{side:02d}_*.npz")):
        data = np.load(path)
        pairs = mg.Ising(data["i"], data["j"], data["J"].astype(np.float64))
        found.append((mg.FactorGraph([2] * int(data["n"]), [pairs]), float(data["ground"])))
    return found


def measure(side: int, rounds: int) -> tuple[float, float, float]:
    """Return the mean residual energy per spin, its standard error, and seconds per glass."""
    residuals, begun = [], time.process_time()
    for graph, ground in glasses(side):
        best = mg.maximize(graph, rounds=rounds, chains=1, seed=1, threads=1, progress=False)
        residuals.append((best.energy - ground) / len(graph))
    seconds = (time.process_time() - begun) / len(residuals)
    error = float(np.std(residuals, ddof=1)) / len(residuals) ** 0.5
    return float(np.mean(residuals)), error, seconds


def main() -> None:
    """Print and write the table."""
    report = Report("residuals", "Residual energies", "published")
    for side in SIDES:
        mg.maximize(glasses(side)[0][0], rounds=2, progress=False)  # compiles
        for rounds in ROUNDS:
            found = measure(side, rounds)
            known = PUBLISHED.get(rounds) if side == 16 else None
            bar = PUBLISHED.get(10 * rounds) if side == 16 else None
            report.add(
                f"{side}^3, {rounds:,} sweeps",
                f"{found[0]:.5f} +- {found[1]:.5f} per spin, {found[2]:.2f} s per glass",
                "" if bar is None else f"{bar}, published for ten times the sweeps",
                None if bar is None else found[0] <= bar,
                last="" if known is None else f"{known}",
            )
    report.notes.append(
        "Ten glasses per size, one chain of `mg.maximize` each. A chain has 16 ladders of 32 "
        "temperatures, or 8 of 64 where exchanges need more. One sweep updates every spin once at "
        "every temperature of all ladders of the chain. It includes exchanges, and cluster moves "
        "between 4 or 8 pairs of ladders at every temperature. The first third of the sweeps "
        "anneals. Published: adaptive tempering with cluster moves (Chowdhury et al. 2025); its "
        "number of replicas per sweep may differ. Seconds are of processor time, with the search "
        "for temperatures."
    )
    report.write()


if __name__ == "__main__":
    main()
