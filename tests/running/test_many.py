"""A series of models in one call."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.running import many
from tests.running.test_executors import Elsewhere

QUIET = {"progress": False, "seed": 1}
GRAPHS = {beta: mg.models.ising_lattice(side=5, beta=beta) for beta in (0.1, 0.3, 0.5)}
OBSERVE = {"m": mg.observables.Magnetization(absolute=True), "e": "energy"}


@pytest.fixture(scope="module")
def runs():
    return mg.sample_many(GRAPHS, sweeps=300, observe=OBSERVE, **QUIET)


def test_every_model_is_sampled_with_a_seed_of_its_own(runs):
    assert runs.at.tolist() == [0.1, 0.3, 0.5]
    assert len({run.info.seed for run in runs}) == 3
    again = mg.sample_many(list(GRAPHS.values()), sweeps=300, observe=OBSERVE, **QUIET)
    for one, other in zip(runs, again, strict=True):
        np.testing.assert_array_equal(one.state, other.state)
    assert again.at.tolist() == [0, 1, 2]
    alone = mg.sample(GRAPHS[0.3], sweeps=300, seed=runs[1].info.seed, progress=False)
    np.testing.assert_array_equal(alone.state, runs[1].state)


def test_models_may_go_on_from_the_one_before():
    follow = mg.sample_many(GRAPHS, sweeps=0, start="last", **QUIET)
    np.testing.assert_array_equal(follow[0].state, follow[2].state)
    apart = mg.sample_many(GRAPHS, sweeps=0, **QUIET)
    assert (apart[0].state != apart[2].state).any()


def test_the_frame_has_a_row_for_each_number(runs):
    pytest.importorskip("pandas")
    frame = runs.frame(binder=mg.observables.binder)
    assert list(frame["observable"]) == ["m", "e", "binder"] * 3
    assert frame["mean"][0] == runs[0].observables["m"].mean
    assert frame["error"][5] == mg.observables.binder(runs[1]).error


def test_plots_show_what_was_estimated(runs, tmp_path):
    pytest.importorskip("matplotlib")
    for what in (None, "e", mg.observables.binder):
        figure = runs.plot(what)
        line = figure.axes[0].lines[0]
        values = [one.value for one in runs.estimates(what or "m")]
        np.testing.assert_allclose(line.get_ydata(), values)
        np.testing.assert_allclose(line.get_xdata(), runs.at)
    runs.plot("m", path=tmp_path / "m.png")
    assert (tmp_path / "m.png").stat().st_size > 1000
    with pytest.raises(mg.SampleError, match="axes must be those of Matplotlib, got an array"):
        runs.plot("m", axes=np.zeros(2))
    with pytest.raises(mg.SampleError, match="observed nothing"):
        mg.sample_many(GRAPHS, sweeps=1, **QUIET).plot()


def test_what_is_no_model_or_no_option_is_refused(tmp_path):
    with pytest.raises(mg.SampleError, match=r"got 3 \(int\) at position 1"):
        mg.sample_many([GRAPHS[0.1], 3], **QUIET)
    with pytest.raises(mg.SampleError, match="a checkpoint is of one run"):
        mg.sample_many(GRAPHS, checkpoint=tmp_path / "run", **QUIET)
    with pytest.raises(mg.SampleError, match="'sweep' is not an option; it takes those"):
        mg.sample_many(GRAPHS, sweep=3, **QUIET)
    assert len(mg.sample_many([], **QUIET)) == 0


def test_a_series_whose_runs_do_not_fit_is_refused_after_the_first(monkeypatch):
    monkeypatch.setattr("minigibbs.system.memory.available", lambda: 2**22)
    with pytest.raises(mg.TooLargeError, match=r"sample_many.*1,000 models.*fewer models"):
        mg.sample_many([GRAPHS[0.1]] * 1000, sweeps=5, **QUIET)


def alike(runs, others):
    """Compare all states and observables of two series."""
    assert runs.at.tolist() == others.at.tolist()
    for run, other in zip(runs, others, strict=True):
        np.testing.assert_array_equal(run.state, other.state)
        np.testing.assert_array_equal(run.counts, other.counts)
        assert run.observables["m"].mean == other.observables["m"].mean


def test_executors_give_the_same_series(runs):
    """An executor in this process, own processes, and models that follow each other."""
    there = Elsewhere()
    alike(runs, mg.sample_many(GRAPHS, sweeps=300, observe=OBSERVE, executor=there, **QUIET))
    assert len(there.memories[0].keys() | there.memories[1].keys()) == len(GRAPHS)  # model by model
    options = {"sweeps": 300, "observe": OBSERVE, "executor": "processes", "threads": 2}
    alike(runs, mg.sample_many(GRAPHS, **options, **QUIET))
    follow = {"sweeps": 20, "start": "last", "observe": OBSERVE, "chains": 2, **QUIET}
    alike(mg.sample_many(GRAPHS, **follow), mg.sample_many(GRAPHS, executor=there, **follow))


def test_models_run_at_the_same_time_on_an_executor(monkeypatch):
    """Every model waits until all have begun."""
    all_begun, run = Barrier(len(GRAPHS), timeout=100), many._Series.run

    def together(series, number, **options):
        all_begun.wait()
        return run(series, number, **options)

    monkeypatch.setattr(many._Series, "run", together)
    with ThreadPoolExecutor(2) as pool:
        assert len(mg.sample_many(GRAPHS, sweeps=5, executor=pool, **QUIET)) == len(GRAPHS)


def test_an_error_of_one_model_ends_the_others():
    """The others would run for hours."""
    one = mg.FactorGraph([3] * 25, [mg.Potts([0], [1], 1.0)])
    options = {"sweeps": 10**9, "record": (), "observe": OBSERVE, **QUIET}
    with (
        ThreadPoolExecutor(2) as pool,
        pytest.raises(mg.SampleError, match="variables of 2 values"),
    ):
        mg.sample_many([GRAPHS[0.1], GRAPHS[0.3], one], executor=pool, **options)
    with pytest.raises(mg.SampleError, match=r"executor must be a concurrent\.futures\.Executor"):
        mg.sample_many(GRAPHS, executor="mpi", **QUIET)


class Signaling(ThreadPoolExecutor):
    """Sends a signal to this process after some segments."""

    count = 0

    def submit(self, *arguments, **options):
        self.count += 1
        if self.count == 60:
            os.kill(os.getpid(), signal.SIGINT)
        return super().submit(*arguments, **options)


def test_a_signal_ends_all_models_with_their_results():
    with Signaling(2) as pool:
        runs = mg.sample_many(GRAPHS, sweeps=10**8, chains=1, record=(), executor=pool, **QUIET)
    assert 0 < len(runs) <= len(GRAPHS)
    assert all(run.interrupted and run.info.warmup for run in runs)
