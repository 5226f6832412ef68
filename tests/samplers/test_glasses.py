"""Equilibrium of three-dimensional spin glasses: exact draws of 4^3, and Nishimori's line for 6^3.

On Nishimori's line the energy of a glass is known on average over the couplings, and the overlap of
two replicas is distributed as that of a replica with the state from which the couplings are drawn
(Nishimori 1981, doi:10.1143/PTP.66.1169).
"""

import numpy as np
import pytest
from scipy import stats

import minigibbs as mg
from tests.harness import FALSE_ALARM

QUIET = {"progress": False, "seed": 1}
SIDE, SCALE = 4, 0.7  # the second temperature, relative to the first
CUBE = mg.models.spin_glass(SIDE, couplings="signs", seed=1)
WARM = mg.models.spin_glass(SIDE, beta=SCALE, couplings="signs", seed=1)
EDGES = np.linspace(-1.0, 1.0, 9) + 1e-9  # no overlap of 64 spins lies on an end


def exact_energy(beta, step=1e-3):
    """Return the mean energy of the cube: minus the derivative of log Z, by exact elimination."""
    ends = [
        mg.log_partition(mg.models.spin_glass(SIDE, beta=b, couplings="signs", seed=1))
        for b in (beta - step, beta + step)
    ]
    return -(ends[1] - ends[0]) / (2 * step)


@pytest.fixture(scope="module")
def levels():
    record = mg.Record(temperatures=True)
    sampler = mg.Tempering(houdayer=True)
    return mg.sample(CUBE, sampler, sweeps=4000, record=record, **QUIET).temperatures


def test_energies_of_a_cube_are_exact(levels):
    """FALSE_ALARM for three energies together."""
    betas = [0.4, SCALE, 1.0]
    found = levels.mean("energy", betas)
    away = (found.value - [exact_energy(beta) for beta in betas]) / found.error
    assert np.abs(away).max() < stats.t.isf(FALSE_ALARM / 6, found.blocks - 1)
    assert (found.error < 0.1).all()  # of energies of about -100


def test_overlaps_of_a_cube_are_those_of_exact_draws(levels):
    """P(q) of 10,000 pairs of exact draws; FALSE_ALARM for eight bins together."""
    draws = mg.exact_draws(WARM, 20_000, seed=2).astype(np.int8)
    overlap = 2.0 * (draws[::2] == draws[1::2]).mean(axis=1) - 1.0
    shares = np.histogram(overlap, EDGES)[0] / len(overlap)
    edges, density = levels.overlap_distribution(SCALE, bins=64)
    width = np.diff(edges)
    place = np.digitize(0.5 * (edges[1:] + edges[:-1]), EDGES) - 1
    found = np.bincount(place, density.value * width, minlength=8)
    # The sum of errors bounds the error of a sum.
    error = np.bincount(place, density.error * width, minlength=8)
    error = np.hypot(error, np.sqrt(shares * (1 - shares) / len(overlap)))
    assert (np.abs(found - shares) < stats.norm.isf(FALSE_ALARM / 16) * error).all()
    assert error.max() < 0.02


def test_population_annealing_of_a_cube_is_exact():
    """Log Z and the energy at the last temperature; FALSE_ALARM for both together."""
    annealing = mg.PopulationAnnealing(population=1000)
    answer = mg.infer(WARM, "100s", exact=False, sampler=annealing, **QUIET)
    found, limit = answer.population, stats.norm.isf(FALSE_ALARM / 4)
    assert abs(answer.log_z - mg.log_partition(WARM)) < limit * answer.log_z_error
    away = found.energy[-1] - SCALE * exact_energy(SCALE)
    assert abs(away) < limit * found.energy_error[-1]


def planted(side, coupling, rng):
    """Return a glass on Nishimori's line and the spins from which its couplings are drawn."""
    graph = mg.models.spin_glass(side, couplings="signs", seed=1)
    (group,) = graph.factors
    spins = rng.choice([-1, 1], len(graph))
    alike = rng.random(len(group.scope)) < 1.0 / (1.0 + np.exp(-2.0 * coupling))
    signs = np.where(alike, 1.0, -1.0) * spins[group.scope].prod(axis=1)
    return mg.FactorGraph([2] * len(graph), [mg.Ising(*group.scope.T, coupling * signs)]), spins


def test_glasses_on_nishimoris_line():
    """The energy, and the second moments of both overlaps; FALSE_ALARM for both together."""
    coupling, count, rng = 0.55, 24, np.random.default_rng(6)
    levels, energies, moments = tuple(np.linspace(0.0, 1.0, 16)), [], []
    record = mg.Record("draws", thin=2, temperatures=True)
    for _ in range(count):
        graph, spins = planted(6, coupling, rng)
        sampler = mg.Tempering(levels=levels, houdayer=True)
        run = mg.sample(graph, sampler, sweeps=200, chains=2, record=record, **QUIET)
        energies.append(run.temperatures.energy[-1].mean() / len(graph.factors[0].scope))
        hidden = (2.0 * run.draws - 1.0) @ spins / len(graph)
        moments.append((run.temperatures.overlap[-1] ** 2).mean() - (hidden**2).mean())
    expected = (-coupling * np.tanh(coupling), 0.0)
    for values, mean in zip((energies, moments), expected, strict=True):
        score = (np.mean(values) - mean) / (np.std(values, ddof=1) / np.sqrt(count))
        assert abs(score) < stats.t.isf(FALSE_ALARM / 4, count - 1)
    assert np.std(energies) < 0.02
    assert np.std(moments) < 0.1
