"""Exact answers in slices: the same numbers with less memory, and refusals beyond."""

import math

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.exact import elimination, slicing
from minigibbs.exact.device import Card
from minigibbs.exact.elimination import EliminationTree, exact_answer
from minigibbs.exact.slicing import sliced, sliced_answer
from tests.exact.test_device import STANDIN
from tests.exact.test_passes import grid
from tests.exact.test_zeros import graphs

QUIET = {"progress": False}


@pytest.fixture
def tight(monkeypatch):
    """Count the bytes of tables alone, so that small graphs need slices."""
    for name in ("_SMALL_BUDGET", "_VARIABLE_BYTES", "_FACTOR_BYTES"):
        monkeypatch.setattr(elimination, name, 0)


@pytest.mark.parametrize("share", [0.8, 0.4, 0.2])
def test_slices_give_the_same_answer_with_less_memory(share, tight):
    """Sums of at most 64 slices in doubles: relative errors of about 1e-14."""
    graph = grid(12, 9)
    tree = EliminationTree.of(graph)
    memory = share * tree.size
    with pytest.raises(mg.errors.TooLargeError):
        EliminationTree.of(graph, memory)
    slices = sliced(graph, memory)
    assert slices.count > 1
    assert all(one.size <= memory for one in slices.trees())
    flat, log_z = sliced_answer(slices)
    want, other = exact_answer(tree)
    assert log_z == pytest.approx(other, rel=1e-12)
    np.testing.assert_allclose(flat, want, rtol=1e-10, atol=1e-13)


def test_slices_without_a_possible_state_count_nothing(tight):
    checked = 0
    for graph in graphs(60):
        memory = 0.5 * EliminationTree.of(graph).size
        try:
            slices = sliced(graph, memory)
        except mg.errors.TooLargeError:  # a single factor is too large
            continue
        if slices.count == 1:
            continue
        if mg.log_partition(graph) == -math.inf:
            with pytest.raises(mg.GraphError, match="probability 0"):
                sliced_answer(slices)
            continue
        checked += 1
        flat, log_z = sliced_answer(slices)
        want, other = exact_answer(EliminationTree.of(graph))
        assert log_z == pytest.approx(other, rel=1e-10, abs=1e-10)
        np.testing.assert_allclose(flat, want, atol=1e-12)
    assert checked > 10


def test_infer_slices_within_its_memory_and_predicts_the_time(tight):
    graph = grid(12, 9)
    memory = 0.3 * EliminationTree.of(graph).size
    answer = mg.infer(graph, memory=memory, **QUIET)
    assert answer.exact
    assert "slices" in answer.reason
    assert answer.log_z == pytest.approx(mg.log_partition(graph), rel=1e-12)


def test_slices_that_take_too_long_are_not_begun(tight, monkeypatch):
    graph = grid(12, 9)
    memory = 0.3 * EliminationTree.of(graph).size
    monkeypatch.setattr(slicing.Slices, "seconds", 1e6)
    answer = mg.infer(graph, "2s", memory=memory, standard_error=0.1, seed=1, **QUIET)
    assert not answer.exact
    assert "about 1,000,000 s in" in answer.reason


def test_too_many_slices_are_refused(monkeypatch, tight):
    monkeypatch.setattr(slicing, "_MOST", 4)
    with pytest.raises(mg.errors.TooLargeError):
        sliced(grid(12, 9), 1e4)


def test_slices_use_the_memory_of_a_card(tight):
    """NumPy in place of CuPy, and a card with little memory."""
    graph = grid(12, 9)
    memory = 0.3 * EliminationTree.of(graph).size
    card = Card(STANDIN)
    card.free = lambda: memory
    slices = sliced(graph, None, card)
    assert slices.count > 1
    assert all(tree.card is card for tree in slices.trees())
    flat, log_z = sliced_answer(slices)
    want, other = exact_answer(EliminationTree.of(graph))
    assert log_z == pytest.approx(other, rel=1e-12)
    np.testing.assert_allclose(flat, want, atol=1e-12)
