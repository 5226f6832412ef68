"""Tables of measurements, written with the machine, the date and the versions."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import minigibbs as mg
from benchmarks.pictures import draw
from benchmarks.stale import stamp

RESULTS = Path(__file__).parent / "results"


@dataclass
class Report:
    """One table: one line per measurement.

    Thresholds against regressions are checked when a row is added. They are not part of the table,
    which is for readers. `write` ends with the thresholds that were missed.
    """

    name: str
    title: str
    column: str = ""  # an additional column, the last
    rows: list[tuple[str, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def add(
        self, what: str, measured: str, threshold: str = "", met: bool | None = None, last: str = ""
    ) -> None:
        self.rows.append((what, measured, *([last] if self.column else [])))
        verdict = "" if met is None else (", met" if met else ", MISSED")
        print(
            f"  {what}: {measured}" + (f" ({threshold}{verdict})" if threshold else ""), flush=True
        )
        if met is False:
            self.missed.append(f"{what}: {measured}, expected {threshold}")

    def write(self) -> None:
        RESULTS.mkdir(exist_ok=True)
        lines = [f"# {self.title}", "", setting(self.name.startswith("gpu")), ""]
        heads = ["what", "measured", *([self.column] if self.column else [])]
        lines += ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        lines += ["", *self.notes, "", stamp(self.name)]
        table = RESULTS / f"{self.name}.md"
        table.write_text("\n".join(lines).rstrip() + "\n")
        draw(table)
        for line in self.missed:
            print(f"  missed: {line}", flush=True)


def setting(card: bool = False) -> str:
    """Format date, machine, graphics card if it was measured, and versions as a sentence."""
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("numba", "llvmlite", "numpy")
    )
    versions = f"minigibbs {mg.__version__}, {versions}"
    return (
        f"{datetime.date.today()}, {_card() if card else ''}{_processor()}, "
        f"{os.cpu_count()} cores, "
        f"Python {platform.python_version()}, {versions}."
    )


def best_of(repeats: int, work: Callable[[], object]) -> float:
    """Return the minimum of several timings, because noise only increases them."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def _card() -> str:
    from numba import cuda

    if not cuda.is_available():
        return ""
    name = cuda.get_current_device().name
    return f"{name.decode() if isinstance(name, bytes) else name}, "


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown processor"
