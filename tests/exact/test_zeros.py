"""Hard constraints: exact answers, initial states, and connectivity of the states."""

import json
import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chisquare

import minigibbs as mg
from minigibbs.exact import CONNECTED, SPLIT, UNKNOWN, contraction, elimination, support
from minigibbs.exact.support import Support, reach, zeros_alone
from minigibbs.formats import uai
from minigibbs.running.request import start_states
from minigibbs.system.watch import TIME, StopError, Watch, current
from tests import naive
from tests.hard import HARD, NOT_BOTH, ZERO, differ, random_hard
from tests.harness import FALSE_ALARM
from tests.paths import DATA

real = pytest.mark.skipif(not DATA.is_dir(), reason="needs the public models in ../shared/data")
SAME = [[0.0, ZERO], [ZERO, 0.0]]


def possible_states(graph):
    states = np.array(naive.states(graph))
    return states[graph.log_potential(states) > ZERO]


def graphs(count=120):
    for seed in range(count):
        rng = np.random.default_rng(1000 + seed)
        graph = random_hard(rng, share=rng.choice([0.1, 0.2, 0.3]))
        yield graph.condition({2: 0}) if seed % 4 == 0 else graph


@pytest.mark.parametrize("logs", [False, True])
def test_answers_are_those_of_enumeration(logs, monkeypatch):
    if logs:
        monkeypatch.setattr(contraction, "LEAST", -1e-9)  # every value other than 1 is too small
    none = 0
    for graph in [*HARD.values(), *graphs()]:
        states = np.array(naive.states(graph))
        energy = np.array([naive.log_potential(graph, x) for x in states])
        if energy.max() == ZERO:
            none += 1
            assert mg.log_partition(graph) == -math.inf
            with pytest.raises(mg.GraphError, match="has probability 0"):
                mg.exact_marginals(graph)
            with pytest.raises(mg.GraphError, match="has probability 0"):
                mg.exact_draws(graph, 3)
            continue
        assert mg.log_partition(graph) == pytest.approx(logsumexp(energy), abs=1e-10)
        marginals = mg.exact_marginals(graph)
        np.testing.assert_allclose(marginals, naive.marginals(graph), atol=1e-12)
    assert 5 < none < 100


def test_evidence_of_probability_zero_is_said_to_be():
    graph = mg.FactorGraph([2, 2], [mg.Table([[0, 1]], SAME)])
    with pytest.raises(mg.GraphError, match="the evidence has probability 0"):
        mg.exact_marginals(graph.condition({0: 0, 1: 1}))
    assert mg.log_partition(graph.condition({0: 0, 1: 1})) == -math.inf


@pytest.mark.parametrize("model", HARD)
def test_draws_have_the_distribution(model):
    graph, distribution = HARD[model], naive.distribution(HARD[model])
    draws = mg.exact_draws(graph, 40_000, seed=3)
    place = {x: k for k, x in enumerate(naive.states(graph))}
    counts = np.bincount([place[tuple(x)] for x in draws.tolist()], minlength=len(distribution))
    assert not counts[distribution == 0].any()
    common = distribution * 40_000 > 5
    rest = [counts[~common].sum()], [40_000 * distribution[~common].sum()]
    many = rest[1][0] > 5
    seen = np.append(counts[common], rest[0] if many else [])
    wanted = np.append(40_000 * distribution[common], rest[1] if many else [])
    assert chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue > FALSE_ALARM


def test_numbers_that_leave_the_range_of_doubles():
    """One value leaves 1,000 other variables free, the other fixes them all: 3^1000 to 1."""
    n, push = 1001, 1000 * np.log(3.0)
    fixes = np.zeros((2, 3))
    fixes[0, 1:] = ZERO
    rules = mg.Table([[0, k] for k in range(1, n)], fixes)
    graph = mg.FactorGraph([2] + [3] * (n - 1), [rules, mg.Unary([0], [[push + 1.0, 0.0]])])
    assert mg.log_partition(graph) == pytest.approx(push + np.log1p(np.e), abs=1e-9)
    assert mg.exact_marginals(graph)[0, 0] == pytest.approx(np.e / (1 + np.e), abs=1e-9)


def test_zeros_make_models_narrower():
    """Evidence fixes everything except a corner of a grid whose treewidth is too high."""
    side = 40
    site = np.arange(side * side).reshape(side, side)
    steps = np.concatenate(
        [np.stack([site[:, :-1], site[:, 1:]], -1), np.stack([site[:-1].T, site[1:].T], -1)]
    ).reshape(-1, 2)
    rises = mg.Table(steps, [[0.2, 0.1], [ZERO, 0.4]])  # values do not decrease along either axis
    graph = mg.FactorGraph([2] * site.size, [rises])
    with pytest.raises(mg.TooLargeError):
        mg.exact_marginals(graph, memory=2**20)
    narrow = graph.condition({int(site[3, 3]): 1, int(site[-1, 1]): 0})
    answer = mg.exact_marginals(narrow, memory=2**20)
    assert (answer[site[3:, 3:].ravel(), 1] == 1.0).all()
    assert 0 < answer[site[0, 3], 1] < 1


@real
@pytest.mark.parametrize("name", ["asia", "alarm", "insurance", "pigs", "water", "win95pts"])
def test_real_networks(name):
    graph = mg.read(DATA / f"bnlearn_zeros/{name}.bif.gz")
    known = json.loads((DATA / f"bnlearn_zeros/{name}.exact.json").read_text())
    check_rows(graph, [known["prior"][v] for v in graph.names])
    assert mg.log_partition(graph) == pytest.approx(0.0, abs=1e-6)
    given = graph.condition(known["evidence"])
    check_rows(given, [known["posterior"][v] for v in graph.names])
    assert mg.log_partition(given) == pytest.approx(known["log_evidence"], abs=1e-6)


@real
@pytest.mark.parametrize("name", ["Pedigree_11", "Promedus_11", "Promedus_15", "Promedus_24"])
def test_real_models(name):
    path = DATA / f"uai2014_zeros/{name}.uai"
    graph = mg.read(path).condition(uai.read_evidence(f"{path}.evid"))
    check_rows(graph, uai.read_marginals(f"{path}.MAR"))
    log_z = float((path.parent / f"{name}.uai.lnZ").read_text())
    assert mg.log_partition(graph) == pytest.approx(log_z, abs=1e-6)


def check_rows(graph, rows):
    """Compare marginals with known ones, over the states in the file."""
    found = mg.exact_marginals(graph)
    for variable, row in enumerate(rows):
        left = graph.domains.kept.get(variable, np.arange(graph.sizes[variable]))
        full = np.zeros(len(row))
        full[left] = found[variable, : len(left)]
        np.testing.assert_allclose(full, row, atol=1e-6)


def filled(graph, count, seed=0):
    states = np.empty((count, len(graph)), dtype=graph.state_type)
    Support(graph).fill(states, np.random.default_rng(seed).random(states.shape))
    return states


@pytest.mark.parametrize("way", ["tree", "search"])
def test_states_are_possible_and_absence_is_proved(way, monkeypatch):
    if way == "search":
        monkeypatch.setattr(support, "_MANY", 0)
    none = 0
    for graph in [*HARD.values(), *graphs(80)]:
        if len(possible_states(graph)):
            states = filled(graph, 5)
            assert (graph.log_potential(states) > ZERO).all()
            clamped = graph.evidence >= 0
            assert (states[:, clamped] == graph.evidence[clamped]).all()
        else:
            none += 1
            with pytest.raises(mg.SampleError, match="no state of this graph has positive prob"):
                filled(graph, 1)
    assert none > 3


@pytest.mark.parametrize("model", ["apart", "tables", "colors"])
def test_through_the_tree_all_possible_states_are_alike(model):
    graph = HARD[model]
    states = filled(graph, 30_000, seed=5)
    _, counts = np.unique(states, axis=0, return_counts=True)
    assert len(counts) == len(possible_states(graph))
    assert chisquare(counts).pvalue > FALSE_ALARM


@pytest.mark.parametrize("model", ["apart", "tables", "colors"])
def test_a_search_finds_all_possible_states(model, monkeypatch):
    monkeypatch.setattr(support, "_MANY", 0)
    found = np.unique(filled(HARD[model], 3000, seed=6), axis=0)
    assert len(found) == len(possible_states(HARD[model]))


def pigeons(holes):
    """One more pigeon than holes: impossible, and hard to prove."""
    n = holes + 1
    pairs = [[i, j] for i in range(n) for j in range(i + 1, n)]
    return mg.FactorGraph([holes] * n, [mg.Table(pairs, differ(holes))])


def test_a_search_proves_that_there_is_no_state(monkeypatch):
    monkeypatch.setattr(support, "_MANY", 0)
    with pytest.raises(mg.SampleError, match="no state of this graph has positive probability"):
        filled(pigeons(5), 1)


def test_a_search_that_is_cut_off_says_so(monkeypatch):
    monkeypatch.setattr(support, "_MANY", 0)
    monkeypatch.setattr(support, "_MOST_VISITS", 20_000)
    with pytest.raises(mg.SampleError, match=r"was found in 2e\+04 steps.*there may be none"):
        filled(pigeons(9), 1)


def test_further_chains_go_without_a_search_of_their_own(monkeypatch):
    monkeypatch.setattr(support, "_MANY", 0)
    monkeypatch.setattr(support, "_MORE_VISITS", 100)
    states = filled(HARD["colors"], 200)
    assert (HARD["colors"].log_potential(states) > ZERO).all()
    assert 1 < len(np.unique(states, axis=0)) < 30


def test_a_tree_of_the_zeros_leaves_time_for_a_search(monkeypatch):
    """Initial states know the time limit of the call; a tree that takes too long is given up."""
    left = []

    def late(graph, most):
        left.append(current().left)
        raise StopError(TIME)

    graph = mg.FactorGraph([3] * 6, [mg.Table([[k, k + 1] for k in range(5)], differ(3))])
    monkeypatch.setattr(support.EliminationTree, "ordered", late)
    with Watch(100.0):
        states = start_states(graph, "random", 2, seed=1)
    assert len(left) == 1
    assert left[0] <= support._TREE_SHARE * 100.0
    assert np.isfinite(graph.log_potential(states)).all()


def test_a_hard_problem_is_solved():
    """Three-colorings of a random graph with 4.2 neighbors per site: hard, high treewidth."""
    n, rng = 400, np.random.default_rng(8)
    color = rng.integers(0, 3, n)  # planted, so that a coloring exists
    pairs = rng.integers(0, n, (3000, 2))
    pairs = pairs[color[pairs[:, 0]] != color[pairs[:, 1]]][: int(2.1 * n)]
    graph = mg.FactorGraph([3] * n, [mg.Table(pairs, differ(3))])
    with pytest.raises(mg.TooLargeError):
        elimination.EliminationTree.of(zeros_alone(graph), support._NARROW)
    states = filled(graph, 3)
    assert (graph.log_potential(states) == 0.0).all()
    assert len(np.unique(states, axis=0)) == 3


def parities(n, width, rng):
    """Exclusive-or equations of `width` variables each: deterministic relations."""
    even = np.where(np.indices((2,) * width).sum(axis=0) % 2 == 0, 0.0, ZERO)
    return mg.FactorGraph(
        [2] * n, [mg.Table([rng.choice(n, width, False) for _ in range(n)], even)]
    )


def test_deterministic_relations_are_satisfied():
    graph = parities(60, 3, np.random.default_rng(3))
    assert (graph.log_potential(filled(graph, 3)) == 0.0).all()
    assert reach(graph) == UNKNOWN


def components(graph):
    """Count the connected components of the possible states, by search."""
    left = {tuple(x) for x in possible_states(graph).tolist()}
    parts = 0
    while left:
        parts, border = parts + 1, [left.pop()]
        while border:
            x = border.pop()
            for i, size in enumerate(graph.sizes.tolist()):
                for value in range(size):
                    y = (*x[:i], value, *x[i + 1 :])
                    if y in left:
                        left.discard(y)
                        border.append(y)
    return parts


def test_reach_is_what_walking_says():
    seen = set()
    for graph in [*HARD.values(), *graphs(150)]:
        parts = components(graph)
        if parts:
            assert reach(graph) == (CONNECTED if parts == 1 else SPLIT)
            seen.add(min(parts, 2))
    assert seen == {1, 2}


def test_folding_proves_what_cannot_be_enumerated():
    """Independent sets of a large graph: every variable can be set to 0."""
    n, rng = 3000, np.random.default_rng(1)
    pairs = rng.integers(0, n, (9000, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    assert reach(mg.FactorGraph([2] * n, [mg.Table(pairs, NOT_BOTH)])) == CONNECTED
    assert reach(mg.FactorGraph([2] * n, [mg.Table(pairs, differ(2))]).condition({})) == UNKNOWN


def test_reach_after_pruning():
    """Variables that evidence fixes do not separate states."""
    graph = mg.FactorGraph([2, 2, 2], [mg.Table([[0, 1]], SAME), mg.Ising([1], [2], 0.5)])
    assert reach(graph) == SPLIT
    assert reach(graph.condition({0: 1})) == CONNECTED


def test_reach_of_more_variables_than_arrays_have_axes():
    """Folding leaves one value for each of 80 variables, and two values for two variables."""
    chain = mg.Table([[k, k + 1] for k in range(79)], NOT_BOTH)
    graph = mg.FactorGraph([2] * 82, [chain, mg.Table([[80, 81]], SAME)])
    assert reach(graph) == SPLIT
    assert reach(graph.condition({80: 1})) == CONNECTED


def test_a_huge_factor_that_evidence_settles_does_not_change_the_others():
    """Enumeration added the constant of the formula, which rounded all other factors away."""
    rule = mg.Logical("or", [[0, 1]], 1e80, negated=[[False, True]])
    graph = mg.FactorGraph([2, 2], [rule, mg.Unary([1], [[0.0, 0.6]])]).condition({0: 1})
    _, distribution = mg.exact_distribution(graph)
    np.testing.assert_allclose(distribution, mg.infer(graph).marginals[1], atol=1e-12)
    assert distribution[1] > 0.64
