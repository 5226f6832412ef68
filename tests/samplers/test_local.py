"""Local Minibatch Gibbs: an update evaluates distinct factors."""

import itertools

import numpy as np
from scipy.special import softmax

import minigibbs as mg
from tests.harness import FALSE_ALARM, advance_each, chi_square


def one_update(phi, choices):
    """Return the distribution of an update with equally likely minibatches: Algorithm 3."""
    energies = [len(phi) / len(chosen) * phi[list(chosen)].sum(axis=0) for chosen in choices]
    return softmax(np.array(energies), axis=1).mean(axis=0)


def test_members_are_drawn_without_replacement():
    """One free variable has five clamped neighbors, of which two are drawn at a time."""
    clamped, weights = np.array([0, 1, 2, 0, 1]), np.array([1.5, -1.0, 0.8, -1.2, 0.9])
    graph = mg.FactorGraph([3] * 6, [mg.Potts(np.zeros(5, int), np.arange(1, 6), weights)])
    graph = graph.condition(dict(enumerate(clamped.tolist(), start=1)))
    phi = weights[:, None] * (clamped[:, None] == np.arange(3))
    starts = np.repeat(np.maximum(graph.evidence, 0)[None], 200_000, axis=0)
    states, _, _ = advance_each(graph, mg.LocalMinibatchGibbs(2), starts, 1, seed=81)
    drawn = states[:, 0].astype(int)
    assert chi_square(drawn, one_update(phi, itertools.combinations(range(5), 2))) > FALSE_ALARM
    with_replacement = one_update(phi, itertools.product(range(5), repeat=2))
    assert chi_square(drawn, with_replacement) < 1e-30  # the test rejects draws with replacement
