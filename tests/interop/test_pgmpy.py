"""pgmpy: agreement with its exact inference in both directions; zeros pruned, kept or raised."""

import warnings

import numpy as np
import pytest

import minigibbs as mg
from tests.zoo import ZOO

pytest.importorskip("pgmpy")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # pgmpy's own deprecations
    from pgmpy.factors.discrete import DiscreteFactor, TabularCPD
    from pgmpy.inference import VariableElimination
    from pgmpy.models import DiscreteBayesianNetwork, DiscreteMarkovNetwork, FactorGraph

STATES = {"rain": ["no", "yes"], "sprinkler": ["off", "on", "broken"], "wet": ["dry", "wet"]}


def network(broken=0.0, dry=0.9):
    """Return a Bayesian network; by default one state of the sprinkler is impossible."""
    model = DiscreteBayesianNetwork([("rain", "wet"), ("sprinkler", "wet")])
    wet = [[dry, 0.2, 0.5, 0.1, 0.3, 0.5], [1 - dry, 0.8, 0.5, 0.9, 0.7, 0.5]]
    model.add_cpds(
        TabularCPD("rain", 2, [[0.8], [0.2]], state_names={"rain": STATES["rain"]}),
        TabularCPD(
            "sprinkler",
            3,
            [[0.6], [0.4 - broken], [broken]],
            state_names={"sprinkler": STATES["sprinkler"]},
        ),
        TabularCPD("wet", 2, wet, ["rain", "sprinkler"], [2, 3], state_names=STATES),
    )
    assert model.check_model()
    return model


def markov(*factors):
    model = DiscreteMarkovNetwork()
    for factor in factors:
        model.add_nodes_from(factor.variables)
        model.add_edges_from(
            (u, v) for u in factor.variables for v in factor.variables if str(u) < str(v)
        )
    model.add_factors(*factors)
    return model


def theirs(model, evidence=None):
    """Return pgmpy's exact marginals, by variable and state name."""
    asked = [node for node in model.nodes() if node not in (evidence or {})]
    answers = {}
    for variable in asked:
        answer = VariableElimination(model).query([variable], evidence, show_progress=False)
        values = answer.values / answer.values.sum()
        answers[variable] = dict(zip(answer.state_names[variable], values, strict=True))
    return answers


def ours(graph):
    exact = mg.exact_marginals(graph)
    return {
        graph.domains.name(k): dict(zip(graph.domains.values(k), exact[k], strict=False))
        for k in range(len(graph))
    }


def assert_same(got, expected):
    assert set(got) >= set(expected)
    for variable, row in expected.items():
        possible = {state: chance for state, chance in row.items() if chance > 0}
        kept = {state: chance for state, chance in got[variable].items() if chance > 0}
        assert kept == pytest.approx(possible, abs=1e-12)


@pytest.mark.parametrize("broken", [0.0, 0.1])
def test_a_bayesian_network(broken):
    model = network(broken)
    graph = mg.from_pgmpy(model)
    assert graph.names == ("rain", "wet", "sprinkler")
    assert graph.domains.values(2) == tuple(STATES["sprinkler"][: 3 if broken else 2])
    assert_same(ours(graph), theirs(model))
    assert_same(ours(graph.condition({"wet": "wet"})), theirs(model, {"wet": "wet"}))
    assert mg.log_partition(graph) == pytest.approx(0.0, abs=1e-12)


def test_a_markov_network_with_labels_of_any_kind():
    rng = np.random.default_rng(1)
    model = markov(
        DiscreteFactor(["a", (0, 1)], [2, 3], rng.random(6)),
        DiscreteFactor([(0, 1), 7, "a"], [3, 2, 2], rng.random(12)),
        DiscreteFactor([7], [2], [0.25, 4.0]),
    )
    graph = mg.from_pgmpy(model)
    assert graph.names == ("a", "(0, 1)", "7")
    expected = {str(variable): row for variable, row in theirs(model).items()}
    assert_same(ours(graph), expected)
    assert np.exp(mg.log_partition(graph)) == pytest.approx(model.get_partition_function())


def test_a_factor_graph():
    rng = np.random.default_rng(2)
    factors = [
        DiscreteFactor(["a", "b"], [2, 3], rng.random(6), {"a": ["x", "y"], "b": [10, 20, 30]}),
        DiscreteFactor(["b"], [3], rng.random(3)),  # has no state names
    ]
    model = FactorGraph()
    model.add_nodes_from(["a", "b"])
    model.add_nodes_from(factors)
    model.add_edges_from([("a", factors[0]), ("b", factors[0]), ("b", factors[1])])
    model.add_factors(*factors)
    assert model.check_model()
    graph = mg.from_pgmpy(model)
    assert graph.domains.values(1) == (10, 20, 30)
    named = DiscreteFactor(["b"], [3], factors[1].values, {"b": [10, 20, 30]})
    assert_same(ours(graph), theirs(markov(factors[0], named)))


TO_PGMPY = {
    "potts": ZOO["potts"],
    "tables": ZOO["tables"],
    "logical": ZOO["logical"],
    "mixed": ZOO["mixed"],
    "evidence": ZOO["evidence"],
    "no factors": mg.FactorGraph([2, 3, 1], [], names=["a", "b", "c"]).condition({"c": 0}),
    "steep": mg.FactorGraph([2, 2], [mg.Table([1, 0], [[900.0, 901.0], [903.0, 900.0]])]),
}


@pytest.mark.parametrize("case", TO_PGMPY)
def test_to_pgmpy(case):
    graph = TO_PGMPY[case]
    network, factors = mg.to_pgmpy(graph), mg.to_pgmpy(graph, factor_graph=True)
    assert network.check_model()
    assert factors.check_model()
    assert isinstance(factors, FactorGraph)
    assert_same(ours(graph), theirs(network))
    assert len(factors.factors) == len(network.factors)


@pytest.mark.parametrize("factor_graph", [False, True])
def test_round_trip_with_pruned_states_and_evidence(factor_graph):
    graph = mg.from_pgmpy(network()).condition({"wet": "dry"})
    there = mg.to_pgmpy(graph, factor_graph)
    assert there.check_model()
    names = {name: states for f in there.factors for name, states in f.state_names.items()}
    assert names == STATES  # the pruned state is back, with probability 0
    back = mg.from_pgmpy(there)
    assert_same(ours(back), ours(graph))


def test_networks_have_the_states_that_were_pruned():
    """One of three states of the sprinkler is impossible. Other tables have a row for it."""
    graph = mg.from_pgmpy(network())
    back = mg.to_pgmpy(graph, network=True)
    assert back.check_model()
    assert {
        name: states for one in back.get_cpds() for name, states in one.state_names.items()
    } == STATES
    assert_same(ours(graph), theirs(back))
    gum = pytest.importorskip("pyagrum", exc_type=Exception)
    bayes = mg.to_pyagrum(graph, bayes=True)
    assert isinstance(bayes, gum.BayesNet)
    assert bayes.variable("sprinkler").domainSize() == 3
    assert_same(ours(graph), ours(mg.from_pyagrum(bayes)))
    field = mg.to_pyagrum(mg.from_pyagrum(bayes))
    assert field.variable("sprinkler").labels() == tuple(STATES["sprinkler"])


def test_pruned_states_cannot_be_meant_by_number():
    model = markov(DiscreteFactor(["a", "b"], [3, 2], [[1, 2], [0, 0], [3, 4]]))
    graph = mg.from_pgmpy(model)
    assert graph.domains.values(0) == (0, 2)
    assert graph.condition({"a": 2}).evidence[0] == 1
    with pytest.raises(mg.GraphError, match=r"'a'.*\(0, 2\), got 1, which .* probability 0"):
        graph.condition({"a": 1})


def test_states_go_by_their_names():
    """Names may be numbers in any order, so an index is not a name, and the error says so."""
    graph = mg.from_pgmpy(markov(DiscreteFactor(["lung"], [2], [1, 9], {"lung": ["yes", "no"]})))
    assert graph.condition({"lung": "yes"}).evidence.tolist() == [0]
    with pytest.raises(mg.GraphError, match=r"'lung'.*\('yes', 'no'\), got 0; .* called 'yes'"):
        graph.condition({"lung": 0})
    with pytest.raises(mg.GraphError, match=r"\('yes', 'no'\), got 'Yes'$"):
        graph.condition({"lung": "Yes"})


def test_hard_zeros_are_kept_or_raised():
    model = network(broken=0.1, dry=1.0)
    graph = mg.from_pgmpy(model)
    assert len(graph.hard) == 1
    with pytest.warns(UserWarning, match="the pgmpy model: raised .* to 1e-09"):
        raised = mg.from_pgmpy(model, floor=1e-9)
    expected = theirs(model)
    for variable in expected:
        assert ours(graph)[variable] == pytest.approx(expected[variable], abs=1e-12)
        assert ours(raised)[variable] == pytest.approx(expected[variable], abs=1e-8)
    back = theirs(mg.to_pgmpy(graph))
    for variable in expected:
        assert back[variable] == pytest.approx(expected[variable], abs=1e-12)


def nothing_left():
    model = DiscreteMarkovNetwork([("a", "b")])
    model.add_factors(
        DiscreteFactor(["a", "b"], [2, 2], [1, 0, 0, 1]),
        DiscreteFactor(["a"], [2], [1, 0]),
        DiscreteFactor(["b"], [2], [0, 1]),
    )
    return model


def disagreeing():
    return markov(
        DiscreteFactor(["a", "b"], [2, 2], np.ones(4), {"a": ["x", "y"], "b": [0, 1]}),
        DiscreteFactor(["a"], [2], [1, 2], {"a": ["y", "x"]}),
    )


def without_factor():
    model = markov(DiscreteFactor(["a"], [2], [1, 2]))
    model.add_node("b")
    return model


def spoiled(model):
    model.get_cpds("wet").values[0, 0, 0] += 0.3
    return model


BAD = {
    "no model": (lambda: mg.from_pgmpy([1, 2]), ["pgmpy", "list"]),
    "no factors": (lambda: mg.from_pgmpy(DiscreteMarkovNetwork([("a", "b")])), ["no factors"]),
    "a variable without factors": (lambda: mg.from_pgmpy(without_factor()), ["'b'", "no factor"]),
    "every state impossible": (
        lambda: mg.from_pgmpy(nothing_left()),
        ["probability 0", "leave no"],
    ),
    "states in another order": (lambda: mg.from_pgmpy(disagreeing()), ["'a'", "order", "'y'"]),
    "negative value": (
        lambda: mg.from_pgmpy(markov(DiscreteFactor(["a"], [2], [1, -2]))),
        ["'a'", "negative", "-2"],
    ),
    "NaN": (
        lambda: mg.from_pgmpy(markov(DiscreteFactor(["a"], [2], [1, np.nan]))),
        ["'a'", "finite", "nan"],
    ),
    "a class": (lambda: mg.from_pgmpy(DiscreteBayesianNetwork), ["expected", "got type"]),
    "a CPD that does not sum to 1": (
        lambda: mg.from_pgmpy(spoiled(network())),
        ["CPD of 'wet'", "rain=no, sprinkler=off must sum to 1, got 1.3"],
    ),
    "negative floor": (lambda: mg.from_pgmpy(network(), floor=-1.0), ["floor", "-1.0"]),
    "an implicit model": (
        lambda: mg.to_pgmpy(mg.FactorGraph([2] * 4, [mg.Complete(4, 0.1)])),
        ["implicit", "graph.stored()"],
    ),
    "a formula too long for a table": (
        lambda: mg.to_pgmpy(mg.FactorGraph([2] * 30, [mg.Logical("or", np.arange(30)[None], 1.0)])),
        ["logical factor 0", "table", "1.07e+09"],
    ),
    "energies too steep": (
        lambda: mg.to_pgmpy(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 1000.0)])),
        ["[0, 1]", "span", "700"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    make, pieces = BAD[case]
    with pytest.raises(mg.GraphError) as caught:
        make()
    missing = [piece for piece in pieces if piece not in str(caught.value)]
    assert not missing, f"{missing} not in {caught.value}"
