"""Vectorized chains have correct layouts and the model's distribution, on any threads."""

import numpy as np
import pytest
from scipy.stats import chisquare

import minigibbs as mg
from minigibbs.graph.data import read_data
from minigibbs.learning.chains import RowChains, Threads
from minigibbs.learning.lockstep import LearnedLayout, LockstepChains, LockstepRows
from minigibbs.learning.placing import model_chains, row_chains
from minigibbs.samplers.chromatic.small import small_colors
from minigibbs.samplers.chromatic.spins import spin_colors
from minigibbs.samplers.registry import learned_layout
from tests.learning.models import mixed

rng = np.random.default_rng(2)


def spins():
    """Return spins with ties, scales and signs; a pair and fields are not learned."""
    return mg.FactorGraph(
        [2] * 5,
        [
            mg.Ising(
                [0, 1, 2, 0],
                [1, 2, 3, 4],
                [0.3, -0.5],
                name="J",
                tied=[0, 1, 0, 1],
                scale=[1, 2, 1, 0.5],
            ),
            mg.Potts([3], [4], 0.4),
            mg.Potts([1], [3], 0.4, name="p"),
            mg.Unary(range(5), rng.normal(size=(5, 2)), name="h"),
        ],
    )


def small():
    """Return templates with weights, tables of two sizes and pairs; one table is not learned."""
    return mg.FactorGraph(
        [2, 3, 3, 4],
        [
            mg.Potts([0, 1], [1, 2], [0.5, 0.9], name="J"),
            mg.Table([[0, 1], [0, 2]], rng.normal(size=(2, 3)), weight=[1.0, -0.5], name="T"),
            mg.Table([[1, 2], [2, 1]], rng.normal(size=(2, 3, 3)), name="U"),
            mg.Table([[0, 3]], rng.normal(size=(2, 4))),
            mg.Unary([3], rng.normal(size=4), name="h"),
        ],
    )


GRAPHS = {"spins": spins, "small": small}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_layout_follows_the_parameters(name):
    graph = GRAPHS[name]()
    assert learned_layout(graph) is not None
    layout = LearnedLayout(graph)
    assert layout.spins == (name == "spins")
    for seed in range(3):
        values = np.random.default_rng(seed).normal(size=graph.frame.size)
        found = layout.at(values)
        anew = (spin_colors if layout.spins else small_colors)(graph.with_flat(values))
        for field, one, other in zip(found._fields, found, anew, strict=True):
            if np.asarray(one).dtype.kind == "f":
                np.testing.assert_allclose(one, other, atol=3e-6, err_msg=field)
            else:
                np.testing.assert_array_equal(one, other, err_msg=field)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("wrong", [0.0, 0.25])
def test_lockstep_chains_have_the_models_distribution(name, wrong):
    """Test 8,000 chains after 40 sweeps by chi-square at 1e-4: false in one of 10,000 seeds.

    Negative control: weights that are a quarter too large are detected.
    """
    graph = GRAPHS[name]()
    values = graph.frame.flat(graph.factors)
    chains = model_chains(graph, None, 8000, 3, Threads(2))
    assert isinstance(chains, LockstepChains)
    values *= 1 + wrong
    chains.set_weights(values)
    chains.sweep(20)
    chains.set_weights(values)
    chains.sweep(20)
    states, distribution = mg.exact_distribution(graph)
    strides = np.cumprod([1, *graph.sizes[::-1][:-1]])[::-1]
    counts = np.bincount(chains.states().astype(int) @ strides, minlength=len(states))
    assert (chisquare(counts, 8000 * distribution).pvalue > 1e-4) == (wrong == 0.0)


@pytest.mark.parametrize("count", [16, 65, 130])
def test_draws_do_not_depend_on_threads_or_pieces(count):
    graph = small()
    values = graph.frame.flat(graph.factors)
    found = []
    for threads, pieces in ((1, (6,)), (3, (1, 2, 3))):
        chains = model_chains(graph, None, count, 5, Threads(threads))
        for sweeps in pieces:
            chains.set_weights(values)
            chains.sweep(sweeps)
        found.append(chains.states().copy())
    np.testing.assert_array_equal(*found)
    assert (found[0][0] != found[0][1:]).any()


def test_what_does_not_fit_goes_row_by_row():
    wide = mg.FactorGraph([17, 2], [mg.Potts([0], [1], 0.1, name="J")])
    weighed = mg.FactorGraph([2, 2], [mg.Table([0, 1], np.eye(2), 0.1, name="w", learn="weight")])
    clamped = spins().condition({0: 1})
    for graph in (mixed(), wide, weighed, clamped):
        assert learned_layout(graph) is None
        assert isinstance(model_chains(graph, None, 20, 1, Threads(1)), RowChains)
    assert isinstance(model_chains(spins(), None, 4, 1, Threads(1)), RowChains)


def machine(seen=4, hidden=2):
    """Return a graph in which every visible variable is coupled to every hidden one."""
    a, b = np.meshgrid(np.arange(seen), seen + np.arange(hidden), indexing="ij")
    draws = np.random.default_rng(7)
    weight, field = draws.normal(0, 0.8, a.size), draws.normal(0, 0.5, (seen + hidden, 2))
    factors = [
        mg.Ising(a.ravel(), b.ravel(), weight, name="W"),
        mg.Unary(range(seen + hidden), field, name="b"),
    ]
    return mg.FactorGraph([2] * (seen + hidden), factors)


@pytest.mark.parametrize("wrong", [0.0, 0.25])
def test_hidden_variables_are_drawn_given_what_was_seen(wrong):
    """One sweep is exact: chi-square of 8,000 rows at 1e-4, false in one of 10,000 seeds.

    Negative control: weights that are a quarter too large are detected.
    """
    graph, row = machine(), [1, 0, 0, 1]
    data = read_data(graph, np.tile(row, (8000, 1)), range(4))
    chains = row_chains(graph, data, 3, Threads(2))
    assert isinstance(chains, LockstepRows)
    chains.set_weights((1 + wrong) * graph.frame.flat(graph.factors))
    chains.sweep(5)
    assert chains.swept == 1
    assert (chains.states()[:, :4] == row).all()
    given = graph.condition(dict(enumerate(row)))
    states, distribution = mg.exact_distribution(given)
    counts = np.bincount(chains.states()[:, 4] * 2 + chains.states()[:, 5], minlength=4)
    distribution = np.bincount(states[:, 4] * 2 + states[:, 5], distribution, minlength=4)
    assert (chisquare(counts, 8000 * distribution).pvalue > 1e-4) == (wrong == 0.0)


def test_some_rows_are_drawn_and_others_stay():
    graph = machine()
    rows = np.random.default_rng(0).integers(0, 2, (150, 4))
    data, found = read_data(graph, rows, range(4)), []
    for threads in (1, 3):
        model = model_chains(graph, None, 20, 1, Threads(threads))
        chains = row_chains(graph, data, 3, Threads(threads))
        model.set_weights(graph.frame.flat(graph.factors))
        assert chains.share(model)
        before = chains.states().copy()
        chosen = np.arange(3, 140, 2)
        chains.sweep(1, chosen)
        others = np.setdiff1d(np.arange(150), chosen)
        np.testing.assert_array_equal(chains.states()[others], before[others])
        assert (chains.states()[chosen] != before[chosen]).any()
        np.testing.assert_array_equal(chains.states()[:, :4], rows)
        found.append(chains.states().copy())
    np.testing.assert_array_equal(*found)


def test_rows_that_differ_in_what_they_leave_open_go_one_by_one():
    graph = machine()
    rows = np.zeros((30, 6), dtype=int)
    rows[:, 4] = -1  # half a color
    assert isinstance(row_chains(graph, read_data(graph, rows), 1, Threads(1)), RowChains)
    rows[:, 5] = -1
    assert isinstance(row_chains(graph, read_data(graph, rows), 1, Threads(1)), LockstepRows)
    rows[3, 0] = -1
    assert isinstance(row_chains(graph, read_data(graph, rows), 1, Threads(1)), RowChains)


def test_hidden_variables_whose_coupling_begins_at_0_are_all_drawn():
    """A parameter of 0 couples two variables when it changes, so they must have two colors."""
    pairs = mg.Ising([0, 0, 1], [1, 2, 2], [0.5, 0.5, 0.0], name="J")
    graph = mg.FactorGraph([2] * 3, [pairs])
    assert graph.colors.count == 2
    assert graph.with_every_parameter().colors.count == 3
    chains = row_chains(graph, read_data(graph, np.zeros((200, 1), int), [0]), 3, Threads(1))
    assert isinstance(chains, LockstepRows)
    before = chains.states().copy()
    chains.set_weights(np.array([0.5, 0.5, 2.0]))
    chains.sweep(4)
    assert chains.swept == 4
    assert (chains.states() != before).any(axis=0).tolist() == [False, True, True]


def test_a_layout_has_factors_whose_parameter_is_0():
    graph = small()
    zero = graph.with_flat(np.zeros(graph.frame.size))
    values = np.random.default_rng(1).normal(size=graph.frame.size)
    expected = small_colors(graph.with_flat(values))
    found = LearnedLayout(zero).at(values)
    np.testing.assert_array_equal(found.target, expected.target)
    for name in ("base", "weight", "table"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=3e-6)


def test_a_machine_learns_on_any_number_of_threads():
    graph = machine()
    rows = mg.exact_draws(graph, 400, seed=1)[:, :4]
    options = {"columns": range(4), "chains": 100, "steps": 12, "sweeps": 3, "l2": 0.01}
    fits = [mg.learn(graph, rows, seed=1, progress=False, threads=n, **options) for n in (1, 2, 5)]
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.parameters["W"], fits[0].parameters["W"])
        np.testing.assert_array_equal(fit.deviations, fits[0].deviations)


def backwards(work, count):
    """Call the work for all pieces, the last one first."""
    for piece in reversed(range(count)):
        work(piece)


def test_rows_that_are_chosen_twice_do_not_depend_on_who_is_first():
    graph = machine()
    data = read_data(graph, np.random.default_rng(0).integers(0, 2, (150, 4)), range(4))
    chosen, found = np.concatenate([np.arange(100), np.arange(100)]), []
    for threads in (Threads(1), backwards):
        chains = row_chains(graph, data, 3, threads)
        chains.set_weights(graph.frame.flat(graph.factors))
        chains.sweep(1, chosen)
        found.append(chains.states().copy())
    np.testing.assert_array_equal(*found)
