"""Every lemma and theorem of the paper, and our own bound, on random graphs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs import theory
from minigibbs.graph.factors import Potts, Table, Unary
from minigibbs.graph.graph import FactorGraph
from minigibbs.results import plots
from minigibbs.samplers import Estimator, PoissonEstimator, SubsetEstimator
from minigibbs.system import files
from minigibbs.theory.bounds import AT_LEAST, AT_MOST, EQUAL, Comparison

GRAPHS = 300
QUICK_GRAPHS = 25
SEED = 2018
STATED, REPAIRED = "theorem-4", "theorem-4-repaired"
TOLERANCE = 1e-9  # Poisson tails are cut at 1e-12, eigenvalues found to about 1e-14


def random_graph(
    rng: np.random.Generator, scales: tuple[float, ...] = (0.2, 0.5, 1.0)
) -> FactorGraph:
    """Three variables of two or three values: pairs, and perhaps a table and a unary factor."""
    sizes = rng.integers(2, 4, size=3)
    scale = rng.choice(scales)
    groups: list[Any] = [Potts([0, 1], [1, 2], rng.normal(0, scale, 2))]
    if rng.random() < 0.5:
        groups.append(Unary([0], rng.normal(0, scale, (1, sizes[0]))))
    if rng.random() < 0.5:
        groups.append(Table([[0, 2]], rng.normal(0, scale / 2, (1, sizes[0], sizes[2]))))
    return FactorGraph(sizes, groups)


def random_pairs(rng: np.random.Generator) -> FactorGraph:
    """Three variables and two or three pairs: small enough for Poisson estimates of the energy."""
    sizes = rng.integers(2, 4, size=3) if rng.random() < 0.3 else np.full(3, 2)
    i, j = ([0, 1, 2], [1, 2, 0]) if rng.random() < 0.5 else ([0, 1], [1, 2])
    return FactorGraph(sizes, [Potts(i, j, rng.normal(0, rng.choice([0.2, 0.5, 0.8]), len(i)))])


def _batch(graph: FactorGraph, rng: np.random.Generator) -> float:
    """A lambda for MGPMH, of at least L, and small enough to enumerate minibatches."""
    local = graph.stats.local_energy
    return max(local, min(local**2 / float(np.exp(rng.uniform(-3.5, 0.7))), 12.0))


def _bounded(rng: np.random.Generator) -> tuple[FactorGraph, Estimator]:
    """A graph, and an estimator whose estimates cannot stray far."""
    if rng.random() < 0.5:
        graph = random_graph(rng, scales=(0.03, 0.1, 0.3))
        return graph, SubsetEstimator(int(rng.integers(1, graph.stats.factors)))
    graph = random_pairs(rng)
    batch = graph.stats.total_energy * float(np.exp(rng.uniform(0.0, 3.5)))
    step = float(np.log1p(graph.stats.total_energy / batch))  # between two points of the estimate
    delta = step * float(rng.uniform(0.6, 3.0))
    return graph, theory.TruncatedEstimator(PoissonEstimator(batch), delta)


def _any_estimator(rng: np.random.Generator) -> tuple[FactorGraph, Estimator]:
    """A graph, and an estimator that may or may not leave its law alone."""
    if rng.random() < 0.5:
        graph = random_graph(rng)
        return graph, SubsetEstimator(int(rng.integers(1, graph.stats.factors)))
    graph = random_pairs(rng)
    return graph, PoissonEstimator(float(rng.uniform(0.5, 3.0)))


def _lemma_1(rng: np.random.Generator) -> Comparison:
    return theory.lemma_1(random_pairs(rng), float(rng.uniform(0.5, 8.0)))


def _lemma_2(rng: np.random.Generator) -> Comparison:
    delta, failure = float(rng.uniform(0.4, 1.5)), float(np.exp(rng.uniform(-5.0, -0.05)))
    return theory.lemma_2(random_pairs(rng), delta, failure)


def _theorem_1(rng: np.random.Generator) -> Comparison:
    return theory.theorem_1(*_any_estimator(rng))


def _theorem_2(rng: np.random.Generator) -> Comparison:
    return theory.theorem_2(*_bounded(rng))


def _theorem_3(rng: np.random.Generator) -> Comparison:
    graph = random_graph(rng)
    return theory.theorem_3(graph, float(rng.uniform(0.3, 3.0)))


def _theorem_4(rng: np.random.Generator) -> Comparison:
    graph = random_graph(rng)
    return theory.theorem_4(graph, _batch(graph, rng))


def _theorem_4_repaired(rng: np.random.Generator) -> Comparison:
    graph = random_graph(rng)
    return theory.theorem_4_repaired(graph, _batch(graph, rng))


def _theorem_5(rng: np.random.Generator) -> Comparison:
    graph, estimator = _any_estimator(rng)
    return theory.theorem_5(graph, float(rng.uniform(0.3, 2.0)), estimator)


def _theorem_6(rng: np.random.Generator) -> Comparison:
    graph, estimator = _bounded(rng)
    return theory.theorem_6(graph, _batch(graph, rng), estimator)


def _ours(rng: np.random.Generator) -> Comparison:
    heavy = int(rng.integers(0, 2))
    return theory.poisson_gibbs_bound(random_graph(rng), float(rng.uniform(0.3, 6.0)), heavy)


@dataclass(frozen=True)
class Claim:
    """Something the paper proves, and how to check it on a random graph."""

    title: str
    words: str
    check: Callable[[np.random.Generator], Comparison]
    axes: tuple[str, str]


CLAIMS = {
    "theorem-1": Claim(
        "Theorem 1: law of MIN-Gibbs",
        "MIN-Gibbs keeps the law proportional to E exp(estimate)",
        _theorem_1,
        ("claimed probability", "stationary probability"),
    ),
    "lemma-1": Claim(
        "Lemma 1: unbiased in exp",
        "log E exp(estimate) is the energy",
        _lemma_1,
        (r"energy $\zeta(x)$", r"$\log\,E\,\exp$(estimate)"),
    ),
    "lemma-2": Claim(
        "Lemma 2: concentration",
        "with its batch an estimate strays by delta with a chance of at most a",
        _lemma_2,
        ("a, the chance allowed", "true chance"),
    ),
    "theorem-2": Claim(
        "Theorem 2: gap of MIN-Gibbs",
        "the gap is at least exp(-6 delta) of Gibbs's",
        _theorem_2,
        (r"bound $e^{-6\delta}$", "true ratio of gaps"),
    ),
    "theorem-3": Claim(
        "Theorem 3: law of MGPMH",
        "MGPMH keeps the model's law",
        _theorem_3,
        ("model's probability", "stationary probability"),
    ),
    "theorem-4": Claim(
        "Theorem 4: gap of MGPMH",
        "the gap is at least exp(-L^2 / lambda) of Gibbs's",
        _theorem_4,
        (r"bound $e^{-L^2/\lambda}$", "true ratio of gaps"),
    ),
    "theorem-4-repaired": Claim(
        "Theorem 4, repaired",
        "the gap is at least half of exp(-L^2 / lambda) of Gibbs's",
        _theorem_4_repaired,
        ("bound", "true ratio of gaps"),
    ),
    "theorem-5": Claim(
        "Theorem 5: law of DoubleMIN",
        "DoubleMIN-Gibbs keeps MIN-Gibbs's law",
        _theorem_5,
        ("claimed probability", "stationary probability"),
    ),
    "theorem-6": Claim(
        "Theorem 6: gap of DoubleMIN",
        "the gap is at least exp(-4 delta) of MGPMH's",
        _theorem_6,
        (r"bound $e^{-4\delta}$", "true ratio of gaps"),
    ),
    "ours": Claim(
        "Our bound: gap of Poisson-Gibbs",
        "the gap is at least exp(-L_T (2/theta + 1/theta^2)) of Gibbs's",
        _ours,
        (r"bound $e^{-L_T(2/\theta + 1/\theta^2)}$", "true ratio of gaps"),
    ),
}


@dataclass(frozen=True, eq=False)
class Evidence:
    """A claim's comparisons on all graphs."""

    sense: str
    graphs: NDArray[np.int64]  # [point] the graph's number
    claimed: NDArray[np.float64]  # [point]
    true: NDArray[np.float64]  # [point]
    margins: NDArray[np.float64] = field(repr=False)  # [graph]

    @property
    def failures(self) -> int:
        """On how many graphs the claim is false."""
        return int(np.count_nonzero(self.margins < -TOLERANCE))

    @property
    def worst(self) -> float:
        """The least margin; see `Comparison.margin`."""
        return float(self.margins.min())


def gather(name: str, graphs: int) -> Evidence:
    """Check a claim on random graphs, the same ones for the same number."""
    found = [CLAIMS[name].check(np.random.default_rng([SEED, n])) for n in range(graphs)]
    return Evidence(
        sense=found[0].sense,
        graphs=np.repeat(np.arange(graphs), [len(c.true) for c in found]),
        claimed=np.concatenate([c.claimed for c in found]),
        true=np.concatenate([c.true for c in found]),
        margins=np.array([c.margin for c in found]),
    )


def draw(evidence: Mapping[str, Evidence], folder: Path) -> list[Path]:
    """Claim against truth, a panel each, and the numbers."""
    whole, rows = plots.grid(3, 3, width=10.5, height=10.0)
    shown = {name: found for name, found in evidence.items() if name != REPAIRED}
    for axes, (name, found) in zip(rows.ravel(), shown.items(), strict=True):
        _panel(axes, CLAIMS[name], found)
        if name == STATED:  # the repaired bound is half the stated one: a line, not a panel
            ends = np.array(axes.get_xlim())
            axes.plot(ends, ends / 2, color="black", linewidth=1, linestyle="--")
    whole.suptitle(
        f"What the paper claims against what is true, on {len(found.margins)} random graphs each\n"
        "Laws should lie on the line, gaps above it, chances below. Red: on the wrong side. "
        "Dashed: Theorem 4, repaired.",
        fontsize=12,
    )
    written = []
    for ending in ("png", "svg"):
        plots.save(whole, folder / f"theorems.{ending}")
        written.append(folder / f"theorems.{ending}")
    files.write_text(folder / "theorems.csv", _csv(evidence))
    return [*written, folder / "theorems.csv"]


def _panel(axes: Any, claim: Claim, found: Evidence) -> None:
    low = float(min(found.claimed.min(), found.true.min()))
    high = float(max(found.claimed.max(), found.true.max()))
    if found.sense == AT_MOST:
        low, high = low / 1.5, 1.5
        axes.set(xscale="log", yscale="log")
    elif found.sense == AT_LEAST:
        low, high = 0.0, max(1.05, 1.02 * high)
    else:
        margin = 0.04 * (high - low)
        low, high = low - margin, high + margin
    ends = np.array([low, high])
    if found.sense == AT_LEAST:
        axes.fill_between(ends, ends, low, color="0.92", linewidth=0)
    elif found.sense == AT_MOST:
        axes.fill_between(ends, ends, high, color="0.92", linewidth=0)
    axes.plot(ends, ends, color="black", linewidth=1)
    wrong = (found.margins < -TOLERANCE)[found.graphs]
    for points, colour, size in ((~wrong, "#0072B2", 12), (wrong, "#D55E00", 20)):
        axes.scatter(
            found.claimed[points],
            found.true[points],
            s=size,
            alpha=0.55,
            color=colour,
            linewidths=0,
            rasterized=True,
        )
    axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set(xlabel=claim.axes[0], ylabel=claim.axes[1])
    axes.set_title(claim.title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def _csv(evidence: Mapping[str, Evidence]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["claim", "graph", "sense", "claimed", "true"])
    for name, found in evidence.items():
        for graph, claimed, true in zip(found.graphs, found.claimed, found.true, strict=True):
            writer.writerow([name, graph, found.sense, f"{claimed:.12g}", f"{true:.12g}"])
    return text.getvalue()


def report(evidence: Mapping[str, Evidence]) -> str:
    """A table in Markdown: the claim, graphs, failures and the worst margin."""
    lines = [
        "| claim | in words | graphs | failures | worst margin |",
        "|---|---|---|---|---|",
    ]
    for name, found in evidence.items():
        claim = CLAIMS[name]
        if found.sense == EQUAL:
            margin = f"off by {-found.worst:.1e} at most"
        elif found.sense == AT_LEAST:
            margin = f"truth {np.exp(found.worst):.4g} times the bound at the least"
        else:
            margin = f"bound {np.exp(found.worst):.3g} times the truth at the least"
        counts = f"{len(found.margins)} | {found.failures}"
        lines.append(f"| {claim.title} | {claim.words} | {counts} | {margin} |")
    return "\n".join(lines) + "\n"
