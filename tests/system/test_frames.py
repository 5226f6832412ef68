"""Frames of every library: columns are read equally, missing cells are None, types survive."""

import datetime

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.system.frames import (
    as_column,
    column_of,
    frame_like,
    has_columns,
    names_of,
    with_cells,
)

CELLS = {
    "category": ["a", None, "b"],
    "integer": [1, None, 3],
    "number": [1.5, None, 2.0],
    "truth": [True, None, False],
    "text": ["x", "y", None],
    "whole": [1, 2, 3],
}
MISSING = {"category": 1, "integer": 1, "number": 1, "truth": 1, "text": 2}


def pandas_frame():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(
        {
            "category": pandas.Categorical(CELLS["category"]),
            "integer": pandas.array(CELLS["integer"], dtype="Int64"),
            "number": CELLS["number"],
            "truth": pandas.array(CELLS["truth"], dtype="boolean"),
            "text": CELLS["text"],
            "whole": CELLS["whole"],
        },
        index=[7, 8, 9],
    )


def polars_frame():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(CELLS)
    return frame.with_columns(polars.col("category").cast(polars.Categorical))


def pyarrow_frame():
    pyarrow = pytest.importorskip("pyarrow")
    category = pyarrow.array(CELLS["category"]).dictionary_encode()
    return pyarrow.table({**CELLS, "category": category})


def mapping():
    return {name: np.array(column, dtype=object) for name, column in CELLS.items()}


FRAMES = [mapping, pandas_frame, polars_frame, pyarrow_frame]
LIBRARIES = FRAMES[1:]


@pytest.mark.parametrize("make", FRAMES)
def test_columns_are_read_alike(make):
    frame = make()
    assert has_columns(frame)
    assert names_of(frame) == list(CELLS)
    for name, wanted in CELLS.items():
        column = column_of(frame, name)
        assert column.tolist() == wanted, name
        assert [type(entry) for entry in column.tolist()] == [type(entry) for entry in wanted]


@pytest.mark.parametrize("make", FRAMES)
def test_cells_are_filled_in_and_types_stay(make):
    frame = make()
    values = {"category": "b", "integer": 9, "number": 9.5, "truth": True, "text": "z"}
    filled = with_cells(
        frame, {name: (np.array([MISSING[name]]), [value]) for name, value in values.items()}
    )
    assert type(filled) is type(frame)
    for name, value in values.items():
        wanted = list(CELLS[name])
        wanted[MISSING[name]] = value
        assert column_of(filled, name).tolist() == wanted
    assert column_of(frame, "text").tolist() == CELLS["text"]  # only a copy was changed
    if make is not mapping:
        import narwhals.stable.v2 as nw

        assert nw.from_native(filled).schema == nw.from_native(frame).schema
    if make is pandas_frame:
        assert filled.index.tolist() == [7, 8, 9]


DAYS = (datetime.date(2020, 1, 1), datetime.date(2021, 1, 1))
TIMES = tuple(datetime.datetime.combine(day, datetime.time(5)) for day in DAYS)
GAPS = (datetime.timedelta(days=1), datetime.timedelta(days=2))
KINDS = {  # by library and type: the entries of a column
    "polars": {"Int128": (2**70, 3), "Date": DAYS},
    "polars ms": {"Datetime": TIMES, "Duration": GAPS},
    "pyarrow": {
        "int8": (1, 2),
        "date32": DAYS,
        "timestamp[ms]": TIMES,
        "duration[us]": GAPS,
        "string_view": ("x", "y"),
        "dictionary": (1, 2),
    },
}


@pytest.mark.parametrize(("library", "kind"), [(one, kind) for one in KINDS for kind in KINDS[one]])
def test_rare_types_keep_their_entries(library, kind):
    """Polars took times of other units as they are, and PyArrow writes to few types in place."""
    module = pytest.importorskip(library.split()[0])
    one, two = KINDS[library][kind]
    if library.startswith("polars"):
        stored = getattr(module, kind)
        column = module.Series([one, None, two], dtype=stored("ms") if "ms" in library else stored)
        frame = module.DataFrame({"a": column})
    elif kind == "dictionary":
        frame = module.table({"a": module.array([one, None, two]).dictionary_encode()})
    else:
        stored = module.string_view() if kind == "string_view" else module.type_for_alias(kind)
        frame = module.table({"a": module.array([one, None, two], stored)})
    before = column_of(frame, "a").tolist()
    assert before[1] is None
    filled = with_cells(frame, {"a": (np.array([1, 0]), [before[0], before[2]])})
    assert column_of(filled, "a").tolist() == [before[2], before[0], before[2]]
    assert filled.schema == frame.schema
    if library == "polars" and kind == "Int128":  # without a gap
        assert column_of(filled, "a").tolist() == [two, one, two]


@pytest.mark.parametrize("make", LIBRARIES)
def test_new_frames_are_of_the_same_library(make):
    frame = make()
    made = frame_like(frame, {"row": np.arange(2), "mixed": ["a", 1], "p": [0.5, 1.0]})
    assert type(made) is type(frame)
    assert column_of(made, "row").tolist() == [0, 1]
    wanted = ["a", 1] if make is pandas_frame else ["a", "1"]
    assert column_of(made, "mixed").tolist() == wanted


@pytest.mark.parametrize("make", LIBRARIES)
def test_models_learn_and_answer_from_every_library(make):
    frame = make()
    cells = {"name": ["u", "u", "v", "v"], "value": ["x", "y", "x", "y"]}
    rule = {"one": ["u"], "value": ["y"]}
    model = mg.from_frames(
        frame_like(frame, cells), [mg.Rule(frame_like(frame, rule), ["one"], ["value"], start=1.0)]
    )
    best = model.best(mg.infer(model.graph, progress=False))
    assert type(best) is type(frame)
    assert column_of(best, "name").tolist() == ["u", "v"]
    assert column_of(best, "value").tolist()[0] == "y"
    graph = mg.FactorGraph(
        mg.Domains([2, 2], ["u", "v"], {0: ("x", "y"), 1: ("x", "y")}),
        [mg.Unary([0, 1], np.zeros((2, 2)), name="h")],
    )
    rows = frame_like(frame, {"u": ["x", "y", None, "y"], "v": ["x", "x", "x", "y"]})
    fit = mg.learn(graph, rows, "exact", progress=False)
    assert fit.rows == 4
    answers = mg.infer_many(fit.graph, rows)
    assert answers.marginal("u")[2] == pytest.approx([1 / 3, 2 / 3], abs=1e-3)
    weights = model.weights(mg.learn(model.graph.condition({"u": "y"}), l2=1.0, progress=False))
    assert type(weights) is type(frame)


@pytest.mark.parametrize("make", LIBRARIES)
def test_a_missing_cell_is_no_candidate(make):
    cells = frame_like(make(), {"name": ["u", "u", "u"], "value": ["x", "y", None]})
    with pytest.raises(mg.GraphError, match="row 2: expected a value, got a missing cell; drop"):
        mg.from_frames(cells, [])


def test_names_may_be_numbers_but_not_twice():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.arange(4).reshape(2, 2))
    assert column_of(frame, 1).tolist() == [1, 3]
    frame.columns = ["a", "a"]
    with pytest.raises(mg.GraphError, match="more than one column is called 'a'"):
        names_of(frame)
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table([[1], [2]], names=["a", "a"])
    with pytest.raises(mg.GraphError, match="more than one column is called 'a'"):
        names_of(table)


def test_what_has_no_cells_is_refused():
    polars = pytest.importorskip("polars")
    with pytest.raises(mg.GraphError, match="lazy frame has no cells yet; call collect"):
        names_of(polars.DataFrame(CELLS).lazy())
    with pytest.raises(mg.GraphError, match="expected columns by name, got list"):
        names_of([1, 2])
    with pytest.raises(mg.GraphError, match="there is no column 'z'; there are 'category'"):
        column_of(polars_frame(), "z")
    nested = polars.DataFrame({"a": [[1], [2]]})
    with pytest.raises(mg.GraphError, match="row 0: expected a plain entry"):
        column_of(nested, "a")


def test_dates_are_entries_and_their_gaps_are_missing():
    days = np.array(["2026-01-02", "NaT"], dtype="datetime64[D]")
    assert as_column(days, "days").tolist() == [datetime.date(2026, 1, 2), None]


def test_columns_that_do_not_fit_into_memory_are_refused():
    rows = np.broadcast_to(np.int8(0), 10**12)
    with pytest.raises(mg.TooLargeError, match=r"a column of 1,000,000,000,000 rows needs"):
        as_column(rows, "frame")


def test_a_new_category_of_pandas_is_added():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"a": pandas.Categorical(["x", "y", "x"], ordered=True)}, index=[5] * 3
    )
    found = with_cells(frame, {"a": (np.array([1]), ["z"])})
    assert found["a"].tolist() == ["x", "z", "x"]
    assert found["a"].cat.categories.tolist() == ["x", "y", "z"]
    assert found["a"].cat.ordered
    assert frame["a"].tolist() == ["x", "y", "x"]


def test_columns_without_scatter_are_changed():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    sparse = pandas.DataFrame({"a": pandas.arrays.SparseArray([0.0, np.nan, 1.0])})
    found = with_cells(sparse, {"a": (np.array([1]), [2.0])})
    assert found["a"].tolist() == [0.0, 2.0, 1.0]
    assert found["a"].dtype == sparse["a"].dtype
    objects = polars.DataFrame({"a": polars.Series([1j, 2j, None], dtype=polars.Object)})
    found = with_cells(objects, {"a": (np.array([2]), [1j])})
    assert found["a"].to_list() == [1j, 2j, 1j]
    assert found.schema == objects.schema


@pytest.mark.parametrize("make", [polars_frame, pyarrow_frame, pandas_frame])
def test_entries_that_a_column_cannot_hold_are_named(make):
    with pytest.raises(mg.LearnError, match=r"column 'whole': type Int64 cannot hold .* 'many'"):
        with_cells(make(), {"whole": (np.array([0]), ["many"])}, error=mg.LearnError)


def test_numbers_of_two_types_and_huge_numbers_fit_into_new_frames():
    polars = pytest.importorskip("polars")
    found = frame_like(polars.DataFrame({"a": [1]}), {"b": [1, 2.5], "c": [10**30, None]})
    assert found["b"].to_list() == [1.0, 2.5]
    assert found["c"].to_list() == [str(10**30), None]


def test_a_result_with_a_method_columns_is_no_frame():
    answers = mg.infer_many(mg.FactorGraph([2], []), {0: [1]}, progress=False)
    with pytest.raises(mg.GraphError, match="expected columns by name, got Answers"):
        column_of(answers, "a")
