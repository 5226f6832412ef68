"""Build the paper: `make paper` writes build/paper/minigibbs.pdf.

Every measured number and figure comes from benchmarks/results. A missing row is an error.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from benchmarks.coverage import MODELS  # noqa: E402
from benchmarks.pictures import Table, real  # noqa: E402
from minigibbs import __version__  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
SOURCE = ROOT / "paper" / "minigibbs.typ"
OUT = ROOT / "build" / "paper"
SETTING = re.compile(r"(\d{4}-\d\d-\d\d), (.*), minigibbs (.*?),")  # date, machine, version
COVERED = re.compile(  # runs without a warning, their share, and all runs
    r"(?:(?P<quiet>[\d.]+% ± [\d.]+%) of unwarned; )?(?P<share>\d+)% unwarned; "
    r"all (?P<all>[\d.]+)% ± [\d.]+%"
)
FAMILY = re.compile(  # runs with a warning, wrong runs, and those of them without a warning
    r"(?P<warned>[\d.]+% ± [\d.]+%) warned(?:; (?P<wrong>\d+) wrong, (?P<missed>\d+) of them .*)?"
)
USED = (
    *("flagship", "real", "clusters", "sparse", "gpu", "learning", "conditional"),
    *("coverage", "verdicts"),
)


def numbers() -> dict[str, Any]:
    """Read all numbers that the text quotes from the tables of results."""
    tables = {name: Table.read(RESULTS / f"{name}.md") for name in USED}
    potts = "the paper's Potts model, n = 400, D = 10"
    flagship, sparse = tables["flagship"], tables["sparse"]
    clusters, gpu = tables["clusters"], tables["gpu"]
    lattice = "one chain, lattice 300 x 300: an update"
    critical = "128 x 128 Ising at the critical point"
    random = "random tables, 4 x 4 values"
    return {
        "version": __version__,
        "potts_ns": flagship.number(potts, potts),
        "gibbs": flagship.number(potts, "gibbs"),
        "textbook": flagship.number(potts, "textbook"),
        "numbskull": flagship.number(potts, "numbskull"),
        "ising_ns": flagship.number("the paper's Ising kernel, n = 4096", "the paper's Ising"),
        "dwave": flagship.number("the paper's Ising kernel, n = 4096", "dwave-samplers (Gibbs) ov"),
        "openjij": flagship.number("the paper's Ising kernel, n = 4096", "OpenJij"),
        "potts_error": flagship.number("", "time to an error of 0.05, Potts"),
        "ising_error": flagship.number("", "time to an error of 0.05, Ising"),
        "large_ns": flagship.number("", "3,000 x 3,000 fully connected, Gaussian"),
        "large_gib": flagship.number("3,000 x 3,000 fully connected, Gaussian", "peak memory"),
        "lattice_ns": sparse.number(lattice, lattice),
        "ferrotherm": sparse.number(lattice, "ferrotherm", r", ([\d.]+)"),
        "thrml": sparse.number(lattice, "thrml", r", ([\d.]+)"),
        "lattice_dwave": sparse.number(lattice, "dwave-samplers", r", ([\d.]+)"),
        "clusters": clusters.number(critical, "ratio"),
        "gpu_potts": gpu.number("", "Potts, default sampler, 1,048,576 chains"),
        "gpu_core": gpu.number("", "Potts, over one CPU core"),
        "adabmdca": tables["learning"].number("", "the same, adabmDCA", r": ([\d.]+) times ours"),
        "bound_m": tables["conditional"].number("", f"{random}: bound"),
        "bound_c": tables["conditional"].number("", f"{random}: bound", r", ([\d.]+)"),
        "draws_m": tables["conditional"].number("", f"{random}: draws"),
        "draws_c": tables["conditional"].number("", f"{random}: draws", r", ([\d.]+)"),
        "real": _real(tables["real"]),
        "settings": settings(),
        "coverage": coverage(RESULTS / "coverage.md"),
        "verdicts": verdicts(RESULTS / "verdicts.md"),
    }


def _real(table: Table) -> list[list[str]]:
    """Return rows of the table per effective sample: model, n, Delta, L, gain over plain Gibbs."""
    gains = {name: gain for name, _, gain in real(table)}
    rows = []
    for group, what, measured in table.rows:
        found = re.fullmatch(r"n = ([\d,]+), Delta = ([\d,]+), L = ([\d.]+)", measured)
        if what == group and found and group in gains:
            rows.append([group, *found.groups(), f"{gains[group]:.3g}"])
    return rows


def settings() -> list[str]:
    """Return the dates and versions of the measurements, one sentence per machine."""
    machines: dict[str, list[str]] = {}
    for name in USED:
        lines = (RESULTS / f"{name}.md").read_text(encoding="utf-8").splitlines()
        date, machine, version = next(filter(None, map(SETTING.match, lines))).groups()
        machines.setdefault(machine, []).append(f"{name} ({date}, {version})")
    return [f"{machine}: {', '.join(tables)}." for machine, tables in machines.items()]


def coverage(path: Path) -> dict[str, Any]:
    """Return tables of the coverage benchmark: intervals by model, learned parameters, verdicts."""
    judged: dict[str, dict[str, str]] = {}
    others, learned, healthy, unhealthy = [], [], [], []
    for _, what, measured in Table.read(path).rows:
        kind, _, name = what.partition(": ")
        found = COVERED.fullmatch(measured)
        if kind == "healthy":
            healthy.append([name, measured.removesuffix(" warned")])
        elif kind == "unhealthy":
            warned, wrong, missed = re.findall(r"\d+%?", measured)
            unhealthy.append([name, warned, f"{missed} of {wrong}"])
        elif found is None:
            raise KeyError(f"no coverage in the row {what!r}")
        elif kind.startswith("learn("):
            learned.append([f"{name}, {kind[6:-1]}", found["quiet"]])
        elif found["quiet"] is None:
            others.append(float(found["all"]))
        else:
            model = next(model for model in MODELS if f", {model}" in what)
            row = judged.setdefault(what.replace(f", {model}", ""), {})
            row[model] = f"{found['quiet']} ({found['share']}%)"
    quiet = [float(cell.split("%")[0]) for row in judged.values() for cell in row.values()]
    counts = [row[2].split(" of ") for row in unhealthy]
    return {
        "range": [min(quiet), max(quiet)],
        "missed": [sum(int(part) for part in column) for column in zip(*counts, strict=True)],
        "models": list(MODELS),
        "judged": [
            [what, *(row.get(model, "") for model in MODELS)] for what, row in judged.items()
        ],
        "others": [min(others), max(others)],
        "learned": learned,
        "healthy": healthy,
        "unhealthy": unhealthy,
    }


def verdicts(path: Path) -> dict[str, Any]:
    """Return mistakes on random models: a row per family, and sums of missed and wrong runs."""
    rows: dict[str, list[str]] = {}
    missed = wrong = 0
    for _, what, measured in Table.read(path).rows:
        kind, _, family = what.partition(": ")
        found = FAMILY.fullmatch(measured)
        if found is None:
            raise KeyError(f"no counts in the row {what!r}")
        row = rows.setdefault(family, [family])
        if kind == "weak":
            row.append(found["warned"])
            continue
        row.append(f"{found['missed'] or 0} of {found['wrong'] or 0}")
        missed += int(found["missed"] or 0)
        wrong += int(found["wrong"] or 0)
    return {"rows": list(rows.values()), "missed": [missed, wrong]}


def build(form: str = "pdf") -> list[Path]:
    """Write the paper as one PDF, or as one picture per page."""
    import typst

    OUT.mkdir(parents=True, exist_ok=True)
    name = "minigibbs.pdf" if form == "pdf" else "minigibbs-{p}.png"
    typst.compile(
        str(SOURCE),
        output=str(OUT / name),
        root=str(ROOT),
        format=form,
        ppi=110.0 if form == "png" else None,
        sys_inputs={"numbers": json.dumps(numbers())},
        ignore_system_fonts=True,
    )
    return sorted(OUT.glob("minigibbs.pdf" if form == "pdf" else "minigibbs-*.png"))


if __name__ == "__main__":
    for path in build("png" if "--png" in sys.argv else "pdf"):
        print(path.relative_to(ROOT))
