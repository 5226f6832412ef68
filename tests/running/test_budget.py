"""Budget of energies: their spacing, their values, and states buffered for later."""

import pickle

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.kernels.energy import energies
from minigibbs.results.verdict import energy_limit
from minigibbs.running import budget
from tests.settings import SETTINGS

QUIET = {"progress": False, "seed": 3}


def dense(side=20, beta=0.3):
    """Return the paper's Ising model, in which nearly all pairs are negligible."""
    n = side * side
    i, j = np.triu_indices(n, 1)
    square = (i // side - j // side) ** 2 + (i % side - j % side) ** 2
    return mg.FactorGraph([2] * n, [mg.Ising(i, j, beta * np.exp(-1.5 * square))])


DENSE = dense()


def test_negligible_pairs_are_those_that_no_energy_notices():
    pair, weight, *_ = budget.energy_pairs(DENSE)
    whole = DENSE.packed.pair_weight
    assert len(weight) < len(whole) / 4
    left_out = np.abs(whole).sum() - np.abs(weight).sum()
    assert left_out <= 1e-15 * np.abs(whole).sum()
    states = np.random.default_rng(0).integers(0, 2, (20, 400)).astype(np.uint8)
    full, light = np.empty(20), np.empty(20)
    energies(DENSE.packed, states, full)
    energies(DENSE.packed._replace(pair=pair, pair_weight=weight), states, light)
    np.testing.assert_allclose(light, full, rtol=1e-13)


def test_pairs_that_matter_are_all_kept():
    i, j = np.triu_indices(60, 1)
    graph = mg.FactorGraph([2] * 60, [mg.Ising(i, j, 0.01)])
    assert budget.energy_pairs(graph)[1] is graph.packed.pair_weight


def test_pairs_lie_in_rows_only_where_they_come_in_order_and_are_many():
    pairs = budget.energy_pairs(DENSE)
    assert len(pairs.rows) == len(DENSE) + 1
    first = np.repeat(np.arange(len(DENSE)), np.diff(pairs.rows))
    np.testing.assert_array_equal(np.stack([first, pairs.second], axis=1), pairs.pair)
    i, j = np.triu_indices(60, 1)
    shuffled = np.random.default_rng(0).permutation(len(i))
    unordered = mg.FactorGraph([2] * 60, [mg.Ising(i[shuffled], j[shuffled], 0.01)])
    for graph in (unordered, mg.models.ising_lattice(side=10, beta=0.3)):
        assert not len(budget.energy_pairs(graph).rows)


@pytest.mark.parametrize("values", [2, 3])
def test_energies_by_rows_are_those_of_the_definition(values):
    """Rows have gaps, one variable has no pairs, and one is clamped."""
    i, j = np.triu_indices(40, 1)
    some = (i != 7) & (i != 20) & (j != 20)
    weights = np.random.default_rng(1).normal(0, 0.1, some.sum())
    graph = mg.FactorGraph([values] * 40, [mg.Potts(i[some], j[some], weights)])
    graph = graph.condition({3: 1})
    assert len(budget.energy_pairs(graph).rows)
    run = mg.sample(graph, sweeps=30, chains=2, record=("draws", "energy"), **QUIET)
    expected = [graph.energy(draws) for draws in run.draws]
    np.testing.assert_allclose(run.energy, expected, rtol=1e-12, atol=1e-12)


def test_sparse_models_have_an_energy_at_every_record():
    run = mg.sample(mg.models.ising_lattice(side=30, beta=0.3), sweeps=40, chains=2, **QUIET)
    assert run.energy.shape == (2, 40)
    np.testing.assert_array_equal(run.energy_updates, run.info.thin * np.arange(1, 41))


@pytest.fixture(scope="module")
def rare():
    run = mg.sample(DENSE, sweeps=900, chains=2, **QUIET)
    assert run.info.energy_thin > run.info.thin
    return run


def test_dear_energies_are_taken_more_rarely_and_are_the_same_ones(rare):
    every = rare.info.energy_thin // rare.info.thin
    assert rare.energy.shape == (2, 900 // every)
    whole = mg.sample(DENSE, sweeps=900, chains=2, record=("marginals", "energy"), **QUIET)
    assert whole.energy.shape == (2, 900)
    np.testing.assert_array_equal(rare.energy, whole.energy[:, every - 1 :: every])
    np.testing.assert_array_equal(rare.counts, whole.counts)
    states = mg.sample(DENSE, sweeps=20, chains=2, record=("draws", "energy"), **QUIET)
    expected = [DENSE.energy(draws) for draws in states.draws]
    np.testing.assert_allclose(states.energy, expected, rtol=0, atol=1e-11)  # sums of 79,800 terms


def test_rare_energies_are_the_same_elsewhere_resumed_and_saved(rare, tmp_path):
    mg.sample(DENSE, sweeps=500, warmup=225, chains=2, checkpoint=tmp_path / "run", **QUIET)
    resumed = mg.resume(
        tmp_path / "run", sweeps=400, progress=False, executor="processes", threads=1
    )
    np.testing.assert_array_equal(resumed.energy, rare.energy)
    resumed.save(tmp_path / "saved.npz")
    loaded = mg.load(tmp_path / "saved.npz")
    np.testing.assert_array_equal(loaded.energy_updates, rare.energy_updates)


def test_rare_energies_raise_no_false_alarm(rare):
    assert energy_limit(rare) == 1 + 8 / rare.energy.shape[1]
    assert not any("energy" in text or "draws" in text for text in rare.summary().warnings)


def test_the_choice_depends_on_costs_and_never_on_the_clock():
    sampler = mg.PoissonGibbs()
    thin = len(DENSE)
    every = budget.energy_every(DENSE, sampler, thin, 10**6)
    assert every == budget.energy_every(dense(), sampler, thin, 10**6)
    assert budget.energy_every(DENSE, sampler, thin, 10**6, 2 * budget.SHARE) < every
    assert budget.energy_every(DENSE, sampler, every * thin, 10**6) == 1
    share = budget.energy_cost(DENSE) / (every * thin * budget.update_cost(DENSE, sampler))
    assert share <= budget.SHARE


def test_one_energy_at_the_end_where_no_more_fit_and_none_where_that_is_too_dear(monkeypatch):
    sampler, thin = mg.PoissonGibbs(), len(DENSE)
    chain = thin * budget.update_cost(DENSE, sampler)
    for share, expected in ((0.15, 100), (0.5, None)):
        monkeypatch.setattr(budget, "energy_cost", lambda graph, cost=share * 100 * chain: cost)
        every = budget.energy_every(DENSE, sampler, thin, 100)
        assert every == expected if expected else every > 100


def test_runs_with_a_goal_have_enough_energies_to_look_at(monkeypatch):
    """A goal needs enough energies, even if they are expensive."""
    monkeypatch.setattr(budget, "energy_cost", lambda graph: 1e9)
    run = mg.sample_until(mg.models.ising_lattice(side=5, beta=0.2), ess=100, rhat=1.2, **QUIET)
    assert run.info.energy_thin == 10 * run.info.thin
    assert run.energy.shape[1] >= 50
    assert run.summary().energy_ess >= 100


@pytest.mark.parametrize(
    ("graph", "least"),
    [(mg.models.ising_lattice(100, 0.3), 2), (mg.models.potts_lattice(60, 10, 0.5), 1)],
    ids=["spins", "small domains"],
)
def test_energies_by_colors_keep_to_their_share(graph, least):
    """Chromatic updates of spins are so cheap that an energy per record would take a third."""
    sampler, thin = mg.PoissonGibbs(), len(graph)
    cost, update = budget.color_costs(graph, sampler)
    every = budget.energy_every(graph, sampler, thin, 10**6, colors=True)
    assert every >= least
    assert cost <= every * budget.SHARE * thin * update
    assert every == 1 or cost > (every - 1) * budget.SHARE * thin * update
    one_by_one = budget.energy_every(graph, sampler, thin, 10**6)
    assert one_by_one == 1  # updates are expensive there


def test_other_layouts_by_colors_have_costs_too():
    cost, update = budget.color_costs(DENSE, mg.PoissonGibbs())
    assert (cost, update) == (
        budget.energy_cost(DENSE),
        budget.update_cost(DENSE, mg.PoissonGibbs()) / 3.0,
    )


@pytest.mark.parametrize("fields", [False, True])
def test_energies_of_small_domains_with_and_without_fields(fields):
    rng = np.random.default_rng(0)
    graph = mg.models.potts_lattice(12, 4, 0.5)
    if fields:
        unary = mg.Unary(np.arange(144), rng.normal(size=(144, 4)))
        graph = mg.FactorGraph(graph.sizes, [*graph.factors, unary])
    options = {"scan": "chromatic", "record": ("draws", "energy"), "sweeps": 5, "chains": 1}
    run = mg.sample(graph, **options, **QUIET)
    np.testing.assert_allclose(run.energy[0], graph.energy(run.draws[0]), rtol=1e-12)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_sampler_has_a_cost(name):
    graph = dense(side=4)
    assert 1.0 < budget.update_cost(graph, SETTINGS[name].sampler.settled(graph)) < 1e7


def test_large_points_record_energies_too():
    features = np.random.default_rng(0).normal(size=(300, 2)) * 4.0
    graph = mg.FactorGraph([2] * 300, [mg.Points(features, "gaussian", 0.1, kind="ising")])
    run = mg.sample(graph, sweeps=100, chains=2, **QUIET)
    assert run.energy is not None
    assert run.energy.shape[1] >= 1


def counted(monkeypatch):
    made = []
    prepare = mg.Gibbs.prepare

    def counting(self, graph, lanes=1):
        made.append(str(self))
        return prepare(self, graph, lanes)

    monkeypatch.setattr(mg.Gibbs, "prepare", counting)
    return made


def test_a_sampler_prepares_a_graph_once(monkeypatch):
    made = counted(monkeypatch)
    graph = mg.models.ising_lattice(side=4, beta=0.3)
    first = mg.sample(graph, mg.Gibbs(), sweeps=3, **QUIET)
    again = mg.sample(graph, mg.Gibbs(), sweeps=3, **QUIET)
    assert made == ["Gibbs()"]
    np.testing.assert_array_equal(first.state, again.state)
    mg.sample(graph, mg.Gibbs(textbook=True), sweeps=3, **QUIET)
    mg.sample(mg.models.ising_lattice(side=4, beta=0.3), mg.Gibbs(), sweeps=3, **QUIET)
    assert len(made) == 3


def test_what_is_kept_is_bounded_and_does_not_travel(monkeypatch):
    made = counted(monkeypatch)
    graph = mg.models.ising_lattice(side=4, beta=0.3)
    for sampler in (mg.Gibbs(), mg.Gibbs(textbook=True), mg.Gibbs(fields=False)):
        mg.sample(graph, sampler, sweeps=1, **QUIET)
    mg.sample(graph, mg.Gibbs(), sweeps=1, **QUIET)
    assert len(made) == 4  # the data of two samplers are stored
    mg.sample(graph, mg.Gibbs(), sweeps=1, **QUIET)
    assert len(made) == 4
    copy = pickle.loads(pickle.dumps(graph))
    np.testing.assert_array_equal(
        mg.sample(copy, sweeps=3, **QUIET).state, mg.sample(graph, sweeps=3, **QUIET).state
    )


ALONE = {
    "fields": mg.FactorGraph([2] * 300, [mg.Unary(range(300), np.zeros((300, 2)))]),
    "nothing": mg.FactorGraph([2] * 300, []),
    "small domains": mg.FactorGraph([3] * 300, [mg.Unary(range(300), np.zeros((300, 3)))]),
}


@pytest.mark.parametrize("name", ALONE)
def test_variables_that_nothing_joins_have_energies(name):
    """An energy without cost is computed at every record."""
    graph = ALONE[name]
    for colors in (False, True):
        for records in (1000, 10**9, None):
            assert budget.energy_every(graph, mg.PoissonGibbs(), 300, records, colors=colors) >= 1
    run = mg.sample(graph, sweeps=1000, **QUIET)
    assert run.info.scan == "chromatic"
    assert run.energy.shape[1] > 0
    until = mg.sample_until(graph, max_time="0.2s", **QUIET)
    assert until.energy.shape[1] > 0
