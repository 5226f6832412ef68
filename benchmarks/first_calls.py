"""Processor time of first calls, on a fresh machine and in later processes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.report import Report

LATER = 5  # processes that find compiled code on disk
GRID = "mg.models.ising_lattice(32, 0.4)"
LEARN = """
data = np.random.default_rng(1).integers(0, 2, (500, 8))
chain = mg.FactorGraph([2] * 8, [mg.Ising(range(7), range(1, 8), 0.0, name="J")])
print(mg.learn(chain, data, progress=False))
"""
TEMPERING = "mg.sample(grid, sampler=mg.Tempering(), sweeps=100, progress=False)"
# Title, script or command, and the thresholds of both columns in seconds.
CALLS: list[tuple[str, str | list[str], float, float]] = [
    ("`import numba`, for comparison", "import numba", 2, 1),
    ("`import minigibbs`", "", 0.2, 0.1),
    ("`mg.sample` of 1,024 spins, with its summary", "print({sample}.summary())", 4, 0.7),
    ("`mg.infer` of 256 spins, exact", "print(mg.infer({small}, progress=False))", 12, 1),
    ("`mg.sample` of 1,024 spins by `mg.Tempering()`", f"print({TEMPERING}.summary())", 12, 1),
    ("`mg.maximize` of 512 spins, limit 1 s", "print(mg.maximize({glass}))", 12, 1.6),
    ("`mg.learn` of 7 couplings from 500 rows", LEARN, 6, 1),
    ("`minigibbs --version`", ["--version"], 0.2, 0.1),
    ("`minigibbs sample` of 1,024 spins", ["sample", "ising-lattice:side=32,beta=0.4"], 5, 0.9),
]


def main() -> None:
    report = Report("first_calls", "First calls: processor time of a whole process", "later")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, call, first, later in CALLS:
            command = _command(call)
            environment = _environment(folder / "bytecode", folder / str(len(report.rows)))
            _seconds(command, _environment(folder / "bytecode", folder / "other"))  # bytecode
            cold = _seconds(command, environment)
            warm = [_seconds(command, environment) for _ in range(LATER)]
            median = float(np.median(warm))
            met = cold < first and median < later
            report.add(
                title, f"{cold:.2f} s", f"under {first} s and {later} s", met, f"{median:.2f} s"
            )
    report.notes.append(
        f"Measured: the first process, which compiles. Later: the median of {LATER} processes that "
        "find compiled code on disk. Processor time includes the interpreter and all imports. The "
        f"load average was {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores, which slows down "
        "processes even in processor time: compare with the first row."
    )
    report.write()


def _command(call: str | list[str]) -> list[str]:
    """A Python process, as a user types it."""
    if isinstance(call, list):
        return [sys.executable, "-m", "minigibbs", *call]
    names = {
        "sample": "mg.sample(grid, progress=False)",
        "small": "mg.models.ising_lattice(16, 0.4, periodic=False)",
        "glass": "mg.models.spin_glass(side=8, seed=1), '1s', progress=False",
    }
    for name, text in names.items():
        call = call.replace("{" + name + "}", text)
    uses = "" if call.startswith("import") or not call else f"import numpy as np\ngrid = {GRID}\n"
    start = "" if call.startswith("import") else "import minigibbs as mg\n"
    return [sys.executable, "-c", start + uses + call]


def _environment(bytecode: Path, compiled: Path) -> dict[str, str]:
    """Bytecode is on disk, as an installation leaves it; machine code in a folder of its own."""
    own = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode), "NUMBA_CACHE_DIR": str(compiled)}
    own.pop("PYTHONDONTWRITEBYTECODE", None)
    return own


def _seconds(command: list[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
