"""Transition matrices by enumeration: the theorems hold, and the kernels match the matrices."""

import itertools

import numba
import numpy as np
import pytest
from scipy import stats

import minigibbs as mg
from minigibbs import theory
from minigibbs.samplers import SINGLE_SITE
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

SPIN = mg.FactorGraph([2], [mg.Unary([0], [[0.0, 1.0]])])

REVERSIBLE = {
    "gibbs": mg.Gibbs(),
    "mgpmh": mg.MGPMH(batch=2.0),
    "mgpmh-recipe": mg.MGPMH(),
    "poisson-gibbs": mg.PoissonGibbs(),
    "poisson-gibbs-no-heavy": mg.PoissonGibbs(heavy=0, theta=0.5),
    "poisson-gibbs-one-heavy": mg.PoissonGibbs(heavy=1, theta=1.3),
    "poisson-mh": mg.PoissonMH(batch=0.8),
    "tuna-mh": mg.TunaMH(chi=0.4),
    "min-gibbs": mg.MinGibbs(batch=3.0),
    "min-gibbs-exact": mg.MinGibbs(estimator=mg.ExactEstimator()),
    "double-min": mg.DoubleMinGibbs(batch=1.5, second_batch=3.0),
    "double-min-exact": mg.DoubleMinGibbs(batch=1.5, estimator=mg.ExactEstimator()),
}
BIASED = {
    "min-gibbs-subset": mg.MinGibbs(estimator=mg.SubsetEstimator(1)),
    "double-min-subset": mg.DoubleMinGibbs(batch=1.5, estimator=mg.SubsetEstimator(1)),
}
UNKNOWN_DISTRIBUTION = {
    "local": mg.LocalMinibatchGibbs(1),
    "local-two": mg.LocalMinibatchGibbs(2),
    "local-adjusted": mg.LocalMinibatchGibbs(1.5, adjusted=True),
}
EVERY = REVERSIBLE | BIASED | UNKNOWN_DISTRIBUTION


def transition(model, name):
    if name == "local-two" and TINY[model].stats.max_degree < 2:
        pytest.skip("no variable has two factors")
    return theory.transition(TINY[model], EVERY[name])


@pytest.mark.parametrize("model", TINY)
@pytest.mark.parametrize("name", REVERSIBLE | BIASED)
def test_reversible_with_the_distribution_of_the_theorems(name, model):
    """Theorems 1, 3 and 5: detailed balance holds, on (state, energy) if energies are stored."""
    t = transition(model, name)
    flow = t.distribution[:, None] * t.matrix
    assert t.matrix.min() >= -1e-15
    np.testing.assert_allclose(t.matrix.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(flow, flow.T, atol=1e-14)
    bias = np.abs(t.marginal(t.distribution) - naive.distribution(TINY[model])).max()
    # Only the cut Poisson tails may be missing, 1e-12 per factor.
    assert bias < 1e-10 if name in REVERSIBLE else bias > 1e-3


@pytest.mark.parametrize("model", TINY)
def test_subset_estimates_lead_where_theorem_1_says(model):
    graph, size = TINY[model], 1
    t = theory.transition(graph, mg.MinGibbs(estimator=mg.SubsetEstimator(size)))
    phi = t.enumeration.phi
    expected = np.exp(phi * len(phi) / size).mean(axis=0)  # E exp(eps) over single factors
    np.testing.assert_allclose(t.marginal(t.distribution), expected / expected.sum(), atol=1e-12)


@pytest.mark.parametrize("model", TINY)
def test_exact_estimates_are_plain_gibbs(model):
    graph = TINY[model]
    exact = theory.transition(graph, mg.MinGibbs(estimator=mg.ExactEstimator()))
    np.testing.assert_allclose(
        exact.matrix, theory.transition(graph, mg.Gibbs()).matrix, atol=1e-14
    )


def test_every_sampler_has_a_transition():
    """A registered sampler must have a matrix."""
    for name, sampler in SINGLE_SITE.items():
        t = theory.transition(SPIN, sampler())
        np.testing.assert_allclose(t.matrix.sum(axis=1), 1.0, atol=1e-12, err_msg=name)


def test_a_sampler_or_estimator_without_one_is_named():
    class Lazy(mg.Gibbs):
        transition = mg.Sampler.transition

    with pytest.raises(mg.SampleError, match="Lazy has no transition matrix"):
        theory.transition(TINY["potts"], Lazy())
    sampler = mg.MinGibbs(estimator=mg.CustomEstimator(numba.njit(lambda model, x, s, p: 0.0)))
    with pytest.raises(mg.SampleError, match="CustomEstimator has no distribution"):
        theory.transition(TINY["potts"], sampler)


def test_implicit_factors_are_refused():
    graph = mg.FactorGraph([2] * 4, [mg.Complete(4, 0.25)])
    with pytest.raises(mg.SampleError, match=r"graph\.stored"):
        theory.transition(graph, mg.PoissonGibbs())
    theory.transition(graph.stored(), mg.PoissonGibbs(heavy=0, theta=1.0))


def poisson_gibbs_by_hand(weights, theta, heavy, old, values):
    """Return the row of one variable of three values, its neighbors at `values`, as a sum."""
    total, exact = np.zeros(3), np.zeros(3)
    for weight, value in zip(weights[:heavy], values[:heavy], strict=True):
        exact[value] += weight
    tail = list(zip(weights[heavy:], values[heavy:], strict=True))
    rates = [theta * weight + weight * (value == old) for weight, value in tail]
    for counts in itertools.product(range(30), repeat=len(tail)):
        log = exact.copy()
        for count, (_, value) in zip(counts, tail, strict=True):
            log[value] += count * np.log1p(1 / theta)
        total += np.prod(stats.poisson.pmf(counts, rates)) * np.exp(log) / np.exp(log).sum()
    return total


@pytest.mark.parametrize("heavy", [0, 1])
def test_factors_of_equal_strength_are_told_apart(heavy):
    """In a triangle of equal pairs, minibatched factors are identified by entry, not by M."""
    triangle = mg.FactorGraph([3] * 3, [mg.Potts([0, 1, 0], [1, 2, 2], 0.5)])
    t = theory.transition(triangle, mg.PoissonGibbs(theta=0.5, heavy=heavy))
    states = t.enumeration.states.tolist()
    row = poisson_gibbs_by_hand([0.5, 0.5], 0.5, heavy, 0, [1, 2])
    for value in (1, 2):  # variable 0 is drawn one time in three; its first entry is variable 1
        moved = t.matrix[states.index([0, 1, 2]), states.index([value, 1, 2])]
        assert moved == pytest.approx(row[value] / 3, abs=1e-11)


def test_a_tie_does_not_change_the_gap():
    """The triangle with slightly different weights has the same .904 of Gibbs's gap, not .818."""
    gaps = []
    for weights in ([0.5, 0.5, 0.5], [0.5, 0.5 + 1e-7, 0.5 - 1e-7]):
        triangle = mg.FactorGraph([2] * 3, [mg.Potts([0, 1, 0], [1, 2, 2], weights)])
        ours = theory.transition(triangle, mg.PoissonGibbs(theta=0.5, heavy=1))
        gaps.append(ours.spectral_gap() / theory.transition(triangle, mg.Gibbs()).spectral_gap())
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-5)
    assert gaps[0] == pytest.approx(0.904, abs=1e-3)


def test_large_batches_do_not_underflow():
    """With one spin of field 1, lambda is above 1,000, and counts near 0 have no probability."""
    t = theory.transition(SPIN, mg.MinGibbs(batch=1067.0))
    assert t.distribution.min() > 0
    assert 0.2 < t.spectral_gap() < 0.27  # 1 - T(x, x) of plain Gibbs is 0.2689
    np.testing.assert_allclose(t.marginal(t.distribution), t.enumeration.distribution, atol=1e-10)


def test_states_beyond_doubles_do_not_stop_the_gap():
    graph = mg.FactorGraph([2, 2], [mg.Unary([0], [[0.0, 900.0]])])
    assert theory.transition(graph, mg.Gibbs()).spectral_gap() == pytest.approx(0.5)


def test_local_minibatch_has_another_distribution():
    t = transition("potts", "local")
    assert t.distribution is None
    assert np.abs(t.marginal(t.stationary()) - t.enumeration.distribution).max() > 1e-3


def one_update(t, name, model, row, count, seed, sampler=None):
    """Return the rows of the matrix to which the kernel moves from `row`, `count` times."""
    graph, sampler = TINY[model], sampler or EVERY[name]
    starts = np.repeat(t.enumeration.states[t.state[row]][None], count, axis=0)
    shift = 0.0
    if "exact" in name:  # kernels store unshifted energies there
        shift = graph.log_potential(starts[0]) - graph.offset - t.energy[row]
    carried = np.full((count, 1), t.energy[row] + shift)
    if name.startswith(("gibbs", "poisson", "tuna", "mgpmh", "local")):
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
    """Test one update of the kernel, many times from fixed rows, against those rows of the matrix.

    With three rows each, the false-alarm rate of a test is 3e-4.
    """
    t = transition(model, name)
    distribution = t.distribution if t.distribution is not None else t.stationary()
    likely = np.argsort(-distribution)
    places = np.searchsorted(np.cumsum(distribution[likely]), [0.0, 0.4, 0.8])
    for k, row in enumerate(likely[places]):
        rows = one_update(t, name, model, row, 40_000, seed=100 + k)
        assert chi_square(rows, np.maximum(t.matrix[row], 0.0)) > FALSE_ALARM


@pytest.mark.parametrize(
    "name",
    [
        "poisson-gibbs-no-heavy",
        "mgpmh",
        "min-gibbs",
        "double-min",
        "local",
        "local-adjusted",
        "poisson-mh",
        "tuna-mh",
    ],
)
def test_kernel_with_a_slightly_wrong_batch_is_caught(name):
    """Negative control: the same test must detect a wrong batch."""
    wrong = {
        "poisson-gibbs-no-heavy": mg.PoissonGibbs(heavy=0, theta=0.6),
        "mgpmh": mg.MGPMH(batch=1.5),
        "min-gibbs": mg.MinGibbs(batch=1.0),
        "double-min": mg.DoubleMinGibbs(batch=1.2, second_batch=3.0),
        "local": mg.LocalMinibatchGibbs(2),
        "local-adjusted": mg.LocalMinibatchGibbs(1.1, adjusted=True),
        "poisson-mh": mg.PoissonMH(batch=0.3),
        "tuna-mh": mg.TunaMH(chi=0.05),
    }
    t = transition("potts", name)
    distribution = t.distribution if t.distribution is not None else t.stationary()
    row = int(np.argmax(distribution))
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
