"""Observables of whole runs: the same series everywhere, recorded, resumed, saved and printed."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import minigibbs as mg
from minigibbs.cli.main import app
from minigibbs.observables import OBSERVABLES
from minigibbs.observables.reading import decode, encode
from minigibbs.results import report
from minigibbs.running import group
from minigibbs.running import request as asked

QUIET = {"progress": False, "seed": 3}
GRID = mg.models.ising_lattice(side=5, beta=0.3)
READY = {
    "m": "magnetization",
    "distribution": mg.observables.Histogram(bins=4),
    "same": mg.observables.Agreement(np.arange(25) % 2),
    "both": mg.observables.JointEvent({0: 1, 1: 1}),
}


def up(x):
    return x.mean()


ALL = READY | {"up": up}


@pytest.fixture(params=["series", "moments"])
def mode(request, monkeypatch):
    if request.param == "moments":
        monkeypatch.setattr(asked, "_MOST_SERIES", 0)
    return request.param


def same(a, b):
    """Check that two results are bit-identical."""
    assert (a.names, a.labels, a.chains) == (b.names, b.labels, b.chains)
    for name in ("series", "count", "moments", "sums"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_the_series_is_that_of_the_draws():
    run = mg.sample(GRID, sweeps=50, record="draws", observe=ALL, **QUIET)
    np.testing.assert_allclose(run.observables["up"].series, run.draws.mean(axis=2))
    np.testing.assert_array_equal(
        run.observables["both"].series, (run.draws[:, :, :2] == 1).all(axis=2)
    )
    assert run.observables["distribution"].series.shape == (4, 50, 4)


WAVES = {"waves": mg.observables.StructureFactor((5, 5)), "zeros": mg.observables.Count(0)}


@pytest.mark.parametrize("record", ["marginals", "energy", "draws"])
@pytest.mark.parametrize("chains", [1, 3, 18])
@pytest.mark.parametrize("observe", [{"m": "magnetization"}, READY | WAVES, ALL])
def test_the_series_by_colors_does_not_depend_on_what_else_is_kept(record, chains, observe, mode):
    """Sums are counted in layouts of bytes or bits per spin, with some spins clamped."""
    graph = GRID.condition({3: 1, 7: 0, 8: 0})
    options = {"sweeps": 21, "chains": chains, "scan": "chromatic", "observe": observe, **QUIET}
    run = mg.sample(graph, record=mg.Record(record, thin=2), **options)
    whole = mg.sample(graph, record=mg.Record("draws", thin=2), **options)
    same(run.observed, whole.observed)
    m = 2.0 * whole.draws.mean(axis=2) - 1.0
    np.testing.assert_allclose(run.observables["m"].mean, m.mean(), atol=1e-12)
    assert m.std() > 0


def test_a_run_by_colors_that_keeps_observables_alone_resumes_to_the_same_bits(tmp_path, mode):
    options = {"scan": "chromatic", "record": mg.Record("marginals", thin=3), "observe": READY}
    options["warmup"] = 5
    whole = mg.sample(GRID, sweeps=40, chains=2, **options, **QUIET)
    folder = tmp_path / "run.zarr"
    mg.sample(GRID, sweeps=17, chains=2, checkpoint=folder, **options, **QUIET)
    same(mg.resume(folder, sweeps=23, progress=False).observed, whole.observed)


def test_chains_that_were_stopped_at_different_places(tmp_path, mode, monkeypatch):
    """When time is up, chains stop after segments of different length; common records remain."""
    options = {"record": "draws", "observe": {"m": "magnetization", "up": up}, **QUIET}
    mg.sample(GRID, sweeps=20, checkpoint=tmp_path / "run", threads=1, **options)
    original, made = group.Group.run_segment, []

    def run_segment(chain):
        chain.segment = 25 * (len(made) + 1)
        made.append(chain)
        return original(chain)

    monkeypatch.setattr(group.Group, "run_segment", run_segment)
    more = {"progress": False, "threads": 1, "max_time": 1e-9, "observe": {"up": up}}
    run = mg.resume(tmp_path / "run", sweeps=1000, **more)
    assert len(set(run.clock.tolist())) > 1
    if mode == "series":
        np.testing.assert_allclose(run.observables["up"].series, run.draws.mean(axis=2))
    assert np.isfinite(run.observables["m"].mean)


def test_to_observe_changes_no_draw():
    plain = mg.sample(GRID, sweeps=20, record="draws", **QUIET)
    watched = mg.sample(GRID, sweeps=20, record="draws", observe=ALL, **QUIET)
    np.testing.assert_array_equal(plain.draws, watched.draws)


def test_moments_are_those_of_the_series(monkeypatch):
    whole = mg.sample(GRID, sweeps=700, observe=ALL, **QUIET)
    monkeypatch.setattr(asked, "_MOST_SERIES", 0)
    light = mg.sample(GRID, sweeps=700, observe=ALL, **QUIET)
    assert light.observables["m"].series is None
    for name in ALL:
        a, b = whole.observables[name], light.observables[name]
        np.testing.assert_allclose(b.mean, a.mean, rtol=1e-12)
        np.testing.assert_allclose(b.variance, a.variance, rtol=1e-10)
        np.testing.assert_allclose(b.error, a.error, rtol=0.5)  # from other blocks
        np.testing.assert_allclose(b.ess, a.ess, rtol=0.6)
        np.testing.assert_allclose(b.rhat, a.rhat, atol=0.03)


@pytest.mark.parametrize("sampler", ["gibbs", "swendsen-wang", "tempering"])
def test_a_run_cut_and_resumed_is_the_same_to_the_bit(sampler, mode, tmp_path):
    options = {"sampler": sampler, "observe": ALL, "warmup": 20, **QUIET}
    whole = mg.sample(GRID, sweeps=300, **options)
    mg.sample(GRID, sweeps=170, checkpoint=tmp_path / "run", **options)
    resumed = mg.resume(tmp_path / "run", sweeps=130, progress=False, observe={"up": up})
    if mode == "moments" or sampler != "gibbs":
        same(mg.load(tmp_path / "run").observed, resumed.observed)
    assert whole.info.thin == resumed.info.thin
    same(whole.observed, resumed.observed)


def test_processes_give_the_same_bits(mode):
    options = {"sweeps": 120, "observe": READY | {"up": lambda x: x.mean()}, **QUIET}
    here = mg.sample(GRID, **options)
    there = mg.sample(GRID, executor="processes", threads=1, **options)
    same(here.observed, there.observed)


def test_functions_must_be_given_again(tmp_path):
    folder = tmp_path / "run"
    mg.sample(GRID, sweeps=10, observe=ALL, checkpoint=folder, **QUIET)
    with pytest.raises(mg.SampleError, match=r"give observe=\{'up': ...\}"):
        mg.resume(folder, sweeps=5, progress=False)
    with pytest.raises(mg.SampleError, match="does not observe 'down'"):
        mg.resume(folder, sweeps=5, progress=False, observe={"up": up, "down": up})
    with pytest.raises(mg.SampleError, match="'m' was another"):
        mg.resume(folder, sweeps=5, progress=False, observe={"up": up, "m": "energy"})
    with pytest.raises(mg.SampleError, match="'up' was another"):
        mg.resume(folder, sweeps=5, progress=False, observe={"up": lambda x: (x[0], x[1])})
    assert mg.load(folder).observables["up"].series.shape == (4, 10)  # loading needs no function
    again = mg.resume(folder, sweeps=5, progress=False, observe={"up": up})
    assert again.observables["up"].series.shape == (4, 15)


def test_no_function_gets_into_a_file(tmp_path):
    mg.sample(GRID, sweeps=5, observe=ALL, checkpoint=tmp_path / "run", **QUIET)
    for path in (tmp_path / "run").glob("*.npz"):
        with np.load(path, allow_pickle=False) as arrays:
            for name in set(arrays.files) - {"header.json"}:
                assert not isinstance(arrays[name], np.ndarray) or arrays[name].dtype.kind in "iufb"


def test_runs_are_saved_and_loaded(mode, tmp_path):
    run = mg.sample(GRID, sweeps=200, observe=ALL, **QUIET)
    run.save(tmp_path / "run.npz")
    loaded = mg.load(tmp_path / "run.npz")
    same(run.observed, loaded.observed)
    assert list(loaded.observables) == list(ALL)
    assert loaded.observables["m"].error == run.observables["m"].error


@pytest.mark.parametrize("damage", ["series", "count", "names", "width"])
def test_damaged_observables_are_refused(damage, tmp_path):
    run = mg.sample(GRID, sweeps=20, observe=READY, **QUIET)
    observed = run.observed
    changes = {
        "series": {"series": observed.series[:, :5]},
        "count": {"count": -observed.count},
        "names": {"names": ("m",) * 4},
        "width": {"series": observed.series[..., :2]},
    }
    replace(run, observed=replace(observed, **changes[damage])).save(tmp_path / "run.npz")
    with pytest.raises(mg.FormatError):
        mg.load(tmp_path / "run.npz")


@pytest.mark.parametrize("name", sorted(OBSERVABLES))
def test_every_ready_made_one_goes_to_a_file_and_back(name):
    made = {
        "all-hold": {"where": {0: 1, 2: 0}},
        "agreement": {"reference": np.zeros(25, np.uint8)},
        "correlations": {"shape": (5, 5)},
        "structure-factor": {"shape": (5, 5)},
    }
    one = OBSERVABLES[name](**made.get(name, {}))
    arrays = {}
    text = json.dumps(encode(one, 1, arrays))
    back = decode(json.loads(text), arrays)
    states = np.random.default_rng(0).integers(0, 2, (5, 25)).astype(np.uint8)
    results = []
    for each in (one, back):
        measure = each.bind(GRID)
        results.append(np.empty((5, measure.width)))
        measure.evaluate(states, results[-1])
    np.testing.assert_array_equal(*results)
    with pytest.raises(ValueError, match="expected settings"):
        decode(json.loads(text) | {"code": 1}, arrays)


def test_unknown_observables_of_a_file_are_refused():
    with pytest.raises(ValueError, match="unknown observable"):
        decode({"name": "os.system"}, {})


def test_everything_clamped_and_a_single_variable(mode):
    clamped = GRID.condition(dict.fromkeys(range(25), 1))
    run = mg.sample(clamped, sweeps=7, observe=READY, **QUIET)
    assert run.observables["m"].mean == 1.0
    assert run.observables["m"].error == 0.0
    assert np.isnan(run.observables["m"].ess)
    one = mg.FactorGraph([2], [mg.Unary([0], [0.0, 1.0])])
    run = mg.sample(one, sweeps=2000, observe={"up": up}, **QUIET)
    expected = 1 / (1 + np.exp(-1))
    assert abs(run.observables["up"].mean - expected) < 5 * run.observables["up"].error


def test_nothing_recorded_is_nan_and_no_error():
    run = mg.sample(GRID, sweeps=0, observe=READY, **QUIET)
    assert np.isnan(run.observables["m"].mean)
    assert np.isnan(run.observables["m"].error)
    run.summary()


def test_infinite_values_pass_through():
    run = mg.sample(GRID, sweeps=30, observe={"bad": lambda x: 1.0 / (x[0] * 0.0)}, **QUIET)
    assert not np.isfinite(run.observables["bad"].mean)
    str(run.summary())


def test_what_was_not_observed_says_what_was():
    run = mg.sample(GRID, sweeps=3, observe=READY, **QUIET)
    with pytest.raises(
        mg.SampleError, match="did not observe 'q'; it observed m, distribution, same, both"
    ):
        run.observables["q"]
    assert dict(mg.sample(GRID, sweeps=3, **QUIET).observables) == {}


def test_sample_until_and_infer_observe():
    until = mg.sample_until(GRID, ess=100, observe=READY, **QUIET)
    assert until.observables["m"].series.shape[1] * until.info.thin == until.clock[0]
    answer = mg.infer(GRID, observe=READY, **QUIET)
    assert answer.exact
    assert answer.observables["distribution"].data.records == 4000
    both = answer.observables["both"]  # known exactly
    assert both.error == 0.0
    assert abs(both.mean - until.observables["both"].mean) < 0.2
    sampled = mg.infer(GRID, "2s", exact=False, observe={"m": "magnetization"}, **QUIET)
    assert abs(sampled.observables["m"].mean) < 5 * sampled.observables["m"].error + 0.05


def test_summary_report_arviz_and_pandas_show_them():
    pytest.importorskip("arviz_base")
    run = mg.sample(GRID, sweeps=300, observe=ALL, **QUIET)
    text = str(run.summary())
    assert "both" in text
    assert "distribution 0.5 to 1" in text
    assert json.loads(json.dumps(run.summary().to_dict()))["observables"][0]["observable"] == "m"
    page = report.render(run)
    assert "<h2>Observables</h2>" in page
    tree = run.to_arviz()
    np.testing.assert_array_equal(tree["posterior"]["m"].values, run.observables["m"].series)
    assert tree["posterior"]["distribution"].dims == ("chain", "draw", "distribution_part")
    pytest.importorskip("pandas")
    frame = run.observables.to_pandas()
    assert list(frame["observable"]) == ["m", *["distribution"] * 4, "same", "both", "up"]
    assert frame["mean"][0] == run.observables["m"].mean


def test_the_command_line_observes(tmp_path):
    mg.write(GRID, tmp_path / "grid.mg")
    arguments = ["sample", str(tmp_path / "grid.mg"), "--sweeps", "50", "--quiet", "--json"]
    arguments += ["--observe", "magnetization", "--observe", "m2=magnetization:power=2"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["observables"]
    assert [one["observable"] for one in found] == ["magnetization", "m2"]
    wrong = CliRunner().invoke(app, [*arguments, "--observe", "heat"])
    assert wrong.exit_code != 0


def test_a_gpus_rows_are_no_chains():
    """Means over chains have other powers, so derived quantities refuse them."""
    run = mg.sample(GRID, sweeps=50, observe={"m": "magnetization"}, **QUIET)
    pooled = replace(run, observed=replace(run.observed, chains=16))
    with pytest.raises(mg.SampleError, match="means over up to 16 chains"):
        mg.observables.binder(pooled)


def test_the_accumulator_does_not_care_how_records_are_cut():
    from minigibbs.kernels.observe import BATCHES, accumulate, batch_size

    values = np.random.default_rng(0).normal(3.0, 1.0, (1000, 2))

    def taken(cuts):
        arrays = np.zeros(1, np.int64), np.zeros((2, 2)), np.zeros((BATCHES, 2))
        for a, b in itertools.pairwise([0, *cuts, 1000]):
            accumulate(values[a:b], *arrays)
        return arrays

    whole = taken([])
    for cuts in ([1], [127, 128, 129], [500, 501], list(range(1, 1000, 7))):
        for a, b in zip(whole, taken(cuts), strict=True):
            np.testing.assert_array_equal(a, b)
    count, moments, sums = whole
    size = batch_size(1000)
    assert (count[0], size) == (1000, 8)
    np.testing.assert_allclose(moments[0], values.mean(axis=0))
    np.testing.assert_allclose(moments[1], 1000 * values.var(axis=0))
    np.testing.assert_allclose(sums[:125], values.reshape(125, 8, 2).sum(axis=1))
    assert (sums[125:] == 0).all()


def up_to(limit):
    def few(x):
        return x.sum() <= limit

    return few


def test_equal_functions_are_compiled_once():
    """A repeated cell makes an equal function; another closure makes a different one."""
    from minigibbs.observables.own import _dispatchers

    again = [_dispatchers(up_to(3))[0] for _ in range(2)]
    assert again[0] is again[1]
    assert _dispatchers(up_to(4))[0] is not again[0]
    assert _dispatchers(up_to(3.0))[0] is not again[0]
    limits = np.array([3])  # may change in place
    assert _dispatchers(up_to(limits))[0] is not _dispatchers(up_to(limits))[0]
    graph = mg.FactorGraph([2] * 4, [])
    for limit in (0, 4):  # the second must not use the code of the first
        run = mg.sample(graph, sweeps=50, seed=1, observe={"few": up_to(limit)}, progress=False)
        assert (run.observables["few"].mean == 1.0) == (limit == 4)
