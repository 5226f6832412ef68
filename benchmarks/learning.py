"""Learning, compared with peers: a Potts family, a Boltzmann machine, a million tied factors.

The peers need PyTorch. LEARNING_PEERS names a Python that has adabmDCA and rbms. If they are only
in a folder, because nothing can be installed on the machine, LEARNING_PEERS_PATH names the folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import minigibbs as mg
from benchmarks.report import Report
from minigibbs.learning.chains import Threads
from minigibbs.learning.placing import model_chains

SITES, STATES, CHAINS, PEARSON = 136, 5, 1000, 0.95
VISIBLE, HIDDEN, MACHINE_CHAINS, MACHINE_SWEEPS = 784, 100, 500, 10
ROWS, PATIENCE = 5000, 600  # rows of data; time limit of a peer in seconds


def main() -> None:
    report = Report("learning", "Learning weights")
    warnings.simplefilter("ignore")  # pairs of values that no row has: the same for both
    machine(report)
    million(report)
    potts(report, CHAINS, "cpu")
    report.notes.append(NOTE)
    report.write()


NOTE = (
    "Potts: rows sampled from a known model, with contacts and two patterns that all sites share. "
    "Both start from tables of 0 and fields of the observed frequencies, and stop when the "
    "connected pair correlations of their own chains reach the Pearson correlation; what was "
    "learned is then sampled anew by 5,000 fresh chains. Ours is a call with defaults, adabmDCA "
    "has its own: 10 sweeps a gradient, rate 0.01, Gibbs, with Triton kernels on a GPU. Times are "
    "those of the call, without imports and compiling; ours is the middle one of three. Ours looks "
    "at moments over the last steps, adabmDCA at those of one state of its chains, which are "
    "noisier: hence the row on fresh chains. Where a peer did not arrive in its time, its time is "
    "a lower bound. Updates a second are those of 10 sweeps of all chains, and of nothing else."
)


def planted(sites: int = SITES, states: int = STATES, seed: int = 1):
    """Return a family: contacts of neighbors and of partners, two patterns common to all sites."""
    rng, (i, j) = np.random.default_rng(seed), np.triu_indices(sites, 1)
    contact = (j - i == 1) | (i + j == sites - 1)
    patterns = rng.normal(0, 1, (2, sites, states))
    patterns -= patterns.mean(axis=2, keepdims=True)
    tables = 1.6 / sites * np.einsum("kpa,kpb->pab", patterns[:, i], patterns[:, j])
    tables += np.where(contact[:, None, None], rng.normal(0, 1, tables.shape), 0.0)
    pairs = mg.Table(np.stack([i, j], axis=1), tables, name="J")
    fields = mg.Unary(range(sites), rng.normal(0, 0.5, (sites, states)), name="h")
    return mg.FactorGraph([states] * sites, [pairs, fields])


def drawn(graph, chains: int, seed: int, sweeps: int = 300):
    """Return states of new chains after a number of sweeps."""
    made = model_chains(graph, None, chains, seed, Threads(None))
    made.set_weights(graph.frame.flat(graph.factors))
    made.sweep(sweeps)
    return made.states()


def connected(states):
    """Return the connected pair correlations of some rows."""
    rows, sites = states.shape
    ones = np.eye(STATES, dtype=np.float32)[states].reshape(rows, -1)
    share = ones.mean(axis=0)
    found = (ones.T @ ones / rows - np.outer(share, share)).reshape(sites, STATES, sites, STATES)
    i, j = np.triu_indices(sites, 1)
    return found[i, :, j, :].ravel()


def checked(graph, rows) -> float:
    """Return the Pearson correlation of new chains of a learned model."""
    fresh = drawn(graph, 5000, 7, 100)
    return float(np.corrcoef(connected(fresh), connected(rows))[0, 1])


def potts(report: Report, chains: int, backend: str, patience: float = PATIENCE) -> None:
    """Compare whole calls up to the Pearson correlation, ours and then adabmDCA's."""
    graph = planted()
    rows = drawn(graph, ROWS, 1)
    blank = graph.with_parameters({"J": 0.0, "h": 0.0})
    options = {"chains": chains, "errors": False, "seed": 1, "progress": False, "backend": backend}
    mg.learn(blank, rows[:50], steps=10, **options)  # compiles
    seconds, fit = middle(lambda: mg.learn(blank, rows, pearson=PEARSON, **options))
    name = f"Potts, {SITES} sites, {STATES} states, {chains:,} chains, to Pearson {PEARSON}"
    shown = (
        f"{seconds:.2f} s, {fit.steps} steps, Pearson {fit.pearson:.3f}, "
        f"anew {checked(fit.graph, rows):.3f}"
    )
    report.add(name, shown)
    rate = sampling_rate(fit.graph, chains, backend)
    theirs = peer(
        "potts", patience, rows=rows, chains=chains, states=STATES, cuda=backend == "cuda"
    )
    if theirs is None:
        report.add("the same, adabmDCA", "not at hand")
        report.add("updates a second of the chains alone", f"{rate:.2g}")
        return
    ratio, least = theirs["seconds"] / seconds, "" if theirs["arrived"] else "at least "
    anew, early, good = first_good(graph, rows, theirs)
    report.add(
        "the same, adabmDCA",
        f"{theirs['seconds']:.2f} s, {theirs['steps']} steps, Pearson {theirs['pearson']:.3f}, "
        f"anew {anew:.3f}: {least}{ratio:.1f} times ours",
        "5 times ours",
        ratio >= 5,
    )
    report.add(
        f"adabmDCA until fresh chains of what it has learned give {PEARSON}",
        f"{early:.2f} s: {'' if good else 'at least '}{early / seconds:.1f} times ours",
        "5 times ours",
        early >= 5 * seconds,
    )
    report.add(
        "a gradient step of each",
        f"{1e3 * fit.seconds / fit.steps:.1f} ms, adabmDCA "
        f"{1e3 * theirs['seconds'] / theirs['steps']:.1f} ms with 10 sweeps",
    )
    report.add(
        "updates a second of the chains alone",
        f"{rate:.2g}, adabmDCA {theirs['rate']:.2g} ({theirs['sampler']})",
    )


def first_good(graph, rows, theirs):
    """Recompute the Pearson correlation of its last weights; find when it reached the goal."""
    found: dict[int, float] = {}

    def anew(k: int) -> float:
        if k not in found:
            learned = graph.with_parameters({"J": theirs["J"][k], "h": theirs["h"][k]})
            found[k] = checked(learned, rows)
        return found[k]

    low, high = -1, len(theirs["times"]) - 1  # it nearly increases: bisect
    last, good = anew(high), anew(high) >= PEARSON
    while good and high - low > 1:
        mid = (low + high) // 2
        low, high = (low, mid) if anew(mid) >= PEARSON else (mid, high)
    return last, float(theirs["times"][high]), good


def middle(work):
    """Return the median of three times of some work in seconds, and its result."""
    found = []
    for _ in range(3):
        begun = time.perf_counter()
        made = work()
        found.append((time.perf_counter() - begun, made))
    return sorted(found, key=lambda one: one[0])[1]


def sampling_rate(graph, chains: int, backend: str, sweeps: int = 10) -> float:
    """Return updates per second of a learned model's chains, from ten sweeps."""
    made = model_chains(graph, None, chains, 1, Threads(None), backend)
    made.set_weights(graph.frame.flat(graph.factors))
    made.sweep(sweeps)
    _ = made.states()  # waits for a GPU
    begun = time.perf_counter()
    made.sweep(sweeps)
    if backend == "cuda":
        from numba import cuda

        cuda.synchronize()
    return sweeps * chains * len(graph) / (time.perf_counter() - begun)


def peer(what: str, patience: float = PATIENCE, **given):
    """Return what `learning_peers` measured in the peers' environment; None if they are missing."""
    python = os.environ.get("LEARNING_PEERS", sys.executable)
    script = Path(__file__).with_name("learning_peers.py")
    folders = [os.environ.get(name) for name in ("LEARNING_PEERS_PATH", "PYTHONPATH")]
    paths = os.pathsep.join(filter(None, folders))
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "in.npz", patience=patience, pearson=PEARSON, **given)
        done = subprocess.run(
            [python, "-P", "-W", "ignore", str(script), what, folder],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": paths},
        )
        if done.returncode:
            print(f"  {what}: {done.stderr.strip()[-2000:]}", flush=True)
            return None
        arrays = np.load(Path(folder) / "out.npz")
        return {**json.loads(done.stdout.splitlines()[-1]), **arrays}


def machine(report: Report, steps: int = 20) -> None:
    """Measure gradient steps per second of a restricted Boltzmann machine, PCD-10."""
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
    theirs = peer("machine", images=images, hidden=HIDDEN, chains=MACHINE_CHAINS, steps=steps)
    name = f"Boltzmann machine {VISIBLE} x {HIDDEN}, {MACHINE_CHAINS} chains, PCD-{MACHINE_SWEEPS}"
    if theirs is None:
        report.add(name, f"{rate:.2f} steps/s", "rbms is not at hand")
    else:
        most = theirs["rate"]
        report.add(name, f"{rate:.2f} steps/s", f"rbms: {most:.2f}", rate >= most)


def million(report: Report, factors: int = 1_000_000) -> None:
    """Compare a gradient step on a million tied factors with only a sweep of the same chains."""
    rng = np.random.default_rng(0)
    count = factors // 2
    i, j = rng.integers(0, count, (2, factors))
    j = np.where(i == j, (j + 1) % count, j)
    pairs = mg.Ising(i, j, 0.0, name="J", tied=rng.integers(0, 100, factors))
    graph = mg.FactorGraph([2] * count, [pairs])
    observed = {int(v): int(rng.integers(2)) for v in rng.choice(count, count // 2, replace=False)}
    given = graph.condition(observed)
    chains = model_chains(graph, None, 4, 1, Threads(2))
    chains.set_weights(graph.frame.flat(graph.factors))
    chains.sweep(1)
    begun = time.perf_counter()
    chains.sweep(5)
    sweep = (time.perf_counter() - begun) / 5
    options = {"chains": 4, "errors": False, "l2": 1e-6, "seed": 1, "progress": False}
    mg.learn(given, steps=1, **options)
    fit = mg.learn(given, steps=20, **options)
    step = fit.seconds / fit.steps
    report.add(
        f"{factors:,} tied factors, half the variables observed, 4 chains: a step",
        f"{1e3 * step:.0f} ms, {step / sweep:.1f} sweeps",
        "3 sweeps",
        step <= 3 * sweep,
    )


if __name__ == "__main__":
    main()
