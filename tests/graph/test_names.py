"""Variables by name in factors: the same graph as with numbers, errors for unknown names."""

import numpy as np
import pytest

import minigibbs as mg

NAMES = ["rain", "sprinkler", "wet"]
GROUPS = {
    "unary": lambda v: mg.Unary([v[2], v[0]], [[0.0, 0.5], [0.3, -0.2]]),
    "unary-probabilities": lambda v: mg.Unary.from_probabilities([v[1]], [0.25, 0.75]),
    "potts": lambda v: mg.Potts([v[0], v[1]], [v[1], v[2]], [0.7, -0.4]),
    "ising": lambda v: mg.Ising([v[0], v[2]], [v[2], v[1]], [0.7, -0.4]),
    "table": lambda v: mg.Table([[v[0], v[2]], [v[2], v[1]]], [[0.1, 0.2], [0.3, 0.9]]),
    "table-one-row": lambda v: mg.Table([v[2], v[0]], [[0.1, 0.2], [0.3, 0.9]]),
    "table-probabilities": lambda v: mg.Table.from_probabilities([v[0]], [0.25, 0.75]),
    "table-function": lambda v: mg.Table.from_function(
        [v[1], v[2]], lambda a, b: a * b, [mg.Grid(0.0, 1.0, 2)] * 2
    ),
    "logical": lambda v: mg.Logical("imply", [[v[1], v[0], v[2]]], 1.5),
}
FORMS = {
    "names": NAMES,
    "numpy text": [np.str_(name) for name in NAMES],
    "names and numbers": ["rain", 1, "wet"],
    "numbers and names": [np.int64(0), "sprinkler", np.uint8(2)],
}


def graph_of(*groups, sizes=(2, 2, 2), names=NAMES):
    return mg.FactorGraph(list(sizes), list(groups), names=names)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", GROUPS)
def test_names_give_the_graph_that_numbers_give(kind, form):
    named, numbered = graph_of(GROUPS[kind](FORMS[form])), graph_of(GROUPS[kind]([0, 1, 2]))
    ours, want = named.factors[0].arrays(), numbered.factors[0].arrays()
    assert named.factors[0].scope.dtype == np.int32
    assert not named.factors[0].scope.flags.writeable
    for name, value in want.items():
        np.testing.assert_array_equal(ours[name], value)
    assert repr(named) == repr(numbered)
    states = np.array(np.unravel_index(np.arange(8), (2, 2, 2))).T
    np.testing.assert_array_equal(named.log_potential(states), numbered.log_potential(states))


@pytest.mark.parametrize(
    "column",
    [
        np.array(["wet", "rain"]),
        np.array(["wet", "rain"], dtype=object),
        np.array(["wet", 0], dtype=object),
        ("wet", "rain"),
        ["wet", 0],
    ],
)
def test_columns_in_each_form(column):
    graph = graph_of(mg.Ising(column, ["sprinkler", 1], 1.0))
    assert graph.factors[0].scope.tolist() == [[2, 1], [0, 1]]


def test_an_array_of_text_holds_names_alone():
    names = ["0", "1", "rain"]
    graph = graph_of(mg.Ising(np.array(["rain"]), np.array(["0"]), 1.0), names=names)
    assert graph.factors[0].scope.tolist() == [[2, 0]]
    assert graph_of(mg.Ising(["0"], [1], 1.0), names=["a", "b", "0"]).factors[0].scope.tolist() == [
        [2, 1]
    ]


def test_one_name_needs_no_list():
    graph = graph_of(mg.Ising("rain", "wet", 1.0), mg.Unary("wet", [0.0, 0.5]))
    assert [group.scope.tolist() for group in graph.factors] == [[[0, 2]], [[2]]]


def test_numbers_in_an_array_of_objects_need_no_names():
    group = mg.Ising(np.array([0, 1], dtype=object), [1, 2], 1.0)
    assert group.scope.tolist() == [[0, 1], [1, 2]]


def test_a_group_serves_several_graphs():
    group = mg.Ising(["a"], ["b"], 1.0)
    first = mg.FactorGraph([2, 2, 2], [group], names=["a", "b", "c"])
    second = mg.FactorGraph([2, 2, 2], [group], names=["c", "b", "a"])
    assert first.factors[0].scope.tolist() == [[0, 1]]
    assert second.factors[0].scope.tolist() == [[2, 1]]
    assert group.arrays()["i"].tolist() == ["a"]
    assert group.arrays()["coupling"] is first.factors[0].coupling
    assert repr(group) == "<Ising: 1 factors of arity 2>"


def test_a_numbered_group_is_held_as_it_is():
    group = mg.Ising([0], [1], 1.0)
    assert graph_of(group).factors[0] is group


def test_names_last_through_evidence_and_files(tmp_path):
    graph = graph_of(mg.Ising(["rain"], ["wet"], 1.0)).condition({"wet": 1})
    mg.write(graph, tmp_path / "named.mg")
    again = mg.read(tmp_path / "named.mg")
    assert again.factors[0].scope.tolist() == [[0, 2]]
    assert again.evidence.tolist() == [-1, -1, 1]


def test_an_unresolved_group_says_where_its_numbers_are():
    with pytest.raises(mg.GraphError, match=r"by name.*graph\.factors\[\.\.\.\]\.scope"):
        _ = mg.Potts(["a"], ["b"], 1.0).scope


ERRORS = {
    "unknown name": (
        lambda: graph_of(mg.Unary([0], [0.0, 1.0]), mg.Ising(NAMES[:2], ["wet", "sprinler"], 1.0)),
        [
            "ising factor 1 of group 1 (variables 'sprinkler', 'sprinler')",
            "position 1",
            "unknown variable 'sprinler'",
            "close names: 'sprinkler'",
        ],
    ),
    "unknown name like no other": (
        lambda: graph_of(mg.Table([["zzz", "rain"]], np.eye(2))),
        ["table factor 0 of group 0", "position 0", "unknown variable 'zzz': no such name"],
    ),
    "a graph without names": (
        lambda: graph_of(mg.Logical("and", [[0, "x1"]], 1.0), names=None),
        ["logical factor 0 of group 0 (variables 0, 'x1')", "no names", "names=[...]"],
    ),
    "a name twice": (
        lambda: graph_of(mg.Ising(["rain", "wet"], ["wet", "wet"], 1.0)),
        ["ising factor 1 of group 0 (variables 'wet', 'wet')", "differ"],
    ),
    "a name and its number": (
        lambda: graph_of(mg.Table([["rain", 1, 0]], np.zeros((2, 2, 2)))),
        ["table factor 0 of group 0 (variables 'rain', 1, 0)", "differ"],
    ),
    "a number too large beside a name": (
        lambda: graph_of(mg.Ising(["rain"], [3], 1.0)),
        ["ising factor 0 of group 0", "0 to 2", "got 3"],
    ),
    "a negative number beside a name": (
        lambda: mg.Ising(["rain", -1], ["wet", "wet"], 1.0),
        ["ising factor 1", "non-negative", "got -1"],
    ),
    "a fraction beside a name": (
        lambda: mg.Ising(["rain", 0.5], ["wet", "wet"], 1.0),
        ["ising factor 1", "name or a non-negative number", "got 0.5"],
    ),
    "a boolean beside a name": (
        lambda: mg.Ising(["rain", True], ["wet", "wet"], 1.0),
        ["ising factor 1", "got True"],
    ),
    "nothing beside a name": (
        lambda: mg.Unary(["rain", None], [0.0, 1.0]),
        ["unary factor 1", "got None"],
    ),
    "a number beyond all": (lambda: mg.Potts([2**70], [1], 1.0), ["potts factor 0", str(2**70)]),
    "bytes": (lambda: mg.Unary([b"rain"], [0.0, 1.0]), ["unary", "integers or names", "S4"]),
    "ragged names": (
        lambda: mg.Table([["rain", "wet"], ["wet"]], np.eye(2)),
        ["table", "scope", "different lengths"],
    ),
    "names of a domain that does not fit": (
        lambda: graph_of(mg.Ising(["rain"], ["wet"], 1.0), sizes=(2, 2, 3)),
        ["ising factor 0 of group 0", "variable 2 ('wet')", "has 3"],
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_bad_names(case):
    make, pieces = ERRORS[case]
    with pytest.raises(mg.GraphError) as caught:
        make()
    missing = [piece for piece in pieces if piece not in str(caught.value)]
    assert not missing, str(caught.value)


def test_evidence_on_an_unknown_name_shows_close_ones():
    with pytest.raises(mg.GraphError, match=r"unknown variable 'sprinkle'.*'sprinkler'"):
        graph_of().condition({"sprinkle": 1})


def test_a_million_factors_by_name():
    rng = np.random.default_rng(0)
    n, count = 10_000, 1_000_000
    i = rng.integers(0, n, count)
    j = (i + rng.integers(1, n, count)) % n
    names = np.array([f"v{k}" for k in range(n)])
    graph = mg.FactorGraph(np.full(n, 3), [mg.Potts(names[i], names[j], 1.0)], names=names.tolist())
    np.testing.assert_array_equal(graph.factors[0].scope, np.stack([i, j], axis=1))
