"""Counts, guarantees, refusals and extreme inputs of samplers."""

import math
import zlib

import numba
import numpy as np
import pytest

import minigibbs as mg
from minigibbs.running.api import one_chain
from minigibbs.samplers import bounds as recipes
from minigibbs.samplers.gibbs import fields
from tests.harness import FALSE_ALARM, chi_square, sample, state_numbers
from tests.settings import CASES, GOLDEN, SETTINGS
from tests.zoo import ZOO


def counters(graph, sampler, updates=20_000, **options):
    info = sample(
        graph, sampler, updates=updates, chains=1, seed=1, record=(), progress=False, **options
    ).info
    return info.factor_evaluations / updates, info.minibatch_draws / updates, info.acceptance


# --- operation counts ---------------------------------------------------------------------------


def star(leaves, total):
    """Return a hub with `leaves` equal factors of total energy `total`."""
    return mg.FactorGraph(
        np.full(leaves + 1, 3),
        [mg.Potts(np.zeros(leaves, int), np.arange(1, leaves + 1), total / leaves)],
    )


def test_gibbs_counts_every_factor_once_and_the_textbook_once_per_value():
    graph = mg.models.potts_lattice(8, 5, 0.5)
    assert counters(graph, mg.Gibbs())[0] == 4
    assert counters(graph, mg.Gibbs(textbook=True))[0] == 20


def test_mgpmh_draws_its_batch_and_passes_over_the_factors_only_to_move():
    graph = mg.models.potts_rbf(side=8)
    batch = 0.5 * graph.stats.local_energy**2
    density = batch / graph.stats.local_energy
    spans = np.exp(-1.5 * np.arange(1, 9))  # strongest first: all are weak except the nearest ring
    assert (4.6 * spans * density)[0] > 1
    evaluations, draws, _ = counters(graph, mg.MGPMH(batch=batch))
    data = mg.MGPMH(batch=batch).prepare(graph)
    rows = data.rows
    expected = (rows["strong_end"] - rows["strong_start"] + rows["weak_total"]).mean()
    # mean of 20,000 Poisson-like counts with mean 6: standard error 0.02, bound 5 of them
    assert abs(draws - expected) < 0.1
    assert draws < batch
    assert evaluations < graph.stats.max_degree  # not in every update


def test_mgpmh_draws_about_lambda_where_all_factors_are_weak():
    graph = mg.models.curie_weiss(200, 0.8)
    _, draws, _ = counters(graph, mg.MGPMH(batch=6.0))
    assert abs(draws - 6.0) < 5 * math.sqrt(6.0 / 20_000)  # 5 standard errors: 6e-7


@pytest.mark.parametrize(
    "sampler",
    [mg.MinGibbs(batch=30), mg.DoubleMinGibbs(batch=5, second_batch=30)],
    ids=lambda s: s.name,
)
def test_global_samplers_do_not_grow_with_degree_or_factors(sampler):
    few, many = (counters(star(leaves, 3.0), sampler) for leaves in (1_000, 50_000))
    assert few[0] == many[0] == 0  # no exact evaluations
    # about 60 draws per update, 20,000 updates: standard error 0.06 of each
    assert abs(few[1] - many[1]) < 0.5


def test_min_gibbs_draws_its_batch_for_every_other_value():
    _, draws, _ = counters(star(5_000, 3.0), mg.MinGibbs(batch=30))
    assert abs(draws - 2 * 30) < 5 * math.sqrt(60 / 20_000)  # 5 standard errors: 6e-7


def test_strong_rates_are_drawn_one_by_one():
    """At lambda = Psi^2 on the paper's Ising model: about 3,000 draws, not 173,000."""
    graph = mg.models.ising_rbf()
    work = mg.PoissonEstimator(graph.stats.total_energy**2).work(graph)
    assert 2_500 < work < 3_500


@pytest.mark.parametrize(
    ("sampler", "draws"),
    [(mg.PoissonMH(batch=9.0), 9.0 + 3.0), (mg.TunaMH(chi=0.5), 0.5 * 9.0 + 3.0)],
    ids=lambda s: getattr(s, "name", None),
)
def test_metropolis_draws_its_batch_and_no_more_for_the_degree(sampler, draws):
    """At the hub L = 3 and another of three values is proposed; a leaf has L = 3 / leaves."""
    for leaves in (1_000, 30_000):
        graph = star(leaves, 3.0).condition({k: k % 3 for k in range(1, leaves + 1)})
        evaluations, counted, _ = counters(graph, sampler)
        assert evaluations == 0
        # about 8 draws in two of three updates, 20,000 updates: standard error 0.05, bound 5 of
        # them
        assert abs(counted - 2 / 3 * draws) < 0.25


def test_local_minibatch_draws_exactly_its_batch():
    assert counters(mg.models.ising_rbf(side=6), mg.LocalMinibatchGibbs(7))[1] == 7


@pytest.mark.parametrize("name", SETTINGS)
def test_draws_are_as_many_as_the_operations_say(name):
    """Each sampler's predicted operations for `explain` equal those that its updates count."""
    graph, sampler = mg.models.potts_rbf(side=5, states=3), SETTINGS[name].sampler
    operations = sampler.operations(graph)
    expected = sum(operations.get(kind, 0.0) for kind in ("draw", "strong", "member"))
    # 20,000 counts with a variance equal to the mean: 6 standard errors, plus the spread of the
    # mean between variables, which are visited at random
    assert counters(graph, sampler)[1] == pytest.approx(
        expected, abs=6 * math.sqrt(expected / 20_000), rel=0.01
    )


# --- recipes ------------------------------------------------------------------------------------


def test_mgpmh_recipe_gives_the_slowdown_of_theorem_4_repaired():
    graph = ZOO["ising"]
    local = graph.local_energies
    batch = recipes.local_batches(graph, None, 1.2) * local
    large = batch > local * (1 + 1e-9)
    np.testing.assert_allclose(recipes.mgpmh_slowdown(local**2 / batch)[large], 1.2)
    assert large.any()
    assert (batch >= local * (1 - 1e-12)).all()


@pytest.mark.parametrize("slowdown", [1.05, 1.2, 3.0])
def test_mgpmh_keeps_its_promise(slowdown):
    lone = mg.FactorGraph([2], [mg.Unary([0], [0.0, 0.2])])  # violates Theorem 4 as stated
    for graph in (lone, TWO):
        gap = mg.theory.transition(graph, mg.Gibbs()).spectral_gap()
        slow = mg.theory.transition(graph, mg.MGPMH(slowdown=slowdown)).spectral_gap()
        assert slow >= gap / slowdown
    stated = mg.theory.transition(lone, mg.MGPMH(batch=1.0)).spectral_gap()
    assert stated < np.exp(-(0.2**2) / 1.0)  # the test is not trivial


TWO = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.4), mg.Unary([0, 1], [0.0, 0.3])])


def test_estimator_batch_is_the_sharper_lemma_2():
    assert recipes.bernstein_batch(10.0, 0.5, 0.01) == pytest.approx(
        max((8 * 400 + 4 / 3 * 20) * math.log(200), 400)
    )
    assert recipes.bernstein_batch(10.0, 0.5, 0.01) / recipes.estimator_batch(10.0, 0.5, 0.01) > 5
    graph = TWO
    delta = math.log(1.5) / 2  # for two values
    chosen = mg.MinGibbs(slowdown=1.5, failure=0.1).estimator_for(graph)
    assert chosen.batch == pytest.approx(
        recipes.estimator_batch(graph.stats.total_energy, delta, 0.1)
    )
    # Lemma 2 itself: large estimation errors are rarer than guaranteed
    everything = mg.theory.Enumeration(graph)
    for state in range(len(everything.states)):
        points, chances = mg.theory.estimate_distribution(everything, chosen, state)
        stray = chances[np.abs(points - everything.phi[:, state].sum()) >= delta].sum()
        assert stray <= 0.1


@pytest.mark.parametrize("name", GOLDEN)
def test_describe_says_cost_and_bias(name):
    sampler, graph = GOLDEN[name].sampler, mg.models.potts_rbf(side=5)
    text = sampler.describe(graph)
    assert ("BIASED" in text) == (not sampler.exact)
    assert "update" in text


def test_min_gibbs_and_double_min_promise_nothing_without_a_condition():
    """Poisson estimates are unbounded, so the true gap is 0."""
    graph = mg.models.potts_rbf(side=5)
    for sampler in (mg.MinGibbs(), mg.DoubleMinGibbs()):
        assert sampler.guaranteed_slowdown(graph) is None
        proviso = sampler.proviso(graph)
        assert proviso.startswith("spectral gap 0; slowdown 1.53 until variances fall to 0.011")
        assert proviso[1:] in sampler.describe(graph)
    assert mg.MinGibbs(batch=50).proviso(graph) == ""
    lone = mg.FactorGraph([2], [mg.Unary([0], [0.0, 0.2])])
    assert "slowdown 3.4 until" in mg.MinGibbs().proviso(lone)  # 1.5 * (1 + e^0.2) / 0.99^2


def test_redraw_slowdown_is_1_for_all_but_few_or_strongly_bound_variables():
    assert recipes.redraw_slowdown(mg.models.potts_rbf()) == 1
    assert recipes.redraw_slowdown(mg.models.ising_rbf()) == 1
    assert recipes.redraw_slowdown(mg.FactorGraph([2], [])) == 2
    assert recipes.redraw_slowdown(mg.FactorGraph([1, 1], [])) == 1
    bound = mg.models.ising_lattice(side=3, beta=5.0)
    assert recipes.redraw_slowdown(bound) > 1e6


def test_tail_theta_is_the_inverse_of_the_bound():
    tail = np.array([0.3, 1.0, 30.0])
    theta = recipes.tail_theta(tail, 1.3)
    np.testing.assert_allclose(np.exp(recipes.tail_log_slowdown(tail, theta)), 1.3)
    assert recipes.tail_theta(np.array([0.2]), 1.3) == 0  # a tail below log(1.3): any theta
    assert recipes.tail_log_slowdown(0.2, 0.0) == pytest.approx(0.2)


def test_describe_states_the_bound():
    graph = mg.models.potts_rbf(side=5)
    assert "at most 1.3 times slower" in mg.MGPMH(slowdown=1.3).describe(graph)
    assert "(spectral gap, random scan)" in mg.MGPMH(slowdown=1.3).describe(graph)
    assert "Spectral gap 0; slowdown 1.53" in mg.MinGibbs().describe(graph)
    assert "No guarantee" in mg.MGPMH(batch=0.1).describe(graph)
    assert "BIASED" in mg.MinGibbs(estimator=mg.SubsetEstimator(5)).describe(graph)


# --- estimators ---------------------------------------------------------------------------------


@numba.njit
def agreement(model, x, stream, parameters):
    """Compute the exact energy of a graph of pairs, as a user would."""
    total = 0.0
    for k in range(len(model.pair)):
        if x[model.pair[k, 0]] == x[model.pair[k, 1]]:
            total += parameters[0] * model.pair_weight[k]
    return total


def test_custom_estimator():
    graph = ZOO["ising"]
    sampler = mg.MinGibbs(estimator=mg.CustomEstimator(agreement, np.array([1.0])))
    run = sample(graph, sampler, updates=400_000, seed=3, record="draws", thin=40, progress=False)
    # draws 8 sweeps apart are nearly independent: the sample size is 40,000
    numbers = state_numbers(graph, run.draws.reshape(-1, len(graph)))
    assert chi_square(numbers, mg.theory.Enumeration(graph).distribution) > FALSE_ALARM
    with pytest.raises(mg.SampleError, match="numba"):
        mg.CustomEstimator(lambda: 0)


# --- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GOLDEN)
def test_energies_of_thousands_do_not_overflow(name):
    graph = mg.FactorGraph([3] * 4, [mg.Potts([0, 1, 2], [1, 2, 3], [4000.0, -3000.0, 2500.0])])
    few = {"poisson-gibbs": mg.PoissonGibbs(), "tuna-mh": mg.TunaMH(chi=1e-4)}
    sampler = few.get(name, GOLDEN[name].sampler)
    run = sample(graph, sampler, updates=2_000, seed=1, record=("draws", "energy"), progress=False)
    assert np.isfinite(run.energy).all()
    if name in ("gibbs", "poisson-gibbs"):  # only the ground states have notable probability
        assert (run.energy[:, -1] == -6500.0).all()


def test_carried_energy_does_not_drift():
    """After ten million updates the stored energy still equals the energy of the state."""
    graph = ZOO["mixed"]
    sampler = mg.MinGibbs(estimator=mg.ExactEstimator())
    state = np.zeros(len(graph), graph.state_type)
    group = one_chain(graph, sampler, state, np.arange(1, 5, dtype=np.uint64))
    group.advance(10_000_000, False)
    energy = graph.log_potential(group.chain.x) - graph.offset
    assert group.chain.carried[0] == pytest.approx(energy, abs=1e-12)


@pytest.mark.parametrize("name", GOLDEN)
def test_same_draws_whatever_the_number_of_threads(name):
    graph = ZOO["mixed"]
    runs = [
        sample(
            graph,
            GOLDEN[name].sampler,
            updates=3_000,
            chains=3,
            seed=5,
            record="draws",
            threads=t,
            progress=False,
        )
        for t in (1, 3)
    ]
    assert (runs[0].draws == runs[1].draws).all()


@pytest.mark.quick
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_draws(name):
    """These draws pin the random stream: changing them is a breaking change."""
    setting = GOLDEN[name]
    run = sample(ZOO["mixed"], setting.sampler, updates=400, **PINNED, thin=40)
    assert ["".join(map(str, x)) for x in run.draws[0]] == setting.golden.split()


PINNED = {"chains": 1, "seed": 2024, "scan": "random", "record": "draws", "progress": False}


@pytest.mark.parametrize("name", CASES)
def test_golden_draws_of_layouts_and_implicit_groups(name):
    case = CASES[name]
    run = sample(case.graph, case.sampler, updates=4000, **PINNED, thin=1)
    assert zlib.crc32(run.draws.tobytes()) == case.golden


# --- edges and bad input ------------------------------------------------------------------------


@pytest.mark.parametrize("name", GOLDEN)
def test_variables_without_factors_are_uniform(name):
    graph = mg.FactorGraph(
        [2, 2, 3], [mg.Ising([0], [1], 0.5), mg.Unary([0, 0], [[0.1, 0.4], [0.0, 0.2]])]
    )
    run = sample(graph, GOLDEN[name].sampler, updates=60_000, seed=1, progress=False)
    # 240,000 updates, a third of them on this variable: standard error 0.0017, bound 6 of them
    assert np.abs(run.marginals[2] - 1 / 3).max() < 0.01


@pytest.mark.parametrize("name", GOLDEN)
def test_factors_without_energy_vanish(name):
    base = [mg.Potts([0, 1, 0], [1, 2, 2], [0.5, 0.7, -0.2]), mg.Unary([1], [[0.0, 0.4, 0.1]])]
    empty = [
        mg.Potts([0], [2], 0.0),
        mg.Unary([1], [[2.0, 2.0, 2.0]]),
        mg.Table([0, 1, 2], np.ones((3, 3, 3))),
    ]
    with_, without = (
        sample(
            mg.FactorGraph([3] * 3, groups),
            GOLDEN[name].sampler,
            updates=999,
            seed=1,
            record="draws",
            thin=9,
            progress=False,
        )
        for groups in (base + empty, base)
    )
    assert (with_.draws == without.draws).all()


@pytest.mark.parametrize(
    "make",
    [
        mg.MGPMH,
        mg.MinGibbs,
        mg.DoubleMinGibbs,
        mg.LocalMinibatchGibbs,
        mg.PoissonMH,
        mg.PoissonEstimator,
    ],
)
@pytest.mark.parametrize("batch", [0, -1.0, math.nan, math.inf, 1e300, "many", True])
def test_meaningless_batches_are_refused(make, batch):
    with pytest.raises(mg.SampleError, match=r"batch must be|batch is an expected"):
        make(batch=batch)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mg.SubsetEstimator(0), "at least 1, got 0"),
        (lambda: mg.SubsetEstimator(2.5), "got 2.5"),
        (lambda: mg.MGPMH(slowdown=1.0), "slowdown must be above 1"),
        (lambda: mg.MGPMH(batch=1, slowdown=1.2), "a batch or a slowdown, not both; got 1.2"),
        (lambda: mg.MGPMH(slowdown=None), "no guarantee.*give a batch, or a slowdown such as 1.5"),
        (lambda: mg.MinGibbs(batch=1, slowdown=1.2), "not both"),
        (lambda: mg.MinGibbs(estimator=mg.ExactEstimator(), slowdown=1.2), "not both"),
        (lambda: mg.MinGibbs(slowdown=None), "give a batch or an estimator, or a slowdown"),
        (lambda: mg.DoubleMinGibbs(batch=1, second_batch=1, slowdown=1.2), "not both"),
        (lambda: mg.DoubleMinGibbs(batch=1, slowdown=None), "give both batches"),
        (lambda: mg.DoubleMinGibbs(second_batch=1, slowdown=None), "give both batches"),
        (lambda: mg.MinGibbs(batch=1, estimator=mg.ExactEstimator()), "not both"),
        (lambda: mg.MinGibbs(estimator="exact"), "estimator must be an Estimator, got 'exact'"),
        (lambda: mg.MinGibbs(failure=2.0), "failure"),
        (lambda: mg.DoubleMinGibbs(second_batch=-3), "second_batch"),
        (lambda: mg.LocalMinibatchGibbs(2.5), "number of factors"),
        (lambda: mg.TunaMH(chi=0.0), "chi must be above 0, got 0"),
        (lambda: mg.TunaMH(chi=math.inf), "chi must be a finite number"),
    ],
)
def test_contradictory_settings_are_refused(make, message):
    with pytest.raises(mg.SampleError, match=message):
        make()


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (mg.MGPMH(batch=3), mg.MGPMH(batch=3, slowdown=None)),
        (mg.MGPMH(), mg.MGPMH(slowdown=1.5)),
        (mg.MinGibbs(batch=9), mg.MinGibbs(batch=9, slowdown=None)),
        (mg.DoubleMinGibbs(batch=3, second_batch=9), mg.DoubleMinGibbs(3, 9, slowdown=None)),
        (mg.PoissonGibbs(theta=2.0), mg.PoissonGibbs(theta=2.0, slowdown=None)),
    ],
    ids=lambda sampler: str(sampler),
)
def test_no_slowdown_asks_for_no_guarantee(given, asked):
    """A batch replaces the default guarantee; None requests no guarantee."""
    draws = [
        mg.sample(ZOO["potts"], sampler, updates=500, seed=1, record="draws", progress=False).draws
        for sampler in (given, asked)
    ]
    assert (draws[0] == draws[1]).all()
    assert given.describe(ZOO["potts"]) == asked.describe(ZOO["potts"])


SECOND = {mg.DoubleMinGibbs: {"second_batch": 5.0}}


def test_defaults_promise_a_slowdown_of_one_and_a_half():
    graph = ZOO["potts"]
    for kind in (mg.MGPMH, mg.MinGibbs, mg.DoubleMinGibbs):
        assert kind().slowdown == 1.5
        if kind is mg.MGPMH:
            assert kind().guaranteed_slowdown(graph) == pytest.approx(1.5)
        else:  # Poisson estimates are unbounded: the statement is about the decay of variances
            assert kind().guaranteed_slowdown(graph) is None
            assert "1.5" in kind().proviso(graph) or kind is mg.MinGibbs
            assert "until variances fall" in kind().proviso(graph)
            assert kind(slowdown=None, batch=5.0, **SECOND.get(kind, {})).proviso(graph) == ""
        assert str(kind()) == f"{kind.__name__}()"
        assert kind(batch=5.0).slowdown == 1.5  # unused if a batch is given


def test_subsets_larger_than_the_set_are_refused():
    graph = ZOO["potts"]
    for sampler in (mg.MinGibbs(estimator=mg.SubsetEstimator(8)), mg.LocalMinibatchGibbs(5)):
        with pytest.raises(mg.SampleError, match="cannot be drawn"):
            sample(graph, sampler, updates=1, progress=False)
    sample(graph, mg.MinGibbs(estimator=mg.SubsetEstimator(7)), updates=1, progress=False)


def test_a_batch_that_would_never_finish_is_refused():
    n = 2_000
    i, j = np.triu_indices(n, 1)
    graph = mg.FactorGraph(np.full(n, 100), [mg.Potts(i, j, 1.0)])
    for sampler in (mg.MinGibbs(), mg.MinGibbs(batch=1e12)):
        with pytest.raises(mg.SampleError, match=r"use mg.PoissonGibbs\(\) or mg.Gibbs\(\)"):
            sample(graph, sampler, updates=1, progress=False)
    with pytest.raises(mg.SampleError, match="never finish"):
        mg.DoubleMinGibbs().prepare(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 1e7)]))


@pytest.mark.parametrize("beta", [4.6, 8.0])
def test_both_pilots_see_the_same_rate_of_changes(beta, monkeypatch):
    graph = mg.models.potts_rbf(beta=beta)
    data = fields.FieldData(np.empty(0))
    plain = fields.change_rate(graph, data)
    assert fields.change_rate(graph, data) is plain  # not measured again
    monkeypatch.setattr(fields, "_UNCOMPILED", 0)
    # 4,000 correlated updates each: 6 standard deviations of 4,000 independent ones
    assert plain == pytest.approx(fields._measure_rate(graph, data), abs=0.05)


@pytest.mark.parametrize("coupling", [1e9, 1e12, 1e15, 1e99])
@pytest.mark.parametrize(
    "sampler",
    [
        mg.MGPMH(),
        mg.DoubleMinGibbs(),
        mg.DoubleMinGibbs(second_batch=1e3),
        mg.MinGibbs(),
        mg.PoissonMH(),
        mg.TunaMH(),
        mg.PoissonGibbs(heavy=0, theta=1.0),
    ],
    ids=str,
)
def test_batches_that_cannot_be_drawn_are_refused(sampler, coupling):
    """A Poisson mean beyond the exact integers of doubles once made MGPMH run forever."""
    graph = mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], coupling)])
    with pytest.raises(mg.SampleError, match=r"draws|batch") as caught:
        sampler.prepare(graph)
    assert "use mg." in str(caught.value) or "use the default split" in str(caught.value)
