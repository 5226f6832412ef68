"""The progress bar only advances, continues when a run is resumed, and updates R-hat."""

import io
import warnings

import numpy as np
import pytest
from rich import console

import minigibbs as mg
from minigibbs.running import progress
from minigibbs.running.progress import Bar
from minigibbs.system.progress import Stage
from tests.harness import sample
from tests.zoo import ZOO

original = console.Console


@pytest.fixture
def shares(monkeypatch):
    """Return the shares that the bar showed, in order."""
    seen = []
    original = Bar._show

    def show(bar):
        seen.append(bar.share())
        original(bar)

    monkeypatch.setattr(Bar, "_show", show)
    return seen


def test_a_run_of_known_length_goes_from_nothing_to_all(shares):
    mg.sample(ZOO["potts"], sweeps=2000, warmup=100, seed=1, progress=False)
    assert shares[0] == 0
    assert shares[-1] == 1
    assert shares == sorted(shares)


def test_a_resumed_run_begins_where_it_was(shares, tmp_path):
    sample(ZOO["potts"], sweeps=300, seed=1, progress=False, checkpoint=tmp_path / "run")
    shares.clear()
    mg.resume(tmp_path / "run", sweeps=100, progress=False)
    assert shares[0] == pytest.approx(0.75)
    assert shares[-1] == 1
    assert shares == sorted(shares)


def test_a_run_with_a_goal_never_goes_back(shares):
    """Rounds extend the run; without a time limit the remaining time is unknown."""
    mg.sample_until(ZOO["potts"], ess=3000, seed=1, progress=False)
    assert set(shares) == {None}
    shares.clear()
    mg.sample_until(ZOO["potts"], ess=1e9, max_time=0.5, seed=1, progress=False)
    assert shares == sorted(shares)
    assert 0 < shares[-1] <= 1


def test_rhat_is_looked_at_again_and_again(monkeypatch):
    """The first check imports ArviZ, which takes a second and must not delay the next check."""
    stream, now, looks = io.StringIO(), [0.0], []
    terminal = console.Console(file=stream, force_terminal=True, width=200)
    monkeypatch.setattr(console, "Console", lambda **_: terminal)

    def slow_look(groups):
        now[0] += 2.0 if not looks else 0.005  # the import, then the check itself
        looks.append(now[0])
        return f"energy R-hat 1.{len(looks):03d}"

    monkeypatch.setattr(progress, "rhat_note", slow_look)
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    with Bar(1000, 0, True) as bar:
        bar.begin()
        for _ in range(100):
            now[0] += 0.5
            bar.show([])
    assert len(looks) > 20  # one per second: 5 ms are less than 1% of that
    assert np.diff(looks).min() >= 1.0
    assert "1.050" in stream.getvalue()  # the text of the last check


SPINS = mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], 0.3, name="J")])
STAGES = {
    "sample": (lambda: mg.sample(SPINS, sweeps=5), ["preparing"]),
    "infer": (lambda: mg.infer(SPINS), ["looking for an exact answer"]),
    "infer by sampling": (
        lambda: mg.infer(SPINS, 0.5, exact=False),
        ["timing the sampler", "preparing"],
    ),
    "maximize": (lambda: mg.maximize(SPINS, rounds=1), ["finding temperatures"]),
    "learn": (lambda: mg.learn(SPINS, [[0, 0, 1]], steps=1), ["reading data", "preparing"]),
}


@pytest.mark.parametrize("call", STAGES)
def test_what_comes_before_sampling_is_announced(call, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(
        console,
        "Console",
        lambda **_: original(file=stream, force_terminal=True, width=200),
    )
    run, stages = STAGES[call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about parameters, because there are few data
        run()
    for stage in stages:
        assert stage in stream.getvalue()


def test_stages_are_quiet_where_nobody_watches(capfd):
    mg.infer(SPINS)
    mg.infer(SPINS, progress=False)
    assert capfd.readouterr().err == ""


def test_calls_without_a_bar_show_stages(monkeypatch):
    seen, original = [], Stage.__init__

    def note(stage, text, shown):
        seen.append((text, shown))
        original(stage, text, False)

    monkeypatch.setattr(Stage, "__init__", note)
    mg.infer_many(ZOO["ising"], np.full((2, len(ZOO["ising"])), np.nan))
    assert seen == [("reading rows", True), ("answering 2 rows", True)]
    seen.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few data
        fit = mg.learn(SPINS, [[0, 0, 1]], method="exact", progress=False)
    seen.clear()
    fit.log_likelihood([[0, 0, 1]])
    assert seen[0] == ("computing log-likelihoods", True)
    seen.clear()
    mg.repair({"a": ["x", "y"] * 5, "b": ["1", "2"] * 5}, progress=False)
    stages = ["reading the table", "learning weights", "repairing cells"]
    assert [one for one in seen if one[0] in stages] == [(text, False) for text in stages]


CALLS = {
    "exact_marginals": mg.exact_marginals,
    "log_partition": mg.log_partition,
    "exact_draws": lambda graph, **shown: mg.exact_draws(graph, 10, **shown),
    "explain": lambda graph, **shown: mg.explain(graph, costs={"read": 1.0}, trials=0, **shown),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_calls_without_a_bar_say_what_they_do(name, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(
        console, "Console", lambda **_: original(file=stream, force_terminal=True, width=80)
    )
    CALLS[name](mg.models.ising_lattice(3, 0.2), progress=False)
    assert stream.getvalue() == ""
    CALLS[name](mg.models.ising_lattice(3, 0.2))
    assert any(word in stream.getvalue() for word in ("eliminating", "drawing", "predicting"))
