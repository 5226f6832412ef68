"""Models of the UAI-2014 MAR set: `mg.infer` in 20 s against reference marginals and log Z."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

import minigibbs as mg
from benchmarks.data import DATA, DISPUTED, _uai
from benchmarks.report import Report
from benchmarks.uai import models, reference
from minigibbs.formats import uai
from minigibbs.results import tables

SECONDS = float(os.environ.get("MINIGIBBS_SECONDS", "20"))
CLOSE = 1e-6  # of exact marginals; references have 6 digits or more
SPREAD = 5.0  # largest standard errors of sampled marginals


def main() -> None:
    report = Report("uai2014", f"Models of UAI-2014, {SECONDS:g} s each")
    mg.infer(mg.models.ising_lattice(12, 0.5, periodic=False), progress=False)  # compiles
    mg.infer(mg.models.ising_lattice(6, 0.5), 2, exact=False, progress=False)
    exact = 0
    for path in models():
        folder = path.parent.name
        if not folder.startswith("uai2014"):
            continue
        name = f"{folder}/{path.name.removesuffix('.gz').removesuffix('.uai')}"
        exact += measure(report, name, path)
        report.write()
    report.notes.append(
        f"{exact} answers are exact. `mg.infer(graph, {SECONDS:g})` on a shared machine with a "
        f"load average of {os.getloadavg()[2]:.0f}. Seconds are processor time of all threads, "
        "then time passed. The error is that of the largest marginal. Exact answers must be within "
        f"{CLOSE:g} of the reference, and sampled ones within {SPREAD:g} times their largest "
        "standard error, or warned. The published values of linkage_15 are refuted by weights of "
        "draws (table of answers)."
    )
    report.write()


def measure(report: Report, name: str, path: Path) -> bool:
    """Infer a model, compare its marginals, and return whether the answer is exact."""
    graph, truth = _uai(str(path.relative_to(DATA))), reference(path)
    begun, passed = time.process_time(), time.perf_counter()
    answer = mg.infer(graph, SECONDS, memory="10G", seed=1, progress=False)
    spent, passed = time.process_time() - begun, time.perf_counter() - passed
    rows = uai._full_rows(tables.rows(answer), graph.domains)
    error = max(float(np.abs(a - b).max()) for a, b in zip(rows, truth, strict=True))
    largest = float(answer.shares.standard_errors.max())
    close = CLOSE if answer.exact else SPREAD * largest
    warns = bool(answer.warnings)
    right, what = error <= close or (warns and not answer.exact), "error"
    if path.stem in DISPUTED:
        right, what = answer.exact or warns, "difference from refuted values"
    warned = ", warned" if warns else ""
    report.add(
        name,
        f"{answer.method}, {spent:.2f} s of processor time, {passed:.1f} s passed: "
        f"{what} {error:.1e}"
        + ("" if answer.exact else f", standard error {largest:.4f}")
        + warned,
        f"at most {close:.2g}",
        right,
    )
    return answer.exact
