"""Sparse models: chromatic scans against other libraries, in one run."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import minigibbs as mg
from benchmarks.report import Report
from minigibbs.running.request import DEFAULT_RECORD

BETA = 0.3
ROUNDS = 5
SECONDS = 0.3  # approximate time of a turn

# Makes a number of sweeps; returns the number of updates, and their time if it is known.
Rival = Callable[[int], int | tuple[int, float]]


def main() -> None:
    report = Report("sparse", "Sparse models by color, in lockstep and on threads")
    report.notes.append(
        "Nanoseconds an update, the best of five turns that rivals take one after the other. Ours "
        'are whole calls of mg.sample(..., scan="chromatic", record="marginals"), without '
        "compiling. mcising and peapods make Metropolis updates, and know lattices alone; "
        "ferrotherm and thrml (JAX, on all cores) make chromatic Gibbs updates, dwave-samplers "
        "Gibbs updates in a random order."
    )
    one_chain(report)
    many_chains(report)
    threads(report)
    recording(report)
    report.write()


def lattice(side: int) -> mg.FactorGraph:
    return mg.models.ising_lattice(side, BETA)


def glass(side: int) -> mg.FactorGraph:
    """Return a spin glass in three dimensions, with Gaussian couplings."""
    site = np.arange(side**3).reshape(side, side, side)
    pairs = [(site.ravel(), np.roll(site, 1, axis).ravel()) for axis in range(3)]
    i, j = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    coupling = 0.5 * np.random.default_rng(0).normal(size=len(i))
    return mg.FactorGraph(np.full(side**3, 2), [mg.Ising(i, j, coupling)])


def random_graph(n: int) -> mg.FactorGraph:
    """Return a random graph of mean degree 16."""
    rng = np.random.default_rng(0)
    i = rng.integers(0, n, 8 * n)
    j = (i + rng.integers(1, n, 8 * n)) % n
    return mg.FactorGraph(np.full(n, 2), [mg.Ising(i, j, 0.1 * rng.normal(size=8 * n))])


def learned(sites: int = 136, values: int = 5) -> mg.FactorGraph:
    """Return a fully connected model with one table per pair, like learned models."""
    rng = np.random.default_rng(0)
    scope = np.stack(np.triu_indices(sites, 1), axis=1)
    tables = rng.normal(0, 0.02, (len(scope), values, values))
    fields = mg.Unary(np.arange(sites), rng.normal(0, 0.3, (sites, values)))
    return mg.FactorGraph([values] * sites, [mg.Table(scope, tables), fields])


def ours(
    graph: mg.FactorGraph,
    chains: int = 1,
    threads: int = 1,
    scan: str | None = "chromatic",
    record: Any = "marginals",
) -> Rival:
    """Measure whole calls of `mg.sample`."""

    def run(sweeps: int) -> int:
        made = mg.sample(
            graph,
            sweeps=sweeps,
            chains=chains,
            threads=threads,
            seed=1,
            scan=scan,
            record=record,
            progress=False,
        )
        return made.info.updates

    return run


def ferrotherm(graph: mg.FactorGraph) -> Rival | None:
    if not (library := _library("ferrotherm")):
        return None
    (group,) = graph.factors
    model = library.Model(len(graph))
    edges = zip(*group.scope.T.tolist(), group.coupling.tolist(), strict=True)
    model.couple_many(edges)
    sim = model.build(beta=1.0, seed=1)

    def run(sweeps: int) -> int:
        sim.sweep(sweeps, threads=1)
        return sweeps * len(graph)

    return run


def mcising(side: int) -> Rival | None:
    if not (library := _library("mcising")):
        return None
    sim = library.IsingSimulation(side, 1.0, 0.0, 0.0, 0.0, 1)

    def run(sweeps: int) -> int:
        sim.sweep(sweeps, temperature=1 / BETA)
        return sweeps * side * side

    return run


def peapods(side: int) -> Rival | None:
    if not (library := _library("peapods")):
        return None
    model = library.Ising((side, side), temperatures=np.array([1 / BETA]))

    def run(sweeps: int) -> int:
        model.sample(sweeps, warmup_ratio=0.0, sequential=True)
        return sweeps * side * side

    return run


def dwave(graph: mg.FactorGraph) -> Rival | None:
    try:
        import dimod
        from dwave.samplers import SimulatedAnnealingSampler
    except ImportError:
        return None
    (group,) = graph.factors
    i, j = group.scope.T
    couplings = (i, j, -group.coupling)
    model = dimod.BinaryQuadraticModel.from_numpy_vectors(
        np.zeros(len(graph)), couplings, 0.0, "SPIN"
    )
    sampler = SimulatedAnnealingSampler()

    def run(sweeps: int) -> tuple[int, float]:
        found = sampler.sample(
            model,
            num_reads=1,
            num_sweeps=sweeps,
            beta_range=(1.0, 1.0),
            proposal_acceptance_criteria="Gibbs",
            seed=1,
        )
        return sweeps * len(graph), 1e-9 * found.info["timing"]["sampling_ns"]

    return run


def thrml(graph: mg.FactorGraph, together: int = 16, chains: int = 0) -> Rival | None:
    """Run two-color Gibbs in JAX, `together` sweeps per call, since each number compiles again.

    One chain runs on the CPU, or many on the device that JAX finds.
    """
    if not _library("thrml"):
        return None
    import jax
    from thrml import Block, SamplingSchedule, SpinNode, sample_states
    from thrml.models import IsingEBM, IsingSamplingProgram

    if not chains:
        jax.config.update("jax_platforms", "cpu")
    (group,) = graph.factors
    nodes = [SpinNode() for _ in range(len(graph))]
    edges = [(nodes[i], nodes[j]) for i, j in group.scope.tolist()]
    model = IsingEBM(
        nodes,
        edges,
        jax.numpy.zeros(len(graph)),
        jax.numpy.array(group.coupling),
        jax.numpy.ones(()),
    )
    color = graph.colors.color
    blocks = [Block([nodes[i] for i in np.flatnonzero(color == c)]) for c in np.unique(color)]
    program = IsingSamplingProgram(model, blocks, clamped_blocks=[])
    schedule = SamplingSchedule(n_warmup=together - 1, n_samples=1, steps_per_sample=1)

    def sweep(key, state):
        kept = sample_states(key, program, schedule, state, [], blocks)
        return [values[0] for values in kept]

    shape = (chains,) if chains else ()
    state = [jax.numpy.zeros((*shape, len(block)), bool) for block in blocks]
    advance, key = jax.jit(jax.vmap(sweep) if chains else sweep), jax.random.key(1)

    def run(sweeps: int) -> int:
        nonlocal state, key
        calls = -(-sweeps // together)
        for _ in range(calls):
            key, own = jax.random.split(key)
            state = advance(jax.random.split(own, chains) if chains else own, state)
        jax.block_until_ready(state)
        return calls * together * len(graph) * max(chains, 1)

    return run


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def race(rivals: dict[str, Rival | None]) -> dict[str, float]:
    """Return the best nanoseconds per update of each rival, without the cost of a call."""
    there = {name: rival for name, rival in rivals.items() if rival is not None}
    sweeps = {name: _enough(rival) for name, rival in there.items()}
    best = dict.fromkeys(there, np.inf)
    for _ in range(ROUNDS):
        for name, rival in there.items():
            long, short = _seconds(rival, sweeps[name]), _seconds(rival, 1)
            made = long[1] - short[1]
            best[name] = min(best[name], 1e9 * (long[0] - short[0]) / max(made, 1))
    return best


def _seconds(rival: Rival, sweeps: int) -> tuple[float, int]:
    begun = time.perf_counter()
    made = rival(sweeps)
    if isinstance(made, tuple):
        return made[1], made[0]
    return time.perf_counter() - begun, made


def _enough(rival: Rival) -> int:
    """Return a number of sweeps that takes long enough, after a first call that may compile."""
    rival(1)
    sweeps = 2
    while _seconds(rival, sweeps)[0] - _seconds(rival, 1)[0] < SECONDS:
        sweeps *= 2
    return sweeps


def one_chain(report: Report) -> None:
    """Measure one chain on one core."""
    for side in (300, 1000):
        graph = lattice(side)
        best = race(
            {
                "ours": ours(graph),
                "systematic": ours(graph, scan="systematic"),
                "ferrotherm": ferrotherm(graph),
                "mcising": mcising(side),
                "peapods": peapods(side),
                "dwave-samplers": dwave(graph),
                "thrml": thrml(graph) if side == 300 else None,  # its nodes are Python objects
            }
        )
        _rows(report, f"one chain, lattice {side} x {side}", best, {"ferrotherm": 2.0})
    models = (("3D spin glass 64^3", glass(64)), ("degree 16, 1e6 variables", random_graph(10**6)))
    for name, graph in models:
        best = race({"ours": ours(graph), "ferrotherm": ferrotherm(graph), "dwave": dwave(graph)})
        _rows(report, f"one chain, {name}", best)
    potts = mg.models.potts_lattice(300, 5, 0.5)
    best = race({"ours": ours(potts), "systematic": ours(potts, scan="systematic")})
    _rows(report, "one chain, Potts lattice 300 x 300 of 5 values", best)


def _rows(
    report: Report, name: str, best: dict[str, float], ahead: dict[str, float] | None = None
) -> None:
    """Add our row first, then each rival with its time relative to ours."""
    report.add(f"{name}: an update", f"{best['ours']:.2f} ns")
    for rival, taken in best.items():
        if rival != "ours":
            ratio, least = taken / best["ours"], (ahead or {}).get(rival, 1.0)
            what = f"  {rival}, and how many times ours"
            if taken <= 0.0:
                report.add(what, "lost in the noise of its set-up", f"{least:g}")
                continue
            report.add(what, f"{taken:.1f} ns, {ratio:.2f}", f"{least:g}", ratio >= least)


def many_chains(report: Report) -> None:
    """Measure vectorized chains, per chain-update."""
    cases = (
        ("64 chains on a core, lattice 300 x 300", lattice(300), 64, 1, 1.2),
        ("64 chains on a core, degree 16, 1e5 variables", random_graph(10**5), 64, 1, 2.0),
        ("64 chains on a core, the paper's dense Ising model", mg.models.ising_rbf(), 64, 1, 6.0),
        ("128 chains on two cores, 136 sites, tables of 5 x 5", learned(), 128, 2, 80.0),
    )
    for name, graph, chains, threads, most in cases:
        (best,) = race({name: ours(graph, chains, threads)}).values()
        report.add(f"{name}: a chain-update", f"{best:.2f} ns", f"{most:g} ns", best <= most)


def threads(report: Report) -> None:
    """Measure one chain of 1e7 variables."""
    graph, best = lattice(3162), {1: np.inf, 2: np.inf}
    options = {"scan": "chromatic", "chains": 1, "seed": 1, "record": (), "progress": False}
    for _ in range(3):  # the chain's own time: a call of 1e7 variables is mostly preparation
        for count in best:
            run = mg.sample(graph, mg.Gibbs(), sweeps=12, threads=count, **options)
            best[count] = min(best[count], run.info.seconds / 12 / len(graph) * 1e9)
    gain = best[1] / best[2]
    report.add("one chain of 1e7 variables, one thread", f"{best[1]:.2f} ns")
    report.add("  two threads", f"{best[2]:.2f} ns, {gain:.2f} times", "1.8", gain >= 1.8)


def recording(report: Report) -> None:
    """Measure the cost of recording marginals and energies, the default, in addition to a chain."""
    models = {
        "Potts lattice 1,000 x 1,000 of 10 values": mg.models.potts_lattice(1000, 10, 0.5),
        "Ising lattice 1,000 x 1,000": lattice(1000),
    }
    for name, graph in models.items():
        for scan in (None, "systematic", "random"):
            kept = ours(graph, scan=scan, record=DEFAULT_RECORD)
            best = race({"bare": ours(graph, scan=scan, record=()), "kept": kept})
            ratio = best["kept"] / best["bare"]
            order = "default" if scan is None else scan
            what = f"recording, {name}, {order} scan: an update without and with, and the ratio"
            shown = f"{best['bare']:.1f} and {best['kept']:.1f} ns, {ratio:.2f}"
            report.add(what, shown, "1.33", ratio <= 1.33)
