"""Graphs in which no variable can change: every entry point returns, and none crashes."""

import numpy as np
import pytest

import minigibbs as mg
from tests.settings import SETTINGS, SWEEPS

GRAPHS = {
    "one value": mg.FactorGraph([1], []),
    "factors on one value": mg.FactorGraph(
        [1, 1], [mg.Potts([0], [1], 0.5), mg.Table([[0, 1]], [[[0.3]]])]
    ),
    "clamped and one value": mg.FactorGraph([2, 1], [mg.Potts([0], [1], 0.5)]).condition({0: 1}),
    "clamped": mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)]).condition({0: 1, 1: 0}),
}
QUIET = {"progress": False, "seed": 1}
every_graph = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)


def state_of(graph):
    """Return the only state that evidence and domains allow."""
    return np.maximum(graph.evidence, 0)


@every_graph
@pytest.mark.parametrize("name", [*SETTINGS, *SWEEPS])
def test_every_sampler_keeps_the_only_state(graph, name):
    sampler = {**SETTINGS, **SWEEPS}[name].sampler
    try:
        run = mg.sample(graph, sampler, sweeps=3, chains=2, record="draws", **QUIET)
    except mg.MinigibbsError:
        return  # a sampler may refuse a kind of factor, or name variables
    assert (run.draws == state_of(graph)).all()


@every_graph
@pytest.mark.parametrize("scan", ["random", "systematic", "shuffled", "shared", "chromatic"])
def test_every_scan_keeps_the_only_state(graph, scan):
    run = mg.sample(graph, scan=scan, sweeps=3, chains=2, record="draws", **QUIET)
    assert (run.draws == state_of(graph)).all()


@every_graph
def test_tempering_with_two_ladders_keeps_the_only_state(graph):
    """Houdayer moves once drew a variable from an empty set, which ended the process."""
    for sampler in (mg.Tempering(houdayer=True), mg.Tempering(mg.Gibbs(), houdayer=True)):
        run = mg.sample(graph, sampler, sweeps=3, chains=2, record="draws", **QUIET)
        assert (run.draws == state_of(graph)).all()


@every_graph
def test_inference_maximization_and_goals_end_at_once(graph):
    want = state_of(graph)
    for answer in (mg.infer(graph, **QUIET), mg.infer(graph, "1s", exact=False, **QUIET)):
        assert (answer.marginals[np.arange(len(graph)), want] == 1.0).all()
    assert (mg.maximize(graph, rounds=2, **QUIET).state == want).all()
    run = mg.sample_until(graph, max_time="1s", **QUIET)
    assert (run.state == want).all()


def test_a_graph_without_variables_is_refused():
    with pytest.raises(mg.GraphError, match="variable"):
        mg.FactorGraph([], [])
