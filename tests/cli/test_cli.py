"""The command line: results on stdout, progress and errors on stderr, exit codes."""

import csv
import json
import struct
import subprocess
import sys

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.cli import main as cli
from minigibbs.formats import uai
from minigibbs.models import GENERATORS
from minigibbs.results import tables as marginals
from minigibbs.samplers import SINGLE_SITE
from tests.harness import sample
from tests.paths import LAWN
from tests.zoo import ZOO


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Run the command line in an empty folder; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["minigibbs", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        code = caught.value.code
        return (0 if code is None else code, *capsys.readouterr())

    return call


def one_line(stderr):
    assert stderr.startswith("error: ")
    assert stderr.count("\n") == 1
    return stderr


def test_version(command):
    assert command("--version") == (0, f"minigibbs {mg.__version__}\n", "")


def test_the_version_is_printed_without_importing_the_commands():
    code = (
        "import sys; sys.argv = ['minigibbs', '--version']; "
        "from minigibbs.cli.entry import main; main(); "
        "assert not {'numpy', 'numba', 'typer'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"minigibbs {mg.__version__}\n"), done.stderr


COMMANDS = [
    "demo",
    "infer",
    "maximize",
    "sample",
    "resume",
    "explain",
    "learn",
    "repair",
    "reproduce",
    "report",
]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command(command, name):
    code, out, err = command("--help")
    assert (code, err) == (0, "")
    assert name in out
    code, out, err = command(name, "--help")
    assert (code, err) == (0, "")
    assert f"minigibbs {name}" in out
    assert "--json" in out


def test_there_are_no_other_commands():
    assert {c.callback.__name__ for c in cli.app.registered_commands} == set(COMMANDS)


@pytest.mark.parametrize("arguments", [["nope"], ["sample"], ["sample", "potts-rbf", "--nope"]])
def test_commands_that_do_not_exist(command, arguments):
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert "--help" in err


def test_demo_draws_a_picture(command, tmp_path):
    code, out, err = command("demo", "--updates", 4000, "--out", "picture.png", "--seed", 3)
    assert code == 0
    for text in ("16,000 updates", "error of the marginals", "What to type next", "picture.png"):
        assert text in out
    assert "warning" not in err
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


def test_demo_prints_json(command, tmp_path):
    code, out, _ = command("demo", "--updates", 2000, "--json", "-q", "-o", "p.svg")
    got = json.loads(out)
    assert code == 0
    assert got["info"]["updates"] == 8000
    assert got["picture"] == "p.svg"
    assert b"<svg" in (tmp_path / "p.svg").read_bytes()


@pytest.mark.parametrize("updates", [0, 10])
def test_a_demo_too_short_to_draw_ends_in_order(command, tmp_path, updates):
    """There is either a picture, or one line with the reason why not."""
    code, _, err = command("demo", "--updates", updates, "-q", "-o", "p.png")
    if code == 0:
        assert (tmp_path / "p.png").is_file()
    else:
        assert code == 2
        assert "updates" in one_line(err)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("output", ["no/such/folder.png", "picture.xyz"])
def test_a_picture_that_cannot_be_written_is_refused_before_sampling(
    command, tmp_path, monkeypatch, output
):
    def refuse(*_, **__):
        raise AssertionError("sampling has begun")

    monkeypatch.setattr("minigibbs.cli.demo.sample", refuse)
    code, out, err = command("demo", "--updates", 2000, "-q", "-o", output)
    assert code in (1, 2)
    assert out == ""
    assert output.split(".")[0] in one_line(err)
    assert list(tmp_path.iterdir()) == []


def test_sample_prints_a_table(command):
    code, out, _ = command("sample", "potts-rbf:side=4,states=3", "--sweeps", 200, "--seed", 1)
    assert code == 0
    assert "4 x 3,200" in out
    assert "updates/s" in out


def test_sample_prints_nothing_but_json(command):
    code, out, err = command(
        "sample", "ising-lattice:side=4,beta=0.2", "--sweeps", 400, "--seed", 1, "--json"
    )
    got = json.loads(out)
    assert (code, err) == (0, "")
    assert got["chains"] == 4
    assert got["updates"] == 4 * 400 * 16
    assert got["seed"] == got["info"]["seed"] == "1"
    assert got["saved"] is None


def test_json_holds_no_nan(command):
    """NaN and Infinity are not JSON, and many parsers refuse them."""

    def refuse(name):
        raise AssertionError(f"{name} in the output")

    arguments = ["sample", "potts-rbf:side=3", "--updates", 2, "--thin", 1, "--json"]
    code, out, _ = command(*arguments, "--record", "marginals,draws,energy")
    assert code == 0
    json.loads(out, parse_constant=refuse)


def test_sample_passes_every_option_on(command, tmp_path):
    code, out, _ = command(
        *["sample", "potts-rbf:side=3,states=4,beta=1.0,gamma=0.5", "--sampler", "gibbs"],
        *["--updates", 90, "--warmup", 9, "--chains", 2, "--seed", 5, "--scan", "shuffled"],
        *["--record", "draws, energy", "--thin", 3, "--threads", 1, "--out", "run.mgr", "-q"],
    )
    assert code == 0
    assert "saved: run.mgr" in out
    got = mg.load(tmp_path / "run.mgr")
    want = sample(
        mg.models.potts_rbf(side=3, states=4, beta=1.0, gamma=0.5),
        updates=90,
        warmup=9,
        start="dispersed",
        chains=2,
        seed=5,
        scan="shuffled",
        record=("draws", "energy"),
        thin=3,
        progress=False,
    )
    np.testing.assert_array_equal(got.draws, want.draws)
    np.testing.assert_array_equal(got.energy, want.energy)
    assert got.counts is None
    assert (got.info.warmup, got.info.scan) == (18, "shuffled")


def test_warnings_go_to_stderr(command, tmp_path):
    graph = mg.FactorGraph([2] * 3, [mg.Ising([0, 1, 2], [1, 2, 0], 30.0)])
    mg.write(graph, tmp_path / "stuck.mg")
    code, out, err = command(
        "sample", "stuck.mg", "--sweeps", 200, "--seed", 2, "--record", "draws", "--warmup", 50
    )
    options = {"warmup": 50, "start": "dispersed", "progress": False}
    draws = sample(graph, sweeps=200, seed=2, record="draws", **options).draws
    assert len({tuple(x) for x in draws[:, -1].tolist()}) == 2  # this seed has chains in both
    assert code == 0
    assert "warning" not in out
    assert err.startswith("warning: ")
    assert "warning: the chains disagree on x" in err


@pytest.mark.parametrize("variable", ["x3", "3"])
def test_given_clamps_a_variable(command, tmp_path, variable):
    code, _, err = command(
        *["sample", "potts-rbf:side=3,states=4", "--sweeps", 20, "--given", f"{variable}=2"],
        *["--given", "0=1", "--out", "run.mgr"],
    )
    assert code == 0, err
    marginals = mg.load(tmp_path / "run.mgr").marginals
    assert marginals[3].tolist() == [0.0, 0.0, 1.0, 0.0]
    assert marginals[0].tolist() == [0.0, 1.0, 0.0, 0.0]
    assert 0 < marginals[1, 0] < 1


@pytest.mark.parametrize(
    ("given", "variable", "value"),
    [
        ("wet=yes", 0, 1),
        ("0=yes", 0, 1),
        ("wet=0", 0, 0),
        ("7=1", 1, 1),  # a name before an index
        ("height=0.5", 2, 1),
        ("height=2", 2, 2),
        ("level=1.5", 3, 1),
    ],
)
def test_given_by_name_label_and_grid_point(command, tmp_path, given, variable, value):
    graph = mg.FactorGraph(
        [2, 2, mg.Grid(0.0, 1.0, 3), 2],
        [],
        names=["wet", "7", "height", "level"],
        labels={"wet": ["no", "yes"], "level": [0.5, 1.5]},
    )
    mg.write(graph, tmp_path / "model.mg")
    code, _, err = command(
        "sample", "model.mg", "--updates", 10, "--given", given, "--out", "run.mgr"
    )
    assert code == 0, err
    run = mg.load(tmp_path / "run.mgr")
    assert run.marginals[variable, value] == 1.0


def test_a_model_file_with_its_evidence(command, tmp_path):
    mg.write(ZOO["evidence"], tmp_path / "model.mg")
    code, out, _ = command("sample", "model.mg", "--updates", 50, "--json", "--out", "run.mgr")
    assert code == 0
    assert json.loads(out)["saved"] == "run.mgr"
    assert mg.load(tmp_path / "run.mgr").marginals[3].tolist() == [0.0, 1.0, 0.0]


GRID = """MARKOV
3
2 3 2
3
1 1
2 0 1
2 1 2

3
 0 0.4 0.6

6
 1 2 1 1 1 3

6
 1 1 2 1 1 4
"""


def test_a_complete_job_on_uai_files(command, tmp_path):
    (tmp_path / "grid.uai").write_text(GRID)
    (tmp_path / "grid.uai.evid").write_text("1 0 1")
    code, out, err = command(
        *["sample", "grid.uai", "--evidence", "grid.uai.evid", "--out", "grid.uai.MAR"],
        *["--sweeps", 4000, "--seed", 1, "-q"],
    )
    assert (code, err) == (0, "")
    assert "saved: grid.uai.MAR" in out
    rows = uai.read_marginals(tmp_path / "grid.uai.MAR")
    assert rows[0].tolist() == [0.0, 1.0]
    weights = np.array([0.0, 0.4 * 1 * (2 + 1), 0.6 * 3 * (1 + 4)])  # value 0 is pruned
    assert rows[1][0] == 0.0
    np.testing.assert_allclose(rows[1], weights / weights.sum(), atol=0.03)
    assert len(rows[2]) == 2


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ("1 0 7", "variable 0: expected a value from 0 to 1"),
        ("1 1 0", "variable 1: expected one of the states that no factor forbids"),
        ("1 9 0", "unknown variable 9"),
        ("2 0 0", "grid.uai.evid, line 1"),
    ],
)
def test_evidence_that_does_not_fit(command, tmp_path, evidence, message):
    (tmp_path / "grid.uai").write_text(GRID)
    (tmp_path / "grid.uai.evid").write_text(evidence)
    code, out, err = command("sample", "grid.uai", "--evidence", "grid.uai.evid")
    assert (code, out) == (2, "")
    assert message in one_line(err)


def test_evidence_that_is_not_there(command, tmp_path):
    (tmp_path / "grid.uai").write_text(GRID)
    code, _, err = command("sample", "grid.uai", "--evidence", "no.evid")
    assert code == 2
    assert "no.evid" in one_line(err)


def test_a_used_folder_names_the_command_that_continues_it(command, tmp_path):
    asked = ["sample", "ising-lattice:side=3,beta=0.2", "--sweeps", 9, "-q", "--checkpoint", "used"]
    assert command(*asked)[0] == 0
    code, out, err = command(*asked)
    assert (code, out) == (2, "")
    assert "`minigibbs resume used`" in one_line(err)
    assert command("resume", "used", "-q")[0] == 0


def test_a_model_that_is_not_there_is_told_with_similar_names(command, tmp_path):
    (tmp_path / "grid.uai").write_text(GRID)
    code, out, err = command("infer", "gird.uai")
    assert (code, out) == (2, "")
    assert "ising-lattice" in one_line(err)
    assert "did you mean grid.uai?" in err


def test_evidence_and_given_clamp_together(command, tmp_path):
    (tmp_path / "grid.uai").write_text(GRID)
    (tmp_path / "a.evid").write_text("1\n1 0 1\n")
    arguments = ["sample", "grid.uai", "--evidence", "a.evid", "--sweeps", 9, "--out", "a.MAR"]
    assert command(*arguments, "--given", "x1=2")[0] == 0
    rows = uai.read_marginals(tmp_path / "a.MAR")
    assert (rows[0].tolist(), rows[1].tolist()) == ([0.0, 1.0], [0.0, 0.0, 1.0])
    code, _, err = command(*arguments, "--given", "x0=0")
    assert code == 2
    assert "variable 0 is clamped to 1 already" in one_line(err)


def test_marginals_that_are_not_recorded_are_refused_before_sampling(command, tmp_path):
    code, out, err = command("sample", "potts-rbf:side=3", "--record", "energy", "--out", "a.MAR")
    assert (code, out) == (2, "")
    assert "--record" in one_line(err)
    assert list(tmp_path.iterdir()) == []


def test_explain_prints_the_papers_constants(command):
    code, out, err = command("explain", "--trials", "0", "ising-rbf")
    assert (code, err) == (0, "")
    for piece in (
        "Delta",
        "399",
        "(L)",
        "2.212",
        "(Psi)",
        "416.1",
        "(D)",
        "gibbs",
        "Use poisson-gibbs",
    ):
        assert piece in out


def test_explain_takes_the_scan_of_a_run(command):
    told = json.loads(
        command("explain", "--trials", "0", "curie-weiss:n=600,beta=2.0", "--json")[1]
    )
    assert told["lanes"] == 1
    arguments = ("--scan", "chromatic", "--json")
    told = json.loads(
        command("explain", "--trials", "0", "curie-weiss:n=600,beta=2.0", *arguments)[1]
    )
    assert told["lanes"] == 64
    assert "2.46 times smaller" in told["guarantee"]
    code, _, err = command("explain", "--trials", "0", "ising-rbf", "--scan", "sideways")
    assert code != 0
    assert "scan must be one of" in err


def test_explain_prints_json(command):
    code, out, err = command("explain", "--trials", "0", "potts-rbf:side=3,states=5", "--json")
    assert (code, err) == (0, "")
    got = json.loads(out)
    assert got["stats"]["variables"] == 9
    assert got["stats"]["max_domain"] == 5
    assert {row["sampler"] for row in got["rows"]} == SINGLE_SITE.keys()


ARGUMENTS = {
    "ising-rbf": "side=3",
    "potts-rbf": "side=3",
    "ising-lattice": "side=3,beta=0.1,periodic=false",
    "potts-lattice": "side=3,states=3,beta=-0.1,periodic=True",
    "spin-glass": 'side=3,beta=0.4,dimensions=2,couplings="signs",seed=2',
    "sherrington-kirkpatrick": "n=6,beta=0.4",
    "curie-weiss": "n=5,beta=1e-1,implicit=true",
    "long-range-ising": "n=5,alpha=2,beta=0.1",
    "random-tables": "variables=5,factors=3,arity=2,states=2,scale=0.5,unary=0.1,seed=3",
}


@pytest.mark.parametrize("name", GENERATORS)
def test_every_generator_by_name(command, name):
    model = f"{name}:{ARGUMENTS[name]}".replace('"', "")
    code, out, _ = command("explain", "--trials", "0", model, "--json")
    assert code == 0
    values = {}
    for part in ARGUMENTS[name].split(","):
        key, value = part.split("=")
        values[key] = json.loads(value.lower())
    assert json.loads(out)["stats"] == vars(GENERATORS[name](**values).stats)


@pytest.mark.parametrize("model", ["curie-weiss:n=100000,beta=0.9", "curie-weiss:n=5,beta=0.9"])
def test_implicit_models_by_name(command, model):
    code, out, _ = command("explain", "--trials", "0", f"{model},implicit=true", "--json")
    assert code == 0
    assert json.loads(out)["stats"]["variables"] == (5 if "n=5" in model else 100_000)


def test_a_damaged_model_file(command, tmp_path):
    (tmp_path / "model.mg").write_bytes(b"nothing of the kind")
    code, out, err = command("explain", "--trials", "0", "model.mg")
    assert (code, out) == (2, "")
    assert "model.mg" in one_line(err)


def test_a_file_of_an_unknown_format(command, tmp_path):
    (tmp_path / "model.txt").write_text("hello")
    code, out, err = command("sample", "model.txt")
    assert (code, out) == (2, "")
    assert ".mg" in one_line(err)


def test_saving_onto_a_folder_is_refused(command, tmp_path):
    (tmp_path / "folder").mkdir()
    code, _, err = command("sample", "potts-rbf:side=3", "--sweeps", 2, "--out", "folder")
    assert code in (1, 2)
    assert "folder" in one_line(err)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert list((tmp_path / "folder").iterdir()) == []


def test_the_program_as_a_shell_sees_it(tmp_path):
    """A separate process has an exit code, one line on stderr, and no file."""
    done = subprocess.run(
        [sys.executable, "-c", "from minigibbs.cli.main import main; main()", "sample", "no-such"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "no-such" in one_line(done.stderr)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_sample_is_saved_and_says_so(command, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("minigibbs.running.loop.wait", interrupt)
    code, out, err = command("sample", "potts-rbf:side=3", "--updates", 10, "--out", "run.mgr")
    assert code == 130
    assert "interrupted" in err
    assert "saved: run.mgr" in out
    assert mg.load(tmp_path / "run.mgr").interrupted


HARD = "MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 0 2 1\n"


def test_a_floor_on_the_command_line_says_what_it_did(command, tmp_path):
    (tmp_path / "hard.uai").write_text(HARD)
    code, out, err = command("sample", "hard.uai", "-q", "--seed", 1)
    assert code == 0
    assert "note" not in out
    assert "zeros" not in err  # of three states in a row, each is reached
    code, out, err = command("sample", "hard.uai", "--floor", "0.01", "-q", "--seed", 1)
    assert code == 0
    assert err.startswith("warning: hard.uai: raised 1 table entry")
    assert "another model" in err
    assert "note: raised 1 table entry of 1 factor to 0.01" in out
    code, out, _ = command("sample", "hard.uai", "--floor", "0.01", "-q", "--json")
    assert json.loads(out)["notes"] == ["raised 1 table entry of 1 factor to 0.01"]


@pytest.mark.parametrize("option", [["--floor", "0.1"], ["--ignore-evidence"]])
def test_options_of_other_formats_are_refused(command, tmp_path, option):
    mg.write(ZOO["potts"], tmp_path / "a.mg")
    assert command("sample", "a.mg", *option)[0] == 2
    assert "is for model files" in one_line(command("sample", "curie-weiss:n=9,beta=1", *option)[2])


def test_sample_shows_the_most_uncertain_marginals(command, tmp_path):
    sharp, even = [0.0, 6.0], [0.0, 0.0]
    graph = mg.FactorGraph(
        np.full(12, 2), [mg.Unary(np.arange(12), [sharp] * 2 + [even] * 10)], labels=["no", "yes"]
    )
    mg.write(graph, tmp_path / "a.mg")
    _, out, _ = command("sample", "a.mg", "-q", "--seed", 1)
    lines = [line for line in out.splitlines() if line.startswith("  x")]
    assert [line.split(":")[0].strip() for line in lines] == [f"x{v}" for v in range(2, 12)]
    assert all("yes 0." in line and "no 0." in line for line in lines)
    _, out, _ = command("sample", "a.mg", "-q", "--seed", 1, "--show", 3, "--json")
    shown = json.loads(out)["marginals"]
    assert list(shown) == [f"x{v}" for v in range(12)]
    assert all(sum(row.values()) == pytest.approx(1) for row in shown.values())
    assert "most uncertain" not in command("sample", "a.mg", "-q", "--show", 0)[1]


def test_marginals_as_csv(command, tmp_path):
    (tmp_path / "grid.uai").write_text(GRID)
    code, _, _ = command("sample", "grid.uai", "-q", "--seed", 1, "--out", "m.csv")
    assert code == 0
    run = mg.sample(mg.read(tmp_path / "grid.uai"), seed=1, progress=False)
    with open(tmp_path / "m.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    want = [
        (str(v), f"x{v}", str(value), p)
        for v in range(len(run.domains))
        for value, p in zip(*run.marginal(v), strict=True)
    ]
    got = [(r["variable"], r["name"], r["value"], float(r["probability"])) for r in rows]
    assert got == want
    assert all(0 < float(r["standard_error"]) < 0.1 for r in rows)
    code, _, err = command("sample", "grid.uai", "--record", "energy", "--out", "m.csv")
    assert "holds marginals" in one_line(err)


def test_csv_quotes_what_needs_it_and_one_chain_has_no_errors(tmp_path):
    graph = mg.FactorGraph([2], [], names=['a, "b"'], labels=["x,y", "z\n"])
    run = sample(graph, sweeps=50, chains=1, seed=1, progress=False)
    marginals.write_csv(run, tmp_path / "m.csv")
    with open(tmp_path / "m.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(r["name"], r["value"], r["standard_error"]) for r in rows] == [
        ('a, "b"', "x,y", ""),
        ('a, "b"', r"z\n", ""),
    ]


def test_samplers_take_options(command):
    code, out, _ = command(
        *["sample", "curie-weiss:n=9,beta=1", "--sampler", "mgpmh:batch=20", "-q", "--json"]
    )
    assert code == 0
    assert json.loads(out)["sampler"] == "MGPMH(batch=20.0)"
    for text, message in (
        ("mgpmh:bach=20", "mgpmh takes batch=..., slowdown=...; got 'bach=20'"),
        ("mgpmh:batch=many", "batch must be of type float"),
        ("mpgmh", "no such sampler"),
        ("gibbs:textbook=maybe", "textbook must be of type bool"),
    ):
        code, _, err = command("sample", "curie-weiss:n=9,beta=1", "--sampler", text)
        assert code == 2
        assert message in one_line(err)


def test_explain_takes_evidence(command, tmp_path):
    (tmp_path / "hard.uai").write_text(HARD)
    (tmp_path / "e.evid").write_text("1 0 1")
    whole = json.loads(
        command("explain", "--trials", "0", "hard.uai", "--floor", "0.1", "--json")[1]
    )
    for extra in (["--evidence", "e.evid"], ["--given", "x0=1"]):
        given = json.loads(
            command("explain", "--trials", "0", "hard.uai", "--floor", "0.1", "--json", *extra)[1]
        )
        assert (whole["stats"]["variables"], given["stats"]["variables"]) == (2, 1)
    assert (
        "note: raised 1 table entry"
        in command("explain", "--trials", "0", "hard.uai", "--floor", "0.1")[1]
    )


def test_a_network_by_names_and_labels(command):
    lawn = LAWN
    code, out, _ = command("sample", lawn, "--given", "rain=yes", "-q", "--seed", 1)
    assert code == 0
    assert "grass: soaked 0." in out
    assert "a little wet 0." in out


def test_a_dimmwitted_folder(command, tmp_path):
    coin = struct.pack(">QBQHQ", 0, 1, 1, 0, 2) + struct.pack(">QBQHQ", 1, 0, 0, 0, 2)
    (tmp_path / "g").mkdir()
    for kind, content in {
        "meta": b"1,2,1,2",
        "weights": struct.pack(">QBd", 0, 1, 0.5),
        "variables": coin,
        "factors": struct.pack(">HQQQQQQd", 3, 2, 0, 1, 1, 1, 0, 1.0),
    }.items():
        (tmp_path / "g" / f"graph.{kind}").write_bytes(content)
    code, out, _ = command("sample", "g", "-q", "--seed", 1, "--json")
    assert code == 0
    assert json.loads(out)["marginals"]["x0"] == {"0": 0.0, "1": 1.0}
    assert json.loads(out)["marginals"]["x1"]["1"] == pytest.approx(1 / (1 + np.exp(-1)), abs=0.1)
    _, out, _ = command("sample", "g", "-q", "--ignore-evidence", "--json")
    assert list(json.loads(out)["marginals"]) == ["x0", "x1"]


def test_a_model_that_does_not_mix_is_told_of(command):
    code, _, err = command(
        "sample", "curie-weiss:n=100,beta=10", "-q", "--seed", 1, "--sweeps", 200
    )
    assert code == 0
    assert "warning: the chains disagree on x" in err
