"""`minigibbs infer`: answers on stdout and in files, warnings on stderr, exit codes."""

import csv
import io
import json
import math
from contextlib import contextmanager

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.formats import uai
from tests.cli.test_cli import GRID, command, one_line  # noqa: F401
from tests.hard import HARD
from tests.paths import LAWN
from tests.running.test_executors import Elsewhere
from tests.zoo import ZOO

# In GRID given x0 = 1, x1 is 1 or 2, and x2 follows from it.
WEIGHTS = np.array([0.0, 0.4 * 1 * (2 + 1), 0.6 * 3 * (1 + 4)])


@pytest.fixture
def grid(tmp_path):
    (tmp_path / "grid.uai").write_text(GRID)
    (tmp_path / "grid.evid").write_text("1 0 1")


def test_an_exact_answer_in_words(command):  # noqa: F811
    code, out, err = command("infer", LAWN, "--given", "rain=yes")
    assert (code, err) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in out.splitlines() if line.strip())
    assert lines["method"] == "exact"
    assert "treewidth" in lines["because"]
    graph = mg.read(LAWN).condition({"rain": "yes"})
    assert f"log Z       {mg.log_partition(graph):.6f}" in out
    assert "grass: soaked 0." in out


def test_chains_run_on_dask(command, grid, monkeypatch):  # noqa: F811
    there, addresses = Elsewhere(), []

    @contextmanager
    def client(address):
        addresses.append(address)
        yield there

    monkeypatch.setattr("minigibbs.running.executors.dask.dask_client", client)
    options = ["--no-exact", "--chains", "2", "--standard-error", "0.05", "--seed", "1"]
    code, _, _ = command("infer", "grid.uai", *options, "--dask", "tcp://there:1")
    assert code == 0
    assert addresses == ["tcp://there:1"]
    assert there.turn > 0


def test_files_of_the_uai_competitions(command, grid, tmp_path):  # noqa: F811
    code, out, err = command(
        *["infer", "grid.uai", "--evidence", "grid.evid", "--max-time", "20s"],
        *["--out", "m.MAR", "--partition", "m.PR"],
    )
    assert (code, err) == (0, "")
    assert "saved: m.MAR" in out
    assert "saved: m.PR" in out
    rows = uai.read_marginals(tmp_path / "m.MAR")
    assert rows[0].tolist() == [0.0, 1.0]
    np.testing.assert_allclose(rows[1], WEIGHTS / WEIGHTS.sum(), rtol=1e-9)
    first, second = (tmp_path / "m.PR").read_text().split()
    assert first == "PR"
    assert float(second) == pytest.approx(math.log10(WEIGHTS.sum()), abs=1e-9)


def test_csv_in_a_file_and_on_stdout(command, grid, tmp_path):  # noqa: F811
    arguments = ["infer", "grid.uai", "--evidence", "grid.evid"]
    code, out, err = command(*arguments, "--out", "-")
    assert (code, err) == (0, "")
    assert command(*arguments, "--out", "m.csv")[0] == 0
    for text in (out, (tmp_path / "m.csv").read_text()):
        rows = list(csv.DictReader(io.StringIO(text)))
        found = {(row["name"], row["value"]): float(row["probability"]) for row in rows}
        assert found["x1", "2"] == pytest.approx(WEIGHTS[2] / WEIGHTS.sum())
        assert all(float(row["standard_error"]) == 0.0 for row in rows)


def test_a_saved_answer_is_loaded(command, grid, tmp_path):  # noqa: F811
    assert command("infer", "grid.uai", "--out", "a.mga")[0] == 0
    answer = mg.load(tmp_path / "a.mga")
    assert answer.exact
    assert answer.log_z == mg.log_partition(mg.read(tmp_path / "grid.uai"))


def test_json(command, grid):  # noqa: F811
    code, out, err = command("infer", "grid.uai", "--evidence", "grid.evid", "--json")
    assert (code, err) == (0, "")
    got = json.loads(out)
    assert got["exact"] is True
    assert got["log_z"] == pytest.approx(math.log(WEIGHTS.sum()))
    assert got["log_z_error"] == 0.0
    assert got["warnings"] == []
    assert got["marginals"]["x1"]["2"] == pytest.approx(WEIGHTS[2] / WEIGHTS.sum())
    assert json.loads(command("infer", "grid.uai", "--json", "--show", 0)[1])["marginals"] == {}


def test_sampled_where_exact_answers_are_off(command, tmp_path):  # noqa: F811
    """Limits are ten standard errors plus 0.01 for a marginal, eight for log Z."""
    graph = HARD["apart"]
    mg.write(graph, tmp_path / "apart.mg")
    code, out, _ = command(
        *["infer", "apart.mg", "--no-exact", "--max-time", "10s", "--standard-error", 0.01],
        *["--seed", 1, "-q", "--json"],
    )
    assert code == 0
    got, exact = json.loads(out), mg.infer(graph)
    assert got["exact"] is False
    assert got["method"].startswith("Tempering(")
    assert "not requested" in got["reason"]
    assert abs(got["log_z"] - exact.log_z) < 8 * got["log_z_error"]
    for name, row in got["marginals"].items():
        truth = exact.marginals[graph.domains.index(int(name[1:]))]
        np.testing.assert_allclose(list(row.values()), truth[: len(row)], atol=0.11)


def test_memory_decides(command, tmp_path):  # noqa: F811
    mg.write(mg.models.ising_lattice(side=8, beta=0.2), tmp_path / "grid.mg")
    arguments = [
        "infer",
        "grid.mg",
        "--max-time",
        "3s",
        "--standard-error",
        0.05,
        "--seed",
        1,
        "-q",
        "--json",
    ]
    assert json.loads(command(*arguments)[1])["exact"] is True
    little = json.loads(command(*arguments, "--memory", "1K")[1])
    assert little["exact"] is False
    assert "numbers" in little["reason"]


def test_log_z_that_is_not_known_is_not_written(command, tmp_path):  # noqa: F811
    graph = mg.FactorGraph(np.full(900, 2), [mg.Complete(900, 1e-3)])
    mg.write(graph, tmp_path / "all.mg")
    code, _, err = command(
        *["infer", "all.mg", "--max-time", "2s", "--standard-error", 0.1, "--partition", "m.PR"],
        *["--seed", 1, "-q"],
    )
    assert code == 0
    assert "warning: m.PR was not written: log Z is not known by PoissonGibbs()" in err
    assert not (tmp_path / "m.PR").exists()


def test_too_few_round_trips_are_told_on_stderr(command, tmp_path):  # noqa: F811
    i, j = np.triu_indices(30, 1)
    weights = np.random.default_rng(1).normal(0, 3.0, len(i))
    mg.write(mg.FactorGraph([2] * 30, [mg.Ising(i, j, weights)]), tmp_path / "glass.mg")
    code, out, err = command(
        "infer", "glass.mg", "--no-exact", "--max-time", "1ms", "--seed", 1, "-q"
    )
    assert code == 0
    assert "round trips" in err
    assert "warning" not in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-time", "soon"], "max_time must be seconds"),
        (["--memory", "much"], "memory must be bytes"),
        (["--standard-error", "-1", "--no-exact"], "standard_error must be a number above 0"),
        (["--chains", "0"], "chains must be"),
        (["--given", "x9=1"], "x9"),
        (["--out", "-", "--json"], "--out - and --json"),
        (["--evidence", "grid.evid", "--given", "x0=0"], "clamped to 1 already"),
    ],
    ids=str,
)
def test_bad_options_are_one_line(command, grid, options, message):  # noqa: F811
    code, out, err = command("infer", "grid.uai", *options)
    assert (code, out) == (2, "")
    assert message in one_line(err)


def test_files_that_are_not_there(command, grid):  # noqa: F811
    for arguments in (
        ["no.uai"],
        ["grid.uai", "--evidence", "no.evid"],
        ["grid.uai", "--partition", "no/m.PR"],
        ["grid.uai", "--out", "no/m.MAR"],
    ):
        code, out, err = command("infer", *arguments)
        assert code in (1, 2)
        assert out == ""
        assert "no" in one_line(err)


def test_evidence_of_probability_0(command, tmp_path):  # noqa: F811
    same = mg.Table([[0, 1]], [[0.0, -np.inf], [-np.inf, 0.0]])
    mg.write(mg.FactorGraph([2, 2], [same]), tmp_path / "same.mg")
    code, out, err = command("infer", "same.mg", "--given", "x0=0", "--given", "x1=1")
    assert (code, out) == (2, "")
    assert "probability" in one_line(err)


def test_explain_names_it(command, tmp_path):  # noqa: F811
    mg.write(ZOO["ising"], tmp_path / "model.mg")
    code, out, _ = command("explain", "--trials", "0", "model.mg")
    assert code == 0
    assert "For marginals and log Z with errors: mg.infer" in out


def test_labels_of_the_same_text_stay_apart_in_json(command, tmp_path):  # noqa: F811
    labels = [[1, "1", "two"]]
    graph = mg.FactorGraph([3], [mg.Unary([0], np.log([0.2, 0.3, 0.5]))], ["a"], labels)
    mg.write(graph, tmp_path / "model.mg")
    for arguments in (["infer"], ["sample", "--sweeps", 2000, "--seed", 1]):
        code, out, err = command(arguments[0], "model.mg", *arguments[1:], "--json", "--quiet")
        assert (code, err) == (0, "")
        got = json.loads(out)["marginals"]["a"]
        assert got == pytest.approx({"1 (int)": 0.2, "1": 0.3, "two": 0.5}, abs=0.05)
