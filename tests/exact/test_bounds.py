"""Bounds on log Z hold on every model, and larger tables tighten them."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp

import minigibbs as mg
from tests import naive
from tests.zoo import IMPLICIT, ZOO


def random_model(rng):
    """Return a model of a few variables and tables, some with hard constraints."""
    count = int(rng.integers(2, 8))
    sizes, groups = rng.integers(1, 4, count), []
    for _ in range(rng.integers(1, 12)):
        scope = rng.choice(count, min(int(rng.integers(1, 4)), count), replace=False)
        logs = rng.normal(size=sizes[scope]) * rng.choice([0.1, 1.0, 3.0])
        if rng.random() < 0.3:
            logs = np.where(rng.random(logs.shape) < 0.2, -np.inf, logs)
        groups.append(mg.Table([scope], logs))
    graph = mg.FactorGraph(sizes, groups)
    return graph.condition({0: int(sizes[0]) - 1}) if rng.random() < 0.3 else graph


def test_no_bound_is_violated():
    """10,000 claims; a bound is a theorem, so that there are no false alarms."""
    rng = np.random.default_rng(5)
    for _ in range(1250):
        graph = random_model(rng)
        log_z = mg.log_partition(graph)
        for entries in (1, 4, 16, 1 << 16):
            state = None if rng.random() < 0.5 else rng.integers(0, graph.sizes)
            bounds = mg.theory.log_z_bounds(graph, entries, state=state)
            assert bounds.lower <= log_z <= bounds.upper, entries


def test_no_bound_of_dense_models_is_violated():
    """360 claims compared with enumeration, on models whose bounds are apart."""
    rng, gaps = np.random.default_rng(7), []
    for _ in range(60):
        sizes = rng.integers(2, 4, int(rng.integers(7, 10)))
        groups = []
        for _ in range(int(rng.integers(len(sizes), 4 * len(sizes)))):
            scope = rng.choice(len(sizes), int(rng.integers(2, 4)), replace=False)
            logs = rng.normal(size=sizes[scope]) * rng.choice([0.1, 1.0, 3.0, 10.0])
            groups.append(mg.Table([scope], logs))
        graph = mg.FactorGraph(sizes, groups)
        states = np.indices(sizes).reshape(len(sizes), -1).T
        weights = graph.log_potential(states)
        log_z, best = logsumexp(weights), states[weights.argmax()]
        for entries, state in ((2, None), (8, rng.integers(0, sizes)), (64, best)):
            bounds = mg.theory.log_z_bounds(graph, entries, state=state)
            slack = 1e-12 * max(1.0, abs(log_z))  # rounding of the enumeration
            assert bounds.lower <= log_z + slack, entries
            assert bounds.upper >= log_z - slack, entries
            gaps.append(bounds.upper - bounds.lower)
    assert np.median(gaps) > 1.0  # so that claims can fail


@pytest.mark.parametrize("model", ZOO | IMPLICIT)
def test_bounds_meet_where_nothing_is_split(model):
    graph = (ZOO | IMPLICIT)[model]
    bounds = mg.theory.log_z_bounds(graph)
    assert bounds.upper - bounds.lower < 1e-6
    assert mg.log_partition(graph) == pytest.approx(bounds.lower, abs=1e-6)


def test_larger_tables_are_tighter():
    grid = mg.models.ising_lattice(8, 0.5, periodic=False).condition({0: 1})
    log_z = mg.log_partition(grid)
    gaps = []
    for entries in (4, 32, 1 << 12):
        lower, upper = mg.theory.log_z_bounds(grid, entries)
        assert lower < log_z < upper
        gaps.append(upper - lower)
    assert gaps[0] > gaps[1] > gaps[2]


def test_fixed_variables_bound_log_z_from_below():
    """Mini-buckets alone give lower bounds that are far too low for strong couplings.

    The sum over fewer states is at least the weight of the given state, and larger tables fix fewer
    variables.
    """
    graph = mg.models.spin_glass(8, beta=2.0, dimensions=2, periodic=False, seed=3)
    state = mg.maximize(graph, rounds=50, seed=1, progress=False).state
    log_z, gaps = mg.log_partition(graph), []
    for entries in (1, 16, 1 << 8):
        lower = mg.theory.log_z_bounds(graph, entries, state=state).lower
        assert graph.log_potential(state) - 1e-6 <= lower <= log_z
        gaps.append(log_z - lower)
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[1] < 0.1 * log_z
    decoded = mg.theory.log_z_bounds(graph, 16).lower
    assert log_z - 0.2 * log_z < decoded <= log_z


@pytest.mark.parametrize("wrong", [[0], [0, 2], [0, -1], [0.5, 0.0], "ab"])
def test_states_have_an_index_per_variable(wrong):
    graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
    with pytest.raises(mg.SampleError, match="state"):
        mg.theory.log_z_bounds(graph, state=wrong)


def test_a_model_without_a_possible_state():
    graph = mg.FactorGraph([1, 2], [mg.Unary([0], [[-np.inf]])])
    assert mg.theory.log_z_bounds(graph).lower == -math.inf
    same = mg.Table([[0, 1]], [[0.0, -np.inf], [-np.inf, 0.0]])
    clash = mg.FactorGraph([2, 2], [same]).condition({0: 0, 1: 1})
    assert mg.theory.log_z_bounds(clash) == (-math.inf, -math.inf)


def test_answers_have_bounds(tmp_path):
    torus = mg.models.ising_lattice(4, 0.3)
    exact = mg.infer(torus, progress=False)
    assert exact.bounds == (exact.log_z, exact.log_z)
    sampled = mg.infer(torus, "1s", exact=False, seed=1, progress=False)
    assert sampled.bounds.lower <= exact.log_z <= sampled.bounds.upper
    sampled.save(tmp_path / "answer.npz")
    with pytest.raises(mg.SampleError, match=r"mg\.infer again"):
        repr(mg.load(tmp_path / "answer.npz").bounds)


def test_large_weights_and_hard_constraints_do_not_overflow():
    """NumPy warnings are errors in the tests."""
    rng = np.random.default_rng(0)
    i, j = np.triu_indices(6, 1)
    table = rng.normal(0, 400, (len(i), 3, 3))
    table[rng.random(table.shape) < 0.15] = -np.inf
    table[:, 0, 0] = 5.0  # ensures one possible state
    graph = mg.FactorGraph([3] * 6, [mg.Table(np.stack([i, j], axis=1), table)])
    bounds = mg.theory.log_z_bounds(graph, entries=9)
    assert bounds.lower - 1e-6 <= mg.log_partition(graph) <= bounds.upper + 1e-6


@pytest.mark.parametrize("entries", [0, -1])
def test_entries_are_positive(entries):
    with pytest.raises(mg.SampleError, match="entries must be at least 1"):
        mg.theory.log_z_bounds(ZOO["potts"], entries)


def test_naive_sums_agree_with_elimination():
    rng = np.random.default_rng(6)
    for _ in range(20):
        graph = random_model(rng)
        energies = np.array([naive.log_potential(graph, x) for x in naive.states(graph)])
        top = energies.max()
        total = top + math.log(np.exp(energies - top).sum()) if top > -1e300 else -math.inf
        assert mg.log_partition(graph) == pytest.approx(total)


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [1, 2, 3], memoryview(b"ab")])
def test_an_order_must_hold_each_variable_once(order):
    graph = mg.FactorGraph([2, 2, 2], [mg.Ising([0, 1], [1, 2], 0.5)])
    with pytest.raises(mg.SampleError, match="order must hold each variable, 0 to 2, once"):
        mg.theory.log_z_bounds(graph, order=order)
