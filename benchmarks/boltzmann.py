"""A Boltzmann machine on a Zephyr graph: states per second compared with dwave-pytorch-plugin.

This is the plugin's own example: 100 chains, 1,000 sweeps, all spins of a color at a time. It needs
PyTorch, dwave-pytorch-plugin, dwave-graphs, and einops, which release 0.4.0 of the plugin imports
but does not install. The environment of the other benchmarks does not have them: `python -m
benchmarks boltzmann`.
"""

from __future__ import annotations

import importlib.metadata
import statistics
import time
from collections.abc import Callable

import numpy as np

import minigibbs as mg
from benchmarks.report import Report

SIZE, CHAINS, SWEEPS, REPEATS = 6, 100, 1000, 3
BAR = 5.0  # least speedup


def in_turn(*works: Callable[[int], tuple[float, float]]) -> list[tuple[float, ...]]:
    """Return median elapsed and processor seconds of each work, without the first calls."""
    times = [[work(repeat) for work in works] for repeat in range(REPEATS + 1)][1:]
    return [
        tuple(map(statistics.median, zip(*each, strict=True))) for each in zip(*times, strict=True)
    ]


def main() -> None:
    """Measure both, alternating."""
    import torch
    from dwave.graphs import zephyr_coordinates, zephyr_four_color, zephyr_graph
    from dwave.plugins.torch.models import GraphRestrictedBoltzmannMachine
    from dwave.plugins.torch.samplers import BlockSampler

    torch.manual_seed(1)
    zephyr = zephyr_graph(SIZE)
    nodes, edges = list(zephyr.nodes), list(zephyr.edges)
    machine = GraphRestrictedBoltzmannMachine(nodes, edges)
    with torch.no_grad():
        machine.linear.copy_(0.1 * torch.randn(len(nodes)))
        machine.quadratic.copy_(0.1 * torch.randn(len(edges)))
    place = zephyr_coordinates(SIZE).linear_to_zephyr

    def color(node: int) -> int:
        return int(zephyr_four_color(place(node)))

    number = {node: k for k, node in enumerate(nodes)}
    i, j = np.array([[number[a], number[b]] for a, b in edges]).T
    field = machine.linear.detach().numpy()
    graph = mg.FactorGraph(
        [2] * len(nodes),
        [
            mg.Ising(i, j, -machine.quadratic.detach().numpy().astype(float)),
            mg.Unary(range(len(nodes)), np.stack([field, -field], axis=1).astype(float)),
        ],
    )
    states = {}

    def theirs(seed: int) -> tuple[float, float]:
        sampler = BlockSampler(machine, color, CHAINS, [1.0] * SWEEPS, seed=seed)
        begun, used = time.perf_counter(), time.process_time()
        states["theirs"] = sampler.sample().numpy()
        return time.perf_counter() - begun, time.process_time() - used

    def ours(seed: int) -> tuple[float, float]:
        begun, used = time.perf_counter(), time.process_time()
        run = mg.sample(
            graph, sweeps=SWEEPS, chains=CHAINS, warmup=0, seed=seed, record=(), progress=False
        )
        states["ours"] = 2.0 * run.state - 1.0
        return time.perf_counter() - begun, time.process_time() - used

    plugin, library = in_turn(theirs, ours)
    report = Report(
        "boltzmann",
        f"A Boltzmann machine on a Zephyr graph of {len(nodes):,} spins, {len(edges):,} couplings",
    )
    what = f"{CHAINS} states after {SWEEPS:,} sweeps"
    for who, seconds in {"dwave-pytorch-plugin": plugin, "`mg.sample`": library}.items():
        report.add(f"{who}: {what}", "{:.3g} s, {:.3g} s of CPU".format(*seconds))
    for kind, theirs_s, ours_s in zip(("by the clock", "CPU"), plugin, library, strict=True):
        ratio = theirs_s / ours_s
        report.add(f"ratio, {kind}", f"{ratio:.1f}", f"{BAR:g}", ratio >= BAR)
    levels = [graph.log_potential((states[who] > 0).astype(int)) for who in ("theirs", "ours")]
    spread = [level.std(ddof=1) / np.sqrt(CHAINS) for level in levels]
    near = abs(levels[0].mean() - levels[1].mean()) <= 4 * np.hypot(*spread)
    shown = [f"{each.mean():.1f} ± {error:.1f}" for each, error in zip(levels, spread, strict=True)]
    report.add("mean log-potential of the states, both", ", ".join(shown), "4 errors", bool(near))
    versions = {
        name: importlib.metadata.version(name) for name in ("torch", "dwave-pytorch-plugin")
    }
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    report.notes.append(
        f"Medians of {REPEATS} calls in turn, after one that compiles. Of the plugin only `sample` "
        f"is timed, not the construction of the sampler; of minigibbs the whole call. {listed}."
    )
    report.write()
