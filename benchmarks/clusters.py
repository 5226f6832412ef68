"""Cluster and block updates near criticality: effective samples of m^2 per second."""

from __future__ import annotations

import math
import time

import numpy as np

import minigibbs as mg
from benchmarks.report import Report
from minigibbs.results.diagnostics import ess
from minigibbs.running.api import one_chain

CRITICAL = math.log(1.0 + math.sqrt(2.0)) / 2.0  # of the square lattice
LONG_RANGE = 0.23  # of 1/r^1.5: from this coupling on the system is magnetized at this length
TURNS = 40


class Series:
    """A chain whose squared magnetization is recorded at regular intervals."""

    def __init__(self, graph, sampler, start, sweeps: int) -> None:
        self.group = one_chain(graph, sampler, start, np.array([1, 2, 3, 4], dtype=np.uint64))
        self.updates, self.seconds = sweeps * len(graph), 0.0
        self.squares: list[float] = []
        self.group.compile()

    def turn(self, seconds: float) -> None:
        """Continue for a number of seconds of processor time."""
        begun = time.thread_time()
        while time.thread_time() - begun < seconds:
            self.group.advance(self.updates, False)
            self.squares.append(float((2.0 * self.group.chain.x.mean() - 1.0) ** 2))
        self.seconds += time.thread_time() - begun

    @property
    def rate(self) -> float:
        """Return effective samples per second."""
        return float(ess(np.array(self.squares)[None])) / self.seconds


def main() -> None:
    report = Report("clusters", "Clusters near criticality")
    lattice = mg.models.ising_lattice(128, CRITICAL)
    compare(report, "128 x 128 Ising at the critical point", lattice, (10, 1), 240.0)
    chain = mg.models.long_range_ising(100_000, 1.5, LONG_RANGE)
    compare(report, "1/r^1.5 chain of 1e5 spins, beta = 0.23", chain, (5, 1), 160.0)
    report.notes.append(
        "Effective samples of the magnetization squared per second of processor time; both chains "
        "start from the same state, 200 sweeps of Swendsen-Wang from a random one, and take turns. "
        "Of a series that is hardly longer than its correlation the number is too large: the "
        "default's may be, and the ratio is then too small."
    )
    report.write()


def compare(report: Report, name: str, graph, every: tuple[int, int], seconds: float) -> None:
    first = one_chain(graph, mg.SwendsenWang())
    first.advance(200 * first.unit, False)
    start = first.chain.x.copy()
    default = Series(graph, mg.PoissonGibbs(), start, every[0])
    clusters = Series(graph, mg.SwendsenWang(), start, every[1])
    for _ in range(TURNS):
        default.turn(seconds / TURNS)
        clusters.turn(0.2 * seconds / TURNS)
    report.add(f"{name}: the default sampler", rate(default))
    report.add("  mg.SwendsenWang()", rate(clusters))
    ratio = clusters.rate / default.rate
    report.add("  ratio", f"{ratio:,.0f}", "at least 20", ratio >= 20)


def rate(series: Series) -> str:
    """Format effective samples and sweeps per second."""
    sweeps = len(series.squares) * series.updates / len(series.group.chain.x) / series.seconds
    total = series.rate * series.seconds
    return (
        f"{series.rate:.3g} a second ({total:,.0f} in {series.seconds:.0f} s, {sweeps:,.0f} sweeps "
        "a second)"
    )
