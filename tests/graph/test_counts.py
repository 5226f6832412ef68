"""Statistics counted by bits equal directly summed statistics."""

import numpy as np
import pytest

import minigibbs as mg
from tests.learning.models import mixed


def countable():
    """Return ties, scales, shared tables, fields, and pairs with different domains."""
    rng = np.random.default_rng(0)
    return mg.FactorGraph(
        [2, 3, 3, 4, 2],
        [
            mg.Potts([0, 1, 3], [1, 2, 2], [0.5, 0.1], name="J", tied=[0, 1, 0], scale=[1, 2, 0.5]),
            mg.Ising([0], [4], 0.2, name="c"),
            mg.Table([[0, 1], [0, 2]], rng.normal(size=(2, 3)), weight=[1.0, -0.5], name="T"),
            mg.Table([[2, 1], [1, 2]], rng.normal(size=(2, 3, 3)), name="U"),
            mg.Unary([3], rng.normal(size=4), name="h"),
        ],
    )


@pytest.mark.parametrize("count", [1, 31, 32, 63, 64, 65, 130, 1000])
def test_bits_and_sums_agree(count):
    graph = countable()
    assert graph.frame.countable
    states = (np.random.default_rng(count).random((count, 5)) * graph.sizes).astype(np.uint8)
    by_bits = graph.frame.summed(states)
    np.testing.assert_allclose(by_bits, graph.frame.summed(states, np.ones(count)), rtol=1e-13)
    np.testing.assert_allclose(by_bits, graph.frame.statistics(states).sum(axis=0), rtol=1e-12)
    moved = states.copy()
    moved[0, 3] = (moved[0, 3] + 1) % 4
    assert (graph.frame.summed(moved) != by_bits).any()


def test_formulas_are_not_counted_by_bits():
    graph = mixed()
    assert not graph.frame.countable
    states = (np.random.default_rng(0).random((200, 4)) * graph.sizes).astype(np.uint8)
    expected = graph.frame.statistics(states).sum(axis=0)
    np.testing.assert_allclose(graph.frame.summed(states), expected, rtol=1e-12)
