"""Dense models: a conditional random field at full resolution, a million points, low rank."""

from __future__ import annotations

import multiprocessing
import resource
import time
from typing import Any

import numpy as np

import minigibbs as mg
from benchmarks.data import DATA
from benchmarks.report import RESULTS, Report
from benchmarks.timing import Timed, race

PICTURES = RESULTS.parent.parent / "docs" / "images"

WEAK = 0.1  # of pydensecrf's strengths, with which chains forget their start


def main() -> None:
    report = Report("dense", "Dense models that are never stored")
    report.notes.append(
        "Times of updates are the best of seven turns that rivals take one "
        "after the other; a hand-written loop over 20 numbers is one of them, to compare machines. "
        "Each model is made and sampled in a process of its own, whose memory is all that it took; "
        "compiled code was on disk."
    )
    for work in (low_rank, points, image):
        for row in alone(work):
            report.add(*row)
    report.notes += ["", *alone(strengths)]
    report.notes += ["", *alone(mean_field)]
    report.write()


def alone(work: Any) -> list[Any]:
    """Return the result of some work, from its own process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        rows: list[Any] = pool.apply(work)
        return rows


def taken() -> float:
    """Return the peak memory of the process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def picture() -> tuple[np.ndarray, np.ndarray]:
    """Return the image, and energies of its labels: 0.7 on hand-drawn labels, else uniform."""
    from PIL import Image

    folder = DATA / "densecrf"
    image = np.asarray(Image.open(folder / "im1.png").convert("RGB"))
    marks = np.asarray(Image.open(folder / "anno1.png").convert("RGB")).astype(np.int64)
    codes = marks @ np.array([1, 256, 65536])
    drawn = [code for code in np.unique(codes) if code != 0]
    unary = np.full((len(drawn), *codes.shape), -np.log(1.0 / len(drawn)))
    for label, code in enumerate(drawn):
        other = -np.log(0.3 / (len(drawn) - 1))
        unary[:, codes == code] = other
        unary[label, codes == code] = -np.log(0.7)
    return image, unary


def warm() -> None:
    """Load compiled code, so that a model's own time is measured."""
    rng = np.random.default_rng(0)
    small = mg.models.dense_crf(rng.integers(0, 255, (8, 8, 3)), costs=rng.random((2, 64)))
    mg.sample(small, updates=10, chains=1, progress=False)


def image() -> list[tuple[Any, ...]]:
    """Measure a dense conditional random field of 76,800 pixels."""
    warm()
    pixels, unary = picture()
    before, begun = taken(), time.perf_counter()
    graph = mg.models.dense_crf(pixels, costs=unary)
    sampler = mg.PoissonGibbs()
    sampler.prepare(graph)
    ready, held = time.perf_counter() - begun, taken() - before
    start = unary.reshape(len(unary), -1).argmin(axis=0).astype(graph.state_type)
    best = race({"crf": Timed(graph, sampler, start), "hand": hand_written(100_000, 20)})
    splits = sampler.split(graph).implicits
    kept = sum(s.draws * s.kept for s in splits) / sum(s.draws for s in splits)
    pairs = len(graph) * (len(graph) - 1) // 2
    return [
        (
            f"dense CRF, {len(graph):,} pixels, {pairs:.2g} pairs: an update",
            us(best["crf"]),
            "3 us",
            best["crf"] <= 3e3,
        ),
        ("  a hand-written loop over 20 numbers in the same minute", us(best["hand"])),
        ("  ready to sample", f"{ready:.1f} s", "10 s", ready <= 10),
        ("  memory on top of the library's own", f"{held / 1e6:.0f} MB", "1 GB", held < 1e9),
        ("  proposals kept by the true weight", f"{kept:.0%}", "20%", kept >= 0.2),
        ("  proposals an update", f"{sum(s.draws for s in splits):.0f}"),
    ]


def points() -> list[tuple[Any, ...]]:
    """Measure a million points in a cube, whose side is twenty times the kernel's width."""
    warm()
    rng = np.random.default_rng(0)
    places = rng.uniform(0, 20, (10**6, 3))
    before, begun = taken(), time.perf_counter()
    group = mg.Points(places, weight=0.001)
    graph = mg.FactorGraph(np.full(10**6, 3), [group])
    sampler = mg.PoissonGibbs()
    sampler.prepare(graph)
    ready, held = time.perf_counter() - begun, taken() - before
    best = race({"points": Timed(graph, sampler), "hand": hand_written(100_000, 20)})
    split = sampler.split(graph).implicits[0]
    local = split.tail * split.kept
    return [
        (
            f"1e6 points in 3 dimensions, L about {local:.1f}: an update",
            us(best["points"]),
            "3 us",
            best["points"] <= 3e3,
        ),
        ("  a hand-written loop over 20 numbers in the same minute", us(best["hand"])),
        ("  ready to sample", f"{ready:.1f} s"),
        ("  memory on top of the library's own", f"{held / 1e6:.0f} MB"),
        ("  proposals kept by the true weight", f"{split.kept:.0%}"),
        ("  proposals an update", f"{split.draws:.0f}"),
    ]


def hopfield(n: int, rank: int) -> mg.FactorGraph:
    patterns = np.sign(np.random.default_rng(0).normal(size=(n, rank)))
    return mg.FactorGraph(np.full(n, 2), [mg.LowRank(patterns * np.sqrt(0.9 / n))])


def low_rank() -> list[tuple[Any, ...]]:
    """Compare a Hopfield network of rank 20 with a loop written for it."""
    graph = hopfield(100_000, 20)
    rivals = {"ours": Timed(graph, mg.PoissonGibbs()), "hand": hand_written(100_000, 20)}
    best = race(rivals)
    many = hopfield(10**6, 20)
    begun = time.perf_counter()
    told = str(mg.explain(many, costs={"cell": 1.0}))
    explained = time.perf_counter() - begun
    assert "upper bounds" in told
    rate = 1e9 / best["ours"]
    return [
        (
            "LowRank, n = 1e5, rank 20: an update",
            us(best["ours"]),
            "1.1 times the next",
            best["ours"] <= 1.1 * best["hand"],
        ),
        ("  a hand-written loop over the 20 projections", us(best["hand"])),
        ("  updates per second", f"{rate:.2g}", "6e6", rate >= 6e6),
        ("  explain at n = 1e6", f"{explained:.1f} s", "seconds", explained < 10),
    ]


class hand_written:  # noqa: N801
    """A loop that stores the projections of a Hopfield network, timed like the samplers."""

    def __init__(self, n: int, rank: int) -> None:
        import numba

        @numba.njit(fastmath=True)
        def loop(a: Any, s: Any, sums: Any, steps: int) -> None:
            for _ in range(steps):
                i = np.random.randint(len(a))
                field = 0.0
                for k in range(a.shape[1]):
                    field += a[i, k] * (sums[k] - s[i] * a[i, k])
                up = np.random.random() * (1.0 + np.exp(-2.0 * field)) < 1.0
                new = 1.0 if up else -1.0
                if new != s[i]:
                    for k in range(a.shape[1]):
                        sums[k] += (new - s[i]) * a[i, k]
                    s[i] = new

        self.loop = loop
        self.a = np.sign(np.random.default_rng(0).normal(size=(n, rank))) * np.sqrt(0.9 / n)
        self.s = np.sign(np.random.default_rng(1).normal(size=n))
        self.sums = self.a.T @ self.s
        self.best = np.inf
        loop(self.a, self.s, self.sums, 1000)

    def turn(self) -> None:
        begun, steps = time.perf_counter(), 500_000
        self.loop(self.a, self.s, self.sums, steps)
        self.best = min(self.best, (time.perf_counter() - begun) / steps)


def strengths() -> list[str]:
    """Compare marginals of two independent runs at full resolution."""
    warm()
    pixels, unary = picture()
    graph = mg.models.dense_crf(pixels, costs=unary, compat=3 * WEAK, bilateral_compat=10 * WEAK)
    runs = [
        mg.sample(
            graph, sweeps=60, warmup=20, chains=2, seed=seed, progress=False, record="marginals"
        )
        for seed in (1, 2)
    ]
    values = len(unary)
    rows = [run.counts.reshape(2, -1, values)[:, :, 0] / run.visits[:, None] for run in runs]
    between = float(np.sqrt(np.mean((rows[0].mean(axis=0) - rows[1].mean(axis=0)) ** 2)))
    within = float(np.sqrt(np.mean([(row[0] - row[1]) ** 2 for row in rows])))
    spread = float(np.std(rows[0].mean(axis=0)))
    return [
        f"Two runs at full resolution, {WEAK:g} of pydensecrf's strengths, from random starts, 2 "
        "chains of 60 sweeps each: marginals differ by "
        f"{between:.4f} (root mean square over the pixels), where the chains of one run differ by "
        f"{within:.4f}, so that {within / np.sqrt(2):.4f} is expected; over the pixels marginals "
        f"spread by {spread:.3f}."
    ]


def mean_field() -> list[str]:
    """Compare pydensecrf's mean field with sampled marginals at full resolution: a picture."""
    try:
        from pydensecrf.densecrf import DenseCRF2D
    except ImportError:
        return ["pydensecrf was not there to compare with."]
    warm()
    pixels, unary = picture()
    height, width = pixels.shape[:2]
    graph = mg.models.dense_crf(pixels, costs=unary, compat=3 * WEAK, bilateral_compat=10 * WEAK)
    run = mg.sample(
        graph, sweeps=60, warmup=20, chains=2, seed=1, progress=False, record="marginals"
    )
    field = DenseCRF2D(width, height, len(unary))
    field.setUnaryEnergy(unary.reshape(len(unary), -1).astype(np.float32))
    field.addPairwiseGaussian(sxy=3, compat=3 * WEAK)
    colors = np.array(pixels)  # pydensecrf requires a writable array
    field.addPairwiseBilateral(sxy=80, srgb=13, rgbim=colors, compat=10 * WEAK)
    begun = time.perf_counter()
    approximate = np.array(field.inference(20)).reshape(len(unary), height, width)
    took = time.perf_counter() - begun
    sampled = run.marginals.T.reshape(len(unary), height, width)
    error = np.abs(approximate - sampled)
    noise = float(np.sqrt(np.mean(np.square(run.standard_errors))))
    label = int(sampled.var(axis=(1, 2)).argmax())
    _draw_fields(pixels, sampled[label], approximate[label])
    return [
        f"pydensecrf's mean field (20 rounds, {took:.1f} s) at {WEAK:g} of its strengths, against "
        f"sampled marginals of all labels: off by {np.sqrt(np.mean(error**2)):.3f} (root mean "
        f"square; the sampled ones have a standard error of {noise:.3f}), by more than 0.2 at "
        f"{np.mean(error.max(axis=0) > 0.2):.1%} of the pixels. Its most likely label is another "
        f"one at {np.mean(approximate.argmax(axis=0) != sampled.argmax(axis=0)):.1%} of them. "
        f"docs/images/dense_mean_field.png shows label {label}, whose marginals vary most."
    ]


def _draw_fields(pixels: np.ndarray, sampled: np.ndarray, approximate: np.ndarray) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(14, 3))
    difference = np.abs(approximate - sampled)
    shown = [
        (pixels, "image", {}),
        (sampled, "marginals, sampled", {"vmin": 0, "vmax": 1}),
        (approximate, "mean field (pydensecrf)", {"vmin": 0, "vmax": 1}),
        (difference, "difference", {"vmin": 0, "vmax": 0.5, "cmap": "magma"}),
    ]
    for axis, (values, title, options) in zip(axes, shown, strict=True):
        drawn = axis.imshow(values, **options)
        axis.set_title(title)
        axis.axis("off")
        if options:
            figure.colorbar(drawn, ax=axis, fraction=0.035)
    figure.savefig(PICTURES / "dense_mean_field.png", dpi=110, bbox_inches="tight")
    plt.close(figure)


def us(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e3:.3g} us"
