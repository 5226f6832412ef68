"""Poisson variates, sparse Poisson vectors, alias tables and subsets: their distributions."""

import numpy as np
import pytest
from scipy import stats

from minigibbs.kernels.alias import draw_alias, fill_alias
from minigibbs.kernels.jit import entry
from minigibbs.kernels.layout import ALIAS
from minigibbs.kernels.poisson import (
    counted_poisson,
    expected_draws,
    poisson,
    poisson_beyond,
    poisson_vector,
)
from minigibbs.kernels.random import next_word, uniform
from minigibbs.kernels.subset import begin_subset, next_member, subset_scratch
from minigibbs.samplers.bounds import MOST_BATCH
from tests.harness import FALSE_ALARM, chi_square


def stream(seed):
    return np.random.SeedSequence(seed).generate_state(4, np.uint64)


@entry
def draw_poisson(mean, none, stream, out):
    for k in range(len(out)):
        out[k] = poisson(mean, none, stream)


@entry
def draw_counted(mean, none, stream, out):
    for k in range(len(out)):
        out[k] = counted_poisson(mean, none, next_word(stream))


@pytest.mark.parametrize("draw", [draw_poisson, draw_counted], ids=["streamed", "counted"])
@pytest.mark.parametrize("mean", [0.0, 1e-3, 0.5, 3.0, 9.99, 10.0, 31.4, 185.0, 1e4])
def test_poisson_distribution(mean, draw):
    out = np.empty(200_000, dtype=np.int64)
    draw(mean, np.exp(-mean), stream(1), out)
    if mean == 0.0:
        assert not out.any()
        return
    low, high = stats.poisson.ppf([1e-7, 1 - 1e-7], mean).astype(int)
    cells = np.clip(out, low, high) - low
    chances = stats.poisson.pmf(np.arange(low, high + 1), mean)
    chances[0] = stats.poisson.cdf(low, mean)
    chances[-1] = stats.poisson.sf(high - 1, mean)
    assert chi_square(cells, chances) > FALSE_ALARM


def test_poisson_of_huge_mean():
    out = np.empty(100_000, dtype=np.int64)
    mean = MOST_BATCH
    draw_poisson(mean, 0.0, stream(2), out)
    z = (out - mean) / np.sqrt(mean)
    assert stats.kstest(z, "norm").pvalue > FALSE_ALARM


@entry
def draw_beyond(mean, none, stream, out):
    for k in range(len(out)):
        u = none + (1.0 - none) * uniform(stream)
        out[k] = poisson_beyond(u, mean, none, stream)


@pytest.mark.parametrize("mean", [1e-3, 0.5, 3.0, 9.99, 10.0, 12.0, 57.0])
def test_poisson_above_zero(mean):
    """The variate is positive: at mean 10, one in 22,000 counts is 0 and is redrawn."""
    out = np.empty(1_000_000, dtype=np.int64)
    draw_beyond(mean, np.exp(-mean), stream(7), out)
    assert out.min() > 0  # of a million, 45 would be 0
    top = int(stats.poisson.isf(1e-7, mean))
    chances = stats.poisson.pmf(np.arange(top + 1), mean)
    chances[-1] = stats.poisson.sf(top - 1, mean)
    chances[0] = 0.0
    assert chi_square(np.minimum(out, top), chances / chances.sum()) > FALSE_ALARM


@entry
def draw_vector(rows, strong, weak, row, stream, out):
    for k in range(len(out)):
        for s in range(rows[row].strong_start, rows[row].strong_end):
            out[k, strong[s].place] += poisson(strong[s].rate, strong[s].none, stream)
        draws = poisson(rows[row].weak_total, rows[row].none, stream)
        for _ in range(draws):
            out[k, draw_alias(weak, rows[row].weak_start, rows[row].weak_end, stream)] += 1


def test_poisson_vector_has_independent_poisson_entries():
    rates = np.array([0.0, 0.3, 5.0, 0.9, 1.0, 0.05, 20.0, 0.7, 0.2])
    vector = poisson_vector(np.array([0, 5]), np.array([5, 9]), rates)
    out = np.zeros((50_000, 9), dtype=np.int64)
    draw_vector(*vector, 0, stream(3), out)
    draw_vector(*vector, 1, stream(4), out)
    assert not out[:, 0].any()
    for place in range(1, 9):
        top = int(stats.poisson.isf(1e-6, rates[place]))
        chances = stats.poisson.pmf(np.arange(top + 1), rates[place])
        chances[-1] = stats.poisson.sf(top - 1, rates[place])
        # eight tests at 1e-4: false alarm 1e-3
        assert chi_square(np.minimum(out[:, place], top), chances) > FALSE_ALARM
    correlation = np.corrcoef(out[:, 1:].T) - np.eye(8)
    assert np.abs(correlation).max() < 5 / np.sqrt(50_000)  # 28 pairs at 5 sigma: 2e-5
    np.testing.assert_allclose(expected_draws(vector.rows), [2 + 1.2, 1 + 0.95])


@entry
def draw_places(table, stream, out):
    for k in range(len(out)):
        out[k] = draw_alias(table, 0, len(table), stream)


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_alias_table_is_exact(count):
    """Each entry's share of the table is its probability, up to rounding."""
    weights = np.random.default_rng(count).exponential(size=count) ** 3
    table = np.zeros(count, dtype=ALIAS)
    table["place"], table["accept"] = np.arange(count), weights
    fill_alias(table)
    share = np.bincount(table["place"], table["accept"], minlength=count)
    share += np.bincount(table["other"], 1 - table["accept"], minlength=count)
    np.testing.assert_allclose(share / count, weights / weights.sum(), atol=1e-12)
    out = np.empty(100_000, dtype=np.int64)
    draw_places(table, stream(5), out)
    if count > 1:
        assert chi_square(out, weights / weights.sum()) > FALSE_ALARM


@entry
def draw_subsets(count, size, scratch, stream, out):
    for k in range(len(out)):
        begin_subset(scratch)
        for last in range(count - size, count):
            out[k] += 1 << next_member(scratch, last, stream)


@pytest.mark.parametrize(("count", "size"), [(6, 1), (6, 3), (6, 6), (9, 8)])
def test_subsets_are_uniform(count, size):
    out = np.zeros(60_000, dtype=np.int64)
    draw_subsets(count, size, np.zeros(subset_scratch(size), np.int64), stream(6), out)
    sizes = np.array([int(mask).bit_count() for mask in range(2**count)])
    assert (sizes[out] == size).all()  # distinct members, in the requested number
    if size < count:
        chances = (sizes == size) / (sizes == size).sum()
        assert chi_square(out, chances) > FALSE_ALARM
