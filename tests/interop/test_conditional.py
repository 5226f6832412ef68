"""Gibbs sweeps at given parameters, the shared part of the PyMC, NumPyro and blackjax steps."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.interop.conditional import ConditionalGibbs
from tests.harness import chi_square


def graph():
    return mg.FactorGraph(
        [2, 3, 2],
        [
            mg.Potts([0, 1], [1, 2], 0.0, name="J", tied=0),
            mg.Unary([1], np.zeros((1, 3)), name="h"),
        ],
    )


def test_steps_keep_the_distribution():
    """A step preserves the exact distribution of states, by a chi-square test at 1e-4.

    The distribution at other parameters is the control.
    """
    gibbs = ConditionalGibbs(graph(), 1)
    given = {"J": [0.8], "h": [[0.0, -np.inf, 1.0]]}
    moved, values = graph().with_parameters(given), gibbs.read(given)
    states = mg.exact_draws(moved, 2000, seed=1)
    after = np.array([gibbs.step(one, values, [k]) for k, one in enumerate(states)])
    numbers = np.ravel_multi_index(tuple(after.T.astype(int)), (2, 3, 2))
    every = np.stack(np.unravel_index(np.arange(12), (2, 3, 2)), axis=1)

    def distribution(graph):
        weight = np.exp(graph.log_potential(every))
        return weight / weight.sum()

    assert (after != states).any()
    assert chi_square(numbers, distribution(moved)) > 1e-4
    assert chi_square(numbers, distribution(moved.with_parameters({"J": [0.2]}))) < 1e-4


def test_states_must_agree_with_the_evidence():
    gibbs = ConditionalGibbs(graph().condition({1: 2}), 1)
    values = gibbs.read({})
    assert gibbs.step([0, 2, 0], values, [1])[1] == 2
    with pytest.raises(mg.GraphError, match=r"variable 1: the graph clamps it to 2, .* has 0"):
        gibbs.step([0, 0, 0], values, [1])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"J": [np.inf]}, r"'J'\[0\] must be finite; got inf"),
        ({"J": [-np.inf]}, r"'J'\[0\] must be finite; got -inf"),
        ({"h": [[0.0, np.inf, 0.0]]}, r"'h'\[0, 1\] must be finite, or -inf; got inf"),
        ({"J": [np.nan]}, "got NaN"),
        ({"J": [1.0, 2.0]}, r"shape \(1,\)"),
        ({"K": [1.0]}, "unknown parameter 'K'"),
    ],
)
def test_parameters_are_checked(given, message):
    with pytest.raises(mg.GraphError, match=message):
        ConditionalGibbs(graph(), 1).read(given)
