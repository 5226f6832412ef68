"""Parameters: names, ties, fixed entries, changes without new packing, statistics."""

import itertools

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.kernels.energy import energies
from tests import naive

rng = np.random.default_rng(7)


def every_kind():
    """Return each kind with parameters, with each form of ties."""
    return [
        mg.Ising([0], [1], 0.3, name="c"),
        mg.Potts([0, 2, 1], [2, 3, 3], [0.0, 0.5], name="J", tied=[0, 1, 0], scale=[1, 2, 0.5]),
        mg.Table([[0, 2], [1, 3]], rng.normal(size=(2, 3)), weight=[1.0, -0.5], name="shared"),
        mg.Table([[0, 2], [1, 3]], rng.normal(size=(2, 2, 3)), name="tied", tied=[1, 0]),
        mg.Table([[2, 3]], rng.normal(size=(3, 3)), 0.2, name="w", learn="weight", scale=2.0),
        mg.Unary([2, 3], rng.normal(size=3), name="row"),
        mg.Unary([2, 3, 2], rng.normal(size=(2, 3)), name="rows", tied=[0, 1, 1]),
        mg.Unary([0], [0.0, 0.3]),
        mg.Logical("imply", [[0, 1]], 0.7, name="rule"),
        mg.Logical("or", [[0, 1]], 0.2, negated=[True, False], name="either"),
        mg.Logical("and", [[2, 3], [3, 2]], [0.1, 0.4], values=[[2, 1], [0, 0]], name="and"),
        mg.Logical("equal", [[2, 3]], -0.4, values=[1, 1], name="equal"),
    ]


def graph_of(factors, **options):
    return mg.FactorGraph([2, 2, 3, 3], factors, **options)


def states_of(graph):
    return np.array(list(itertools.product(*(range(size) for size in graph.sizes))))


def test_the_energy_is_that_of_the_definition():
    graph = graph_of(every_kind())
    for state in states_of(graph):
        assert graph.log_potential(state) == pytest.approx(
            naive.log_potential(graph, state.tolist())
        )


@pytest.mark.parametrize(
    "sampler", [mg.Gibbs(), mg.PoissonGibbs(), mg.BlockGibbs(), mg.Tempering()]
)
def test_samplers_take_literals_of_any_value(sampler):
    """A systematic difference of 0.03 would be 8 standard errors of the least certain value."""
    factors = [
        mg.Logical("and", [[0, 1, 2], [2, 3, 1]], [1.5, -1.0], values=[[1, 0, 2], [0, 2, 1]]),
        mg.Logical("equal", [[2, 3]], 1.2, values=[1, 2]),
    ]
    graph = graph_of(factors)
    run = mg.sample(graph, sampler, sweeps=10_000, seed=1, progress=False)
    assert np.abs(run.marginals - naive.marginals(graph)).max() < 0.03


def test_the_energy_is_linear_in_the_parameters():
    graph = graph_of(every_kind())
    states, frame = states_of(graph), graph.frame
    values, rows = frame.flat(graph.factors), frame.statistics(states)
    nothing = graph.with_flat(np.zeros_like(values)).log_potential(states)
    np.testing.assert_allclose(rows @ values + nothing, graph.log_potential(states), atol=1e-12)
    for number in range(len(values)):
        unit = np.eye(len(values))[number]
        grown = graph.with_flat(values + unit).log_potential(states) - graph.log_potential(states)
        np.testing.assert_allclose(grown, rows[:, number], atol=1e-12, err_msg=frame.where(number))


@pytest.mark.parametrize("evidence", [None, [1, -1, -1, -1], [1, 0, -1, 2], [0, 1, 2, 0]])
@pytest.mark.parametrize("chosen", ["all", "none", "some"])
def test_other_numbers_pack_as_if_packed_anew(evidence, chosen):
    graph = graph_of(every_kind(), evidence=evidence)
    values = graph.frame.flat(graph.factors)
    values = {"all": values, "none": 0 * values, "some": values * (np.arange(len(values)) % 2)}[
        chosen
    ]
    changed = graph.with_flat(values)
    anew = mg.FactorGraph(graph.domains, changed.factors, evidence=evidence)
    for name, one, other in zip(changed.packed._fields, changed.packed, anew.packed, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)
    assert changed.offset == pytest.approx(anew.offset, abs=1e-12)
    assert changed.stats == anew.stats


def test_a_moving_model_has_the_same_energy():
    graph = graph_of(every_kind())
    states, moving = states_of(graph).astype(graph.state_type), graph.frame.moving()
    for seed in range(3):
        values = np.random.default_rng(seed).normal(size=graph.frame.size)
        found = np.empty(len(states))
        energies(moving.set(values), states, found)
        offset = graph.frame.offset + graph.frame.constant @ values
        np.testing.assert_allclose(
            found + offset, graph.with_flat(values).log_potential(states), atol=1e-12
        )


def test_the_expectation_under_independence_is_that_of_the_product():
    graph = graph_of(every_kind())
    states, shares = states_of(graph), [rng.dirichlet(np.ones(size)) for size in graph.sizes]
    distribution = np.prod([share[states[:, v]] for v, share in enumerate(shares)], axis=0)
    expected = distribution @ graph.frame.statistics(states)
    found = graph.frame.independent(np.concatenate(shares))
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_sums_are_those_of_each_state_in_any_pieces():
    graph = graph_of(every_kind())
    states = np.tile(states_of(graph), (3000, 1)).astype(graph.state_type)  # enough for pieces
    weights = rng.random(len(states))
    calls = []

    def backwards(work, pieces):
        calls.append(pieces)
        for piece in reversed(range(pieces)):
            work(piece)

    whole = graph.frame.summed(states, weights)
    np.testing.assert_array_equal(graph.frame.summed(states, weights, backwards), whole)
    assert calls == [8]
    each = weights @ graph.frame.statistics(states)
    np.testing.assert_allclose(whole, each, rtol=1e-9)


def test_ranges_hold_every_statistic():
    graph = graph_of(every_kind())
    rows, (low, high) = graph.frame.statistics(states_of(graph)), graph.frame.ranges
    assert (rows >= low - 1e-12).all()
    assert (rows <= high + 1e-12).all()


def test_files_keep_parameters(tmp_path):
    graph = graph_of([*every_kind(), mg.Potts([0], [1], 0.5, name="f", fixed=True)])
    mg.write(graph, tmp_path / "model.mg")
    read = mg.read(tmp_path / "model.mg")
    assert repr(read) == repr(graph)
    assert "3 potts 'J'" in repr(read)
    for one, other in zip(graph.packed, read.packed, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(read.frame.fixed, graph.frame.fixed)
    assert read.frame.fixed.sum() == 1
    assert graph.describe()["parameters"]["J"] == 2


def test_groups_of_one_name_share_their_numbers():
    first = mg.Logical("and", [[0, 1]], 0.5, values=[0, 0], name="w", tied=0)
    second = mg.Logical("and", [[2, 3], [0, 2]], 0.5, values=[0, 1], name="w", tied=[0, 2])
    graph = graph_of([first, second])
    assert graph.parameters["w"].tolist() == [0.5] * 3
    assert graph.statistics([0, 0, 0, 1])["w"].tolist() == [2, 0, 0]
    assert graph.with_parameters({"w": [1.0, 7.0, 2.0]}).log_potential([0, 0, 1, 0]) == 3.0


def test_zeros_are_fixed():
    graph = mg.FactorGraph([2, 2], [mg.Table([0, 1], [[0.0, -np.inf], [0.0, 0.0]], name="t")])
    assert graph.frame.fixed.tolist() == [False, True, False, False]
    assert graph.with_parameters({"t": [[1.0, -np.inf], [0, 0]]}).log_potential([0, 1]) == -np.inf


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mg.Potts([0], [1], 1.0, tied=[0]), "give name= as well"),
        (lambda: mg.Potts([0], [1], 1.0, name=""), "must be text that is not empty"),
        (lambda: mg.Potts([0], [1], 1.0, name="J", tied=[0, 1]), "'J': tied must hold.*shape"),
        (lambda: mg.Potts([0], [1], 1.0, name="J", tied=[-1]), "got -1"),
        (lambda: mg.Potts([0], [1], [1.0, 2.0], name="J", tied=[0]), "expected 1 weights"),
        (lambda: mg.Potts([0], [1], 1.0, name="J", fixed=[True, False]), "fixed must be True"),
        (lambda: mg.Potts([0], [1], 1.0, name="J", scale=np.inf), "'J': scale must hold finite"),
        (lambda: mg.Unary([0], [[0, 1], [1, 0]], name="h", tied=[0]), "expected log-potentials of"),
        (lambda: mg.Table([0, 1], np.zeros((2, 2)), name="t", learn="both"), "learn must be"),
        (lambda: mg.Table([0, 1], np.zeros((2, 2)), name="t", scale=2.0), "scale is for"),
        (lambda: mg.Logical("or", [[0, 1]], 1.0, values=[1, 1]), 'values are for "and"'),
        (lambda: mg.Logical("and", [[0, 1]], 1.0, values=[-1, 1]), "got -1"),
        (
            lambda: mg.FactorGraph([2, 2], [mg.Logical("and", [[0, 1]], 1.0, values=[2, 1])]),
            "has values 0 to 1, got 2",
        ),
        (
            lambda: mg.FactorGraph([2, 2], [mg.Potts([0], [1], 1.0, name="J")]).with_parameters(
                {"j": 1.0}
            ),
            "unknown parameter 'j'",
        ),
        (
            lambda: mg.FactorGraph([2, 2], [mg.Potts([0], [1], 1.0, name="J")]).with_parameters(
                {"J": [1.0, 2.0]}
            ),
            "'J' must hold real numbers in shape",
        ),
        (
            lambda: (
                mg.FactorGraph(
                    [2, 2],
                    [mg.Potts([0], [1], 1.0, name="J"), mg.Ising([0], [1], 2.0, name="J")],
                ).parameters
            ),
            r"parameter 'J'\[0\]: groups of one name share",
        ),
    ],
)
def test_errors_name_the_parameter(make, message):
    with pytest.raises(mg.GraphError, match=message):
        make()


@pytest.mark.parametrize("kind", [mg.Ising, mg.Potts])
def test_weights_that_their_scale_makes_infinite_are_refused(kind):
    told = r"'J': a weight times its scale .* factor 1 has 1e\+30"
    with pytest.raises(mg.GraphError, match=told):
        mg.FactorGraph([2, 2, 2], [kind([0, 1], [1, 2], 1e30, name="J", scale=[1.0, 1e300])])
    graph = mg.FactorGraph([2, 2], [kind([0], [1], 1.0, name="J", scale=[1e300])])
    with pytest.raises(mg.GraphError, match=r"finite when they are scaled; got 1e\+30"):
        graph.with_parameters({"J": 1e30})
    assert np.isfinite(graph.with_parameters({"J": 1e7}).log_potential([1, 1]))
