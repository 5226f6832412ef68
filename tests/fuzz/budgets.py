"""Time limits on a busy machine: `python -m tests.fuzz budgets --cases 50 --seed 0`.

Every entry point that takes a time limit gets models of every class. Each call runs in a child that
is forked once everything is imported, while one process per core keeps the machine busy. Time that
Numba spends on compiling does not count. A limit holds if the call ends within 25% of it, or 2
seconds, whichever is more.
"""

from __future__ import annotations

import argparse
import os
import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import minigibbs as mg
from minigibbs.system.watch import Compiling
from tests.paths import DATA

QUIET = {"progress": False, "seed": 1}
SLACK, LEAST_SLACK = 0.25, 2.0


def dense_glass(spins: int) -> mg.FactorGraph:
    """A Sherrington-Kirkpatrick glass below its transition."""
    i, j = np.triu_indices(spins, 1)
    couplings = np.random.default_rng(1).normal(0, 1.5 / np.sqrt(spins), len(i))
    return mg.FactorGraph([2] * spins, [mg.Ising(i, j, couplings)])


def cubic_glass(side: int) -> mg.FactorGraph:
    """A 3D glass with couplings +-1."""
    sites = np.arange(side**3).reshape(side, side, side)
    pairs = [(sites.ravel(), np.roll(sites, -1, axis).ravel()) for axis in range(3)]
    i, j = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    signs = np.random.default_rng(1).choice([-1.0, 1.0], len(i))
    return mg.FactorGraph([2] * side**3, [mg.Ising(i, j, 1.2 * signs)])


def image(height: int, width: int) -> mg.FactorGraph:
    """A dense CRF."""
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 255, (height, width, 3), dtype=np.uint8)
    costs = rng.normal(0, 1, (3, height, width))
    return mg.models.dense_crf(pixels, costs=costs)


MODELS: dict[str, Callable[[], mg.FactorGraph]] = {
    "lattice 32": lambda: mg.models.ising_lattice(side=32, beta=0.44),
    "lattice 300": lambda: mg.models.ising_lattice(side=300, beta=0.3),
    "grid 18": lambda: mg.models.ising_lattice(side=18, beta=0.5, periodic=False),
    "glass 8^3": lambda: cubic_glass(8),
    "dense glass 400": lambda: dense_glass(400),
    "dense glass 1000": lambda: dense_glass(1000),
    "dense Potts": lambda: mg.models.potts_rbf(20, 10, 4.6),
    "dense CRF 20 x 30": lambda: image(20, 30),
    "dense CRF 40 x 50": lambda: image(40, 50),
    "dense CRF 60 x 80": lambda: image(60, 80),
    "dense CRF 240 x 320": lambda: image(240, 320),
    "Curie-Weiss 10^6": lambda: mg.models.curie_weiss(10**6, 1.2, implicit=True),
}
FILES = ["uai2014/Grids_11.uai", "uai2014/Segmentation_11.uai", "uai2014/CSP_11.uai"]


def _read(name: str) -> Callable[[], mg.FactorGraph]:
    return lambda: mg.read(DATA / name)


MODELS |= {Path(name).stem: _read(name) for name in FILES if (DATA / name).exists()}


def learnable(graph: mg.FactorGraph) -> tuple[mg.FactorGraph, Any]:
    """A model with a parameter per pair of a chain over as many spins, and data."""
    spins = min(len(graph), 400)
    chain = mg.Ising(range(spins - 1), range(1, spins), 0.0, name="J")
    rows = np.random.default_rng(1).integers(0, 2, (5000, spins))
    return mg.FactorGraph([2] * spins, [chain]), rows


def _learn(graph: mg.FactorGraph, limit: float, method: str) -> None:
    model, rows = learnable(graph)
    mg.learn(model, rows, method, max_time=limit, steps=10**6, **QUIET)


CALLS: dict[str, Callable[[mg.FactorGraph, float], Any]] = {
    "infer": lambda graph, limit: mg.infer(graph, limit, error=1e-6, **QUIET),
    "infer, sampled": lambda graph, limit: mg.infer(graph, limit, error=1e-6, exact=False, **QUIET),
    "maximize": lambda graph, limit: mg.maximize(graph, limit, **QUIET),
    "sample_until": lambda graph, limit: mg.sample_until(graph, ess=10**7, max_time=limit, **QUIET),
    "sample_until, tempering": lambda graph, limit: mg.sample_until(
        graph, mg.Tempering(), ess=10**7, max_time=limit, **QUIET
    ),
    "learn": lambda graph, limit: _learn(graph, limit, "pcd"),
    "learn, pseudo": lambda graph, limit: _learn(graph, limit, "pseudo"),
}


def allowed(limit: float) -> float:
    """When a call with this limit must have ended."""
    return limit + max(SLACK * limit, LEAST_SLACK)


def timed(call: str, model: str, limit: float) -> tuple[float, str]:
    """Seconds that a call takes in a child, without compiling, and what it refused, if it did."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        graph = MODELS[model]()
        begun, compiled = time.monotonic(), Compiling.seconds
        try:
            CALLS[call](graph, limit)
        except mg.MinigibbsError as error:
            said = str(error).replace("\n", " ")[:100]
        seconds = time.monotonic() - begun - (Compiling.seconds - compiled)
        os.write(writing, f"{seconds} {said}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    seconds, _, said = os.read(reading, 4096).decode().partition(" ")
    os.close(reading)
    return float(seconds or "inf"), said


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep the machine busy with processes that do nothing but compute."""
    children = []
    for _ in range(processes):
        child = os.fork()
        if child == 0:
            while True:
                sum(range(10**6))
        children.append(child)
    try:
        yield
    finally:
        for child in children:
            os.kill(child, 9)
            os.waitpid(child, 0)


def prepare() -> None:
    """Import what children need."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mg.infer(MODELS["lattice 32"](), 0.2, exact=False, **QUIET)


def chosen(seed: int, number: int, only: str = "") -> tuple[str, str, float]:
    """The call, the model and the limit of a case: every pair once before any comes again."""
    both = [(call, model) for call in CALLS for model in MODELS if only in f"{call}: {model}"]
    random.Random(seed).shuffle(both)
    limit = random.Random(f"budgets {seed} {number}").choice([1.0, 3.0, 5.0, 10.0])
    return *both[number % len(both)], limit


def campaign(seed: int, cases: int, only: str = "", load: bool = True) -> list[tuple[Any, ...]]:
    """Measure calls; returns (call, model, limit, seconds, refusal) of each."""
    prepare()
    todo = [chosen(seed, number, only) for number in range(cases)]
    for call, model in dict.fromkeys((call, model) for call, model, _ in todo):
        timed(call, model, 0.5)  # fills the cache on disk
    found = []
    with busy((os.cpu_count() or 1) if load else 0):
        for call, model, limit in todo:
            found.append((call, model, limit, *timed(call, model, limit)))
            late = "LATE" if found[-1][3] > allowed(limit) else ""
            print(f"{call:<24} {model:<18} {limit:>4g} s: {found[-1][3]:6.1f} s {late}", flush=True)
    return found


def main(arguments: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz budgets", description=__doc__)
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help='of "call: model"s, those that hold this text')
    parser.add_argument("--quiet", action="store_true", help="do not keep the machine busy")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    found = campaign(options.seed, options.cases, options.only, not options.quiet)
    late = [row for row in found if row[3] > allowed(row[2])]
    refused = [row for row in found if row[4]]
    print(f"{len(found)} calls, {len(late)} late, {len(refused)} refused")
    for row in refused:
        print("refused:", *row)
    return 1 if late else 0
