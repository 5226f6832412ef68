"""Plans improved by rotations: same results with less work."""

import math

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.exact import preparation, rotation
from minigibbs.exact.contraction import Contraction, multiply_logs
from minigibbs.exact.elimination import EliminationTree, exact_answer
from minigibbs.exact.plan import PASSES, _Tree, make_plan, natural_scope, plan_of_tree, tree_scopes
from minigibbs.exact.rotation import Rotation
from minigibbs.system.watch import Watch


def pieces(count, seed):
    """Return scopes and tables of random factors on variables with two to four values."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 5, count)
    scopes = [
        tuple(rng.choice(count, int(rng.integers(1, 4)), replace=False)) for _ in range(count)
    ]
    scopes += [(v,) for v in range(count)]
    scopes = list(dict.fromkeys(tuple(sorted(map(int, scope))) for scope in scopes))
    tables = [rng.normal(size=(1, *sizes[list(scope)])) for scope in scopes]
    return sizes, scopes, tables


def random_pairs(count):
    """Return a graph with three edges per variable on average."""
    rng = np.random.default_rng(1)
    pairs = [rng.choice(count, 2, replace=False) for _ in range(3 * count // 2)]
    return mg.FactorGraph([2] * count, [mg.Ising(*np.array(pairs).T, 0.3)])


def answers(plan, sizes, tables):
    """Compute log Z and the marginals of all leaves."""
    made = Contraction(plan, sizes, tables)
    log_z = made.upward()
    return log_z, list(map(made.joints(), range(plan.leaves)))


@pytest.mark.parametrize("seed", range(5))
def test_a_rotated_plan_gives_the_same_answers(monkeypatch, seed):
    monkeypatch.setattr(rotation, "_LEAST_SECONDS", 0.0)
    sizes, scopes, tables = pieces(14, seed)
    plan = make_plan(range(14), scopes, sizes)
    search = rotation._Search(plan, sizes, math.inf)
    search._round(0.1, 0.1, 5_000)  # an arbitrary tree, far from the best
    random = plan_of_tree(scopes, search.children.tolist(), sizes)
    assert random.steps != plan.steps
    for other in (random, Rotation(plan, sizes, math.inf).use()):
        summed = sorted(v for step in other.steps for v in step.summed)
        assert summed == list(range(14))
        before, after = answers(plan, sizes, tables), answers(other, sizes, tables)
        np.testing.assert_allclose(after[0], before[0], rtol=1e-12)
        for one, two in zip(before[1], after[1], strict=True):
            np.testing.assert_allclose(two, one, atol=1e-12)


def test_components_are_joined_and_parted_again():
    sizes, scopes = np.full(7, 2), [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (6,)]
    tables = [np.log(np.full((1, *[2] * len(scope)), 0.5)) for scope in scopes]
    plan = make_plan(range(7), scopes, sizes)
    search = rotation._Search(plan, sizes, math.inf)
    search._round(0.1, 0.1, 1_000)
    other = plan_of_tree(scopes, search.children.tolist(), sizes)
    log_z = 7 * math.log(2) + len(scopes) * math.log(0.5)
    assert answers(other, sizes, tables)[0] == pytest.approx(log_z)


def test_prices_of_a_tree_are_those_of_its_plan():
    sizes, scopes, _ = pieces(14, 1)
    plan = make_plan(range(14), scopes, sizes)
    search = rotation._Search(plan, sizes, math.inf)
    search._round(2.0, 20.0, 1_000)
    made = plan_of_tree(scopes, search.children.tolist(), sizes)
    assert search._price(0.0) == pytest.approx(made.seconds / 3, rel=0.2)  # except for components
    assert search._made() == pytest.approx(made.made, rel=0.02)
    assert not tree_scopes(scopes, search.children.tolist())[-1]


def test_rotations_make_a_random_graph_cheaper():
    graph = random_pairs(180)
    plain = EliminationTree.of(graph, 16e9, draws=True)
    better = EliminationTree.of(random_pairs(180), 16e9)
    assert better.plan.seconds < 0.8 * plain.plan.seconds
    again = EliminationTree.of(random_pairs(180), 16e9)
    assert again.plan.steps == better.plan.steps


def test_a_plan_that_does_not_fit_is_made_smaller():
    graph = random_pairs(180)
    made = EliminationTree.of(graph, 16e9, draws=True).plan.made
    with pytest.raises(mg.errors.TooLargeError):
        EliminationTree.ordered(graph, made / 3, draws=True)
    assert EliminationTree.ordered(graph, made / 3).plan.made <= made / 3


def test_a_search_that_saves_nothing_ends_early(monkeypatch):
    """A quarter of the time is spent where two rounds have saved less than a twentieth."""

    def trials(saved):
        made = []

        def noted(self, hot, cold, count):
            made.append(count)
            self.seconds *= 1.0 - saved

        monkeypatch.setattr(rotation._Search, "_round", noted)
        EliminationTree.of(mg.models.ising_lattice(20, 0.3, periodic=False))
        return sum(made)

    assert trials(0.0) < 0.7 * trials(0.03)


def test_a_short_time_limit_shortens_the_search(monkeypatch):
    trials = []

    def noted(self, hot, cold, count):
        trials.append(count)
        self.seconds *= 0.9  # so that the search goes on

    monkeypatch.setattr(rotation._Search, "_round", noted)
    graph = mg.models.ising_lattice(20, 0.3, periodic=False)
    EliminationTree.of(graph)
    long = sum(trials)
    trials.clear()
    with Watch(0.5):
        EliminationTree.of(mg.models.ising_lattice(20, 0.3, periodic=False))
    assert 0 < sum(trials) < long / 2


def test_a_plan_becomes_faster_while_it_is_used(monkeypatch):
    monkeypatch.setattr(rotation, "_LEAST_SECONDS", 0.0)
    graph = random_pairs(170)
    trees = [EliminationTree.of(graph, 16e9) for _ in range(40)]
    seconds = [tree.plan.seconds for tree in trees]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[-1] < 0.95 * seconds[0]
    made = Rotation(trees[0].plan, trees[0].sizes, 2e9)
    assert [made.use().seconds for _ in range(3)][-1] <= seconds[0]


def test_other_evidence_uses_the_improved_tree(monkeypatch):
    searched = []
    run = rotation._Search.run

    def noted(self, uses, pace):
        run(self, uses, pace)
        searched.append((uses, self.seconds))

    monkeypatch.setattr(rotation._Search, "run", noted)
    monkeypatch.setattr(rotation, "_LEAST_SECONDS", 0.0)
    graph = random_pairs(180)
    first = EliminationTree.of(graph, 16e9)
    others = [EliminationTree.of(graph.condition({v: 1}), 16e9) for v in range(6)]
    assert [uses for uses, _ in searched] == list(range(1, 8))  # one search for all of them
    assert searched[-1][1] <= searched[0][1]
    assert all(other.plan.seconds <= 1.25 * first.plan.seconds for other in others)


EVIDENCE = [{0: 1}, {3: 0, 4: 1, 9: 1}, {v: (v + 1) % 2 for v in range(5)}, {19: 1}]


@pytest.mark.parametrize("model", ["pairs", "tables with zeros"])
@pytest.mark.parametrize("draws", [False, True])
def test_other_evidence_keeps_the_leaves_of_the_plan(model, draws):
    """Answers are those of a graph without a known plan; sums of doubles differ by about 1e-14."""

    def made():
        if model == "pairs":
            return random_pairs(20)
        tables = np.random.default_rng(2).normal(size=(19, 2, 3))
        tables[::3, 0, 1] = -np.inf
        scopes = [(v, v + 1) if v % 2 == 0 else (v + 1, v) for v in range(19)]
        return mg.FactorGraph([2, 3] * 10, [mg.Table(scopes, tables)])

    graph = made()
    first = EliminationTree.of(graph, draws=draws)
    for seen in EVIDENCE:
        tree = EliminationTree.of(graph.condition(seen), draws=draws)
        assert tree.leaves == first.leaves
        assert tree.plan.entries < first.plan.entries
        again = EliminationTree.of(made().condition(seen), draws=draws)
        for one, other in zip(exact_answer(tree), exact_answer(again), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)


def test_a_variable_that_was_observed_needs_another_plan():
    graph = random_pairs(20)
    EliminationTree.of(graph.condition({0: 1}))
    flat, log_z = exact_answer(EliminationTree.of(graph))
    fresh = exact_answer(EliminationTree.of(random_pairs(20)))
    np.testing.assert_allclose(flat, fresh[0], rtol=1e-11)
    assert log_z == pytest.approx(fresh[1], rel=1e-12)


def test_predicted_seconds_are_those_of_the_planner():
    """The vectorized sum and the cost of single products, by which the planner chooses."""
    _, scopes, _ = pieces(40, 3)
    for size in (2, 4):
        wide = np.full(40, size)
        plan = make_plan(range(40), scopes, wide)
        tree = _Tree(scopes, wide)
        total = sum(
            tree.cost(
                set(plan.scopes[step.left]),
                set(plan.scopes[step.right]) if step.right >= 0 else set(),
                set(step.scope),
            )
            for step in plan.steps
        )
        assert plan.seconds == pytest.approx(PASSES * total, rel=0.01)


def test_trees_for_draws_sum_few_variables_at_a_time(monkeypatch):
    monkeypatch.setattr(preparation.Rotation, "use", None)
    tree = EliminationTree.of(mg.models.ising_lattice(12, 0.3, periodic=False), draws=True)
    assert max(len(step.summed) for step in tree.plan.steps) <= 12


@pytest.mark.parametrize("spread", [1.0, 300.0, 2000.0])
def test_products_of_logarithms_keep_their_digits(spread):
    """The entries differ by far more than the range of doubles, and some are 0."""
    rng = np.random.default_rng(1)
    sizes, left, right = [3, 4, 5, 2, 3], (0, 1, 2), (1, 3, 2, 4)
    a = spread * rng.normal(size=(1, 3, 4, 5))
    b = spread * rng.normal(size=(2, 4, 2, 5, 3))
    a[0, 1], b[1, :, 0] = -np.inf, -np.inf
    a[0, :, 2, 1:3] = -np.inf
    scope = natural_scope(left, right, {0, 1, 3})
    assert scope == (1, 0, 3)
    found = multiply_logs(sizes, left, a, right, b, scope)
    terms = a.transpose(0, 2, 1, 3)[:, :, :, None, :, None] + b[:, :, None]
    wanted = np.logaddexp.reduce(terms.reshape(2, 4, 3, 2, -1), axis=-1)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-9)
    alone = multiply_logs(sizes, left, a, None, None, (1,))
    wanted = np.logaddexp.reduce(a.transpose(0, 2, 1, 3).reshape(1, 4, -1), axis=-1)
    np.testing.assert_allclose(alone, wanted, rtol=1e-12)
