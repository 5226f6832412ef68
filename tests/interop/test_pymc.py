"""PyMC: a hidden Potts chain, compared with its exact posterior; mismatched graphs are rejected."""

import pickle
import warnings

import numpy as np
import pytest

import minigibbs as mg
from tests.interop import hidden_potts as hidden

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pm = pytest.importorskip("pymc")
    import arviz
    import pytensor.tensor as pt

    from minigibbs.pymc import GraphStep
pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of PyMC and ArviZ


def model(**options):
    """Return the model, and the step of its labels."""
    with pm.Model() as found:
        b = pm.Normal("b", *hidden.PRIOR["b"])
        low, high = (pm.Normal(name, *hidden.PRIOR[name]) for name in ("low", "high"))
        x = pm.Categorical("x", p=np.ones(3) / 3, shape=hidden.COUNT)
        same = pt.eq(x[1:], x[:-1]).sum()
        pm.Potential("chain", b * same - hidden.log_partition(b, pt.log, pt.exp))
        means = pt.stack([low, 0 * low, high])
        pm.Normal("y", means[x], hidden.SIGMA, observed=hidden.Y)
        field = -((hidden.Y[:, None] - means) ** 2) / (2 * hidden.SIGMA**2)
        given = {"b": pt.stack([b]), "h": field} | options.pop("parameters", {})
        step = GraphStep([x], options.pop("graph", hidden.graph()), given, **options)
    return found, step


def test_a_hidden_potts_chain_has_the_exact_posterior():
    """Means agree within 5 Monte Carlo errors by ArviZ's ESS: 1 false alarm in 75,000 runs."""
    found, step = model(sweeps=2)
    with found:
        trace = pm.sample(
            1000, tune=500, chains=2, cores=1, step=[step], random_seed=1, progressbar=False
        )
    means, labels = hidden.exact()
    summary = arviz.summary(trace, kind="all", round_to="none")
    assert summary["r_hat"].max() < 1.05
    assert summary["ess_bulk"].min() > 100
    wanted = [*means.values(), *labels]
    rows = [*means, *(f"x[{k}]" for k in range(hidden.COUNT))]
    error = summary.loc[rows, "sd"] / np.sqrt(summary.loc[rows, "ess_bulk"])
    assert (np.abs(summary.loc[rows, "mean"] - wanted) < 5 * error).all()


def test_a_step_survives_pickling():
    found, step = model()
    point = found.initial_point()
    copy = pickle.loads(pickle.dumps(step._gibbs))
    values = step._values(point)
    np.testing.assert_array_equal(
        copy.step(point["x"], values, [1]), step._gibbs.step(point["x"], values, [1])
    )


def test_chains_in_processes_of_their_own_give_the_same_draws():
    found, step = model()
    options = {"step": [step], "random_seed": 1, "progressbar": False, "chains": 2}
    with found:
        one, two = (pm.sample(10, tune=10, cores=cores, **options) for cores in (1, 2))
    for name in ("x", "b"):
        np.testing.assert_array_equal(one.posterior[name], two.posterior[name])


def test_a_graph_that_is_not_the_conditional_is_refused():
    with pytest.raises(mg.GraphError, match="not the conditional distribution of 'x'"):
        model(parameters={"b": np.array([0.1])})
    model(parameters={"b": np.array([0.1])}, check=False)


def test_numbers_that_agree_at_the_initial_point_alone_are_refused():
    """The coupling or the fields are fixed at the initial values of their variables."""
    low, high = hidden.PRIOR["low"][0], hidden.PRIOR["high"][0]
    field = -((hidden.Y[:, None] - np.array([low, 0.0, high])) ** 2) / (2 * hidden.SIGMA**2)
    for parameters in ({"b": np.array([hidden.PRIOR["b"][0]])}, {"h": field}):
        with pytest.raises(mg.GraphError, match="must be expressions"):
            model(parameters=parameters)


def test_values_that_the_graph_does_not_have_are_refused():
    with pm.Model():
        x = pm.Categorical("x", p=[0.2, 0.3, 0.5], shape=4)
        graph = mg.FactorGraph([2] * 4, [mg.Unary(range(4), [np.log([0.2, 0.3])] * 4)])
        with pytest.raises(mg.GraphError, match="'x' may be 2 in the model"):
            GraphStep([x], graph)
    with pm.Model():
        x = pm.DiscreteUniform("x", 1, 2, shape=4)
        with pytest.raises(mg.GraphError, match="'x' may be 2 in the model"):
            GraphStep([x], mg.FactorGraph([2] * 4, []))


def test_values_that_the_model_does_not_have_are_refused():
    """The model looks up means by label, where PyTensor raises an IndexError."""
    with pm.Model():
        means = pm.Normal("means", [0.0, 1.0])
        x = pm.Categorical("x", p=[0.5, 0.5], shape=4)
        pm.Normal("y", means[x], observed=np.zeros(4))
        graph = mg.FactorGraph([3] * 4, [mg.Unary(range(4), np.zeros((4, 3)), name="h")])
        with pytest.raises(mg.GraphError, match="one of them gives probability 0"):
            GraphStep([x], graph, {"h": np.zeros((4, 3))})


def test_hard_constraints():
    """No two neighbors may both be 1, so few states are possible; the graph must say so."""
    table = np.array([[0.0, 0.0], [0.0, -np.inf]])
    graph = mg.FactorGraph([2] * 12, [mg.Table([[k, k + 1] for k in range(11)], [table] * 11)])
    with pm.Model():
        x = pm.Bernoulli("x", 0.5, shape=12, initval=np.zeros(12, int))
        pm.Potential("apart", pt.switch((x[1:] * x[:-1]).any(), -np.inf, 0.0))
        step = GraphStep([x], graph)
        assert step.step({"x": np.zeros(12, int)})[0]["x"].shape == (12,)
        with pytest.raises(mg.GraphError, match="gives probability 0"):
            GraphStep([x], mg.FactorGraph([2] * 12, []))
        with pytest.raises(mg.GraphError, match="variable 0: the graph clamps it to 1"):
            GraphStep([x], graph.condition({0: 1}))


def test_bad_input():
    with pytest.raises(mg.GraphError, match="sweeps must be an integer of at least 1, got 'a'"):
        model(sweeps="a")
    with pytest.raises(mg.GraphError, match="have 20 entries, but the graph has 3"):
        model(graph=mg.FactorGraph([2] * 3, [mg.Ising([0], [1], 0.0, name="b")]))
    with pytest.raises(mg.GraphError, match="unknown parameter 'J'"):
        model(parameters={"J": np.array([0.1])})
    with pytest.raises(mg.GraphError, match="sweeps must be"):
        model(sweeps=0)
    with pm.Model():
        z = pm.Normal("z", shape=3)
        with pytest.raises(mg.GraphError, match="variable 'z' must be discrete"):
            GraphStep([z], mg.FactorGraph([2] * 3, []))
        x = pm.Bernoulli("x", 0.5, shape=3)
        field = pt.stack([-1.0 * x, 1.0 * x], axis=1)
        unary = mg.Unary(range(3), np.zeros((3, 2)), name="h")
        with pytest.raises(mg.GraphError, match="'h' depends on 'x'"):
            GraphStep([x], mg.FactorGraph([2] * 3, [unary]), {"h": field})
        with pytest.raises(mg.GraphError, match="expressions by name, got list"):
            GraphStep([x], mg.FactorGraph([2] * 3, [unary]), [field])
