"""Chains that only advance, and the rule that samplers leave loops over updates to the engine."""

import ast

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.engine.chain import Pilot, pilot_state
from minigibbs.samplers.gibbs.fields import FieldData, field_workspace
from minigibbs.samplers.gibbs.sampler import sum_unary
from tests.paths import ROOT

SAMPLERS = ROOT / "src" / "minigibbs" / "samplers"
STUBS = {"update", "begin", "sweep", "begin_sweeps"}
TILES = {"general_tiles.py"}  # tiles are ensembles


def loops(text):
    """Return the functions called from Python that call compiled updates or sweeps."""
    tree, found = ast.parse(text), set()
    known = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "minigibbs.engine.dispatch"
        for alias in node.names
    }
    for node in ast.walk(tree):
        marks = {mark.id for mark in getattr(node, "decorator_list", []) if hasattr(mark, "id")}
        if marks & {"entry", "literal_entry"}:
            calls = {call.func for call in ast.walk(node) if isinstance(call, ast.Call)}
            names = {function.id for function in calls if isinstance(function, ast.Name)}
            found |= {node.name} if names & known & STUBS else set()
    return found


def test_samplers_run_no_chains():
    found = {path.name for path in SAMPLERS.rglob("*.py") if loops(path.read_text())}
    assert found == TILES


def test_a_loop_would_be_found():
    text = "from minigibbs.engine.dispatch import update\n@entry\ndef run(d):\n    update(d)\n"
    assert loops(text) == {"run"}
    assert not loops(text.replace("@entry", "@kernel"))


@pytest.fixture
def graph():
    return mg.models.ising_rbf(side=4, beta=0.5).condition({3: 1, 8: 0})


def test_a_pilot_starts_at_a_fixed_state_with_its_evidence(graph):
    state = pilot_state(graph)
    assert (state[[3, 8]] == [1, 0]).all()
    assert (state == pilot_state(graph)).all()


def test_a_pilot_does_not_depend_on_how_its_updates_are_cut(graph):
    data = FieldData(sum_unary(graph.packed))
    whole, cut = (Pilot(graph, data, field_workspace(graph)) for _ in range(2))
    changed = whole.advance(100)
    assert changed == cut.advance(33) + cut.advance(67) > 0
    np.testing.assert_array_equal(whole.state, cut.state)
    np.testing.assert_array_equal(whole.chain.carried, cut.chain.carried)
    assert (whole.state[[3, 8]] == [1, 0]).all()
