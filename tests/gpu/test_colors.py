"""Chromatic scans on a real GPU equal the CPU's bit by bit; skipped without a GPU."""

import numpy as np
import pytest
from scipy.stats import chi2

import minigibbs as mg
from tests.gpu.test_device import device_is_there

pytestmark = pytest.mark.skipif(not device_is_there(), reason="there is no GPU")


def glass(n, scale, seed=0):
    i, j = np.triu_indices(n, 1)
    weight = np.random.default_rng(seed).normal(0, scale, len(i))
    return mg.FactorGraph([2] * n, [mg.Ising(i, j, weight)])


def tables(n, q, scale, seed=0):
    rng, (i, j) = np.random.default_rng(seed), np.triu_indices(n, 1)
    pairs = mg.Table(np.stack([i, j], 1), rng.normal(0, scale, (len(i), q, q)))
    return mg.FactorGraph(
        [q] * n, [pairs, mg.Table(np.arange(n)[:, None], rng.normal(0, 1, (n, q)))]
    )


def mixed():
    rng, (i, j) = np.random.default_rng(3), np.triu_indices(9, 1)
    pairs = mg.Potts(i[:20], j[:20], rng.normal(0, 0.5, 20))
    table = mg.Table([[0, 1]], rng.normal(0, 1, (1, 2, 3)))
    return mg.FactorGraph([2, 3, 4, 5, 2, 3, 4, 5, 2], [pairs, table]).condition({2: 1})


def sparse(n, scale, seed=1):
    """Return spins with up to four neighbors, couplings of any value, fields, one isolated."""
    rng, i = np.random.default_rng(seed), np.arange(n - 1)
    rung = i[: n // 2 - 1 : 2]
    ring = mg.Ising(i, (i + 1) % (n - 1), rng.normal(0, scale, n - 1))
    rungs = mg.Ising(rung, rung + n // 2, rng.normal(0, scale, len(rung)))
    fields = mg.Unary(np.arange(n), rng.normal(0, 0.3, (n, 2)))
    return mg.FactorGraph([2] * n, [ring, rungs, fields]).condition({1: 1})


GRAPHS = {
    "sparse": (sparse(61, 0.7), mg.Gibbs()),
    "sparse and strong": (sparse(61, 60.0), mg.Gibbs()),
    "lattice": (mg.models.ising_lattice(side=10, beta=0.4), mg.Gibbs()),
    "glass": (glass(30, 0.3), mg.Gibbs()),
    "strong": (glass(12, 300.0), mg.Gibbs()),
    "clamped": (glass(30, 0.3).condition({3: 1, 8: 0, 29: 1}), mg.Gibbs()),
    "tails": (mg.models.ising_rbf(side=6, beta=1.0, implicit=False), mg.PoissonGibbs(heavy=4)),
    "potts tails": (
        mg.models.potts_rbf(side=6, beta=2.0, implicit=False),
        mg.PoissonGibbs(heavy=4),
    ),
    "potts": (mg.models.potts_lattice(side=8, states=5, beta=0.8), mg.Gibbs()),
    "tables": (tables(20, 5, 0.2), mg.Gibbs()),
    "mixed": (mixed(), mg.Gibbs()),
}
EVERYTHING = ("marginals", "draws", "energy")


def on_a_lattice(shape, weights):
    """Return spins whose pairs are never stored."""
    offsets = np.eye(len(shape), dtype=int)
    return mg.FactorGraph(np.full(np.prod(shape), 2), [mg.Stencil(shape, offsets, weights)])


SIGNS = np.random.default_rng(1).choice([-0.9, 0.9], (3, 96, 96, 128))
LATTICES = {
    "square": on_a_lattice((1024, 1024), 0.44),
    "glass": on_a_lattice((96, 96, 128), SIGNS),
    "short rows": on_a_lattice((500, 70), [0.3, -0.5]),
}


def run(name, chains, backend, sweeps=150, **options):
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


@pytest.mark.parametrize("chains", [1, 7, 70])
@pytest.mark.parametrize("name", GRAPHS)
def test_chains_are_those_of_the_cpu(name, chains):
    here, there = run(name, chains, "cpu"), run(name, chains, "cuda")
    np.testing.assert_array_equal(there.draws, here.draws)
    np.testing.assert_array_equal(there.state, here.state)
    np.testing.assert_allclose(there.energy, here.energy, rtol=1e-12, atol=1e-9)
    assert abs(there.info.changed - here.info.changed) < 0.1  # estimated from every eighth sweep


@pytest.mark.parametrize("chains", [1, 3])
@pytest.mark.parametrize("name", LATTICES)
def test_lattices_are_those_of_the_cpu(name, chains):
    """States, counts and energies agree for more sweeps than counters of eight bits can count."""
    options = {"sweeps": 300, "warmup": 5, "chains": chains, "seed": 3, "scan": "chromatic"}
    here, there = (
        mg.sample(
            LATTICES[name],
            mg.Gibbs(),
            record=mg.Record("marginals", "energy", thin=50),
            backend=backend,
            progress=False,
            observe={"m": "magnetization"},
            **options,
        )
        for backend in ("cpu", "cuda")
    )
    np.testing.assert_array_equal(there.state, here.state)
    np.testing.assert_array_equal(there.marginals, here.marginals)
    np.testing.assert_allclose(there.energy, here.energy, rtol=1e-12)
    ones, wanted = there.observables["m"].series, here.observables["m"].series
    np.testing.assert_allclose(ones, wanted, rtol=1e-12)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_resumed_run_is_the_same(name, tmp_path):
    whole = run(name, 40, "cuda")
    run(name, 40, "cuda", sweeps=60, checkpoint=tmp_path / "run")
    again = mg.resume(tmp_path / "run", sweeps=90, progress=False)
    for part in ("kept_draws", "energy", "marginals", "state"):
        np.testing.assert_array_equal(getattr(again, part), getattr(whole, part))


def test_bits_are_counted_as_they_come():
    """There are more sweeps than a counter of eight bits can count, and rows end within words."""
    graph, _ = GRAPHS["clamped"]
    record = mg.Record("marginals", "draws", chains=90)
    found = mg.sample(
        graph,
        mg.Gibbs(),
        sweeps=600,
        chains=90,
        seed=1,
        scan="chromatic",
        record=record,
        backend="cuda",
        progress=False,
    )
    share = (found.draws == 1).mean(axis=(0, 1))
    np.testing.assert_allclose(found.marginals[:, 1], share, atol=1e-12)


@pytest.mark.parametrize("name", ["tails", "potts tails", "potts"])
def test_a_hundred_thousand_chains_follow_the_distribution(name):
    """Energies of independent chains are compared with quantiles of another long run."""
    graph, sampler = GRAPHS[name]
    options = {"scan": "chromatic", "backend": "cuda", "progress": False}
    made = [
        mg.sample(
            graph,
            which,
            sweeps=60,
            chains=20_000,
            seed=seed,
            record=mg.Record("energy", thin=60, chains=20_000),
            **options,
        ).energy[:, -1]
        for which, seed in ((sampler, 1), (mg.Gibbs(), 2))
    ]
    edges = np.quantile(made[1], np.linspace(0, 1, 11)[1:-1])
    counts = np.array([np.bincount(np.searchsorted(edges, e), minlength=10) for e in made])
    expected = counts.sum(axis=0) / 2
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert chi2.sf(statistic, 9) > 1e-4
