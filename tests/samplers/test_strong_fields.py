"""Local fields beyond 709, where exp overflows: correct distribution, or a refusal."""

import functools

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.engine.dispatch import carries
from tests import naive
from tests.harness import FALSE_ALARM, advance_each, chi_square, state_numbers
from tests.samplers.test_projected import begun as first_carried

FIELDS = [700.0, 800.0, 2000.0]
TRIANGLE = [0, 1, 2], [1, 2, 0]


def weak(values):
    """Return factors between variables 0 to 2 and a fourth of two values, which always changes."""
    unary = np.random.default_rng(values).normal(0, 0.4, (2, values))
    return [mg.Potts([0, 1, 2], [3, 3, 1], [0.4, -0.3, 0.2]), mg.Unary([0, 2], unary)]


def attracting(values, field):
    """Return factors that give one value almost all probability."""
    return [mg.Potts(*TRIANGLE, field / 2), *weak(values)]


def frustrated(values, field):
    """Return three pairs that cannot all be satisfied: weak factors break the ties."""
    return [mg.Potts(*TRIANGLE, np.array([1, 1, -1]) * field / 2), *weak(values)]


def repelling(values, field):
    """Return factors that reduce the weight of every remaining value."""
    return [mg.Potts(*TRIANGLE, -field / 2), *weak(values)]


def opposed(values, field):
    """Return a strong unary factor against strong pairs, whose sum is small for two values."""
    unary = np.zeros((1, values))
    unary[0, :2] = field / 2, field / 2 + 0.3
    strong = mg.Potts([0, 0], [1, 2], [-field / 2, -field / 2 + 0.2])
    return [mg.Unary([0], unary), strong, *weak(values)]


def tables(values, field):
    """Return tables with ties, and a table against a pair."""
    table = -field / 2 * np.eye(values)
    against = mg.Table([[0, 1]], -field / 3 * np.eye(values) + 0.3 * np.arange(values)[:, None])
    noise = mg.Table([[1, 2]], np.random.default_rng(1).normal(0, 0.4, (1, values, values)))
    strong = [mg.Table([[0, 1], [1, 2], [2, 0]], table), mg.Potts([0], [1], field / 3)]
    return [*strong, against, noise, *weak(values)]


STORED = [attracting, frustrated, repelling, opposed, tables]


def enumerated(graph):
    """Return the graph, its states, and their distribution by their energies."""
    states = np.array(naive.states(graph))
    energies = graph.stored().log_potential(states)
    distribution = np.exp(energies - energies.max())
    return graph, states, distribution / distribution.sum()


@functools.cache
def stored(model, values, field):
    graph = mg.FactorGraph([values] * 3 + [2], model(values, field))
    return enumerated(graph)


@functools.cache
def kernel(values, field, kind):
    """Return a chain or a ring of three whose pairs cannot all be satisfied."""
    near, far = (field / 2, -field / 2) if kind == "chain" else (-field / 2, -field / 2)
    function = np.vectorize(lambda r, d: {1: near, 2: far}.get(abs(int(d)), 0.0))
    group = mg.Kernel((1, 3), function, periodic=kind == "ring")
    unary = mg.Unary([1], np.random.default_rng(3).normal(0, 0.4, (1, values)))
    graph = mg.FactorGraph([values] * 3, [group, unary, mg.Potts([0], [1], 0.3)])
    return enumerated(graph)


def check_distribution(graph, every, distribution, sampler, updates, starts, moved):
    rng = np.random.default_rng(51)
    begun = every[rng.choice(len(distribution), size=starts, p=distribution)]
    carried = first_carried(graph, sampler, begun) if carries(sampler.prepare(graph)) else None
    states, _, _ = advance_each(graph, sampler, begun, updates, seed=52, carried=carried)
    assert chi_square(state_numbers(graph, states), distribution) > FALSE_ALARM
    assert (states != begun).any(axis=1).mean() > moved


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("values", [2, 3, 18])
@pytest.mark.parametrize("model", STORED, ids=lambda model: model.__name__)
@pytest.mark.parametrize("sampler", [mg.PoissonGibbs(heavy=2, theta=0.8), mg.Gibbs()], ids=str)
def test_strong_stored_factors_evaluated_and_weak_ones_drawn(sampler, model, values, field):
    values, starts = (min(values, 5), 4000) if model is tables else (values, 20_000)
    check_distribution(
        *stored(model, values, field), sampler, 8, starts, 0.2
    )  # tables: 3,000 draws each


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("values", [2, 4, 18])
@pytest.mark.parametrize("kind", ["chain", "ring"])
@pytest.mark.parametrize("sampler", [mg.PoissonGibbs(), mg.PoissonGibbs(heavy=2)], ids=str)
def test_strong_kernels(sampler, kind, values, field):
    check_distribution(*kernel(values, field, kind), sampler, 8, 20_000, 0.2)


def dense(variables, values, group):
    """Return an entirely minibatched group, with a weak pair and a unary factor."""
    unary = mg.Unary([1], np.random.default_rng(3).normal(0, 0.4, (1, values)))
    return mg.FactorGraph([values] * variables, [group, unary, mg.Potts([0], [1], 0.3)])


def groups(field, values):
    kind, per_weight = ("ising", 2.0) if values == 2 else ("potts", 1.0)
    weight = field / 3 / per_weight
    vector = np.full((4, 1), weight**0.5)
    return [
        mg.Complete(4, weight, kind=kind),
        mg.LowRank(vector, kind=kind),
        mg.LowRank(vector, -vector, kind=kind),
        mg.Kernel((2, 2), lambda r, c: weight, kind=kind),
    ]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("values", [2, 3])
@pytest.mark.parametrize("number", range(4), ids=["complete", "low-rank", "repelling", "kernel"])
@pytest.mark.parametrize("theta", [0.05, 1.0])
def test_strong_tails_keep_the_ground_states(theta, number, values, field):
    """Hundreds of draws agree: the chain stays in its initial ground state."""
    graph = dense(4, values, groups(field, values)[number])
    check_distribution(*enumerated(graph), mg.PoissonGibbs(heavy=0, theta=theta), 8, 300, -1.0)


@pytest.mark.parametrize("values", [2, 3, 18])
@pytest.mark.parametrize("number", range(4), ids=["complete", "low-rank", "repelling", "kernel"])
def test_strong_tails_against_strong_factors(number, values):
    """Pairs cancel a group of field 800: sums of 40,000 draws decide, and the chain moves."""
    group = groups(800.0, values)[number]
    i, j = np.triu_indices(4, 1)
    opposite = type(group.stored())(i, j, -group.pair_weights(i, j))
    shape = [values, values, 2, 2] if values > 2 else [2] * 4
    unary = mg.Unary([1], np.random.default_rng(3).normal(0, 0.4, (1, values)))
    graph = mg.FactorGraph(shape, [group, opposite, unary, mg.Potts([0], [1], 0.3)])
    check_distribution(*enumerated(graph), mg.PoissonGibbs(heavy=9, theta=50.0), 4, 500, 0.05)


@pytest.mark.parametrize("model", STORED, ids=lambda model: model.__name__)
@pytest.mark.parametrize("values", [2, 18])
def test_strong_stored_tails(values, model):
    """All factors are minibatched, at a local field of 800."""
    sampler = mg.PoissonGibbs(heavy=0, theta=1.0)
    check_distribution(*stored(model, values, 800.0), sampler, 8, 1_000, -1.0)


@pytest.mark.parametrize("values", [2, 3, 18])
def test_a_tiny_theta(values):
    """Two kept draws multiply a weight by 1e200, and four overflow a double."""
    graph = mg.FactorGraph([values] * 3, [mg.Potts(*TRIANGLE, [1.1, -0.9, 1.0])])
    check_distribution(*enumerated(graph), mg.PoissonGibbs(heavy=0, theta=1e-100), 9, 60_000, 0.2)


def test_a_magnet_keeps_its_state():
    """A Gaussian kernel of L = 1,113 and five spins of L = 704 stay at all spins up."""
    weight = mg.Kernel((24, 24), lambda r, c: 40 * np.exp(-0.25 * (r * r + c * c)), kind="ising")
    for group, least in ((weight, 900), (mg.Complete(5, 88.0), 700)):
        graph = mg.FactorGraph(np.full(group.variables, 2), [group])
        assert graph.stats.local_energy > least
        up = np.ones(len(graph), int)
        run = mg.sample(graph, sweeps=5, start=up, seed=1, record="draws", progress=False)
        assert run.draws.all()


@pytest.mark.parametrize(
    ("group", "sampler"),
    [
        (mg.Complete(5, 1e9), mg.PoissonGibbs()),
        (mg.Complete(5, 1e18), mg.PoissonGibbs()),
        (mg.Complete(5, -1e100), mg.PoissonGibbs()),
        (mg.Complete(5, 1e18), mg.PoissonGibbs(slowdown=1.1)),
        (mg.LowRank(np.full((5, 1), 2e9)), mg.PoissonGibbs(heavy=0)),
        (mg.LowRank(np.full((5, 1), 1e90)), mg.PoissonGibbs(heavy=0)),
        (mg.Kernel((5,), lambda d: 1e9), mg.PoissonGibbs(heavy=0)),
        (mg.Kernel((5,), lambda d: 1e18), mg.PoissonGibbs(heavy=0)),
        (mg.Kernel((5,), lambda d: 1e99), mg.PoissonGibbs(heavy=0, theta=2.0)),
        (mg.Ising([0, 1], [1, 2], 1e9), mg.PoissonGibbs(heavy=0)),
        (mg.Ising([0, 1], [1, 2], 3.0), mg.PoissonGibbs(heavy=0, slowdown=1 + 1e-12)),
    ],
    ids=str,
)
def test_tails_that_would_never_be_drawn_are_refused(group, sampler):
    graph = mg.FactorGraph([2] * 5, [group])
    with pytest.raises(mg.SampleError, match=r"PoissonGibbs would make about .* draws"):
        mg.sample(graph, sampler, updates=1, progress=False)


@pytest.mark.parametrize(
    "group",
    [
        mg.Kernel((5,), lambda d: 1e18 / d**2, kind="ising"),
        mg.LowRank(np.full((5, 1), 2e9)),
        mg.LowRank(np.full((5, 1), 1e90)),
    ],
    ids=str,
)
def test_the_strongest_groups_are_evaluated(group):
    graph = mg.FactorGraph([2] * 5, [group])
    run = mg.sample(graph, sweeps=5, start=np.ones(5, int), seed=1, record="draws", progress=False)
    assert run.draws.all()
