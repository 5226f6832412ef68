"""Chains with importance weights for changing parameters."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.learning.chains import RowChains, Threads
from minigibbs.learning.weighted import WeightedChains


def learn(graph, rows, **given):
    return mg.learn(graph, rows, **{"seed": 1, "progress": False} | given)


def ring():
    """Return a weakly coupled ring of spins, a strongly coupled one, and draws of the first."""
    i = np.arange(6)
    graph = mg.FactorGraph(
        [2] * 6, [mg.Ising(i, (i + 1) % 6, 0.1, name="J", tied=0), mg.Unary([0], [0.0, 0.5])]
    )
    strong = graph.with_parameters({"J": 0.4})
    return graph, strong, mg.exact_draws(graph, 4000, seed=1)


def agreement(states, weights=None):
    return np.average((states == np.roll(states, -1, axis=1)).mean(axis=1), weights=weights)


def weighted(graph, states):
    chains = RowChains(graph, states, np.arange(6, dtype=np.int32), (0,), Threads(1))
    return WeightedChains(graph, graph.frame.flat(graph.factors), chains)


def test_weights_give_the_moments_of_other_parameters():
    """The chains are 4,000 exact draws that never change.

    The effective number of draws is above 1,000 (asserted). So an agreement between 0 and 1 has a
    standard error below 0.016, and log Z one below 0.04. Limits are 4.5 of them, with a false alarm
    of 7 in a million. Without weights the result agrees with the weak couplings.
    """
    graph, strong, states = ring()
    found = weighted(graph, states)
    found.follow(strong.frame.flat(strong.factors), np.random.default_rng(0))
    shares = found.shares
    assert 1 / (shares @ shares) > 1000
    answer = mg.infer(strong, progress=False)
    pairs = [answer.joint(k, (k + 1) % 6) for k in range(6)]
    wanted = np.mean([p[0, 0] + p[1, 1] for p in pairs])
    assert abs(agreement(states, shares) - wanted) < 4.5 * 0.016
    assert abs(agreement(states) - wanted) > 4.5 * 0.016
    before = mg.infer(graph, progress=False).log_z
    assert abs(found.log_ratio - (answer.log_z - before)) < 4.5 * 0.04


def test_drawing_anew_keeps_averages_and_log_z():
    graph, strong, states = ring()
    found = weighted(graph, states)
    found.follow(strong.frame.flat(strong.factors), np.random.default_rng(0))
    shares, ratio, last = found.shares, found.log_ratio, found.chains.states().copy()
    found.resample(np.random.default_rng(2))
    # Systematic resampling selects each chain its expected number of times, within one.
    assert agreement(found.chains.states()) == pytest.approx(agreement(last, shares), abs=0.01)
    assert found.log_ratio == pytest.approx(ratio)
    assert (found.weights == 0).all()


def modes():
    """Return rows near four patterns of 40 columns, in which one of twenty cells differs."""
    rng = np.random.default_rng(1)
    patterns = rng.integers(0, 2, (4, 40))
    kind = rng.choice(4, 2000, p=[0.5, 0.3, 0.15, 0.05])
    return (patterns[kind] ^ (rng.random((2000, 40)) < 0.05)).astype(int)


def machine(hidden, visible):
    i, j = np.meshgrid(np.arange(hidden), hidden + np.arange(visible), indexing="ij")
    weights = 0.05 * np.random.default_rng(0).normal(size=i.size)
    fields = np.zeros((hidden + visible, 2))
    return mg.FactorGraph(
        [2] * (hidden + visible),
        [
            mg.Ising(i.ravel(), j.ravel(), weights, name="W"),
            mg.Unary(np.arange(hidden + visible), fields, name="b"),
        ],
    )


def test_modes_get_the_probability_that_they_have_in_the_data():
    """Plain Gibbs does not move between patterns of 40 columns.

    The log-likelihood is exact. The rows have an entropy of 40 * 0.199 + 1.14 = 9.08 nats.
    """
    rows, found = modes(), {}
    columns = list(range(6, 46))
    for reweight in (True, False):
        options = {"steps": 400, "rate": 0.01, "chains": 400, "l2": 1e-3, "errors": False}
        options |= {"reweight": True} if reweight else {"sampler": "gibbs"}
        fit = learn(machine(6, 40), rows, columns=columns, **options)
        found[reweight] = fit.log_likelihood(rows, columns=columns).mean
    assert found[True] > -9.08 - 1.4  # -10.07 with this seed
    assert found[False] < found[True] - 0.8  # -11.60


def test_what_has_no_weights_is_refused():
    graph, _, states = ring()
    for options, message in (
        ({"method": "cd"}, 'reweight=True needs method="pcd"'),
        ({"sampler": mg.Tempering()}, "leave sampler out"),
    ):
        with pytest.raises(mg.LearnError, match=message):
            learn(graph, states, reweight=True, **options)
