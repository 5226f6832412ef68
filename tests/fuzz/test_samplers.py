"""A fixed part of the random graphs, and graphs that failed in the past."""

import contextlib
import random

import pytest

import minigibbs as mg
from tests.fuzz import extremes, graphs, implicit
from tests.fuzz.cases import EXTREMES, IMPLICIT, READ, REFUSED, SAMPLERS, run_case
from tests.settings import SETTINGS

# Seeds and numbers of cases that once failed.
KEPT: list[tuple[int, int]] = []


@pytest.mark.parametrize(("seed", "number"), [*((0, number) for number in range(24)), *KEPT])
def test_graphs_are_sampled_right_or_refused(seed, number, tmp_path):
    assert run_case(SAMPLERS, seed, number, tmp_path) in (READ, REFUSED)


@pytest.mark.parametrize("number", range(5))
def test_implicit_graphs_are_sampled_right_or_refused(number, tmp_path):
    assert run_case(IMPLICIT, 0, number, tmp_path) in (READ, REFUSED)


def test_an_implicit_distribution_that_is_slightly_off_is_noticed(monkeypatch):
    """Negative control: a weight of 0.5 is off by 0.08."""
    graph, other = (mg.FactorGraph([2] * 4, [mg.Complete(4, w)]) for w in (0.5, 0.58))
    setting = implicit.Carrying(mg.PoissonGibbs())
    graphs.check_distribution(graph, setting, random.Random(1), tame=True)
    wrong = graphs.enumerated(other)
    monkeypatch.setattr(graphs, "enumerated", lambda graph: wrong)
    with pytest.raises(AssertionError, match="not the distribution"):
        graphs.check_distribution(graph, setting, random.Random(1), tame=True)


def test_most_tame_implicit_graphs_are_sampled():
    """A sampler that refused everything would pass the tests above; here it fails."""
    made = [implicit.random_graph(random.Random(k), tame=True) for k in range(40)]
    taken = 0
    for graph in made:
        with contextlib.suppress(mg.SampleError):
            mg.PoissonGibbs().prepare(graph)
            taken += 1
    assert taken >= 38


def ring(coupling):
    return mg.FactorGraph([2] * 3, [mg.Ising([0, 1, 2], [1, 2, 0], [0.6, coupling, -0.4])])


def test_a_distribution_that_is_slightly_off_is_noticed(monkeypatch):
    """Negative control: a coupling of 0.6 is off by 0.15."""
    graphs.check_distribution(ring(0.5), SETTINGS["gibbs"], random.Random(1), tame=True)
    wrong = graphs.enumerated(ring(0.65))
    monkeypatch.setattr(graphs, "enumerated", lambda graph: wrong)
    with pytest.raises(AssertionError, match="not the distribution"):
        graphs.check_distribution(ring(0.5), SETTINGS["gibbs"], random.Random(1), tame=True)


def test_wild_graphs_are_wild_and_not_all_are_refused():
    """The cases have extreme weights, and most distributions can be tested."""
    made = [graphs.random_graph(random.Random(k), tame=False) for k in range(300)]
    assert max(graphs.scale_of(graph) for graph in made) > 1e90
    told = [graphs.well_conditioned(g, graphs.enumerated(g)[0]) for g in made]
    assert sum(told) > 100


@pytest.mark.parametrize("number", range(30))
def test_extreme_graphs_are_answered_right_or_with_a_warning(number, tmp_path):
    assert run_case(EXTREMES, 0, number, tmp_path) in extremes.OUTCOMES


@pytest.mark.parametrize("number", [52, 469, 535, 726, 1354, 1741])
def test_extreme_graphs_that_once_had_wrong_answers(number, tmp_path):
    """A shared log Z, two biased samplers, fields beside 1e28, a search without an end, log Z."""
    assert run_case(EXTREMES, 20261153, number, tmp_path) in extremes.OUTCOMES


def test_extreme_graphs_are_extreme_and_some_are_answered_without_a_warning():
    """A check that warned of or refused everything would pass the tests above, but not this one."""
    made = []
    for number in range(200):
        with contextlib.suppress(mg.GraphError):
            made.append(extremes.random_graph(random.Random(number)))
    assert max(graphs.scale_of(graph) for graph in made) > 1e90
    quiet = [graph for graph in made if graph.rounding_error < 1e-3]
    assert len(quiet) > 50
    assert sum(graph.influence > 5 for graph in quiet) > 10


def test_a_wrong_exact_answer_is_noticed(monkeypatch):
    """Negative control: a field of 0.3 is off by 0.02."""
    graph, other = (mg.FactorGraph([2], [mg.Unary([0], [[0.0, h]])]) for h in (0.3, 0.32))
    truth = extremes.marginals(graph)
    for method in extremes.EXACT:
        assert extremes.exactly(graph, truth, method) == extremes.RIGHT
        with pytest.raises(AssertionError, match="WRONG"):
            extremes.exactly(other, truth, method)
