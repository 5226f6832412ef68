"""The distribution of every registered sampler on every graph of the zoo (see docs/testing.md)."""

import numpy as np
import pytest

import minigibbs as mg
from tests import naive
from tests.harness import FALSE_ALARM, advance_each, chi_square, state_numbers
from tests.settings import EXACT
from tests.zoo import ZOO

STARTS = 60_000


def exact_starts(graph, count, seed):
    """Return independent states from the exact joint distribution."""
    rng = np.random.default_rng(seed)
    numbers = rng.choice(len(naive.states(graph)), size=count, p=naive.distribution(graph))
    return np.array(naive.states(graph))[numbers]


@pytest.mark.parametrize("model", ZOO)
@pytest.mark.parametrize("setting", EXACT)
def test_exact_start_keeps_the_distribution(setting, model):
    """A sweep's number of updates must preserve the distribution of exact draws."""
    case, graph = EXACT[setting], ZOO[model]
    if case.pairs_only and model not in ("potts", "ising"):
        pytest.skip("it takes pairs and unary factors over small domains alone")
    starts = exact_starts(graph, STARTS, seed=11)
    updates = graph.stats.variables
    states, _, _ = advance_each(
        graph, case.sampler, starts, updates, seed=12, carried=case.carry(graph, starts, seed=13)
    )
    assert chi_square(state_numbers(graph, states), naive.distribution(graph)) > FALSE_ALARM
    assert (states != starts).any(axis=1).mean() > 0.3  # and states must change


@pytest.mark.parametrize("setting", EXACT)
def test_slightly_wrong_weight_is_caught(setting):
    """Negative control: the chi-square test must detect a weight that is off by 15%."""
    case, graph = EXACT[setting], ZOO["potts"]
    group = graph.factors[0]
    wrong = mg.FactorGraph(
        graph.sizes,
        [mg.Potts(*group.scope.T, group.weight * [1.15, 1, 1, 1.15, 1]), *graph.factors[1:]],
    )
    starts = exact_starts(graph, STARTS, seed=11)
    states, _, _ = advance_each(
        wrong, case.sampler, starts, 12, seed=12, carried=case.carry(wrong, starts, seed=13)
    )
    assert chi_square(state_numbers(graph, states), naive.distribution(graph)) < FALSE_ALARM


@pytest.mark.parametrize("setting", EXACT)
@pytest.mark.parametrize("scan", ["random", "systematic", "shuffled"])
def test_mixes_from_a_corner(setting, scan):
    """From one fixed state, every scan order must converge to the distribution.

    Whether it keeps the distribution is tested with more starts, above. This test needs few: a scan
    that leaves out a variable or a state is far away.
    """
    case, graph = EXACT[setting], ZOO["potts"]
    starts = np.zeros((6_000, len(graph)), dtype=int)
    states, _, _ = advance_each(
        graph,
        case.sampler,
        starts,
        case.mixing_sweeps * 4,
        seed=21,
        scan=scan,
        carried=case.carry(graph, starts, seed=22),
    )
    assert chi_square(state_numbers(graph, states), naive.distribution(graph)) > FALSE_ALARM


@pytest.mark.parametrize("model", ZOO)
def test_gibbs_transition_is_reversible(model):
    """Algorithm 1, enumerated from the definition, satisfies pi P = pi and detailed balance."""
    graph = ZOO[model]
    states, pi = naive.states(graph), naive.distribution(graph)
    number = {x: k for k, x in enumerate(states)}
    free = np.flatnonzero(graph.evidence < 0)
    transition = np.zeros((len(states), len(states)))
    for x in states:
        for i in free:
            for u, p in enumerate(naive.conditional(graph, x, i)):
                y = (*x[:i], u, *x[i + 1 :])
                transition[number[x], number[y]] += p / len(free)
    flow = pi[:, None] * transition
    np.testing.assert_allclose(flow, flow.T, atol=1e-15)
    np.testing.assert_allclose(pi @ transition, pi, atol=1e-14)
