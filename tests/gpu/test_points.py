"""Points on a real GPU equal the CPU's chains; skipped without a GPU."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.exact.enumeration import Enumeration
from tests.gpu.test_device import device_is_there
from tests.harness import FALSE_ALARM, chi_square, state_numbers
from tests.samplers.test_distribution import exact_starts

pytestmark = pytest.mark.skipif(not device_is_there(), reason="there is no GPU")

EVERYTHING = ("marginals", "draws", "energy")


def picture(height, width, labels, seed=0):
    """Return a dense conditional random field over a picture of two halves, with noise."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 40, (height, width, 3)) + 150 * (np.arange(width) > width // 2)[:, None]
    return mg.models.dense_crf(image, costs=rng.random((labels, height, width)))


def points(values, kernel="gaussian", weights=(1.5, -0.6), n=40, width=5):
    rng = np.random.default_rng(1)
    places = rng.uniform(0, 2, (n, width))
    groups = [mg.Unary(np.arange(n), rng.normal(0, 0.5, (n, values)))]
    groups.append(mg.Points(places, kernel, weights[0], norms="sums"))
    if weights[1]:
        groups.append(mg.Points(places[:, :2], weight=weights[1]))
    return mg.FactorGraph([values] * n, groups)


GRAPHS = {
    "picture": (picture(20, 30, 2), mg.PoissonGibbs()),
    "labels": (picture(12, 20, 21), mg.PoissonGibbs()),
    "clamped": (points(3).condition({3: 1, 17: 2, 39: 0}), mg.PoissonGibbs()),
    "one-group": (points(3, weights=(0.8, 0)), mg.PoissonGibbs(theta=0.3)),
    "repelling": (points(4, weights=(-2.0, -0.1)), mg.PoissonGibbs(theta=2.0)),
    "laplace": (points(2, "laplace"), mg.PoissonGibbs()),
    "power": (points(2, "power"), mg.PoissonGibbs()),
    "wide": (points(2, width=13), mg.PoissonGibbs()),
}


def run(name, chains, backend, sweeps=40, **options):
    graph, sampler = GRAPHS[name]
    rows = {"chains": chains} if backend == "cuda" else {}
    return mg.sample(
        graph,
        sampler,
        sweeps=sweeps,
        warmup=5,
        chains=chains,
        seed=3,
        scan="chromatic",
        record=mg.Record(*EVERYTHING, **rows),
        backend=backend,
        progress=False,
        **options,
    )


COUNTS = [(name, 7) for name in GRAPHS]  # each number of chains above 7 compiles further kernels
COUNTS += [(name, chains) for name in ("picture", "clamped", "laplace") for chains in (1, 600)]


@pytest.mark.parametrize(("name", "chains"), COUNTS)
def test_chains_are_those_of_the_cpu(name, chains):
    """Integer sums and counter-based bits are exact; only exponentials may round differently."""
    sweeps = 40 if chains < 600 else 4
    here, there = run(name, chains, "cpu", sweeps), run(name, chains, "cuda", sweeps)
    np.testing.assert_array_equal(there.draws, here.draws)
    np.testing.assert_array_equal(there.state, here.state)
    np.testing.assert_allclose(there.energy, here.energy, rtol=1e-9, atol=1e-9)
    assert there.info.changed == pytest.approx(here.info.changed)
    assert there.info.minibatch_draws == here.info.minibatch_draws


@pytest.mark.parametrize("name", ["picture", "clamped"])
def test_a_resumed_run_is_the_same(name, tmp_path):
    whole = run(name, 40, "cuda")
    run(name, 40, "cuda", sweeps=15, checkpoint=tmp_path / "run")
    again = mg.resume(tmp_path / "run", sweeps=25, progress=False)
    for part in ("kept_draws", "energy", "marginals", "state"):
        np.testing.assert_array_equal(getattr(again, part), getattr(whole, part))


def test_it_is_the_default():
    graph, sampler = GRAPHS["picture"]
    options = {"sweeps": 2, "chains": 5, "backend": "cuda", "progress": False}
    assert mg.sample(graph, sampler, **options).info.scan == "chromatic"
    assert mg.sample(graph, sampler, scan="shared", **options).info.scan == "shared"


@pytest.mark.parametrize("weights", [(1.5, -0.6), (3.0, 0.0)])
def test_a_sweep_keeps_the_distribution(weights):
    """Test a sweep from exact initial states by chi-square: 1 in 10,000 fails on correct code."""
    graph, wrong = points(3, weights=weights, n=6), points(3, weights=(weights[0] + 1, 0.6), n=6)
    starts, sampler = exact_starts(graph, 200_000, seed=11), mg.PoissonGibbs(theta=0.5)
    distribution = Enumeration(graph).distribution
    options = {"sweeps": 2, "chains": len(starts), "record": (), "progress": False, "seed": 7}
    right = mg.sample(graph, sampler, start=starts, backend="cuda", **options)
    assert chi_square(state_numbers(graph, right.state), distribution) > FALSE_ALARM
    other = mg.sample(wrong, sampler, start=starts, backend="cuda", **options)
    assert chi_square(state_numbers(graph, other.state), distribution) < FALSE_ALARM


def test_more_chains_than_the_second_axis_of_a_grid_has_tiles():
    """States are transposed in tiles of 32 chains; values of all chains are equally likely."""
    places = np.random.default_rng(1).uniform(0, 2, (6, 2))
    graph, chains = mg.FactorGraph([3] * 6, [mg.Points(places, weight=0.5)]), 2_097_152
    options = {"sweeps": 2, "chains": chains, "backend": "cuda", "seed": 3, "progress": False}
    states = mg.sample(graph, mg.PoissonGibbs(), record=(), **options).state
    counts = np.bincount(states[:, 0], minlength=3)
    assert np.abs(counts - chains / 3).max() < 6 * (chains / 3) ** 0.5  # 1 in 10 million
    last = states[-32:]  # beyond 65,535 tiles
    assert last.max() < 3
    assert len(np.unique(last, axis=0)) > 16
