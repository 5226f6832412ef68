"""pyAgrum: agreement with its exact inference, in both directions."""

import warnings

import numpy as np
import pytest

import minigibbs as mg
from tests.zoo import ZOO

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the import fails if warnings are errors
    gum = pytest.importorskip("pyagrum")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # lazy imports warn too


def theirs(model, evidence=None):
    """Return pyAgrum's exact marginals, by variable."""
    kind = gum.LazyPropagation if isinstance(model, gum.BayesNet) else gum.ShaferShenoyMRFInference
    engine = kind(model)
    engine.setEvidence(evidence or {})
    engine.makeInference()
    return {name: engine.posterior(name).toarray() for name in model.names()}


def ours(graph):
    answer = mg.infer(graph, progress=False)
    return {graph.domains.name(v): answer.marginal(v).probability for v in range(len(graph))}


def assert_same(found, wanted):
    assert set(found) == set(wanted)
    for name, row in wanted.items():
        np.testing.assert_allclose(found[name], row, atol=1e-9)


def network(seed=1):
    gum.initRandom(seed)
    return gum.fastBN("a[3]->b{low|mid|high}<-c;c->d[2];b->e[4];d->e")


def test_bayesian_networks():
    net = network()
    graph = mg.from_pyagrum(net)
    assert graph.domains.values(graph.domains.index("b")) == ("low", "mid", "high")
    assert_same(ours(graph), theirs(net))
    assert mg.infer(graph, progress=False).log_z == pytest.approx(0.0, abs=1e-9)
    wanted = theirs(net, {"e": 2, "b": "mid"})
    found = ours(graph.condition({"e": 2, "b": "mid"}))
    for name in "acd":
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-9)


def test_markov_random_fields():
    field = gum.MarkovRandomField.fromBN(network())
    assert_same(ours(mg.from_pyagrum(field)), theirs(field))


def test_labels_that_print_alike_stay_apart():
    graph = mg.FactorGraph([2], [mg.Unary([0], [[0.0, 1.0]])], ["a"], {"a": [1, "1"]})
    assert mg.to_pyagrum(graph).variable("a").labels() == ("1 (int)", "1")


@pytest.mark.parametrize("name", ["potts", "ising", "evidence", "logical", "mixed"])
def test_graphs_become_fields(name):
    graph = ZOO[name]
    field = mg.to_pyagrum(graph)
    found = ours(graph)
    for variable, row in theirs(field).items():
        np.testing.assert_allclose(found[variable], row, atol=1e-9)


def test_networks_round_trip():
    net = network(2)
    back = mg.to_pyagrum(mg.from_pyagrum(net), bayes=True)
    assert isinstance(back, gum.BayesNet)
    assert {back.variable(a).name() + back.variable(b).name() for a, b in back.arcs()} == {
        "ab",
        "cb",
        "cd",
        "be",
        "de",
    }
    assert_same(theirs(back), theirs(net))


def test_files_of_networks_are_read_by_pyagrum(tmp_path):
    graph = mg.from_pyagrum(network())
    for ending in ("bif", "bifxml"):
        mg.write(graph, tmp_path / f"a.{ending}")
        assert_same(theirs(gum.loadBN(str(tmp_path / f"a.{ending}"))), ours(graph))


def test_files_that_pyagrum_writes_are_read(tmp_path):
    net = network(3)
    for ending in ("bif", "bifxml"):
        gum.saveBN(net, str(tmp_path / f"a.{ending}"))
        found = ours(mg.read(tmp_path / f"a.{ending}"))
        for name, row in theirs(net).items():
            np.testing.assert_allclose(found[name], row, atol=1e-5)  # precision of their files


RULES = {
    "noisy or": lambda net, e: net.addNoisyOR(e, 0.05),
    "noisy or, net": lambda net, e: net.addNoisyORNet(e, 0.05),
    "noisy and": lambda net, e: net.addNoisyAND(e, 0.9),
    "logit": lambda net, e: net.addLogit(e, 0.3),
    "or": lambda net, e: net.addOR(e),
    "and": lambda net, e: net.addAND(e),
}


@pytest.mark.parametrize("rule", RULES)
def test_nodes_of_rules_are_read_as_tables(rule):
    """Their arrays were never filled: probabilities were random, and at times refused as NaN."""
    net = gum.BayesNet()
    for k in range(3):
        net.add(gum.LabelizedVariable(f"c{k}", "", 2))
        net.cpt(f"c{k}")[:] = [0.7, 0.3]
    RULES[rule](net, gum.LabelizedVariable("e", "", 2))
    for k, weight in enumerate([0.9, 0.3, 0.6]):
        if rule in ("or", "and"):
            net.addArc(f"c{k}", "e")
        else:
            net.addWeightedArc(f"c{k}", "e", weight)
    assert_same(ours(mg.from_pyagrum(net)), theirs(net))


def test_noisy_or_agrees_with_theirs():
    net = gum.BayesNet()
    chances = [0.9, 0.3, 0.6]
    for k in range(3):
        net.add(gum.LabelizedVariable(f"c{k}", "", 2))
        net.cpt(f"c{k}")[:] = [0.7, 0.3]
    net.addNoisyORNet(gum.LabelizedVariable("e", "", 2), 0.05)
    for k, chance in enumerate(chances):
        net.addWeightedArc(f"c{k}", "e", chance)
    prior = mg.Unary.from_probabilities([0, 1, 2], [0.7, 0.3])
    graph = mg.FactorGraph([2] * 4, [prior], ["c0", "c1", "c2", "e"])
    causes = {f"c{k}": chance for k, chance in enumerate(chances)}
    graph = mg.add_noisy_max(graph, [mg.NoisyMax("e", causes, 0.05)])
    found, wanted = ours(graph.condition({"e": 1})), theirs(net, {"e": 1})
    for name in ("c0", "c1", "c2"):
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-9)


def test_impossible_states_survive_two_conversions():
    """Contexts of probability 0 get rows that sum to 1, so that the network is accepted again."""
    net = gum.fastBN("a[2]->b[2]<-c[2];b->d[2]")
    net.cpt("a")[:] = [0.0, 1.0]
    net.cpt("b")[:] = [[[0.5, 0.5], [0.0, 1.0]], [[0.2, 0.8], [0.0, 1.0]]]
    graph = mg.from_pyagrum(net)
    back = mg.to_pyagrum(graph, bayes=True)
    assert_same(theirs(back), theirs(net))
    assert_same(theirs(mg.to_pyagrum(mg.from_pyagrum(back), bayes=True)), theirs(net))


def test_bad_input():
    with pytest.raises(mg.GraphError, match=r"expected a pyagrum.BayesNet or Markov.*got dict"):
        mg.from_pyagrum({"a": 1})
    with pytest.raises(mg.GraphError, match="got InfluenceDiagram"):
        mg.from_pyagrum(gum.InfluenceDiagram())
    with pytest.raises(mg.GraphError, match="no variables"):
        mg.from_pyagrum(gum.BayesNet())
    net = network()
    net.cpt("a")[:] = [0.5, -0.5, 1.0]
    with pytest.raises(mg.GraphError, match=r"factor of 'a': .*got -0.5"):
        mg.from_pyagrum(net)
    net.cpt("a")[:] = 0.0
    with pytest.raises(mg.GraphError, match=r"cpt of 'a': .* 'a' must sum to 1, got 0"):
        mg.from_pyagrum(net)
    net.cpt("a").fillWith(1 / 3)
    net.cpt("e")[{"b": "mid", "d": 1}] = [0.5, 0.5, 0.2, 0.1]
    with pytest.raises(mg.GraphError, match=r"cpt of 'e': .* b=mid.* must sum to 1, got 1.3"):
        mg.from_pyagrum(net)
    with pytest.raises(mg.GraphError, match="got type"):
        mg.from_pyagrum(gum.BayesNet)
    field = gum.fastMRF("a--b")
    field.factor({"a", "b"}).fillWith(0.0)
    with pytest.raises(mg.GraphError, match="every state has probability 0"):
        mg.from_pyagrum(field)
    with pytest.raises(mg.GraphError, match="one table per variable"):
        mg.to_pyagrum(ZOO["potts"], bayes=True)
    with pytest.raises(mg.GraphError, match="a pyAgrum model lists every factor"):
        mg.to_pyagrum(mg.FactorGraph([2] * 6, [mg.Complete(6, 0.25)]))
