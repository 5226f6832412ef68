"""Swendsen-Wang: bonds, counts, refusals."""

import math

import numpy as np
import pytest

import minigibbs as mg
from tests import naive
from tests.harness import FALSE_ALARM, chi_square, state_numbers, sweep_each
from tests.samplers.test_distribution import exact_starts
from tests.zoo import ATTRACTIVE, IMPLICIT, ZOO

STARTS = 60_000


def p_value(graph, data):
    """Return the p-value of the distribution after three sweeps from exact starts."""
    starts = exact_starts(graph.stored(), STARTS, seed=1)
    states, _ = sweep_each(graph, mg.SwendsenWang(), starts, 3, seed=2, data=data)
    return chi_square(state_numbers(graph, states), naive.distribution(graph.stored()))


@pytest.mark.parametrize(
    ("model", "change"),
    [
        ("strong-pairs", lambda data: data._replace(chance=data.chance * 0.95)),
        ("ising", lambda data: data._replace(rate=data.rate * 1.2)),
        ("line", lambda data: implicit(data, rate=0.6)),
        ("complete", lambda data: implicit(data, rate=1.1)),
        ("complete-strong", lambda data: implicit(data, chance=0.9)),
        ("fields", lambda data: data._replace(fields=data.fields * 1.15)),
    ],
)
def test_bonds_that_are_slightly_off_are_caught(model, change):
    """Negative control, for every method of drawing bonds."""
    graph = {"strong-pairs": PAIRS, **ATTRACTIVE}[model]
    data = mg.SwendsenWang().prepare(graph)
    assert p_value(graph, data) > FALSE_ALARM
    assert p_value(graph, change(data)) < FALSE_ALARM


PAIRS = mg.FactorGraph([3] * 4, [mg.Potts([0, 1, 2, 3], [1, 2, 3, 0], [0.9, 0.7, 1.4, 1.1])])


def implicit(data, **scales):
    group = data.implicit
    changed = {name: getattr(group, name) * scale for name, scale in scales.items()}
    return data._replace(implicit=group._replace(**changed))


def test_strong_pairs_are_looked_at_and_weak_ones_drawn():
    weights = np.array([0.05, 0.1, 0.7, 0.2, 3.0])
    graph = mg.FactorGraph([2] * 6, [mg.Potts(range(5), range(1, 6), weights)])
    _, tally = sweep_each(graph, mg.SwendsenWang(), np.zeros((20_000, 6), int), 1, seed=3)
    assert tally[0] == 2 * 20_000
    # 7,000 expected draws: 6 standard deviations, 2e-9
    assert abs(tally[1] - 0.35 * 20_000) < 6 * math.sqrt(7_000)


@pytest.mark.parametrize("periodic", [True, False])
def test_a_sweep_draws_as_many_pairs_as_their_weights_add_up_to(periodic):
    """The number of pairs does not matter: half a million here, none in a list."""
    n = 1_000
    kernel = mg.Kernel((n,), lambda d: 0.2 / d**2, kind="ising", periodic=periodic)
    graph = mg.FactorGraph([2] * n, [kernel])
    _, tally = sweep_each(graph, mg.SwendsenWang(), np.zeros((50, n), int), 1, seed=3)
    total = 2 * kernel.half.sum() * (0.5 if periodic else 1.0) * n  # including sites off the grid
    assert tally[0] == 0
    assert abs(tally[1] - 50 * total) < 6 * math.sqrt(50 * total)
    assert 50 * total < 50 * 2 * 0.2 * math.pi**2 / 6 * n


def test_complete_graphs_draw_as_many_pairs_as_their_weights_add_up_to():
    n, weight = 2_000, 0.9 / 2_000
    graph = mg.FactorGraph([2] * n, [mg.Complete(n, weight)])
    _, tally = sweep_each(graph, mg.SwendsenWang(), np.zeros((50, n), int), 1, seed=3)
    total = 50 * 2 * weight * n * (n - 1) / 2
    assert tally[0] == 0
    assert abs(tally[1] - total) < 6 * math.sqrt(total)


def test_a_cluster_takes_the_values_that_all_its_variables_have():
    graph = mg.FactorGraph([3, 2], [mg.Potts([0], [1], 50.0)])
    states, _ = sweep_each(graph, mg.SwendsenWang(), [[1, 1]] * 3_000, 1, seed=1)
    assert (states[:, 0] == states[:, 1]).all()
    assert set(states[:, 0].tolist()) == {0, 1}


def test_a_cluster_keeps_the_value_that_evidence_gives_it():
    graph = mg.FactorGraph([2] * 3, [mg.Potts([0, 1], [1, 2], [50.0, 50.0])])
    held = graph.condition({0: 1, 2: 0})
    states, _ = sweep_each(held, mg.SwendsenWang(), [[1, 1, 0]] * 100, 1, seed=1)
    assert (states == [[1, 1, 0]]).all(axis=1).mean() < 1  # both ends pull in the same direction
    assert (states[:, [0, 2]] == [1, 0]).all()
    line = mg.FactorGraph([2] * 3, [mg.Kernel((3,), lambda d: 50.0 / d**2)])
    states, _ = sweep_each(
        line.condition({0: 1, 2: 0}), mg.SwendsenWang(), [[1, 1, 0]] * 100, 1, seed=1
    )
    assert (states == [1, 1, 0]).all()


def test_two_valued_tables_that_attract_are_pairs():
    """The condition is on sums of logarithms: t00 + t11 > t01 + t10."""
    graph = mg.FactorGraph([2, 2], [mg.Table([[0, 1]], [[0.3, -0.2], [0.1, 0.4]])])
    matrix = mg.theory.transition(graph, mg.SwendsenWang()).matrix
    distribution = naive.distribution(graph)
    np.testing.assert_allclose(distribution @ matrix, distribution, atol=1e-14)
    states, _ = sweep_each(graph, mg.SwendsenWang(), [[0, 1]] * 40_000, 1, seed=1)
    assert chi_square(state_numbers(graph, states), matrix[1]) > FALSE_ALARM
    repelling = mg.FactorGraph([2, 2], [mg.Table([[0, 1]], [[0.3, 0.5], [0.4, 0.4]])])
    with pytest.raises(mg.SampleError, match=r"repels, with weight -0\.1"):
        mg.SwendsenWang().prepare(repelling)


def test_values_that_zeros_exclude_are_never_taken():
    graph = mg.FactorGraph(
        [3] * 3, [mg.Potts([0, 1], [1, 2], 0.9), mg.Unary([1], [[0.2, -np.inf, 0.0]])]
    )
    distribution = naive.distribution(graph)
    starts = exact_starts(graph, STARTS, seed=1)
    states, _ = sweep_each(graph, mg.SwendsenWang(), starts, 2, seed=2)
    assert (states[:, 1] != 1).all()
    assert chi_square(state_numbers(graph, states), distribution) > FALSE_ALARM


def test_weights_and_fields_of_thousands():
    graph = mg.FactorGraph(
        [3] * 4,
        [mg.Potts([0, 1, 2], [1, 2, 3], [4000.0, 3000.0, 2500.0]), mg.Unary([3], [0, 0, 5e3])],
    )
    run = mg.sample(graph, mg.SwendsenWang(), sweeps=200, seed=1, progress=False)
    assert (run.energy[:, -1] == -14_500.0).all()


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (ZOO["potts"], r"the pair of variable 0 and variable 2 repels, with weight -0\.3; use mg"),
        (ZOO["tables"], "a general factor joins variable 0, variable 1, variable 2; use"),
        (ZOO["logical"], "a general factor joins"),
        (IMPLICIT["low-rank"], "the weights of a low-rank group are not known to attract"),
        (IMPLICIT["ring-3"], r"a pair of the kernel group repels, with weight -0\.8"),
        (IMPLICIT["complete-potts"], r"a pair of the complete group repels, with weight -1\.5"),
    ],
)
def test_what_does_not_attract_is_refused(graph, message):
    with pytest.raises(mg.SampleError, match=message):
        mg.sample(graph, mg.SwendsenWang(), sweeps=1, progress=False)


def test_bonds_that_are_too_many_to_enumerate_are_refused():
    with pytest.raises(mg.TooLargeError, match="bonds of 21 pairs"):
        mg.theory.transition(mg.models.curie_weiss(7, 0.5).stored(), mg.SwendsenWang())


def test_it_describes_itself():
    text = mg.SwendsenWang().describe(ATTRACTIVE["fields"])
    assert text.startswith("Swendsen-Wang: exact; a sweep visits 2 strong pairs, draws 0.3 of")
    text = mg.SwendsenWang().describe(ATTRACTIVE["ring"])
    assert "10 strong pairs, draws 1.5 of" in text  # each pair from both ends, with half its weight
    with pytest.raises(mg.SampleError, match="moves all variables at once"):
        mg.SwendsenWang().operations(ATTRACTIVE["fields"])
