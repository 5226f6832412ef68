"""Low rank through running sums: distribution, sums, recomputation, cost of an update."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.kernels.layout import DRAWS, EVALUATIONS
from minigibbs.samplers.poisson_gibbs.groups import projected
from minigibbs.samplers.poisson_gibbs.groups.projected import ProjectedData
from tests import naive
from tests.harness import FALSE_ALARM, advance_each, begun, chi_square, sample, state_numbers
from tests.samplers.test_distribution import STARTS, exact_starts
from tests.zoo import STRONG_RANK

SAMPLER = mg.PoissonGibbs()


def hopfield(n, rank, beta=0.9, seed=0):
    patterns = np.sign(np.random.default_rng(seed).normal(size=(n, rank)))
    return mg.FactorGraph(np.full(n, 2), [mg.LowRank(patterns * np.sqrt(beta / n))])


def small(kind, values, different, evidence=None):
    rng = np.random.default_rng(3)
    a, b = rng.normal(0, 0.6, (2, 4, 2))
    group = mg.LowRank(a, b if different else None, kind=kind)
    unary = mg.Unary([1], rng.normal(0, 0.5, (1, values)))
    graph = mg.FactorGraph([values] * 4, [group, unary, mg.Potts([0], [2], 0.4)])
    return graph if evidence is None else graph.condition(evidence)


SMALL = {
    "spins": small("ising", 2, False),
    "spins-two-matrices": small("ising", 2, True),
    "potts": small("potts", 3, False),
    "potts-two-matrices": small("potts", 3, True),
    "evidence": small("potts", 3, True, {3: 1}),
    "large-domain": mg.FactorGraph(
        [18, 2, 20], [mg.LowRank([[1.2, 0.3], [-0.5, 0.8], [0.9, -0.7]], kind="potts")]
    ),
    "strong": STRONG_RANK,
}


@pytest.mark.parametrize("name", SMALL)
def test_exact_start_keeps_the_distribution(name):
    graph = SMALL[name]
    starts = exact_starts(graph, STARTS, seed=41)
    carried, updates = begun(graph, SAMPLER, starts), 3 * graph.stats.variables
    states, _, tally = advance_each(graph, SAMPLER, starts, updates, seed=42, carried=carried)
    assert chi_square(state_numbers(graph, states), naive.distribution(graph)) > FALSE_ALARM
    assert (states != starts).any(axis=1).mean() > 0.3
    assert tally[DRAWS] == 0


@pytest.mark.parametrize("name", ["spins", "potts-two-matrices"])
def test_wrong_sums_are_caught(name):
    """Negative control: sums with a small error must be detected."""
    graph = SMALL[name]
    starts = exact_starts(graph, STARTS, seed=41)
    carried = begun(graph, SAMPLER, starts)
    carried[:, 1:3] += 0.25  # the sum of the spins, or of the first value
    states, _, _ = advance_each(graph, SAMPLER, starts, 12, seed=42, carried=carried)
    assert chi_square(state_numbers(graph, states), naive.distribution(graph)) < FALSE_ALARM


@pytest.mark.parametrize("name", SMALL)
def test_the_sums_give_the_factors(name):
    """After many updates, the running sums equal those of the definition."""
    graph = SMALL[name]
    starts = exact_starts(graph, 50, seed=43)
    carried = begun(graph, SAMPLER, starts)
    states, carried, _ = advance_each(graph, SAMPLER, starts, 200, seed=44, carried=carried)
    data = SAMPLER.prepare(graph).implicit
    assert isinstance(data, ProjectedData)
    for x, row in zip(states.astype(int), carried, strict=True):
        shares = (2 * x[None] - 1) if data.spins else (x == np.arange(data.values)[:, None])
        sums = [shares @ data.b] if data.alike else [shares @ data.b, shares @ data.a]
        own = row[data.first + 1 :]
        # sums of at most 5 terms below 30, and 64 changes since they were recomputed
        np.testing.assert_allclose(own, np.concatenate([s.ravel() for s in sums]), atol=1e-11)


def test_sums_are_taken_anew_before_rounding_builds_up(monkeypatch):
    """With recomputation the error stays that of one sweep; without it, it grows."""
    errors = {}
    for every in (1, 10**6):
        monkeypatch.setattr(projected, "_REFRESH", every)
        graph = mg.FactorGraph(
            np.full(50, 2), [mg.LowRank(np.random.default_rng(4).normal(0, 0.02, (50, 3)))]
        )
        start = np.zeros((1, 50), dtype=int)
        carried = begun(graph, SAMPLER, start)
        updates = 2_000_000
        states, carried, _ = advance_each(graph, SAMPLER, start, updates, seed=45, carried=carried)
        fresh = begun(graph, SAMPLER, states)
        errors[every] = np.abs(carried - fresh)[0, 1:].max()
        assert (carried[0, 0] < 50) == (every == 1)
    assert errors[1] < 1e-15 < errors[10**6]


def test_an_update_looks_at_the_rank_alone():
    counts = []
    for n in (50, 5000):
        graph = hopfield(n, 7)
        run = sample(graph, updates=2000, chains=1, record=(), seed=1, progress=False)
        counts.append(run.info.factor_evaluations)
    assert counts == [7 * 2000, 7 * 2000]
    evaluated = advance_each(
        hopfield(30, 4), SAMPLER, np.zeros((1, 30)), 100, 1, carried=np.zeros((1, 5))
    )[2]
    assert evaluated[EVALUATIONS] == 400


def test_resumed_runs_have_the_same_bits(tmp_path, monkeypatch):
    """The run is cut between two recomputations, and continues beyond several."""
    monkeypatch.setattr(projected, "_REFRESH", 2)
    graph = hopfield(40, 3)
    options = {"chains": 2, "seed": 5, "record": "draws", "thin": 10, "progress": False}
    whole = sample(graph, updates=4000, **options)
    folder = tmp_path / "run.zarr"
    sample(graph, updates=1500, checkpoint=folder, **options)
    again = mg.resume(folder, updates=2500, progress=False)
    np.testing.assert_array_equal(again.draws, whole.draws)


def test_settings_that_ask_for_draws_get_them():
    graph = hopfield(40, 3)
    for sampler in (mg.PoissonGibbs(heavy=0), mg.PoissonGibbs(theta=0.5)):
        assert sampler.split(graph).implicits[0].projected == 0
    for sampler in (SAMPLER, mg.PoissonGibbs(slowdown=1.1), mg.PoissonGibbs(heavy=39)):
        assert sampler.split(graph).implicits[0].projected == 3
        assert sampler.guaranteed_slowdown(graph) == 1.0
    assert "3 running sums" in SAMPLER.describe(graph)


def test_a_group_is_the_same_after_a_file(tmp_path):
    """One matrix given twice is one matrix: otherwise arithmetic and draws would differ."""
    rows = np.random.default_rng(6).normal(size=(6, 2))
    group = mg.LowRank(rows, rows.copy())
    assert group.b is group.a
    mg.write(mg.FactorGraph([2] * 6, [group]), tmp_path / "model.mg")
    assert mg.read(tmp_path / "model.mg").implicits[0].thin == (2, 1)


def test_stats_of_a_million_variables_are_bounds(monkeypatch):
    graph = hopfield(1_000_000, 4)
    explained = mg.explain(graph, costs={"cell": 1.0})
    assert "upper bounds" in str(explained)
    assert explained.stats.max_degree == 999_999
    counted = hopfield(200, 4)
    assert "upper bounds" not in str(mg.explain(counted, costs={"cell": 1.0}))
    exact = counted.local_energies
    monkeypatch.setattr("minigibbs.graph.factors.implicit.low_rank._MOST_COUNTED", 10)
    bounds = hopfield(200, 4).local_energies
    assert (bounds >= exact).all()
    assert (bounds <= 4 * exact).all()


def test_a_guarantee_holds_for_all_tails_together():
    graph = mg.FactorGraph(
        [2] * 30, [mg.Complete(30, 0.03), mg.Complete(30, -0.02), mg.Ising([0], [1], 0.2)]
    )
    sampler = mg.PoissonGibbs(slowdown=1.2, heavy=0)
    assert 1.0 < sampler.guaranteed_slowdown(graph) <= 1.2 * (1 + 1e-12)
