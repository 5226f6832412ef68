"""Chromatic runs in Numba's CUDA simulator: the chains equal the CPU's bit by bit."""

import json

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.samplers.encoding import describe_sampler
from minigibbs.samplers.registry import color_data
from tests.harness import coarse, sample
from tests.running.simulate_cuda import flatten
from tests.running.test_cuda_simulator import simulate

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

SWEEPS, WARMUP, SEED = 12, 2, 3
EVERYTHING = ["marginals", "draws", "energy"]


def ring(n, values, seed=0):
    """Return tables of two variables around a ring."""
    rng, i = np.random.default_rng(seed), np.arange(n)
    pairs = mg.Table(np.stack([i, (i + 1) % n], 1), rng.normal(0, 1, (n, values, values)))
    return mg.FactorGraph([values] * n, [pairs])


def complete(n, values, scale=0.3, seed=0):
    """Return sites that are all coupled by tables."""
    rng, (i, j) = np.random.default_rng(seed), np.triu_indices(n, 1)
    pairs = mg.Table(np.stack([i, j], 1), rng.normal(0, scale, (len(i), values, values)))
    return mg.FactorGraph([values] * n, [pairs])


def glass(n, scale, seed=0):
    i, j = np.triu_indices(n, 1)
    weight = np.random.default_rng(seed).normal(0, scale, len(i))
    return mg.FactorGraph([2] * n, [mg.Ising(i, j, weight)])


def points(n, values, weights=(1.5, -0.6), seed=0, kernel="gaussian", clamped=()):
    """Return two groups of points, and fields."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, 2, (n, 5))
    groups = [mg.Unary(np.arange(n), rng.normal(0, 0.5, (n, values)))]
    groups += [
        mg.Points(places, kernel, weights[0], norms="sums"),
        mg.Points(places[:, :2], weight=weights[1]),
    ]
    return mg.FactorGraph([values] * n, groups).condition(dict(clamped))


def stencil(shape, weights, clamped=()):
    """Return a lattice without a list of pairs."""
    factor = mg.Stencil(shape, np.eye(len(shape), dtype=int), weights)
    return mg.FactorGraph([2] * factor.variables, [factor]).condition(dict(clamped))


LATTICE = mg.models.ising_lattice(side=4, beta=0.4)
CASES = {  # graph, sampler, chains, chains from which on threads iterate over colors
    "one": (LATTICE, mg.Gibbs(), 1, 1000),
    "few": (LATTICE, mg.Gibbs(), 7, 1000),
    "words": (LATTICE, mg.Gibbs(), 37, 1000),
    "strong": (glass(5, 300.0), mg.Gibbs(), 9, 1000),
    "clamped": (glass(6, 0.5).condition({1: 1, 4: 0}), mg.Gibbs(), 9, 1000),
    "joined": (glass(7, 0.5), mg.Gibbs(), 12, 1000),  # too many neighbors for thresholds
    "joined-one": (glass(7, 0.5), mg.Gibbs(), 1, 1000),
    "walk": (glass(6, 0.5), mg.Gibbs(), 20, 1),
    "tails": (
        mg.models.ising_rbf(side=3, beta=1.0, implicit=False),
        mg.PoissonGibbs(heavy=2),
        20,
        1,
    ),
    "potts-tails": (
        mg.models.potts_rbf(side=3, states=4, beta=1.0, implicit=False),
        mg.PoissonGibbs(heavy=2),
        7,
        1000,
    ),
    "potts-tails-whole": (  # chains and exactly evaluated neighbors: four at a time
        mg.models.potts_rbf(side=3, states=4, beta=1.0, implicit=False),
        mg.PoissonGibbs(heavy=6),
        8,
        1000,
    ),
    "potts": (mg.models.potts_lattice(side=3, states=3, beta=0.8), mg.Gibbs(), 6, 1000),
    "ring": (ring(6, 4), mg.Gibbs(), 6, 1000),
    "stencil": (stencil((4, 6), [0.4, -0.3]), mg.Gibbs(), 3, 1000),
    "stencil-words": (stencil((3, 64), 0.3, [(5, 1), (190, 0)]), mg.Gibbs(), 1, 1000),
    "sites": (complete(5, 3), mg.Gibbs(), 6, 1000),
    "points": (points(10, 3), mg.PoissonGibbs(theta=0.7), 3, 1000),
    "points-laplace": (points(6, 2, kernel="laplace"), mg.PoissonGibbs(), 2, 1000),
    "points-power": (points(6, 2, kernel="power"), mg.PoissonGibbs(), 2, 1000),
    "points-clamped": (points(9, 2, clamped=[(4, 1)]), mg.PoissonGibbs(), 3, 1000),
    "points-far": (points(6, 2), mg.PoissonGibbs(), 2, 1000),
    "points-warps": (points(7, 5), mg.PoissonGibbs(), 2, 1000),
    "points-large": (points(4, 17), mg.PoissonGibbs(), 2, 1000),
    "points-coarse": (coarse(points(6, 2)), mg.PoissonGibbs(), 2, 1000),
}
POINTS = {  # storage of values, and threads of a warp
    "points-far": {"near": 0},
    "points-warps": {"warp": 4},
    "points-large": {"warp": 4, "near": 0},
}


def chosen(chains):
    """Return the options of a run."""
    return {
        "sweeps": SWEEPS,
        "warmup": WARMUP,
        "chains": chains,
        "seed": SEED,
        "scan": "chromatic",
        "observe": {"ones": "count"},
    }


def write_case(folder, name, file=None, **changes):
    graph, sampler, chains, walkers = CASES[name]
    arrays: list[np.ndarray] = []
    case = {
        "model": flatten(graph.packed, arrays),
        "data": flatten(color_data(sampler, graph), arrays),
        "offset": graph.offset,
        "sampler": describe_sampler(sampler),
        "buffer": 1 << 20,
        "segment": 7 * len(graph),
        "die_after": None,
        "resume": None,
        "own": False,
        "most_series": 1 << 20,
        "walkers": walkers,
        "points": POINTS.get(name, {}),
        "record": EVERYTHING,
        "record_options": {"chains": chains},
        "options": chosen(chains),
    }
    (folder / f"{file or name}.json").write_text(json.dumps(case | changes))
    np.savez(folder / f"{file or name}.npz", *arrays)
    mg.write(graph, folder / f"{file or name}.mg")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("colors")
    for name in CASES:
        write_case(folder, name)
    done = simulate(folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return {name: mg.load(folder / f"{name}.run") for name in CASES}


def on_the_cpu(name, **options):
    graph, sampler, chains, _ = CASES[name]
    return sample(
        graph,
        sampler,
        sweeps=SWEEPS,
        warmup=WARMUP,
        chains=chains,
        seed=SEED,
        scan="chromatic",
        observe={"ones": "count"},
        progress=False,
        **({"record": EVERYTHING} | options),
    )


@pytest.fixture(scope="module")
def compiled():
    return {name: on_the_cpu(name) for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_simulated_chains_are_those_of_the_cpu(name, simulated, compiled):
    found, expected = simulated[name], compiled[name]
    np.testing.assert_array_equal(found.draws, expected.draws)
    np.testing.assert_array_equal(found.state, expected.state)
    np.testing.assert_allclose(found.energy, expected.energy, rtol=1e-12, atol=1e-9)
    ones, wanted = found.observables["ones"], expected.observables["ones"]
    np.testing.assert_array_equal(ones.series, wanted.series)
    assert found.info.changed == pytest.approx(expected.info.changed, abs=0.15)


def test_energies_that_a_progress_bar_looks_at_are_those_recorded(tmp_path):
    """Every third record has an energy; the other entries are unused."""
    write_case(tmp_path, "few", record=[], energy_every=3)
    done = simulate(tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    live, found = np.load(tmp_path / "few.live.npy"), mg.load(tmp_path / "few.run")
    live = -(live + LATTICE.offset)  # records have log-potentials
    np.testing.assert_array_equal(live, found.energy)
    expected = on_the_cpu("few").energy[:, 2::3]
    np.testing.assert_allclose(live, expected, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("name", ["stencil", "stencil-words"])
def test_a_launch_of_many_sweeps_makes_the_same_chains(name, tmp_path):
    """Colors wait for each other within the launch, and values are counted after each sweep."""
    thin, chains = SWEEPS // 2, CASES[name][2]
    rows = {"chains": chains, "thin": thin}
    options = {"segment": SWEEPS * len(CASES[name][0]), "narrow": 0}  # 64-bit numbers of sites
    options |= {"options": chosen(chains) | {"observe": {"m": "magnetization"}}}  # counted in bits
    write_case(tmp_path, name, record_options=rows, **options)
    done = simulate(tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    found = mg.load(tmp_path / f"{name}.run")
    every = on_the_cpu(name)
    np.testing.assert_array_equal(found.draws, every.draws[:, thin - 1 :: thin])
    np.testing.assert_array_equal(found.state, every.state)
    np.testing.assert_allclose(found.marginals, every.marginals, atol=1e-12)
    np.testing.assert_allclose(found.observables["m"].series, 2.0 * found.draws.mean(axis=2) - 1.0)
    assert found.info.changed == pytest.approx(every.info.changed, abs=0.15)


@pytest.mark.parametrize("name", ["few", "words", "clamped", "walk", "tails", "stencil"])
def test_bits_are_counted_every_sweep(name, simulated):
    found = simulated[name]
    share = (found.draws == 1).mean(axis=(0, 1))
    np.testing.assert_allclose(found.marginals[:, 1], share, atol=1e-12)
