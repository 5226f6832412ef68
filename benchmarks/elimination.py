"""Exact marginals of small grids: `mg.infer` compared with pgmpy's variable elimination."""

from __future__ import annotations

import importlib.metadata
import time

import numpy as np

import minigibbs as mg
from benchmarks.report import Report


def main() -> None:
    from pgmpy.inference import VariableElimination

    version = importlib.metadata.version("pgmpy")
    report = Report("elimination", "Exact marginals, beside pgmpy")
    for side in (4, 6, 8):
        graph = mg.models.ising_lattice(side, beta=0.4, periodic=False)
        graph = graph.condition({0: 1})
        named = mg.to_pgmpy(graph)
        names = [node for node in named.nodes() if node != "x0"]
        theirs, seconds = timed(lambda: VariableElimination(named), names)  # noqa: B023
        mg.infer(graph, exact=True)  # compiles, if necessary
        begun = time.perf_counter()
        answer = mg.infer(graph, exact=True)
        ours = time.perf_counter() - begun
        known = [answer.marginal(int(name[1:])).probability for name in names]
        worst = float(np.abs(np.array(theirs) - np.array(known)).max())
        what = f"{side} x {side} spins: all marginals"
        report.add(what, f"{1e3 * ours:.3g} ms")
        report.add("  pgmpy, a query each", f"{1e3 * seconds:.3g} ms ({seconds / ours:.3g}x)")
        report.add("  largest difference", f"{worst:.1e}", "at most 1e-9", worst <= 1e-9)
    report.notes.append(
        f"pgmpy {version}, VariableElimination, its default order, one core. Times are of a shared "
        "machine, on which only differences of a factor of several are meaningful."
    )
    report.write()


def timed(engine, names) -> tuple[list[np.ndarray], float]:
    begun = time.perf_counter()
    made = engine()
    found = [made.query([name], show_progress=False).values for name in names]  # up to a factor
    seconds = time.perf_counter() - begun
    return [values / values.sum() for values in found], seconds
