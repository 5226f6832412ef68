"""Pictures of the tables in results/: one message each, with its unit.

`python -m benchmarks.pictures` redraws them from the stored tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from minigibbs.results import plots

RESULTS = Path(__file__).parent / "results"
OURS, OTHERS = "tab:blue", "0.65"
PEERS = {
    "numbskull",
    "OpenJij",
    "dwave-samplers",
    "JAX, plain Gibbs",
    "plain Gibbs",
    "textbook Gibbs",
    "single updates",
}
# Adaptive tempering with cluster moves (Chowdhury et al. 2025), 16^3. Sweeps: residual energy.
PUBLISHED = {1_000: 0.0149, 10_000: 0.0014, 100_000: 0.00041}
Bar = tuple[str, str, float]  # its group, its owner, the number


@dataclass(frozen=True)
class Table:
    """The rows of a table of results; indented ones belong to the row before them."""

    rows: list[tuple[str, str, str]]  # group, what, measured

    @classmethod
    def read(cls, path: Path) -> Table:
        rows, group = [], ""
        for line in path.read_text(encoding="utf-8").splitlines():
            cells = line.strip("|").split(" | ")
            if not line.startswith("| ") or cells[0].strip() == "what":
                continue
            group = group if cells[0].startswith("   ") else cells[0].strip()
            rows.append((group, cells[0].strip(), cells[1].strip()))
        return cls(rows)

    def number(self, group: str, what: str, pattern: str = r"(-?[\d.,e+]+)") -> float:
        """Return the first number that `pattern` finds in the measurements."""
        for one, other, measured in self.rows:
            if one.startswith(group) and other.startswith(what):
                return float(re.search(pattern, measured)[1].replace(",", ""))
        raise KeyError(f"no row {what!r} under {group!r}")


def flagship(table: Table) -> list[Bar]:
    potts, bars = "the paper's Potts model, n = 400, D = 10", []
    base = table.number(potts, potts)
    for what, name in (("gibbs", "plain Gibbs"), ("textbook", "textbook Gibbs")):
        bars.append(("Potts, 400 variables", name, base * table.number(potts, what)))
    bars.append(("Potts, 400 variables", "numbskull", table.number(potts, "numb", r"\((\d+) ns")))
    bars.insert(0, ("Potts, 400 variables", "minigibbs", base))
    for size in (400, 4096):
        group, model = f"the paper's Ising kernel, n = {size}", f"Ising, {size:,} spins"
        bars.append((model, "minigibbs", table.number(group, group)))
        for name in ("OpenJij", "dwave-samplers"):
            bars.append((model, name, table.number(group, name, r"\((\d+) ns")))
    return bars


def real(table: Table) -> list[Bar]:
    found = []
    for group, what, measured in table.rows:
        if what.startswith("plain Gibbs over ours") and "effective" in what:
            found.append((group, "minigibbs", float(measured.rstrip("x"))))
        if what == "ours over plain Gibbs":
            found.append((group, "minigibbs", 1 / float(measured.rstrip("x"))))
    return found


def split(table: Table) -> list[Bar]:
    rows = [(what.split(":")[0], measured) for _, what, measured in table.rows]
    return [(name, "minigibbs", float(m.split("x")[0])) for name, m in rows if "x (" in m]


def samplers(table: Table) -> list[Bar]:
    gibbs = table.number("plain Gibbs, Potts", "plain Gibbs, Potts")
    microseconds = {
        "MIN-Gibbs, batch Psi^2, Ising": "MIN-Gibbs at",
        "DoubleMIN-Gibbs, L^2 and Psi^2, Potts": "DoubleMIN at",
    }
    bars = [
        ("plain Gibbs, Potts", "", gibbs),
        ("MGPMH, batch L^2, Potts", "", gibbs * table.number("MGPMH at", "MGPMH at")),
        ("Local Minibatch Gibbs, 40, Ising", "", table.number("Local", "Local")),
    ]
    return bars + [(k, "", 1000 * table.number(v, v)) for k, v in microseconds.items()]


def clusters(table: Table) -> list[Bar]:
    bars = []
    for group, name in (("128 x 128", "128 x 128 Ising, critical"), ("1/r^1.5", "1/r^1.5 chain")):
        bars.append((name, "mg.SwendsenWang()", table.number(group, "mg.Swendsen")))
        bars.append((name, "single updates", table.number(group, group)))
    return bars


def gpu(table: Table) -> list[Bar]:
    bars = []
    for model in ("Potts", "Ising"):
        core = table.number(f"{model}, over one", f"{model}, over one")
        best = table.number(f"{model}, default sampler, 1,0", f"{model}, default sampler, 1,0")
        jax = table.number(f"{model}, plain Gibbs hand", f"{model}, plain Gibbs hand")
        name = f"{model}, the paper's"
        bars += [(name, "minigibbs, a million chains", best), (name, "JAX, plain Gibbs", jax)]
        bars.append((name, "minigibbs, one CPU core", best / core))
    return bars


NANOSECONDS = "nanoseconds per update (log scale, one core; less is better)"
CHARTS: dict[str, tuple[Callable[[Table], list[Bar]], str, str]] = {
    "flagship": (flagship, "Time per update of dense models, beside other software", NANOSECONDS),
    "real": (
        real,
        "Real models: the default sampler beside plain Gibbs",
        "effective samples per second, in units of plain Gibbs (log scale; more is better)",
    ),
    "split": (
        split,
        "The default split and the best one found",
        "time per effective sample, relative to the best split (less is better)",
    ),
    "samplers": (samplers, "Time per update of the paper's samplers", NANOSECONDS),
    "clusters": (
        clusters,
        "Clusters and single updates near a critical point",
        "effective samples of m$^2$ per second (log scale; more is better)",
    ),
    "gpu": (gpu, "A million chains on one H200", "updates per second (log scale; more is better)"),
}


def residuals(table: Table) -> Any:
    """Draw residual energies against sweeps, with published ones, and against time."""
    numbers = re.compile(r"([\d.]+) \+- ([\d.]+) per spin, ([\d.]+) s")
    curves: dict[str, list[tuple[float, ...]]] = {}
    for _, what, measured in table.rows:
        side, sweeps = what.split(", ", 1)
        found = [float(number) for number in numbers.match(measured).groups()]
        curves.setdefault(side, []).append((float(sweeps.split()[0].replace(",", "")), *found))
    whole, (left, right) = plots.figure(2)
    for side, curve in curves.items():
        rounds, residual, error, seconds = zip(*curve, strict=True)
        for axes, across in ((left, rounds), (right, seconds)):
            axes.errorbar(across, residual, error, marker="o", label=f"minigibbs, {side}")
    left.plot(*zip(*PUBLISHED.items(), strict=True), "s--", color="0.5", label="published, 16^3")
    left.set(xlabel="sweeps of every temperature", ylabel="residual energy per spin")
    right.set(xlabel="seconds of processor time per glass")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=1e-4)
        axes.set_ylim(bottom=0.0)
    left.legend()
    return whole


CURVES: dict[str, Callable[[Table], Any]] = {"residuals": residuals}


def draw(path: Path) -> None:
    """Draw the picture of a table next to it, if it has one."""
    if path.stem in CURVES:
        plots.save(CURVES[path.stem](Table.read(path)), path.with_suffix(".png"))
    if path.stem not in CHARTS:
        return
    bars_of, title, unit = CHARTS[path.stem]
    bars = bars_of(Table.read(path))
    whole, (axes,) = plots.figure(1, width=9, height=1.3 + 0.34 * len(bars))
    several = len({group for group, _, _ in bars}) < len(bars)
    places = [0.0]
    for (before, _, _), (group, _, _) in pairwise(bars):
        places.append(places[-1] + (1.5 if several and group != before else 1.0))
    colors = [OTHERS if who in PEERS else OURS for _, who, _ in bars]
    drawn = axes.barh(places, [number for _, _, number in bars], color=colors)
    axes.bar_label(drawn, [_shown(number) for _, _, number in bars], padding=4)
    axes.set_yticks(places, [f"{group}: {who}" if several else group for group, who, _ in bars])
    axes.invert_yaxis()
    axes.set(title=title, xlabel=unit)
    if "log scale" in unit:
        axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    plots.save(whole, path.with_suffix(".png"))


def _shown(number: float) -> str:
    if number >= 1e7:
        return f"{number:.1e}"
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


if __name__ == "__main__":
    for stem in (*CHARTS, *CURVES):
        draw(RESULTS / f"{stem}.md")
