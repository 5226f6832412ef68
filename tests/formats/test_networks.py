"""Bayesian networks are written as .bif and .xmlbif, and read back; damage is refused."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.graph.domains import all_values
from tests.formats.files import XMLBIF
from tests.paths import DATA, LAWN

ENDINGS = ["bif", "xmlbif", "bifxml.gz"]


def written(folder, content, name="a.xmlbif"):
    path = folder / name
    path.write_text(content)
    return path


IMPOSSIBLE = """
network n { }
variable night { type discrete [ 2 ] { frost, mild }; }
variable grass { type discrete [ 3 ] { dry, "under water", wet }; }
variable mud { type discrete [ 2 ] { no, yes }; }
probability ( night ) { table 0.0, 1.0; }
probability ( grass | night ) { (frost) 1.0, 0.0, 0.0; (mild) 0.3, 0.0, 0.7; }
probability ( mud | grass ) { (dry) 1.0, 0.0; ("under water") 0.0, 1.0; (wet) 0.2, 0.8; }
"""


def assert_same(graph, other):
    assert graph.names == other.names
    assert all(graph.domains.values(v) == other.domains.values(v) for v in range(len(graph)))
    states = np.stack(np.meshgrid(*map(np.arange, graph.sizes), indexing="ij"), -1)
    states = states.reshape(-1, len(graph))
    np.testing.assert_allclose(graph.log_potential(states), other.log_potential(states), atol=1e-12)


@pytest.mark.parametrize("ending", ENDINGS)
def test_networks_round_trip(tmp_path, ending):
    graph = mg.read(LAWN)
    mg.write(graph, tmp_path / f"a.{ending}")
    assert_same(graph, mg.read(tmp_path / f"a.{ending}"))


@pytest.mark.parametrize("ending", ENDINGS)
def test_pruned_states_are_written(tmp_path, ending):
    """They have probability 0, so that they are pruned again when the file is read."""
    graph = mg.read(written(tmp_path, IMPOSSIBLE, "given.bif"))
    assert graph.sizes.tolist() == [1, 2, 2]
    everything = [all_values(graph.domains, variable) for variable in range(len(graph))]
    assert everything == [("frost", "mild"), ("dry", "under water", "wet"), ("no", "yes")]
    mg.write(graph, tmp_path / "a.mg")  # this file keeps the names of pruned states
    mg.write(mg.read(tmp_path / "a.mg"), tmp_path / f"a.{ending}")
    back = mg.read(tmp_path / f"a.{ending}")
    assert_same(graph, back)
    assert [all_values(back.domains, variable) for variable in range(len(back))] == everything


@pytest.mark.parametrize("ending", ["bif", "xmlbif"])
def test_strange_names_round_trip(tmp_path, ending):
    graph = mg.FactorGraph(
        [2, 2],
        [
            mg.Unary.from_probabilities([0], [[0.25, 0.75]]),
            mg.Table.from_probabilities([[0, 1]], [[[0.1, 0.9], [0.5, 0.5]]]),
        ],
        ["x < 3 & y; (é)", "table"],
        [["a,b", "{c}"], ["//", "/*"]],
    )
    mg.write(graph, tmp_path / f"a.{ending}")
    assert_same(graph, mg.read(tmp_path / f"a.{ending}"))


def test_children_are_found_wherever_they_stand(tmp_path):
    """The child is the first variable of one table, and the second of three in another."""
    rng = np.random.default_rng(1)
    chance = rng.dirichlet(np.ones(2), (2, 2))  # [0, 2, child]
    graph = mg.FactorGraph(
        [2, 2, 2],
        [
            mg.Unary.from_probabilities([0], [[0.25, 0.75]]),
            mg.Table.from_probabilities([[2, 0]], rng.dirichlet(np.ones(2), 2).T[None]),
            mg.Table.from_probabilities([[0, 1, 2]], np.moveaxis(chance, 2, 1)[None]),
        ],
    )
    mg.write(graph, tmp_path / "a.bif")
    text = (tmp_path / "a.bif").read_text()
    assert "( x1 | x0, x2 )" in text
    assert "( x2 | x0 )" in text
    assert mg.infer(mg.read(tmp_path / "a.bif"), progress=False).log_z == pytest.approx(0.0)


PAIR = mg.Table.from_probabilities([[0, 1]], [[[0.1, 0.9], [0.5, 0.5]]])
BACK = mg.Table.from_probabilities([[1, 0]], [[[0.1, 0.9], [0.5, 0.5]]])
REFUSED = {
    "no probabilities": (mg.FactorGraph([2], [mg.Unary([0], [0.0, 1.0])]), "conditional"),
    "cycle": (mg.FactorGraph([2, 2], [PAIR, BACK]), "without cycles"),
    "factors missing": (mg.FactorGraph([2, 2], [PAIR]), "one table per variable"),
    "evidence": (mg.read(LAWN).condition({"rain": "no"}), "'rain'.* is clamped"),
    "implicit": (mg.FactorGraph([2] * 6, [mg.Complete(6, 0.25)]), "implicit"),
    "wide": (
        mg.FactorGraph([2] * 30, [mg.Logical("or", [list(range(30))], 1.0)]),
        "at most 1,048,576 entries",
    ),
}


@pytest.mark.parametrize("ending", ["bif", "xmlbif"])
@pytest.mark.parametrize("case", REFUSED)
def test_other_graphs_are_not_written(tmp_path, case, ending):
    graph, message = REFUSED[case]
    with pytest.raises(mg.FormatError, match=message):
        mg.write(graph, tmp_path / f"a.{ending}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("ending", "name"), [("bif", 'a"b'), ("xmlbif", " a"), ("xmlbif", "a\n")])
def test_names_that_a_file_cannot_hold(tmp_path, ending, name):
    unary = mg.Unary.from_probabilities([0], [[0.25, 0.75]])
    with pytest.raises(mg.FormatError, match="a name must be printable"):
        mg.write(mg.FactorGraph([2], [unary], [name]), tmp_path / f"a.{ending}")


@pytest.mark.skipif(not DATA.is_dir(), reason="needs the public models in ../shared/data")
@pytest.mark.parametrize("name", ["asia", "alarm", "insurance"])
def test_published_networks_round_trip(tmp_path, name):
    paths = sorted(DATA.rglob(f"{name}.bif*"))
    if not paths:
        pytest.skip("not there")
    graph = mg.read(paths[0])
    mg.write(graph, tmp_path / "a.bif")
    mg.write(graph, tmp_path / "a.xmlbif")
    states = np.random.default_rng(1).integers(0, graph.sizes, (50, len(graph)))
    for ending in ("bif", "xmlbif"):
        back = mg.read(tmp_path / f"a.{ending}")
        np.testing.assert_allclose(
            back.log_potential(states), graph.log_potential(states), atol=1e-9
        )


def test_the_child_moves_fastest(tmp_path):
    graph = mg.read(written(tmp_path, XMLBIF))
    assert graph.names == ("rain", "wet")
    assert graph.domains.values(1) == ("no", "a bit", "yes")
    assert graph.log_potential([1, 0]) == pytest.approx(np.log(0.2 * 0.2))
    assert graph.log_potential([0, 2]) == pytest.approx(np.log(0.8 * 0.1))


WRONG = {
    "no BIF": ("<NET></NET>", "line 1: expected BIF, got NET"),
    "cut": (XMLBIF[:-20], "line"),
    "no XML": ("network n { }", "line 1: syntax error"),
    "entity": ('<!DOCTYPE BIF [<!ENTITY a "b">]>' + XMLBIF, "entity 'a'"),
    "decision": (XMLBIF.replace("nature", "decision"), "of type nature, got 'decision'"),
    "no variables": ("<BIF><NETWORK></NETWORK></BIF>", "expected variables"),
    "twice": (XMLBIF.replace("<NAME>wet", "<NAME>rain"), "line 9: variable 'rain' is declared"),
    "no definition": (XMLBIF.replace("<FOR>wet", "<FOR>rain"), "differ"),
    "unknown": (XMLBIF.replace("<GIVEN>rain", "<GIVEN>snow"), "unknown variable 'snow'"),
    "sum": (XMLBIF.replace("0.8 0.2", "0.8 0.3"), "'rain' must sum to 1, got 1.1"),
    "row": (XMLBIF.replace("0.7 0.2 0.1", "0.7 0.2 0.3"), "'wet' given rain=no must sum to 1"),
    "count": (XMLBIF.replace("0.7 0.2 0.1", "0.7 0.3"), "expected 6 probabilities of 'wet', got 5"),
    "word": (XMLBIF.replace("0.8 0.2", "0.8 x"), "got 'x'"),
    "negative": (XMLBIF.replace("0.8 0.2", "1.2 -0.2"), "at least 0, got '-0.2'"),
    "outcomes": (XMLBIF.replace("a bit", "no"), "'wet': its states must differ"),
    "encoding": ('<?xml version="1.0" encoding="none-such"?><BIF/>', "encoding"),
}


@pytest.mark.parametrize("case", WRONG)
def test_damage_is_refused_with_its_line(tmp_path, case):
    content, message = WRONG[case]
    with pytest.raises(mg.FormatError, match=message):
        mg.read(written(tmp_path, content))
