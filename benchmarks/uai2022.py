"""Models of the UAI-2022 competition: `mg.infer` compared with the competition's solvers.

Scores are from the final scoreboard at 20 s; 100 is best.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from pathlib import Path

import numpy as np

import minigibbs as mg
from benchmarks.data import DATA, DISPUTED
from benchmarks.exact import load
from benchmarks.report import Report
from minigibbs.formats import uai

SECONDS = float(os.environ.get("MINIGIBBS_SECONDS", "60"))  # more on a loaded machine
SAMPLED = {"rus": 60.0}  # seconds of families that are too wide for exact answers
MEMORY = "12G"
CLOSE = 0.05  # of log10 Z
CLOSE_MARGINALS = 0.02
LAST_DIGIT = {"BN": 0.05, "protein": 0.05}  # half of the last published digit
SOLVERS = {
    "MAR": {"lbp": "lbp-mar", "uai14": "uai14-mar", "ibia": "ibia-mar"},
    "PR": {
        "lbp": "lbp-pr",
        "uai14": "uai14-pr",
        "ibia": "ibia-pr",
        "AbstractionSampling": "AbstractionSampling",
    },
}


def main() -> None:
    report = Report(
        "uai2022", f"Models of UAI-2022, {SECONDS:g} s each", column="competition at 20 s"
    )
    mg.infer(mg.models.ising_lattice(12, 0.5, periodic=False), progress=False)  # compiles
    mg.infer(load("uai2014/Grids_11"), progress=False)
    mg.infer(mg.models.ising_lattice(6, 0.5), 2, exact=False, progress=False)
    for entry in json.loads((DATA / "uai2022" / "index.json").read_text()):
        measure(report, entry)
        report.write()
    report.notes.append(
        f"`mg.infer(graph, {SECONDS:g}, memory={MEMORY!r})` on a shared machine with a load "
        f"average of {os.getloadavg()[2]:.0f}, and 60 s for rus models. Seconds are processor "
        f"time of all threads, then time passed. Compared with: log10 Z within {CLOSE} of the "
        f"published value, and of half its last digit; marginals within {CLOSE_MARGINALS} of exact "
        "ones where these are known. The published value must be between proven bounds where log Z "
        "is not exact. That of pedigree51, -77.27, is refuted by weights of draws (table of "
        "answers): its log10 Z is -73.873. An answer there must be exact or warn."
    )
    report.write()


def measure(report: Report, entry: dict) -> None:
    name = entry["name"]
    graph, limit = load(f"uai2022/{name}"), SAMPLED.get(entry["family"], SECONDS)
    begun, started = time.process_time(), time.perf_counter()
    answer = mg.infer(graph, limit, memory=MEMORY, seed=1, progress=False)
    seconds, wall = time.process_time() - begun, time.perf_counter() - started
    scores = "; ".join(
        f"{task}: " + ", ".join(f"{short} {found[key]:g}" for short, key in solvers.items())
        for task, solvers in SOLVERS.items()
        if task in entry["scores"]
        for found in [entry["scores"][task]["20sec"]]
    )
    how = f"{answer.method}, {seconds:.1f} s of processor time, {wall:.0f} s passed"
    report.add(name, how + (", warned" if answer.warnings else ""), last=scores)
    if answer.log_z is not None:
        ten = answer.log_z / math.log(10)
        apart = abs(ten - entry["published_log10Z"])
        bar = CLOSE + LAST_DIGIT.get(entry["family"], 0.005)
        published = f"published {entry['published_log10Z']:g}"
        right = apart <= bar
        if name in DISPUTED.values():
            right = answer.exact or bool(answer.warnings)
        report.add("  log10 Z", f"{ten:.3f}", f"{published}, within {bar:g}", right)
        if not answer.exact:
            low, high = (bound / math.log(10) for bound in answer.bounds)
            digit = bar - CLOSE
            within = low - digit <= entry["published_log10Z"] <= high + digit
            report.add("  bounds of log10 Z", f"{low:.1f} to {high:.1f}", published, within)
    truth = DATA / "uai2022" / f"{name}.uai.MAR"
    if truth.exists():
        with tempfile.TemporaryDirectory() as folder:  # the file has the pruned values
            path = Path(folder) / "answer.MAR"
            uai.write_marginals(answer, path)
            found = uai.read_marginals(path)
        error = max(
            float(np.abs(own - mine).max())
            for own, mine in zip(uai.read_marginals(truth), found, strict=True)
        )
        bar = f"at most {CLOSE_MARGINALS}"
        report.add("  largest error of a marginal", f"{error:.2g}", bar, error <= CLOSE_MARGINALS)
