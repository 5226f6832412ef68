"""Plots of runs have the correct contents; notebooks display runs and graphs."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.results.plots import correlations

pytest.importorskip("matplotlib")
GRID = mg.models.ising_lattice(side=6, beta=0.3)
DISTRIBUTION = mg.observables.Histogram(bins=6)
RUN = mg.sample(
    GRID,
    sweeps=300,
    seed=1,
    observe={"m": "magnetization", "distribution": DISTRIBUTION},
    progress=False,
)


def data(axes):
    return [(line.get_xdata(), line.get_ydata()) for line in axes.lines]


def test_traces_are_the_series():
    energy, m = RUN.plot_trace().axes
    for axes, updates, series in (
        (energy, RUN.energy_updates, RUN.energy),
        (m, RUN.record_updates, RUN.observables["m"].series),
    ):
        assert len(axes.lines) == 4
        for (x, y), values in zip(data(axes), series, strict=True):
            np.testing.assert_array_equal(x, updates)
            np.testing.assert_array_equal(y, values)
    assert len(RUN.plot_trace("distribution").axes) == 6
    with pytest.raises(mg.SampleError, match="did not observe 'q'"):
        RUN.plot_trace("q")


def test_autocorrelations_are_those_of_the_definition():
    series = np.random.default_rng(0).normal(size=(3, 50)).cumsum(axis=1)
    away = series - series.mean()
    expected = [np.mean(away[:, : 50 - t] * away[:, t:]) for t in range(8)]
    np.testing.assert_allclose(correlations(series, 7), np.array(expected) / expected[0])
    assert (correlations(np.ones((2, 9)), 3) == 1).all()
    (axes,) = RUN.plot_autocorrelation("m", lags=20).axes
    np.testing.assert_allclose(data(axes)[0][1], correlations(RUN.observables["m"].series, 20))


def test_marginals_of_lattices_are_images():
    axes = RUN.plot_marginals(shape=(6, 6)).axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), RUN.marginals[:, 1].reshape(6, 6))
    assert RUN.plot_marginals().axes[0].images[0].get_array().shape == (2, 36)
    with pytest.raises(mg.SampleError, match="shape must be that of 36"):
        RUN.plot_marginals(shape=(5, 6))
    with pytest.raises(mg.SampleError, match="value must be 0 to 1"):
        RUN.plot_marginals(shape=(6, 6), value=2)


def test_observables_are_drawn_with_their_errors(tmp_path):
    left, right = RUN.plot_observable("m", path=tmp_path / "m.svg").axes
    assert len(left.lines) == 4
    assert f"{RUN.observables['m'].mean:.6g}" in right.get_title()
    assert (tmp_path / "m.svg").read_text().startswith("<?xml")
    (axes,) = RUN.plot_observable("distribution").axes
    np.testing.assert_array_equal(data(axes)[0][1], RUN.observables["distribution"].mean)


def test_runs_that_kept_nothing_say_so():
    bare = mg.sample(GRID, sweeps=3, record="marginals", progress=False)
    for draw in (bare.plot_trace, bare.plot_autocorrelation):
        with pytest.raises(mg.SampleError, match="nothing to draw"):
            draw()


def test_notebooks_show_runs_and_graphs():
    shown = RUN._repr_html_()
    assert "<table" in shown
    assert "energy R-hat" in shown
    assert "&lt;Run: 4 chains" in shown
    named = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)]).condition({0: 1})
    assert "<td>1</td>" in named._repr_html_()
    assert "ising factors" in named._repr_html_()


def test_notebooks_show_every_result_as_a_table():
    pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5, name="J")], names=["<a>", "b"])
    answer = mg.infer(pair)
    assert "log Z" in answer._repr_html_()
    assert "&lt;a&gt;" in answer._repr_html_()
    best = mg.maximize(pair, rounds=3, seed=1, progress=False)
    assert "reached by" in best._repr_html_()
    fit = mg.learn(pair, [[0, 0], [1, 1], [0, 1]], method="exact", progress=False)
    assert ">J<" in fit._repr_html_()
    assert "energy R-hat" in RUN.summary()._repr_html_()
    runs = mg.sample_many(
        {0.25: GRID}, sweeps=40, seed=1, observe={"m": "magnetization"}, progress=False
    )
    shown = runs._repr_html_()
    assert ">0.25<" in shown
    assert ">m<" in shown


def test_spins_are_signed():
    run = mg.sample(GRID, sweeps=20, seed=1, record="draws", progress=False)
    assert run.spins.dtype == np.int8
    np.testing.assert_array_equal(run.spins, 2 * run.draws.astype(int) - 1)
    assert -1 <= run.spins.mean() <= 1
    three = mg.FactorGraph([3, 2], [mg.Unary([0], [[0.0, 0.0, 0.0]])])
    with pytest.raises(mg.SampleError, match="variable 0 has 3"):
        mg.sample(three, sweeps=3, record="draws", progress=False).spins  # noqa: B018


def test_save_writes_what_the_name_says(tmp_path):
    answer = mg.infer(GRID)
    answer.save(tmp_path / "answer.csv")
    RUN.save(tmp_path / "run.csv")
    for name in ("answer.csv", "run.csv"):
        assert (tmp_path / name).read_text().startswith("variable,name,value,probability")
    for result in (answer, RUN):
        with pytest.raises(mg.SampleError, match=r"does not write \.html files; use report"):
            result.save(tmp_path / "page.html")
        with pytest.raises(
            mg.SampleError, match=r"does not write \.txt files; use an ending in .csv"
        ):
            result.save(tmp_path / "page.txt")
    RUN.save(tmp_path / "a.run")
    assert mg.load(tmp_path / "a.run").info.chains == RUN.info.chains


def test_curves_of_several_sizes_share_a_plot():
    figure = None
    for side in (4, 6):
        graphs = {beta: mg.models.ising_lattice(side, beta) for beta in (0.4, 0.48)}
        observe = {"m": "magnetization"}
        runs = mg.sample_many(graphs, sweeps=100, seed=1, observe=observe, progress=False)
        axes = None if figure is None else figure.axes[0]
        figure = runs.plot(mg.observables.binder, axes=axes, curve=f"side {side}")
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["side 4", "side 6"]
    assert len(axes.containers) == 2
