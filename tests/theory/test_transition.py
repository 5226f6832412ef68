"""Transition matrices by enumeration: the theorems hold, and the kernels follow the matrices."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs import theory
from tests import naive
from tests.harness import FALSE_ALARM, advance_each, chi_square, state_numbers

TINY = {
    "ising": mg.FactorGraph([2] * 3, [mg.Ising([0, 1, 2], [1, 2, 0], [0.3, -0.4, 0.5])]),
    "potts": mg.FactorGraph([3, 2], [mg.Potts([0], [1], 0.8), mg.Unary([0], [[0.0, 0.3, 0.6]])]),
    "table": mg.FactorGraph(
        [2, 3],
        [
            mg.Table([[0, 1]], [[0.1, 0.9, -0.2], [0.4, -0.5, 0.3]], weight=[-1.2]),
            mg.Unary([0], [[0.2, -0.3]]),
        ],
    ),
    "logical": mg.FactorGraph(
        [2] * 4,
        [
            mg.Logical("imply", [[0, 1, 2]], 0.9),
            mg.Logical("equal", [[1, 2, 3]], -0.7, negated=[[0, 1, 0]]),
        ],
    ).condition({3: 1}),
}

REVERSIBLE = {
    "gibbs": mg.Gibbs(),
    "mgpmh": mg.MGPMH(batch=2.0),
    "mgpmh-recipe": mg.MGPMH(),
    "poisson-gibbs": mg.PoissonGibbs(),
    "poisson-gibbs-no-heavy": mg.PoissonGibbs(heavy=0, theta=0.5),
    "poisson-gibbs-one-heavy": mg.PoissonGibbs(heavy=1, theta=1.3),
    "min-gibbs": mg.MinGibbs(batch=3.0),
    "min-gibbs-exact": mg.MinGibbs(estimator=mg.ExactEstimator()),
    "double-min": mg.DoubleMinGibbs(batch=1.5, second_batch=3.0),
    "double-min-exact": mg.DoubleMinGibbs(batch=1.5, estimator=mg.ExactEstimator()),
}
BIASED = {
    "min-gibbs-subset": mg.MinGibbs(estimator=mg.SubsetEstimator(1)),
    "double-min-subset": mg.DoubleMinGibbs(batch=1.5, estimator=mg.SubsetEstimator(1)),
}
UNKNOWN_LAW = {
    "local": mg.LocalMinibatchGibbs(1),
    "local-two": mg.LocalMinibatchGibbs(2),
    "local-adjusted": mg.LocalMinibatchGibbs(1.5, adjusted=True),
}
EVERY = REVERSIBLE | BIASED | UNKNOWN_LAW


def transition(model, name):
    if name == "local-two" and TINY[model].stats.max_degree < 2:
        pytest.skip("no variable has two factors")
    return theory.transition(TINY[model], EVERY[name])


@pytest.mark.parametrize("model", TINY)
@pytest.mark.parametrize("name", REVERSIBLE | BIASED)
def test_reversible_with_the_law_of_the_theorems(name, model):
    """Theorems 1, 3 and 5: detailed balance, on (state, energy) where energies are carried."""
    t = transition(model, name)
    flow = t.law[:, None] * t.matrix
    assert t.matrix.min() >= -1e-15
    np.testing.assert_allclose(t.matrix.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(flow, flow.T, atol=1e-14)
    bias = np.abs(t.marginal(t.law) - naive.distribution(TINY[model])).max()
    # what the cut Poisson tails hold, 1e-12 a factor, is all that may be missing
    assert bias < 1e-10 if name in REVERSIBLE else bias > 1e-3


@pytest.mark.parametrize("model", TINY)
def test_subset_estimates_lead_where_theorem_1_says(model):
    graph, size = TINY[model], 1
    t = theory.transition(graph, mg.MinGibbs(estimator=mg.SubsetEstimator(size)))
    phi = t.enumeration.phi
    expected = np.exp(phi * len(phi) / size).mean(axis=0)  # E exp(eps) over single factors
    np.testing.assert_allclose(t.marginal(t.law), expected / expected.sum(), atol=1e-12)


@pytest.mark.parametrize("model", TINY)
def test_exact_estimates_are_plain_gibbs(model):
    graph = TINY[model]
    exact = theory.transition(graph, mg.MinGibbs(estimator=mg.ExactEstimator()))
    np.testing.assert_allclose(
        exact.matrix, theory.transition(graph, mg.Gibbs()).matrix, atol=1e-14
    )


def test_local_minibatch_has_another_law():
    t = transition("potts", "local")
    assert t.law is None
    assert np.abs(t.marginal(t.stationary()) - t.enumeration.law).max() > 1e-3


def one_update(t, name, model, row, count, seed, sampler=None):
    """Rows of the matrix that the kernel moves to from `row`, `count` times over."""
    graph, sampler = TINY[model], sampler or EVERY[name]
    starts = np.repeat(t.enumeration.states[t.state[row]][None], count, axis=0)
    shift = 0.0
    if "exact" in name:  # kernels leave energies unshifted there
        shift = graph.energy(starts[0]) - graph.offset - t.energy[row]
    carried = np.full((count, 1), t.energy[row] + shift)
    if name.startswith(("gibbs", "poisson-gibbs", "mgpmh", "local")):
        carried = None
    states, carried, _ = advance_each(graph, sampler, starts, 1, seed, carried=carried)
    numbers = state_numbers(graph, states)
    if carried.shape[1] == 0:
        return numbers
    first = np.searchsorted(t.state, np.arange(len(t.enumeration.states) + 1))
    rows = np.empty(count, dtype=int)
    for s in np.unique(numbers):
        points = t.energy[first[s] : first[s + 1]]
        here = numbers == s
        rows[here] = first[s] + np.abs(carried[here] - shift - points).argmin(axis=1)
        assert np.abs(t.energy[rows[here]] + shift - carried[here, 0]).max() < 1e-6
    return rows


@pytest.mark.parametrize("model", TINY)
@pytest.mark.parametrize("name", EVERY)
def test_kernel_follows_the_matrix(name, model):
    """One update of the kernel, many times from fixed rows, against that row of the matrix.

    Three rows each, so the false-alarm rate of a test is 3e-4.
    """
    t = transition(model, name)
    law = t.law if t.law is not None else t.stationary()
    likely = np.argsort(-law)
    places = np.searchsorted(np.cumsum(law[likely]), [0.0, 0.4, 0.8])
    for k, row in enumerate(likely[places]):
        rows = one_update(t, name, model, row, 40_000, seed=100 + k)
        assert chi_square(rows, np.maximum(t.matrix[row], 0.0)) > FALSE_ALARM


@pytest.mark.parametrize(
    "name",
    ["poisson-gibbs-no-heavy", "mgpmh", "min-gibbs", "double-min", "local", "local-adjusted"],
)
def test_kernel_with_a_slightly_wrong_batch_is_caught(name):
    """The negative control: the same test must see a batch that is off."""
    wrong = {
        "poisson-gibbs-no-heavy": mg.PoissonGibbs(heavy=0, theta=0.6),
        "mgpmh": mg.MGPMH(batch=1.5),
        "min-gibbs": mg.MinGibbs(batch=1.0),
        "double-min": mg.DoubleMinGibbs(batch=1.2, second_batch=3.0),
        "local": mg.LocalMinibatchGibbs(2),
        "local-adjusted": mg.LocalMinibatchGibbs(1.1, adjusted=True),
    }
    t = transition("potts", name)
    law = t.law if t.law is not None else t.stationary()
    row = int(np.argmax(law))
    if name == "min-gibbs":  # other points of energy: compare states alone
        states = one_update_states(t, wrong[name], row)
        expected = np.bincount(t.state, t.matrix[row])
    else:
        states = one_update(t, name, "potts", row, 200_000, seed=7, sampler=wrong[name])
        expected = t.matrix[row]
    assert chi_square(states, np.maximum(expected, 0.0)) < FALSE_ALARM


def one_update_states(t, sampler, row):
    graph = t.enumeration.graph
    starts = np.repeat(t.enumeration.states[t.state[row]][None], 200_000, axis=0)
    carried = np.full((len(starts), 1), t.energy[row])
    states, _, _ = advance_each(graph, sampler, starts, 1, 7, carried=carried)
    return state_numbers(graph, states)
