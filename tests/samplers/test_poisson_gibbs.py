"""Guarantees of the default sampler beyond its stationary distribution."""

import math

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.samplers.gibbs.fields import FieldData
from minigibbs.samplers.gibbs.sampler import GibbsData
from minigibbs.samplers.poisson_gibbs import split as splits
from minigibbs.samplers.poisson_gibbs.split import choose_split
from minigibbs.samplers.poisson_gibbs.updates.spins import SpinData
from tests import naive
from tests.harness import FALSE_ALARM, advance_each, chi_square, sample, state_numbers
from tests.samplers.test_distribution import STARTS, exact_starts
from tests.zoo import IMPLICIT, ZOO


def small_graphs(count):
    """Yield random graphs of at most three variables and four factors, of several kinds."""
    rng = np.random.default_rng(8)
    for _ in range(count):
        sizes = rng.integers(2, 4, size=3)
        groups = [mg.Potts([0, 1], [1, 2], rng.normal(0, 0.8, 2))]
        if rng.random() < 0.5:
            groups.append(mg.Unary([0], rng.normal(0, 0.5, (1, sizes[0]))))
        if rng.random() < 0.5:
            groups.append(mg.Table([[0, 2]], rng.normal(0, 0.4, (1, sizes[0], sizes[2]))))
        yield mg.FactorGraph(sizes, groups), rng


def test_spectral_gap_is_at_least_the_bound():
    """The bound is exp(-L_T * (sqrt(1 + theta) - sqrt(theta))^2) times plain Gibbs's gap."""
    tight = 0
    for graph, rng in small_graphs(100):
        theta, heavy = float(rng.uniform(0.3, 4.0)), int(rng.integers(0, 2))
        sampler = mg.PoissonGibbs(theta=theta, heavy=heavy)
        gibbs = mg.theory.transition(graph, mg.Gibbs()).spectral_gap()
        ours = mg.theory.transition(graph, sampler).spectral_gap()
        bound = math.exp(-sampler.split(graph).log_slowdown)
        assert ours >= bound * gibbs * (1 - 1e-9)
        tight += ours < 0.999 * gibbs
    assert tight > 50  # the tails must slow most of them


def test_slowdown_is_kept():
    for graph, _ in small_graphs(20):
        sampler = mg.PoissonGibbs(slowdown=1.2, heavy=0)
        gibbs = mg.theory.transition(graph, mg.Gibbs()).spectral_gap()
        assert mg.theory.transition(graph, sampler).spectral_gap() >= gibbs / 1.2
        assert sampler.guaranteed_slowdown(graph) <= 1.2 * (1 + 1e-12)


@pytest.mark.parametrize("model", ZOO)
@pytest.mark.parametrize("scan", ["random", "systematic", "shuffled"])
def test_everything_heavy_is_plain_gibbs_draw_for_draw(model, scan):
    graph = ZOO[model]
    runs = [
        sample(
            graph, sampler, sweeps=200, seed=3, scan=scan, record="draws", thin=3, progress=False
        )
        for sampler in (mg.PoissonGibbs(heavy=graph.stats.max_degree), mg.Gibbs())
    ]
    assert (runs[0].draws == runs[1].draws).all()


def test_sparse_and_strong_graphs_become_plain_gibbs():
    for graph in (mg.models.ising_lattice(8, 0.4), mg.models.potts_lattice(8, 5, 1.0)):
        assert isinstance(mg.PoissonGibbs().prepare(graph), GibbsData)
    strong = mg.models.curie_weiss(100, 100.0)
    assert isinstance(mg.PoissonGibbs().prepare(strong), GibbsData | FieldData)


def test_dense_graphs_evaluate_few_factors():
    """The paper's models need 8 of 399 neighbors, and a tenth of a draw."""
    for graph in (mg.models.potts_rbf(), mg.models.ising_rbf()):
        info = sample(graph, updates=50_000, chains=1, seed=1, record=(), progress=False).info
        assert info.factor_evaluations / info.updates < 13
        assert info.minibatch_draws / info.updates < 0.3


def test_operations_do_not_depend_on_degree_or_domain():
    """Curie-Weiss with equal energy at ten times the size; Potts at a hundred times the domain."""
    draws = []
    for n in (200, 2000):
        graph = mg.FactorGraph(np.full(n, 2), [mg.Complete(n, 0.8 / n)])
        info = sample(graph, updates=50_000, chains=1, seed=1, record=(), progress=False).info
        draws.append(info.minibatch_draws / info.updates)
    assert draws[0] == pytest.approx(draws[1], rel=0.03)
    counts = []
    for states in (10, 1000):
        graph = mg.models.potts_rbf(side=10, states=states)
        info = sample(graph, updates=20_000, chains=1, seed=1, record=(), progress=False).info
        counts.append(info.factor_evaluations / info.updates)
    assert counts[0] == pytest.approx(counts[1], rel=0.01)


def test_spins_use_their_own_layout_with_the_same_distribution():
    graph = mg.FactorGraph(
        [2] * 5,
        [
            mg.Ising([0, 1, 2, 3, 0], [1, 2, 3, 4, 4], [0.6, -0.4, 0.3, 0.05, -0.04]),
            mg.Potts([0], [3], -0.3),
            mg.Unary([1, 4], [[0.0, 0.7], [0.4, 0.0]]),
        ],
    ).condition({2: 1})
    sampler = mg.PoissonGibbs(heavy=1, theta=0.6)
    assert isinstance(sampler.prepare(graph), SpinData)
    starts = exact_starts(graph, STARTS, seed=41)
    states, _, _ = advance_each(graph, sampler, starts, 8, seed=42)
    assert chi_square(state_numbers(graph, states), naive.distribution(graph)) > FALSE_ALARM


def test_fields_are_remembered_where_changes_are_rare():
    """A pilot run finds few changes in a cold dense model; in a hot one caching is slower."""
    cold = mg.models.curie_weiss(100, 6.0)
    assert isinstance(mg.Gibbs().prepare(cold), FieldData)
    assert isinstance(mg.Gibbs().prepare(mg.models.curie_weiss(100, 0.1)), GibbsData)
    same = [
        sample(cold, mg.Gibbs(fields=f), sweeps=300, seed=2, record="draws", progress=False).draws
        for f in (True, False)
    ]
    assert (same[0] == same[1]).all()  # equal up to rounding, which never matters here
    with pytest.raises(mg.SampleError, match="pairs and unary"):
        sample(ZOO["tables"], mg.Gibbs(fields=True), updates=1, progress=False)


def test_remembered_fields_do_not_drift():
    from minigibbs.running.api import one_chain

    graph, sampler = ZOO["potts"], mg.Gibbs(fields=True)
    state = np.zeros(len(graph), graph.state_type)
    group = one_chain(graph, sampler, state, np.arange(1, 5, dtype=np.uint64))
    group.advance(10_000_000, False)
    remembered = group.chain.carried.copy()
    group.begin()
    # ten million additions of numbers near 1: the rounding error is about 1e-12
    np.testing.assert_allclose(remembered, group.chain.carried, atol=1e-10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mg.PoissonGibbs(theta=0.0), "theta must be above 0"),
        (lambda: mg.PoissonGibbs(theta=math.nan), "theta must be a number"),
        (lambda: mg.PoissonGibbs(theta=math.inf), "theta must be above 0"),
        (lambda: mg.PoissonGibbs(theta=1e-320), "at least 1e-100, got 1e-320"),
        (lambda: mg.PoissonGibbs(slowdown=0.9), "slowdown must be above 1"),
        (lambda: mg.PoissonGibbs(slowdown=1.5, theta=1.0), "not both"),
        (lambda: mg.PoissonGibbs(heavy=-1), "heavy must be an integer"),
        (lambda: mg.PoissonGibbs(heavy=1.5), "heavy must be an integer"),
        (
            lambda: mg.PoissonGibbs(heavy=0, theta=0.1).prepare(mg.models.curie_weiss(50, 3e8)),
            "would make about .* draws in each update.*evaluate more factors",
        ),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(mg.SampleError, match=message):
        make()


def test_tuning_measures_what_models_differ_in():
    """The paper's Potts model has a small stickiness, and the Curie-Weiss model a larger one.

    Longer runs gave 0.06, and 0.3 to 0.5. The results are deterministic: no time is measured.
    """
    potts, complete = mg.models.potts_rbf(), mg.FactorGraph([2] * 300, [mg.Complete(300, 0.003)])
    found = [mg.PoissonGibbs(stickiness="measured").settled(graph) for graph in (potts, complete)]
    assert found == [
        mg.PoissonGibbs(stickiness="measured").settled(graph) for graph in (potts, complete)
    ]
    assert found[0].stickiness < 0.15 < found[1].stickiness
    less, more = (sampler.split(complete).implicits[0] for sampler in found)
    assert less.theta < more.theta
    assert less.draws < more.draws


def test_tuned_runs_are_the_settled_ones_and_right():
    """Errors are at most 5 standard errors: 5e-7 per value, if normal."""
    graph, options = IMPLICIT["points"], {"sweeps": 3000, "seed": 5, "progress": False}
    run = mg.sample(graph, mg.PoissonGibbs(stickiness="measured"), **options)
    settled = mg.PoissonGibbs(stickiness="measured").settled(graph)
    assert run.info.sampler == str(settled)
    again = mg.sample(graph, settled, **options)
    np.testing.assert_array_equal(run.marginals, again.marginals)
    off = np.abs(run.marginals - mg.exact_marginals(graph))
    assert (off < 5 * np.maximum(run.standard_errors, 0.003)).all()


def test_where_short_runs_cannot_tell_the_shipped_constant_stays():
    lonely = mg.FactorGraph([2, 3], [mg.Unary([0], [[0.0, 1.0]])])
    assert mg.PoissonGibbs(stickiness="measured").settled(lonely) == mg.PoissonGibbs()
    clamped = mg.models.potts_rbf(side=3).condition(dict.fromkeys(range(9), 0))
    assert mg.PoissonGibbs(stickiness="measured").settled(clamped) == mg.PoissonGibbs()
    frozen = mg.FactorGraph([2] * 40, [mg.Complete(40, 5.0)])
    assert mg.PoissonGibbs(stickiness="measured").settled(frozen) == mg.PoissonGibbs()


@pytest.mark.parametrize("stickiness", [-0.1, 2.0, float("nan"), "a", True, [0.1]])
def test_a_stickiness_that_means_nothing_is_refused(stickiness):
    with pytest.raises(mg.SampleError, match=r"stickiness must be .*, got"):
        mg.PoissonGibbs(stickiness=stickiness)


@pytest.mark.parametrize("options", [{}, {"slowdown": 1.1}, {"theta": 0.7}])
@pytest.mark.parametrize("weight", [1e-6, 0.4, 300.0])
def test_variables_of_few_pairs_get_the_split_that_the_search_would_choose(
    options, weight, monkeypatch
):
    """Four pairs cost no more than a tail, so that the search is left out."""
    graph = mg.models.ising_lattice(6, weight)
    wish = {"slowdown": None, "theta": None, **options}
    found = []
    for known in (True, False):
        monkeypatch.setattr(splits, "_cheap_rows", lambda model, known=known: known)
        found.append(choose_split(graph, heavy=None, **wish))
    for name in ("heavy", "theta", "tail", "exact", "log_bound"):
        short, searched = (getattr(split, name) for split in found)
        np.testing.assert_allclose(short, searched, rtol=1e-12)
        assert short.dtype == searched.dtype
    monkeypatch.undo()
    assert splits._cheap_rows(graph.packed)
    assert not splits._cheap_rows(mg.models.curie_weiss(20, 1.0).packed)
