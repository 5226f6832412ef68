"""Conditional ranges of tables, part (f) of docs/theory.md: their gain and cost.

A table's range given its neighbors can be smaller than its range over all states. Two numbers
quantify this: the mean over tables of the largest conditional range, which determines the
guarantee, and of the mean one. Then single updates are enumerated, with equally many proposals in
both forms.
"""

from __future__ import annotations

import itertools

import numpy as np

import minigibbs as mg
from benchmarks.data import DATA
from benchmarks.report import Report
from minigibbs.exact.distributions import poisson_grid
from minigibbs.graph.packing import entry_spans
from minigibbs.kernels.layout import TABLE
from minigibbs.samplers.bounds import tail_log_slowdown, tail_theta
from minigibbs.samplers.poisson_gibbs.ranges import conditional_ranges

TABLES = 4_000  # evaluated per model
LEAST_DEGREE = 16  # with fewer factors nothing is drawn


def ranges(graph: mg.FactorGraph) -> tuple[float, float, float]:
    """Return the largest and mean conditional range over the range, and the drawn share."""
    model, heavy = graph.packed, mg.PoissonGibbs().split(graph).heavy
    rows, spans = model.rows, entry_spans(model)
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    place = np.arange(len(owner))
    general = (place >= rows["pair_end"][owner]) & (place < rows["unary_begin"][owner])
    chosen = np.flatnonzero(general & np.isfinite(spans))
    if not len(chosen):
        return 1.0, 1.0, 0.0
    share = float(np.count_nonzero(~heavy[chosen])) / len(chosen)
    some = np.random.default_rng(0).permutation(chosen)[:TABLES]
    sums = np.zeros(3)
    for entry in some:
        table = table_at(graph, model.factors[model.target[entry]], int(owner[entry]))
        own = np.ptp(table, axis=0)
        sums += spans[entry], own.max(), own.mean()
    return sums[1] / sums[0], sums[2] / sums[0], share


def table_at(graph: mg.FactorGraph, factor: np.void, variable: int) -> np.ndarray:
    """Return a factor's values [value of the variable, values of the others]."""
    slots = graph.packed.slots[factor["scope_start"] : factor["scope_end"]]
    sizes = [int(size) for size in graph.sizes[slots["variable"]]]
    if factor["form"] == TABLE:
        steps = zip(slots["key"].astype(int), sizes, strict=True)
        grids = np.ix_(*(step * np.arange(size) for step, size in steps))
        values = factor["weight"] * graph.packed.table[factor["table_start"] + sum(grids)]
    else:
        values = np.zeros(sizes)
        values[tuple(slots["key"].astype(int))] = factor["weight"]
    axis = slots["variable"].tolist().index(variable)
    return np.moveaxis(values, axis, 0).reshape(sizes[axis], -1)


def update_gap(phi: np.ndarray, base: np.ndarray) -> tuple[float, float]:
    """Return the gap of one update with shifted factors phi[factor, value], and the kept draws."""
    energy = phi.sum(axis=0)
    distribution = np.exp(energy - energy.max())
    distribution /= distribution.sum()
    rates = base[:, None] + phi
    matrix = np.empty((len(distribution), len(distribution)))
    with np.errstate(divide="ignore"):
        logs = np.log(np.maximum(rates, 1e-300))
    for old in range(len(distribution)):
        counts, chance = poisson_grid(rates[:, old])
        weights = counts @ logs
        weights = np.exp(weights - weights.max(axis=1, keepdims=True))
        matrix[old] = chance @ (weights / weights.sum(axis=1, keepdims=True))
    root = np.sqrt(distribution)
    second = np.sort(np.linalg.eigvalsh(root[:, None] * matrix / root))[-2]
    return 1.0 - second, float(distribution @ rates.sum(axis=0))


def compare(values: int, theta: float, local: float, tables: int = 3) -> tuple[float, ...]:
    """Return means over random tables and neighbors: slowdowns, and kept shares of proposals."""
    rng, found = np.random.default_rng(1), []
    for _ in range(12):
        table = rng.normal(size=(tables, values, values))
        spans = np.ptp(table, axis=(1, 2))
        table *= local / tables / spans[:, None, None]
        spans = np.ptp(table, axis=(1, 2))
        low = table.min(axis=(1, 2))
        states = list(itertools.product(range(values), repeat=tables))
        for number in rng.choice(len(states), 6):
            phi = table[np.arange(tables), :, states[number]]
            plain = update_gap(phi - low[:, None], theta * spans)
            own = phi - phi.min(axis=1, keepdims=True)
            conditional = update_gap(own, theta * np.maximum(np.ptp(own, axis=1), 1e-9))
            proposals = (1 + theta) * spans.sum()
            found.append((1 / plain[0], 1 / conditional[0], plain[1], conditional[1], proposals))
    means = np.mean(found, axis=0)
    return means[0], means[1], means[2] / means[4], means[3] / means[4]


def guarantees(report: Report, name: str, graph: mg.FactorGraph) -> None:
    """Compare bounds and draws by the ranges M with those by the library's conditional ranges."""
    sampler = mg.PoissonGibbs()
    split = sampler.split(graph)
    report.add(
        f"{name}: bound on the default sampler's slowdown, by M and by conditional ranges",
        f"{np.exp(tail_log_slowdown(split.tail, split.theta).max()):.2f}, "
        f"{sampler.guaranteed_slowdown(graph):.2f}",
    )
    split = mg.PoissonGibbs(slowdown=1.5).split(graph)
    by_m = np.maximum(split.theta, tail_theta(split.tail, 1.5))
    draws = [float(((1 + theta) * split.tail).mean()) for theta in (by_m, split.theta)]
    report.add(
        f"{name}: draws per update for slowdown=1.5, by M and by conditional ranges",
        f"{draws[0]:.1f}, {draws[1]:.1f}",
    )
    swings = swing_sums(graph, split.heavy)
    fewer = (1 + tail_theta(swings, 1.5)) * swings
    report.add(f"{name}: the same if counts were drawn at rates by m", f"{float(fewer.mean()):.1f}")


def swing_sums(graph: mg.FactorGraph, heavy: np.ndarray) -> np.ndarray:
    """Return the sum of the conditional ranges of the minibatched factors, by variable."""
    rows, swings = graph.packed.rows, entry_spans(graph.packed)
    owner = np.repeat(np.arange(len(rows)), rows["end"] - rows["start"])
    place = np.arange(len(owner))
    stored = place < rows["unary_begin"][owner]
    tables = np.flatnonzero((place >= rows["pair_end"][owner]) & stored & ~heavy)
    swings[tables] = conditional_ranges(graph, tables, owner[tables])
    return np.bincount(owner, swings * (stored & ~heavy), minlength=len(rows))


def main() -> None:
    report = Report("conditional", "Conditional ranges of tables")
    models = {
        "random tables, 4 x 4 values": mg.models.random_tables(200, 15_000, states=4, scale=0.01),
        "random tables, 10 x 10 values": mg.models.random_tables(
            400, 40_000, states=10, scale=0.005
        ),
    }
    for path in sorted(DATA.glob("*/*.uai*")) if DATA.exists() else ():
        if path.name.endswith((".uai", ".uai.gz")):
            graph = mg.read(path)
            if graph.stats.max_degree >= LEAST_DEGREE and not len(graph.hard):
                models[path.name.removesuffix(".gz").removesuffix(".uai")] = graph
    for name, graph in models.items():
        largest, mean, share = ranges(graph)
        report.add(
            f"{name}: largest and mean conditional range over M; tables drawn by default",
            f"{largest:.2f}, {mean:.2f}; {share:.0%}",
        )
        if share:
            guarantees(report, name, graph)
    for values, theta, local in ((4, 0.3, 1.0), (4, 0.3, 3.0), (4, 2.0, 3.0)):
        plain, conditional, kept, fewer = compare(values, theta, local)
        report.add(
            f"three 4 x 4 tables, L = {local:g}, theta = {theta:g}: slowdown of an update with "
            "base rates theta M and theta m",
            f"{plain:.3f}, {conditional:.3f}",
        )
        report.add("  share of the proposals that are kept", f"{kept:.2f}, {fewer:.2f}")
    report.notes.append(
        "M is the range of a table over all states, and m its range along the updated variable "
        "given the others. The largest m fixes the guarantee. Slowdowns of an update are 1 over "
        "its spectral gap by enumeration, means over random tables and neighbors; that of plain "
        "Gibbs is 1. Both base rates make the same proposals."
    )
    report.write()
