"""Noisy-OR and noisy-MAX against their full tables."""

import itertools

import numpy as np
import pytest

import minigibbs as mg

SIZES = [2, 3, 2, 3]


def full_table(tables, leak):
    """Compute P(max of hidden values = y | causes), by enumeration of the hidden values."""
    size = len(leak)
    shape = [len(table) for table in tables]
    whole = np.zeros([*shape, size])
    for causes in itertools.product(*map(range, shape)):
        for hidden in itertools.product(range(size), repeat=len(tables) + 1):
            chance = leak[hidden[-1]]
            for table, x, z in zip(tables, causes, hidden, strict=False):
                chance *= table[x][z]
            whole[(*causes, max(hidden))] += chance
    return whole


def test_noisy_max_equals_its_full_table():
    rng = np.random.default_rng(1)
    tables = [rng.dirichlet(np.ones(3), size) for size in SIZES[:3]]
    leak = rng.dirichlet(np.ones(3))
    prior = [mg.Unary([k], rng.normal(size=(1, size))) for k, size in enumerate(SIZES)]
    graph = mg.FactorGraph(SIZES, prior, names=["a", "b", "c", "effect"])
    rule = mg.NoisyMax("effect", dict(zip("abc", tables, strict=True)), leak)
    chained = mg.add_noisy_max(graph, [rule])
    whole = mg.Table.from_probabilities([[0, 1, 2, 3]], full_table(tables, leak)[None])
    direct = mg.FactorGraph(SIZES, [*prior, whole])
    assert len(chained) == 4 + 2
    for evidence in ({}, {3: 0}, {3: 2}, {1: 2, 3: 1}):
        found = mg.infer(chained.condition(evidence), progress=False)
        wanted = mg.infer(direct.condition(evidence), progress=False)
        assert found.log_z == pytest.approx(wanted.log_z)
        for variable in range(4):
            np.testing.assert_allclose(
                found.marginal(variable).probability,
                wanted.marginal(variable).probability,
                atol=1e-12,
            )


def test_two_hundred_causes_take_two_hundred_tables():
    """A full table would have 2^201 entries."""
    chance = np.linspace(0.01, 0.2, 200)
    prior = mg.Unary.from_probabilities(range(200), [0.9, 0.1])
    graph = mg.FactorGraph([2] * 201, [prior])
    rule = mg.NoisyMax(200, dict(enumerate(chance)), leak=0.02)
    answer = mg.infer(mg.add_noisy_max(graph, [rule]), progress=False)
    absent = 0.98 * np.prod(0.9 + 0.1 * (1 - chance))
    assert answer.marginal(200).probability[0] == pytest.approx(absent)


def test_blocks_of_width_two_mix():
    """Sixty causes, of which at least one is present, are compared with the formula.

    One block has all variables, so draws are independent. The bound is 6 binomial errors of half of
    the 4,000 draws: false alarm below 1e-5 for 60 numbers.
    """
    rng = np.random.default_rng(2)
    chance, prior = rng.uniform(0.05, 0.9, 60), rng.uniform(0.01, 0.3, 60)
    causes = mg.Unary.from_probabilities(range(60), np.stack([1 - prior, prior], axis=1))
    rule = mg.NoisyMax(60, dict(enumerate(chance)), leak=0.01)
    graph = mg.add_noisy_max(mg.FactorGraph([2] * 61, [causes]), [rule]).condition({60: 1})
    assert len(graph.factors) == 3  # the causes, the first, and all others
    run = mg.sample(graph, mg.BlockGibbs(width=2), sweeps=2000, chains=2, seed=1, progress=False)
    absent = 0.99 * np.prod(1 - prior * chance)
    without = absent / (1 - prior * chance) * (1 - chance)
    wanted = prior * (1 - without) / (1 - absent)
    found = np.array([run.marginal(k).probability[1] for k in range(60)])
    assert (np.abs(found - wanted) < 6 * np.sqrt(wanted * (1 - wanted) / 2000)).all()


def test_a_rule_without_causes_is_its_leak():
    graph = mg.add_noisy_max(mg.FactorGraph([2], []), [mg.NoisyMax(0, {}, 0.3)])
    assert mg.infer(graph, progress=False).marginal(0).probability[1] == pytest.approx(0.3)


def test_labels_grids_and_evidence_are_kept():
    graph = mg.FactorGraph(
        [2, mg.Grid(0.0, 1.0, 2), 2], [], ["a", "b", "e, 1 causes"], {"a": ["no", "yes"]}
    ).condition({"a": "yes"})
    rule = mg.NoisyMax("e, 1 causes", {"a": 0.5, "b": 0.25})
    found = mg.add_noisy_max(graph, [rule])
    assert found.evidence.tolist() == [1, -1, -1, -1]
    assert found.domains.values(0) == ("no", "yes")
    assert found.domains.values(1) == (0.0, 1.0)
    assert len(set(found.names)) == 4


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (mg.NoisyMax(9, {}), "unknown variable 9"),
        (mg.NoisyMax(0, {0: 0.5}), "its causes must differ from it"),
        (mg.NoisyMax(0, {1: 1.5}), "probabilities must be numbers from 0 to 1, got 1.5"),
        (mg.NoisyMax(0, {1: [[0.5, 0.4], [1, 0]]}), "row 0 must sum to 1, got 0.9"),
        (mg.NoisyMax(0, {1: [0.5, 0.5]}), r"cause 'x1': expected a table of shape \(2, 2\)"),
        (mg.NoisyMax(2, {1: 0.5}), r"expected a table of shape \(2, 3\)"),
        (mg.NoisyMax(0, {1: "much"}), "probabilities must be numbers"),
    ],
)
def test_bad_rules_are_refused(rule, message):
    with pytest.raises(mg.GraphError, match=message):
        mg.add_noisy_max(mg.FactorGraph([2, 2, 3], []), [rule])
