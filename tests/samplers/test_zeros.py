"""Graphs with hard constraints: correct distribution without forbidden states, or a refusal."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.graph.packing import entry_spans
from minigibbs.kernels.categorical import draw_log_by
from minigibbs.kernels.jit import entry
from minigibbs.samplers import SAMPLERS
from minigibbs.samplers.registry import choose_variant
from tests import naive
from tests.hard import HARD, NOT_BOTH, ZERO
from tests.harness import FALSE_ALARM, advance_each, chi_square, state_numbers

SAMPLED = {
    "gibbs": mg.Gibbs(),
    "textbook": mg.Gibbs(textbook=True),
    "default": mg.PoissonGibbs(),
    "none heavy": mg.PoissonGibbs(heavy=0, theta=0.7),
    "one heavy": mg.PoissonGibbs(heavy=1, theta=1.0),
    "guarantee": mg.PoissonGibbs(slowdown=1.1, heavy=1),
}


def exact_starts(graph, distribution, count, seed):
    rng = np.random.default_rng(seed)
    return np.array(naive.states(graph))[rng.choice(len(distribution), size=count, p=distribution)]


@pytest.mark.parametrize("model", HARD)
@pytest.mark.parametrize("name", SAMPLED)
def test_exact_start_keeps_the_distribution(name, model):
    """A sweep preserves the exact distribution, and no state of probability 0 occurs."""
    graph, distribution = HARD[model], naive.distribution(HARD[model])
    starts = exact_starts(graph, distribution, 60_000, seed=31)
    updates = graph.stats.variables
    states, _, _ = advance_each(graph, SAMPLED[name], starts, updates, seed=32)
    numbers = state_numbers(graph, states)
    assert (distribution[numbers] > 0).all()
    assert chi_square(numbers, distribution) > FALSE_ALARM
    assert (states != starts).any(axis=1).mean() > 0.3


@pytest.mark.parametrize("name", SAMPLED)
def test_slightly_wrong_weight_is_caught(name):
    """Negative control: a finite weight besides the hard constraints is off by 0.2."""
    graph, distribution = HARD["apart"], naive.distribution(HARD["apart"])
    table, pairs, unary = graph.factors
    wrong = mg.Ising(*pairs.scope.T, pairs.coupling + [0.2, 0.0, 0.2])
    starts = exact_starts(graph, distribution, 60_000, seed=31)
    off = mg.FactorGraph(graph.sizes, [table, wrong, unary])
    states, _, _ = advance_each(off, SAMPLED[name], starts, 15, seed=32)
    assert chi_square(state_numbers(graph, states), distribution) < FALSE_ALARM


@pytest.mark.parametrize("model", HARD)
@pytest.mark.parametrize("name", SAMPLED)
def test_transition_keeps_the_distribution(name, model):
    """By enumeration: pi P = pi, and detailed balance; forbidden states have valid rows, too."""
    graph = HARD[model]
    if model == "large" and name not in ("gibbs", "default"):
        pytest.skip("1,200 states by thousands of minibatches")
    chain = mg.theory.transition(graph, SAMPLED[name])
    distribution = naive.distribution(graph)
    np.testing.assert_allclose(chain.matrix.sum(axis=1), 1.0, atol=1e-9)
    np.testing.assert_allclose(chain.distribution, distribution, atol=1e-14)
    np.testing.assert_allclose(distribution @ chain.matrix, distribution, atol=1e-11)
    flow = distribution[:, None] * chain.matrix
    np.testing.assert_allclose(flow, flow.T, atol=1e-11)
    assert chain.matrix[np.ix_(distribution > 0, distribution == 0)].max(initial=0.0) == 0.0
    assert chain.spectral_gap() > 1e-4  # the possible states are connected


def test_the_guarantee_holds_beside_zeros():
    for sampler in (mg.PoissonGibbs(slowdown=1.2, heavy=0), mg.PoissonGibbs(theta=0.5, heavy=1)):
        assert mg.theory.promise(HARD["apart"], sampler).holds()


def test_layouts_and_counts():
    """Hard constraints are evaluated exactly; draws use logarithms."""
    for graph in HARD.values():
        sampler = SAMPLED["none heavy"]
        split = sampler.split(graph)
        assert split.heavy[np.isinf(entry_spans(graph.packed))].all()
        assert np.isfinite(split.tail).all()
        assert split.tail.any()
        assert choose_variant(graph, split).name == "strong"
        assert choose_variant(graph, mg.PoissonGibbs().split(graph)).name == "gibbs"
    graph = HARD["apart"]
    starts = np.zeros((1000, 5), dtype=int)
    _, _, tally = advance_each(graph, mg.PoissonGibbs(heavy=0, theta=1.0), starts, 5, seed=1)
    assert tally[0] == 1000 * 5 * 2  # the two tables at each variable, and no pairs
    tail = [0.8, 0.6, 0.8 + 1.0, 0.6, 1.0]  # L_T: twice the couplings at each variable
    draws = 5000 * 2 * np.mean(tail)
    assert abs(tally[1] - draws) < 5 * draws**0.5  # false alarm: 6e-7


def test_a_tail_is_worth_drawing_beside_zeros():
    """One hard constraint does not make the default evaluate all factors."""
    n, rng = 300, np.random.default_rng(1)
    i, j = np.triu_indices(n, 1)
    weak = mg.Ising(i, j, rng.normal(0, 0.004, len(i)))
    rules = mg.Table([[k, k + 1] for k in range(0, n, 10)], NOT_BOTH)
    graph = mg.FactorGraph([2] * n, [weak, rules])
    split = mg.PoissonGibbs().split(graph)
    assert split.tail.all()
    assert np.count_nonzero(split.heavy) < 3 * n
    run = mg.sample(graph, sweeps=50, seed=1, progress=False)
    assert run.info.factor_evaluations < 0.05 * n * run.info.updates
    assert (graph.log_potential(run.state) > -np.inf).all()


@entry
def _draws(weights, size, marks, out):
    for k in range(len(marks)):
        out[k] = draw_log_by(weights, size, marks[k])


@pytest.mark.parametrize(
    "logs",
    [
        [ZERO, 0.0],
        [0.0, ZERO],
        [ZERO, 0.3, ZERO, 1.0, ZERO],
        [ZERO, ZERO, 800.0],
        [-900.0, ZERO, ZERO],
        [ZERO, 0.1, ZERO, ZERO, -700.0, ZERO, ZERO],
    ],
)
def test_no_uniform_number_draws_a_value_of_weight_zero(logs):
    marks = np.concatenate([[0.0, 5e-324, 2.0**-53, 1 - 2.0**-53], np.linspace(0, 1, 999)[:-1]])
    weights, out = np.array([*logs, *np.zeros(len(logs))]), np.empty(len(marks), np.int64)
    _draws(weights, len(logs), marks, out)
    assert (np.array(logs)[out] > ZERO).all()


REFUSING = [  # clusters refuse all such tables
    name for name, kind in SAMPLERS.items() if not kind.takes_zeros and name != "swendsen-wang"
]


@pytest.mark.parametrize("name", REFUSING)
def test_samplers_that_need_bounded_energies_refuse(name):
    expected = (
        r"table factor 0 of group 0 \(variables 0, 1\).*hard constraint.*mg\.Gibbs\(\).*floor="
    )
    with pytest.raises(mg.SampleError, match=expected):
        mg.sample(HARD["apart"], name, sweeps=1, progress=False)
    with pytest.raises(mg.SampleError, match="has a hard constraint"):
        mg.theory.transition(HARD["apart"], SAMPLERS[name]())


def test_they_take_the_graph_once_evidence_leaves_no_zero():
    rule = mg.Table([[0, 1]], NOT_BOTH)
    graph = mg.FactorGraph([2, 2, 2], [rule, mg.Ising([1], [2], 0.5)])
    assert len(graph.hard) == 1
    assert not len(graph.condition({0: 0}).hard)
    mg.sample(graph.condition({0: 0}), "mgpmh", sweeps=5, seed=1, progress=False)


def test_fields_are_not_remembered_where_a_value_is_forbidden():
    i, j = np.triu_indices(80, 1)
    zero = mg.Unary([3], [[0.0, ZERO]])
    graph = mg.FactorGraph([2] * 80, [mg.Ising(i, j, 0.05), zero])
    with pytest.raises(mg.SampleError, match="without hard constraints"):
        mg.sample(graph, mg.Gibbs(fields=True), sweeps=1, progress=False)
    for sampler in (mg.Gibbs(), mg.PoissonGibbs()):
        run = mg.sample(graph, sampler, sweeps=20, seed=1, progress=False)
        assert (run.state[:, 3] == 0).all()


def test_bounds_say_that_there_is_none():
    graph, estimator = HARD["apart"], mg.PoissonEstimator(10)
    theory = mg.theory
    for claim in (
        lambda: theory.lemma_1(graph, 10),
        lambda: theory.lemma_2(graph, 1.0, 0.1),
        lambda: theory.lemma_2_repaired(graph, 1.0, 0.1),
        lambda: theory.theorem_1(graph, estimator),
        lambda: theory.theorem_2(graph, estimator),
        lambda: theory.theorem_2_repaired(graph, estimator),
        lambda: theory.theorem_3(graph, 10),
        lambda: theory.theorem_4(graph, 10),
        lambda: theory.theorem_4_repaired(graph, 10),
        lambda: theory.theorem_5(graph, 10, estimator),
        lambda: theory.theorem_6(graph, 10, estimator),
        lambda: theory.largest_deviation(graph, estimator),
    ):
        with pytest.raises(mg.SampleError, match="hard constraint"):
            claim()


def test_an_implicit_group_beside_zeros():
    unary = mg.Unary([0, 2], [[0.0, ZERO, 0.4], [ZERO, 0.3, 0.0]])
    rule = mg.Table([[1, 3]], np.where(np.eye(3) > 0, ZERO, 0.0))
    graph = mg.FactorGraph([3] * 4, [mg.Complete(4, 0.3, kind="potts"), unary, rule])
    distribution = naive.distribution(graph)
    starts = exact_starts(graph, distribution, 60_000, seed=31)
    states, _, _ = advance_each(graph, mg.PoissonGibbs(), starts, 8, seed=33)
    assert chi_square(state_numbers(graph, states), distribution) > FALSE_ALARM
    assert (distribution[state_numbers(graph, states)] > 0).all()
