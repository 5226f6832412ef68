"""Diagnostics from marginals: R-hat and standard errors by hand; stuck chains are told of."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.formats import uai
from minigibbs.results import diagnostics
from tests.paths import DATA

real = pytest.mark.skipif(not DATA.is_dir(), reason="needs the public models in ../shared/data")


def test_rhat_from_counts_is_that_of_the_indicators():
    rng = np.random.default_rng(1)
    draws = (rng.random((3, 500)) < np.array([[0.2], [0.3], [0.4]])).astype(int)
    counts = np.stack([(draws == 0).sum(axis=1), (draws == 1).sum(axis=1)], axis=1)
    found = diagnostics.spread(counts, np.full(3, 500), np.array([2]))
    means, variances = draws.mean(axis=1), draws.var(axis=1)
    assert found.rhat == pytest.approx(np.sqrt(1 + means.var(ddof=1) / variances.mean()))
    assert (found.variable, found.apart) == (0, 1)


def test_the_worst_variable_is_found_and_the_others_are_counted():
    even, odd = [50, 50], [90, 10]
    counts = np.array([even + even + odd + [25, 75], even + even + odd[::-1] + [35, 65]])
    found = diagnostics.spread(counts, np.full(2, 100), np.full(4, 2))
    assert (found.variable, found.apart) == (2, 2)
    assert found.error == pytest.approx(0.4)  # half the distance of two chains


def test_chains_stuck_apart_have_an_infinite_rhat():
    found = diagnostics.spread(np.array([[100, 0], [0, 100]]), np.full(2, 100), np.array([2]))
    assert found.rhat == np.inf
    assert found.error == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("counts", "clock"),
    [([[100, 0]], [100]), ([[100, 0], [100, 0]], [100, 100]), ([[1, 1], [1, 1]], [2, 2])],
    ids=["one chain", "nothing moves", "too short"],
)
def test_what_tells_nothing(counts, clock):
    assert diagnostics.spread(np.array(counts), np.array(clock), np.array([2])) is None


def test_standard_errors_are_those_of_independent_samples():
    """500 of each chain's 1,000 are independent; the tenth with the largest spread sets the pace.

    A spread of 4 chains is chi-square with 3 degrees, over 3: its upper tenth begins at 2.08.
    """
    rng = np.random.default_rng(2)
    one = rng.binomial(500, 0.3, size=(4, 400))
    counts = 2 * np.stack([500 - one, one], axis=2).reshape(4, -1)
    promised = diagnostics.standard_errors(counts, np.full(4, 1000), np.array([800]))
    assert np.median(promised) == pytest.approx(np.sqrt(2.08 * 0.21 / 2000), rel=0.1)
    error = np.abs(counts.sum(axis=0) / 4000 - np.tile([0.7, 0.3], 400))
    assert (error / promised).max() < 5


def test_a_value_never_seen_is_not_certain():
    counts = np.array([[60, 40, 0], [50, 50, 0], [55, 45, 0], [52, 48, 0]])
    error = diagnostics.standard_errors(counts, np.full(4, 100), np.array([3]))
    assert 0 < error[2] < error[0]


def test_a_model_that_does_not_mix_is_told_of():
    """Two modes of 100 spins: chains start in either at random, and never leave it."""
    i, j = np.triu_indices(100, 1)
    graph = mg.FactorGraph(np.full(100, 2), [mg.Ising(i, j, 0.1)])
    summary = mg.sample(graph, sweeps=200, seed=1, progress=False).summary()
    assert summary.value_rhat > 1.2
    assert any("of 99 others" in w and "not to be trusted" in w for w in summary.warnings)
    assert "greatest value R-hat" in str(summary)


STUCK = [
    "pgmpy/grid4x4",
    "spin/chimera128_001_beta1",
    *(f"uai2014/DBN_{k}" for k in (11, 13, 15)),
    *(f"uai2014/Grids_{k}" for k in (11, 13, 15, 17)),
]


@real
@pytest.mark.parametrize("model", STUCK)
def test_real_models_that_do_not_mix_are_told_of(model):
    summary = mg.sample(mg.read(DATA / f"{model}.uai"), seed=1, progress=False).summary()
    assert any("disagree on x" in warning for warning in summary.warnings)


@real
@pytest.mark.parametrize(
    "model", ["bnlearn/hepar2", "uai2014/CSP_12", "uai2014/ObjectDetection_25", "merlin/bn"]
)
def test_real_models_that_mix_keep_their_promise(model):
    """Errors stay within five standard errors: four chains guess those, for hundreds of values."""
    graph = mg.read(DATA / f"{model}.uai")
    run = mg.sample(graph, sweeps=5000, warmup=100 * len(graph), seed=1, progress=False)
    promised = diagnostics.standard_errors(run.counts, run.clock, graph.sizes)
    truth = uai.read_marginals(DATA / f"{model}.uai.MAR")
    kept = [row[list(graph.domains.values(v))] for v, row in enumerate(truth)]
    error = np.abs(np.concatenate(kept) - run.counts.sum(axis=0) / run.clock.sum())
    assert (error / promised).max() < 5
    assert run.summary().warnings == ()
    assert run.summary().standard_error == pytest.approx(promised.max())
