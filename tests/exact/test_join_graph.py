"""Join-graph propagation is exact on trees of clusters, and close where the loops are weak."""

import math

import numpy as np
import pytest

import minigibbs as mg
from tests.exact.test_zeros import graphs
from tests.zoo import IMPLICIT, ZOO


def wide(graph):
    return graph.domains.square(
        np.concatenate(
            [row[:size] for row, size in zip(mg.exact_marginals(graph), graph.sizes, strict=True)]
        )
    )


@pytest.mark.parametrize("model", ZOO | IMPLICIT)
def test_a_tree_of_clusters_is_exact_after_one_sweep(model):
    graph = (ZOO | IMPLICIT)[model]
    found = mg.theory.propagate(graph, entries=1 << 20)
    assert found.exact
    assert found.sweeps <= 2
    assert found.log_z == pytest.approx(mg.log_partition(graph), abs=1e-8)
    np.testing.assert_allclose(found.marginals, wide(graph), atol=1e-9)


def test_hard_constraints_and_evidence():
    checked = 0
    for graph in graphs(40):
        if mg.log_partition(graph) == -math.inf:
            with pytest.raises(mg.GraphError, match="probability 0"):
                mg.theory.propagate(graph, entries=1 << 20)
            continue
        checked += 1
        found = mg.theory.propagate(graph, entries=1 << 20)
        np.testing.assert_allclose(found.marginals, wide(graph), atol=1e-9)
    assert checked > 10


def test_one_factor_per_cluster_is_loopy_belief_propagation():
    """On a cycle of three spins, the fixed point of belief propagation is known.

    Without fields all marginals are 1/2, and log Z is that of a tree: n log 2 + edges log cosh J.
    """
    cycle = mg.FactorGraph([2] * 3, [mg.Ising([0, 1, 2], [1, 2, 0], 0.4)])
    found = mg.theory.propagate(cycle, entries=4)
    assert not found.exact
    np.testing.assert_allclose(found.marginals, 0.5, atol=1e-6)
    assert found.log_z == pytest.approx(3 * (math.log(2) + math.log(math.cosh(0.4))), abs=1e-3)


def test_larger_clusters_are_closer():
    rng = np.random.default_rng(2)
    side = 9
    site = np.arange(side * side).reshape(side, side)
    i = np.concatenate([site[:, :-1].ravel(), site[:-1].ravel()])
    j = np.concatenate([site[:, 1:].ravel(), site[1:].ravel()])
    fields = mg.Unary(site.ravel(), rng.normal(0, 0.3, (side * side, 2)))
    graph = mg.FactorGraph([2] * side**2, [mg.Ising(i, j, rng.normal(0, 0.6, len(i))), fields])
    want, errors = mg.exact_marginals(graph), []
    for entries in (4, 1 << 7, 1 << 14):
        found = mg.theory.propagate(graph, entries=entries, sweeps=200)
        assert found.change <= 1e-4
        errors.append(np.abs(found.marginals - want).max())
    assert errors[0] > errors[1] > errors[2]
    assert errors[0] < 0.15
    assert errors[2] < 1e-9


@pytest.mark.parametrize("name", ["entries", "sweeps", "tol"])
def test_settings_are_positive(name):
    with pytest.raises(mg.SampleError, match=f"{name} must be positive"):
        mg.theory.propagate(ZOO["potts"], **{name: 0})
