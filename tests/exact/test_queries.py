"""Queries of exact answers give the same results as summing over every state."""

import math

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.exact.queries import (
    best_state,
    joint_marginal,
    mean_log_potential,
    most_probable_values,
)
from tests import naive
from tests.exact.test_zeros import graphs
from tests.zoo import ZOO

CHAIN = mg.FactorGraph(
    [2, 3, 2, 2],
    [
        mg.Table([[0, 1]], np.log([[0.5, 0.2, 0.3], [0.1, 0.1, 0.8]])),
        mg.Table([[1, 2]], np.log([[0.6, 0.4], [0.3, 0.7], [0.9, 0.1]])),
        mg.Ising([2], [3], 0.7),
    ],
    names=["a", "b", "c", "d"],
    labels={"a": ["no", "yes"]},
)


def distribution(graph):
    """Return all states and their probabilities."""
    states = np.array(naive.states(graph))
    return states, naive.distribution(graph)


def summed(graph, variables):
    states, probability = distribution(graph)
    table = np.zeros([graph.sizes[v] for v in variables])
    np.add.at(table, tuple(states[:, v] for v in variables), probability)
    return table


@pytest.mark.parametrize("model", ZOO)
def test_joint_marginals_of_variables_that_share_no_factor(model):
    graph = ZOO[model]
    for variables in [(0, len(graph) - 1), (len(graph) - 1, 0, 1)]:
        np.testing.assert_allclose(
            joint_marginal(graph, variables), summed(graph, variables), atol=1e-12
        )


def test_joint_marginals_with_hard_constraints_and_evidence():
    checked = 0
    for graph in graphs(40):
        if mg.log_partition(graph) == -math.inf:
            continue
        checked += 1
        got = joint_marginal(graph, (2, 0, 1))
        np.testing.assert_allclose(got, summed(graph, (2, 0, 1)), atol=1e-12)
    assert checked > 10


def test_an_exact_answer_answers_by_name():
    answer = mg.infer(CHAIN, progress=False)
    np.testing.assert_allclose(answer.joint("a", "d"), summed(CHAIN, (0, 3)), atol=1e-12)
    want = summed(CHAIN, (0, 2))[1, 0]
    assert answer.probability({"a": "yes", "c": 0}) == pytest.approx(want)
    values, probability = answer.most_probable("a", "c")
    table = summed(CHAIN, (0, 2))
    assert probability == pytest.approx(table.max())
    assert table[1 if values["a"] == "yes" else 0, values["c"]] == pytest.approx(table.max())


@pytest.mark.parametrize("model", ZOO)
def test_marginal_map_is_the_largest_entry_of_the_summed_distribution(model):
    graph = ZOO[model]
    for variables in [(0,), (len(graph) - 1, 0), tuple(range(len(graph)))]:
        table = summed(graph, variables)
        found, weight = most_probable_values(graph, variables)
        assert table[tuple(found)] == pytest.approx(table.max())
        assert weight - mg.log_partition(graph) == pytest.approx(math.log(table.max()))


def test_marginal_map_with_hard_constraints_and_evidence():
    checked = 0
    for graph in graphs(40):
        if mg.log_partition(graph) == -math.inf:
            continue
        checked += 1
        table = summed(graph, (2, 0))
        values, probability = mg.infer(graph, progress=False).most_probable(2, 0)
        assert probability == pytest.approx(table.max())
        assert table[tuple(values.values())] == pytest.approx(table.max())
    assert checked > 10


def test_marginal_map_of_many_variables_differs_from_the_marginals_and_the_map_state():
    """A hidden Markov model with 60 hidden states that are asked, and 60 that are summed out.

    A table of all joint values would have 2^60 entries. The dynamic program over the chain of asked
    variables, with the others summed out, is the reference.
    """
    rng, steps = np.random.default_rng(4), 60
    moves = rng.normal(0, 1.5, (steps - 1, 2, 2))
    seen = rng.normal(0, 2.0, (steps, 2, 3))  # asked variable, summed variable
    asked, others = range(steps), range(steps, 2 * steps)
    graph = mg.FactorGraph(
        [2] * steps + [3] * steps,
        [
            mg.Table(np.stack([asked[:-1], asked[1:]], axis=1), moves),
            mg.Table(np.stack([asked, others], axis=1), seen),
        ],
    )
    own = np.log(np.exp(seen).sum(axis=2))
    best = own[0]
    for move, add in zip(moves, own[1:], strict=True):
        best = (best[:, None] + move).max(axis=0) + add
    answer = mg.infer(graph, progress=False)
    values, probability = answer.most_probable(*asked)
    assert math.log(probability) == pytest.approx(best.max() - answer.log_z)
    states = np.array([values[v] for v in asked])
    weight = own[asked, states].sum() + moves[range(steps - 1), states[:-1], states[1:]].sum()
    assert weight == pytest.approx(best.max())


def test_marginal_map_is_refused_where_its_tables_are_too_large():
    """A star of stars: the sum over the center joins all 40 leaves."""
    graph = mg.FactorGraph([2] * 41, [mg.Ising([40] * 40, range(40), 0.3)])
    with pytest.raises(mg.errors.TooLargeError):
        mg.infer(graph, progress=False).most_probable(*range(40))


def test_draws_given_further_evidence():
    """20,000 draws; 5 standard errors are exceeded once in 1.7 million."""
    answer = mg.infer(CHAIN.condition({"a": "yes"}), progress=False)
    draws = answer.draws(20_000, seed=3, evidence={"c": 1})
    assert (draws[:, [0, 2]] == 1).all()
    table = summed(CHAIN, (0, 1, 2))[1, :, 1]
    want = table / table.sum()
    got = np.bincount(draws[:, 1], minlength=3) / len(draws)
    assert (np.abs(got - want) <= 5 * np.sqrt(want * (1 - want) / len(draws)) + 1e-12).all()
    with pytest.raises(mg.GraphError, match="another value"):
        answer.draws(1, evidence={"a": "no"})


def test_probabilities_are_those_given_the_evidence():
    answer = mg.infer(CHAIN.condition({"a": "yes"}), progress=False)
    joint = summed(CHAIN, (0, 2))
    assert answer.probability({"c": 1}) == pytest.approx(joint[1, 1] / joint[1].sum())
    assert answer.probability({"a": "no"}) == 0.0
    assert (answer.draws(50, seed=1)[:, 0] == 1).all()


def test_a_variable_cannot_be_asked_for_twice():
    with pytest.raises(mg.GraphError, match="different variables"):
        mg.infer(CHAIN, progress=False).joint("a", "a")


def test_sampled_answers_and_files_say_what_to_do(tmp_path):
    sampled = mg.infer(CHAIN, "1s", exact=False, seed=1, standard_error=0.1, progress=False)
    with pytest.raises(mg.SampleError, match="JointEvent"):
        sampled.joint("a", "b")
    mg.infer(CHAIN, progress=False).save(tmp_path / "answer.npz")
    with pytest.raises(mg.SampleError, match=r"mg\.infer again"):
        mg.load(tmp_path / "answer.npz").probability({"a": "no"})


def test_soft_evidence_multiplies_the_marginals():
    ratio = np.array([1.0, 4.0])
    got = mg.infer(CHAIN.with_likelihoods({"d": ratio}), progress=False).joint("a", "d")
    want = summed(CHAIN, (0, 3)) * ratio
    np.testing.assert_allclose(got, want / want.sum(), atol=1e-12)


@pytest.mark.parametrize("wrong", [[1.0], [-1.0, 1.0], [0.0, 0.0], [1.0, math.nan], "ab"])
def test_likelihoods_that_are_none(wrong):
    with pytest.raises(mg.GraphError, match="likelihoods of variable"):
        CHAIN.with_likelihoods({"d": wrong})


@pytest.mark.parametrize("model", ZOO)
def test_the_most_probable_state_and_the_mean_log_potential(model):
    graph = ZOO[model]
    states, probability = distribution(graph)
    energies = np.array([graph.log_potential(x) for x in states])
    state, energy = best_state(graph)
    assert energy == pytest.approx(energies.max())
    assert graph.log_potential(state) == energy
    assert mean_log_potential(graph) == pytest.approx(float(probability @ energies))


def test_observables_of_exact_answers_are_exact():
    observe = {
        "both": mg.observables.JointEvent({"a": "yes", "c": 0}),
        "never": mg.observables.JointEvent([("a", "yes"), ("a", "no")]),
        "ones": mg.observables.Count(1),
        "energy": mg.observables.Energy(),
        "own": lambda x: float(x[0]),
    }
    answer = mg.infer(CHAIN, observe=observe, seed=1, progress=False)
    states, probability = distribution(CHAIN)
    seen = answer.observables
    assert seen["both"].mean == pytest.approx(summed(CHAIN, (0, 2))[1, 0])
    assert seen["never"].mean == 0.0
    assert seen["ones"].mean == pytest.approx(float(probability @ (states == 1).sum(axis=1)))
    energies = np.array([CHAIN.energy(x) for x in states])
    assert seen["energy"].mean == pytest.approx(float(probability @ energies))
    assert [seen[name].error for name in ("both", "ones")] == [0.0, 0.0]
    assert seen["own"].error > 0  # measured on draws
    assert set(seen) == set(observe)
    assert len(seen.to_pandas()) == 5


def test_exact_observables_are_written_to_files(tmp_path):
    spins = mg.models.ising_lattice(3, 0.3, periodic=False).condition({0: 1})
    answer = mg.infer(spins, observe={"m": mg.observables.Magnetization()}, progress=False)
    assert answer.run is None
    assert answer.observables["m"].mean == pytest.approx((2 * answer.marginals[:, 1] - 1).mean())
    answer.save(tmp_path / "answer.npz")
    assert mg.load(tmp_path / "answer.npz").observables["m"].mean == answer.observables["m"].mean


@pytest.mark.parametrize("model", ["potts", "mixed", "evidence"])
def test_soft_evidence_has_its_expected_likelihood(model):
    """The mean of the product over all states, zeros and clamped variables included."""
    graph = ZOO[model]
    rng = np.random.default_rng(7)
    given = {v: rng.random(int(graph.sizes[v])) for v in range(min(3, len(graph)))}
    given[0][0] = 0.0
    states, distribution = mg.exact_distribution(graph)
    want = distribution @ np.prod([given[v][states[:, v]] for v in given], axis=0)
    assert mg.infer(graph, progress=False).likelihood(given) == pytest.approx(want, rel=1e-10)
    clamped = graph.condition({1: 0})
    states, distribution = mg.exact_distribution(clamped)
    want = distribution @ np.prod([given[v][states[:, v]] for v in given], axis=0)
    assert mg.infer(clamped, progress=False).likelihood(given) == pytest.approx(want, rel=1e-10)


def test_impossible_and_invalid_soft_evidence():
    graph = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)]).condition({0: 1})
    answer = mg.infer(graph, progress=False)
    assert answer.likelihood({0: [1.0, 0.0]}) == 0.0
    assert answer.likelihood({1: [0.0, 0.0]}) == 0.0
    assert answer.likelihood({}) == pytest.approx(1.0)
    for wrong in ([0.5], [-0.1, 1.0], [math.nan, 1.0], [[1.0, 1.0]]):
        with pytest.raises(mg.SampleError, match="likelihoods"):
            answer.likelihood({1: wrong})
    sampled = mg.infer(graph, "1s", exact=False, seed=1, progress=False)
    with pytest.raises(mg.SampleError, match="exact"):
        sampled.likelihood({1: [0.5, 0.5]})


def test_a_likelihood_beyond_all_numbers_is_refused():
    answer = mg.infer(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)]))
    with pytest.raises(mg.SampleError, match="too large for a number"):
        answer.likelihood({0: [1e300, 1e300], 1: [1e300, 1e300]})


def test_the_most_probable_explanation_has_all_variables():
    graph = mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], [1.0, -1.0])], names=["a", "b", "c"])
    values, probability = mg.infer(graph.condition({"a": 1}), progress=False).most_probable()
    assert values == {"a": 1, "b": 1, "c": 0}
    assert probability == pytest.approx(1 / (1 + math.exp(-2)) ** 2)
