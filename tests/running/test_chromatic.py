"""Chromatic runs that are split, saved, resumed, sent to workers and stopped keep their draws."""

from types import SimpleNamespace

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.running import group as groups
from minigibbs.running.backends.lockstep import group_chains
from tests.harness import sample, sample_until
from tests.samplers.test_chromatic import large, spins

EVERYTHING = ("draws", "marginals", "energy")


def options(**more):
    return {"scan": "chromatic", "seed": 6, "progress": False, "record": EVERYTHING, **more}


def same(one, other):
    assert (one.draws == other.draws).all()
    assert (one.counts == other.counts).all()
    assert (one.energy == other.energy).all()
    assert (one.state == other.state).all()
    assert one.info.changed == other.info.changed
    assert one.info.factor_evaluations == other.info.factor_evaluations


@pytest.mark.parametrize("chains", [3, 21, 70])
@pytest.mark.parametrize("name", ["spins", "tables", "general"])
def test_a_run_in_pieces_is_the_run(name, chains, tmp_path):
    graph = large(name)
    whole = mg.sample(graph, sweeps=30, warmup=4, chains=chains, **options())
    part = mg.sample(
        graph, sweeps=12, warmup=4, chains=chains, checkpoint=tmp_path / "run", **options()
    )
    assert (part.draws == whole.draws[:, :12]).all()
    same(mg.load(tmp_path / "run"), part)
    same(mg.resume(tmp_path / "run", sweeps=18, progress=False), whole)


@pytest.mark.parametrize("chains", [3, 70])
def test_processes_draw_the_same(chains):
    graph = large("spins")
    whole = mg.sample(graph, sweeps=30, warmup=4, chains=chains, **options())
    sent = mg.sample(graph, sweeps=30, warmup=4, chains=chains, executor="processes", **options())
    same(sent, whole)


def test_segments_do_not_matter(monkeypatch):
    graph = large("spins")
    whole = mg.sample(graph, sweeps=40, chains=20, **options())
    monkeypatch.setattr(groups, "_GROWTH", 1.0)
    same(mg.sample(graph, sweeps=40, chains=20, **options()), whole)


@pytest.mark.parametrize("chains", [4, 20])
def test_until_converged(chains):
    graph = spins(30, 40, 1, scale=0.2)
    run = mg.sample_until(graph, rhat=1.05, ess=500, chains=chains, **options(record=("energy",)))
    assert run.info.ended == "converged"
    assert run.info.updates % 30 == 0


def test_time_is_up():
    graph = large("spins")
    run = sample_until(
        graph, rhat=1.0001, ess=1e7, max_time=0.5, chains=20, **options(record=("energy",))
    )
    assert run.info.ended == "time"
    assert run.energy.shape[0] == 20


@pytest.mark.parametrize("chains", [3, 40])
def test_chosen_variables_thinned_records_and_errors(chains):
    graph = large("spins")
    whole = sample(graph, sweeps=30, chains=chains, **options())
    reference = np.full((len(graph), 2), 0.5)
    run = sample(
        graph,
        sweeps=30,
        chains=chains,
        thin=5,
        record_variables=[7, 3],
        reference=reference,
        **options(),
    )
    assert (run.draws == whole.draws[:, 4::5][:, :, [7, 3]]).all()
    assert run.error.shape == (chains, 6)
    each = whole.counts[1].reshape(-1, 2) / whole.clock[1]
    error = np.sqrt(((each - reference) ** 2).sum(axis=1)).mean()
    assert run.error[1, -1] == pytest.approx(error)


def test_starts_are_gone_on_from():
    graph = large("spins")
    first = mg.sample(graph, sweeps=5, chains=20, **options())
    start = np.ones(len(graph), np.uint8)
    run = mg.sample(graph, sweeps=0, chains=20, start=start, **options())
    assert (run.state == 1).all()
    again = mg.sample(graph, sweeps=1, start=first, **options())
    assert len(again.state) == 20


def test_clamped_variables_stay():
    graph = large("spins").condition({0: 1, 17: 0})
    run = mg.sample(graph, sweeps=20, chains=20, **options())
    assert (run.draws[:, :, 0] == 1).all()
    assert (run.draws[:, :, 17] == 0).all()
    assert run.marginals[0].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("chains", "each"), [(1, 1), (15, 1), (16, 16), (64, 64), (65, 40), (100, 56)]
)
def test_groups_are_equal_and_begin_with_a_multiple_of_eight(chains, each):
    plan = type("Plan", (), {"chains": chains})
    assert group_chains(plan) == each


def test_a_damaged_checkpoint_is_refused(tmp_path):
    from minigibbs.running.backends.lockstep import check_lockstep

    plan = SimpleNamespace(chains=20, graph=SimpleNamespace(free=5), unit=5)
    right = {
        "clock": np.array([[50]]),
        "warmed": np.array([[10]]),
        "swept": np.array([[12]]),
        "first": np.array([[0]]),
    }
    check_lockstep(plan, right)
    for name in ("swept", "first"):
        with pytest.raises(ValueError, match=name):
            check_lockstep(plan, right | {name: right[name] + 1})


def test_a_run_of_sweeps_goes_on_in_sweeps(tmp_path):
    graph = large("general")
    mg.sample(graph, sweeps=3, chains=2, checkpoint=tmp_path / "run", **options())
    with pytest.raises(mg.SampleError, match="sweeps of 60 updates"):
        mg.resume(tmp_path / "run", updates=7, progress=False)
    run = mg.resume(tmp_path / "run", updates=120, progress=False)
    assert run.draws.shape[1] == 5
