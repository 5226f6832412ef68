"""`minigibbs maximize`: the state on stdout, as JSON and as CSV; models on standard input."""

import io
import json
import sys

import numpy as np
import pytest

import minigibbs as mg
from tests.cli.test_cli import command  # noqa: F401


@pytest.fixture
def coins(tmp_path):
    """Write three variables whose best state is known."""
    energies = np.array([[0.0, 2.0], [1.0, 0.0], [0.0, 0.5]])
    graph = mg.FactorGraph(
        [2, 2, 2], [mg.Unary(range(3), energies)], names=["a", "b", "=c"], labels=["no", "yes"]
    )
    mg.write(graph, tmp_path / "coins.mg")
    return tmp_path / "coins.mg"


def test_the_state_and_its_energy(command, coins):  # noqa: F811
    asked = ["maximize", "coins.mg", "--rounds", 5, "--seed", 1, "-q"]
    code, out, _ = command(*asked, "--json")
    got = json.loads(out)
    assert code == 0
    assert got["energy"] == -3.5
    assert got["state"] == {"a": "yes", "b": "no", "=c": "yes"}
    _, out, _ = command(*asked, "--given", "b=yes")
    assert "energy      -2.5" in out


def test_a_proof(command, coins):  # noqa: F811
    _, out, _ = command("maximize", "coins.mg", "--prove", "--json", "-q")
    assert json.loads(out)["proven"]


def test_the_state_as_csv(command, coins, tmp_path):  # noqa: F811
    asked = ["maximize", "coins.mg", "--rounds", 5, "--seed", 1, "-q", "--out"]
    expected = ["variable,name,value", "0,a,yes", "1,b,no", "2,'=c,yes"]
    assert command(*asked, "-")[1].splitlines() == expected
    _, out, _ = command(*asked, "state.csv")
    assert "saved: state.csv" in out
    assert (tmp_path / "state.csv").read_text().splitlines() == expected
    code, _, err = command(*asked, "no/such/folder.csv")
    assert code != 0
    assert "no/such" in err


def test_a_model_on_standard_input(command, coins, monkeypatch):  # noqa: F811
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(coins.read_bytes())))
    code, out, _ = command("maximize", "stdin:mg", "--rounds", 5, "--seed", 1, "-q", "--json")
    assert code == 0
    assert json.loads(out)["energy"] == -3.5


def test_a_format_of_standard_input_that_nobody_knows(command, monkeypatch):  # noqa: F811
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    code, _, err = command("infer", "stdin:xyz", "-q")
    assert code == 2
    assert ".xyz" in err
