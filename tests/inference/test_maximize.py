"""`mg.maximize` compared with enumeration, dynamic programming and planted states."""

import importlib
import itertools
import sys

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.inference.annealing import climb
from minigibbs.inference.temperatures import first_levels
from minigibbs.system.watch import Compiling, StopError, current
from tests.hard import HARD, random_hard
from tests.zoo import IMPLICIT, SPINS, STRONG, ZOO

QUIET = {"progress": False}
SMALL = {
    **ZOO,
    **{f"implicit-{name}": graph for name, graph in IMPLICIT.items()},
    **{f"hard-{name}": graph for name, graph in HARD.items()},
    "spins": SPINS,
    "strong": STRONG,
    "one": mg.FactorGraph([4], [mg.Unary([0], [0.0, -2.0, 1e-6, -np.inf])]),
    "no-factors": mg.FactorGraph([2, 3], []),
}


def all_states(graph):
    """Return every state that agrees with the evidence."""
    choices = [
        range(size) if value < 0 else [value]
        for size, value in zip(graph.sizes.tolist(), graph.evidence.tolist(), strict=True)
    ]
    return np.array(list(itertools.product(*choices)))


@pytest.mark.parametrize("name", SMALL)
def test_the_maximum_of_small_graphs(name):
    """60 rounds of four ladders on at most a few thousand states must all find the maximum."""
    graph = SMALL[name]
    best = mg.maximize(graph, rounds=60, seed=1, **QUIET)
    assert best.energy == pytest.approx(graph.energy(all_states(graph)).min(), abs=1e-9)
    assert best.energy == graph.energy(best.state)
    clamped = graph.evidence >= 0
    np.testing.assert_array_equal(best.state[clamped], graph.evidence[clamped])
    assert best.rounds == 60
    assert best.reached == best.chains == 4


def test_random_graphs_with_many_zeros():
    rng, found = np.random.default_rng(1), 0
    for _ in range(12):
        graph = random_hard(rng, share=0.4)
        energies = graph.log_potential(all_states(graph))
        if energies.max() > -np.inf:
            best = mg.maximize(graph, rounds=60, seed=1, **QUIET)
            assert best.log_potential == pytest.approx(energies.max(), abs=1e-9)
            found += 1
        else:
            with pytest.raises(mg.SampleError, match="positive probability"):
                mg.maximize(graph, rounds=60, seed=1, **QUIET)
    assert found >= 4


def test_everything_clamped():
    graph = mg.FactorGraph([3, 2], [mg.Unary([0], [0.0, 1.0, 2.0])]).condition({0: 1, 1: 0})
    best = mg.maximize(graph, rounds=5, **QUIET)
    assert best.state.tolist() == [1, 0]
    assert best.energy == -1.0
    assert best.rounds == 0


def grid(side, weights):
    """Return spins on a square lattice with couplings along rows and columns."""
    at = np.arange(side * side).reshape(side, side)
    across, down = weights
    factors = [
        mg.Ising(at[:, :-1].ravel(), at[:, 1:].ravel(), across.ravel()),
        mg.Ising(at[:-1].ravel(), at[1:].ravel(), down.ravel()),
    ]
    return mg.FactorGraph([2] * side * side, factors)


def best_of_grid(side, across, down):
    """Compute the largest log-potential by dynamic programming over rows."""
    rows = np.array(list(itertools.product([-1, 1], repeat=side)))

    best = np.zeros(len(rows))
    for r in range(side):
        best = best + (rows[:, :-1] * rows[:, 1:]) @ across[r]
        if r + 1 < side:
            between = (rows[:, None] * rows[None] * down[r]).sum(axis=2)
            best = (best[:, None] + between).max(axis=0)
    return best.max()


@pytest.mark.parametrize("seed", range(3))
def test_ground_states_of_a_spin_glass(seed):
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(6, 5)), rng.normal(size=(5, 6))
    best = mg.maximize(grid(6, weights), rounds=400, seed=seed, **QUIET)
    assert best.log_potential == pytest.approx(best_of_grid(6, *weights), abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_ground_states_of_a_glass_of_equal_strengths(seed):
    rng = np.random.default_rng(seed)
    weights = rng.choice([-2.0, 2.0], (8, 7)), rng.choice([-2.0, 2.0], (7, 8))
    best = mg.maximize(grid(8, weights), rounds=300, seed=seed, **QUIET)
    assert best.log_potential == best_of_grid(8, *weights)
    assert "16 ladders" in best.reason


def test_the_oracle_of_grids_by_enumeration():
    rng = np.random.default_rng(9)
    weights = rng.normal(size=(3, 2)), rng.normal(size=(2, 3))
    graph = grid(3, weights)
    assert best_of_grid(3, *weights) == pytest.approx(graph.log_potential(all_states(graph)).max())


def test_a_planted_state():
    """A hidden state satisfies all couplings, so its log-potential is the largest possible."""
    rng = np.random.default_rng(3)
    i, j = np.array([pair for pair in itertools.combinations(range(40), 2) if rng.random() < 0.2]).T
    hidden = rng.choice([-1, 1], 40)
    weights = rng.exponential(size=len(i)) * hidden[i] * hidden[j]
    best = mg.maximize(
        mg.FactorGraph([2] * 40, [mg.Ising(i, j, weights)]), rounds=300, seed=1, **QUIET
    )
    found = 2 * best.state.astype(int) - 1
    assert abs(found @ hidden) == 40
    assert best.energy == pytest.approx(-np.abs(weights).sum())


def test_a_ferromagnet():
    magnet = mg.models.ising_lattice(side=12, beta=0.4, periodic=False)
    best = mg.maximize(magnet, rounds=300, seed=2, **QUIET)
    assert len(set(best.state.tolist())) == 1


def test_colors_with_zeros():
    """A ring of 30 in which neighbors must differ; some colors are favored."""
    ring = [[k, (k + 1) % 30] for k in range(30)]
    likes = np.where(np.arange(30) % 3 == 0, 2.0, 1.0)[:, None] * [1.0, 0.0, 0.0]
    differ = np.where(np.eye(3) > 0, -np.inf, 0.0)
    graph = mg.FactorGraph([3] * 30, [mg.Table(ring, differ), mg.Unary(range(30), likes)])
    best = mg.maximize(graph, rounds=400, seed=1, **QUIET)
    colors = best.state.tolist()
    assert all(a != b for a, b in itertools.pairwise([*colors, colors[0]]))
    assert best.energy == -20.0  # every third site gains 2; its neighbors cannot gain 1


def test_a_zero_that_would_pay_to_break():
    """Ten variables must be equal; the first is clamped to the value that the other nine disfavor.

    Breaking one constraint would free all nine, for a gain larger than the cost of a soft zero.
    """
    equal = mg.Table([[k, k + 1] for k in range(9)], [[0.0, -np.inf], [-np.inf, 0.0]])
    graph = mg.FactorGraph([2] * 10, [equal, mg.Unary(range(1, 10), [0.0, 1.0])])
    best = mg.maximize(graph.condition({0: 0}), rounds=100, seed=1, **QUIET)
    assert best.energy == 0.0
    assert not best.state.any()
    assert mg.maximize(graph, rounds=100, seed=1, **QUIET).energy == -9.0


@pytest.mark.parametrize("kind", ["normal", "signs"])
def test_a_seed_fixes_the_result(kind):
    rng = np.random.default_rng(4)
    if kind == "normal":
        i, j = np.triu_indices(60, 1)
        glass = mg.FactorGraph([2] * 60, [mg.Ising(i, j, rng.normal(size=len(i)))])
    else:
        weights = rng.choice([-1.0, 1.0], (20, 19)), rng.choice([-1.0, 1.0], (19, 20))
        glass = grid(20, weights)
    options = {"rounds": 3, "chains": 2, **QUIET}
    first = mg.maximize(glass, seed=1, threads=1, **options)
    second = mg.maximize(glass, seed=1, threads=2, **options)
    np.testing.assert_array_equal(first.state, second.state)
    others = [mg.maximize(glass, seed=seed, **options).state for seed in range(2, 6)]
    assert any((state != first.state).any() for state in others)


def test_time_ends_the_search():
    best = mg.maximize(ZOO["ising"], "50ms", chains=2, seed=1, **QUIET)
    assert best.rounds >= 8
    assert best.energy == pytest.approx(ZOO["ising"].energy(all_states(ZOO["ising"])).min())


def test_the_seconds_of_a_search_leave_out_compiling(monkeypatch):
    module = importlib.import_module("minigibbs.inference.maximize")
    search = module.best_states

    def compiling(*args, **kwargs):
        Compiling.seconds += 1000.0
        return search(*args, **kwargs)

    monkeypatch.setattr(Compiling, "seconds", Compiling.seconds)
    monkeypatch.setattr(module, "best_states", compiling)
    assert mg.maximize(ZOO["ising"], rounds=2, seed=1, **QUIET).seconds < 0


def test_the_choice_is_explained():
    """Tempering if its rounds fit into the time, else annealing, as for many spins."""
    best = mg.maximize(ZOO["ising"], "100ms", chains=1, seed=1, **QUIET)
    assert best.method == "tempering"
    assert "fit into the time" in best.reason
    assert best.chains == 1
    assert f"tempering: {best.reason}" in str(best)
    many = mg.models.ising_lattice(side=400, beta=1.0)
    best = mg.maximize(many, "1s", seed=1, **QUIET)
    assert best.method == "annealing"
    assert best.to_dict()["reason"] == best.reason != ""
    assert mg.maximize(ZOO["ising"], rounds=2, seed=1, **QUIET).chains == 4


def test_a_graph_of_low_treewidth_is_not_searched():
    best = mg.maximize(ZOO["ising"], "60s", **QUIET)
    assert (best.method, best.ended, best.proven) == ("elimination", "proven", True)
    assert best.energy == pytest.approx(ZOO["ising"].energy(all_states(ZOO["ising"])).min())
    assert "chains" not in str(best)
    for options in ({"rounds": 2}, {"chains": 2, "max_time": "0.2s"}):
        best = mg.maximize(ZOO["ising"], beta_range=(0.1, 5.0), seed=1, **options, **QUIET)
        assert best.method == "tempering"
        assert not best.proven


def test_a_search_without_a_round_warns(monkeypatch):
    module = importlib.import_module("minigibbs.inference.maximize")
    search = module.best_states

    def short(*args, **kwargs):
        return search(*args, **kwargs)._replace(rounds=0, ended="time")

    monkeypatch.setattr(module, "best_states", short)
    with pytest.warns(UserWarning, match=r"completed no round within max_time=0.2 s.* more time"):
        mg.maximize(ZOO["ising"], "0.2s", chains=1, seed=1, **QUIET)


def test_values_by_name():
    graph = mg.FactorGraph(
        [2, 3],
        [mg.Unary([0], [0.0, 1.0]), mg.Potts([0], [1], 0.5)],
        names=["rain", "sky"],
        labels={"rain": ["no", "yes"]},
    )
    best = mg.maximize(graph, rounds=20, seed=1, **QUIET)
    assert best.value("rain") == "yes"
    assert best.value("sky") == best.value(1) == 1
    assert best.values == best.to_dict()["state"] == {"rain": "yes", "sky": 1}
    assert "rain=yes, sky=1" in str(best)
    assert "4 of 4 chains" in str(best)
    with pytest.raises(mg.GraphError, match="wind"):
        best.value("wind")


def test_a_climb_ends_where_no_change_helps():
    graph = ZOO["tables"]
    order = np.arange(4, dtype=np.int32)
    for start in all_states(graph)[::7]:
        state = start.astype(graph.state_type)
        assert climb(graph, order, state[None], current())
        assert graph.log_potential(state) >= graph.log_potential(start) - 1e-12
        for i, value in itertools.product(range(4), range(4)):
            if value < graph.sizes[i]:
                other = state.copy()
                other[i] = value
                assert graph.log_potential(other) <= graph.log_potential(state) + 1e-9


def test_a_search_anneals_where_temperatures_take_too_long(monkeypatch):
    def slow(*args, **options):
        raise StopError

    monkeypatch.setattr(sys.modules[mg.maximize.__module__], "sliced_searches", slow)
    best = mg.maximize(ZOO["ising"], "1s", chains=2, seed=1, **QUIET)
    assert (best.method, best.reason) == ("annealing", "temperatures were not found in time")


def test_levels_reach_from_flat_to_frozen():
    graph = mg.models.potts_rbf()  # most of its factors are almost 0
    beta = first_levels(graph, None, 24)
    assert beta[0] == 0.0
    assert (np.diff(beta) > 0).all()
    assert 5 < beta[-1] < 1e5
    np.testing.assert_allclose(first_levels(graph, (0.5, 8.0), 24)[[0, -1]], [0.5, 8.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_time": "soon"}, "max_time must be seconds"),
        ({"rounds": 0}, "rounds must be"),
        ({"rounds": 2.5}, "rounds must be"),
        ({"rounds": 2**63}, "rounds must be an integer of at least 1 and below 2\\^40"),
        ({"chains": 0}, "chains must be"),
        ({"beta_range": (2.0, 1.0)}, "beta_range must hold two"),
        ({"beta_range": 3.0}, "beta_range must be a list of numbers"),
        ({"seed": -1}, "seed must be"),
        ({"backend": "gpu"}, "backend must be cpu or cuda"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(mg.SampleError, match=message):
        mg.maximize(ZOO["ising"], **options, **QUIET)
    with pytest.raises(mg.SampleError, match="graph must be a FactorGraph"):
        mg.maximize("model.uai")
