"""Repair of tables with errors, with and without labels, compared with Raha and Baran.

REPAIR_PEERS names a Python that has raha 1.26, which needs pandas 2. Without it, the peers' lines
are omitted, and every 50th row is labeled instead of the rows that Raha chooses.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import minigibbs as mg
from benchmarks.data import DATA
from benchmarks.report import Report

LABELS = 20
SEED = 0
KEYS = {"flights": "flight"}  # columns whose groups have one truth, for plain majorities


def peers(folder: Path) -> dict | None:
    """Return what `repair_peers` measured; None if raha is not installed."""
    python = os.environ.get("REPAIR_PEERS", sys.executable)
    script = Path(__file__).with_name("repair_peers.py")
    paths = {**os.environ, "PATH": f"{Path(python).parent}:{os.environ['PATH']}", "PYTHONPATH": ""}
    done = subprocess.run(
        [python, str(script), str(folder), str(LABELS), str(SEED)],
        capture_output=True,
        text=True,
        check=False,
        env=paths,
    )
    if done.returncode:
        print(done.stderr[-400:])
        return None
    return json.loads(done.stdout.splitlines()[-1])


def ours(dirty, clean, labels) -> tuple[mg.RepairedTable, float]:
    begun = time.process_time()
    found = mg.repair(dirty, labels=labels, seed=SEED, progress=False)
    return found, time.process_time() - begun


def majority(dirty, clean, key: str) -> tuple[float, float, float]:
    """Return precision, recall and F1 of the most frequent value of each group, where it is one."""

    after = dirty.copy()
    for name in dirty.columns.drop(key):
        cells = dirty[name].where(dirty[name] != "")
        modes = cells.groupby(dirty[key]).agg(
            lambda one: one.mode().iloc[0] if len(one.mode()) == 1 else None
        )
        found = dirty[key].map(modes)
        after[name] = found.where(found.notna(), dirty[name])
    changed, wrong = (after != dirty).to_numpy(), (dirty != clean).to_numpy()
    right = (changed & (after == clean).to_numpy()).sum()
    precision, recall = right / changed.sum(), right / wrong.sum()
    return precision, recall, 2 * precision * recall / (precision + recall)


def line(scores) -> str:
    return f"F1 {scores[2]:.3f} (precision {scores[0]:.3f}, recall {scores[1]:.3f})"


def main() -> None:
    import pandas as pd

    report = Report("repair", "Repair of tables")
    if not (DATA / "raha").is_dir():
        print("no tables of raha beside the repository")
        return
    for name in ("hospital", "flights"):
        folder = DATA / "raha" / name
        dirty, clean = (
            pd.read_csv(folder / f"{kind}.csv", dtype=str, keep_default_na=False).iloc[:, 1:]
            for kind in ("dirty", "clean")
        )
        clean.columns = dirty.columns
        peer = peers(folder)
        rows = peer["labeled"] if peer else list(range(0, 50 * LABELS, 50))
        labels = {row: clean.iloc[row].to_dict() for row in rows}
        ours(dirty[:200], clean[:200], None)  # compiles
        without, seconds = ours(dirty, clean, None)
        report.add(f"{name}, no labels", f"{line(without.scores(clean))}, {seconds:.0f} s")
        bold = mg.repair(dirty, certainty=0.4, seed=SEED, progress=False)
        report.add(f"{name}, no labels, certainty=0.4", line(bold.scores(clean)))
        if key := KEYS.get(name):
            report.add(f"{name}, the majority per {key}", line(majority(dirty, clean, key)))
        given, seconds = ours(dirty, clean, labels)
        scores = given.scores(clean)
        measured = f"{line(scores)}, {seconds:.0f} s"
        if peer:
            what = f"Raha and Baran: {line(peer['corrected'])}, {peer['seconds']:.0f} s"
            met = scores.f1 >= peer["corrected"][2]
            report.add(f"{name}, {LABELS} labeled rows", measured, what, met)
            text = f"{line(peer['corrected'])}, {peer['seconds']:.0f} s"
            report.add(f"{name}, Raha and Baran with the same {LABELS} rows", text)
        else:
            report.add(f"{name}, {LABELS} labeled rows", measured)
        curve = given.calibration(clean)
        gap = np.average(abs(curve["probability"] - curve["right"]), weights=curve["count"])
        report.add(f"{name}, expected calibration error of repairs, labeled", f"{gap:.3f}")
    if peer:
        versions = ", ".join(f"{name} {version}" for name, version in peer["versions"].items())
        report.notes.append(
            "Raha chooses the rows that are labeled; Baran and minigibbs get the same. Seconds are "
            f"processor time of all processes. {versions}."
        )
    report.write()
