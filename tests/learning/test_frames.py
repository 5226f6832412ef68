"""Models from frames: names and labels survive, rows need no loop, and data are repaired."""

import importlib.util
import time

import numpy as np
import pytest

import minigibbs as mg
from tests import naive
from tests.paths import DATA, ROOT

CELLS = {
    "name": ["a", "b", "a", "b", "c", "a"],
    "value": ["x", "y", "y", "z", "x", "z"],
    "seen": [False, False, False, False, True, False],
}


def test_variables_have_their_own_values():
    pairs = {"one": ["a", "b"], "two": ["b", "c"], "why": ["k", "l"], "how": [1.0, 2.0]}
    alike = mg.Rule(pairs, ["one", "two"], same=True, name="same", weight="why", scale="how")
    wish = {"who": ["a", "b", "a"], "what": ["y", "y", "z"], "why": ["p", "q", "p"]}
    wished = mg.Rule(wish, ["who"], ["what"], name="wish", weight="why", start={"p": 0.5, "q": 2})
    model = mg.from_frames(CELLS, [alike, wished], observed="seen")
    graph, domains = model.graph, model.graph.domains
    assert domains.names == ("a", "b", "c")
    assert [domains.values(v) for v in range(3)] == [("x", "y", "z"), ("y", "z"), ("x",)]
    assert graph.evidence.tolist() == [-1, -1, 0]
    assert model.entries == {"same": ["k", "l"], "wish": ["p", "q"]}
    graph = graph.with_parameters({"same": [3.0, 5.0][: graph.parameters["same"].size]})
    # a = b = y contributes 3 + 0.5 + 2; b and c have no common value.
    assert graph.log_potential([1, 0, 0]) == pytest.approx(5.5)
    assert graph.log_potential([2, 1, 0]) == pytest.approx(3.5)
    assert graph.log_potential([1, 1, 0]) == pytest.approx(0.5)
    answer = mg.infer(graph)
    best = model.best(answer)
    assert best["name"].tolist() == ["a", "b", "c"]
    assert best["value"].tolist() == ["y", "y", "x"]
    exact = naive.marginals(graph)
    assert best["probability"].tolist() == pytest.approx([exact[0, 1], exact[1, 0], 1.0])
    assert answer.marginal("b").values == ("y", "z")


def test_two_valued_variables_need_no_values():
    rule = mg.Rule(
        {"p": ["u", "v"], "q": ["v", "w"], "yes": [True, True], "no": [False, False]},
        ["p", "q"],
        ["yes", "no"],
        name="r",
    )
    model = mg.from_frames({"name": ["u", "v", "w"]}, [rule], value=None)
    graph = model.graph.with_parameters({"r": 1.0})
    assert graph.log_potential([1, 0, 1]) == 1.0
    assert graph.log_potential([1, 1, 0]) == 1.0
    plain = mg.from_frames({"name": ["u", "v"]}, [mg.Rule({"p": ["u"]}, ["p"])], value=None)
    assert plain.graph.statistics([1, 0])["weight"].tolist() == [1.0]


def test_weights_come_back_as_a_frame():
    rng = np.random.default_rng(0)
    names = [f"coin{k}" for k in range(300)]
    kind = rng.choice(["fair", "bent"], 300)
    heads = rng.random(300) < np.where(kind == "bent", 0.9, 0.5)
    cells = {
        "name": np.repeat(names, 2),
        "value": ["tails", "heads"] * 300,
        "seen": np.stack([~heads, heads], axis=1).ravel(),
    }
    rule = mg.Rule(
        {"coin": names, "up": ["heads"] * 300, "kind": kind},
        ["coin"],
        ["up"],
        name="bias",
        weight="kind",
    )
    model = mg.from_frames(cells, [rule], observed="seen")
    found = model.weights(mg.learn(model.graph, method="exact"))
    weights = dict(zip(found["entry"].tolist(), found["weight"].tolist(), strict=True))
    for entry in ("fair", "bent"):
        share = heads[kind == entry].mean()
        assert weights[entry] == pytest.approx(np.log(share / (1 - share)), abs=1e-4)
    assert (found["error"] < 0.5).all()


@pytest.mark.parametrize("kind", [str, object])  # types of NumPy, and of most frames
def test_a_million_factors_take_no_loop(kind):
    """Rows are only looked up in dictionaries and sorted, without Python code per row."""
    count = 200_000
    rng = np.random.default_rng(0)
    names = np.arange(1000).astype(str)
    frame = {
        "a": rng.choice(names, count),
        "b": rng.choice(names, count),
        "why": rng.choice(names, count),
    }
    frame["b"] = np.where(
        frame["a"] == frame["b"], names[(frame["a"].astype(int) + 1) % 1000], frame["b"]
    )
    frame = {name: column.astype(kind) for name, column in frame.items()}
    calls = []

    import sys

    def watch(event_frame, event, _):
        calls.append(event_frame.f_code.co_name)

    sys.setprofile(watch)
    try:
        model = mg.from_frames(
            {"name": names}, [mg.Rule(frame, ["a", "b"], weight="why")], value=None
        )
    finally:
        sys.setprofile(None)
    assert len(model.graph.factors[0]) == count
    assert len(calls) < count / 4


def coins(rule):
    return mg.from_frames({"name": ["a", "b"]}, [rule], value=None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mg.from_frames({"name": []}, []), "at least one row"),
        (lambda: mg.from_frames({"nam": ["a"]}, []), "no column 'name'; there are 'nam'"),
        (lambda: mg.from_frames({"name": ["a", "a"], "value": [1, 1]}, []), "'a' has a value"),
        (
            lambda: mg.from_frames(CELLS, [mg.Rule({"v": ["d"]}, ["v"], name="r")]),
            "rule 'r', row 0: expected a variable that the model has, got .*'d'",
        ),
        (
            lambda: mg.from_frames(CELLS, [mg.Rule({"v": ["b"], "w": ["x"]}, ["v"], ["w"])]),
            "rule 'weight', row 0: expected a value that its variable may take, got .*'x'",
        ),
        (
            lambda: mg.from_frames(CELLS, [mg.Rule({"v": ["b"]}, ["v"], ["v", "v"])]),
            "a column of values for each of 1",
        ),
        (
            lambda: mg.from_frames(CELLS, [mg.Rule({"v": ["b"]}, ["v"], same=True)]),
            "same is for two columns",
        ),
        (
            lambda: mg.from_frames(CELLS, [mg.Rule({"v": ["b"], "s": ["?"]}, ["v"], scale="s")]),
            "scale must be a column of numbers",
        ),
        (
            lambda: mg.from_frames(
                {"name": ["a", "a"], "value": [0, 1], "seen": [True, True]}, [], observed="seen"
            ),
            r"'a'\): two values were observed",
        ),
        (lambda: mg.from_frames([1, 2], []), r"expected columns by name, got list"),
        (lambda: mg.from_frames({"name": "a"}, [], value=None), r"a plain entry in each row"),
        (
            lambda: mg.from_frames({"name": ["a", "b"], "value": [0, [1]]}, []),
            r"column 'value': expected a plain entry in each row",
        ),
        (
            lambda: mg.from_frames({"name": ["a", "b"], "value": [0, {}]}, []),
            r"column 'value', row 1: expected a plain entry",
        ),
        (
            lambda: mg.from_frames({"name": ["a", "b"], "value": [0]}, []),
            r"column 'value' has 1 rows, 'name' has 2",
        ),
        (
            lambda: mg.from_frames(
                {"name": ["a", "b"], "value": [0, 1], "seen": [True]}, [], observed="seen"
            ),
            r"column 'seen' has 1 rows, not 2",
        ),
        (
            lambda: coins(mg.Rule({"a": ["a"]}, "a")),
            r"must be a list of strings, got 'a'",
        ),
        (
            lambda: coins(mg.Rule({"a": ["a"], "w": [1, 2]}, ["a"], weight="w")),
            r"column 'w' has 2 rows, 'a' has 1",
        ),
        (lambda: coins(mg.Rule({"a": ["a"]}, ["a"], start="x")), r"start must be a number"),
        (
            lambda: mg.from_frames({"name": np.array([1.0, np.nan]), "value": [0, 1]}, []),
            r"variables, row 1: expected a name, got a missing cell; drop the row",
        ),
        (
            lambda: mg.from_frames({"name": ["a", "a"], "value": np.array([np.nan, 1.0])}, []),
            r"variables, row 0: expected a value, got a missing cell",
        ),
        (
            lambda: coins(mg.Rule({"a": ["a"], "w": np.array([np.nan])}, ["a"], weight="w")),
            r"row 0: expected what a weight means, got a missing cell",
        ),
    ],
)
def test_bad_frames_are_refused_by_name(make, message):
    with pytest.raises(mg.GraphError, match=message):
        make()


@pytest.mark.skipif(not (DATA / "holoclean").is_dir(), reason="no HoloClean table beside")
def test_the_hospital_is_repaired():
    """HoloClean's paper reports precision 1.0 and recall 0.71 for this table."""
    pandas = pytest.importorskip("pandas")
    spec = importlib.util.spec_from_file_location(
        "repair", ROOT / "examples" / "hospital" / "repair.py"
    )
    repair = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(repair)
    folder = DATA / "holoclean"
    dirty = pandas.read_csv(folder / "hospital.csv", dtype=str, keep_default_na=False)
    clean = repair.read_clean(folder / "hospital_clean.csv", dirty.columns)
    constraints = repair.read_constraints((folder / "hospital_constraints.txt").read_text())
    repaired, cells, _ = repair.repair(dirty, constraints, sweeps=60)
    precision, recall = repair.scores(dirty, repaired, clean)
    assert precision > 0.9  # most errors are in one column, Stateavg
    assert recall > 0.8
    assert (cells["probability"] <= 1).all()


def test_columns_of_a_structured_array():
    frame = np.array([("a", "x"), ("a", "y"), ("b", "x")], dtype=[("name", "U1"), ("value", "U1")])
    pairs = {"one": ["a"], "two": ["b"]}
    rule = mg.Rule(pairs, ["one", "two"], same=True, name="same")
    assert mg.from_frames(frame, [rule]).graph.domains.names == ("a", "b")


def missing_cells():
    """Return markers of missing cells of Python, NumPy and pandas."""
    found = [None, float("nan"), np.float64("nan"), np.datetime64("NaT")]
    if importlib.util.find_spec("pandas"):
        import pandas

        found += [pandas.NA, pandas.NaT]
    return found


@pytest.mark.parametrize("cell", missing_cells(), ids=repr)
def test_a_missing_cell_is_neither_observed_nor_a_value(cell):
    seen = np.array([True, False, cell, False, 1, 0], dtype=object)
    model = mg.from_frames({**CELLS, "seen": seen}, [], observed="seen")
    assert model.graph.evidence.tolist() == [0, -1, 0]
    values = np.array([*CELLS["value"][:-1], cell], dtype=object)
    with pytest.raises(mg.GraphError, match="row 5: expected a value, got a missing cell; drop"):
        mg.from_frames({**CELLS, "value": values}, [])
    names = np.array([cell, *CELLS["name"][1:]], dtype=object)
    with pytest.raises(mg.GraphError, match=r"row 0: expected a name"):
        mg.from_frames({**CELLS, "name": names}, [])
    weights = np.array(["k", cell], dtype=object)
    pairs = {"one": ["a", "b"], "two": ["b", "c"], "why": weights}
    rule = mg.Rule(pairs, ["one", "two"], same=True, weight="why")
    with pytest.raises(mg.GraphError, match="row 1: expected what a weight means"):
        mg.from_frames(CELLS, [rule])


def test_columns_of_floats_and_masks_may_miss_observations():
    for seen in (
        np.array([1.0, 0.0, np.nan, 0.0, 1.0, np.nan]),
        np.ma.array([True, False, True, False, True, True], mask=[0, 0, 1, 0, 0, 1]),
    ):
        model = mg.from_frames({**CELLS, "seen": seen}, [], observed="seen")
        assert model.graph.evidence.tolist() == [0, -1, 0]
    values = np.ma.array(CELLS["value"], mask=[0, 0, 0, 0, 0, 1])
    with pytest.raises(mg.GraphError, match="row 5: expected a value"):
        mg.from_frames({**CELLS, "value": values}, [])


@pytest.mark.parametrize("mark", ["False", "no", 2, 0.5])
def test_observed_takes_truth_alone(mark):
    seen = np.array([True, False, mark, False, True, False], dtype=object)
    with pytest.raises(mg.GraphError, match="'seen', row 2: expected True, False, 1, 0 or"):
        mg.from_frames({**CELLS, "seen": seen}, [], observed="seen")


def test_truth_that_is_missing_is_no_value():
    rule = mg.Rule({"p": ["u", "v"], "is": np.array([True, None], dtype=object)}, ["p"], ["is"])
    with pytest.raises(mg.GraphError, match="row 1: expected a value that its variable may take"):
        mg.from_frames({"name": ["u", "v"]}, [rule], value=None)


def test_a_rule_over_a_million_shared_values_is_built_in_seconds():
    """By whole columns; one value at a time would take minutes of processor time."""
    count, begun = 1_000_000, time.process_time()
    variables = {"name": np.repeat(["a", "b"], count), "value": np.tile(np.arange(count), 2)}
    rule = mg.Rule({"x": ["a"], "y": ["b"]}, ["x", "y"], same=True, start=2.0)
    graph = mg.from_frames(variables, [rule]).graph
    assert graph.sizes.tolist() == [count, count]
    assert graph.log_potential([[5, 5], [5, 6]]).tolist() == [2.0, 0.0]
    assert time.process_time() - begun < 30.0  # measured: 1.4
