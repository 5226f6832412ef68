"""`infer_many` gives the same results as `infer` with each row as evidence."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.inference import many
from tests.exact.test_queries import CHAIN
from tests.exact.test_zeros import graphs

FRAME = {"a": ["no", None, "yes", "yes"], "c": [0.0, math.nan, 1.0, math.nan], "b": [2, 1, None, 0]}


def each(graph, rows):
    """Infer with one call per row."""
    return [mg.infer(graph.condition(row), progress=False) for row in rows]


ROWS = [{"a": "no", "c": 0, "b": 2}, {"b": 1}, {"a": "yes", "c": 1}, {"a": "yes", "b": 0}]


@pytest.mark.parametrize("way", ["together", "small batches", "one by one"])
def test_rows_have_the_answers_of_single_calls(way, monkeypatch):
    if way == "small batches":
        monkeypatch.setattr(many, "_MOST_ROWS", 3)
    if way == "one by one":

        def refuse(*_):
            raise mg.TooLargeError("too wide")

        monkeypatch.setattr(many, "_together", refuse)
    answers = mg.infer_many(CHAIN, FRAME)
    whole = mg.infer(CHAIN, progress=False).log_z
    for row, one in enumerate(each(CHAIN, ROWS)):
        for variable in CHAIN.names:
            want = one.marginal(variable).probability
            np.testing.assert_allclose(answers.marginal(variable)[row], want, atol=1e-12)
        assert answers.log_z[row] == pytest.approx(one.log_z)
        if way != "one by one":
            assert answers.log_probability[row] == pytest.approx(one.log_z - whole)


def test_frames_and_arrays_are_read_alike():
    pandas = pytest.importorskip("pandas")
    framed = mg.infer_many(CHAIN, pandas.DataFrame(FRAME))
    array = np.array([[0, 2, 0, np.nan], [np.nan, 1, np.nan, np.nan], [1, np.nan, 1, np.nan]])
    listed = mg.infer_many(CHAIN, array)
    np.testing.assert_array_equal(framed.flat[:3], listed.flat)
    frame = framed.to_pandas()
    assert frame.shape == (4, 9)
    assert frame[("a", "yes")].tolist()[2:] == [1.0, 1.0]


def test_rows_of_graphs_with_hard_constraints():
    """Rows of probability 0 have log Z of -inf and no marginals."""
    impossible = 0
    for graph in graphs(30):
        if mg.log_partition(graph) == -math.inf or graph.sizes[1] < 2:
            continue
        answers = mg.infer_many(graph, {1: [0, 1, None]})
        for row, given in enumerate([{1: 0}, {1: 1}, {}]):
            log_z = mg.log_partition(graph.condition(given))
            assert answers.log_z[row] == pytest.approx(log_z, abs=1e-10)
            if log_z == -math.inf:
                impossible += 1
                assert np.isnan(answers.flat[row]).all()
            else:
                marginals = mg.exact_marginals(graph.condition(given))
                np.testing.assert_allclose(
                    graph.domains.square(answers.flat[row]), marginals, atol=1e-12
                )
    assert impossible > 0


def test_variables_with_one_value_need_no_tables():
    graph = mg.FactorGraph([1, 1], [], names=["a", "b"])
    answers = mg.infer_many(graph, {"a": [0, None], "b": [None, None]})
    assert answers.marginal("b").tolist() == [[1.0], [1.0]]
    assert answers.log_z.tolist() == [0.0, 0.0]


def test_the_evidence_of_the_graph_holds_for_all_rows():
    given = CHAIN.condition({"a": "yes"})
    answers = mg.infer_many(given, {"c": [0, 1]})
    want = mg.infer(CHAIN.condition({"a": "yes", "c": 1}), progress=False)
    np.testing.assert_allclose(answers.marginal("b")[1], want.marginal("b").probability)
    with pytest.raises(mg.GraphError, match=r"row 1.*clamped to 1 already"):
        mg.infer_many(given, {"a": ["yes", "no"]})


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (np.zeros((2, 3)), "one column for each of 4 variables"),
        ({"a": ["no"], "b": [0, 1]}, "columns of one length"),
        ({"a": ["no"], 0: ["no"]}, "more than one column"),
        ({"a": ["no", "maybe"]}, r"frame, row 1: variable 0 \('a'\).*maybe"),
        ({"z": [1]}, "unknown variable 'z': no such name; names: 'a', .* Leave out columns"),
        ({}, "columns of one length"),
    ],
)
def test_frames_that_do_not_fit(frame, message):
    with pytest.raises(mg.MinigibbsError, match=message):
        mg.infer_many(CHAIN, frame)


def test_the_table_counts_rows_without_an_answer():
    graph = mg.FactorGraph([2, 2], [mg.Table([[0, 1]], [[[0.0, -np.inf], [0.0, 0.0]]])], ["a", "b"])
    answers = mg.infer_many(graph, {"a": [0, 0, None], "b": [1, 0, None]})
    assert repr(answers) == "<Answers: 3 rows, 2 variables>"
    assert "impossible  1 rows, with NaN" in str(answers)
    assert "<bdi>0</bdi>" in answers._repr_html_()
    assert "b = 1" in answers._repr_html_()


def test_values_of_grids_are_points():
    graph = mg.FactorGraph([mg.Grid(0.0, 4.0, 3), 2], [])  # points 0, 2 and 4
    assert mg.infer_many(graph, {0: [2.0, math.nan]}).marginal(0)[0].tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("kind", ["threads", "dask"])
def test_executors_give_the_same_answers(kind):
    here = mg.infer_many(CHAIN, FRAME)
    if kind == "threads":
        with ThreadPoolExecutor(2) as executor:
            there = mg.infer_many(CHAIN, FRAME, executor=executor)
    else:
        distributed = pytest.importorskip("distributed")
        with distributed.Client(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as client:
            there = mg.infer_many(CHAIN, FRAME, executor=client)
    np.testing.assert_allclose(there.log_z, here.log_z)
    np.testing.assert_allclose(there.log_probability, here.log_probability)
    for variable in CHAIN.names:
        np.testing.assert_allclose(there.marginal(variable), here.marginal(variable))


def test_an_executor_must_have_submit():
    with pytest.raises(mg.SampleError, match="executor must be"):
        mg.infer_many(CHAIN, FRAME, executor="dask")


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (np.broadcast_to(np.nan, (10**12, 3)), "a frame of 1,000,000,000,000 rows needs"),
        (np.broadcast_to(np.nan, (10**6, 3)), "marginals of 1,000,000 rows needs"),
    ],
)
def test_rows_that_do_not_fit_into_memory_are_refused(frame, message):
    graph = mg.FactorGraph([10**7] * 3, [])
    with pytest.raises(mg.TooLargeError, match=message):
        mg.infer_many(graph, frame)


def test_rows_of_a_graph_whose_variables_are_all_clamped():
    clamped = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 1.0)]).condition({0: 1, 1: 0})
    answers = mg.infer_many(clamped, {0: [None, 1]}, progress=False)
    assert answers.log_probability.tolist() == [0.0, 0.0]
    assert answers.marginal(0).tolist() == [[0.0, 1.0], [0.0, 1.0]]


@pytest.mark.parametrize(
    "factors", [[mg.Unary([0], [[1e16] * 3])], [mg.Unary([0], [[1e16, 0, 1]])]]
)
def test_probabilities_that_rounding_hides_are_warned_of(factors):
    graph = mg.FactorGraph([3, 2], factors)
    with pytest.warns(UserWarning, match="rounding changes log-odds"):
        mg.infer_many(graph, {0: [1]}, progress=False)
    answer = mg.infer(graph, progress=False)
    with pytest.warns(UserWarning, match="rounding changes log-odds"):
        answer.probability({0: 1})


def test_a_graph_without_possible_states_is_refused():
    table = mg.Table([[0, 1]], np.full((1, 2, 2), -np.inf))
    with pytest.raises(mg.GraphError, match="probability 0"):
        mg.infer_many(mg.FactorGraph([2, 2], [table]), {0: [0, None]}, progress=False)
