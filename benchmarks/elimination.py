"""Exact marginals of small grids: `mg.infer` compared with pgmpy's variable elimination."""

from __future__ import annotations

import importlib.metadata
import math
import time

import numpy as np

import minigibbs as mg
from benchmarks.report import Report

REPEATS = 5


def main() -> None:
    from pgmpy.inference import VariableElimination

    version = importlib.metadata.version("pgmpy")
    report = Report("elimination", "Exact marginals, beside pgmpy")
    for side in (4, 6, 8):
        graph = mg.models.ising_lattice(side, beta=0.4, periodic=False)
        graph = graph.condition({0: 1})
        named = mg.to_pgmpy(graph)
        names = [node for node in named.nodes() if node != "x0"]
        timings = [timed(lambda: VariableElimination(named), names) for _ in range(REPEATS)]  # noqa: B023
        theirs, seconds = timings[0][0], min(spent for _, spent in timings)
        answer = mg.infer(graph, exact=True)  # compiles, if necessary
        ours = math.inf
        for _ in range(REPEATS):
            fresh = mg.FactorGraph(graph.domains, graph.factors, evidence=graph.evidence)
            begun = time.process_time()
            answer = mg.infer(fresh, exact=True)
            ours = min(ours, time.process_time() - begun)
        known = [answer.marginal(int(name[1:])).probability for name in names]
        worst = float(np.abs(np.array(theirs) - np.array(known)).max())
        what = f"{side} x {side} spins: all marginals"
        report.add(what, f"{1e3 * ours:.3g} ms")
        report.add("  pgmpy, a query each", f"{1e3 * seconds:.3g} ms ({seconds / ours:.3g}x)")
        report.add("  largest difference", f"{worst:.1e}", "at most 1e-9", worst <= 1e-9)
    report.notes.append(
        f"pgmpy {version}, VariableElimination, its default order. Least processor times of "
        f"{REPEATS} calls on a shared machine; every call begins with a new graph, without a plan."
    )
    report.write()


def timed(engine, names) -> tuple[list[np.ndarray], float]:
    begun = time.process_time()
    made = engine()
    found = [made.query([name], show_progress=False).values for name in names]  # up to a factor
    seconds = time.process_time() - begun
    return [values / values.sum() for values in found], seconds
