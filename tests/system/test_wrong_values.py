"""Unusable values of the right type: refused, never a foreign error or NaN."""

import numpy as np
import pytest

import minigibbs as mg

PAIR = mg.FactorGraph([2, 2], [mg.Potts([0], [1], 0.5, name="J")])
CELLS = {"name": ["a", "a", "b", "b"], "value": ["x", "y"] * 2}


@pytest.fixture(scope="module")
def run():
    observe = {"m": mg.observables.Magnetization()}
    return mg.sample(PAIR, sweeps=20, seed=1, observe=observe, progress=False)


@pytest.mark.parametrize("level", [2.0, 1.0, -0.5, float("nan")])
def test_the_level_of_an_interval_is_a_probability(run, level):
    for interval in (
        lambda: run.interval(0, level),
        lambda: run.observables["m"].interval(level),
        lambda: run.observables["m"].estimate.interval(level),
    ):
        with pytest.raises(mg.SampleError, match=r"level must (be between 0 and 1|be a number)"):
            interval()


@pytest.mark.parametrize("function", [lambda: 1, lambda m: "text", lambda m: [[1], [2, 3]]])
def test_a_function_of_means_returns_numbers(run, function):
    with pytest.raises(mg.SampleError, match="function must return a number"):
        run.observables["m"].apply(function)


def test_a_derived_quantity_of_runs_is_an_estimate():
    runs = mg.sample_many([PAIR], sweeps=4, progress=False)
    for function in (np.mean, type):
        with pytest.raises(mg.SampleError, match="must be a function of a run that returns"):
            runs.estimates(function)


def test_huge_weights_of_rows_are_equal_weights():
    rows = [[0, 1], [1, 1], [0, 0]]
    huge, ones = (
        mg.learn(PAIR, rows, "exact", weights=[w] * 3, progress=False) for w in (1e308, 1.0)
    )
    np.testing.assert_array_equal(huge.parameters["J"], ones.parameters["J"])


def test_results_of_another_model_are_refused(run):
    framed = mg.from_frames(CELLS, [mg.Rule({"who": ["a"], "what": ["x"]}, ["who"], ["what"])])
    other = mg.sample(mg.FactorGraph([3], []), sweeps=2, progress=False)
    with pytest.raises(mg.GraphError, match="result must be one of this model"):
        framed.best(other)
    fit = mg.learn(PAIR, [[0, 1], [1, 1]], "exact", progress=False)
    with pytest.raises(mg.GraphError, match="fit must be one of this model"):
        framed.weights(fit)
    with pytest.raises(mg.LearnError, match="axes must be those of Matplotlib"):
        fit.plot_moments(axes=[None])


def test_numbers_that_formulas_cannot_use_are_refused():
    image = np.zeros((3, 4, 3))
    for wrong, message in (
        (lambda: mg.theory.lemma_2(PAIR, 1e308, 0.5), "delta must be above 0"),
        (lambda: mg.theory.lemma_2_repaired(PAIR, 0.5, 2.0), "failure is a probability"),
        (
            lambda: mg.theory.estimate_distribution(
                mg.theory.Enumeration(PAIR), mg.ExactEstimator(), 4
            ),
            "state must be a number from 0 to 3",
        ),
        (lambda: mg.theory.theorem_4(PAIR, -1), "batch is an expected number of draws"),
        (lambda: mg.theory.theorem_4_repaired(PAIR, -1), "batch is an expected number of draws"),
        (lambda: mg.models.dense_crf(image, costs=np.zeros((0, 3))), "costs must be"),
        (lambda: mg.sample(PAIR, sweeps=10**400), "sweeps must be an integer"),
        (lambda: mg.sample(PAIR, executor=np.zeros(2), progress=False), "executor must be"),
        (lambda: mg.Kernel((3, 3), "text"), "weights must be real numbers"),
        (lambda: mg.theory.promise(PAIR, mg.MinGibbs(batch=5.0)), "no guaranteed slowdown"),
        (lambda: mg.exact_draws(PAIR, -1), "count must be"),
        (lambda: mg.models.dense_crf(np.zeros((0, 3)), costs=np.zeros((2, 0))), "image must be"),
        (lambda: mg.models.curie_weiss(np.uint64(2**63), 1.5), "needs"),
        (lambda: mg.models.random_tables(10**300), "needs"),
        (lambda: mg.sample(PAIR, observe={"f": print}, progress=False), "must give a number"),
    ):
        with pytest.raises(mg.MinigibbsError, match=message):
            wrong()


def test_variables_and_shapes_are_checked():
    with pytest.raises(mg.GraphError, match="unknown variable 7"):
        PAIR.domains.pick([7])
    with pytest.raises(mg.SampleError, match=r"distribution must have shape \(4,\)"):
        mg.theory.transition(PAIR, mg.Gibbs()).marginal(np.ones(3))
    for wrong in (
        lambda: PAIR.domains.values(2**70),
        lambda: PAIR.domains.value(7, 0),
        lambda: mg.Domains([2], ["a"]).name(7),
        lambda: mg.Domains([2], ["a"]).describe(7),
        lambda: PAIR.where(7),
        lambda: PAIR.factors[0].where(2**70),
    ):
        with pytest.raises(mg.GraphError, match="unknown"):
            wrong()
    assert mg.Complete(4, 0.1).where(0, 2) == "complete group 2"
