"""mg.ExactSampler: independent draws."""

import re

import numpy as np
import pytest

import minigibbs as mg
from tests.harness import FALSE_ALARM, chi_square, state_numbers, sweep_each
from tests.zoo import ZOO

GRID = mg.models.ising_lattice(12, 0.5, periodic=False)


def draws_of(graph, count, **options):
    record = mg.Record("draws", thin=1)
    run = mg.sample(graph, sweeps=count, chains=1, seed=1, record=record, progress=False, **options)
    return run.draws[0]


@pytest.mark.parametrize("model", ZOO)
def test_draws_are_independent(model):
    graph = ZOO[model]
    draws = draws_of(graph, 40_000, sampler=mg.ExactSampler())
    distribution = mg.theory.Enumeration(graph).distribution
    assert chi_square(state_numbers(graph, draws), distribution) > FALSE_ALARM
    energy = graph.log_potential(draws)
    lag = np.corrcoef(energy[1:], energy[:-1])[0, 1]
    assert abs(lag) < 4 / np.sqrt(len(draws))  # 4 standard errors: 6e-5


def test_wide_graphs_have_the_marginals_of_elimination():
    draws = draws_of(GRID.condition({0: 1, 143: 1}), 20_000, sampler=mg.ExactSampler())
    exact = mg.exact_marginals(GRID.condition({0: 1, 143: 1}))[:, 1]
    # 144 means of 20,000 draws: 5 standard errors each, jointly 8e-5
    error = np.sqrt(exact * (1 - exact) / 20_000)
    assert (np.abs(draws.mean(axis=0) - exact) <= 5 * error).all()


def test_a_start_does_not_matter():
    graph = ZOO["mixed"]
    ends = [
        sweep_each(graph, mg.ExactSampler(), [state] * 50, 1, seed=4)[0]
        for state in ([0] * 6, (graph.sizes - 1).tolist())
    ]
    assert (ends[0] == ends[1]).all()


def test_a_sweep_looks_up_each_part_once():
    chain = mg.FactorGraph([3] * 50, [mg.Potts(range(49), range(1, 50), 0.7)])
    _, tally = sweep_each(chain, mg.ExactSampler(), np.zeros((10, 50), int), 1, seed=1)
    assert tally[0] <= 10 * (49 + 49)  # factors and messages, if none are merged
    assert tally[1] == 10


def test_energies_beyond_the_range_of_numbers():
    graph = mg.FactorGraph([3] * 4, [mg.Potts([0, 1, 2], [1, 2, 3], [4000.0, -3000.0, 2500.0])])
    assert (graph.log_potential(draws_of(graph, 200, sampler=mg.ExactSampler())) == 6500.0).all()


def test_graphs_that_are_too_wide_are_refused():
    with pytest.raises(mg.TooLargeError, match="treewidth is too large"):
        mg.sample(mg.models.ising_lattice(60, 0.3), mg.ExactSampler(), sweeps=1, progress=False)
    with pytest.raises(mg.TooLargeError, match="memory="):
        mg.sample(GRID, mg.ExactSampler(memory=1e3), sweeps=1, progress=False)


@pytest.mark.parametrize("memory", [0, -1.0, "4GB", True, float("nan")])
def test_memory_is_a_number_of_bytes(memory):
    with pytest.raises(mg.SampleError, match="memory must be a number"):
        mg.ExactSampler(memory=memory)


def test_it_describes_itself():
    width = int(re.search(r"elimination of width (\d+);", mg.ExactSampler().describe(GRID))[1])
    assert mg.theory.treewidth_bound(GRID) <= width <= 16  # marginals may use another tree
    assert str(mg.ExactSampler(memory=1e9)) == "ExactSampler(memory=1000000000.0)"
