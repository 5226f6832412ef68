"""A dense conditional random field at full resolution on a GPU: updates per second."""

from __future__ import annotations

import time

import numpy as np

import minigibbs as mg
from benchmarks.dense import picture
from benchmarks.report import Report


def main() -> None:
    report = Report("gpu_points", "A dense conditional random field on a GPU")
    image, unary, name = chosen()
    begun = time.perf_counter()
    graph, sampler = mg.models.dense_crf(image, costs=unary), mg.PoissonGibbs()
    split = sampler.split(graph)
    report.add(f"{name}, {len(graph):,} pixels: made", f"{time.perf_counter() - begun:.1f} s")
    proposed = sum(group.draws for group in split.implicits)
    report.add("  proposals an update", f"{proposed:.3g}")
    for chains, bar in ((1, 0.0), (128, 0.0), (1024, 1e9), (8192, 0.0)):
        whole(report, graph, sampler, chains, bar)
    report.notes.append(
        "Updates a second of the chains (`run.info.seconds`) of the second of two calls of "
        "`mg.sample`, which records the marginals of every sweep. An energy looks at all pairs of "
        "pixels and takes seconds, so that none are recorded."
    )
    report.write()


def chosen() -> tuple[np.ndarray, np.ndarray, str]:
    """Return the image and its labels, or an equally large image of patches and noise."""
    try:
        return *picture(), "image of two labels"
    except (ImportError, FileNotFoundError):
        rng = np.random.default_rng(0)
        patches = np.kron(rng.integers(0, 200, (6, 8, 3)), np.ones((40, 40, 1), np.int64))
        image = patches + rng.integers(0, 30, patches.shape)
        return image, rng.random((2, 240, 320)), "made-up image of two labels"


def whole(report, graph, sampler, chains: int, bar: float) -> None:
    """Measure a run as a user writes it; the first one compiles."""
    options = {"chains": chains, "backend": "cuda", "record": "marginals", "progress": False}
    mg.sample(graph, sampler, sweeps=1, seed=0, **options)
    begun = time.perf_counter()
    run = mg.sample(graph, sampler, sweeps=20, seed=1, **options)
    took, rate = time.perf_counter() - begun, run.info.updates_per_second
    met = (f"at least {bar:.0e}", rate >= bar) if bar else ("", None)
    report.add(f"  {chains:,} chains", f"{rate:.3g} updates/s", *met)
    report.add("    the whole call, 20 sweeps", f"{took:.2f} s")
