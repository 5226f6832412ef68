"""ArviZ functions work on our runs without changes."""

import warnings

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.results import diagnostics
from tests.results.test_run_files import described, sample
from tests.zoo import ZOO

arviz_base = pytest.importorskip("arviz_base")
pytest.importorskip("xarray")
arviz_stats = pytest.importorskip("arviz_stats")


def test_indicators_are_named_after_variables_and_labels():
    run = sample(described(), updates=900)
    tree = run.to_arviz(indicators=True)
    indicator = tree["posterior"]["indicator"]
    assert indicator.dims == ("chain", "draw", "event")
    events = indicator.coords["event"].values.tolist()
    assert {"sky=blue", "sky=gray", "sky=black", "wet=10", "wet=20", "height=-1.0"} <= set(events)
    np.testing.assert_array_equal(indicator.sel(event="sky=gray"), run.draws[:, :, 1] == 1)
    np.testing.assert_array_equal(tree["posterior"]["x"].sel(node="sky"), run.draws[:, :, 1])


def test_events_that_tell_nothing_are_left_out():
    run = sample(described().condition({"sky": "gray"}), updates=900)
    events = run.to_arviz(indicators=True)["posterior"].coords["event"].values
    assert not any(event.startswith("sky=") for event in events)
    assert {"wet=10", "wet=20"} <= set(events)


def test_draws_are_signed():
    """ArviZ subtracts draws; 0 - 1 in an unsigned type would be 255."""
    run = sample(ZOO["potts"], updates=400)
    assert run.draws.dtype == np.uint8
    x = run.to_arviz()["posterior"]["x"]
    assert np.issubdtype(x.dtype, np.signedinteger)
    np.testing.assert_array_equal(x, run.draws)


SERIES = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "rare": lambda rng, shape: (rng.random(shape) < rng.random()) * 1.0,
    "walks": lambda rng, shape: rng.normal(size=shape).cumsum(axis=1),
    "apart": lambda rng, shape: rng.integers(0, 3, shape) + rng.integers(0, 2, (shape[0], 1)) * 1.0,
    "waves": lambda rng, shape: np.sin(np.arange(shape[1])) + 0.01 * rng.normal(size=shape),
}


@pytest.mark.parametrize("kind", SERIES)
def test_our_own_ess_and_rhat_are_those_of_arviz(kind):
    from arviz_stats.base import array_stats

    rng, axes = np.random.default_rng(1), {"chain_axis": 0, "draw_axis": 1}
    for _ in range(60):
        series = SERIES[kind](rng, (int(rng.integers(1, 9)), int(rng.integers(4, 120))))
        if (series == series[0, 0]).all() or np.isinf(diagnostics.rhat(series)):
            continue  # constant chains have their own results
        with np.errstate(all="ignore"):
            expected = (
                array_stats.ess(series, **axes),
                array_stats.ess(series, method="mean", **axes),
                array_stats.rhat(series, **axes),
            )
        found = diagnostics.ess(series), diagnostics.ess_of_mean(series), diagnostics.rhat(series)
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_series_are_judged_together_as_alone(monkeypatch):
    series = np.random.default_rng(2).normal(size=(3, 50, 7)).cumsum(axis=1)
    series[:, :, 4] = 1.0  # constant
    series[0, 3, 5] = np.nan
    monkeypatch.setattr(diagnostics, "_TOGETHER", 3 * 50 * 2)
    for function in (diagnostics.ess, diagnostics.ess_of_mean, diagnostics.rhat):
        alone = [function(series[:, :, k]) for k in range(7)]
        np.testing.assert_allclose(function(series), alone, rtol=1e-12)
        assert np.isnan(alone).tolist() == [False] * 4 + [True] * 2 + [False]


def test_summary_ess_and_rhat():
    from arviz_stats.base import array_stats

    run = sample(ZOO["potts"], sweeps=300)
    tree = run.to_arviz(indicators=True)
    frame = arviz_stats.summary(tree, var_names=["indicator"], round_to="none")
    ess, rhat = arviz_stats.ess(tree), arviz_stats.rhat(tree)
    for variable in range(4):
        for value in range(3):
            series = (run.draws[:, :, variable] == value).astype(float)
            event = f"x{variable}={value}"
            expected = array_stats.ess(series, chain_axis=0, draw_axis=1)
            assert float(ess["indicator"].sel(event=event)) == pytest.approx(expected)
            assert float(frame.loc[f"indicator[{event}]", "mean"]) == pytest.approx(series.mean())
            expected = array_stats.rhat(series, chain_axis=0, draw_axis=1)
            assert float(rhat["indicator"].sel(event=event)) == pytest.approx(expected)
    energy = arviz_stats.summary(tree, group="sample_stats", round_to="none")
    assert float(energy.loc["lp", "mean"]) == pytest.approx(-run.energy.mean())
    assert len(arviz_stats.summary(run.to_arviz())) == 4  # without indicators: the draws


@pytest.fixture(scope="module")
def arviz_plots():
    """Return arviz-plots if it is compatible with the installed Matplotlib and xarray."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    draws = np.random.default_rng(0).normal(size=(4, 50))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = pytest.importorskip("arviz_plots")
            module.plot_trace(arviz_base.from_dict({"posterior": {"mu": draws}}))
    except Exception as error:  # raised for a tree that is not ours
        pytest.skip(f"arviz-plots does not work here: {error}")
    yield module
    matplotlib.pyplot.close("all")


@pytest.mark.filterwarnings("ignore")  # arviz-plots warns about its own dependencies
@pytest.mark.parametrize("name", ["plot_trace", "plot_rank", "plot_dist", "plot_autocorr"])
def test_plots(arviz_plots, name):
    tree = sample(described(), updates=150).to_arviz(indicators=True)
    drawn = getattr(arviz_plots, name)(tree, var_names=["indicator"], coords={"event": "sky=gray"})
    assert "indicator" in drawn.viz["plot"]
    getattr(arviz_plots, name)(tree, group="sample_stats")


def test_indicators_need_draws():
    run = sample(ZOO["potts"], updates=40, record="energy")
    assert "lp" in run.to_arviz()["sample_stats"]
    with pytest.raises(mg.SampleError, match="draws"):
        run.to_arviz(indicators=True)
