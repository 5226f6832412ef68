"""Competition models with known marginals: the error, the error that the run promises, warnings."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import minigibbs as mg
from benchmarks.data import DATA, _uai
from benchmarks.report import Report
from minigibbs import diagnostics, marginals
from minigibbs.formats import uai

SECONDS = 8.0  # of sampling, for each model
STUCK = ("grid4x4", "chimera128", "DBN_", "Grids_")  # plain Gibbs does not mix on them
PROMISED = 5.0  # standard errors: a model has thousands of values, and four chains guess them


@dataclass(frozen=True)
class Outcome:
    error: float  # the largest of a marginal
    excess: float  # the largest error in standard errors
    promised: float  # the largest standard error, as in the summary
    rhat: float
    warned: bool


def main() -> None:
    report = Report("uai", "Competition models against their reference marginals")
    for path in models():
        graph = _uai(str(path.relative_to(DATA)))
        sweeps = affordable(graph)
        begun = time.perf_counter()
        run = mg.sample(
            graph, sweeps=sweeps, warmup=sweeps * free(graph) // 10, seed=1, progress=False
        )
        seconds = time.perf_counter() - begun
        found = outcome(run, graph, reference(path))
        stuck = path.name.startswith(STUCK)
        report.add(
            path.name.removesuffix(".gz").removesuffix(".uai"),
            f"n = {free(graph):,}, D = {graph.stats.max_domain}, {sweeps:,} sweeps, "
            f"{seconds:.1f} s: error {found.error:.4f}, standard error {found.promised:.4f} "
            f"(at most {found.excess:.1f} standard errors), R-hat {found.rhat:.3f}, "
            f"{'warned' if found.warned else 'not warned'}",
            "a warning" if stuck else f"within {PROMISED:g} standard errors",
            found.warned if stuck else found.excess <= PROMISED,
        )
    if not report.rows:
        report.notes.append("No folder of real models was found.")
    report.write()


def models() -> list[Path]:
    """Every model file with marginals beside it."""
    known = sorted(DATA.glob("*/*.uai.MAR"), key=lambda path: path.name.lower())
    plain = [path.with_suffix("") for path in known]
    return [path if path.exists() else path.with_name(path.name + ".gz") for path in plain]


def reference(path: Path) -> list[np.ndarray]:
    return uai.read_marginals(path.with_name(path.name.removesuffix(".gz") + ".MAR"))


def free(graph: mg.FactorGraph) -> int:
    return graph.stats.variables


def affordable(graph: mg.FactorGraph) -> int:
    """Sweeps of four chains that take about `SECONDS`, at least 1,000, at most 100,000."""
    begun = mg.sample(graph, sweeps=50, seed=0, progress=False).info
    speed = begun.updates_per_second
    return int(np.clip(SECONDS * speed / 4 / max(free(graph), 1), 1_000, 100_000))


def outcome(run: mg.Run, graph: mg.FactorGraph, truth: list[np.ndarray]) -> Outcome:
    """How far the marginals are off, in numbers and in standard errors; pruned states count 0."""
    flat = diagnostics.standard_errors(run.counts, run.clock, graph.sizes)
    rows = uai._full_rows(marginals.rows(run), graph.domains)
    error = np.concatenate([np.abs(a - b) for a, b in zip(rows, truth, strict=True)])
    ends = np.cumsum(graph.sizes)[:-1]
    promised = np.concatenate(uai._full_rows(np.split(flat, ends), graph.domains))
    summary = run.summary()
    rhats = [r for r in (summary.energy_rhat, summary.value_rhat) if r is not None and r == r]
    return Outcome(
        error=float(error.max()),
        excess=float((error[promised > 0] / promised[promised > 0]).max()),
        promised=float(promised.max()),
        rhat=max(rhats),
        warned=any("disagree" in warning for warning in summary.warnings),
    )
