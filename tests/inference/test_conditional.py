"""Marginals of trees given the rest, and the comparison of single chains with a ladder."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.graph.domains import Domains
from minigibbs.inference.conditional import disagreement
from minigibbs.results.marginals import Known
from minigibbs.samplers.block_gibbs.conditional import ConditionalMarginals, conditional_program
from tests.hard import HARD
from tests.zoo import ZOO

MODELS = ZOO | HARD


@pytest.mark.parametrize("name", MODELS)
def test_one_block_gives_exact_marginals(name):
    """All variables fit into one block of this width, so that draws do not matter."""
    graph = MODELS[name]
    data = conditional_program(graph, width=6)
    if len(data.block_end) > 1:
        pytest.skip("several blocks")
    sums = ConditionalMarginals(graph, data)
    sums.add(mg.exact_draws(graph, 3, seed=1))
    np.testing.assert_allclose(sums.means, mg.infer(graph).shares.pooled, atol=1e-10)


@pytest.mark.parametrize("width", [0, 1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_means_over_draws_are_marginals(name, width):
    """At most 5 standard errors from 4,000 independent draws; their errors are at most counts'."""
    graph = MODELS[name]
    draws, count = mg.exact_draws(graph, 4_000, seed=1), 4_000
    sums = ConditionalMarginals(graph, conditional_program(graph, width))
    sums.add(draws[:1_000])
    sums.add(draws[1_000:])
    exact = mg.infer(graph).shares.pooled
    error = np.sqrt(exact * (1 - exact) / count)
    assert (np.abs(sums.means - exact) <= 5 * error + 1e-9).all()
    whole = np.add.reduceat(sums.means, np.cumsum(graph.sizes) - graph.sizes)
    np.testing.assert_allclose(whole, 1.0, atol=1e-9)


def test_weak_models_get_smaller_errors_than_counts_give():
    rng = np.random.default_rng(1)
    i, j = np.triu_indices(60, 1)
    graph = mg.FactorGraph(
        [2] * 60, [mg.Ising(i, j, 0.005), mg.Unary(range(60), rng.normal(0, 0.3, (60, 2)))]
    )
    answer = mg.infer(graph, "20s", exact=False, standard_error=0.02, seed=1, progress=False)
    assert "trees given the rest" in answer.reason
    assert not answer.warnings
    counts = answer.run.marginals[:, 1]
    reference = mg.sample(graph, mg.Gibbs(), sweeps=100_000, seed=2, progress=False)
    truth = reference.marginals[:, 1]  # standard errors of about 0.001
    ours, theirs = (np.sqrt(((p - truth) ** 2).mean()) for p in (answer.marginals[:, 1], counts))
    assert ours < 0.5 * theirs
    assert ours < 0.004
    assert answer.standard_errors.max() < 0.01


def shares(means, errors):
    sizes = np.full(len(means) // 2, 2)
    return Known(np.asarray(means), np.asarray(errors), sizes, freedom=3.0)


def drawn(rng, modes, noise):
    """Means and errors of four chains whose deviations are moved by one mode, or independent."""
    rows = rng.normal(0, 1, (4, 1)) @ modes[None] + rng.normal(0, noise, (4, len(modes)))
    return shares(0.5 + rows.mean(0), rows.std(0, ddof=1) / 2)


@pytest.mark.parametrize(("mode", "noise"), [(0.0, 0.01), (0.01, 1e-6), (0.01, 0.003)])
def test_methods_that_agree_are_rarely_said_to_disagree(mode, noise):
    """The false-alarm rate is at most 0.001: 8 of 3,000 have a probability of 1%."""
    rng, domains = np.random.default_rng(1), Domains([2] * 20)
    modes = np.full(40, mode)
    found = sum(
        disagreement(drawn(rng, modes, noise), drawn(rng, modes, noise), domains) is not None
        for _ in range(3_000)
    )
    assert found <= 8


def test_methods_that_disagree_are_named():
    errors, domains = np.full(8, 0.005), Domains([2] * 4, ["a", "b", "c", "d"])
    one, other = np.full(8, 0.5), np.full(8, 0.5)
    other[2:4] = 0.9, 0.1
    text = disagreement(shares(one, errors), shares(other, errors), domains)
    assert text is not None
    assert "b" in text
    assert "0.5, 0.9" in text
    assert disagreement(shares(one, errors), shares(one + 0.01, errors), domains) is None
