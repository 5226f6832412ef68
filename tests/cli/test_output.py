"""Output of commands: files first, then text; warnings on stderr; exit codes."""

import csv
import io
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.cli import output
from minigibbs.results import run as runs
from minigibbs.results import tables
from minigibbs.running import loop
from minigibbs.running.checkpoint.folder import Checkpoint
from tests.cli.test_cli import command, one_line  # noqa: F401
from tests.harness import sample
from tests.paths import ROOT
from tests.zoo import ZOO

LATTICE = "ising-lattice:side=4,beta=0.2"
PROGRAM = [sys.executable, "-c", "from minigibbs.cli.main import main; main()"]


def read_csv(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


# Messages about runs with little information.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--sweeps", 2], "2 records of each chain"),
        (["--sweeps", 0], "nothing was recorded"),
        (["--chains", 1], "a single chain"),
        (["--sweeps", 3, "--record", "marginals"], "fewer than 4 sweeps"),
        (["--sweeps", 50, "--record", ""], "kept nothing"),
        (["--sweeps", 40], "the run is short"),
    ],
    ids=str,
)
def test_runs_that_tell_little_say_so_on_stderr(command, options, words):  # noqa: F811
    code, out, err = command("sample", LATTICE, "--seed", 1, "-q", *options)
    assert code == 0
    assert all(line.startswith("warning: ") for line in err.splitlines())
    assert words in err
    assert "warning" not in out


def test_infinity_is_text_in_json(command, tmp_path):  # noqa: F811
    graph = mg.FactorGraph([2] * 3, [mg.Ising([0, 1, 2], [1, 2, 0], 30.0)])
    mg.write(graph, tmp_path / "stuck.mg")
    arguments = ["sample", "stuck.mg", "--sweeps", 200, "--warmup", 50, "--seed", 2, "-q", "--json"]
    code, out, err = command(*arguments)
    assert (code, err) == (0, "")
    got = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in the output"))
    assert got["value_rhat"] == "inf"
    assert any("R-hat infinite" in text for text in got["warnings"])


def test_large_seeds_are_text_in_json_and_shown_in_the_table(command):  # noqa: F811
    seed = str(2**128 - 1)
    _, out, _ = command("sample", LATTICE, "--sweeps", 20, "--seed", seed, "-q", "--json")
    assert (json.loads(out)["seed"], json.loads(out)["info"]["seed"]) == (seed, seed)
    assert seed in command("sample", LATTICE, "--sweeps", 20, "--seed", seed, "-q")[1]


# How a run ended.


def test_a_goal_that_is_not_met_in_time(command, tmp_path):  # noqa: F811
    code, out, err = command(
        *["sample", LATTICE, "--until", "rhat=1.0000001", "--max-time", "0.2s", "-q"],
        *["--out", "run.mgr"],
    )
    assert code == 3
    assert "time was up" in err
    assert "saved: run.mgr" in out
    assert mg.load(tmp_path / "run.mgr").info.ended == "time"


def test_a_goal_that_is_met(command):  # noqa: F811
    code, out, _ = command("sample", LATTICE, "--until", "ess=50", "--seed", 1, "-q", "--json")
    assert code == 0
    assert json.loads(out)["info"]["ended"] == "converged"


def generation(folder):
    """Return how often a run has been saved in a checkpoint folder."""
    return max((int(path.stem[6:]) for path in folder.glob("state-*.npz")), default=0)


def wait_for(folder, wanted, alive):
    """Wait until a run has been saved this often; fail if it ends first."""
    while generation(folder) < wanted:
        assert alive()
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("number", "code", "ended"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
    ids=["SIGINT", "SIGTERM"],
)
@pytest.mark.parametrize("out", ["run.mgr", "m.csv"])
def test_signals_keep_what_was_sampled(tmp_path, number, code, ended, out):
    """The signal comes from outside, to a separate process, after its third checkpoint."""
    program = subprocess.Popen(
        [*PROGRAM, "sample", LATTICE, "--sweeps", str(10**9), "--record", "marginals", "-q"]
        + ["--warmup", "0", "--checkpoint", "saved", "--every", "0.05s", "--out", out],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        wait_for(tmp_path / "saved", 3, lambda: program.poll() is None)
        program.send_signal(number)
        said, warned = program.communicate(timeout=60)
    finally:
        program.kill()
    assert program.returncode == code, warned
    assert f"saved: {out}" in said
    assert f"{ended}: these are the updates made until then" in warned
    assert "Traceback" not in warned
    kept = mg.load(tmp_path / "saved")
    assert (kept.info.ended, kept.interrupted) == (ended, True)
    if out == "run.mgr":
        run = mg.load(tmp_path / out)
        assert run.info.ended == ended
        np.testing.assert_array_equal(run.counts, kept.counts)
    else:
        rows = read_csv((tmp_path / out).read_text())
        assert len(rows) == 32
        assert all(float(row["standard_error"]) > 0 for row in rows)


def test_a_run_that_ended_before_it_recorded_keeps_its_exit_code(
    command,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("minigibbs.running.loop.wait", interrupt)
    code, out, err = command("sample", LATTICE, "--warmup", 10**9, "--out", "m.csv", "-q")
    assert (code, out) == (130, "")
    assert "warning: m.csv was not written: this run has no marginals" in err
    assert list(tmp_path.iterdir()) == []


# Checkpoints are runs.


def test_a_checkpoint_is_reported_and_loaded(command, tmp_path):  # noqa: F811
    run = sample(ZOO["mixed"], sweeps=200, seed=1, progress=False, checkpoint=tmp_path / "saved")
    loaded = mg.load(tmp_path / "saved")
    for name in ("clock", "counts", "visits", "energy", "state", "clamped"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(run, name))
    assert loaded.summary().warnings == run.summary().warnings
    assert command("report", "saved", "-o", "p.html") == (0, "report: p.html\n", "")
    assert "<h1>saved</h1>" in (tmp_path / "p.html").read_text(encoding="utf-8")


@pytest.fixture
def read_only(tmp_path):
    """Return a checkpoint without write permission, as far as the system enforces it."""
    folder = tmp_path / "saved"
    sample(ZOO["mixed"], sweeps=200, seed=1, progress=False, checkpoint=folder)
    (folder / "lock").unlink(missing_ok=True)
    (folder / ".lock").unlink(missing_ok=True)
    for path in [*folder.iterdir(), folder]:
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222)
    yield folder
    folder.chmod(0o755)


def listing(folder):
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.iterdir()}


def test_a_checkpoint_is_read_without_writing(command, read_only, tmp_path):  # noqa: F811
    """Root may write anywhere, so the remaining files are compared, too."""
    before = listing(read_only)
    assert mg.load(read_only).info.updates == 4 * 200 * len(ZOO["mixed"])
    assert command("report", "saved", "-o", "p.html")[0] == 0
    assert listing(read_only) == before


def test_a_checkpoint_is_read_while_another_holds_it(command, tmp_path):  # noqa: F811
    sample(ZOO["mixed"], sweeps=200, seed=1, progress=False, checkpoint=tmp_path / "saved")
    with Checkpoint.open(tmp_path / "saved"):
        assert mg.load(tmp_path / "saved").info.updates == 4 * 200 * len(ZOO["mixed"])
        assert command("report", "saved")[0] == 0


def test_a_checkpoint_is_read_while_the_run_goes_on(
    command,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    """Every load returns a complete run, no shorter than the previous one, while the run saves.

    The run makes a segment and saves each time the gate opens, once during each load.
    Segments grow at most 8 times, so that five of them are far from the end.
    """
    folder, gate, done, seen = tmp_path / "saved", threading.Semaphore(0), [], []
    real = loop.wait
    monkeypatch.setattr(loop, "wait", lambda *arguments: gate.acquire() and real(*arguments))
    options = {"sweeps": 20_000, "chains": 1, "seed": 1, "progress": False, "every": 1e-6}
    graph = mg.models.ising_lattice(side=8, beta=0.2)
    thread = threading.Thread(
        target=lambda: done.append(sample(graph, checkpoint=folder, **options))
    )
    thread.start()
    try:
        for look in range(1, 6):
            wait_for(folder, look, thread.is_alive)
            gate.release()
            run = mg.load(folder)
            runs.check_run(run)
            seen.append(run.info.updates)
            assert command("report", "saved")[0] == 0
    finally:
        gate.release(10_000)
        thread.join()
    assert seen == sorted(seen)
    assert seen[-1] < mg.load(folder).info.updates == done[0].info.updates


# Destinations of results.


def test_csv_on_stdout(command, tmp_path):  # noqa: F811
    arguments = ["sample", LATTICE, "--sweeps", 1000, "--seed", 1, "-q"]
    code, out, err = command(*arguments, "--out", "-")
    assert (code, err) == (0, "")
    command(*arguments, "--out", "m.csv")
    assert out == (tmp_path / "m.csv").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["m.csv"]
    assert len(read_csv(out)) == 32


def test_csv_on_stdout_leaves_the_rest_to_stderr(command, tmp_path):  # noqa: F811
    (tmp_path / "hard.uai").write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 0 2 1\n")
    arguments = ["sample", "hard.uai", "--floor", 0.01, "--seed", 1, "-q", "--out", "-"]
    code, out, err = command(*arguments, "--sweeps", 2)
    assert code == 0
    assert len(read_csv(out)) == 4
    assert "note: raised 1 table entry" in err
    assert "warning: convergence cannot be assessed" in err


def test_csv_on_stdout_is_refused_where_there_is_none(command):  # noqa: F811
    for options, words in ((["--record", "energy"], "add marginals"), (["--json"], "both print")):
        code, out, err = command("sample", LATTICE, "--out", "-", *options)
        assert (code, out) == (2, "")
        assert words in one_line(err)
    code, out, err = command("sample", LATTICE, "--out", "-", "--sweeps", 0, "-q")
    assert (code, out) == (2, "")
    assert "made no updates" in one_line(err)


STILL = {
    "all clamped": (
        mg.FactorGraph([2, 3], [mg.Potts([0], [1], 1.0)]).condition({0: 1, 1: 2}),
        None,
    ),
    "domains of one value": (mg.FactorGraph([1, 1], []), None),
    "frozen": (mg.FactorGraph([2] * 3, [mg.Ising([0, 1, 2], [1, 2, 0], 40.0)]), [1, 1, 1]),
}


@pytest.mark.parametrize("chains", [1, 4])
@pytest.mark.parametrize("case", STILL)
def test_a_run_in_which_nothing_moved_is_written(tmp_path, case, chains):
    graph, start = STILL[case]
    options = {} if start is None else {"start": start}
    run = sample(graph, sweeps=50, chains=chains, seed=1, progress=False, **options)
    state = graph.evidence if start is None else start
    state = np.maximum(state, 0)
    tables.write_csv(run, tmp_path / "m.csv")
    rows = read_csv((tmp_path / "m.csv").read_text())
    for row in rows:
        assert float(row["probability"]) == float(int(row["value"]) == state[int(row["variable"])])
        if chains == 1:
            assert (row["standard_error"], row["low"], row["high"]) == ("", "", "")
        else:
            assert (float(row["standard_error"]) == 0) == (case != "frozen")
    run.to_pandas()
    run.report(tmp_path / "p.html")
    json.dumps(run.summary().to_dict(), allow_nan=False)


@pytest.mark.parametrize("case", ["all clamped", "domains of one value"])
def test_a_command_in_which_nothing_moves(command, tmp_path, case):  # noqa: F811
    mg.write(STILL[case][0], tmp_path / "a.mg")
    for out in ("m.csv", "m.MAR", "m.mgr"):
        code, _, err = command("sample", "a.mg", "--sweeps", 50, "-q", "--out", out)
        assert (code, err) == (0, "")
        assert (tmp_path / out).stat().st_size > 0


@pytest.mark.parametrize("out", ["run.mgr", "m.csv", "m.MAR"])
@pytest.mark.parametrize("where", ["summary", "table", "json"])
def test_results_are_saved_before_anything_is_said_of_them(
    command,  # noqa: F811
    tmp_path,
    monkeypatch,
    out,
    where,
):
    def fail(*_, err=False):
        if not err:
            raise OSError("the terminal is gone")

    if where == "summary":
        monkeypatch.setattr(runs.Run, "summary", fail)
    else:
        monkeypatch.setattr(output.typer, "echo", fail)
    options = ["--json"] if where == "json" else []
    code, _, _ = command("sample", LATTICE, "--sweeps", 20, "-q", "--out", out, *options)
    assert code == 1
    assert (tmp_path / out).stat().st_size > 0
    assert len(os.listdir(tmp_path)) == 1


# Options that are passed on.


@pytest.mark.parametrize("options", [["--sweeps", 10], ["--until", "rhat=1.1,ess=5"]], ids=str)
def test_every_option_reaches_the_run(command, monkeypatch, options):  # noqa: F811
    """The backend is included, which `--until` once dropped."""
    seen = {}

    def note(graph, **given):
        seen.update(given)
        raise mg.SampleError("seen")

    for name in ("sample", "sample_until"):
        monkeypatch.setattr(f"minigibbs.running.api.{name}", note)
    code, _, err = command(
        *["sample", LATTICE, *options, "--backend", "cuda", "--chains", 7, "--warmup", 3],
        *["--seed", 5, "--scan", "shuffled", "--sampler", "gibbs", "--threads", 2, "-q"],
        *["--record", "draws", "--thin", 4, "--variables", "0,x3", "--record-chains", 6],
        *["--checkpoint", "saved", "--every", "5s", "--observe", "m2=magnetization:power=2"],
    )
    assert (code, err) == (2, "error: seen\n")
    assert seen.pop("observe") == {"m2": mg.observables.Magnetization(power=2)}
    assert str(seen.pop("checkpoint")) == "saved"
    assert seen.pop("record") == mg.Record("draws", thin=4, variables=[0, "x3"], chains=6)
    assert seen.pop("sampler") == mg.Gibbs()
    length = {"updates": None, "sweeps": 10}
    if options[0] == "--until":
        length = {"rhat": 1.1, "ess": 5.0, "max_time": None}
    assert seen == {
        **length,
        "backend": "cuda",
        "chains": 7,
        "warmup": 3,
        "seed": 5,
        "scan": "shuffled",
        "threads": 2,
        "progress": False,
        "every": "5s",
        "start": "dispersed",
        "executor": None,
    }


def test_implicit_models_are_sampled_with_their_energies(command, tmp_path):  # noqa: F811
    kernel = mg.Kernel((3, 4), lambda r, c: np.exp(-(r**2) - c**2), kind="ising")
    mg.write(mg.FactorGraph([2] * 12, [kernel]), tmp_path / "kernel.mg")
    code, out, _ = command("sample", "kernel.mg", "--sweeps", 100, "--seed", 1, "-q", "--json")
    assert code == 0
    assert json.loads(out)["energy_mean"] is not None


# Hostile names.

HOSTILE = {
    "escape": "red \x1b[31m",
    "lines": "one\r\ntwo",
    "surrogate": "half \ud800",
    "markup": "x[red] [/] [link=http://a]",
    "formula": "=1+cmd|' /C calc'!A0",
}


@pytest.fixture
def hostile(tmp_path):
    """Write a model file with hostile names and labels, whose chains disagree."""
    graph = mg.FactorGraph(
        [2] * 5,
        [mg.Ising([0, 1, 2, 3, 4], [1, 2, 3, 4, 0], 3.0)],
        names=list(HOSTILE.values()),
        labels=list(HOSTILE.values())[:2],
    )
    mg.write(graph, tmp_path / "a.mg")


@pytest.mark.parametrize("options", [[], ["--json"], ["--out", "-"]], ids=str)
def test_hostile_names_are_shown_and_not_obeyed(command, hostile, options):  # noqa: F811
    code, out, err = command("sample", "a.mg", "--sweeps", 50, "--seed", 1, "-q", *options)
    assert code == 0
    for text in (out, err):
        text.encode()
        assert not any(c in text for c in "\x1b\r")
    if "--json" in options:
        assert set(json.loads(out)["marginals"]) <= set(HOSTILE.values())
        return
    assert r"red \x1b[31m" in out
    assert r"one\r\ntwo" in out
    assert r"half \ud800" in out
    assert HOSTILE["markup"] in out
    assert err.splitlines() == [line for line in err.splitlines() if line.startswith("warning: ")]


@pytest.mark.parametrize("number", range(5))
def test_every_hostile_name_may_be_the_worst(command, tmp_path, number):  # noqa: F811
    """The table shows it with its R-hat, including brackets."""
    name = list(HOSTILE.values())[number]
    graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 30.0)], names=[name, "b"])
    mg.write(graph, tmp_path / "a.mg")
    arguments = ["sample", "a.mg", "--sweeps", 200, "--warmup", 50, "--seed", 1, "-q"]
    code, out, err = command(*arguments)
    assert code == 0
    shown = {0: r"red \x1b[31m", 1: r"one\r\ntwo", 2: r"half \ud800"}.get(number, name)
    assert f"infinite ({shown})" in out
    assert f"disagree on {shown} (R-hat infinite" in err


def test_hostile_names_in_files(command, hostile, tmp_path):  # noqa: F811
    arguments = ["sample", "a.mg", "--sweeps", 50, "--seed", 1, "-q"]
    for out in ("m.csv", "run.mgr"):
        assert command(*arguments, "--out", out)[0] == 0
    content = (tmp_path / "m.csv").read_bytes().decode("utf-8")
    assert not any(c in content for c in "\x1b\r")
    assert content.count("\n") == 11
    names = [row["name"] for row in read_csv(content)][::2]
    assert names == [
        r"red \x1b[31m",
        r"one\r\ntwo",
        r"half \ud800",
        HOSTILE["markup"],
        "'" + HOSTILE["formula"],
    ]
    assert mg.load(tmp_path / "run.mgr").domains.names == tuple(HOSTILE.values())
    assert command("report", "run.mgr", "-o", "p.html")[0] == 0
    page = (tmp_path / "p.html").read_bytes().decode("utf-8")
    assert r"red \x1b[31m" in page
    assert not any(c in page for c in "\x1b\r")


def test_numbers_stay_numbers_in_a_csv(tmp_path):
    graph = mg.FactorGraph(
        [mg.Grid(-1.0, 1.0, 3), 3, 3, 4],
        [],
        names=["height", "-1", "@b", "d"],
        labels={1: [-1, 0, 1], 2: ["-1", "+0.5", "-x"], 3: ["\ta", "@a", "=", "a=b"]},
    )
    tables.write_csv(sample(graph, sweeps=10, seed=1, progress=False), tmp_path / "m.csv")
    rows = read_csv((tmp_path / "m.csv").read_text())
    values = [row["value"] for row in rows]
    assert values[:3] == ["-1.0", "0.0", "1.0"]
    assert values[3:6] == ["-1", "0", "1"]
    assert values[6:9] == ["-1", "+0.5", "'-x"]
    assert values[9:] == [r"\ta", "'@a", "'=", "a=b"]
    assert [row["name"] for row in rows][::3][:4] == ["height", "-1", "'@b", "d"]


def test_an_error_that_names_something_hostile_is_one_line(command):  # noqa: F811
    code, _, err = command("sample", "no-such\x1b[31m\nfile")
    assert code == 2
    assert "\x1b" not in one_line(err)
    code, _, err = command("sample", LATTICE, "--out", "no\udcff/run.mgr")
    assert code == 2
    one_line(err).encode()


def test_the_handler_of_ctrl_c_is_set_before_slow_imports():
    """Ctrl-C during the import of `signal` would print a traceback."""
    program = "import sys, minigibbs.cli.entry; print('signal' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    python = [sys.executable, "-S", "-c", program]
    done = subprocess.run(python, capture_output=True, text=True, env=environment)
    assert done.stdout == "False\n", done.stderr
