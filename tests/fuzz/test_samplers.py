"""A slice of the random graphs, the same each time, and those that once went wrong."""

import random

import pytest

import minigibbs as mg
from tests.fuzz import graphs
from tests.fuzz.cases import READ, REFUSED, SAMPLERS, run_case
from tests.settings import SETTINGS

# Seeds and numbers of cases that once went wrong.
KEPT: list[tuple[int, int]] = []


@pytest.mark.parametrize(("seed", "number"), [*((0, number) for number in range(24)), *KEPT])
def test_graphs_are_sampled_right_or_refused(seed, number, tmp_path):
    assert run_case(SAMPLERS, seed, number, tmp_path) in (READ, REFUSED)


def ring(coupling):
    return mg.FactorGraph([2] * 3, [mg.Ising([0, 1, 2], [1, 2, 0], [0.6, coupling, -0.4])])


def test_a_law_that_is_slightly_off_is_noticed(monkeypatch):
    """The negative control: a coupling that is off by 0.15, of 0.6."""
    graphs.check_law(ring(0.5), SETTINGS["gibbs"], random.Random(1), tame=True)
    wrong = graphs.enumerated(ring(0.65))
    monkeypatch.setattr(graphs, "enumerated", lambda graph: wrong)
    with pytest.raises(AssertionError, match="not the law"):
        graphs.check_law(ring(0.5), SETTINGS["gibbs"], random.Random(1), tame=True)


def test_wild_graphs_are_wild_and_not_all_are_refused():
    """Guards the slice: what it draws has extreme weights, and the law of most can be tested."""
    made = [graphs.random_graph(random.Random(k), tame=False) for k in range(300)]
    assert max(graphs.scale_of(graph) for graph in made) > 1e90
    told = [graphs.well_conditioned(g, graphs.enumerated(g)[0]) for g in made]
    assert sum(told) > 100
