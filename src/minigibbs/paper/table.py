"""The paper's table: cost of an update, measured while one quantity grows and the others are fixed.

The family is a ring of n variables with D values each, and k parallel Potts factors of weight w
between neighbors. Then Delta = 2k, L = 2kw, Psi = nkw, and each can grow alone: Delta with k (and
decreasing w), Psi with n, L with w (and decreasing n). All rates are below 1, where our way of
drawing saves nothing over the paper's.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from minigibbs.graph.factors import Potts
from minigibbs.graph.graph import FactorGraph
from minigibbs.running.api import sample, time_updates
from minigibbs.samplers import (
    MGPMH,
    DoubleMinGibbs,
    Gibbs,
    MinGibbs,
    PoissonGibbs,
    PoissonMH,
    Sampler,
    TunaMH,
)
from minigibbs.system import files

QUANTITIES = {"Delta": "Δ", "D": "D", "L": "L", "Psi": "Ψ"}
SEED = 2018
STRETCH, QUICK_STRETCH = 0.05, 0.002  # seconds
_UPDATES = 2_000


@dataclass(frozen=True)
class Member:
    """A graph of the family, in terms of the paper's quantities."""

    Delta: int
    D: int
    L: float
    Psi: float

    def graph(self) -> FactorGraph:
        """Build the ring."""
        n, copies = round(2 * self.Psi / self.L), self.Delta // 2
        i = np.repeat(np.arange(n), copies)
        return FactorGraph(np.full(n, self.D), [Potts(i, (i + 1) % n, self.L / self.Delta)])


@dataclass(frozen=True)
class Family:
    """Graphs in which one quantity grows."""

    grows: str  # a key of QUANTITIES
    values: tuple[float, ...]
    fixed: Member  # all but the quantity that grows

    def members(self) -> list[Member]:
        """Return the graphs, from the smallest."""
        kind = int if self.grows in ("Delta", "D") else float
        return [
            Member(**{**vars(self.fixed), self.grows: kind(value)})  # type: ignore[arg-type]
            for value in self.values
        ]


Counts = tuple[float, float]  # draws and factor evaluations per update


@dataclass(frozen=True)
class Row:
    """An algorithm, and the claimed exponent of each quantity.

    `operations` converts the counters of a run to the operations that the claim counts.
    `families` replaces standard families in which another term would hide the growing one.
    """

    name: str
    claim: str
    sampler: Callable[[Member], Sampler]
    exponents: dict[str, float]
    operations: Callable[[Member, Counts], float]
    families: dict[str, Family] = field(default_factory=dict)


_BASE = Member(Delta=512, D=8, L=2.0, Psi=16.0)
STANDARD = {
    "Delta": Family("Delta", (128, 256, 512, 1024), _BASE),
    "D": Family("D", (8, 16, 32, 64), _BASE),
    "L": Family("L", (1.0, 2.0, 4.0, 8.0), _BASE),
    "Psi": Family("Psi", (4.0, 8.0, 16.0, 32.0), Member(Delta=512, D=8, L=2.0, Psi=8.0)),
}
# Families in which D * L^2 outweighs Delta and Psi^2: large domains, strong factors, a small ring.
_WIDE = Member(Delta=256, D=1024, L=4.0, Psi=16.0)
_PROPOSALS = {
    "D": Family("D", (256, 512, 1024, 2048), _WIDE),
    "L": Family("L", (2.0, 4.0, 8.0), Member(Delta=256, D=1024, L=4.0, Psi=16.0)),
}
# Family in which Delta outweighs D * L^2.
_DEGREES = {"Delta": Family("Delta", (256, 512, 1024, 2048), Member(512, 2, 1.0, 4.0))}
# Family in which Psi^2 outweighs D * L^2.
_TOTALS = {"Psi": Family("Psi", (16.0, 32.0, 64.0), Member(Delta=512, D=2, L=1.0, Psi=16.0))}
# Family in which theta is far above 1, so that the L^2 of the guarantee is visible.
_STRONG = {"L": Family("L", (16.0, 32.0, 64.0), Member(Delta=512, D=8, L=32.0, Psi=128.0))}


def _evaluations(member: Member, counts: Counts) -> float:
    return counts[1]


def _draws(member: Member, counts: Counts) -> float:
    return counts[0]


def _both(member: Member, counts: Counts) -> float:
    return counts[0] + counts[1]


def _per_move(member: Member, counts: Counts) -> float:
    """Return the draws of a proposal that differs, which is D - 1 of D."""
    return counts[0] * member.D / (member.D - 1)


def _mgpmh_as_stated(member: Member, counts: Counts) -> float:
    """Count every draw for every value, and all factors at each acceptance."""
    return member.D * counts[0] + member.Delta


def _double_min_as_stated(member: Member, counts: Counts) -> float:
    """Count first draws for every value; second draws are those beyond MGPMH's."""
    first = count(member.graph(), MGPMH(batch=member.L**2))[0]
    return member.D * first + counts[0] - first


ROWS = [
    Row(
        "Gibbs, textbook",
        "O(D Δ)",
        lambda m: Gibbs(textbook=True),
        {"Delta": 1, "D": 1, "L": 0, "Psi": 0},
        _evaluations,
    ),
    Row(
        "Gibbs, ours",
        "O(Δ) evaluations",
        lambda m: Gibbs(fields=False),
        {"Delta": 1, "D": 0, "L": 0, "Psi": 0},
        _evaluations,
    ),
    Row(
        "MIN-Gibbs, λ = Ψ²",
        "O(D Ψ²)",
        lambda m: MinGibbs(batch=m.Psi**2),
        {"Delta": 0, "D": 1, "L": 0, "Psi": 2},
        _draws,
    ),
    Row(
        "MGPMH, λ = L²",
        "O(D L² + Δ)",
        lambda m: MGPMH(batch=m.L**2),
        {"Delta": 1, "D": 1, "L": 2, "Psi": 0},
        _mgpmh_as_stated,
        _PROPOSALS | _DEGREES,
    ),
    Row(
        "MGPMH, as we run it",
        "O(L² + Δ)",
        lambda m: MGPMH(batch=m.L**2),
        {"Delta": 1, "D": 0, "Psi": 0},
        _both,
        _PROPOSALS | _DEGREES,
    ),
    Row(
        "DoubleMIN, λ₁ = L², λ₂ = Ψ²",
        "O(D L² + Ψ²)",
        lambda m: DoubleMinGibbs(batch=m.L**2, second_batch=m.Psi**2),
        {"Delta": 0, "D": 1, "L": 2, "Psi": 2},
        _double_min_as_stated,
        _PROPOSALS | _TOTALS,
    ),
    Row(
        "Poisson-MH, λ = L²",
        "O(L²)",
        lambda m: PoissonMH(batch=m.L**2),
        {"Delta": 0, "D": 0, "L": 2, "Psi": 0},
        _per_move,
        _STRONG,
    ),
    Row(
        "TunaMH, χ = 1",
        "O(L²)",
        lambda m: TunaMH(chi=1.0),
        {"Delta": 0, "D": 0, "L": 2, "Psi": 0},
        _per_move,
        _STRONG,
    ),
    Row(
        "Poisson-Gibbs, slowdown 1.5",
        "O(L²)",
        lambda m: PoissonGibbs(heavy=0, slowdown=1.5),
        {"Delta": 0, "D": 0, "L": 2, "Psi": 0},
        _both,
        _STRONG,
    ),
    Row(
        "Poisson-Gibbs, default",
        "nothing grows with Δ, D or Ψ",
        lambda m: PoissonGibbs(),
        {"Delta": 0, "D": 0, "Psi": 0},
        _both,
    ),
]


@dataclass(frozen=True)
class Cell:
    """Measurements of a row along one family."""

    row: Row
    family: Family
    operations: list[float]  # per update, one for each member
    seconds: list[float]  # per update; empty without time measurements

    @property
    def exponent(self) -> float:
        """Exponent of the growth of operations."""
        return fit(self.family.values, self.operations)

    @property
    def time_exponent(self) -> float | None:
        """Exponent of the growth of time."""
        return fit(self.family.values, self.seconds) if self.seconds else None

    @property
    def claimed(self) -> float:
        """Exponent of the claim."""
        return self.row.exponents[self.family.grows]


def fit(values: Sequence[float], measured: Sequence[float]) -> float:
    """Return the slope of a straight line through logarithms.

    >>> round(fit([1, 2, 4, 8], [3, 12, 48, 192]), 6)
    2.0
    """
    slope, _ = np.polyfit(np.log(values), np.log(measured), 1)
    return float(slope)


def count(graph: FactorGraph, sampler: Sampler) -> Counts:
    """Return draws and factor evaluations per update, from a run's counters."""
    info = sample(
        graph,
        sampler,
        updates=_UPDATES,
        warmup=0,
        chains=1,
        seed=SEED,
        record="marginals",
        progress=False,
    ).info
    return info.minibatch_draws / info.updates, info.factor_evaluations / info.updates


def cells() -> list[tuple[Row, Family]]:
    """Return all pairs of rows and families to measure."""
    return [
        (row, row.families.get(quantity, STANDARD[quantity]))
        for row in ROWS
        for quantity in QUANTITIES
        if quantity in row.exponents
    ]


def measure(row: Row, family: Family, stretch: float) -> Cell:
    """Run a row along a family; times are the best of five stretches of equal length."""
    operations, seconds = [], []
    for member in family.members():
        graph, sampler = member.graph(), row.sampler(member)
        operations.append(row.operations(member, count(graph, sampler)))
        if stretch > 0:
            seconds.append(time_updates(graph, sampler, stretch, time.thread_time))
    return Cell(row, family, operations, seconds)


def report(found: list[Cell]) -> str:
    """Return claimed, counted and timed exponents as a Markdown table."""
    lines = [
        "| algorithm | claim | grows | from, to | claimed | counted | timed |",
        "|---|---|---|---|---|---|---|",
    ]
    for cell in found:
        values = cell.family.values
        timed = "" if cell.time_exponent is None else f"{cell.time_exponent:.2f}"
        lines.append(
            f"| {cell.row.name} | {cell.row.claim} | {QUANTITIES[cell.family.grows]} | "
            f"{values[0]:g}, {values[-1]:g} | {cell.claimed:g} | {cell.exponent:.2f} | {timed} |"
        )
    return "\n".join(lines) + "\n"


def write(found: list[Cell], folder: Path) -> list[Path]:
    """Write the exponents as Markdown, and every measurement as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["algorithm", "grows", *QUANTITIES, "operations", "seconds"])
    for cell in found:
        for k, member in enumerate(cell.family.members()):
            quantities = [getattr(member, name) for name in QUANTITIES]
            seconds = f"{cell.seconds[k]:.4g}" if cell.seconds else ""
            grows = cell.family.grows
            row = [cell.row.name, grows, *quantities, f"{cell.operations[k]:.6g}", seconds]
            writer.writerow(row)
    written = []
    for name, content in (("table1.md", report(found)), ("table1.csv", text.getvalue())):
        files.write_text(folder / name, content)
        written.append(folder / name)
    return written
