"""Tempered chains replace plain ones that do not move between modes, and no others."""

import numpy as np
import pytest
from scipy.optimize import minimize

import minigibbs as mg
from minigibbs.learning.ascent import LADDERS, Ascent
from minigibbs.learning.chains import RowChains, Threads
from minigibbs.learning.mixing import FIRST, LAG, Mixing, swings
from tests.learning.test_learn import (
    blank,
    distribution_of_ones,
    lattice,
    learn,
    planted,
    two_modes,
)

COUNT, COUPLING, FIELD = 40, 0.05, 0.03  # a barrier of e^13 between the modes


def rows_of(coupling, seed, count=1000):
    """Draw rows of the complete graph exactly, by their numbers of spins 1."""
    rng = np.random.default_rng(seed)
    ones = rng.choice(COUNT + 1, count, p=distribution_of_ones(COUNT, coupling, FIELD))
    rows = rng.permuted(np.tile(np.arange(COUNT), (count, 1)), axis=1) < ones[:, None]
    return rows.astype(int), ones


def share_of(parameters):
    """Return the probability of the mode of ones, by enumeration."""
    learned = distribution_of_ones(COUNT, parameters["J"][0], parameters["h"][0, 1])
    return learned[COUNT // 2 + 1 :].sum()


def likeliest(ones):
    """Return the share of the mode at the maximum likelihood."""

    def loss(at):
        return -np.log(distribution_of_ones(COUNT, *at))[ones].mean()

    found = minimize(loss, [COUPLING, FIELD], method="Nelder-Mead", options={"xatol": 1e-6}).x
    return distribution_of_ones(COUNT, *found)[COUNT // 2 + 1 :].sum()


@pytest.mark.parametrize("seed", [1, 2])
def test_two_modes_are_weighted_by_default(seed):
    """The couplings pass the transition during the fit, from 0.

    Seeds 1 to 8 ended at most 0.052 from the share at the maximum likelihood, with a standard
    deviation of 0.03. So 0.2 is over six deviations. Plain chains ended at 0 (next test).
    """
    rows, ones = rows_of(COUPLING, seed)
    fit = learn(two_modes(COUNT, 0.0, 0.0), rows, steps=500, errors=False, seed=seed)
    assert fit.tempered is not None
    assert abs(share_of(fit.parameters) - likeliest(ones)) < 0.2
    assert f"plain to step {fit.tempered}" in str(fit)


def test_plain_chains_lose_a_mode(monkeypatch):
    """The negative control: the same fit without the replacement."""
    monkeypatch.setattr(Ascent, "_sticks", lambda _: False)
    rows, ones = rows_of(COUPLING, 1)
    with pytest.warns(UserWarning, match="ended too early"):
        fit = mg.learn(
            two_modes(COUNT, 0.0, 0.0), rows, steps=500, errors=False, seed=1, progress=False
        )
    assert fit.tempered is None
    assert abs(share_of(fit.parameters) - likeliest(ones)) > 0.5


@pytest.mark.parametrize("coupling", [0.02, 0.03])
def test_one_mode_keeps_plain_chains_and_their_bits(coupling, monkeypatch):
    """Below the transition chains mix, at 0.03 slowly. The comparisons change no draw."""
    rows, _ = rows_of(coupling, 1)
    fit = learn(two_modes(COUNT, 0.0, 0.0), rows, steps=850, errors=False)
    monkeypatch.setattr(Ascent, "_sticks", lambda _: False)
    same = learn(two_modes(COUNT, 0.0, 0.0), rows, steps=850, errors=False)
    assert fit.tempered is None
    for name, values in same.parameters.items():
        np.testing.assert_array_equal(fit.parameters[name], values)


def test_fits_of_other_models_that_mix_keep_plain_chains():
    """A lattice beyond its transition included: the statistic of its coupling mixes."""
    draws = mg.sample(
        lattice(16).with_parameters({"J": [0.5]}),
        sampler=mg.SwendsenWang(),
        chains=50,
        sweeps=200,
        record=mg.Record("draws", thin=20),
        seed=1,
        progress=False,
    ).draws
    fit = learn(lattice(16), np.concatenate(draws), steps=450, errors=False)
    assert fit.tempered is None
    rows = mg.exact_draws(planted(), 3000, seed=2)
    assert learn(blank(planted()), rows).tempered is None


def patterns(share, columns=30, count=1000):
    """Return noisy copies of two patterns, one with this share, and which row has which."""
    rng = np.random.default_rng(3)
    pattern, which = rng.integers(0, 2, (2, columns)), rng.random(count) < share
    return pattern[which.astype(int)] ^ (rng.random((count, columns)) < 0.05), pattern


def machine(columns, hidden):
    """Return a restricted Boltzmann machine with small random couplings."""
    unit, column = np.divmod(np.arange(columns * hidden), columns)
    start = 0.05 * np.random.default_rng(4).standard_normal(columns * hidden)
    fields = np.zeros((columns + hidden, 2))
    factors = [
        mg.Unary(range(columns + hidden), fields, name="field"),
        mg.Ising(column, columns + unit, start, name="coupling"),
    ]
    return mg.FactorGraph([2] * (columns + hidden), factors)


def nearer(rows, pattern):
    """Return the share of rows nearer to the second pattern."""
    away = (rows[:, None, :] != pattern).sum(axis=2)
    return (away[:, 1] < away[:, 0]).mean()


def test_a_restricted_machine_learns_the_shares_of_two_clusters():
    """Independent draws of the learned machine: 4,000 have a standard error of 0.007.

    Seeds 1 to 6 ended at most 0.044 from the share in the data.
    """
    rows, pattern = patterns(0.75)
    options = {"columns": list(range(30)), "rate": 0.01, "l2": 1e-3, "steps": 600, "errors": False}
    fit = learn(machine(30, 4), rows, **options)
    assert fit.tempered is not None
    drawn = mg.exact_draws(fit.graph, 4000, seed=1, progress=False)[:, :30]
    assert abs(nearer(drawn, pattern) - nearer(rows, pattern)) < 0.2


def test_a_resumed_fit_has_the_same_bits_across_the_replacement(tmp_path):
    """Interrupted within a comparison, between comparison and replacement, and after it."""
    rows, _ = rows_of(COUPLING, 1, 300)
    rows[::2, 3] = -1
    options = {"chains": 200, "batch": 50, "errors": False, "decay": 15.0}
    graph = two_modes(COUNT, 0.0, 0.0)
    whole = learn(graph, rows, steps=230, **options)
    assert whole.tempered is not None
    assert 120 < whole.tempered < 222
    path = tmp_path / "fit.mgl"
    for made in (120, 222):
        learn(graph, rows, steps=made, checkpoint=path, **options)
        again = mg.resume_learning(path, steps=230 - made, progress=False)
        assert again.tempered == whole.tempered
        for name, values in whole.parameters.items():
            np.testing.assert_array_equal(again.parameters[name], values)


def test_a_fit_keeps_the_step_of_the_replacement_in_its_file(tmp_path):
    rows, _ = rows_of(COUPLING, 1)
    fit = learn(two_modes(COUNT, 0.0, 0.0), rows, steps=210, errors=False)
    fit.save(tmp_path / "a.fit")
    assert mg.load(tmp_path / "a.fit").tempered == fit.tempered == fit.to_dict()["tempered"]


def test_samplers_that_are_given_stay():
    rows, _ = rows_of(COUPLING, 1)
    graph = two_modes(COUNT, 0.0, 0.0)
    for options in ({"sampler": "gibbs", "chains": 3}, {"reweight": True, "rate": 0.01}):
        assert learn(graph, rows, steps=210, errors=False, **options).tempered is None


def compared(kept, chains, seed):
    """Compare chains of 64 fair coins, of which this share keeps its value."""
    graph = mg.FactorGraph([2] * 64, [mg.Unary(range(64), np.zeros(2), name="h")])
    rng, mixing, pool = np.random.default_rng(seed), Mixing(graph), Threads(1)
    states = rng.integers(0, 2, (chains, 64), dtype=np.uint8)
    ours = RowChains(graph, states, np.arange(64, dtype=np.int32), (seed,), pool)
    assert not mixing.stuck(FIRST, np.array([0.0, 1.0]), ours, pool)
    fresh = rng.integers(0, 2, states.shape, dtype=np.uint8)
    ours.load(np.where(rng.random(states.shape) < kept, states, fresh))
    return mixing.stuck(FIRST + LAG, np.array([0.0, 1.0]), ours, pool)


def test_independent_chains_are_never_called_stuck():
    """5 standard deviations: one of 3 million comparisons by chance, here 600."""
    assert not any(compared(0.0, chains, seed) for chains in (30, 60, 120) for seed in range(200))
    assert not any(compared(0.9, 20, seed) for seed in range(20))  # too few chains to tell
    assert all(compared(0.9, 120, seed) for seed in range(20))


def test_a_swing_is_an_error_that_returns():
    assert swings(200, [0.3, 0.05, 0.15], 1000)
    assert not swings(190, [0.3, 0.05, 0.15], 1000)
    assert not swings(200, [0.3, 0.2, 0.15], 1000)
    assert not swings(200, [0.3, 0.05, 0.15], 10)  # noise of few chains


def test_at_most_as_many_ladders_as_chains():
    rows, _ = rows_of(COUPLING, 1)
    ascent = []
    original = Ascent.temper

    def temper(self):
        ascent.append(self)
        return original(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ascent, "temper", temper)
        learn(two_modes(COUNT, 0.0, 0.0), rows, steps=205, errors=False)
    assert [len(one.model) for one in ascent] == [LADDERS]
