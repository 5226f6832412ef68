"""Costs of operations on this machine, measured once by running samplers, and cached.

Samplers state how many operations of each kind an update needs (`Sampler.operations`). Timing them
on a few small graphs and solving for the cost of each kind gives nanoseconds for any graph.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from minigibbs import models
from minigibbs._version import __version__
from minigibbs.errors import SampleError
from minigibbs.graph.graph import FactorGraph
from minigibbs.running.api import time_updates
from minigibbs.samplers import (
    MGPMH,
    DoubleMinGibbs,
    Gibbs,
    LocalMinibatchGibbs,
    MinGibbs,
    PoissonGibbs,
    Sampler,
)
from minigibbs.samplers.costs import COSTS, Costs
from minigibbs.system import files

_TRUST = 0.15  # weight of the shipped costs relative to a measurement


def calibration() -> list[tuple[FactorGraph, Sampler]]:
    """Return graphs and samplers that together use every kind of operation."""
    potts, large = models.potts_rbf(side=20), models.potts_rbf(side=12, states=60)
    spins, dense = models.ising_rbf(side=20), models.curie_weiss(700, 0.8)
    tables = models.random_tables(variables=200, factors=1500, states=4, scale=0.1)
    triples = models.random_tables(variables=200, factors=600, arity=3, states=3, scale=0.3)
    strong = models.random_tables(variables=60, factors=1700, states=3, scale=6.0)
    lattice = models.ising_lattice(side=1000, beta=0.3)  # too large for any cache
    colors = models.potts_lattice(side=30, states=5, beta=0.8)
    return [
        *((graph, Gibbs(fields=False)) for graph in (potts, spins, tables, triples, strong, large)),
        *((graph, Gibbs()) for graph in (lattice, colors)),
        (spins, Gibbs(fields=True)),
        (colors, Gibbs(textbook=True)),
        *((graph, PoissonGibbs()) for graph in (potts, spins, large, dense)),
        *((graph, PoissonGibbs(heavy=0, theta=1.0)) for graph in (potts, spins, tables)),
        *((graph, MGPMH()) for graph in (potts, large, tables, dense, colors)),
        (spins, MinGibbs(batch=3e4)),
        (dense, MinGibbs(batch=300)),
        (potts, DoubleMinGibbs(batch=20, second_batch=3e4)),
        (spins, LocalMinibatchGibbs(40)),
        (potts, LocalMinibatchGibbs(40)),
    ]


def solve(rows: Iterable[tuple[Costs, float]], typical: Costs | None = None) -> Costs:
    """Return the nonnegative costs that explain measured nanoseconds best in relative terms.

    Costs that the measurements do not determine are proportional to `typical` ones.
    """
    from scipy.optimize import nnls

    rows, typical = list(rows), typical or {}
    kinds = sorted({kind for operations, _ in rows for kind in operations})
    shares = np.array([[ops.get(kind, 0.0) / taken for kind in kinds] for ops, taken in rows])
    usual = np.array([typical.get(kind, 0.0) for kind in kinds])
    speed = 1.0 / max(float(np.median(shares @ usual)), 1e-300) if usual.any() else 1.0
    pulls = np.diag(np.divide(_TRUST, speed * usual, out=np.zeros(len(kinds)), where=usual > 0))
    wanted = np.concatenate([np.ones(len(rows)), np.where(usual > 0, _TRUST, 0.0)])
    answer, _ = nnls(np.concatenate([shares, pulls]), wanted)
    return dict(zip(kinds, answer.tolist(), strict=True))


def predict(costs: Costs, operations: Costs) -> float:
    """Predict the nanoseconds of an update."""
    return sum(costs.get(kind, 0.0) * count for kind, count in operations.items())


def measure(tell: Callable[[str], None] = lambda text: None) -> Costs:
    """Measure this machine; the first time takes a minute, because kernels are compiled."""
    tell("measuring what updates cost on this machine: once, about half a minute")
    rows = []
    for graph, sampler in calibration():
        rows.append((sampler.operations(graph), time_updates(graph, sampler) * 1e9))
    return solve(rows, COSTS)


def remembered_costs() -> Costs | None:
    """The costs on this machine, if they were measured before."""
    try:
        known = json.loads(_cache_file().read_text())
        if known["machine"] == _machine():
            return {str(kind): float(cost) for kind, cost in known["costs"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # not measured yet, or by another version
    return None


def machine_costs() -> Costs:
    """The costs on this machine, remembered or measured now."""
    costs, path, key = remembered_costs(), _cache_file(), _machine()
    if costs is not None:
        return costs
    costs = measure(lambda text: print(text, file=sys.stderr, flush=True))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"machine": key, "date": time.strftime("%Y-%m-%d"), "costs": costs})
        files.write_whole(path, lambda stream: stream.write(text.encode()))
    except (OSError, SampleError):  # not writable: measured again next time
        pass
    return costs


def _cache_file() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "minigibbs" / "costs.json"


def _machine() -> list[Any]:
    import numba

    sources = sorted((Path(__file__).parent.parent / "samplers").rglob("*.py"))
    size = sum(path.stat().st_size for path in sources)  # new sources may count other operations
    versions = [numba.__version__, __version__, size]
    return [platform.node(), platform.processor(), os.cpu_count(), *versions]
