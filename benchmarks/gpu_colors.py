"""Chromatic scans on a GPU: updates per second of the runs that `mg.sample` makes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import minigibbs as mg
from benchmarks.report import Report
from benchmarks.sparse import thrml

DEFAULT = ("marginals", "energy")


def main() -> None:
    report = Report("gpu_colors", "Chromatic scans on a GPU", column="whole call")
    lattice, gibbs = mg.models.ising_lattice, mg.Gibbs()
    for side, chains, sweeps in ((64, 16_384, 2000), (1024, 256, 400)):
        name = f"Ising lattice {side} x {side}, {chains:,} chains"
        rates(report, name, lattice(side, 0.3), gibbs, chains, sweeps, 4e11)
    for side, chains in ((64, 16_384), (256, 256)):
        peer(report, side, chains)
    dense = mg.models.ising_rbf(implicit=False)
    for chains, bar in ((1_048_576, 1.2e11), (4_194_304, 0.0), (16_777_216, 1.6e11)):
        name = f"the paper's Ising model with its tail, {chains:,} chains"
        rates(report, name, dense, mg.PoissonGibbs(), chains, 20, bar)
    dense = mg.models.potts_rbf(implicit=False)
    for chains, bar in ((262_144, 0.0), (1_048_576, 0.0), (4_194_304, 5e10)):
        name = f"the paper's Potts model with its tail, {chains:,} chains"
        rates(report, name, dense, mg.PoissonGibbs(), chains, 20, bar)
    sites = tables(136, 5)
    for chains, bar in ((10_000, 3e9), (100_000, 6e9)):
        name = f"136 sites of 5 values, all joined by tables, {chains:,} chains"
        rates(report, name, sites, gibbs, chains, 100_000 // (chains // 100), bar)
    potts = mg.models.potts_lattice(256, 5, 0.8)
    rates(report, "Potts lattice 256 x 256 of 5 values, 1,024 chains", potts, gibbs, 1024, 200)
    rates(
        report, "Ising lattice 4,096 x 4,096, 32 chains", lattice(4096, 0.3), gibbs, 32, 100, 4e11
    )
    for side in (4096, 8192):
        name = f"Ising lattice {side:,} x {side:,}, 1 chain"
        rates(report, name, lattice(side, 0.3), gibbs, 1, 200, 5e10 if side == 8192 else 0.0)
    report.notes.append(
        "Updates a second of the chains (`run.info.seconds`), and of the whole second call, which "
        "places the model and brings all last states to the host. What is recorded is what a call "
        "records by default: marginals of all chains every sweep, energies of 64 chains as often "
        "as they cost little."
    )
    report.write()
    whole_call(report)
    report.write()
    observed(report)
    report.write()


def observed(report) -> None:
    """Measure the cost of observables of every sweep on 1,000 x 1,000 spins; runs alternate."""
    graph = mg.models.ising_lattice(1000, 0.44)
    waves = mg.observables.StructureFactor((1000, 1000))
    sets: dict[str, dict[str, Any]] = {
        "a magnetization": {"m": "magnetization"},
        "four moments of it and its histogram": {"m": "moments", "distribution": "histogram"},
        "an agreement": {"same": mg.observables.Agreement(np.arange(10**6) % 2)},
        "a structure factor": {"waves": waves},
        "an energy": {"e": "energy"},
    }
    for chains, sweeps in ((1, 2000), (32, 1000), (256, 200)):
        for record in ((), ("marginals",)):
            best: dict[str, float] = {}
            for seed in range(4):
                for name, observe in ({"": None} | sets).items():
                    run = mg.sample(
                        graph,
                        mg.Gibbs(),
                        sweeps=sweeps,
                        chains=chains,
                        scan="chromatic",
                        backend="cuda",
                        seed=seed,
                        record=mg.Record(*record, thin=1),
                        observe=observe,
                        progress=False,
                    )
                    best[name] = min(best.get(name, np.inf), run.info.seconds / sweeps * 1e6)
            for name in sets:
                ratio, held = best[name] / best[""], name == "a magnetization"
                report.add(
                    f"{name} of every sweep, 1,000 x 1,000 lattice, {chains} chains, "
                    f"{' and '.join(record) or 'nothing else'} recorded",
                    f"{best['']:.1f} us without, {best[name]:.1f} us with: {ratio:.3f}x",
                    "at most 1.1x" if held else "",
                    ratio <= 1.1 if held else None,
                )


def peer(report, side: int, chains: int, sweeps: int = 512) -> None:
    """Measure thrml, if it is installed: JAX on the same GPU."""
    graph = mg.models.ising_lattice(side, 0.3)
    rival = thrml(graph, 64, chains)
    if rival is None:
        return
    rival(1)
    begun = time.perf_counter()
    rate = rival(sweeps) / (time.perf_counter() - begun)
    report.add(f"thrml, Ising lattice {side} x {side}, {chains:,} chains", f"{rate:.2e} updates/s")


def whole_call(report) -> None:
    """Measure a million chains of the paper's Ising model, as a user writes it."""
    graph, chains, sweeps = mg.models.ising_rbf(implicit=False), 1_048_576, 200
    for seed in range(2):
        begun = time.perf_counter()
        run = mg.sample(
            graph, chains=chains, sweeps=sweeps, backend="cuda", seed=seed, progress=False
        )
        whole = time.perf_counter() - begun
    ratio = whole / run.info.seconds
    name = f"whole call over the device's own time, {chains:,} chains, {sweeps} sweeps"
    report.add(name, f"{ratio:.2f}", "at most 1.3", ratio <= 1.3, f"{whole:.2f} s")


def rates(report, name, graph, sampler, chains, sweeps, bar=0.0) -> None:
    """Time the second of two calls, without records and with the default records."""
    for record in ((), DEFAULT):
        options: dict[str, Any] = {"scan": "chromatic", "backend": "cuda", "chains": chains}
        if record is not DEFAULT:
            options["record"] = record
        best, whole = 0.0, 0.0
        for seed in range(2):
            begun = time.perf_counter()
            run = mg.sample(graph, sampler, sweeps=sweeps, seed=seed, progress=False, **options)
            whole = len(graph) * chains * sweeps / (time.perf_counter() - begun)
            best = max(best, len(graph) * chains * sweeps / run.info.seconds)
        share = bar if not record else bar * 2 / 3
        what = f"{name}, {' and '.join(record) or 'nothing recorded'}"
        wanted = f"at least {share:.2g}" if bar else ""
        met = best >= share if bar else None
        report.add(what, f"{best:.2e} updates/s", wanted, met, f"{whole:.1e}")


def tables(n: int, values: int) -> mg.FactorGraph:
    """Return sites that are all joined by tables, with fields."""
    rng, (i, j) = np.random.default_rng(0), np.triu_indices(n, 1)
    pairs = mg.Table(np.stack([i, j], 1), rng.normal(0.0, 0.02, (len(i), values, values)))
    fields = mg.Table(np.arange(n)[:, None], rng.normal(0.0, 0.3, (n, values)))
    return mg.FactorGraph([values] * n, [pairs, fields])


if __name__ == "__main__":
    main()
