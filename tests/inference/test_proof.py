"""`maximize(prove=True)`: the maximum over all states, with a proof."""

import importlib
import importlib.util
import math

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.inference import proof
from minigibbs.system.watch import current
from tests import naive
from tests.exact.test_zeros import HARD
from tests.zoo import IMPLICIT, ZOO

maximize = importlib.import_module("minigibbs.inference.maximize")
EVERY = ZOO | IMPLICIT | HARD
QUIET = {"seed": 1, "progress": False, "prove": True}
SOLVER = pytest.mark.skipif(
    importlib.util.find_spec("pytoulbar2") is None, reason="needs pytoulbar2"
)


def highest(graph):
    return max(naive.log_potential(graph, x) for x in naive.states(graph))


@pytest.mark.parametrize("model", EVERY)
def test_elimination_proves_the_maximum(model):
    best = mg.maximize(EVERY[model], **QUIET)
    assert best.log_potential == pytest.approx(highest(EVERY[model]))
    assert best.bound == best.energy
    assert best.proven
    assert best.ended == "proven"
    assert "proven: no state has a lower energy" in str(best)
    assert best.to_dict()["proven"] is True


@SOLVER
@pytest.mark.parametrize("model", ["potts", "evidence", "mixed"])
def test_toulbar2_proves_the_maximum(model, monkeypatch):
    monkeypatch.setattr(proof, "_SLOWER", math.inf)
    best = mg.maximize(ZOO[model], "3s", rounds=20, **QUIET)
    assert best.log_potential == pytest.approx(highest(ZOO[model]))
    assert best.energy - 1e-4 <= best.bound <= best.energy
    assert best.proven
    assert (
        best.state[ZOO[model].evidence >= 0] == ZOO[model].evidence[ZOO[model].evidence >= 0]
    ).all()


@SOLVER
def test_toulbar2_improves_a_poor_state(monkeypatch):
    graph = ZOO["potts"]
    worst = min(naive.states(graph), key=lambda x: naive.log_potential(graph, x))
    poor = mg.Maximum(graph.domains, np.array(worst), graph.energy(worst), 0.0, 1, 1, 1)
    best = proof.proven_by_search(graph, poor, 5.0, 0.0)
    assert best.log_potential == pytest.approx(highest(graph))
    assert best.proven


def test_without_a_solver_there_is_a_warning_and_no_bound(monkeypatch):
    monkeypatch.setattr(proof, "_SLOWER", math.inf)
    monkeypatch.setattr(proof, "find_spec", lambda _: None)
    with pytest.warns(UserWarning, match=r"minigibbs\[toulbar2\]"):
        best = mg.maximize(ZOO["potts"], "2s", rounds=10, **QUIET)
    assert best.bound is None
    assert not best.proven


def test_evidence_of_probability_zero_has_no_maximum():
    same = mg.Table([[0, 1]], [[0.0, -np.inf], [-np.inf, 0.0]])
    graph = mg.FactorGraph([2, 2], [same]).condition({0: 0, 1: 1})
    with pytest.raises(mg.GraphError, match="probability 0"):
        mg.maximize(graph, **QUIET)


def test_an_elimination_that_takes_too_long_gives_way(monkeypatch):
    """The deadline of the proof ends the proof, and the search goes on."""

    def endless(graph):
        while True:
            current().check()

    monkeypatch.setattr(proof.EliminationTree, "of", endless)
    best = mg.maximize(ZOO["ising"], "1s", seed=1, progress=False)
    assert best.method in ("tempering", "annealing")
    assert best.bound is None


@pytest.mark.parametrize("limit", ["1h", math.inf])
def test_a_proof_that_was_not_asked_for_takes_a_second_at_most(monkeypatch, limit):
    """Nothing could be returned if the user stopped it, and without a limit it could go on."""
    allowed = []
    monkeypatch.setattr(maximize, "proven_by_elimination", lambda _, s: allowed.append(s))
    monkeypatch.setattr(maximize, "best_states", stop)
    with pytest.raises(KeyError):
        mg.maximize(ZOO["ising"], limit, progress=False)
    assert allowed == [1.0]


def stop(*args, **options):
    raise KeyError
