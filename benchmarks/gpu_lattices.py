"""One chain of a large lattice on a GPU: runs of `mg.sample`, bare launches, and exact energies."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from scipy.special import logsumexp

import minigibbs as mg
from benchmarks.lattices import CRITICAL, CUBE, SQUARE
from benchmarks.report import Report
from minigibbs.running.backends.cuda_colors_stencil import pattern_of
from minigibbs.running.backends.device.access import Device, load, to_device
from minigibbs.running.backends.device.launch import Again
from minigibbs.running.backends.device.shapes import configure
from minigibbs.samplers.chromatic.stencil_bits import StencilBits, stencil_bits

SQUARES = ((1024, 100_000, 5e10), (8192, 4_000, 5e11), (65_536, 1_200, 9e11))  # side, sweeps
LARGEST, LARGEST_SWEEPS, LARGEST_RATE = 100_352, 400, 5e11  # 1e10 spins; the last state is copied
CUBE_SIDE, CUBE_SWEEPS, CUBE_RATE = 1024, 500, 6e11
LAUNCHED = {1024: 20_000, 8192: 2_000, 65_536: 40}  # sweeps
MOST_OFF = 4.5  # standard errors: one false alarm in 100,000 for each of two energies
STEP = 1e-5  # of a derivative


def square(side: int, beta: float = CRITICAL) -> mg.FactorGraph:
    """Return a periodic lattice with one coupling."""
    sizes = np.broadcast_to(np.int8(2), side * side)
    return mg.FactorGraph(sizes, [mg.Stencil((side, side), SQUARE, beta)])


def glass(side: int) -> mg.FactorGraph:
    """Return a periodic cube with couplings of +-1."""
    words = np.random.default_rng(1).integers(0, 2**63, 3 * side**3 // 64 + 1)
    signs = np.unpackbits(words.view(np.uint8))[: 3 * side**3].view(np.int8)
    signs *= 2
    signs -= 1
    sizes = np.broadcast_to(np.int8(2), side**3)
    return mg.FactorGraph(sizes, [mg.Stencil((side,) * 3, CUBE, signs.reshape(3, *(side,) * 3))])


def sample(graph: mg.FactorGraph, sweeps: int, **options: Any) -> mg.Run:
    """Run on the GPU, with energies as the only records."""
    settings: dict[str, Any] = {"chains": 1, "warmup": 0, "start": "random", "seed": 1}
    settings |= {"record": mg.Record("energy", thin=sweeps), "progress": False} | options
    return mg.sample(graph, mg.Gibbs(), sweeps=sweeps, scan="chromatic", backend="cuda", **settings)


def as_called(
    report: Report, name: str, graph: mg.FactorGraph, sweeps: int, threshold: float
) -> None:
    """Measure the second call; the first one prepares the model."""
    begun = time.perf_counter()
    sample(graph, 1)
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    run = sample(graph, sweeps)
    seconds, updates = time.perf_counter() - begun, sweeps * len(graph)
    chain, whole = run.info.updates_per_second, updates / seconds
    told = f"{whole:.2g}/s, {seconds:.1f} s; first call {first:.1f} s"
    report.add(name, f"{chain:.3g}/s", f"{threshold:.0e}", chain >= threshold, told)


def launched(report: Report, name: str, data: StencilBits, sweeps: int) -> None:
    """Measure only the launches: one chain of ones."""
    own, cuda, lattice = load("cuda_stencil"), Device(), data.lattice
    pattern, numbers = pattern_of(own, data), data.coarse
    strides = [math.prod(lattice.shape[k + 1 : -1].tolist()) for k in range(len(lattice.shape) - 1)]
    arrays = (
        lattice.shape.astype(np.int32),
        np.array(strides, np.int32),
        np.concatenate([numbers >> np.uint64(32), numbers & np.uint64(2**32 - 1)]),
        data.sign.reshape(-1),
        data.absent.reshape(-1),
        data.free,
    )
    arrays = (*arrays[:2], arrays[2].astype(np.uint32), *arrays[3:])
    placed = [to_device(cuda, array) for array in arrays]
    x = cuda.to_device(np.full(lattice.colors * lattice.units, 2**32 - 1, np.uint32))
    run = configure(own.sweep_color(pattern), (lattice.units, 1), (own.THREADS, 1))
    size = (lattice.rows, lattice.words)
    colors = [Again(run, (*placed, *size, color, 1, 2), (1, x)) for color in range(lattice.colors)]

    def sweep(numbers: range) -> float:
        begun = time.perf_counter()
        for number in numbers:
            for color in colors:
                color(number)
        cuda.synchronize()
        return time.perf_counter() - begun

    sweep(range(4))  # compiles
    seconds = sweep(range(4, 4 + sweeps))
    sites = math.prod(lattice.shape.tolist())
    report.add(f"{name}, launches alone", f"{sites * sweeps / seconds:.3g}/s", last="")


def larger(data: StencilBits, side: int) -> StencilBits:
    """Return the layout of a square with the same coupling and another side."""
    lattice = data.lattice._replace(
        shape=np.array([side, side]), rows=side, words=side // (32 * data.lattice.colors)
    )
    return data._replace(lattice=lattice)


def log_z(side: int, beta: float) -> float:
    """Return log Z of a periodic square (Kaufman 1949, doi:10.1103/PhysRev.76.1232)."""
    k = np.arange(2 * side)
    cosh = math.cosh(2 * beta) / math.tanh(2 * beta) - np.cos(np.pi * k / side)
    gamma = np.arccosh(cosh)
    gamma[0] = 2 * beta + math.log(math.tanh(beta))
    terms, signs = [], []
    for part in (gamma[1::2], gamma[::2]):
        half = side * np.abs(part) / 2
        terms += [
            float((half + np.log1p(np.exp(-2 * half))).sum()),
            float((half + np.log1p(-np.exp(-2 * half))).sum()),
        ]
        signs += [1.0, float(np.prod(np.sign(part)))]
    total = float(logsumexp(terms, b=signs))
    return total - math.log(2) + side * side / 2 * math.log(2 * math.sinh(2 * beta))


def exact_energy(side: int, beta: float) -> float:
    """Return the mean of -beta * sum s_i s_j per site."""
    slope = (log_z(side, beta + STEP) - log_z(side, beta - STEP)) / (2 * STEP)
    return -beta * slope / (side * side)


def energy(report: Report, side: int, beta: float, chains: int, sweeps: int, ordered: bool) -> None:
    """Compare the mean of independent chains with the exact mean, in standard errors."""
    graph = square(side, beta)
    start: Any = np.ones(side * side, np.uint8) if ordered else "random"
    record = mg.Record("energy", thin=sweeps, chains=chains)
    last = sample(graph, sweeps, chains=chains, start=start, record=record).energy[:, -1]
    last = last / (side * side)
    mean, error = float(last.mean()), float(last.std(ddof=1)) / math.sqrt(chains)
    exact = exact_energy(side, beta)
    off = (mean - exact) / error
    name = f"energy per site, {side:,} x {side:,} at {beta:.4f}, {chains:,} chains"
    told = f"exact {exact:.6f}, {off:+.1f} standard errors"
    report.add(name, f"{mean:.6f} +- {error:.6f}", f"{MOST_OFF}", abs(off) < MOST_OFF, told)


def main() -> None:
    """Measure, and write the table after each part."""
    report = Report("gpu_lattices", "One chain of a large lattice on a GPU", column="whole call")
    small = stencil_bits(square(128))
    assert small is not None
    for side, sweeps in LAUNCHED.items():
        launched(report, f"{side:,} x {side:,}", larger(small, side), sweeps)
    for side, beta, chains, sweeps, ordered in (
        (1024, 0.40, 256, 2_000, False),
        (1024, 0.48, 256, 2_000, True),
        (64, CRITICAL, 4_096, 20_000, False),
    ):
        energy(report, side, beta, chains, sweeps, ordered)
    for side, sweeps, threshold in (*SQUARES, (LARGEST, LARGEST_SWEEPS, LARGEST_RATE)):
        as_called(report, f"{side:,} x {side:,}", square(side), sweeps, threshold)
    report.write()
    name, graph = f"{CUBE_SIDE:,} cubed, +-J", glass(CUBE_SIDE)
    as_called(report, name, graph, CUBE_SWEEPS, CUBE_RATE)
    cube = stencil_bits(graph)
    assert cube is not None
    launched(report, name, cube, 100)
    report.notes.append(
        "Updates per second of the chain (`run.info.seconds`), and of the whole second call, which "
        "places the chain and returns its last state. The first call also prepares the model. "
        "Energies are those of the last states, with one record per run; marginals are off."
    )
    report.write()


if __name__ == "__main__":
    main()
