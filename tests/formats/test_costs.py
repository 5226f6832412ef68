"""Cost function networks: reading and writing of .wcsp and .cfn."""

import math

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.exact.costs import cost_functions
from tests import naive
from tests.exact.test_queries import CHAIN
from tests.exact.test_zeros import HARD
from tests.formats import files
from tests.zoo import IMPLICIT, ZOO

WCSP, CFN = files.WCSP.encode(), files.CFN.encode()


def energies(graph):
    states = np.array(naive.states(graph))
    return np.array([graph.log_potential(x) for x in states])


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    return path


def test_costs_of_a_wcsp_file(tmp_path):
    graph = mg.read(written(tmp_path, "a.wcsp", WCSP))
    assert graph.sizes.tolist() == [2, 3, 2]
    assert graph.log_potential([0, 0, 0]) == -5 - 3 - 4
    assert graph.log_potential([1, 1, 1]) == -7 - 1 - 4
    assert graph.log_potential([1, 2, 1]) == -math.inf  # the cost is the upper bound
    cold = mg.read(written(tmp_path, "a.wcsp", WCSP), beta=0.5)
    assert cold.log_potential([0, 0, 0]) == -6


def test_costs_of_a_cfn_file(tmp_path):
    graph = mg.read(written(tmp_path, "a.cfn", CFN))
    assert graph.names == ("a", "b", "c")
    assert graph.domains.values(0) == ("no", "yes")
    assert graph.log_potential([0, 0, 1]) == -2.5 - 1
    assert graph.log_potential([0, 2, 1]) == -0.5 - 5.25
    assert graph.log_potential([1, 1, 0]) == -math.inf
    gains = CFN.replace(b"<20.5", b">-20.5")
    assert mg.read(written(tmp_path, "b.cfn", gains)).log_potential([0, 0, 1]) == 2.5 + 1


def test_costs_over_no_variables_count(tmp_path):
    """Preprocessed networks have one: the cost of every state. Log Z was wrong without it."""
    cfn = CFN.replace(b'"functions": {', b'"functions": {"all": {"scope": [], "costs": [4]}, ')
    graph = mg.read(written(tmp_path, "a.cfn", cfn), beta=0.5)
    assert graph.log_potential([0, 0, 1]) == 0.5 * (-2.5 - 1 - 4)
    for name, content in (
        ("b.wcsp", WCSP.replace(b"0 4 0", b"0 20 0")),
        ("b.cfn", cfn.replace(b"[4]", b"[20.5]")),
    ):
        with pytest.raises(mg.FormatError, match="every state is forbidden"):
            mg.read(written(tmp_path, name, content))


@pytest.mark.parametrize("ending", [".wcsp", ".cfn", ".wcsp.gz", ".cfn.xz"])
@pytest.mark.parametrize("model", [*ZOO, *IMPLICIT, *HARD])
def test_a_graph_survives_but_for_a_constant(model, ending, tmp_path):
    graph = (ZOO | IMPLICIT | HARD)[model]
    path = tmp_path / f"model{ending}"
    mg.write(graph, path)
    again = mg.read(path)
    states = np.array(naive.states(graph))
    before, after = graph.log_potential(states), again.log_potential(states)
    possible = before > -math.inf
    np.testing.assert_array_equal(possible, after > -math.inf)
    constant, _ = cost_functions(graph)
    np.testing.assert_allclose(after[possible], before[possible] - constant, atol=1e-6)
    if (graph.evidence >= 0).any():
        against = states[0].copy()
        clamped = int(np.flatnonzero(graph.evidence >= 0)[0])
        against[clamped] = (against[clamped] + 1) % graph.sizes[clamped]
        assert again.log_potential(against) == -math.inf


def test_names_and_labels_survive_in_cfn(tmp_path):
    mg.write(CHAIN, tmp_path / "chain.cfn")
    again = mg.read(tmp_path / "chain.cfn")
    assert again.names == CHAIN.names
    assert again.domains.values(0) == ("no", "yes")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.wcsp", WCSP.replace(b"2 0 1 0 3", b"2 0 0 0 3"), "different variables"),
        ("a.wcsp", WCSP.replace(b"2 0 1 0 3", b"2 0 1 -1 3"), "global cost functions"),
        ("a.wcsp", WCSP + b"1", "end"),
        ("a.wcsp", b"minigibbs-unit-x 1 2 0 9 2", "states no unit"),
        ("a.cfn", b"{}", "not a cost function network"),
        ("a.cfn", CFN.replace(b'"bc": {', b'"bc": {"type": "knapsack", '), "global cost"),
        ("a.cfn", CFN.replace(b'"b": 3', b'"b": true'), "number of values"),
        ("a.cfn", CFN.replace(b"1, 1, 20.5]", b"1, 20.5]"), "tuples of 3"),
    ],
)
def test_damaged_files_are_refused(name, content, message, tmp_path):
    with pytest.raises(mg.FormatError, match=message):
        mg.read(written(tmp_path, name, content))


@pytest.mark.parametrize("beta", [0.0, -1.0, math.inf])
def test_beta_is_positive(beta, tmp_path):
    for name, content in (("a.wcsp", WCSP), ("a.cfn", CFN)):
        with pytest.raises(mg.FormatError, match="beta must be"):
            mg.read(written(tmp_path, name, content), beta=beta)


def test_toulbar2_reads_what_is_written(tmp_path):
    toulbar2 = pytest.importorskip("pytoulbar2")
    for ending in (".wcsp", ".cfn"):
        path = tmp_path / f"chain{ending}"
        mg.write(CHAIN, path)
        problem = toulbar2.CFN(verbose=-1)
        problem.Read(str(path))
        state = problem.Solve()[0]
        assert CHAIN.log_potential(state) == pytest.approx(energies(CHAIN).max())
