"""Searches without temperature ladders: fields, annealing, and the choice of these searches."""

import itertools
import math
import signal

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.errors import TooLargeError
from minigibbs.graph.factors.implicit.base import Implicit
from minigibbs.inference import maximize as maximizing
from minigibbs.inference.annealing import _Walk, climb
from minigibbs.system.watch import Watch, current
from tests.hard import HARD
from tests.inference.test_maximize import all_states
from tests.zoo import IMPLICIT, STRONG, ZOO

QUIET = {"progress": False}
GRAPHS = {
    **ZOO,
    **{f"implicit-{name}": graph for name, graph in IMPLICIT.items()},
    **{f"hard-{name}": graph for name, graph in HARD.items()},
    "strong": STRONG,
}


@pytest.fixture
def no_ladder(monkeypatch):
    """Reject every ladder as too large."""

    def refuse(*_):
        raise TooLargeError("too large")

    monkeypatch.setattr(maximizing, "_require_layout", refuse)


def possible_states(graph, count):
    states = all_states(graph)
    states = states[graph.log_potential(states) > -np.inf].astype(graph.state_type)
    return states[np.random.default_rng(1).integers(0, len(states), count)]


@pytest.mark.parametrize("name", GRAPHS)
def test_greedy_updates_take_the_best_value_of_each_variable(name):
    """Compare with energies of all values, along a path of changes that updates running sums."""
    graph = GRAPHS[name]
    order = np.flatnonzero((graph.evidence < 0) & (graph.sizes > 1)).astype(np.int32)
    walk = _Walk(graph, order)
    for state in possible_states(graph, 3):
        walker = walk.walker(state, np.arange(1, 5, dtype=np.uint64))
        walk.advance(walker, 0.5, 0, 2 * len(order))
        assert graph.log_potential(state) > -np.inf
        for place, i in enumerate(order.tolist()):
            others = np.repeat(state[None], graph.sizes[i], axis=0)
            others[:, i] = np.arange(graph.sizes[i])
            walk.advance(walker, math.inf, place, 1)
            best = graph.log_potential(others).max()
            assert graph.log_potential(state) == pytest.approx(best, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", ["potts", "ising", "implicit-complete", "implicit-points"])
def test_updates_at_a_temperature_follow_the_conditional_distribution(name):
    """Chi-square test of 4,000 updates of one variable; false-alarm rate 1e-4."""
    from scipy.stats import chisquare

    graph = GRAPHS.get(name) or next(g for key, g in GRAPHS.items() if name in key)
    walk, beta = _Walk(graph, np.zeros(1, dtype=np.int32)), 0.7
    state = possible_states(graph, 1)[0]
    others = np.repeat(state[None], graph.sizes[0], axis=0)
    others[:, 0] = np.arange(graph.sizes[0])
    chances = np.exp(beta * (graph.log_potential(others) - graph.log_potential(others).max()))
    walker = walk.walker(state, np.arange(5, 9, dtype=np.uint64))
    seen = np.zeros(graph.sizes[0])
    for _ in range(4000):
        walk.advance(walker, beta, 0, 1)
        seen[state[0]] += 1
    assert chisquare(seen, 4000 * chances / chances.sum()).pvalue > 1e-4


@pytest.mark.parametrize("name", GRAPHS)
def test_annealing_finds_the_maximum_of_small_graphs(name, no_ladder):
    """Some chain of 8 finds it; with hard constraints, single moves may not reach it."""
    graph = GRAPHS[name]
    best = mg.maximize(graph, rounds=400, chains=8, seed=1, **QUIET)
    assert best.energy == graph.energy(best.state)
    assert best.local_maximum
    clamped = graph.evidence >= 0
    np.testing.assert_array_equal(best.state[clamped], graph.evidence[clamped])
    if not name.startswith("hard"):
        assert best.energy == pytest.approx(graph.energy(all_states(graph)).min(), abs=1e-5)


def test_a_seed_fixes_an_annealing(no_ladder, monkeypatch):
    """The result is the same on one and two threads, and for any division into segments."""
    options = {"rounds": 30, "chains": 2, "seed": 3, **QUIET}
    first, second = (mg.maximize(CLOUDS, threads=t, **options) for t in (1, 2))
    np.testing.assert_array_equal(first.state, second.state)
    monkeypatch.setattr("minigibbs.inference.annealing._SEGMENT", 1e-5)
    third = mg.maximize(CLOUDS, threads=2, **options)
    np.testing.assert_array_equal(first.state, third.state)


def clouds(kind):
    """Two clouds of points that hardly interact, and 70 coinciding points."""
    rng = np.random.default_rng(4)
    near, far = rng.normal(0, 1, (80, 2)), rng.normal(0, 1, (80, 2)) + 50.0
    places = np.concatenate([near, far, np.full((70, 2), 3.0)])
    groups = [
        mg.Points(places, weight=0.3, kind=kind, norms="sums"),
        mg.Points(places, "laplace", weight=-0.1, kind=kind),
        mg.Complete(len(places), 0.01, kind=kind),
    ]
    fields = rng.normal(0, 1, (len(places), 2 if kind == "ising" else 3))
    return mg.FactorGraph([fields.shape[1]] * len(places), [*groups, mg.Unary(range(230), fields)])


CLOUDS = clouds("potts")


@pytest.mark.parametrize("kind", ["potts", "ising"])
@pytest.mark.parametrize("left", [math.inf, 0.0], ids=["cached", "direct"])
def test_fields_of_points_follow_the_changes(kind, left):
    """The recorded gain is the difference of two log-potentials, after 1,000 updates."""
    graph, rng = clouds(kind), np.random.default_rng(5)
    walk = _Walk(graph, np.arange(len(graph), dtype=np.int32), 1, left)
    assert walk.cached == (left > 0.0)
    state = rng.integers(0, graph.sizes[0], len(graph)).astype(graph.state_type)
    before = graph.log_potential(state)
    walker = walk.walker(state, np.arange(1, 5, dtype=np.uint64))
    assert walk.advance(walker, 0.3, 0, 1000) > 100
    after = graph.log_potential(state)
    assert abs(after - before) > 1.0
    assert walker.gain[0] == pytest.approx(after - before, rel=1e-6, abs=1e-5)


def test_later_cycles_cool_where_variables_freeze(no_ladder):
    """Spins without pairs freeze at log-odds of about 10: beta of 10 for fields of 1."""
    from minigibbs.inference.annealing import _Cooling

    cooling = _Cooling(1e-4, 1e4)
    for beta in np.geomspace(1e-4, 1e4, 81):
        cooling.note(beta, int(1e6 / (1.0 + math.exp(min(beta, 700.0)))), 1_000_000)
    cooling.note(math.inf, 0, 1000)
    later = cooling.next()
    assert 0.8 < later.beta(0.0) < 2.0
    assert 8.0 < later.beta(0.7999) < 16.0
    assert later.beta(0.8) == math.inf


def test_an_annealing_ends_by_time_and_by_signals(no_ladder):
    graph = mg.models.ising_lattice(side=40, beta=1.0)
    best = mg.maximize(graph, "300ms", chains=2, seed=1, **QUIET)
    assert best.ended in ("time", "rounds")
    assert best.rounds > 10
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    previous = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        best = mg.maximize(graph, "60s", chains=2, seed=1, **QUIET)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert best.ended == "interrupted"
    assert best.energy == graph.energy(best.state)


def points(variables):
    """Return a Potts model of points in the plane, with fields."""
    places = np.random.default_rng(1).uniform(0, 40, (variables, 2))
    fields = np.random.default_rng(2).normal(0, 1, (variables, 3))
    groups = [mg.Points(places, weight=0.2), mg.Unary(range(variables), fields)]
    return mg.FactorGraph([3] * variables, groups)


def test_implicit_groups_that_do_not_fit_into_the_time_are_not_stored(monkeypatch):
    def refuse(group):
        raise AssertionError("stored")

    monkeypatch.setattr(Implicit, "stored", refuse)
    graph = points(3000)
    best = mg.maximize(graph, "400ms", chains=2, seed=1, **QUIET)
    assert best.energy == graph.energy(best.state)
    assert best.method == "annealing"
    assert "implicit pairs are evaluated, not stored" in best.reason


def test_a_ladder_that_does_not_fit_into_memory_gives_way(monkeypatch):
    graph = points(300)
    monkeypatch.setattr("minigibbs.system.memory.available", lambda: 10**7)
    best = mg.maximize(graph, rounds=20, seed=1, **QUIET)
    assert best.rounds == 20
    assert best.local_maximum


def test_a_limit_below_the_time_of_the_energies_is_refused():
    with pytest.raises(TooLargeError, match=r"energies of 4 chains takes about .* give more time"):
        mg.maximize(points(100_000), "10ms", chains=4, **QUIET)


def test_a_million_spins_that_all_interact():
    graph = mg.models.curie_weiss(10**6, beta=2.0, implicit=True)
    best = mg.maximize(graph, rounds=40, chains=1, seed=1, **QUIET)
    assert best.energy == graph.energy(np.zeros(10**6, dtype=np.uint8))


def test_a_climb_that_has_no_time_says_so(monkeypatch):
    graph = mg.models.ising_lattice(side=200, beta=1.0)
    states = np.random.default_rng(1).integers(0, 2, (2, len(graph))).astype(np.uint8)
    order = np.arange(len(graph), dtype=np.int32)
    monkeypatch.setattr("minigibbs.inference.annealing._BEYOND", 0.0)
    with Watch(0.0) as watch:
        assert not climb(graph, order, states, watch)
    assert climb(graph, order, states, current())


def test_preparations_must_fit_into_half_of_the_time():
    current().require(1e9, "laying out", "give more time")
    with Watch(10.0) as watch:
        watch.require(4.0, "laying out", "give more time")
        with pytest.raises(TooLargeError, match=r"laying out takes about 6 s, .* give more time"):
            watch.require(6.0, "laying out", "give more time")


def test_a_ladder_that_does_not_fit_into_the_time_gives_way(monkeypatch):
    """`infer` samples without temperatures and gives the reason; `sample_until` raises."""
    i, j = np.array(list(itertools.combinations(range(60), 2))).T
    graph = mg.FactorGraph([20] * 60, [mg.Potts(i, j, np.where((i + j) % 3, 0.2, -0.2))])
    monkeypatch.setattr("minigibbs.samplers.tempering.copies.COPY_SECONDS", 1.0)
    answer = mg.infer(graph, "1s", seed=1, **QUIET)
    assert answer.method == "PoissonGibbs()"
    assert "laying out 16 temperatures of this graph takes about" in answer.reason
    weak = mg.FactorGraph([20] * 60, [mg.Potts(i, j, 0.001)])
    answer = mg.infer(weak, "1s", seed=1, exact=False, **QUIET)
    assert answer.log_z is None
    assert "there is no log Z" in answer.reason
    with pytest.raises(TooLargeError, match="laying out 16 temperatures"):
        mg.sample_until(graph, mg.Tempering(), max_time=1.0, seed=1, **QUIET)


def test_tables_of_points_that_take_longer_than_the_limit_are_given_up():
    with pytest.raises(mg.SampleError, match="the time limit of"):
        mg.infer(points(60_000), "300ms", **QUIET)
