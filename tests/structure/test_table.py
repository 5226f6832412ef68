"""Frames of all kinds become tables of codes, or raise a clear error."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.structure.table import read_table

pd = pytest.importorskip("pandas")


def labels(table, name):
    return table.domains.values(table.domains.index(name))


def column(table, name):
    """Return the codes of a column, -1 if a cell is missing."""
    number = table.domains.index(name)
    codes = table.codes[number].astype(int)
    return np.where(codes == table.sizes[number], -1, codes).tolist()


FRAME = pd.DataFrame(
    {
        "text": ["b", "a", None, "b"],
        "kind": pd.Categorical(["hi", "lo", None, "lo"], categories=["lo", "mid", "hi"]),
        "nullable": pd.array([3, None, 1, 3], dtype="Int64"),
        "truth": [True, False, True, True],
        "maybe": pd.array([True, None, False, True], dtype="boolean"),
        "number": [0.5, np.nan, 2.0, 0.5],
    }
)


@pytest.mark.quick
def test_columns_of_every_kind():
    table = read_table(FRAME, None)
    assert labels(table, "text") == ("a", "b")
    assert column(table, "text") == [1, 0, -1, 1]
    assert labels(table, "kind") == ("lo", "mid", "hi")  # in the order of the categories
    assert column(table, "kind") == [2, 0, -1, 0]
    assert labels(table, "nullable") == (1, 3)
    assert column(table, "nullable") == [1, -1, 0, 1]
    assert labels(table, "truth")[0] is False
    assert labels(table, "truth")[1] is True
    assert column(table, "maybe") == [1, -1, 0, 1]
    assert column(table, "number") == [0, -1, 1, 0]
    assert not table.complete


@pytest.mark.parametrize("library", ["pandas", "object", "polars", "pyarrow", "chunks"])
def test_text_is_read_alike_from_every_library(library):
    cells = ["b", None, "a", "é", "", "b", None, "a"]
    if library in ("pandas", "object"):
        frame = pd.DataFrame({"text": cells}, dtype=object if library == "object" else "str")
    elif library == "polars":
        frame = pytest.importorskip("polars").DataFrame({"text": cells})
    else:
        arrow = pytest.importorskip("pyarrow")
        frame = arrow.table({"text": cells})
        if library == "chunks":
            large = frame.cast(arrow.schema([("text", arrow.large_string())]))
            frame = arrow.concat_tables([large[:3], large[3:]])
    table = read_table(frame, None)
    assert labels(table, "text") == ("", "a", "b", "é")
    assert column(table, "text") == [2, -1, 1, 3, 0, 2, -1, 1]
    np.testing.assert_array_equal(table.codes, read_table({"text": cells}, None).codes)
    assert table.rows_of(frame)[:, 0].tolist() == column(table, "text")


def test_text_that_pyarrow_cannot_store_is_read():
    table = read_table(pd.DataFrame({"text": ["\ud800", "a", None]}, dtype=object), None)
    assert labels(table, "text") == ("a", "\ud800")
    assert column(table, "text") == [1, 0, -1]


def test_frames_are_read_without_pyarrow(monkeypatch):
    monkeypatch.setattr("minigibbs.system.frames.find_spec", lambda name: None)
    table = read_table(FRAME, None)
    assert labels(table, "text") == ("a", "b")
    assert column(table, "text") == [1, 0, -1, 1]


def test_a_mapping_and_an_array_are_tables():
    masked = np.ma.array([1, 2, 2], mask=[False, True, False])
    table = read_table({"a": [0, 1, 0], "b": masked}, None)
    assert column(table, "b") == [0, -1, 1]
    array = read_table(np.array([[-1, 5], [1, 5], [-1, 7]]), None)
    assert array.domains.names == ("x0", "x1")
    assert labels(array, "x0") == (-1, 1)  # -1 is an ordinary label


def test_numbers_are_binned_by_quantiles_edges_and_grids():
    numbers = np.linspace(0.0, 1.0, 100)
    table = read_table({"a": numbers, "b": numbers, "c": numbers}, {"b": [0.25], "c": GRID})
    assert np.bincount(table.codes[0]).tolist() == [20] * 5
    assert labels(table, "b") == ("[-inf, 0.25)", "[0.25, inf)")
    assert np.bincount(table.codes[1]).tolist() == [25, 75]
    assert labels(table, "c") == (0.0, 0.5, 1.0)
    assert np.bincount(table.codes[2]).tolist() == [25, 50, 25]
    few = read_table({"a": [0.5, 1.5, 0.5]}, {"a": [1.0]})
    assert few.codes[0].tolist() == [0, 1, 0]


GRID = mg.Grid(0.0, 1.0, 3)


def test_new_rows_are_read_as_the_old_ones():
    frame = {"a": np.linspace(0, 1, 100), "b": ["x", "y"] * 50}
    table = read_table(frame, None)
    rows = table.rows_of({"b": ["y", "z", None], "a": [-5.0, 0.5, np.nan]})
    assert rows.tolist() == [[0, 1], [2, -1], [-1, -1]]
    with pytest.raises(mg.LearnError, match="'c' is no column of the table"):
        table.rows_of({"c": [1, 2]})


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"a": [1, 2], "b": [None, np.nan]}, "column 'b' has no values: drop it"),
        ({"a": [np.nan, np.nan]}, "column 'a' has no values"),
        ({"a": [1]}, "at least 2 rows"),
        ({"a": []}, "must have rows and columns"),
        ({}, "must have rows and columns"),
        ({"a": [1, 2], "b": [1, 2, 3]}, r"columns of one length; got \[2, 3\]"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), "more than one column is called 'a'"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["1", 1]), "same name as text"),
        ([[1, 2], [3]], "frame must be a table"),
        (np.zeros(3), "got an array of 1 dimensions"),
        ({"a": [[1], [2]]}, "a plain entry in each row"),
        ({"a": np.array([[1], {2}], dtype=object)[:, None][:, 0]}, "expected a plain entry"),
        ({"a": np.array([1j, 2j])}, "complex"),
        (7, "frame must be a table"),
    ],
)
def test_bad_frames_are_refused_in_words(frame, message):
    with pytest.raises(mg.LearnError, match=message):
        mg.learn_structure(frame, progress=False)


def test_bad_bins_are_refused_in_words():
    frame = {"a": np.arange(100.0), "b": ["x", "y"] * 50}
    cases = {
        "no column 'c'": {"c": 3},
        "does not hold numbers": {"b": 3},
        "at least 2 bins": {"a": 1},
        "increasing edges": {"a": [2.0, 1.0]},
    }
    for message, bins in cases.items():
        with pytest.raises(mg.LearnError, match=message):
            mg.learn_structure(frame, bins=bins, progress=False)
    with pytest.raises(mg.LearnError, match="no finite number"):
        mg.learn_structure({"a": [np.inf, -np.inf]}, bins={"a": 3}, progress=False)


@pytest.mark.parametrize("method", ["tree", "network", "pairwise"])
def test_strange_columns_get_sensible_answers(method):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 300)
    mixed = np.array([1, "one", 2.5] * 100, dtype=object)
    frame = {"a": a, "b": a ^ (rng.random(300) < 0.1), "constant": ["same"] * 300, "mixed": mixed}
    with pytest.warns(UserWarning, match="column 'constant' has one value"):
        found = mg.learn_structure(frame, method, progress=False)
    assert [{edge.source, edge.target} for edge in found.edges] == [{"a", "b"}]
    assert mg.infer(found.graph, progress=False).marginal("constant").probability.tolist() == [1]


@pytest.mark.parametrize("method", ["tree", "network"])
def test_an_identifier_stays_alone(method):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 200_000)
    b = a ^ (rng.random(len(a)) < 0.1)
    frame = {"id": np.array([str(k) for k in range(len(a))], dtype=object), "a": a, "b": b}
    with pytest.warns(UserWarning, match="looks like an identifier"):
        found = mg.learn_structure(frame, method, progress=False)
    assert [{edge.source, edge.target} for edge in found.edges] == [{"a", "b"}]


def test_pairwise_networks_say_when_there_are_too_many_values():
    frame = {"id": np.array([str(k) for k in range(30_000)], dtype=object), "a": [0, 1] * 15_000}
    with (
        pytest.warns(UserWarning, match="identifier"),
        pytest.raises(mg.LearnError, match="limit of 20,000 values"),
    ):
        mg.learn_structure(frame, "pairwise", progress=False)
