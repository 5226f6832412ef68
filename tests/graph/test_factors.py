"""Each kind of factor against the same factor as a table, and arguments of users."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigibbs as mg
from tests import naive
from tests.fuzz.limits import limited_memory

quick = settings(max_examples=40, deadline=None, derandomize=True)
numbers = st.floats(-5, 5, allow_nan=False).map(lambda x: round(x, 3))


def all_states(sizes):
    return np.array(list(itertools.product(*map(range, sizes))))


def assert_same(sizes, left, right):
    """Check that two lists of groups give the same energies, spans and degrees."""
    a, b = mg.FactorGraph(sizes, left), mg.FactorGraph(sizes, right)
    # energies are sums of a few numbers below 10: rounding errors are below 1e-12
    np.testing.assert_allclose(
        a.log_potential(all_states(sizes)), b.log_potential(all_states(sizes)), atol=1e-12
    )
    np.testing.assert_allclose(a.local_energies, b.local_energies, atol=1e-12)
    assert a.stats.max_degree == b.stats.max_degree
    assert a.stats.factors == b.stats.factors
    assert a.stats.total_energy == pytest.approx(b.stats.total_energy, abs=1e-12)


@quick
@given(st.integers(1, 4), st.integers(1, 4), numbers)
def test_potts_is_a_diagonal_table(a, b, weight):
    table = mg.Table([0, 1], weight * np.eye(a, b))
    assert_same([a, b], [mg.Potts([0], [1], weight)], [table])


@quick
@given(numbers)
def test_ising_is_a_table_of_spins(coupling):
    table = mg.Table([0, 1], coupling * np.array([[1, -1], [-1, 1]]))
    assert_same([2, 2], [mg.Ising([0], [1], coupling)], [table])


@quick
@given(st.lists(numbers, min_size=1, max_size=5))
def test_unary_is_a_table_of_one_variable(energy):
    assert_same([len(energy), 2], [mg.Unary([0], [energy])], [mg.Table([[0]], [energy])])


@quick
@given(st.data())
def test_logical_is_a_truth_table(data):
    op = data.draw(st.sampled_from(["imply", "and", "or", "equal", "istrue"]))
    arity = 1 if op == "istrue" else data.draw(st.integers(1, 4))
    negated = data.draw(st.lists(st.booleans(), min_size=arity, max_size=arity))
    weight = data.draw(numbers)
    table = np.empty((2,) * arity)
    for x in itertools.product([0, 1], repeat=arity):
        literals = [value != flip for value, flip in zip(x, negated, strict=True)]
        holds = {
            "and": all(literals),
            "or": any(literals),
            "equal": len(set(literals)) == 1,
            "imply": literals[-1] or not all(literals[:-1]),
            "istrue": literals[0],
        }[op]
        table[x] = weight * holds
    scope = [list(range(arity))]
    rule = mg.Logical(op, scope, weight, negated=[negated])
    assert_same([2] * arity, [rule], [mg.Table(scope, table)])


@pytest.mark.parametrize("op", ["imply", "and", "or", "equal"])
def test_logical_of_a_thousand_literals(op):
    arity = 1000
    scope, negated = np.arange(arity)[None], np.zeros((1, arity), dtype=bool)
    negated[0, ::3] = True
    graph = mg.FactorGraph([2] * arity, [mg.Logical(op, scope, 1.5, negated=negated)])
    true = (~negated[0]).astype(int)
    states = [true, 1 - true, true.copy(), 1 - true, true.copy()]
    states[2][0] ^= 1  # one premise fails
    states[3][-1] ^= 1  # only the conclusion holds
    states[4][-1] ^= 1  # only the conclusion fails
    want = [naive.log_potential(graph, x) for x in states]
    assert graph.log_potential(states).tolist() == want
    assert graph.stats.local_energy == 1.5
    assert graph.stats.max_degree == 1


def test_logical_negated_may_be_one_row_for_all():
    scope = [[0, 1], [1, 2]]
    one = mg.Logical("and", scope, 1.0, negated=[True, False])
    both = mg.Logical("and", scope, 1.0, negated=[[True, False], [True, False]])
    assert_same([2, 2, 2], [one], [both])


def test_shared_table_is_the_table_repeated():
    rng = np.random.default_rng(0)
    table, weight = rng.normal(size=(2, 3)), np.array([1.0, -0.4, 0.0])
    scope = [[0, 1], [2, 3], [2, 1]]
    repeated = weight[:, None, None] * table
    assert_same([2, 3, 2, 3], [mg.Table(scope, table, weight=weight)], [mg.Table(scope, repeated)])


def test_weights_multiply_tables_of_their_own():
    rng = np.random.default_rng(1)
    tables, weight = rng.normal(size=(2, 2, 3)), np.array([-2.0, 0.5])
    scope = [[0, 1], [2, 1]]
    assert_same(
        [2, 3, 2],
        [mg.Table(scope, tables, weight=weight)],
        [mg.Table(scope, weight[:, None, None] * tables)],
    )


def test_one_weight_serves_all_factors():
    assert_same([2] * 3, [mg.Potts([0, 1], [1, 2], 0.5)], [mg.Potts([0, 1], [1, 2], [0.5, 0.5])])


def test_one_row_of_unary_energies_serves_all_variables():
    row = [0.0, 0.3, -1.0]
    assert_same([3, 3], [mg.Unary([0, 1], row)], [mg.Unary([0, 1], [row, row])])


@pytest.mark.parametrize(
    "group",
    [
        mg.Potts([], [], []),
        mg.Ising([], [], 1.0),
        mg.Unary([], []),
        mg.Table(np.empty((0, 2), dtype=int), np.zeros((2, 2))),
        mg.Logical("and", np.empty((0, 3), dtype=int), 1.0),
    ],
    ids=lambda group: group.kind,
)
def test_a_group_may_be_empty(group):
    assert_same([2, 2], [group], [])


def test_a_scope_of_no_rows_may_claim_any_number_of_columns():
    """A damaged file can claim any number: that must cost neither time nor memory."""
    with limited_memory():
        group = mg.Logical("and", np.empty((0, 10**9), np.int32), np.empty(0))
    assert len(group) == 0


def test_from_function_tabulates_the_grid_points():
    a, b = mg.Grid(-1.0, 1.0, 5), mg.Grid(0.0, 3.0, 4)
    table = mg.Table.from_function([0, 1], lambda x, y: x * y + np.sin(y), [a, b])
    want = [[x * y + np.sin(y) for y in b.values] for x in a.values]
    np.testing.assert_allclose(table.log_potential, want, atol=1e-15)
    assert mg.FactorGraph([a, b], [table]).log_potential([4, 3]) == pytest.approx(3.0 + np.sin(3.0))


def test_from_function_broadcasts_a_function_of_one_argument():
    grid = mg.Grid(0.0, 1.0, 3)
    table = mg.Table.from_function([[0, 1], [1, 2]], lambda x, y: x, [grid, grid], weight=[1, 2])
    assert table.log_potential.tolist() == [[0.0] * 3, [0.5] * 3, [1.0] * 3]
    assert len(table) == 2


def test_a_function_that_fails_is_named():
    grid = mg.Grid(0.0, 1.0, 3)
    with pytest.raises(mg.GraphError, match=r"table: the function failed .*ZeroDivision"):
        mg.Table.from_function([0, 1], lambda x, y: 1 / 0, [grid, grid])
    with pytest.raises(mg.GraphError, match=r"kernel: the function failed .*TypeError"):
        mg.Kernel((3, 3), len)


def test_from_function_raises_minus_infinity_to_the_floor():
    grid = mg.Grid(0.0, 1.0, 2)
    with np.errstate(divide="ignore"), pytest.warns(UserWarning, match="1 zero raised.*-30"):
        table = mg.Table.from_function([0], np.log, [grid], floor=-30.0)
    assert table.log_potential.tolist() == [-30.0, 0.0]


def test_from_probabilities_takes_logarithms():
    table = mg.Table.from_probabilities([0, 1], [[0.5, 2.0], [1.0, 4.0]], weight=[3.0])
    np.testing.assert_allclose(table.log_potential, np.log([[0.5, 2.0], [1.0, 4.0]]))
    assert table.weight.tolist() == [3.0]
    unary = mg.Unary.from_probabilities([0], [[0.25, 0.75]])
    np.testing.assert_allclose(unary.log_potential, np.log([[0.25, 0.75]]))


def test_floor_lifts_zeros_leaves_the_rest_and_warns():
    warns = pytest.warns(UserWarning, match="1 zero raised to .* another model")
    with warns:
        table = mg.Table.from_probabilities([0], [0.0, 0.5, 1.0], floor=1e-6)
    np.testing.assert_allclose(table.log_potential, np.log([1e-6, 0.5, 1.0]))
    with warns:
        unary = mg.Unary.from_probabilities([0], [[0.0, 1.0]], floor=1e-3)
    np.testing.assert_allclose(unary.log_potential, np.log([[1e-3, 1.0]]))
    with warns:
        assert mg.Unary([0], [[-np.inf, 1.0]], floor=-9.0).log_potential.tolist() == [[-9.0, 1.0]]
    with warns:
        assert mg.Table([0], [-np.inf, 1.0], floor=-9.0).log_potential.tolist() == [-9.0, 1.0]
    assert mg.Table([0], [-50.0, 1.0], floor=-9.0).log_potential.tolist() == [-9.0, 1.0]  # no zero


def groups_and_inputs():
    """Return each kind with the arrays that it was given."""
    i, j, w = np.array([0, 1], np.int32), np.array([1, 2], np.int32), np.array([0.5, 0.7])
    scope, unary = np.array([[0, 1], [1, 2]], np.int32), np.array([[0.1, 0.2], [0.3, 0.4]])
    table, negated = np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([[True, False]] * 2)
    return {
        "potts": (mg.Potts(i, j, w), [i, j, w]),
        "ising": (mg.Ising(i, j, w), [i, j, w]),
        "unary": (mg.Unary(i, unary), [i, unary]),
        "table": (mg.Table(scope, table, weight=w), [scope, table, w]),
        "logical": (mg.Logical("or", scope, w, negated=negated), [scope, w, negated]),
    }


@pytest.mark.parametrize("kind", groups_and_inputs())
def test_a_group_keeps_read_only_copies(kind):
    group, inputs = groups_and_inputs()[kind]
    graph = mg.FactorGraph([2, 2, 2], [group])
    states = all_states([2, 2, 2])
    kept = {name: np.array(value) for name, value in group.arrays().items()}
    for array in inputs:
        array[:] = False if array.dtype == bool else 1
    for name, value in group.arrays().items():
        if isinstance(value, str):
            continue
        np.testing.assert_array_equal(value, kept[name])
        with pytest.raises(ValueError, match="read-only"):
            value[:] = 0
    want = [naive.log_potential(graph, x) for x in states.tolist()]
    np.testing.assert_allclose(graph.log_potential(states), want, atol=1e-12)


def test_repr_counts_factors():
    assert repr(mg.Potts([0, 1], [1, 2], 1.0)) == "<Potts: 2 factors of arity 2>"


def test_from_function_takes_domain_sizes():
    table = mg.Table.from_function([0, 1, 2], lambda a, b, c: a * b - c, [3, mg.Grid(0, 1, 2), 2])
    assert table.log_potential.shape == (3, 2, 2)
    assert table.log_potential[2, 1, 1] == 1.0
    assert table.log_potential[2, 0, 1] == -1.0


@pytest.mark.parametrize("grids", [3, [3, 0], [3, 2.5], [3, True], [3, "x"], None])
def test_from_function_says_what_grids_are(grids):
    with pytest.raises(
        mg.GraphError,
        match=r"grids must (hold|be a list of) .*Grid",
    ):
        mg.Table.from_function([0, 1], lambda a, b: a + b, grids)
