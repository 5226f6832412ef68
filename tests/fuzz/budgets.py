"""Time limits on a loaded machine: `python -m tests.fuzz budgets --cases 50 --seed 0`.

Every entry point that takes a time limit gets models of every class. Each call runs in a child that
is forked once everything is imported, while one process per core keeps the machine busy. Time that
Numba spends on compiling does not count. A limit holds if the call ends within 25% of it, or 2
seconds, whichever is more. The processor time after the limit tells phases that ignore the clock
from a machine that is so busy that a process hardly runs.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
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
    """Return a Sherrington-Kirkpatrick glass below its transition temperature."""
    i, j = np.triu_indices(spins, 1)
    couplings = np.random.default_rng(1).normal(0, 1.5 / np.sqrt(spins), len(i))
    return mg.FactorGraph([2] * spins, [mg.Ising(i, j, couplings)])


def cubic_glass(side: int) -> mg.FactorGraph:
    """Return a 3D glass with couplings +-1."""
    sites = np.arange(side**3).reshape(side, side, side)
    pairs = [(sites.ravel(), np.roll(sites, -1, axis).ravel()) for axis in range(3)]
    i, j = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    signs = np.random.default_rng(1).choice([-1.0, 1.0], len(i))
    return mg.FactorGraph([2] * side**3, [mg.Ising(i, j, 1.2 * signs)])


def image(height: int, width: int) -> mg.FactorGraph:
    """Return a dense CRF."""
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
    """Return a chain of spins with one parameter per pair, and data."""
    spins = min(len(graph), 400)
    chain = mg.Ising(range(spins - 1), range(1, spins), 0.0, name="J")
    rows = np.random.default_rng(1).integers(0, 2, (5000, spins))
    return mg.FactorGraph([2] * spins, [chain]), rows


Limited = Callable[[float], Any]  # a call with a time limit


def _learn(graph: mg.FactorGraph, method: str) -> Limited:
    model, rows = learnable(graph)
    return lambda limit: mg.learn(model, rows, method, max_time=limit, steps=10**6, **QUIET)


def _structure(graph: mg.FactorGraph, method: str) -> Limited:
    _, rows = learnable(graph)
    return lambda limit: mg.learn_structure(
        rows, method, max_time=limit, bootstrap=1000, restarts=1000, **QUIET
    )


def _likelihood(graph: mg.FactorGraph) -> Limited:
    _, rows = learnable(graph)
    rows = rows[:, :80]
    i, j = np.triu_indices(rows.shape[1], 1)
    model = mg.FactorGraph([2] * rows.shape[1], [mg.Ising(i, j, 0.0, name="J")])
    fit = mg.learn(model, rows, steps=10, **QUIET)
    return lambda limit: fit.log_likelihood(rows, standard_error=1e-6, max_time=limit)


def _resume(graph: mg.FactorGraph) -> Limited:
    folder = Path(tempfile.mkdtemp(prefix="minigibbs-budget-")) / "run"
    for max_time in (0.5, 5.0, 50.0):
        try:
            mg.sample_until(graph, ess=10**7, max_time=max_time, checkpoint=folder, **QUIET)
            break
        except mg.SampleError:  # the time was over before the first states
            shutil.rmtree(folder, ignore_errors=True)
    return lambda limit: mg.resume(folder, max_time=limit, progress=False)


# By name: preparation of a call for a model, which is not timed.
CALLS: dict[str, Callable[[mg.FactorGraph], Limited]] = {
    "infer": lambda graph: lambda limit: mg.infer(graph, limit, standard_error=1e-6, **QUIET),
    "infer, sampled": lambda graph: (
        lambda limit: mg.infer(graph, limit, standard_error=1e-6, exact=False, **QUIET)
    ),
    "maximize": lambda graph: lambda limit: mg.maximize(graph, limit, **QUIET),
    "sample_until": lambda graph: (
        lambda limit: mg.sample_until(graph, ess=10**7, max_time=limit, **QUIET)
    ),
    "sample_until, tempering": lambda graph: (
        lambda limit: mg.sample_until(graph, mg.Tempering(), ess=10**7, max_time=limit, **QUIET)
    ),
    "resume": _resume,
    "learn": lambda graph: _learn(graph, "pcd"),
    "learn, pseudo": lambda graph: _learn(graph, "pseudo"),
    "learn_structure": lambda graph: _structure(graph, "tree"),
    "learn_structure, pairwise": lambda graph: _structure(graph, "pairwise"),
    "learn_structure, network": lambda graph: _structure(graph, "network"),
    "log_likelihood": _likelihood,
}
# These calls use only the number of variables of a model.
_BY_SIZE = tuple(call for call in CALLS if call.startswith(("learn", "log_likelihood")))
_SIZES = ("grid 18", "dense glass 400", "dense Potts")
PAIRS = [
    (call, model) for model in MODELS for call in CALLS if call not in _BY_SIZE or model in _SIZES
]


def allowed(limit: float) -> float:
    """Return the time by which a call with this limit must have ended."""
    return limit + max(SLACK * limit, LEAST_SLACK)


class _Clock:
    """Seconds of a call without compilation, and processor seconds after its limit."""

    def __init__(self, limit: float) -> None:
        self._limit, self._ended, self._used = limit, threading.Event(), math.inf
        self._begun, self._compiled = time.monotonic(), Compiling.seconds
        threading.Thread(target=self._wait, daemon=True).start()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun - (Compiling.seconds - self._compiled)

    def _wait(self) -> None:
        while not self._ended.wait(0.02):
            if self.seconds < self._limit:  # again, where compiling has ended only now
                self._used = math.inf
            elif self._used == math.inf:
                self._used = time.process_time()

    def end(self) -> tuple[float, float]:
        """Seconds, and processor seconds after the limit."""
        self._ended.set()
        return self.seconds, max(time.process_time() - self._used, 0.0)


def timed(call: str, model: str, limit: float) -> tuple[float, float, str]:
    """Time a call in a child, without compilation.

    Returns
    -------
    tuple
        Its seconds, its processor seconds after the limit, and its refusal or "".
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        made, said = CALLS[call](MODELS[model]()), ""
        clock = _Clock(limit)
        try:
            made(limit)
        except mg.MinigibbsError as error:
            said = str(error).replace("\n", " ")[:100]
        seconds, after = clock.end()
        os.write(writing, f"{seconds} {after} {said}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    seconds, after, said = (os.read(reading, 4096).decode() or "inf inf ").split(" ", 2)
    os.close(reading)
    return float(seconds), float(after), said


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Load the machine with computing processes."""
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
    """Import the modules that children need."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mg.infer(MODELS["lattice 32"](), 0.2, exact=False, **QUIET)


def fill(pairs: Iterable[tuple[str, str]], cores: int = 1) -> None:
    """Make each call once, in children, so that the disk cache has all compiled code."""
    children: set[int] = set()
    for call, model in pairs:
        while len(children) >= cores:
            children.discard(os.wait()[0])
        child = os.fork()
        if child == 0:
            timed(call, model, 0.5)
            os._exit(0)
        children.add(child)
    while children:
        children.discard(os.wait()[0])


def chosen(seed: int, number: int, only: str = "") -> tuple[str, str, float]:
    """Return the call, the model and the limit of a case: all pairs occur before any repeats."""
    both = [(call, model) for call, model in PAIRS if only in f"{call}: {model}"]
    random.Random(seed).shuffle(both)
    limit = random.Random(f"budgets {seed} {number}").choice([1.0, 3.0, 5.0, 10.0])
    return *both[number % len(both)], limit


def campaign(
    seed: int, cases: int, only: str = "", load: bool = True, filled: bool = False
) -> list[tuple[Any, ...]]:
    """Measure calls; returns (call, model, limit, seconds, seconds after it, refusal) of each."""
    prepare()
    todo = [chosen(seed, number, only) for number in range(cases)]
    if not filled:
        fill(dict.fromkeys((call, model) for call, model, _ in todo))
    found = []
    with busy((os.cpu_count() or 1) if load else 0):
        for call, model, limit in todo:
            found.append((call, model, limit, *timed(call, model, limit)))
            seconds, after = found[-1][3:5]
            told = f"{seconds:6.1f} s, {after:4.1f} s of the processor after it"
            late = "LATE" if seconds > allowed(limit) else ""
            print(f"{call:<24} {model:<18} {limit:>4g} s: {told} {late}", flush=True)
    return found


def main(arguments: list[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz budgets", description=__doc__)
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help='of "call: model"s, those that hold this text')
    parser.add_argument("--quiet", action="store_true", help="do not keep the machine busy")
    parser.add_argument("--filled", action="store_true", help="all code is compiled already")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    load = not options.quiet
    found = campaign(options.seed, options.cases, options.only, load, options.filled)
    late = [row for row in found if row[3] > allowed(row[2])]
    refused = [row for row in found if row[5]]
    print(f"{len(found)} calls, {len(late)} late, {len(refused)} refused")
    for row in refused:
        print("refused:", *row)
    return 1 if late else 0
