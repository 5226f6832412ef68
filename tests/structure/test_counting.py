"""Counts by bits and by rows equal naive counts; scores equal their formulas."""

import math

import numpy as np
import pytest
from scipy.special import gammaln

from minigibbs.structure.counting import Counter, Scoring
from minigibbs.structure.scores import BDEU, BIC, LIKELIHOOD

SIZES = np.array([2, 3, 5, 20, 1, 4])


def codes(rows, kind=np.uint8, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, size, rows) for size in SIZES]).astype(kind)


def naive(table, columns, sizes):
    """Count by definition; returns [first column, second column, ...]."""
    counts = np.zeros([sizes[c] for c in columns], dtype=int)
    np.add.at(counts, tuple(table[c] for c in columns), 1)
    return counts


@pytest.mark.quick
@pytest.mark.parametrize("rows", [1, 63, 64, 1000])
@pytest.mark.parametrize("kind", [np.uint8, np.int32])
def test_pairs_are_counted(rows, kind):
    table = codes(rows, kind)
    counter = Counter(table, SIZES, threads=1)
    first, second = np.triu_indices(len(SIZES), 1)
    found, starts = counter.pairs(first, second)
    for k, (i, j) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        own = found[starts[k] : starts[k + 1]].reshape(SIZES[i], SIZES[j])
        np.testing.assert_array_equal(own, naive(table, [i, j], SIZES))


def bic(counts):
    """Return the BIC of a table [..., child]."""
    flat = counts.reshape(-1, counts.shape[-1])
    total = sum(n * math.log(n) for n in flat.ravel() if n)
    total -= sum(n * math.log(n) for n in flat.sum(axis=1) if n)
    return total - 0.5 * math.log(counts.sum()) * len(flat) * (flat.shape[1] - 1)


def bdeu(counts, strength):
    """Return the BDeu score of a table [..., child]."""
    flat = counts.reshape(-1, counts.shape[-1])
    cell, row = strength / flat.size, strength / len(flat)
    total = (gammaln(cell + flat) - gammaln(cell)).sum()
    return total + (gammaln(row) - gammaln(row + flat.sum(axis=1))).sum()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [700, 40_000])  # 40,000 rows need two blocks of words
@pytest.mark.parametrize("parents", [(), (1,), (1, 2), (5, 2, 1), (3, 1, 2)])
def test_families_with_one_parent_more_or_less_have_their_scores(parents, rows, threads):
    table = codes(rows)
    counter = Counter(table, SIZES, threads)
    others = np.array([c for c in range(1, len(SIZES)) if c not in parents])
    for score, kind in ((bic, BIC), (lambda t: bdeu(t, 2.5), BDEU)):
        own, add, drop = counter.scores(0, parents, others, Scoring(kind, 2.5, rows))
        assert math.isclose(own, score(naive(table, [*parents, 0], SIZES)))
        wanted = [score(naive(table, [c, *parents, 0], SIZES)) for c in others.tolist()]
        np.testing.assert_allclose(add, wanted)
        rest = [[p for p in parents if p != parent] for parent in parents]
        wanted = [score(naive(table, [*some, 0], SIZES)) for some in rest]
        np.testing.assert_allclose(drop, wanted)
    likelihood = counter.scores(0, parents, others, Scoring(LIKELIHOOD, 1.0, rows))[0]
    assert likelihood >= counter.scores(0, parents, others, Scoring(BIC, 1.0, rows))[0]
    found = counter.counts(0, parents)
    np.testing.assert_array_equal(found, naive(table, [*reversed(parents), 0], SIZES))
    counter.close()


def test_columns_of_many_values_are_counted_row_by_row():
    sizes = np.array([20, 3, 2])
    table = np.stack([np.random.default_rng(1).integers(0, n, 500) for n in sizes])
    counter = Counter(table.astype(np.uint8), sizes, 1)
    for child, parents in ((0, ()), (1, (0,)), (2, ())):
        others = np.array([c for c in range(3) if c != child and c not in parents])
        own, add, _ = counter.scores(child, parents, others, Scoring(BIC, 1.0, 500))
        assert math.isclose(own, bic(naive(table, [*parents, child], sizes)))
        wanted = [bic(naive(table, [c, *parents, child], sizes)) for c in others.tolist()]
        np.testing.assert_allclose(add, wanted)


def test_threads_count_the_same():
    table = codes(200_000)
    one, two = Counter(table, SIZES, 1), Counter(table, SIZES, 2)
    np.testing.assert_array_equal(one.bits, two.bits)
    candidates = np.array([1, 2, 3, 5])
    scoring = Scoring(BIC, 1.0, 200_000)
    first, second = (c.scores(0, (), candidates, scoring)[1] for c in (one, two))
    np.testing.assert_array_equal(first, second)
    two.close()


def test_tables_that_are_too_large_are_not_considered():
    sizes = np.array([3000, 3000, 2])
    table = np.stack([np.arange(100) % n for n in sizes]).astype(np.int32)
    scoring = Scoring(BIC, 1.0, 100)
    found = Counter(table, sizes, 1).scores(0, (), np.array([1, 2]), scoring)[1]
    assert found[0] == -np.inf
    assert np.isfinite(found[1])
