"""The model: energies, the paper's constants, evidence, names and labels."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigibbs as mg
from minigibbs.graph.rounding import rounding_warning
from tests import naive
from tests.zoo import ZOO

WEIGHTS = [-1.5, -0.5, 0.0, 0.7, 2.0]
quick = settings(max_examples=80, deadline=None, derandomize=True)


def _group(draw, sizes):
    """Draw one or two factors of a random kind that fits the domains."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    two_valued = [v for v, size in enumerate(sizes) if size == 2]
    kinds = ["unary", "potts", "table", "shared"] + ["logical", "ising"] * (len(two_valued) > 1)
    kind = draw(st.sampled_from(kinds))
    order = draw(st.permutations(two_valued if kind in ("logical", "ising") else range(len(sizes))))
    scope = list(order[: draw(st.integers(1, min(3, len(order))))])
    shape = tuple(sizes[v] for v in scope)
    weight = rng.choice(WEIGHTS, 2)
    if kind == "unary":
        return mg.Unary([order[0]], [rng.choice(WEIGHTS, sizes[order[0]])])
    if kind == "table":
        return mg.Table([scope], rng.choice(WEIGHTS, (1, *shape)), weight=weight[:1])
    if kind == "shared":
        return mg.Table([scope, scope], rng.choice(WEIGHTS, shape), weight=weight)
    if kind == "logical":
        op = draw(st.sampled_from(["imply", "and", "or", "equal"]))
        return mg.Logical(op, [scope], weight[:1], negated=rng.random((1, len(scope))) < 0.5)
    make = mg.Potts if kind == "potts" else mg.Ising
    return make(order[:1], order[1:2], weight[:1])


@st.composite
def graphs(draw, clamp=True):
    """Draw small graphs with any kinds of factors, mixed domains, and possibly evidence."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=5))
    groups = [_group(draw, sizes) for _ in range(draw(st.integers(0, 6)))]
    graph = mg.FactorGraph(sizes, groups)
    if not clamp:
        return graph
    clamped = draw(st.sets(st.integers(0, len(sizes) - 1)))
    return graph.condition({v: draw(st.integers(0, sizes[v] - 1)) for v in sorted(clamped)})


def named():
    return mg.FactorGraph(
        [2, 3, 2],
        [mg.Potts([0, 1], [1, 2], [1.0, 0.5])],
        names=["rain", "sky", "wet"],
        labels={"rain": ["no", "yes"], 1: ["blue", "gray", "black"]},
    )


@quick
@given(graphs(clamp=False), st.integers(0, 10**6))
def test_energy_is_the_sum_of_the_factors(graph, seed):
    states = naive.states(graph)
    chosen = np.random.default_rng(seed).integers(0, len(states), 8)
    some = [states[k] for k in chosen]
    want = [naive.log_potential(graph, x) for x in some]
    # at most 12 factors of at most 4 each: rounding errors are below 1e-12
    np.testing.assert_allclose(graph.log_potential(some), want, atol=1e-12)
    assert graph.log_potential(some[0]) == pytest.approx(want[0], abs=1e-12)


def test_energy_of_one_state_is_a_float_and_of_many_an_array():
    graph = ZOO["mixed"]
    one, many = graph.log_potential([0] * 6), graph.log_potential([[0] * 6])
    assert isinstance(one, float)
    assert many.shape == (1,)
    assert many[0] == one
    assert graph.log_potential(np.empty((0, 6), dtype=int)).shape == (0,)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.int32])
def test_energy_takes_any_integers_in_any_order(dtype, order):
    graph = ZOO["mixed"]
    states = np.array(naive.states(graph)[:7], dtype=dtype, order=order)
    want = [naive.log_potential(graph, x) for x in states.tolist()]
    np.testing.assert_allclose(graph.log_potential(states), want, atol=1e-12)


def test_energy_does_not_depend_on_evidence():
    graph = ZOO["evidence"]
    free = mg.FactorGraph(graph.sizes, graph.factors)
    x = [1, 0, 2, 0, 0, 1]  # contradicts the evidence, but has an energy
    assert graph.log_potential(x) == pytest.approx(free.log_potential(x), abs=1e-12)


def assert_stats(graph):
    spans = naive.spans(graph)
    at = [[m for free, _, m in spans if v in free] for v in range(len(graph))]
    stats = graph.stats
    assert stats.variables == np.count_nonzero(graph.evidence < 0)
    assert stats.factors == len(spans)
    assert stats.max_degree == max(map(len, at))
    assert stats.max_domain == graph.sizes.max()
    np.testing.assert_allclose(graph.local_energies, [sum(row) for row in at], atol=1e-12)
    assert stats.local_energy == pytest.approx(max(sum(row) for row in at), abs=1e-12)
    assert stats.total_energy == pytest.approx(sum(m for _, _, m in spans), abs=1e-12)


@quick
@given(graphs())
def test_stats_are_the_papers(graph):
    assert_stats(graph)


@pytest.mark.parametrize("model", ZOO)
def test_stats_of_the_zoo(model):
    assert_stats(ZOO[model])


def test_stats_of_a_graph_without_factors():
    stats = mg.FactorGraph([2, 7], []).stats
    assert (stats.variables, stats.factors, stats.max_degree) == (2, 0, 0)
    assert (stats.local_energy, stats.total_energy, stats.max_domain) == (0.0, 0.0, 7)


def test_evidence_that_can_never_agree_leaves_no_factor():
    graph = mg.FactorGraph([2, 4], [mg.Potts([0], [1], 1.0)])
    assert graph.condition({1: 3}).stats.factors == 0
    assert graph.condition({1: 1}).stats.factors == 1
    assert graph.condition({1: 1}).stats.variables == 1


@pytest.mark.parametrize(
    "evidence",
    [{0: 1}, {"rain": 1}, {0: "yes"}, {"rain": "yes"}, {np.int64(0): np.int8(1)}],
)
def test_condition_by_number_or_name_and_value_or_label(evidence):
    assert named().condition(evidence).evidence.tolist() == [1, -1, -1]


def test_condition_by_grid_point():
    grid = mg.Grid(-1.0, 1.0, 21)
    graph = mg.FactorGraph([grid, 2], [])
    for number, point in enumerate(grid.values):
        assert graph.condition({0: point}).evidence.tolist() == [number, -1]
        assert graph.condition({0: number}).evidence.tolist() == [number, -1]
    assert graph.condition({0: -0.3}).evidence[0] == 7  # as typed, not as rounded by linspace


@pytest.mark.parametrize("value", [0.5e-13, 2e-13, -1e-13])
def test_a_point_between_or_beyond_the_grids_is_refused_at_any_scale(value):
    graph = mg.FactorGraph([mg.Grid(0.0, 1e-13, 2)], [])
    with pytest.raises(mg.GraphError, match="variable 0"):
        graph.condition({0: value})


def test_condition_twice_adds_up_and_may_repeat_itself():
    graph = named().condition({"rain": 0}).condition({"sky": "gray", "rain": "no"})
    assert graph.evidence.tolist() == [0, 1, -1]
    assert graph.stats.variables == 1


def test_condition_leaves_the_graph_as_it_was():
    graph = named()
    graph.condition({"rain": 1})
    assert graph.evidence.tolist() == [-1, -1, -1]


@pytest.mark.parametrize("first", [{"rain": 0}, {0: "no"}])
def test_conflicting_evidence_is_refused(first):
    with pytest.raises(
        mg.GraphError, match=r"variable 0 \('rain'\) is clamped to 0 already; got 1"
    ):
        named().condition(first).condition({"rain": "yes"})
    with pytest.raises(mg.GraphError, match="already"):
        named().condition({0: 0, "rain": 1})


@pytest.mark.parametrize("name", ["factors", "evidence", "domains", "sizes", "fresh"])
def test_a_graph_is_frozen(name):
    graph = named()
    with pytest.raises(AttributeError, match="frozen"):
        setattr(graph, name, None)


def test_a_graphs_parts_cannot_be_deleted():
    graph = named()
    with pytest.raises(AttributeError):
        del graph.evidence
    assert graph.evidence.tolist() == [-1, -1, -1]


def test_a_graphs_arrays_are_read_only_copies():
    sizes = np.array([2, 3])
    graph = mg.FactorGraph(sizes, [])
    sizes[0] = 9
    assert graph.sizes.tolist() == [2, 3]
    for array in (graph.sizes, graph.evidence):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_graphs_factors_cannot_be_exchanged():
    graph = named()
    before = graph.log_potential([0, 0, 0])
    with pytest.raises(AttributeError):
        graph.factors[0].weight = np.array([9.0, 9.0])
    assert mg.FactorGraph(graph.sizes, graph.factors).log_potential([0, 0, 0]) == before


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        (["no", "yes"], [("no", "yes"), ("no", "yes")]),
        ([["a", "b"], ["c", "d"]], [("a", "b"), ("c", "d")]),
        ([["a", "b"], None], [("a", "b"), (0, 1)]),
        ({1: ["c", "d"]}, [(0, 1), ("c", "d")]),
        ({"v": ["c", "d"]}, [(0, 1), ("c", "d")]),
        (np.array(["no", "yes"]), [("no", "yes"), ("no", "yes")]),
        ([10, 20], [(10, 20), (10, 20)]),
        ([0.5, 1.5], [(0.5, 1.5), (0.5, 1.5)]),
        (None, [(0, 1), (0, 1)]),
    ],
)
def test_labels_in_each_form(labels, want):
    graph = mg.FactorGraph([2, 2], [], names=["u", "v"], labels=labels)
    assert [graph.domains.values(v) for v in range(2)] == want
    for value, label in enumerate(want[1]):
        assert graph.condition({"v": label}).evidence.tolist() == [-1, value]


def test_state_type_is_the_smallest_that_fits():
    for size, dtype in [(1, np.uint8), (256, np.uint8), (257, np.uint16), (65_537, np.uint32)]:
        assert mg.FactorGraph([2, size], []).state_type == dtype


def test_grid_points_include_both_ends():
    assert mg.Grid(-2, 2, 5).values.tolist() == [-2.0, -1.0, 0.0, 1.0, 2.0]


def test_marginals_come_back_with_grid_points_and_labels():
    grid = mg.Grid(-1.0, 1.0, 3)
    graph = mg.FactorGraph(
        [grid, 2],
        [mg.Table.from_function([0], lambda a: 60 * a, [grid]), mg.Unary([1], [50.0, 0.0])],
        names=["height", "wet"],
        labels={"wet": ["no", "yes"]},
    )
    run = mg.sample(graph, updates=20, start=[2, 0], seed=0, progress=False)
    assert run.marginal("height").values == (-1.0, 0.0, 1.0)
    assert run.marginal(0).probability.tolist() == [0.0, 0.0, 1.0]
    assert run.marginal("wet").values == ("no", "yes")
    assert run.marginal("wet").probability.tolist() == [1.0, 0.0]


def test_repr_says_what_is_in_it():
    assert repr(named().condition({0: 0})) == (
        "<FactorGraph: 3 variables, 1 clamped; factors: 2 potts>"
    )
    assert len(named()) == 3
    assert named().names == ("rain", "sky", "wet")


def test_one_group_needs_no_list():
    assert mg.FactorGraph([2, 2], mg.Potts([0], [1], 1.0)).stats.factors == 1


def test_domains_serve_several_graphs():
    domains = mg.Domains([2, 3], names=["a", "b"])
    first = mg.FactorGraph(domains, [mg.Potts(["a"], ["b"], 1.0)])
    second = mg.FactorGraph(domains, [mg.Unary(["b"], [0.0, 1.0, 2.0])])
    assert first.domains is second.domains is domains
    assert (first.log_potential([1, 1]), second.log_potential([1, 1])) == (1.0, 1.0)


@pytest.mark.parametrize("given", [{"names": ["u", "v"]}, {"labels": ["no", "yes"]}])
def test_domains_have_names_and_labels_of_their_own(given):
    with pytest.raises(mg.GraphError, match="those of the Domains"):
        mg.FactorGraph(mg.Domains([2, 2]), [], **given)


@pytest.mark.parametrize("given", [np.zeros(2), [0, 1], None, "rain"])
def test_evidence_is_a_mapping(given):
    graph = mg.FactorGraph([2, 2], [])
    with pytest.raises(mg.GraphError, match=r"mapping .* got ") as error:
        graph.condition(given)
    if given is not None and not isinstance(given, str):
        assert "dict(enumerate(values))" in str(error.value)
    assert graph.condition(dict(enumerate([0, 1]))).evidence.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("factors", "warned"),
    [
        ([mg.Ising([0], [1], 1e16)], False),  # nothing is added to it
        ([mg.Ising([0], [1], 1e16), mg.Unary([0], [[0.0, 0.3]])], True),
        ([mg.Ising([0], [1], 1e12), mg.Unary([0], [[0.0, 0.3]])], False),
        ([mg.Potts([0, 0, 0], [1, 1, 1], [1e14, 0.3, -1e14])], True),
        ([mg.Unary([0, 1], [[1e16, 1e16 + 2], [0.0, 0.3]])], True),
        ([mg.Unary([0, 1], [[-np.inf, -1e16], [0.0, 0.3]])], True),
        ([mg.Unary([0, 1], [[-np.inf, 1.0], [0.0, 0.3]])], False),
        ([mg.Complete(2, 1e16), mg.Unary([0], [[0.0, 0.3]])], True),
        ([mg.Ising([0, 0], [1, 1], 1e-300)], False),
    ],
)
def test_rounding_errors_of_large_weights(factors, warned):
    graph = mg.FactorGraph([2, 2], factors)
    assert (rounding_warning(graph.rounding_error) is not None) == warned
    assert graph.describe()["rounding_error"] == graph.rounding_error


def test_infinite_weights_are_refused_with_a_size_to_use():
    with pytest.raises(mg.GraphError, match=r"use a finite weight such as 50 \(a probability of"):
        mg.Ising([0], [1], math.inf)
