"""Climbs choose the best change, wandering preserves equivalence, rounds leave local optima."""

import itertools

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.structure import hill_climbing as climbing
from minigibbs.structure.counting import Counter, Scoring
from minigibbs.structure.equivalence import class_distance
from minigibbs.structure.learned import Rules
from minigibbs.structure.scores import BDEU, BIC
from minigibbs.system.watch import Watch
from tests.structure.models import draw, edges_of, network

COLUMNS = 10


def search(rows=1000, kind=BIC, required=(), allowed=None, most=None, seed=4):
    codes = np.ascontiguousarray(draw(network()[0], rows, seed).T.astype(np.uint8))
    edge = np.zeros((COLUMNS, COLUMNS), dtype=bool)
    edge[tuple(np.transpose(required))] = len(required) > 0
    rules = Rules(np.ones_like(edge) if allowed is None else allowed, edge, most)
    counter = Counter(codes, codes.max(axis=1).astype(np.int64) + 1, 1)
    rng = np.random.default_rng(seed)
    return climbing.Search(counter, Scoring(kind, 1.0, rows), rules, rng, Watch(None))


def score(one, edge):
    """Return the score of a network, computed family by family."""
    none = np.empty(0, dtype=np.int64)
    parents = [np.flatnonzero(edge[:, child]).tolist() for child in range(len(edge))]
    return sum(one.counter.scores(c, own, none, one.scoring)[0] for c, own in enumerate(parents))


def is_acyclic(edge):
    return not np.linalg.matrix_power(edge.astype(float), len(edge)).any()


def neighbors(one, edge):
    """Yield every network that the rules allow after one change of an edge."""
    for parent, child in itertools.permutations(range(len(edge)), 2):
        if edge[parent, child] and one.rules.required[parent, child]:
            continue
        kinds = ((False, False), (False, True)) if edge[parent, child] else ((True, False),)
        for there, back in kinds:
            changed = edge.copy()
            changed[parent, child], changed[child, parent] = there, back
            added = (parent, child) if there else (child, parent) if back else None
            if (added is None or one.rules.allowed[added]) and is_acyclic(changed):
                yield changed


@pytest.mark.parametrize("kind", [BIC, BDEU])
def test_a_climb_takes_the_best_change_at_every_step(kind):
    one = search(kind=kind)
    edge = one.walk.edge.copy()
    while True:
        best = max(neighbors(one, edge), key=lambda changed: score(one, changed))
        if score(one, best) <= score(one, edge) + 1e-6:
            break
        edge = best
    assert abs(one.climb(0) - score(one, edge)) < 1e-6
    assert class_distance(one.walk.best, edge) == 0  # equal gains allow any of the networks


def test_a_climb_by_rules_ends_where_no_change_is_better():
    allowed = np.random.default_rng(2).random((COLUMNS, COLUMNS)) < 0.7
    allowed[0, 9] = True
    one = search(required=[(0, 9)], allowed=allowed, most=2)
    level = one.climb(10)
    edge = one.walk.best
    assert edge[0, 9]
    assert not (edge & ~allowed).any()
    assert edge.sum(axis=0).max() <= 2
    near = [other for other in neighbors(one, edge) if other.sum(axis=0).max() <= 2]
    assert max(score(one, other) for other in near) <= level + 1e-6


def test_paths_are_those_of_powers_of_the_matrix():
    one = search()
    rng = np.random.default_rng(0)
    for _ in range(5):
        order = rng.permutation(COLUMNS)
        edge = np.triu(rng.random((COLUMNS, COLUMNS)) < 0.3, 1)[np.ix_(order, order)]
        one.load(edge)
        assert climbing._trace(one.walk) == COLUMNS
        paths = np.linalg.matrix_power(edge + np.eye(COLUMNS), COLUMNS) > 0  # [from, to]
        bits = one.walk.above[:, 0, None] >> np.arange(COLUMNS, dtype=np.uint64) & np.uint64(1)
        np.testing.assert_array_equal(bits.T, paths)


def test_networks_wander_among_those_of_the_same_distributions():
    one = search(required=[(0, 2)])
    truth = network()[1]
    rng, seen = np.random.default_rng(0), set()
    for _ in range(20):
        one.load(truth)
        one.wander(rng)
        assert class_distance(truth, one.walk.edge) == 0
        assert one.walk.edge[0, 2]
        seen.add(one.walk.edge.tobytes())
    assert len(seen) > 1


def test_families_are_scored_once_however_many_there_are():
    one = search()
    capacity = len(one.store.keys)
    rng = np.random.default_rng(1)
    for _ in range(20):
        one.load(np.triu(rng.random((COLUMNS, COLUMNS)) < 0.4, 1))
        one.climb(5)
    assert one.families > capacity  # the store has grown
    keys = one.store.keys[: one.families]
    assert len(set(keys.tolist())) == one.families
    before = one.families
    one.load(one.walk.best)
    one.complete()
    assert one.families == before


def traps(rows, seed):
    """Return a table of 30 columns, most of which are the noisy "or" of two or three others."""
    rng = np.random.default_rng(seed)
    edge = np.zeros((30, 30), dtype=bool)
    columns = []
    for k in range(30):
        own = rng.choice(k, min(k, int(rng.integers(0, 4))), replace=False)
        edge[own, k] = True
        causes = [columns[parent] for parent in own] or [rng.random(rows) < 0.3]
        columns.append(np.any(causes, axis=0) ^ (rng.random(rows) < 0.03))
    return np.stack(columns, axis=1).astype(int), edge


def test_rounds_leave_local_optima():
    better = 0
    for seed in range(5):
        rows, truth = traps(2000, seed)
        options = {"seed": 1, "threads": 1, "progress": False}
        plain = mg.learn_structure(rows, "network", restarts=0, **options)
        found = mg.learn_structure(rows, "network", **options)
        far = [class_distance(truth, edges_of(one)) for one in (found, plain)]
        assert found.score >= plain.score - 1e-6
        better += far[0] < far[1]
    assert better >= 3  # deterministic: the seeds determine tables and searches


def test_rounds_of_large_tables_are_made_on_some_rows(monkeypatch):
    rows, truth = traps(8000, 1)
    options = {"seed": 1, "threads": 1, "progress": False}
    plain = mg.learn_structure(rows, "network", restarts=0, **options)
    monkeypatch.setattr("minigibbs.structure.api._FEW_CELLS", 60_000)  # 2,000 rows
    found = mg.learn_structure(rows, "network", **options)
    assert found.score > plain.score
    assert class_distance(truth, edges_of(found)) < class_distance(truth, edges_of(plain))
    assert found.rows == 8000
    assert found.edges == mg.learn_structure(rows, "network", **options).edges
    rule = {"required": [("x29", "x0")], "max_parents": 2}
    ruled = mg.learn_structure(rows, "network", **rule, **options)
    assert edges_of(ruled)[29, 0]
    assert edges_of(ruled).sum(axis=0).max() <= 2


def test_required_families_that_are_too_large_are_refused():
    rng = np.random.default_rng(0)
    frame = {f"x{k}": rng.integers(0, 20, 400) for k in range(8)}
    required = [(f"x{k}", "x0") for k in range(1, 8)]
    with pytest.raises(mg.LearnError, match="Require fewer parents"):
        mg.learn_structure(frame, "network", required=required, progress=False)
