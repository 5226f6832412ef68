"""One cached field per spin: distribution, fields, recomputation, cost of an update."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.kernels.layout import CHANGES, EVALUATIONS
from minigibbs.samplers import registry
from minigibbs.samplers.gibbs import fields, spin_fields
from minigibbs.samplers.gibbs.spin_fields import SpinFieldData
from tests import naive
from tests.harness import FALSE_ALARM, advance_each, begun, chi_square, sample, state_numbers
from tests.samplers.test_distribution import STARTS, exact_starts
from tests.zoo import GLASS, ZOO, glass

SAMPLER = mg.PoissonGibbs()
SMALL = {
    "ising": ZOO["ising"],
    "glass": glass(7, 1.5),
    "clamped": glass(7, 1.5).condition({2: 1, 5: 0}),
    "two": mg.FactorGraph([2, 2], [mg.Potts([0], [1], -1.2)]),
}


@pytest.fixture
def everywhere(monkeypatch):
    """Use fields with few neighbors as well, for any flip rate."""
    monkeypatch.setattr(fields, "LEAST_DEGREE", 0.0)
    monkeypatch.setattr(registry, "LEAST_DEGREE", 0.0)
    monkeypatch.setattr(fields, "RARE", 0.0)


@pytest.mark.parametrize("name", SMALL)
def test_exact_start_keeps_the_distribution(name, everywhere):
    graph = SMALL[name]
    assert isinstance(SAMPLER.prepare(graph), SpinFieldData)
    starts = exact_starts(graph, STARTS, seed=61)
    carried, updates = begun(graph, SAMPLER, starts), 2 * graph.stats.variables
    states, _, _ = advance_each(graph, SAMPLER, starts, updates, seed=62, carried=carried)
    assert chi_square(state_numbers(graph, states), naive.distribution(graph)) > FALSE_ALARM
    assert (states != starts).any(axis=1).mean() > 0.3


def test_wrong_fields_are_caught(everywhere):
    """Negative control: one field with a small error must be detected."""
    graph = SMALL["glass"]
    starts = exact_starts(graph, STARTS, seed=61)
    carried = begun(graph, SAMPLER, starts)
    carried[:, 1] += 0.15
    states, _, _ = advance_each(graph, SAMPLER, starts, 14, seed=62, carried=carried)
    assert chi_square(state_numbers(graph, states), naive.distribution(graph)) < FALSE_ALARM


def test_the_fields_are_the_log_odds():
    graph = GLASS
    start = np.random.default_rng(1).integers(0, 2, (1, 60))
    carried = begun(graph, SAMPLER, start)
    states, carried, tally = advance_each(graph, SAMPLER, start, 5000, seed=63, carried=carried)
    x = np.repeat(states.astype(int), 2, axis=0)
    for i in range(60):
        x[:, i] = [0, 1]
        energy = graph.log_potential(x)
        # 60 terms below 1, and at most 960 changes since they were recomputed
        assert carried[0, 1 + i] == pytest.approx(energy[1] - energy[0], abs=1e-11)
        x[:, i] = states[0, i]
    assert tally[EVALUATIONS] == 59 * tally[CHANGES]  # a change reads only the neighbors


def test_fields_are_summed_anew(monkeypatch):
    errors = {}
    for every in (1, 10**6):
        monkeypatch.setattr(spin_fields, "_REFRESH", every)
        start = np.zeros((1, 60), dtype=int)
        carried = begun(GLASS, SAMPLER, start)
        states, carried, _ = advance_each(GLASS, SAMPLER, start, 500_000, 64, carried=carried)
        errors[every] = np.abs(carried - begun(GLASS, SAMPLER, states))[0, 1:].max()
        assert (carried[0, 0] < 60) == (every == 1)
    assert errors[1] < errors[10**6]


def test_resumed_runs_have_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(spin_fields, "_REFRESH", 2)
    options = {"chains": 2, "seed": 5, "record": "draws", "thin": 10, "progress": False}
    whole = sample(GLASS, updates=4000, **options)
    sample(GLASS, updates=1500, checkpoint=tmp_path / "run", **options)
    again = mg.resume(tmp_path / "run", updates=2500, progress=False)
    np.testing.assert_array_equal(again.draws, whole.draws)


def test_describing_says_so():
    assert "cached fields" in SAMPLER.describe(GLASS)
    assert SAMPLER.operations(GLASS)["write"] < 30
