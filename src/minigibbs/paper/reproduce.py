"""Function of `minigibbs reproduce`: figures, table and theorems by name, resumable."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minigibbs.errors import SampleError
from minigibbs.paper import curves, figures, table, theorems
from minigibbs.paper.claims import CLAIMS
from minigibbs.paper.curves import FIGURES, QUICK_UPDATES, UPDATES, Result, Settings
from minigibbs.results import plots
from minigibbs.system import files

TARGETS = (*FIGURES, "table1", "theorems", "all")
QUICK_SEEDS = 2
SEEDS = 5


@dataclass
class Reproduction:
    """Result of a reproduction: files and numbers."""

    files: list[Path] = field(default_factory=list)
    figures: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    table: list[table.Cell] = field(default_factory=list)
    theorems: dict[str, theorems.Evidence] = field(default_factory=dict)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the results in a form that JSON can represent."""
        return {
            "files": [str(path) for path in self.files],
            "figures": self.figures,
            "table1": [
                {
                    "algorithm": cell.row.name,
                    "grows": cell.family.grows,
                    "claimed": cell.claimed,
                    "counted": cell.exponent,
                    "timed": cell.time_exponent,
                }
                for cell in self.table
            ],
            "theorems": {
                name: {
                    "graphs": len(found.margins),
                    "failures": found.failures,
                    "holds": found.holds,
                    "worst": theorems.worst_in_words(found),
                    "worst_case": str(found.worst),
                }
                for name, found in self.theorems.items()
            },
            "seconds": self.seconds,
        }


def reproduce(
    target: str = "all",
    output: str | os.PathLike[str] = "reproduce",
    quick: bool = False,
    seeds: int | None = None,
    fresh: bool = False,
    progress: bool = True,
    tell: Callable[[str], None] = lambda text: None,
) -> Reproduction:
    """Reproduce a figure, the table, the theorems, or all of them.

    Parameters
    ----------
    target
        One of `TARGETS`.
    output
        Folder for pictures, numbers and finished curves; created if missing.
    quick
        Short curves of two seeds and few graphs, as a test of about a minute.
    seeds
        Chains of each curve; by default 5, or 2 if `quick`.
    fresh
        Whether to run finished curves again.
    progress
        Whether to show a progress bar per curve if stderr is a terminal.
    tell
        Function that gets a line of text before each step.
    """
    if target not in TARGETS:
        raise SampleError(f"nothing is called {target!r}; choose one of {', '.join(TARGETS)}")
    wanted = seeds if seeds is not None else QUICK_SEEDS if quick else SEEDS
    if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1:
        raise SampleError(f"seeds must be an integer of at least 1, got {seeds!r}")
    plots.figure(1)  # before long work, because Matplotlib may be missing
    folder = _prepare(Path(output))
    begun, made = time.perf_counter(), Reproduction()
    settings = Settings(QUICK_UPDATES if quick else UPDATES, wanted)
    asked = [name for name in FIGURES if target in (name, "all")]
    if asked:
        results = _curves(asked, folder / "curves", settings, fresh, progress, tell)
        for name in asked:
            made.files += figures.draw(name, results, folder)
            made.figures[name] = figures.summarize(name, results)
    if target in ("table1", "all"):
        made.table = _table(quick, folder, made.files, tell)
    if target in ("theorems", "all"):
        graphs = theorems.QUICK_GRAPHS if quick else theorems.GRAPHS
        made.theorems = _theorems(graphs, folder, made.files, tell)
    made.seconds = time.perf_counter() - begun
    return made


def _prepare(folder: Path) -> Path:
    """Create the folder and check that it is writable, before long work."""
    try:
        (folder / "curves").mkdir(parents=True, exist_ok=True)
        for place in (folder, folder / "curves"):
            files.write_whole(place / ".writable", lambda stream: stream.write(b""))
            (place / ".writable").unlink()
    except OSError as error:
        raise SampleError(
            f"cannot write into {folder} ({error.strerror or error}); choose another folder with "
            "--out"
        ) from None
    return folder


def _curves(
    asked: list[str],
    folder: Path,
    settings: Settings,
    fresh: bool,
    progress: bool,
    tell: Callable[[str], None],
) -> dict[str, Result]:
    """Return the curves of some figures, each run once; finished ones are loaded."""
    every = {curve.name: curve for name in asked for curve in FIGURES[name]}
    results: dict[str, Result] = {}
    for number, (name, curve) in enumerate(every.items(), 1):
        head = f"[{number}/{len(every)}] {name}"
        kept = None if fresh else curves.load(folder, curve, settings)
        if kept is not None:
            tell(f"{head}: finished before")
            results[name] = kept
            continue
        tell(f"{head}: {settings.seeds} seeds of {settings.updates:,} updates")
        results[name] = curves.compute(curve, settings, progress)
        curves.save(folder, curve, settings, results[name])
    return results


def _table(
    quick: bool, folder: Path, written: list[Path], tell: Callable[[str], None]
) -> list[table.Cell]:
    cells, stretch = [], table.QUICK_STRETCH if quick else table.STRETCH
    every = table.cells()
    for number, (row, family) in enumerate(every, 1):
        tell(f"[{number}/{len(every)}] table 1: {row.name}, {family.grows} grows")
        cells.append(table.measure(row, family, stretch))
    written += table.write(cells, folder)
    return cells


def _theorems(
    graphs: int, folder: Path, written: list[Path], tell: Callable[[str], None]
) -> dict[str, theorems.Evidence]:
    found = {}
    for number, (name, claim) in enumerate(CLAIMS.items(), 1):
        tell(
            f"[{number}/{len(CLAIMS)}] {claim.title}: {graphs} graphs, and a search from the worst"
        )
        found[name] = theorems.gather(name, graphs)
    written += theorems.draw(found, folder)
    return found
