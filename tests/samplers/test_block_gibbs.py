"""Block Gibbs: covers, widths, counts, refusals."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.samplers.block_gibbs import sampler as blocks
from minigibbs.samplers.block_gibbs.program import BlockData
from minigibbs.samplers.block_gibbs.spins import SpinData
from tests import naive
from tests.hard import HARD, ZERO
from tests.harness import FALSE_ALARM, chi_square, state_numbers, sweep_each
from tests.samplers.test_distribution import exact_starts
from tests.zoo import IMPLICIT, SPINS, STRONG, ZOO

LATTICE = mg.models.ising_lattice(9, 0.3)
TABLES = mg.models.random_tables(variables=6, factors=7, arity=2, states=2, scale=0.8, unary=0.3)


@pytest.mark.parametrize("width", [0, 1, 2, 4])
@pytest.mark.parametrize("model", [*ZOO, "lattice"])
def test_covers_hold_every_variable_once_within_the_width(model, width):
    graph = LATTICE if model == "lattice" else ZOO[model]
    choice = np.flatnonzero((graph.evidence < 0) & (graph.sizes > 1))
    for cover in mg.BlockGibbs(width=width).covers(graph):
        assert sorted(cover.variable.tolist()) == choice.tolist()
        assert (cover.parents >= 0).sum(axis=1).max() <= width
        for block in cover.lists():
            assert induced_width(graph, block) <= width


def induced_width(graph, block):
    """Return the width that exact elimination finds for a block, given the other variables.

    A copy of the graph has no plan from other evidence.
    """
    graph = mg.FactorGraph(graph.sizes, graph.factors).condition(
        {k: int(v) for k, v in enumerate(graph.evidence) if v >= 0}
    )
    fixed = {k: 0 for k in range(len(graph)) if k not in block and graph.evidence[k] < 0}
    return mg.theory.treewidth_bound(graph.condition(fixed))


def test_trees_of_a_lattice_are_large():
    """At least two thirds of a square lattice can be in one tree; more than half must be."""
    first = mg.BlockGibbs().covers(mg.models.ising_lattice(40, 0.3))[0]
    assert len(first.lists()[0]) > 800
    assert len(first.end) <= 4


@pytest.mark.parametrize(
    ("graph", "width"),
    [
        (mg.FactorGraph([3] * 6, [mg.Potts(range(5), range(1, 6), 0.9)]), 1),
        (mg.models.ising_lattice(3, 0.4, periodic=False), 3),
        (ZOO["ising"], 4),
        (SPINS, 2),
    ],
)
def test_a_graph_that_is_narrow_enough_is_drawn_anew_by_every_sweep(graph, width):
    sampler = mg.BlockGibbs(width=width)
    assert "every sweep is an independent draw" in sampler.describe(graph)
    options = {"chains": 1, "seed": 1, "record": mg.Record("draws", thin=1), "progress": False}
    draws = mg.sample(graph, sampler, sweeps=40_000, **options).draws[0]
    numbers, distribution = state_numbers(graph, draws), mg.theory.Enumeration(graph).distribution
    assert chi_square(numbers, distribution) > FALSE_ALARM
    energy = graph.log_potential(draws)
    lag = np.corrcoef(energy[1:], energy[:-1])[0, 1]
    assert abs(lag) < 4 / np.sqrt(40_000)  # 4 standard errors: 6e-5


def test_spins_have_a_layout_that_draws_the_same(monkeypatch):
    graphs = (SPINS, LATTICE, mg.models.ising_lattice(7, 0.8, periodic=False))
    for graph in graphs:
        draws = []
        for made in (blocks.as_spins, lambda graph: None):
            monkeypatch.setattr(blocks, "as_spins", made)
            run = mg.sample(
                graph, mg.BlockGibbs(), sweeps=300, seed=1, record="draws", progress=False
            )
            draws.append(run.draws)
        monkeypatch.undo()
        assert type(mg.BlockGibbs().prepare(graph)) is SpinData
        assert (draws[0] == draws[1]).all()  # except for rounding that decides a draw: 1e-12


@pytest.mark.parametrize(
    ("graph", "kind"),
    [
        (LATTICE, SpinData),
        (SPINS, SpinData),
        (TABLES, SpinData),
        (HARD["apart"], BlockData),
        (ZOO["potts"], BlockData),
        (ZOO["logical"], BlockData),
        (mg.FactorGraph([2] * 2, [mg.Ising([0], [1], 400.0)]), BlockData),
    ],
)
def test_odds_are_for_pairs_of_two_values_that_are_not_too_strong(graph, kind):
    assert type(mg.BlockGibbs().prepare(graph)) is kind


@pytest.mark.parametrize("graph", [SPINS, TABLES, ZOO["potts"], ZOO["logical"]])
def test_a_slightly_wrong_program_is_caught(graph):
    """Negative control: a wrong kernel input must be detected."""
    distribution = naive.distribution(graph)
    starts = exact_starts(graph, 60_000, seed=1)
    data = mg.BlockGibbs().prepare(graph)
    if isinstance(data, SpinData):
        steps = data.steps.copy()
        steps["tie"] **= 1.2
        wrong = data._replace(steps=steps)
    else:
        items = data.items.copy()
        items["weight"] *= 1.2
        wrong = data._replace(items=items)
    for chosen, right in ((data, True), (wrong, False)):
        states, _ = sweep_each(graph, mg.BlockGibbs(), starts, 3, seed=2, data=chosen)
        assert (chi_square(state_numbers(graph, states), distribution) > FALSE_ALARM) == right


def test_a_sweep_reads_the_factors_of_every_block():
    """A block evaluates each of its factors once, for any number of its variables in the block."""
    graph = ZOO["tables"]
    sampler = mg.BlockGibbs(width=3, blocks=[[0, 1], [2], [3]])
    _, tally = sweep_each(graph, sampler, [[0, 0, 0, 0]] * 10, 1, seed=1)
    scopes = [{0, 1, 2}, {1, 3}, {3, 1}, {2, 0}, {3}]
    expected = sum(bool(scope & block) for scope in scopes for block in ({0, 1}, {2}, {3}))
    assert tally[0] == 10 * expected


def test_given_blocks_go_first_and_the_rest_one_by_one():
    named = mg.FactorGraph(
        [2, 3, 2, 2], [mg.Potts([0, 1], [1, 2], 0.5)], names=["a", "b", "c", "d"]
    )
    cover = mg.BlockGibbs(blocks=[["b", "a"], ["b", "c"]]).covers(named)[0]
    assert [sorted(block) for block in cover.lists()] == [[0, 1], [1, 2], [3]]
    clamped = named.condition({"b": 1})
    cover = mg.BlockGibbs(blocks=[["b", "a"], ["b"]]).covers(clamped)[0]
    assert cover.lists() == [[0], [2], [3]]


def test_variables_that_zeros_tie_are_in_one_block():
    """Chains of equal neighbors in a lattice are blocks, for all random choices of the rest."""
    side, groups = 6, ({0, 1, 2}, {14, 20, 26})
    graph = mg.models.ising_lattice(side, 0.3)
    scope = [[0, 1], [1, 2], [14, 20], [20, 26]]
    for wrong, together in ((ZERO, True), (-9.0, False)):
        equal = mg.Table(scope, [[0.0, wrong], [wrong, 0.0]])
        covers = mg.BlockGibbs().covers(mg.FactorGraph(graph.sizes, [*graph.factors, equal]))
        whole = [
            any(group <= set(block) for block in cover.lists())
            for cover in covers
            for group in groups
        ]
        assert all(whole) == together  # by chance, not all are
        assert all(sorted(c.variable.tolist()) == list(range(side**2)) for c in covers)


def test_ties_let_a_chain_move_where_single_updates_cannot():
    """Two variables that hard constraints tie must change at the same time."""
    equal = mg.Table([[0, 1], [1, 2]], [[0.0, ZERO], [ZERO, 0.0]])
    graph = mg.FactorGraph([2] * 4, [equal, mg.Ising([2, 3, 3], [3, 0, 1], 0.4)])
    run = mg.sample(graph, mg.BlockGibbs(), sweeps=2_000, seed=1, progress=False)
    # 8,000 sweeps with a correlation time of a few sweeps: 6 standard errors
    assert np.abs(run.marginals[:, 1] - 0.5).max() < 0.07


def test_zeros_whose_variables_are_all_clamped_tie_nothing():
    some = mg.Table([[0, 1]], [[0.0, 0.0], [0.0, ZERO]])
    graph = mg.FactorGraph([2] * 3, [some, mg.Ising([1], [2], 0.3)]).condition({0: 1, 1: 1})
    with pytest.raises(mg.MinigibbsError, match="probability"):
        mg.sample(graph, mg.BlockGibbs(), sweeps=1, progress=False)


def test_ties_that_are_too_wide_are_split():
    i, j = np.triu_indices(6, 1)
    some = mg.Table(np.stack([i, j], 1), [[0.0, 0.0], [0.0, ZERO]])
    for cover in mg.BlockGibbs(width=1).covers(mg.FactorGraph([2] * 6, [some])):
        assert sorted(cover.variable.tolist()) == list(range(6))
        assert max(map(len, cover.lists())) == 2


def test_energies_of_thousands():
    for graph in (STRONG, mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], [4000.0, -3000.0])])):
        run = mg.sample(graph, mg.BlockGibbs(), sweeps=100, seed=1, progress=False)
        assert np.isfinite(run.energy).all()
        least = -mg.theory.Enumeration(graph).log_potential.max()
        assert (run.energy[:, -1] < least + 20).all()


def test_large_domains_go_alone():
    graph = mg.FactorGraph([3_000, 2_000, 2], [mg.Potts([0, 1, 0], [1, 2, 2], 1.0)])
    for cover in mg.BlockGibbs(width=2).covers(graph):
        assert all(not {0, 1} <= set(block) for block in cover.lists())
    run = mg.sample(graph, mg.BlockGibbs(width=2), sweeps=20, seed=1, progress=False)
    assert run.info.updates == 4 * 20 * 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mg.BlockGibbs(width=-1), "width must be an integer from 0 to 20, got -1"),
        (lambda: mg.BlockGibbs(width=1.5), "got 1.5"),
        (lambda: mg.BlockGibbs(width=True), "got True"),
        (lambda: mg.BlockGibbs(blocks=3), "blocks must be lists of variables"),
        (lambda: mg.BlockGibbs(blocks=["ab"]), "got 'ab'"),
        (lambda: mg.BlockGibbs(blocks=[0, 1]), "got 0"),
    ],
)
def test_meaningless_settings_are_refused(make, message):
    with pytest.raises(mg.SampleError, match=message):
        make()


def test_blocks_that_do_not_fit_are_refused():
    whole, lattice = mg.BlockGibbs(blocks=[[0], range(9)]), mg.models.ising_lattice(3, 0.2)
    with pytest.raises(mg.TooLargeError, match="block 1, of 9 variables, cannot be eliminated"):
        whole.prepare(lattice)
    with pytest.raises(mg.SampleError, match="block 0 holds a variable twice"):
        mg.BlockGibbs(blocks=[[1, 2, 1]]).prepare(ZOO["potts"])
    with pytest.raises(mg.GraphError, match="17"):
        mg.BlockGibbs(blocks=[[1, 17]]).prepare(ZOO["potts"])
    with pytest.raises(mg.SampleError, match="implicit"):
        mg.sample(IMPLICIT["kernel"], mg.BlockGibbs(), sweeps=1, progress=False)


def test_long_lists_of_blocks_are_not_spelled_out():
    sampler = mg.BlockGibbs(width=2, blocks=[[k] for k in range(500)])
    assert str(sampler) == "BlockGibbs(width=2, blocks=<500 blocks>)"
    assert str(mg.BlockGibbs(blocks=[[0, 1]])) == "BlockGibbs(blocks=((0, 1),))"
    assert hash(mg.BlockGibbs(blocks=[[0, 1]])) == hash(mg.BlockGibbs(blocks=((0, 1),)))
