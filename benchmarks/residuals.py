"""Residual energies of 3D +-1 glasses against sweeps and time, beside published ones.

    python -m benchmarks.residuals

One chain of `mg.maximize(graph, rounds=...)` per glass and number of rounds. A round is a sweep of
every temperature. The residual energy is that above the putative ground energy, per spin. Published
values are of adaptive tempering with cluster moves (Chowdhury et al. 2025) on glasses of 16^3.
"""

from __future__ import annotations

import time

import numpy as np

import minigibbs as mg
from benchmarks.data import DATA
from benchmarks.report import RESULTS, Report
from minigibbs.results import plots

SIDES = (8, 10, 16)
ROUNDS = (100, 300, 1_000, 3_000, 10_000)
PUBLISHED = {1_000: 0.0149, 10_000: 0.0014, 100_000: 0.00041}  # sweeps: residual energy, 16^3
Curve = list[tuple[int, float, float, float]]  # rounds, residual, its standard error, seconds


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


def picture(curves: dict[int, Curve]) -> None:
    """Draw residual energies against sweeps, with the published ones, and against time."""
    whole, (left, right) = plots.figure(2)
    for side, curve in curves.items():
        rounds, residual, error, seconds = zip(*curve, strict=True)
        for axes, across in ((left, rounds), (right, seconds)):
            axes.errorbar(across, residual, error, marker="o", label=f"minigibbs, {side}^3")
    left.plot(*zip(*PUBLISHED.items(), strict=True), "s--", color="0.5", label="published, 16^3")
    left.set(xlabel="sweeps of every temperature", ylabel="residual energy per spin")
    right.set(xlabel="seconds of processor time per glass")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=1e-4)
        axes.set_ylim(bottom=0.0)
    left.legend()
    plots.save(whole, RESULTS / "residuals.png")


def main() -> None:
    """Print and write the table and the picture."""
    report = Report("residuals", "Residual energies", "published")
    graph, _ = glasses(SIDES[0])[0]
    mg.maximize(graph, rounds=2, progress=False)  # compiles
    curves: dict[int, Curve] = {}
    for side in SIDES:
        for rounds in ROUNDS:
            found = measure(side, rounds)
            curves.setdefault(side, []).append((rounds, *found))
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
        "Ten glasses per size, one chain of two ladders each. A sweep is one of every temperature. "
        "Published: adaptive tempering with cluster moves (Chowdhury et al. 2025). Seconds are of "
        "processor time, with the search for temperatures. Of instances with residual 0 the "
        "putative ground energy was reached."
    )
    report.write()
    picture(curves)


if __name__ == "__main__":
    main()
