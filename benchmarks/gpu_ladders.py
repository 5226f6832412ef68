"""Temperature ladders on a GPU: updates of all temperatures per second."""

from __future__ import annotations

import minigibbs as mg
from benchmarks.ladders import NOTE, add, add_glasses
from benchmarks.report import Report

# side, temperatures, ladders, sweeps
CARD = ((16, 73, 256, 400), (8, 31, 1024, 2000), (10, 40, 32, 4000))


def main() -> None:
    report = Report("gpu_ladders", "Temperature ladders on a GPU")
    report.notes.append(NOTE)
    add_glasses(report, CARD, backend="cuda")
    potts = mg.models.potts_lattice(32, 3, 1.0)
    name = "32 x 32 Potts of 3 values, 16 temperatures, 1,024 ladders"
    add(report, name, potts, 16, False, None, 100, chains=1024, backend="cuda")
    report.write()
