"""Marginals as pandas frames."""

import csv

import numpy as np
import pytest
from scipy import stats

import minigibbs as mg
from minigibbs.results import tables
from tests.results.test_diagnostics import unseen
from tests.results.test_run_files import described, sample
from tests.zoo import ZOO

pd = pytest.importorskip("pandas")


def test_one_row_per_variable_and_value():
    run = sample(described(), updates=600)
    frame = run.to_pandas()
    columns = ["variable", "value", "probability", "standard_error", "low", "high"]
    assert list(frame.columns) == columns
    assert len(frame) == 4 + 3 + 2
    for variable in ("height", "sky", "wet"):
        rows = frame[frame["variable"] == variable]
        expected = run.marginal(variable)
        assert tuple(rows["value"]) == expected.values
        np.testing.assert_allclose(rows["probability"], expected.probability)
    by_variable = frame.groupby("variable", observed=True)["probability"].sum()
    np.testing.assert_allclose(by_variable, 1.0)
    assert list(by_variable.index) == ["height", "sky", "wet"]  # order of the graph


def test_standard_errors_come_from_the_chains():
    run = sample(ZOO["potts"], updates=600, chains=5)
    frame = run.to_pandas()
    chains = run.chain_marginals.reshape(5, -1)
    draws = 5 * (600 / 4) / 2  # one draw per two sweeps of each chain
    errors = np.sqrt(chains.var(axis=0, ddof=1) / 5 + unseen(draws))
    np.testing.assert_allclose(frame["standard_error"], errors)
    reach = stats.t(4).ppf(0.975) * errors
    np.testing.assert_allclose(frame["low"], np.maximum(frame["probability"] - reach, 0))
    np.testing.assert_allclose(frame["high"], np.minimum(frame["probability"] + reach, 1))
    alone = sample(ZOO["potts"], updates=600, chains=1).to_pandas()
    assert alone[["standard_error", "low", "high"]].isna().all(axis=None)


@pytest.mark.parametrize("graph", [described(), ZOO["evidence"]], ids=["described", "evidence"])
def test_frame_file_and_run_give_the_same_numbers(graph, tmp_path):
    """CSV has probabilities in full precision and all else to four digits."""
    run = sample(graph, updates=600)
    frame = run.to_pandas()
    tables.write_csv(run, tmp_path / "m.csv")
    with open(tmp_path / "m.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["name"] for row in rows] == list(frame["variable"])
    assert [row["value"] for row in rows] == list(map(str, frame["value"]))
    assert [float(row["probability"]) for row in rows] == list(frame["probability"])
    for column in ("standard_error", "low", "high"):
        assert [row[column] for row in rows] == [f"{number:.4g}" for number in frame[column]]
    inside = np.arange(run.marginals.shape[1]) < run.domains.sizes[:, None]
    np.testing.assert_array_equal(frame["probability"], run.marginals[inside])
    np.testing.assert_array_equal(frame["standard_error"], run.standard_errors[inside])
    ends = np.concatenate([run.interval(v) for v in range(len(run.domains))])
    np.testing.assert_array_equal(frame[["low", "high"]], ends)


def test_standard_errors_are_of_the_right_size():
    """The spread of pooled marginals over 200 runs matches the stated errors within a fifth."""
    graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.3), mg.Unary([0], [0.0, 0.5])])
    exact = mg.exact_marginals(graph).ravel()
    frames = [
        mg.sample(graph, updates=400, seed=seed, chains=8, progress=False).to_pandas()
        for seed in range(200)
    ]
    scores = [(frame["probability"] - exact) / frame["standard_error"] for frame in frames]
    # Student's t with 7 degrees of freedom has variance 7/5. Its estimate from 200 runs has a
    # standard deviation of about 15%, so these bounds are 4 standard deviations away.
    assert 0.5 < np.var(scores, axis=0).mean() / 1.4 < 1.7


def test_wide():
    run = sample(ZOO["potts"], updates=600)
    frame = run.to_pandas(wide=True)
    np.testing.assert_allclose(frame.to_numpy(), run.marginals)
    assert list(frame.index) == ["x0", "x1", "x2", "x3"]
    assert list(frame.columns) == [0, 1, 2]
    assert frame.loc["x2", 1] == run.marginals[2, 1]
    mixed = sample(described(), updates=600).to_pandas(wide=True)
    assert mixed.loc["sky"].dropna().index.tolist() == ["blue", "gray", "black"]


def test_labels_may_be_tuples():
    graph = mg.FactorGraph([2, 2], [], labels={0: [(0, 1), (1, 0)], 1: [(0, 1), "other"]})
    frame = mg.sample(graph, updates=50, seed=1, progress=False).to_pandas(wide=True)
    assert list(frame.columns) == [(0, 1), (1, 0), "other"]


def test_lattices():
    graph = mg.models.potts_lattice(side=3, states=2, beta=0.3)
    run = mg.sample(graph, updates=500, seed=1, progress=False)
    frame = run.to_pandas(shape=(3, 3))
    columns = ["row", "column", "value", "probability", "standard_error", "low", "high"]
    assert list(frame.columns) == columns
    rows = frame[(frame["row"] == 1) & (frame["column"] == 2)]
    np.testing.assert_allclose(rows["probability"], run.marginals[1 * 3 + 2])
    wide = run.to_pandas(wide=True, shape=(3, 3))
    assert wide.index.names == ["row", "column"]
    np.testing.assert_allclose(wide.loc[(1, 2)], run.marginals[5])
    np.testing.assert_allclose(wide[1].unstack("column"), run.marginals[:, 1].reshape(3, 3))
    assert list(run.to_pandas(shape=(9,)).columns[:2]) == ["axis0", "value"]


@pytest.mark.parametrize("shape", [(3, 4), (-3, -3), (4.5, 2), ()])
def test_a_shape_that_does_not_fit(shape):
    run = sample(mg.models.ising_lattice(3, 0.1), updates=20)
    with pytest.raises(mg.SampleError, match=r"shape must be (that of 9 variables|a list)"):
        run.to_pandas(shape=shape)


def test_a_run_without_marginals():
    with pytest.raises(mg.SampleError, match="marginals"):
        sample(ZOO["potts"], updates=40, record="energy").to_pandas()
