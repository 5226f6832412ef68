"""Quadratic functions (.qubo) and maximum-cut instances (.gset, .rud, .mc)."""

import numpy as np
import pytest

import minigibbs as mg
from tests.formats.files import GSET, QUBO
from tests.formats.test_clauses import every_state, written


def test_energies_of_a_qubo(tmp_path):
    graph = mg.read(written(tmp_path, QUBO, "a.qubo"), beta=2.0)
    x = every_state(4)
    energy = 0.5 * x[:, 0] - 2.0 * x[:, 2] + 1.5 * x[:, 0] * x[:, 1] - 0.25 * x[:, 1] * x[:, 2]
    np.testing.assert_allclose(graph.log_potential(x), -2.0 * energy, atol=1e-12)


def test_the_topology_is_ignored(tmp_path):
    """qbsolv uses 0 and unconstrained."""
    text = QUBO.replace("qubo 0", "qubo unconstrained")
    x = every_state(4)
    graphs = [mg.read(written(tmp_path, one, "a.qubo")) for one in (QUBO, text)]
    first, second = (graph.log_potential(x) for graph in graphs)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("ending", ["gset", "rud", "mc.gz"])
def test_energy_is_the_cut(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    mg.write(mg.read(written(tmp_path, GSET, "b.gset")), path)
    for graph in (mg.read(path), mg.read(tmp_path / "b.gset")):
        x = every_state(4)
        cut = 1.0 * (x[:, 0] != x[:, 1]) - 1.0 * (x[:, 1] != x[:, 2]) + 2.5 * (x[:, 3] != x[:, 0])
        np.testing.assert_allclose(graph.log_potential(x), cut, atol=1e-12)


def test_models_of_pairs_round_trip_as_qubo(tmp_path):
    rng = np.random.default_rng(3)
    graph = mg.FactorGraph(
        [2] * 5,
        [
            mg.Ising([0, 1, 1], [1, 2, 2], rng.normal(size=3)),
            mg.Potts([3], [0], 0.7),
            mg.Table([[2, 4]], rng.normal(size=(2, 2))),
            mg.Unary([0, 3], rng.normal(size=(2, 2))),
            mg.Logical("and", [[0, 1], [2, 4]], [0.5, -1.0]),
            mg.Logical("imply", [[3, 4]], 0.25),
        ],
    )
    mg.write(graph, tmp_path / "a.qubo")
    difference = graph.log_potential(every_state(5)) - mg.read(tmp_path / "a.qubo").log_potential(
        every_state(5)
    )
    np.testing.assert_allclose(difference, difference[0], atol=1e-12)


PAIR = [mg.Potts([0], [1], 0.5)]
UNWRITABLE = {
    "three values": (mg.FactorGraph([2, 3], PAIR), "qubo", "variable 1 has 3"),
    "three variables": (
        mg.FactorGraph([2] * 3, [mg.Logical("and", [[0, 1, 2]], 1.0)]),
        "qubo",
        "logical factor 0 .*variables 0, 1, 2.* has more",
    ),
    "zero": (mg.FactorGraph([2, 2], [mg.Unary([0], [0.0, -np.inf])]), "qubo", "hard constraints"),
    "evidence": (mg.FactorGraph([2, 2], PAIR).condition({0: 1}), "qubo", "clamped"),
    "implicit": (mg.FactorGraph([2] * 6, [mg.Complete(6, 0.25)]), "gset", "implicit"),
    "field": (mg.FactorGraph([2, 2], [mg.Unary([1], [0.0, 1.0])]), "gset", "variable 1 has one"),
}


@pytest.mark.parametrize("case", UNWRITABLE)
def test_what_the_formats_cannot_hold_is_refused(tmp_path, case):
    graph, ending, message = UNWRITABLE[case]
    with pytest.raises(mg.FormatError, match=message):
        mg.write(graph, tmp_path / f"a.{ending}")


WRONG = {
    "header": ("p cnf 0 1 0 0", "qubo", "expected p qubo"),
    "no topology": ("p qubo\nx 2 1 0\n0 0 1.0", "qubo", "expected a finite number, got 'x'"),
    "range": ("p qubo 0 2 1 0\n2 2 1.0", "qubo", "line 2: expected two variables from 0 to 1"),
    "diagonals": ("p qubo 0 2 1 0\n0 1 1.0", "qubo", "expected 1 lines with one variable twice"),
    "fewer": ("p qubo 0 2 1 1\n0 0 1.0", "qubo", "it takes 6 more, but 3 are left"),
    "more": ("p qubo 0 2 1 0\n0 0 1.0\n1 1 1", "qubo", "expected the end of the file"),
    "large": ("p qubo 0 2147483647 0 0", "qubo", "2,147,483,647 variables"),
    "vertex": ("2 1\n0 1 1\n", "gset", "line 2: edge 1: expected two vertices from 1 to 2"),
    "loop": ("2 1\n1 1 1\n", "gset", "that differ"),
    "no weight": ("2 1\n1 2\n", "gset", "two vertices and a weight"),
}


@pytest.mark.parametrize("case", WRONG)
def test_damage_is_refused_with_its_place(tmp_path, case):
    text, ending, message = WRONG[case]
    with pytest.raises((mg.FormatError, mg.TooLargeError), match=message):
        mg.read(written(tmp_path, text, f"a.{ending}"))


def test_beta_is_checked(tmp_path):
    with pytest.raises(mg.FormatError, match="beta must be"):
        mg.read(written(tmp_path, QUBO, "a.qubo"), beta=-1.0)
