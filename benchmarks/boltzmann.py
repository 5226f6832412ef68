"""A Boltzmann machine on a Zephyr graph: states per second beside dwave-pytorch-plugin.

This is the plugin's own example: 100 chains, 1,000 sweeps, a color of spins at a time. It needs
PyTorch, dwave-pytorch-plugin and dwave-graphs, which the environment of the other benchmarks does
not have: `python -m benchmarks boltzmann`.
"""

from __future__ import annotations

import importlib.metadata
import statistics
import time
from collections.abc import Callable

import numpy as np

import minigibbs as mg
from benchmarks.report import Report

SIZE, CHAINS, SWEEPS, REPEATS = 6, 100, 1000, 5
BAR = 5.0  # times as fast


def median(work: Callable[[int], object]) -> tuple[float, float]:
    """Median seconds of some calls, by the clock and by the processors, without the first."""
    wall, busy = [], []
    for repeat in range(REPEATS + 1):
        begun, used = time.perf_counter(), time.process_time()
        work(repeat)
        wall.append(time.perf_counter() - begun)
        busy.append(time.process_time() - used)
    return statistics.median(wall[1:]), statistics.median(busy[1:])


def main() -> None:
    """Measure both in turn."""
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

    def theirs(seed: int) -> None:
        sampler = BlockSampler(machine, color, CHAINS, [1.0] * SWEEPS, seed=seed)
        begun = time.perf_counter()
        states["theirs"] = sampler.sample().numpy()
        alone.append(time.perf_counter() - begun)

    def ours(seed: int) -> None:
        run = mg.sample(
            graph, sweeps=SWEEPS, chains=CHAINS, warmup=0, seed=seed, record=(), progress=False
        )
        states["ours"] = 2.0 * run.state - 1.0

    alone: list[float] = []
    plugin, library = median(theirs), median(ours)
    sampling = statistics.median(alone[1:])
    report = Report(
        "boltzmann",
        f"A Boltzmann machine on a Zephyr graph of {len(nodes):,} spins, {len(edges):,} couplings",
    )
    what = f"{CHAINS} states after {SWEEPS:,} sweeps"
    report.add(f"dwave-pytorch-plugin: {what}", f"{sampling:.2f} s")
    report.add("the same with making the sampler", f"{plugin[0]:.2f} s, {plugin[1]:.2f} s of CPU")
    report.add(f"`mg.sample`: {what}", f"{library[0]:.2f} s, {library[1]:.2f} s of CPU")
    ratio = sampling / library[0]
    report.add("ratio, its sampling alone", f"{ratio:.1f}", f"{BAR:g}", ratio >= BAR)
    gaps = [states[who][:, i] * states[who][:, j] for who in ("theirs", "ours")]
    means = [gap.mean() for gap in gaps]
    report.add("mean correlation of neighbors, both", f"{means[0]:.4f}, {means[1]:.4f}")
    versions = {
        name: importlib.metadata.version(name) for name in ("torch", "dwave-pytorch-plugin")
    }
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    report.notes.append(
        f"Medians of {REPEATS} calls; the first, which compiles, is left out. {listed}."
    )
    report.write()
