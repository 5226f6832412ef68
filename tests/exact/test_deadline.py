"""Elimination stops when its call must end."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.exact import contraction
from minigibbs.exact.elimination import EliminationTree
from minigibbs.system.watch import StopError, Watch


def test_a_pass_is_given_up_when_time_is_up():
    tree = EliminationTree.of(mg.models.ising_lattice(12, 0.3, periodic=False))
    made = contraction.Contraction(tree.plan, tree.sizes, tree.tables()[1])
    with Watch(), pytest.raises(StopError), Watch(0.0):
        made.upward()


def test_a_long_product_is_given_up_between_its_pieces(monkeypatch):
    monkeypatch.setattr(contraction, "_AT_ONCE", 1 << 10)
    a, b = np.ones((1, 2, 64, 32)), np.ones((1, 2, 32, 64))
    monkeypatch.setattr(contraction, "_THREADED_BLAS", 1 << 10)
    with Watch(), pytest.raises(StopError), Watch(0.0):
        contraction._matmul(a, b)
    np.testing.assert_array_equal(contraction._matmul(a, b), 32.0)


def test_a_search_for_an_order_is_given_up():
    with Watch(), pytest.raises(StopError), Watch(0.0):
        EliminationTree.of(mg.models.ising_lattice(11, 0.3))
