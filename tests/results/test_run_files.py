"""Run files: saved, loaded, summarized, converted to ArviZ."""

import dataclasses
import io
import json
import os
import zipfile

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.results import diagnostics
from minigibbs.results.marginals import RHAT_LIMIT
from minigibbs.system import files
from tests import harness, naive
from tests.system.test_files import header, members, npy, rewrite
from tests.zoo import ZOO

EVERYTHING = ("marginals", "draws", "energy")
ARRAYS = (
    *("clock", "counts", "visits", "kept_draws", "energy", "error", "reference", "state"),
    *("drawn", "clamped"),
)


def sample(graph, **options):
    return harness.sample(graph, **{"seed": 7, "progress": False, "record": EVERYTHING, **options})


def described():
    grid = mg.Grid(-1.0, 1.0, 4)
    return mg.FactorGraph(
        [grid, 3, 2],
        [mg.Table.from_function([0], lambda a: a, [grid]), mg.Potts([1], [2], 0.1)],
        names=["height", "sky", "wet"],
        labels={"sky": ["blue", "gray", "black"], "wet": np.array([10, 20])},
    )


def same_runs(a, b):
    assert a.info == b.info
    for name in ARRAYS:
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None)
        if left is not None:
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(a.domains.sizes, b.domains.sizes)
    assert a.domains.names == b.domains.names
    assert a.domains.labels == b.domains.labels
    assert a.domains.grids == b.domains.grids


def test_round_trip_of_everything(tmp_path):
    graph = described()
    run = sample(graph, updates=300, reference=naive.marginals(graph))
    run.save(tmp_path / "run.mgr")
    got = mg.load(tmp_path / "run.mgr")
    same_runs(run, got)
    assert got.marginal("height").values == run.marginal("height").values
    assert got.marginal("sky").values == ("blue", "gray", "black")
    assert got.marginal("wet").values == (10, 20)
    assert got.marginal_error == run.marginal_error
    assert got.summary() == run.summary()
    assert os.listdir(tmp_path) == ["run.mgr"]


@pytest.mark.parametrize("record", ["marginals", "draws", "energy", ()])
def test_round_trip_of_parts(tmp_path, record):
    run = sample(ZOO["mixed"], updates=100, record=record)
    run.save(str(tmp_path / "run"))
    same_runs(run, mg.load(str(tmp_path / "run")))


def test_round_trip_of_a_run_without_records(tmp_path):
    run = sample(ZOO["mixed"], updates=0)
    run.save(tmp_path / "run")
    same_runs(run, mg.load(tmp_path / "run"))


def test_round_trip_of_a_run_asked_for_in_numpy_integers(tmp_path):
    options = {"updates": 60, "warmup": 4, "thin": 3, "chains": 2, "seed": 5}
    run = sample(ZOO["potts"], **{name: np.int64(value) for name, value in options.items()})
    run.save(tmp_path / "run")
    same_runs(run, mg.load(tmp_path / "run"))


def test_saving_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "run.mgr"
    run = sample(ZOO["potts"], updates=40)
    run.save(path)
    before = path.read_bytes()

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(np.lib.format, "write_array", fail)
    with pytest.raises(OSError, match="disk full"):
        sample(ZOO["potts"], updates=80).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.mgr"]


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "run.mgr"
    graph = ZOO["potts"]
    sample(graph, updates=40, chains=2, reference=naive.marginals(graph)).save(path)
    return path


def info(path, **changes):
    changed = {**json.loads(members(path)["header.json"])["info"], **changes}
    return header(path, info={name: value for name, value in changed.items() if value is not None})


DAMAGE = {
    "no header": lambda p: {"header.json": None},
    "header that is no JSON": lambda p: {"header.json": b"{"},
    "a model": lambda p: {"header.json": header(p, format="minigibbs-model-1")},
    "no info": lambda p: {"header.json": header(p, info=None)},
    "too little info": lambda p: {"header.json": info(p, seed=None)},
    "too much info": lambda p: {"header.json": info(p, color="red")},
    "chains that are not there": lambda p: {"header.json": info(p, chains=3)},
    "labels in a list": lambda p: {"header.json": header(p, labels=[1])},
    "grids in a list": lambda p: {"header.json": header(p, grids=[1])},
    "too few names": lambda p: {"header.json": header(p, names=["a"])},
    "grid of another size": lambda p: {"header.json": header(p, grids={"0": [0.0, 1.0, 99]})},
    "no sizes": lambda p: {"sizes.npy": None},
    "no clock": lambda p: {"clock.npy": None},
    "other sizes": lambda p: {"sizes.npy": npy([3, 3, 3])},
    "counts of another shape": lambda p: {"counts.npy": npy(np.zeros((2, 5), np.int64))},
    "counts as text": lambda p: {"counts.npy": npy(np.full((2, 12), "a"))},
    "reference of another shape": lambda p: {"reference.npy": npy(np.zeros(5))},
    "draws of another shape": lambda p: {"draws.npy": npy(np.zeros((2, 10, 3), np.uint8))},
    "draws of other chains": lambda p: {"draws.npy": npy(np.zeros((1, 10, 4), np.uint8))},
    "draws out of domain": lambda p: {"draws.npy": npy(np.full((2, 10, 4), 9, np.uint8))},
    "energy of another shape": lambda p: {"energy.npy": npy(np.zeros((2, 11)))},
    "error of another shape": lambda p: {"error.npy": npy(np.zeros(10))},
    "a clock of two axes": lambda p: {"clock.npy": npy(np.zeros((2, 1), np.int64))},
    "an array cut short": lambda p: {"energy.npy": npy(np.zeros((2, 10)))[:-8]},
    "a pickle": lambda p: {"energy.npy": npy(np.array([[{}] * 10] * 2, dtype=object))},
    "an oversized claim": lambda p: {
        "energy.npy": npy(np.zeros((2, 10))).replace(b"(2, 10), }     ", b"(2, 1000000), }")
    },
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_runs_are_refused(saved, case):
    before = members(saved)
    rewrite(saved, DAMAGE[case](saved))
    assert members(saved) != before
    with pytest.raises(mg.FormatError, match=r"run\.mgr"):
        mg.load(saved)


def test_no_code_in_a_file_is_ever_run(saved, tmp_path):
    class Bomb:
        def __reduce__(self):
            return open, (str(tmp_path / "exploded"), "w")

    rewrite(saved, {"energy.npy": npy(np.array([Bomb()], dtype=object))})
    with pytest.raises(mg.FormatError):
        mg.load(saved)
    assert not (tmp_path / "exploded").exists()


def test_compressed_runs_are_refused(saved):
    rewrite(saved, {}, zipfile.ZIP_DEFLATED)
    with pytest.raises(mg.FormatError, match="compressed"):
        mg.load(saved)


def test_rewriting_alone_does_no_damage(saved):
    """Guard of the tests above."""
    before = mg.load(saved)
    rewrite(saved, {})
    same_runs(before, mg.load(saved))


def test_truncated_runs_are_refused(saved):
    whole = saved.read_bytes()
    for length in range(0, len(whole), 97):
        saved.write_bytes(whole[:length])
        with pytest.raises(mg.FormatError):
            mg.load(saved)


def test_no_flipped_byte_does_worse_than_a_refusal(saved):
    """For each byte the file is either read unchanged or rejected; nothing else may happen."""
    whole, run, refused = saved.read_bytes(), mg.load(saved), 0
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 0xFF
        saved.write_bytes(flipped)
        try:
            got = mg.load(saved)
        except mg.FormatError:
            refused += 1
        else:
            same_runs(run, got)
    assert refused > len(whole) / 2


def test_a_file_is_not_read_into_memory_that_is_not_there(saved, monkeypatch):
    monkeypatch.setattr(files.memory, "available", lambda: 100)
    monkeypatch.setattr(files.memory, "HARMLESS", 100)
    with pytest.raises(mg.TooLargeError, match=r"run\.mgr"):
        mg.load(saved)


def stuck(**options):
    """Two states that exclude each other: chains never leave their first state."""
    graph = mg.FactorGraph([2] * 3, [mg.Ising([0, 1, 2], [1, 2, 0], 30.0)], names=list("abc"))
    starts = [[0, 0, 0], [0, 0, 0], [1, 1, 1], [1, 1, 1]]
    return sample(graph, sweeps=100, start=starts, **options)


def test_summary_of_a_good_run():
    run = sample(ZOO["potts"], sweeps=4000, reference=naive.marginals(ZOO["potts"]))
    summary = run.summary()
    assert summary.chains == 4
    assert summary.updates == 4 * 4000 * 4
    assert summary.energy_mean == run.energy.mean()
    assert summary.marginal_error == run.marginal_error
    assert summary.warnings == ()
    # 4,000 nearly independent draws: over seeds R-hat stays within about 0.001 of 1 and the ESS
    # near 3,000. These limits are ten and several standard deviations away; false-alarm rate far
    # below 1e-4.
    assert summary.energy_rhat == pytest.approx(1.0, abs=RHAT_LIMIT - 1)
    assert summary.value_rhat == pytest.approx(1.0, abs=RHAT_LIMIT - 1)
    assert 400 < summary.energy_ess < 8000
    assert 400 < summary.value_ess < 8000
    assert summary.worst_variable in {"x0", "x1", "x2", "x3"}


def test_summary_agrees_with_arviz():
    from arviz_stats.base import array_stats

    run = sample(ZOO["potts"], sweeps=200, scan="random")
    summary = run.summary()
    assert summary.energy_ess == pytest.approx(
        array_stats.ess(run.energy, chain_axis=0, draw_axis=1)
    )
    assert summary.energy_rhat == pytest.approx(
        array_stats.rhat(run.energy, chain_axis=0, draw_axis=1)
    )
    ess, rhat = [], []
    for variable in range(4):
        for value in range(3):
            series = (run.draws[:, :, variable] == value).astype(float)
            ess.append(array_stats.ess(series, chain_axis=0, draw_axis=1))
            rhat.append((array_stats.rhat(series, chain_axis=0, draw_axis=1), f"x{variable}"))
    assert summary.value_ess == pytest.approx(min(ess))
    assert (summary.value_rhat, summary.worst_variable) == (
        pytest.approx(max(rhat)[0]),
        max(rhat)[1],
    )


def test_summary_warns_of_stuck_chains():
    run = stuck()
    assert (run.draws == run.draws[:, :1]).all()  # the chains never move
    summary = run.summary()
    assert summary.value_rhat == np.inf
    assert summary.worst_variable in {"a", "b", "c"}
    assert any("disagree on a" in warning for warning in summary.warnings)
    assert "warning: the chains disagree" in str(summary)
    assert summary.to_dict()["value_rhat"] == "inf"


def test_summary_warns_of_energies_that_differ():
    graph = mg.FactorGraph([2] * 2, [mg.Ising([0], [1], 30.0), mg.Unary([0], [0.0, 3.0])])
    run = sample(graph, updates=400, start=[[0, 0], [0, 0], [1, 1], [1, 1]], record="energy")
    summary = run.summary()
    assert summary.value_rhat is None
    assert summary.energy_rhat == np.inf
    assert any("disagree on the energy" in warning for warning in summary.warnings)


def test_summary_warns_of_an_interruption():
    run = sample(ZOO["potts"], sweeps=200)
    cut = dataclasses.replace(run, info=dataclasses.replace(run.info, interrupted=True))
    assert any("interrupted" in warning for warning in cut.summary().warnings)
    assert cut.interrupted


@pytest.mark.parametrize("updates", [0, 1, 3])
def test_summary_of_a_run_too_short_to_judge(updates):
    summary = sample(ZOO["potts"], updates=updates, thin=1).summary()
    assert summary.value_rhat is None or np.isnan(summary.value_rhat)
    assert summary.value_ess is None or np.isnan(summary.value_ess)
    assert summary.worst_variable in {None, "x0", "x1", "x2", "x3"}
    assert "inf" not in str(summary)
    json.dumps(summary.to_dict(), allow_nan=False)


@pytest.mark.parametrize("record", [EVERYTHING, ("marginals",), ("energy",), ("draws",)])
def test_summary_is_fit_for_json_and_for_people(record):
    run = sample(ZOO["mixed"], updates=600, record=record)
    summary = run.summary()
    got = json.loads(json.dumps(summary.to_dict(), allow_nan=False))
    assert got["updates"] == 2400
    assert got["warnings"] == list(summary.warnings)
    text = str(summary)
    assert "4 x 600" in text
    assert ("mean energy" in text) == ("energy" in record)
    assert ("least value ESS" in text) == ("draws" in record)


def test_rhat_and_ess_of_series_that_tell_nothing():
    assert np.isnan(diagnostics.rhat(np.ones((4, 100))))
    assert np.isnan(diagnostics.ess(np.ones((4, 100))))
    assert np.isnan(diagnostics.rhat(np.arange(6.0).reshape(2, 3)))
    both = np.stack([np.ones((2, 50)), np.repeat([[0.0], [1.0]], 50, axis=1)], axis=-1)
    assert np.isnan(diagnostics.rhat(both)[0])
    assert diagnostics.rhat(both)[1] == np.inf


def test_to_arviz():
    pytest.importorskip("arviz_base")
    run = sample(described(), updates=300)
    tree = run.to_arviz()
    x = tree["posterior"]["x"]
    assert x.dims == ("chain", "draw", "node")
    assert x.coords["node"].values.tolist() == ["height", "sky", "wet"]
    np.testing.assert_array_equal(x.values, run.draws)
    np.testing.assert_array_equal(tree["sample_stats"]["lp"].values, -run.energy)
    unnamed = sample(ZOO["potts"], updates=40, record="draws").to_arviz()
    assert unnamed["posterior"].coords["node"].values.tolist() == ["x0", "x1", "x2", "x3"]
    with pytest.raises(mg.SampleError, match="draws"):
        sample(ZOO["potts"], updates=40, record="marginals").to_arviz()


def test_draws_that_were_not_recorded_are_refused_by_name():
    run = sample(ZOO["potts"], updates=40, record="marginals")
    for ask in (lambda: run.draws.mean(), lambda: run.draws_of(0)):
        with pytest.raises(mg.SampleError, match=r'kept no draws; sample with record=\("draws",\)'):
            ask()
    assert run.kept_draws is None


def test_repr_says_what_was_kept():
    text = repr(sample(ZOO["potts"], updates=40, record=("draws", "energy")))
    assert "4 chains, 160 updates of 4 variables by PoissonGibbs()" in text
    assert "draws" in text
    assert "marginals" not in text


@pytest.mark.parametrize("seed", [0, 2**53 + 1, 2**128 - 1])
def test_seeds_of_any_size_come_through_files_and_json(tmp_path, seed):
    """Most JSON readers are exact up to 2^53, so a seed is written as text."""
    run = sample(ZOO["potts"], updates=40, seed=seed)
    run.save(tmp_path / "run")
    assert json.loads(members(tmp_path / "run")["header.json"])["info"]["seed"] == str(seed)
    assert mg.load(tmp_path / "run").info.seed == seed
    assert json.loads(json.dumps(run.summary().to_dict()))["seed"] == str(seed)
    assert ("seed", str(seed)) in run.summary().rows()


def test_a_seed_that_was_drawn_is_enough_to_make_a_run_again(tmp_path):
    run = sample(ZOO["potts"], updates=40, seed=None)
    run.save(tmp_path / "run")
    again = sample(ZOO["potts"], updates=40, seed=mg.load(tmp_path / "run").info.seed)
    np.testing.assert_array_equal(again.draws, run.draws)


def as_written_by_0_1(path):
    """Rewrite a run file as version 0.1 would have written it: numeric seed, fewer arrays."""
    old = json.loads(members(path)["header.json"])
    old["format"] = "minigibbs-run-1"
    old["info"]["seed"] = int(old["info"]["seed"])
    energy = np.load(io.BytesIO(members(path)["energy.npy"]))
    new = {"header.json": json.dumps(old).encode(), "energy.npy": npy(-energy)}  # log-potentials
    rewrite(path, new | dict.fromkeys(["visits.npy", "state.npy", "clamped.npy"]))


@pytest.mark.parametrize("seed", [7, 2**128 - 1])
def test_files_of_0_1_still_load(tmp_path, seed):
    graph = ZOO["evidence"]
    run = sample(graph, updates=4000, seed=seed, reference=naive.marginals(graph))
    run.save(tmp_path / "run")
    as_written_by_0_1(tmp_path / "run")
    old = mg.load(tmp_path / "run")
    assert old.info == run.info
    for name in (
        "clock",
        "counts",
        "visits",
        "kept_draws",
        "energy",
        "error",
        "reference",
        "drawn",
    ):
        np.testing.assert_array_equal(getattr(old, name), getattr(run, name))
    np.testing.assert_array_equal(old.marginals, run.marginals)
    free = ~run.clamped  # old files do not identify clamped variables
    np.testing.assert_array_equal(old.standard_errors[free], run.standard_errors[free])
    assert (run.clamped.any(), old.clamped.any()) == (True, False)
    assert old.summary() == run.summary()
    with pytest.raises(mg.SampleError, match=r"keeps no last states.*0\.1"):
        sample(graph, updates=10, start=old)


def test_infinity_is_text_in_json():
    summary = stuck().summary()
    got = json.loads(json.dumps(summary.to_dict(), allow_nan=False))
    assert got["value_rhat"] == "inf"
    assert float(got["value_rhat"]) == summary.value_rhat
