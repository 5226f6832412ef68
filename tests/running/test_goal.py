"""Runs that end when the chains agree or the time is up, and their progress bar."""

import io
import math
import os
import random
import re
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from rich import console

import minigibbs as mg
from minigibbs.results import diagnostics
from minigibbs.results.marginals import Marginals
from minigibbs.running import group as running
from minigibbs.running import progress
from minigibbs.running.goal import Goal
from minigibbs.system import files
from minigibbs.system.watch import Watch
from tests import naive
from tests.harness import sample, sample_until
from tests.running.test_checkpoint import same_runs
from tests.zoo import IMPLICIT, ZOO

OPTIONS = {"seed": 5, "progress": False}


def test_it_runs_until_the_goal_is_met():
    graph = ZOO["potts"]
    run = sample_until(graph, rhat=1.01, ess=800, **OPTIONS)
    assert run.info.ended == "converged"
    assert not run.interrupted
    assert diagnostics.ess(run.energy) >= 800
    assert diagnostics.rhat(run.energy) <= 1.01
    # With an effective size of 800 a marginal's standard error is at most 0.5 / sqrt(800) = 0.018.
    # 0.1 is more than five of those: a false alarm over 12 values is far less frequent than 1e-4.
    assert np.abs(run.marginals - naive.marginals(graph)).max() < 0.1
    assert run.info.thin == 4


def test_more_is_sampled_for_more():
    lengths = [
        sample_until(ZOO["potts"], rhat=None, ess=ess, **OPTIONS).info.updates
        for ess in (100, 1000, 4000)
    ]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[1] < lengths[2]


def test_observables_are_part_of_the_goal():
    """The magnetization is slower than the energy, which alone decided: 25% of runs had a warning.

    A run that has converged has one less than once in 100. More than 2 of 20 happen once in 1,000.
    """
    graph = mg.models.ising_lattice(side=4, beta=0.3)
    options = {"observe": {"m": "magnetization"}, "max_time": "60s", "progress": False}
    runs = [mg.sample_until(graph, seed=seed, **options) for seed in range(20)]
    assert all(run.info.ended == "converged" for run in runs)
    assert min(diagnostics.ess_within(run.observables["m"].series) for run in runs) >= 400
    assert sum(bool(run.summary().warnings) for run in runs) <= 2


def stuck():
    """Return a graph with two modes, separated by a barrier of 100 units of energy."""
    return mg.FactorGraph([2, 2], [mg.Ising([0], [1], 50.0)])


def test_it_says_that_time_was_up():
    """The energies agree perfectly; only the marginals differ."""
    begun = time.monotonic()
    run = sample_until(stuck(), max_time="0.5s", start=[[0, 0], [0, 0], [1, 1], [1, 1]], **OPTIONS)
    assert run.info.ended == "time"
    assert 0.25 <= time.monotonic() - begun < 20  # it ends before a check that would end too late
    assert "time was up" in str(run.summary())
    assert len(set(run.clock.tolist())) >= 1


def test_chains_that_are_stuck_apart_are_never_taken_for_converged():
    goal = Goal(rhat=1.01, ess=None)
    start = [[0, 0], [0, 0], [1, 1], [1, 1]]
    for sweeps in (100, 150, 200):
        goal = goal.check(sample(stuck(), sweeps=sweeps, start=start, **OPTIONS))
        assert not goal.met
    assert goal.seen_rhat == math.inf


def test_split_rhat_is_that_of_every_update_taken_as_a_draw():
    """R-hat equals the textbook formula (Gelman et al.) over indicators."""
    run = sample(ZOO["potts"], updates=400, thin=1, record=("marginals", "draws"), **OPTIONS)
    want = 0.0
    for variable in range(4):
        for value in range(3):
            series = (run.draws[:, :, variable] == value).reshape(8, 200).astype(float)
            within, between = series.var(axis=1).mean(), series.mean(axis=1).var(ddof=1)
            want = max(want, math.sqrt((within + between) / within))
    assert Marginals.of(run).worst.rhat == pytest.approx(want, rel=1e-12)


def test_where_it_stops_is_fixed_by_the_seed(monkeypatch):
    first = sample_until(ZOO["mixed"], record=("marginals", "draws", "energy"), **OPTIONS)
    monkeypatch.setattr(running.Group, "segment_seconds", 0.0)
    again = sample_until(
        ZOO["mixed"], record=("marginals", "draws", "energy"), threads=1, **OPTIONS
    )
    same_runs(first, again)
    assert first.info.ended == "converged"


def test_it_is_the_beginning_of_a_longer_run():
    run = sample_until(ZOO["mixed"], record=("marginals", "energy"), warmup=10, **OPTIONS)
    updates = int(run.clock[0])
    plain = sample(ZOO["mixed"], updates=updates, thin=run.info.thin, warmup=60, **OPTIONS)
    same_runs(run, plain)


@pytest.mark.parametrize("number", [3, 40, 90])
def test_stopped_and_resumed_it_ends_where_it_would_have(tmp_path, monkeypatch, number):
    whole = sample_until(ZOO["potts"], ess=2000, **OPTIONS)
    original, count = running.Group.run_segment, [0]

    class Killed(Exception):
        pass

    def run_segment(job):
        job.segment = 100
        count[0] += 1
        if count[0] == number:
            raise Killed
        return original(job)

    monkeypatch.setattr(running.Group, "run_segment", run_segment)
    folder = tmp_path / "run"
    with pytest.raises(Killed):
        sample_until(ZOO["potts"], ess=2000, checkpoint=folder, every=0, **OPTIONS)
    monkeypatch.undo()
    run = mg.resume(folder, progress=False)
    assert run.info.ended == "converged"
    same_runs(whole, run)
    same_runs(whole, mg.resume(folder, progress=False))


EVERYTHING = ("marginals", "draws", "energy")
NEVER = {"rhat": 1.0 + 1e-9, "ess": None, "record": EVERYTHING, **OPTIONS}


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("number", range(20))
def test_ctrl_c_at_any_moment_returns_what_is_there(number, monkeypatch):
    """Ctrl-C comes in segments, in checks, and between them, after different times."""
    original, begun = running.Group.run_segment, []
    delay = random.Random(number).random() * 0.2

    def run_segment(group):
        made = original(group)
        if not begun:
            begun.append(threading.Timer(delay, interrupt))
            begun[0].start()
        return made

    monkeypatch.setattr(running.Group, "run_segment", run_segment)
    run = sample_until(ZOO["potts"], **NEVER)
    assert run.info.ended == "interrupted"
    assert run.clock.min() > 0
    assert run.draws.shape[1] == run.clock.min() // 4
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def last_state(folder):
    return files.read_arrays(max(folder.glob("state-*")), "minigibbs-state-2")[1]


@pytest.mark.parametrize("ended", ["interrupted", "terminated"])
@pytest.mark.parametrize("look", [1, 3, "last"])
def test_a_look_that_is_cut_short_is_made_again(look, ended, tmp_path, monkeypatch):
    options = {"ess": 2000, "record": EVERYTHING, **OPTIONS}
    original, count, cut = diagnostics.ess_within, [0], [None]

    def ess_within(series):
        count[0] += 1
        if count[0] == cut[0]:
            os.kill(os.getpid(), {"interrupted": signal.SIGINT}.get(ended, signal.SIGTERM))
            time.sleep(10)
            raise AssertionError("the look goes on")
        return original(series)

    monkeypatch.setattr(diagnostics, "ess_within", ess_within)
    whole = sample_until(ZOO["potts"], checkpoint=tmp_path / "whole", **options)
    looks, count[0] = count[0], 0
    cut[0] = looks if look == "last" else look  # the last one needs the rounds before it
    folder = tmp_path / "run"
    run = sample_until(ZOO["potts"], checkpoint=folder, **options)
    assert run.info.ended == ended
    assert run.clock.min() == run.clock.max() > 0
    monkeypatch.undo()
    same_runs(whole, mg.resume(folder, progress=False))
    for name, array in last_state(tmp_path / "whole").items():
        np.testing.assert_array_equal(array, last_state(folder)[name])


def test_rounds_are_remembered_back_to_a_quarter():
    """Then a quarter can be dropped: rounds grow by the square root of 2."""
    goal, lengths = Goal(rhat=1.5, ess=None), [100, 140, 200, 280, 400]
    for length in lengths:
        goal = goal.check(sample(ZOO["potts"], updates=length, **OPTIONS))
    assert [int(one.visits[0]) for one in goal.past] == lengths
    goal = replace(goal.check(sample(ZOO["potts"], updates=560, **OPTIONS)), drop=True)
    assert [int(one.visits[0]) for one in goal.past] == [*lengths[1:], 560]
    clock = np.full(4, 560)
    assert goal.begin(clock).clock.tolist() == [140] * 4
    assert goal.middle(clock).clock.tolist() == [400] * 4
    assert replace(goal, drop=False).begin(clock) is None


def looked_at(goal, run, monkeypatch):
    """Number of records that one check passes to ArviZ, over all series."""
    cells = []
    for name in ("rhat", "ess"):
        original = getattr(diagnostics, name)

        def counting(series, original=original):
            cells.append(np.size(series))
            return original(series)

        monkeypatch.setattr(diagnostics, name, counting)
    assert goal.check(run).past
    monkeypatch.undo()
    return sum(cells)


@pytest.mark.parametrize(
    ("ess", "most"),
    # R-hat and ESS of the energy and of 5 values. The energy has 20,000 records of all chains, or
    # four times the requested ESS if that is more. A value has 4,000 records, or the same number.
    [(None, 2 * (20_000 + 5 * 4_000)), (100_000, 2 * (400_000 + 5 * 400_000))],
)
def test_a_look_has_its_bounds(ess, most, monkeypatch):
    graph = mg.FactorGraph([2] * 40, [])
    record = mg.Record("draws", "energy", thin=1)
    run = mg.sample(graph, updates=200_000, record=record, **OPTIONS)
    goal = Goal(rhat=1.5, ess=ess).check(run)
    assert most / 4 < looked_at(goal, run, monkeypatch) <= most


def test_a_look_that_would_end_too_late_is_not_begun():
    half = sample(ZOO["potts"], updates=2000, thin=4, **OPTIONS)
    run = sample(ZOO["potts"], updates=4000, thin=4, **OPTIONS)
    goal = Goal(rhat=1.01, ess=None).check(half)
    with Watch(0):
        assert goal.check(run) is None
    with Watch(1000):
        assert goal.check(run) is not None


def test_out_of_time_it_can_be_resumed(tmp_path):
    folder = tmp_path / "run"
    options = {"rhat": None, "ess": 20_000, **OPTIONS}
    run = sample_until(ZOO["potts"], max_time=0, checkpoint=folder, **options)
    assert run.info.ended == "time"
    longer = mg.resume(folder, max_time="10min", progress=False)
    assert longer.info.ended == "converged"
    same_runs(sample_until(ZOO["potts"], **options), longer)


def test_without_variables_there_is_nothing_to_wait_for():
    run = sample_until(ZOO["potts"].condition(dict.fromkeys(range(4), 1)), **OPTIONS)
    assert run.info.ended == "converged"


def test_implicit_factors_record_their_energy():
    run = sample_until(IMPLICIT["complete"], ess=200, **OPTIONS)
    assert run.info.ended == "converged"
    assert diagnostics.ess(run.energy) >= 200
    with pytest.raises(mg.SampleError, match=r'ess needs record to hold "energy" or "draws"'):
        sample_until(IMPLICIT["complete"], record="marginals", **OPTIONS)
    run = sample_until(IMPLICIT["complete"], record="marginals", ess=None, **OPTIONS)
    assert run.info.ended == "converged"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rhat": None, "ess": None}, "needs a goal"),
        ({"rhat": 1.0}, "rhat must be a number above 1, got 1.0"),
        ({"rhat": "low"}, "rhat must be a number"),
        ({"ess": 0}, "ess must be a number above 0, got 0"),
        ({"ess": float("inf")}, "ess must be a number"),
        ({"max_time": "soon"}, "max_time must be seconds"),
        ({"record": ()}, "ess needs record"),
        ({"record": (), "ess": None}, "rhat needs record"),
        ({"thin": 0}, "thin must be"),
    ],
)
def test_goals_that_are_none(options, message):
    with pytest.raises(mg.SampleError, match=message):
        sample_until(ZOO["potts"], **{**OPTIONS, **options})


@pytest.fixture
def shown(monkeypatch):
    """Return the text written to a terminal, without control codes."""
    stream = io.StringIO()
    terminal = console.Console(file=stream, force_terminal=True, width=200)
    monkeypatch.setattr(console, "Console", lambda **_: terminal)
    monkeypatch.setattr(progress, "_INTERVAL", 0.0)
    monkeypatch.setattr(progress, "_SHARE", 1e9)
    return lambda: re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())


def test_the_bar_shows_speed_time_left_and_rhat(shown):
    run = sample(ZOO["potts"], updates=400_000, seed=1)
    text = shown()
    assert re.search(r"sampling .*\d+%.* [\d,]+ updates/s .*energy R-hat \d\.\d{3}", text)
    assert "0:00:0" in text
    last = re.findall(r"energy R-hat (\d\.\d{3})", text)[-1]
    assert float(last) == pytest.approx(diagnostics.rhat(run.energy), abs=0.01)


def test_no_rhat_without_energies_or_with_one_chain(shown):
    sample(ZOO["potts"], updates=100_000, seed=1, record="marginals")
    sample(ZOO["potts"], updates=100_000, seed=1, chains=1)
    assert "updates/s" in shown()
    assert "R-hat" not in shown()


def test_the_bar_shows_how_far_the_goal_is(shown):
    sample_until(ZOO["potts"], ess=3000, seed=1)
    assert re.search(r"R-hat \d\.\d{3} of 1\.01, ESS [\d,]+ of 3000", shown())


def test_looking_is_rare(monkeypatch, shown):
    """Checks take at most 1% of the time: one that takes 20 ms is not repeated for 2 s."""
    monkeypatch.setattr(progress, "_SHARE", 0.01)
    calls = []

    def slow(series):
        calls.append(len(series))
        time.sleep(0.02)
        return 1.0

    monkeypatch.setattr(diagnostics, "rhat", slow)
    monkeypatch.setattr(running.Group, "segment_seconds", 0.001)
    begun = time.perf_counter()
    sample(ZOO["potts"], updates=1_000_000, seed=1)
    assert 1 <= len(calls) <= 2 + (time.perf_counter() - begun) / 2  # the first does not count


def test_the_command_line(tmp_path, capsys, monkeypatch):
    from minigibbs.cli import main as cli

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["minigibbs", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return (caught.value.code or 0, *capsys.readouterr())

    folder, out = tmp_path / "run", tmp_path / "out.npz"
    model = ["sample", "ising-lattice:side=3,beta=0.2", "--seed", 1, "--json"]
    until = ["--until", "rhat=1.05,ess=100", "--max-time", "60s", "--checkpoint", folder]
    code, text, _ = call(*model, *until, "--every", "1h")
    assert code == 0
    assert '"ended": "converged"' in text
    code, _, _ = call("resume", folder, "--json", "--out", out)
    assert code == 0
    assert mg.load(out).info.ended == "converged"
    for wrong, message in [
        (["--max-time", "3s"], "--max-time needs --until"),
        (["--until", "rhat=1.1", "--sweeps", "3"], "not both"),
        (["--until", "speed=3"], "--until takes"),
        (["--until", "ess=many"], "ess must be of type float"),
        (["--every", "often", "--checkpoint", tmp_path / "other"], "every must be"),
    ]:
        code, _, err = call(*model, *wrong)
        assert code == 2
        assert message in err
    state = max(folder.glob("state-*"))
    os.truncate(state, 100)
    code, _, err = call("resume", folder, "--json")
    assert code == 0
    assert re.match(r"warning: .*state-.*the checkpoint before it is used\n", err)


UNREACHED = {"rhat": None, "ess": None, "standard_error": 1e-9, "record": ["marginals", "draws"]}


def test_a_run_that_memory_ends_hands_over_its_draws(monkeypatch):
    monkeypatch.setattr("minigibbs.system.memory.available", lambda: 2**18)
    with pytest.raises(mg.StoppedError, match=r"to run longer: .* thin") as caught:
        mg.sample_until(ZOO["potts"], seed=1, progress=False, **UNREACHED)
    assert caught.value.run.draws.shape[1] >= 50


def test_an_allocation_that_fails_stops_a_run_too(monkeypatch):
    def grow(group, length):
        raise MemoryError("no memory")

    monkeypatch.setattr("minigibbs.running.backends.cpu.CpuGroup.grow", grow)
    with pytest.raises(mg.StoppedError, match="to run longer: no memory") as caught:
        mg.sample_until(ZOO["potts"], seed=1, scan="random", progress=False, **UNREACHED)
    assert caught.value.run.draws.shape[1] == 25


def test_without_a_warmup_the_first_quarter_is_dropped(tmp_path):
    """The result is the end of the whole run: records, counts and observables."""
    options = {"record": EVERYTHING, "observe": {"up": lambda x: x.sum()}, **OPTIONS}
    folder = tmp_path / "run"
    run = mg.sample_until(ZOO["potts"], start="random", checkpoint=folder, **options)
    dropped, kept = run.info.warmup // 16, run.info.updates // 16
    assert 0.2 < dropped / (dropped + kept) < 0.3
    whole = sample(ZOO["potts"], sweeps=dropped + kept, **options, scan=run.info.scan, thin=1)
    np.testing.assert_array_equal(run.draws, whole.draws[:, dropped:])
    np.testing.assert_allclose(run.energy, whole.energy[:, dropped:])
    series = whole.observables["up"].series[:, dropped:]
    np.testing.assert_array_equal(run.observables["up"].series, series)
    assert run.clock.tolist() == run.visits.tolist() == [4 * kept] * 4
    assert run.counts[0].sum() == 4 * 4 * kept
    again = mg.load(folder)
    for name in ("counts", "early_counts", "early_visits", "draws", "clock"):
        np.testing.assert_array_equal(getattr(run, name), getattr(again, name))


def test_stopping_does_not_look_at_how_chains_differ():
    """A check computes R-hat, ESS and error of marginals from parts of the same chain."""
    goal = Goal(rhat=1.2, ess=None, error=0.05)
    first, second = (sample(ZOO["potts"], sweeps=n, **OPTIONS) for n in (100, 200))
    before = goal.check(first).check(second)
    moved = second.counts.copy()
    shift = np.array([30, -30, 0] * 4) * np.array([[1], [-1], [1], [-1]])
    a, b = replace(first, counts=first.counts + shift), replace(second, counts=moved + 2 * shift)
    after = goal.check(a).check(b)
    assert after.seen_error == pytest.approx(before.seen_error, rel=1e-9)
    assert Marginals.of(b).standard_errors.max() > 1.5 * Marginals.of(second).standard_errors.max()


def test_a_run_that_stopped_by_itself_takes_errors_from_chains():
    """Parts of chains decided when it stopped, so they cannot also estimate the error."""
    graph, observe = ZOO["potts"], {"e": "energy"}
    run = mg.sample_until(graph, observe=observe, **OPTIONS)
    assert run.info.ended == "converged"
    found = run.observables["e"]
    assert found.estimate.blocks == 4
    want = found.series.mean(axis=1).std(ddof=1) / 2
    assert found.error == pytest.approx(want, rel=1e-6)
    assert mg.observables.specific_heat(run, "e").blocks == 4
    plain = sample(graph, sweeps=2000, observe=observe, **OPTIONS)
    assert plain.observables["e"].estimate.blocks > 4
