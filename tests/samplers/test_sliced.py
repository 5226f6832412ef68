"""Bit-sliced ladders compared with enumeration."""

import itertools

import numpy as np
import pytest
from scipy import stats

import minigibbs as mg
from minigibbs.kernels.random import streams
from minigibbs.samplers.tempering.sliced import set_temperatures, sliced_ladder, sliced_rounds
from minigibbs.samplers.tempering.sliced_counts import MOST_NEIGHBORS, count_model
from minigibbs.samplers.tempering.sliced_weights import weight_model

STATES = np.array(list(itertools.product([0, 1], repeat=6)), np.uint8)
FALSE_ALARM = 1e-4  # of each chi-square test


PAIRS = np.array([(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 2), (2, 3), (3, 4), (4, 5)]).T
SIGNS = np.array([1, -1, 1, 1, -1, 1, 1, -1, 1])
ANY = np.array([0.9, -0.3, 0.6, 0.2, -0.8, 0.5, 0.7, -0.4, 0.3])  # strengths
GLASSES = {  # frustrated glasses of six spins with 2 to 5 neighbors
    "counts": mg.FactorGraph([2] * 6, [mg.Ising(*PAIRS, 0.5 * SIGNS)]),
    "weights": mg.FactorGraph([2] * 6, [mg.Ising(*PAIRS, ANY)]),
    "fields": mg.FactorGraph([2] * 6, [mg.Ising(*PAIRS, ANY), mg.Unary([1, 4], [0.0, 0.7])]),
}


def model_of(name):
    """Return the model of a glass."""
    return (count_model if name == "counts" else weight_model)(GLASSES[name])


def put(data, states):
    """Store states [variable, lane]."""
    words = np.packbits(states, axis=1, bitorder="little").view("<u8")
    data.x[: words.size] = words.ravel()


def get(data):
    """Return the states [variable, lane]."""
    words = data.x.reshape(-1, data.width)[:-1].astype("<u8")
    return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")


def p_value(name, ladders, factor=1.0, chains=300, level=20):
    """Run from exact states; return the p-value of the states of a level being exact, too.

    The chains run at `factor` times their inverse temperatures.
    """
    model, levels = model_of(name), 512 // ladders
    beta, level = np.linspace(0.15, 1.5, levels), level * levels // 32
    weights = np.exp(beta[:, None] * GLASSES[name].log_potential(STATES))
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


@pytest.mark.parametrize("ladders", [8, 16])
def test_rounds_keep_the_distribution(ladders):
    """Sweeps, cluster moves and exchanges keep exact states exact, at every number of ladders."""
    assert p_value("counts", ladders) > FALSE_ALARM


@pytest.mark.parametrize("name", ["weights", "fields"])
def test_rounds_of_any_strengths_keep_the_distribution(name):
    assert p_value(name, 16) > FALSE_ALARM


@pytest.mark.parametrize("name", ["counts", "fields"])
def test_a_wrong_temperature_is_noticed(name):
    """Negative control: chains that run 1.5 times as cold fail the same test."""
    assert p_value(name, 16, factor=1.5) < FALSE_ALARM


def test_costs_are_log_potentials():
    """The differences of the costs of all replicas are those of their log-potentials."""
    for name, graph in GLASSES.items():
        data = sliced_ladder(model_of(name), 32, 16, streams(3, 1)[0])
        set_temperatures(data, np.linspace(0.1, 1.0, 32))
        sliced_rounds(data, 0, 2, False)
        log = graph.log_potential(get(data).T)
        cost = data.model.unit * data.cost
        np.testing.assert_allclose(cost - cost[0], log[0] - log, atol=1e-12)
        least = graph.log_potential(data.best) - log[0]
        assert data.model.unit * data.least[0] - cost[0] == pytest.approx(-least)


def test_unsatisfied_pairs_are_counted():
    """Planes of sums are compared with plain counts, for more pairs than fit into one sum."""
    rng = np.random.default_rng(1)
    i, j = np.triu_indices(15, 1)
    weights = rng.choice([-0.7, 0.7], len(i))
    model = count_model(mg.FactorGraph([2] * 15, [mg.Potts(i, j, weights)]))
    data = sliced_ladder(model, 32, 16, streams(1, 1)[0])
    set_temperatures(data, np.linspace(0.1, 1.0, 32))
    sliced_rounds(data, 0, 3, False)
    states = get(data)
    naive = ((states[i] == states[j]) != (weights > 0)[:, None]).sum(axis=0)
    np.testing.assert_array_equal(data.cost, naive)
    best = (data.best[i] == data.best[j]) != (weights > 0)
    assert best.sum() == data.least[0] <= naive.min()


def test_replicas_have_random_numbers_of_their_own():
    """All replicas begin equal. At one temperature half of the pairs of free spins differ later."""
    graph = mg.FactorGraph([2] * 200, [mg.Ising(np.arange(0, 200, 2), np.arange(1, 200, 2), 0.1)])
    data = sliced_ladder(count_model(graph), 32, 16, streams(2, 1)[0])
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
def test_other_models_are_not_counted(graph):
    assert count_model(graph) is None


def test_evidence_becomes_a_field():
    free = mg.FactorGraph([2] * 4, [mg.Ising([0, 1], [1, 2], 1.0)])
    assert count_model(free.condition({3: 1})).order.tolist() == [0, 1, 2]
    model = weight_model(free.condition({0: 1}))
    assert model.order.tolist() == [1, 2, 3]
    assert not model.even
    np.testing.assert_allclose(model.unit * model.field_cost, [2.0, 0.0, 0.0])
