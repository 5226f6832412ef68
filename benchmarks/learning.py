"""Learning: a Potts family, a Boltzmann machine and a million tied factors, peers beside us."""

from __future__ import annotations

import time

import numpy as np

import minigibbs as mg
from benchmarks.report import Report
from minigibbs.learning.chains import Threads
from minigibbs.learning.placing import model_chains

SITES, STATES, CHAINS, PEARSON = 136, 5, 1000, 0.95
VISIBLE, HIDDEN, MACHINE_CHAINS, MACHINE_SWEEPS = 784, 100, 500, 10


def main() -> None:
    report = Report("learning", "Learning weights")
    potts(report)
    machine(report)
    million(report)
    report.notes.append(
        "Potts: rows sampled from a known model with sparse couplings. Both start from couplings "
        "of 0 and fields of the observed frequencies, and stop at the same Pearson correlation of "
        "the connected pair correlations, which each measures on its own chains. adabmDCA with its "
        "defaults: 10 sweeps a gradient, rate 0.01. Times are those of the call, without imports."
    )
    report.write()


def planted(sites: int = SITES, states: int = STATES, seed: int = 1):
    """A Potts model whose sites are joined to those nearby and to two others, and its rows."""
    rng = np.random.default_rng(seed)
    i, j = np.triu_indices(sites, 1)
    strong = (j - i <= 2) | (rng.random(len(i)) < 2.0 / sites)
    tables = np.where(strong[:, None, None], rng.normal(0, 0.7, (len(i), states, states)), 0.0)
    graph = mg.FactorGraph(
        [states] * sites,
        [
            mg.Table(np.stack([i, j], axis=1), tables, name="J"),
            mg.Unary(range(sites), rng.normal(0, 0.5, (sites, states)), name="h"),
        ],
    )
    run = mg.sample(
        graph,
        chains=20,
        sweeps=2500,
        warmup=500,
        record=mg.Record("draws", thin=10),
        seed=1,
        progress=False,
    )
    return graph, run.draws.reshape(-1, sites)


def potts(report: Report) -> None:
    graph, rows = planted()
    seconds, fit = ours(graph, rows)
    shown = f"{seconds:.1f} s, {fit.steps} steps, Pearson {fit.pearson:.3f}"
    name = f"Potts, {SITES} sites, {STATES} states, {CHAINS} chains, to Pearson {PEARSON}"
    theirs = adabmdca(rows)
    if theirs is None:
        report.add(name, shown, "adabmDCA is not installed")
        return
    ratio = theirs / seconds
    report.add(name, shown, "a fifth of adabmDCA's time", ratio >= 5)
    report.add("the same, adabmDCA", f"{theirs:.1f} s, {ratio:.1f} times ours")


def ours(graph, rows):
    """Seconds of a call of `mg.learn` to the Pearson correlation."""
    shares = np.stack([(rows == value).mean(axis=0) for value in range(STATES)], axis=1)
    start = {"J": 0.0, "h": np.log(shares + 1e-3)}
    mg.learn(
        graph,
        rows[:50],
        start=start,
        steps=2,
        chains=CHAINS,
        errors=False,
        l2=0.1,
        seed=1,
        progress=False,
    )  # compiled
    begun = time.perf_counter()
    fit = mg.learn(
        graph,
        rows,
        start=start,
        chains=CHAINS,
        sweeps=5,
        steps=2000,
        rate=0.02,
        decay=500,
        pearson=PEARSON,
        l2=1e-4,
        errors=False,
        seed=1,
        progress=False,
    )
    return time.perf_counter() - begun, fit


def adabmdca(rows) -> float | None:
    """Seconds of adabmDCA's training on a full graph, on the processor."""
    try:
        import torch
        from adabmDCA.sampling import get_sampler
        from adabmDCA.stats import get_freq_single_point, get_freq_two_points
        from adabmDCA.training import train_graph
        from adabmDCA.utils import init_chains, init_parameters
    except ImportError:
        return None
    torch.manual_seed(0)
    data = torch.nn.functional.one_hot(torch.from_numpy(rows.astype(np.int64)), STATES).float()
    single, pairs = get_freq_single_point(data), get_freq_two_points(data)
    params = init_parameters(single)
    chains = init_chains(CHAINS, SITES, STATES, device=single.device, dtype=single.dtype, fi=single)
    mask = torch.ones(SITES, STATES, SITES, STATES, dtype=torch.bool)
    mask[torch.arange(SITES), :, torch.arange(SITES), :] = False
    begun = time.perf_counter()
    train_graph(
        sampler=get_sampler("gibbs"),
        chains=chains,
        mask=mask,
        fi_target=single,
        fij_target=pairs,
        params=params,
        nsweeps=10,
        lr=0.01,
        max_epochs=2000,
        target_pearson=PEARSON,
    )
    return time.perf_counter() - begun


def machine(report: Report, steps: int = 20) -> None:
    """Gradient steps a second of a restricted Boltzmann machine, PCD-10."""
    rng = np.random.default_rng(0)
    images = (rng.random((2000, VISIBLE)) < rng.random(VISIBLE)).astype(int)
    visible, hidden = np.meshgrid(np.arange(VISIBLE), VISIBLE + np.arange(HIDDEN), indexing="ij")
    graph = mg.FactorGraph(
        [2] * (VISIBLE + HIDDEN),
        [
            mg.Ising(
                visible.ravel(), hidden.ravel(), 0.01 * rng.normal(size=visible.size), name="W"
            ),
            mg.Unary(range(VISIBLE + HIDDEN), np.zeros((VISIBLE + HIDDEN, 2)), name="b"),
        ],
    )
    options = {
        "columns": range(VISIBLE),
        "chains": MACHINE_CHAINS,
        "sweeps": MACHINE_SWEEPS,
        "l2": 1e-4,
        "errors": False,
        "seed": 1,
        "progress": False,
    }
    mg.learn(graph, images, steps=2, **options)
    fit = mg.learn(graph, images, steps=steps, **options)
    rate = fit.steps / fit.seconds
    theirs = rbms(images, steps)
    name = f"Boltzmann machine {VISIBLE} x {HIDDEN}, {MACHINE_CHAINS} chains, PCD-{MACHINE_SWEEPS}"
    if theirs is None:
        report.add(name, f"{rate:.2f} steps/s", "rbms is not installed")
    else:
        report.add(name, f"{rate:.2f} steps/s", f"rbms: {theirs:.2f}", rate >= theirs)


def rbms(images, steps: int) -> float | None:
    """Gradient steps a second of the package rbms, on the processor."""
    try:
        import torch
        from rbms.bernoulli_bernoulli.classes import BBRBM
        from rbms.training.pcd import fit_batch_pcd
    except ImportError:
        return None
    torch.manual_seed(0)
    data = torch.from_numpy(images).float()
    params = BBRBM(0.01 * torch.randn(VISIBLE, HIDDEN), torch.zeros(VISIBLE), torch.zeros(HIDDEN))
    optimiser = torch.optim.SGD(params.parameters(), lr=0.01)
    chains = params.init_chains(MACHINE_CHAINS)
    begun = 0.0
    for step in range(steps + 2):
        if step == 2:
            begun = time.perf_counter()
        batch = data[torch.randint(len(data), (MACHINE_CHAINS,))], torch.ones(MACHINE_CHAINS, 1)
        chains, _ = fit_batch_pcd(batch, chains, params, MACHINE_SWEEPS, 1.0)
        optimiser.step()
    return steps / (time.perf_counter() - begun)


def million(report: Report, factors: int = 1_000_000) -> None:
    """A gradient step on a million tied factors, against a sweep of the same chains alone."""
    rng = np.random.default_rng(0)
    count = factors // 2
    i, j = rng.integers(0, count, (2, factors))
    j = np.where(i == j, (j + 1) % count, j)
    pairs = mg.Ising(i, j, 0.0, name="J", tied=rng.integers(0, 100, factors))
    graph = mg.FactorGraph([2] * count, [pairs])
    observed = {int(v): int(rng.integers(2)) for v in rng.choice(count, count // 2, replace=False)}
    given = graph.condition(observed)
    chains = model_chains(graph, None, 4, 1, Threads(2))
    chains.take(graph.frame.flat(graph.factors))
    chains.advance(1)
    begun = time.perf_counter()
    chains.advance(5)
    sweep = (time.perf_counter() - begun) / 5
    options = {"chains": 4, "errors": False, "l2": 1e-6, "seed": 1, "progress": False}
    mg.learn(given, steps=1, **options)
    fit = mg.learn(given, steps=5, **options)
    step = fit.seconds / fit.steps
    report.add(
        f"{factors:,} tied factors, half the variables observed, 4 chains: a step",
        f"{1e3 * step:.0f} ms, {step / sweep:.1f} sweeps",
        "3 sweeps",
        step <= 3 * sweep,
    )


if __name__ == "__main__":
    main()
