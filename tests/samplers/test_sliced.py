"""Bit-sliced ladders compared with enumeration."""

import itertools

import numpy as np
import pytest
from scipy import stats

import minigibbs as mg
from minigibbs.kernels.random import streams
from minigibbs.samplers.tempering.sliced import (
    MOST_NEIGHBORS,
    set_temperatures,
    sliced_ladder,
    sliced_model,
    sliced_rounds,
)

STATES = np.array(list(itertools.product([0, 1], repeat=6)), np.uint8)
BETA = np.linspace(0.15, 1.5, 32)
FALSE_ALARM = 1e-4  # of each chi-square test


def glass():
    """Return a frustrated glass of six spins with 2 to 5 neighbors, all of one strength."""
    pairs = np.array([(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 2), (2, 3), (3, 4), (4, 5)])
    sign = np.array([1, -1, 1, 1, -1, 1, 1, -1, 1])
    return mg.FactorGraph([2] * 6, [mg.Ising(*pairs.T, 0.5 * sign)])


def put(data, states):
    """Store states [variable, lane]."""
    words = np.packbits(states, axis=1, bitorder="little").view("<u8")
    data.x[: words.size] = words.ravel()


def get(data):
    """Return the states [variable, lane]."""
    words = data.x.reshape(-1, data.width)[:-1].astype("<u8")
    return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")


def p_value(ladders, factor=1.0, chains=60, level=20):
    """Run from exact states; return the p-value of the states of a level being exact, too.

    The chains run at `factor` times their inverse temperatures.
    """
    graph, levels = glass(), 512 // ladders
    model, beta = sliced_model(graph), BETA[:levels] if levels <= 32 else np.linspace(0.1, 2, 64)
    beta, level = beta * model.strength, level * levels // 32
    energies = graph.log_potential(STATES)
    weights = np.exp(beta[:, None] * energies / model.strength)
    chance = weights / weights.sum(axis=1, keepdims=True)
    rng, counts = np.random.default_rng(ladders), np.zeros(len(STATES))
    for stream in streams(ladders, chains):
        data = sliced_ladder(model, levels, ladders, stream)
        chosen = [rng.choice(len(STATES), ladders, p=row) for row in chance]
        put(data, STATES[np.concatenate(chosen)].T.copy())
        set_temperatures(data, factor * beta)
        sliced_rounds(data, 0, 9, True)
        found = get(data)[:, level * ladders : (level + 1) * ladders]
        np.add.at(counts, found.T @ (1 << np.arange(6)[::-1]), 1)
    expected = chance[level] * counts.sum()
    order, merged, bins = np.argsort(expected), [], []
    for k in order:  # bins of at least five expected states
        if not bins or bins[-1] >= 5.0:
            bins.append(0.0)
            merged.append(0.0)
        bins[-1] += expected[k]
        merged[-1] += counts[k]
    bins[-2:], merged[-2:] = [sum(bins[-2:])], [sum(merged[-2:])]
    return stats.chisquare(merged, bins).pvalue


@pytest.mark.parametrize("ladders", [8, 16, 32])
def test_rounds_keep_the_distribution(ladders):
    """Sweeps, cluster moves and exchanges keep exact states exact, at every number of ladders."""
    assert p_value(ladders) > FALSE_ALARM


def test_a_wrong_temperature_is_noticed():
    """Negative control: chains that run 1.5 times as cold fail the same test."""
    assert p_value(16, factor=1.5) < FALSE_ALARM


def test_unsatisfied_pairs_are_counted():
    """Planes of sums are compared with plain counts, for more pairs than fit into one sum."""
    rng = np.random.default_rng(1)
    i, j = np.triu_indices(15, 1)
    weights = rng.choice([-0.7, 0.7], len(i))
    model = sliced_model(mg.FactorGraph([2] * 15, [mg.Potts(i, j, weights)]))
    data = sliced_ladder(model, 32, 16, streams(1, 1)[0])
    set_temperatures(data, np.linspace(0.1, 1.0, 32))
    sliced_rounds(data, 0, 3, False)
    states = get(data)
    naive = ((states[i] == states[j]) != (weights > 0)[:, None]).sum(axis=0)
    np.testing.assert_array_equal(data.unsatisfied, naive)
    best = (data.best[i] == data.best[j]) != (weights > 0)
    assert best.sum() == data.least[0] <= naive.min()


def test_replicas_have_random_numbers_of_their_own():
    """All replicas begin equal. At one temperature half of the pairs of free spins differ later."""
    graph = mg.FactorGraph([2] * 200, [mg.Ising(np.arange(0, 200, 2), np.arange(1, 200, 2), 0.1)])
    data = sliced_ladder(sliced_model(graph), 32, 16, streams(2, 1)[0])
    data.x[:] = 0
    set_temperatures(data, np.full(32, 0.2))
    sliced_rounds(data, 0, 20, False)
    overlap = np.corrcoef(get(data).T.astype(float))[np.triu_indices(512, 1)]
    # Errors of a correlation of 200 spins in pairs: less than 0.1 each; the largest of 130,816.
    assert np.abs(overlap).max() < 6.5 * 0.1
    assert overlap.std() < 0.12


@pytest.mark.parametrize(
    "graph",
    [
        mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], [1.0, 2.0])]),
        mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], 1.0), mg.Unary([0], [0.0, 0.5])]),
        mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], 1.0)]).condition({0: 1}),
        mg.FactorGraph([3] * 3, [mg.Potts([0, 1], [1, 2], 1.0)]),
        mg.FactorGraph([2] * 3, []),
        mg.FactorGraph(
            [2] * (MOST_NEIGHBORS + 2),
            [mg.Ising([0] * (MOST_NEIGHBORS + 1), range(1, MOST_NEIGHBORS + 2), 1.0)],
        ),
    ],
    ids=["strengths", "field", "evidence", "colors", "free", "neighbors"],
)
def test_other_models_have_another_layout(graph):
    assert sliced_model(graph) is None


def test_evidence_without_fields_is_taken():
    graph = mg.FactorGraph([2] * 4, [mg.Ising([0, 1], [1, 2], 1.0)]).condition({3: 1})
    assert sliced_model(graph).order.tolist() == [0, 1, 2]
