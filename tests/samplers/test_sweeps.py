"""Samplers that update all variables at once: their distribution, and runs with them."""

import zlib

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.running.api import one_chain
from tests import naive
from tests.harness import FALSE_ALARM, chi_square, sample, state_numbers, sweep_each
from tests.samplers.test_distribution import exact_starts
from tests.settings import SWEEPS

CASES = [(name, model) for name, setting in SWEEPS.items() for model in setting.graphs]
GOLDEN = {name: setting for name, setting in SWEEPS.items() if setting.golden is not None}


def case(name, model):
    return SWEEPS[name], SWEEPS[name].graphs[model]


@pytest.mark.parametrize(("name", "model"), CASES)
def test_the_matrix_of_a_sweep_keeps_the_distribution(name, model):
    setting, graph = case(name, model)
    distribution, matrix = naive.distribution(graph.stored()), setting_matrix(setting, graph)
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(distribution @ matrix, distribution, atol=1e-13)
    flow = distribution[:, None] * matrix
    if setting.reversible:
        np.testing.assert_allclose(flow, flow.T, atol=1e-14)


def setting_matrix(setting, graph):
    return mg.theory.transition(graph.stored(), setting.sampler).matrix


def comparable():
    """Yield cases with few cells; implicit pairs with clamped variables are bonds, not fields."""
    for name, model in CASES:
        graph = SWEEPS[name].graphs[model]
        bonded = graph.implicits and (graph.evidence >= 0).any() and name != "exact"
        if np.prod(graph.sizes[graph.evidence < 0]) <= 130 and not bonded:
            yield name, model


@pytest.mark.parametrize(("name", "model"), list(comparable()))
def test_a_sweep_has_the_matrix(name, model):
    """Test counts by cell against the matrix, from equally many starts in every possible state.

    For an implicit graph, the matrix is that of its explicit form.
    """
    setting, graph = case(name, model)
    states = np.array(naive.states(graph))
    possible = np.flatnonzero(naive.distribution(graph.stored()) > 0)
    matrix, each = setting_matrix(setting, graph)[possible], 200_000 // len(possible)
    starts = np.repeat(states[possible], each, axis=0)
    after, _ = sweep_each(graph, setting.sampler, starts, 1, seed=31)
    row = np.repeat(np.arange(len(possible)), each)
    numbers = row * len(states) + state_numbers(graph, after)
    assert (matrix.ravel()[numbers] > 0).all()
    assert chi_square(numbers, matrix.ravel() / len(possible)) > FALSE_ALARM


@pytest.mark.parametrize(("name", "model"), CASES)
def test_exact_start_keeps_the_distribution(name, model):
    setting, graph = case(name, model)
    starts = exact_starts(graph.stored(), 60_000, seed=11)
    states, _ = sweep_each(graph, setting.sampler, starts, 2, seed=12)
    numbers, distribution = state_numbers(graph, states), naive.distribution(graph.stored())
    assert (distribution[numbers] > 0).all()
    assert chi_square(numbers, distribution) > FALSE_ALARM
    assert (states != starts).any(axis=1).mean() > 0.2  # and states must change


@pytest.mark.parametrize("name", SWEEPS)
def test_slightly_wrong_weights_are_caught(name):
    """Negative control: the chi-square test must detect a weight that is off by 15%."""
    setting = SWEEPS[name]
    wrong, right = (
        mg.FactorGraph(
            [3] * 4,
            [
                mg.Potts([0, 1, 2, 3], [1, 2, 3, 0], [0.9 * scale, 0.7, 0.4, 1.1 * scale]),
                mg.Unary([0], [[0.0, 0.5, -0.4]]),
            ],
        )
        for scale in (1.15, 1.0)
    )
    starts = exact_starts(right, 60_000, seed=11)
    states, _ = sweep_each(wrong, setting.sampler, starts, 5, seed=12)
    assert chi_square(state_numbers(right, states), naive.distribution(right)) < FALSE_ALARM


@pytest.mark.quick
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_draws(name):
    """These draws pin the random stream: changing them is a breaking change."""
    setting = GOLDEN[name]
    run = sample(setting.graph, setting.sampler, sweeps=200, **PINNED)
    assert zlib.crc32(run.draws.tobytes()) == setting.golden


PINNED = {"chains": 1, "seed": 2024, "record": "draws", "thin": 1, "progress": False}


@pytest.mark.parametrize("name", SWEEPS)
def test_same_draws_whatever_carries_the_chains(name):
    setting = SWEEPS[name]
    options = {"sweeps": 60, "chains": 3, "seed": 5, "record": "draws", "progress": False}
    runs = [
        mg.sample(setting.graph, setting.sampler, **options, **how)
        for how in ({"threads": 1}, {"threads": 3}, {"executor": "processes"})
    ]
    for run in runs[1:]:
        assert (runs[0].draws == run.draws).all()


@pytest.mark.parametrize("name", SWEEPS)
def test_a_chain_that_is_cut_goes_on_as_if_it_were_not(name):
    """Scratch arrays outside the state are reset: they must not persist between sweeps."""
    setting = SWEEPS[name]
    whole, first, second = (one_chain(setting.graph, setting.sampler) for _ in range(3))
    whole.advance(90 * whole.unit, True)
    first.advance(37 * first.unit, True)
    second.restore({name: array.copy() for name, array in first.state().items()})
    second.advance(53 * second.unit, True)
    for name in ("x", "stream", "tally"):
        assert (whole.state()[name] == second.state()[name]).all()


@pytest.mark.parametrize("name", SWEEPS)
def test_sample_until_stops(name):
    setting = SWEEPS[name]
    run = mg.sample_until(setting.graph, setting.sampler, max_time=60, seed=1, progress=False)
    assert run.info.ended == "converged"


@pytest.mark.parametrize("name", SWEEPS)
def test_everything_clamped(name):
    setting = SWEEPS[name]
    graph = setting.graph
    state = {k: int(size) - 1 for k, size in enumerate(graph.sizes) if graph.evidence[k] < 0}
    run = mg.sample(graph.condition(state), setting.sampler, sweeps=5, seed=1, progress=False)
    assert run.marginals.max(axis=1).tolist() == [1.0] * len(graph)
