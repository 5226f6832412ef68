"""Natural steps: Newton's for independent variables, and families on which others are slow."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.learning.moments import marginals_of
from minigibbs.learning.natural import Natural, natural_steps_exist


def family(sizes=(2, 3, 3, 4), scale=0.0, seed=0, **options):
    """Return a table for each pair, and fields of every variable."""
    rng, pairs = np.random.default_rng(seed), {}
    i, j = np.triu_indices(len(sizes), 1)
    for a, b in zip(i.tolist(), j.tolist(), strict=True):
        pairs.setdefault((sizes[a], sizes[b]), []).append((a, b))
    factors = [
        mg.Table(scope, scale * rng.normal(size=(len(scope), *shape)), name=f"J{shape}")
        for shape, scope in pairs.items()
    ]
    for size in sorted(set(sizes)):
        own = [k for k, d in enumerate(sizes) if d == size]
        energy = scale * rng.normal(size=(len(own), size))
        factors.append(mg.Unary(own, energy, name=f"h{size}", **options))
    return mg.FactorGraph(list(sizes), factors)


def rows_of(graph, count=4000, seed=1):
    return mg.exact_draws(graph, count, seed=seed)


def learn(graph, rows, **options):
    return mg.learn(graph, rows, **{"seed": 1, "progress": False, "errors": False, **options})


def test_the_step_solves_the_information_of_independent_variables():
    """The information is the covariance of all statistics under the product of the marginals."""
    graph = family()
    frame, rows = graph.frame, rows_of(family(scale=0.5))
    natural = Natural(frame, marginals_of(frame, rows, np.ones(len(rows))), 10**9)
    states, _ = mg.exact_distribution(graph)
    distribution = np.exp(np.log(natural.share)[frame.structure.first + states].sum(axis=1))
    assert distribution.sum() == pytest.approx(1.0)
    own = frame.statistics(states)
    centered = own - distribution @ own
    information = (centered * distribution[:, None]).T @ centered
    gradient = centered.T @ (distribution * np.random.default_rng(2).normal(size=len(distribution)))
    step = natural.scale * natural.centered(gradient.copy())
    # Without fields, tables of different pairs do not overlap: one step is Newton's.
    expected = np.linalg.pinv(information, rcond=1e-10) @ gradient
    np.testing.assert_allclose(centered @ step, centered @ expected, atol=1e-8)
    assert np.abs(centered @ (natural.scale * gradient) - centered @ expected).max() > 0.1


def test_natural_steps_arrive_where_the_exact_gradient_does():
    truth = family(scale=0.4)
    rows = rows_of(truth)
    best = learn(family(), rows, method="exact", l2=1e-3)
    fit = learn(family(), rows, optimizer="natural", rate=0.1, steps=600, l2=1e-3)
    np.testing.assert_allclose(fit.model_moments, best.data_moments, atol=0.02)
    centered = [one.graph.log_potential(rows[:200]) for one in (fit, best)]
    gap = centered[0] - centered[1]
    assert np.abs(gap - gap.mean()).max() < 0.15
    assert fit.pearson > 0.99


def test_natural_steps_are_the_default_for_large_families_alone():
    states = 6
    large = family((states,) * 26)
    assert large.frame.size > 10_000
    rows = np.random.default_rng(0).integers(0, states, (300, 26))
    rows[:, 1] = rows[:, 0]
    fit = learn(large, rows, steps=40, l2=1e-3, decay=1e6, chains=200)
    adam = learn(large, rows, steps=40, l2=1e-3, chains=200, optimizer="adam")
    assert fit.pearson > adam.pearson
    plain = learn(family((3,) * 5), rows[:, :5] % 3, steps=20, l2=0.1)
    same = learn(family((3,) * 5), rows[:, :5] % 3, steps=20, l2=0.1, optimizer="adam")
    np.testing.assert_array_equal(plain.parameters["h3"], same.parameters["h3"])
    # A single variable has the shares of the data from the beginning.
    begun = learn(large, rows, steps=0, l2=1e-3)
    shares = np.exp(begun.parameters["h6"])
    counts = np.stack([(rows == value).mean(axis=0) for value in range(states)], axis=1)
    np.testing.assert_allclose(shares, (counts + 0.05 / states) / 1.05, rtol=1e-9)


def test_one_seed_gives_the_same_weights_on_any_number_of_threads_and_after_a_resume(tmp_path):
    rows = rows_of(family(scale=0.5), 200)
    options = {"optimizer": "natural", "chains": 130, "l2": 0.01, "decay": 10.0}
    whole = learn(family(), rows, steps=30, threads=1, **options)
    path = tmp_path / "fit.mgl"
    learn(family(), rows, steps=13, threads=3, checkpoint=path, **options)
    again = mg.resume_learning(path, steps=17, progress=False)
    for name, values in whole.parameters.items():
        np.testing.assert_array_equal(again.parameters[name], values)


def test_what_natural_steps_need_is_said():
    rows = np.zeros((5, 2), dtype=int)
    tied = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.0, name="J")])
    fixed = family((2, 2), fixed=np.tile([True, False], (2, 1)))
    bare = mg.FactorGraph([2, 2], [mg.Table([[0, 1]], np.zeros((1, 2, 2)), name="J")])
    for graph in (tied, fixed, bare):
        assert not natural_steps_exist(graph)
        with pytest.raises(mg.LearnError, match='optimizer="natural" needs complete data'):
            learn(graph, rows, optimizer="natural")
        with pytest.raises(mg.LearnError, match='start="independent" needs complete data'):
            learn(graph, rows, start="independent")
    hidden = rows.copy()
    hidden[0, 0] = -1
    with pytest.raises(mg.LearnError, match="complete data"):
        learn(family((2, 2)), hidden, optimizer="natural")
    with pytest.raises(mg.LearnError, match="backend must be one of cpu, cuda"):
        learn(family((2, 2)), rows, backend="tpu")


def test_numbers_that_no_factor_uses_stay_as_they_are():
    fields = mg.Unary(np.arange(3), np.zeros((3, 2)), name="f")
    tables = mg.Table([[0, 1], [1, 2]], np.zeros((3, 2, 2)), name="t", tied=[0, 2])
    graph = mg.FactorGraph([2] * 3, [fields, tables])
    rows = np.random.default_rng(0).integers(0, 2, (500, 3))
    with pytest.warns(UserWarning, match="no factor depends"):
        fit = learn(graph, rows, optimizer="natural", steps=20, chains=64, l2=0.1)
    assert (fit.parameters["t"][1] == 0).all()
    assert (fit.parameters["t"][0] != 0).any()
