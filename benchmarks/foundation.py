"""Packing, plain Gibbs against a hand-written loop, memory. First calls: `first_calls`."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

import numba
import numpy as np

import minigibbs as mg
from benchmarks.report import Report
from benchmarks.timing import Timed, race

PAIRS = 10_000_000


def main() -> None:
    report = Report("foundation", "Core: packing, plain Gibbs, memory")
    packing(report)
    gibbs(report)
    lattice(report)
    report.write()


def packing(report: Report) -> None:
    script = f"""
import time, numpy as np, minigibbs as mg
rng = np.random.default_rng(0)
n = {PAIRS // 100}
i = rng.integers(0, n - 1, {PAIRS}); j = rng.integers(i + 1, n); w = rng.random({PAIRS})
mg.FactorGraph([2, 2], [mg.Potts([0], [1], 1.0)]).packed  # compile
peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024
before, begun = peak(), time.perf_counter()
mg.FactorGraph(np.full(n, 3), [mg.Potts(i, j, w)]).packed
print(time.perf_counter() - begun, (peak() - before) / (i.nbytes + j.nbytes + w.nbytes))
"""
    seconds, ratio = map(float, _python(script).split())
    what = f"packing {PAIRS:,} Potts pairs"
    report.add(what, f"{seconds:.2f} s", "under 10 s", seconds < 10)
    report.add(
        f"{what}: peak memory over that of the input arrays", f"{ratio:.2f}x", "under 3x", ratio < 3
    )


@numba.njit(fastmath={"nsz", "arcp", "contract", "afn", "reassoc"}, error_model="numpy")
def hand_written(start, target, weight, x, states, updates, seed):
    """Run a loop hand-written for this one model: CSR, fused, NumPy's generator."""
    np.random.seed(seed)
    total = np.empty(states)
    for _ in range(updates):
        i = np.random.randint(len(x))
        total[:] = 0.0
        for k in range(start[i], start[i + 1]):
            total[x[target[k]]] += weight[k]
        top = total.max()
        mass = 0.0
        for u in range(states):
            mass += np.exp(total[u] - top)
            total[u] = mass
        mark = np.random.random() * mass
        value = 0
        while value < states - 1 and total[value] <= mark:
            value += 1
        x[i] = value


class HandWritten:
    """The same turns as `Timed`."""

    def __init__(self, graph: mg.FactorGraph, updates: int) -> None:
        rows = graph.packed.rows
        start = np.append(rows["start"], rows["end"][-1])
        state = np.zeros(len(graph), graph.state_type)
        self.arguments = (start, graph.packed.target, graph.packed.weight, state, 10)
        self.updates, self.best = updates, np.inf
        hand_written(*self.arguments, 20_000, 1)

    def turn(self) -> float:
        begun = time.perf_counter()
        hand_written(*self.arguments, self.updates, 2)
        per_update = (time.perf_counter() - begun) / self.updates
        self.best = min(self.best, per_update)
        return per_update


def gibbs(report: Report) -> None:
    graph = mg.models.potts_rbf()
    plain = Timed(graph, mg.Gibbs())
    rivals = {
        "plain": plain,
        "textbook": Timed(graph, mg.Gibbs(textbook=True)),
        "hand": HandWritten(graph, plain.updates),
    }
    best = race(rivals)
    report.add("plain Gibbs, the paper's Potts model", f"{best['plain']:.0f} ns/update")
    ratio = best["plain"] / best["hand"]
    report.add("  over a hand-written fused loop", f"{ratio:.2f}x", "at most 1.5x", ratio <= 1.5)
    ratio = best["textbook"] / best["plain"]
    report.add("  textbook form over it", f"{ratio:.1f}x", "at least 4x", ratio >= 4)


def lattice(report: Report) -> None:
    graph = mg.models.ising_lattice(1000, 0.4)
    mg.sample(graph, updates=1000, chains=1, record="marginals", progress=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = mg.sample(graph, sweeps=5, chains=1, threads=1, record="marginals", progress=False)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    per_update = 1e9 / run.info.updates_per_second
    report.add("Ising lattice of 1e6 variables, random scan", f"{per_update:.0f} ns/update")
    report.add("  memory grown in 5e6 updates after a first run", f"{grown:.1f} MiB")


def _python(script: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout
