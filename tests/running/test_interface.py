"""The interface of 0.2: units, records, continuing a run."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.results import run as runs
from tests.zoo import IMPLICIT, ZOO

QUIET = {"seed": 3, "progress": False}


def test_warmup_and_thin_count_in_the_unit_of_the_length():
    graph, record = ZOO["evidence"], mg.Record("draws", thin=5)  # 4 free variables
    by_sweeps = mg.sample(graph, sweeps=50, warmup=7, record=record, chains=2, **QUIET)
    assert (by_sweeps.info.updates, by_sweeps.info.warmup) == (2 * 200, 2 * 28)
    assert by_sweeps.info.thin == 20
    by_updates = mg.sample(graph, updates=200, warmup=28, record=record, chains=2, **QUIET)
    assert (by_updates.info.updates, by_updates.info.warmup) == (2 * 200, 2 * 28)
    assert by_updates.info.thin == 5
    np.testing.assert_array_equal(by_updates.draws[:, 3::4], by_sweeps.draws)
    default = mg.sample(graph, warmup=7, chains=1, **QUIET)  # in sweeps, like the default length
    assert default.info.warmup == 28
    until = mg.sample_until(graph, ess=50, warmup=7, record=mg.Record(thin=2), chains=2, **QUIET)
    assert (until.info.warmup, until.info.thin) == (2 * 28, 8)


def test_record_by_name_by_names_and_in_full():
    graph = ZOO["potts"]
    for record in ("draws", ["draws"], mg.Record("draws"), ("draws",)):
        run = mg.sample(graph, sweeps=10, record=record, **QUIET)
        assert run.draws.shape == (4, 10, 4)
        assert run.counts is None
        assert run.energy is None
    run = mg.sample(graph, sweeps=10, record=mg.Record(thin=5), **QUIET)  # the default quantities
    assert run.counts is not None
    assert run.energy.shape == (4, 2)
    nothing = mg.sample(graph, sweeps=10, record=(), **QUIET)
    assert (nothing.counts, nothing.kept_draws, nothing.energy) == (None, None, None)
    assert nothing.state.shape == (4, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["energies"], {}), r"record takes marginals, draws, energy; got 'energies'"),
        (([], {"thin": 0}), "thin must be an integer of at least 1, got 0"),
        (([], {"chains": 1.5}), r"Record: chains must be an integer, got 1\.5"),
        (
            (["draws"], {"variables": "x1"}),
            r"list of integers or strings, got 'x1' .* write \['x1'\]",
        ),
        ((["draws"], {"variables": []}), "at least one"),
    ],
)
def test_records_that_are_none_are_refused_where_they_are_written(arguments, message):
    what, options = arguments
    with pytest.raises(mg.SampleError, match=message):
        mg.Record(*what, **options)


@pytest.mark.parametrize("scan", ["random", "systematic", "shuffled", "shared"])
def test_the_last_states_are_those_of_the_last_draw(scan):
    run = mg.sample(ZOO["mixed"], updates=60, record=mg.Record("draws", thin=1), scan=scan, **QUIET)
    np.testing.assert_array_equal(run.state, run.draws[:, -1])
    assert run.state.dtype == run.draws.dtype


def test_a_run_goes_on_from_the_last_states_of_another():
    graph = ZOO["mixed"]
    first = mg.sample(graph, sweeps=20, chains=3, **QUIET)
    record = mg.Record("draws", thin=1)
    more = mg.sample(graph, updates=1, start=first, record=record, **QUIET)
    assert more.info.chains == 3  # one per state
    assert ((more.draws[:, 0] != first.state).sum(axis=1) <= 1).all()
    same = mg.sample(graph, updates=1, start=first.state, chains=3, record=record, **QUIET)
    np.testing.assert_array_equal(more.draws, same.draws)
    with pytest.raises(mg.SampleError, match="start holds 3 states for 5 chains"):
        mg.sample(graph, start=first, chains=5, **QUIET)


def test_the_last_states_are_saved(tmp_path):
    first = mg.sample(ZOO["mixed"], sweeps=20, chains=3, **QUIET)
    first.save(tmp_path / "run")
    loaded = mg.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.state, first.state)
    object.__setattr__(loaded, "state", None)  # like in a file of 0.1
    with pytest.raises(mg.SampleError, match=r"no last states.*0\.1"):
        mg.sample(ZOO["mixed"], start=loaded, **QUIET)


@pytest.mark.parametrize("model", IMPLICIT)
def test_energies_of_implicit_models_are_recorded_by_default(model):
    graph = IMPLICIT[model]
    run = mg.sample(graph, sweeps=20, record=("energy", "draws"), chains=2, **QUIET)
    expected = [graph.energy(states) for states in run.draws]
    np.testing.assert_allclose(run.energy, expected, rtol=1e-12, atol=1e-12)
    assert mg.sample(graph, sweeps=20, **QUIET).energy.shape == (4, 20)


def test_energies_of_implicit_models_on_processes_and_resumed(tmp_path):
    graph = IMPLICIT["kernel"]
    whole = mg.sample(graph, sweeps=60, warmup=5, **QUIET)
    part = {"warmup": 5, "executor": "processes", "threads": 1, "checkpoint": tmp_path / "run"}
    mg.sample(graph, sweeps=25, **part, **QUIET)
    again = mg.resume(tmp_path / "run", sweeps=35, progress=False)
    np.testing.assert_array_equal(again.energy, whole.energy)
    np.testing.assert_array_equal(again.state, whole.state)


def test_visits_are_what_counts_are_divided_by():
    run = mg.sample(ZOO["mixed"], updates=500, **QUIET)
    np.testing.assert_array_equal(run.visits, run.clock)
    first = run.domains.sizes[0]
    np.testing.assert_array_equal(run.counts[:, :first].sum(axis=1), run.visits)


def test_the_format_of_run_files_is_known():
    assert runs.FORMAT in runs.FORMATS
