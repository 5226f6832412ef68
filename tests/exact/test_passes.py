"""Passes with small tables in compiled code, against the same passes in NumPy."""

import math

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.exact import contraction, passes
from minigibbs.exact.contraction import SUM, Contraction
from minigibbs.exact.elimination import EliminationTree, exact_answer
from minigibbs.exact.passes import Passes
from minigibbs.exact.plan import make_plan
from tests.zoo import ZOO

BITS = (0.0, 2.0, 4.0, 14.0)  # of the largest table that compiled code multiplies


def grid(rows, columns, states=2):
    site = np.arange(rows * columns).reshape(rows, columns)
    i = np.concatenate([site[:, :-1].ravel(), site[:-1].ravel()])
    j = np.concatenate([site[:, 1:].ravel(), site[1:].ravel()])
    rng = np.random.default_rng(3)
    tables = rng.normal(size=(len(i), states, states))
    unary = mg.Unary(range(site.size), rng.normal(size=(site.size, states)))
    return mg.FactorGraph([states] * site.size, [mg.Table(np.stack([i, j], 1), tables), unary])


MODELS = ZOO | {
    "grid": grid(7, 6),
    "wide domains": grid(4, 3, 5),
    "a clamped grid": grid(5, 5).condition({0: 1, 7: 0, 24: 1}),
    "separate parts": mg.FactorGraph(
        [2, 3, 2, 2], [mg.Table([[0, 1]], np.arange(6.0).reshape(2, 3))]
    ),
}


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("model", MODELS)
def test_small_and_large_tables_give_the_same(model, bits, monkeypatch):
    """All numbers are sums of positive products in doubles: relative errors of about 1e-14."""
    monkeypatch.setattr(passes, "SMALL_BITS", bits)
    monkeypatch.setattr(contraction, "_COLUMNS", 1)  # so that large tables are permuted once
    tree = EliminationTree.of(MODELS[model])
    flat, log_z = exact_answer(tree)
    assert isinstance(tree.contraction, Passes)
    constant, tables = tree.tables()
    plain = Contraction(tree.plan, tree.sizes, tables, SUM)
    assert log_z == pytest.approx(constant + plain.upward()[0], rel=1e-12, abs=1e-12)
    joints, first = plain.joints(), np.cumsum(tree.graph.sizes) - tree.graph.sizes
    for leaf, scope in enumerate(tree.plan.scopes[: tree.plan.leaves]):
        for axis, variable in enumerate(scope):
            others = tuple(k + 1 for k in range(len(scope)) if k != axis)
            want = joints(leaf).sum(axis=others)[0]
            places = first[variable] + tree.values(variable)
            np.testing.assert_allclose(flat[places], want, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("bits", BITS)
def test_joint_marginals_and_draws_read_small_and_large_tables(bits, monkeypatch):
    """Chains of 6 spins by enumeration; the largest of 6 deviations exceeds 5 once in 300,000."""
    monkeypatch.setattr(passes, "SMALL_BITS", bits)
    graph = grid(2, 3)
    states, distribution = mg.exact_distribution(graph)
    joint = mg.infer(graph, progress=False).joint(0, 5)
    want = np.zeros((2, 2))
    np.add.at(want, (states[:, 0], states[:, 5]), distribution)
    np.testing.assert_allclose(joint, want, atol=1e-13)
    draws = mg.exact_draws(graph, 20_000, seed=2)
    mean, p = draws.mean(axis=0), distribution @ states
    assert (np.abs(mean - p) / np.sqrt(p * (1 - p) / 20_000)).max() < 5


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("strength", [300.0, 500.0, 800.0])
def test_numbers_beyond_the_range_of_doubles(bits, strength, monkeypatch):
    """Factors that nearly cancel: what is small on the way up decides in the end."""
    monkeypatch.setattr(passes, "SMALL_BITS", bits)
    pulls = [[0.0, strength], [strength, 0.0], [0.3, 0.0], [0.0, 0.2]]
    graph = mg.FactorGraph(
        [2] * 4,
        [mg.Unary([0, 1, 2, 3], pulls), mg.Ising([0, 1, 2], [1, 2, 3], [strength, -strength, 1.0])],
    )
    states, distribution = mg.exact_distribution(graph)
    answer = mg.infer(graph, progress=False)
    assert answer.exact
    np.testing.assert_allclose(answer.marginals[:, 1], distribution @ states, atol=1e-12)


def test_a_leaf_that_is_joined_by_logarithms():
    """One table says e^-600 where the other one says 1, and the other way round."""
    pulls = mg.Unary([0], [[0.0, -600.0]])
    graph = mg.FactorGraph([2, 2], [pulls, mg.Table([[0, 1]], [[-600.0, -601.0], [0.0, -1.0]])])
    answer = mg.infer(graph, progress=False)
    np.testing.assert_allclose(answer.marginals[0], [0.5, 0.5], rtol=1e-12)
    np.testing.assert_allclose(answer.marginals[1, 1], 1 / (1 + math.e), rtol=1e-12)


def test_long_chains_look_at_the_clock():
    """Runs of small steps are split, so that a deadline is kept."""
    runs = passes._runs(np.ones(5000, dtype=bool))
    assert max(last - first for first, last, _ in runs) <= passes._STEPS
    assert runs[0][0] == 0
    assert runs[-1][1] == 5000


def test_large_tables_are_permuted_once(monkeypatch):
    """Of the three products with a table, the first permutes its axes, and the others do not."""
    monkeypatch.setattr(passes, "SMALL_BITS", 4.0)
    monkeypatch.setattr(contraction, "_COLUMNS", 16)
    copied = []
    permuted = contraction._permuted

    def counted(scope, table, wanted):
        copied.append(table.size)
        return permuted(scope, table, wanted)

    monkeypatch.setattr(contraction, "_permuted", counted)
    graph = grid(9, 8)
    tree = EliminationTree.of(graph)
    answer, log_z = exact_answer(tree)
    large = sum(len(scope) > 4 for scope in tree.plan.scopes[tree.plan.leaves :])
    assert large > 20
    assert sum(size > 16 for size in copied) <= 2 * large  # once up, and once down
    monkeypatch.setattr(passes, "SMALL_BITS", 14.0)
    plain, other = exact_answer(EliminationTree.of(graph))
    assert log_z == pytest.approx(other, rel=1e-12)
    np.testing.assert_allclose(answer, plain, rtol=1e-11)


def test_a_variable_of_one_table_is_summed_with_others(monkeypatch):
    """Variable 8 is only in the first table, and is summed out with 0 and 1."""
    monkeypatch.setattr(contraction, "_COLUMNS", 1)
    scopes, sizes = [(0, 1, 8), (0, 1, 2), (2, 3)], np.full(9, 2)
    plan = make_plan((0, 1, 8, 2, 3), scopes, sizes)
    assert len(plan.steps[0].summed) == 3
    rng = np.random.default_rng(5)
    tables = [rng.normal(size=(1, *[2] * len(scope))) for scope in scopes]
    made = Contraction(plan, sizes, tables)
    whole = np.exp(tables[0][0])[..., None, None]
    whole = whole * np.exp(tables[1][0])[:, :, None, :, None] * np.exp(tables[2][0])
    assert made.upward()[0] == pytest.approx(math.log(whole.sum()))
    want = whole.sum(axis=(3, 4)) / whole.sum()
    np.testing.assert_allclose(made.joints()(0)[0], want, rtol=1e-12)
