"""Points in a fixed order with counter-based numbers: exact, and independent of layouts."""

import itertools

import numba
import numpy as np
import pytest
from scipy import stats

import minigibbs as mg
from minigibbs.exact.enumeration import Enumeration
from minigibbs.kernels.layout import DRAWS
from minigibbs.kernels.philox import key_of
from minigibbs.running.backends import BACKENDS
from minigibbs.samplers.chromatic.points import (
    BITS,
    DISTRIBUTION,
    GRAIN,
    LEAST,
    LENGTH,
    ROW,
    START,
    PointColors,
    count_proposals,
    draw_number,
    settle,
)
from minigibbs.samplers.registry import POINTS, color_data, make_tile
from tests.harness import FALSE_ALARM, chi_square, coarse, sample, state_numbers
from tests.samplers.test_distribution import exact_starts

FAST = mg.PoissonGibbs(theta=0.5)


def points(
    sizes, kernel="gaussian", weights=(1.5, -0.6), kind="potts", norms="sums", seed=0, clamped=None
):
    """Return two groups of points over the same variables, and fields."""
    rng, n = np.random.default_rng(seed), len(sizes)
    places = rng.uniform(0, 2, (n, 5))
    groups = [mg.Unary([i], rng.normal(0, 0.5, (1, size))) for i, size in enumerate(sizes)]
    groups.append(mg.Points(places, kernel, weights[0], kind, norms))
    if weights[1]:
        groups.append(mg.Points(places[:, :2], weight=weights[1], kind=kind))
    return mg.FactorGraph(sizes, groups).condition(clamped or {})


GRAPHS = {
    "gaussian": points([3] * 5),
    "laplace": points([3] * 5, "laplace"),
    "power": points([3] * 5, "power"),
    "repelling": points([3] * 5, weights=(-1.5, 0)),
    "ising": points([2] * 6, weights=(0.8, 0.4), kind="ising"),
    "sizes": points([2, 3, 4, 2, 3], norms=None),
    "strong": points([2] * 6, weights=(3.0, 1.0)),
    "clamped": points([3] * 5, clamped={1: 2, 4: 0}),
    "alone": points([3] * 4, clamped={0: 1, 1: 2, 2: 1}),
    "coarse": coarse(points([3] * 5)),
}


def swept(graph, sampler, starts, seed=7, sweeps=1):
    options = {"scan": "chromatic", "record": (), "progress": False, "seed": seed}
    run = sample(graph, sampler, sweeps=sweeps, chains=len(starts), start=starts, **options)
    return run.state


@pytest.mark.parametrize("name", GRAPHS)
def test_a_sweep_keeps_the_distribution(name):
    """A sweep from exact starts preserves the distribution: chi-square test, false alarm 1e-4."""
    graph = GRAPHS[name]
    assert isinstance(color_data(FAST, graph), PointColors)
    starts = exact_starts(graph, 40_000, seed=11)
    ends = swept(graph, FAST, starts)
    assert chi_square(state_numbers(graph, ends), Enumeration(graph).distribution) > FALSE_ALARM
    assert (ends != starts).any(axis=1).mean() > (0.05 if name == "strong" else 0.2)


@pytest.mark.parametrize("wrong", [(2.1, -0.6), (1.5, -0.8)])
def test_a_slightly_wrong_weight_is_caught(wrong):
    """A wrong weight in either group is detected."""
    graph = GRAPHS["gaussian"]
    ends = swept(points([3] * 5, weights=wrong), FAST, exact_starts(graph, 40_000, 11), sweeps=4)
    assert chi_square(state_numbers(graph, ends), Enumeration(graph).distribution) < FALSE_ALARM


@pytest.mark.parametrize("name", ["gaussian", "laplace", "power", "coarse"])
def test_pairs_are_kept_by_their_weights(name):
    """An update keeps theta w draws of a pair of weight w on average, and w more at its maximum.

    Chi-square test of each group and variable: false alarm 1e-4.
    """
    graph = GRAPHS[name]
    data, split = color_data(FAST, graph), FAST.split(graph)
    key, tries, worst = key_of(5), 40_000, 1.0
    for g, group in enumerate(graph.implicits):
        for place in range(len(graph)):
            i, home = int(data.variable[place]), data.homes[g, place]
            grain = float(np.ascontiguousarray(home[GRAIN:]).view(np.float64)[0])
            surplus = grain / slot_weights(group)[i]
            found = _kept(data, g, home, grain, key, i, tries)
            theta = split.implicits[g].theta
            rate = (1 + theta) * group.bounds()[i] * surplus  # of proposals
            weight = np.abs(group._row(i))[data.variable]
            both = np.stack([weight, theta * weight]) / rate  # probabilities per proposal
            for level, expected in ((1, both[0]), (2, both[1])):
                seen = np.append(found[level - 1], tries - found[level - 1].sum())
                distribution = np.append(expected, 1 - expected.sum()) * tries
                used = distribution > 5
                z = ((seen - distribution)[used] ** 2 / distribution[used]).sum()
                assert not seen[distribution == 0].any()
                worst = min(worst, float(stats.chi2.sf(z, max(used.sum() - 1, 1))))
    assert worst > 1e-4 / (4 * len(graph))


def slot_weights(group):
    """Return each variable's weight of an entry of its source box."""
    weights = np.empty(group.variables)
    weights[group.tree.order] = group.tables.weight[group.tables.source]
    return weights


def _kept(data, g, home, grain, key, variable, tries):
    """Count the kept proposals by level and place: at a maximum only, and in any case."""
    found = np.zeros((2, len(data.variable)))
    _count_kept(data, g, home, grain, key, variable, tries, found)
    return found


@numba.njit
def _count_kept(data, g, home, grain, key, variable, tries, found):
    for sweep in range(tries):
        there, kept = settle(
            data.slots, data.points, data.quads, g * len(data.variable),
            home[START], home[BITS], home[ROW], grain, data.codes[g], data.exponents[g],
            data.more[g], key[0], key[1], 3, variable, sweep, draw_number(g, 2),
        )  # fmt: skip
        if kept:
            found[kept - 1, there] += 1.0


@numba.njit
def _count(distributions, home, u):
    return count_proposals(distributions, home[DISTRIBUTION], home[LEAST], home[LENGTH], u)


@pytest.mark.parametrize("weight", [1e-9, 0.3, 400.0])
def test_counts_are_poisson_variates(weight):
    graph = points([2] * 5, weights=(weight, 0))
    data, split = color_data(FAST, graph), FAST.split(graph)
    (group,) = graph.implicits
    for place in range(5):
        home = data.homes[0, place]
        grain = float(np.ascontiguousarray(home[GRAIN:]).view(np.float64)[0])
        surplus = grain / slot_weights(group)[data.variable[place]]
        rate = (1 + split.implicits[0].theta) * group.bounds()[data.variable[place]]
        assert 1.0 <= surplus < 2.0 ** (1 / 64) * (1 + 1e-12) or rate < 2.0**-40
        for u in (1e-12, 1e-9, 0.01, 0.3, 0.5, 0.9, 0.999999, 1 - 1e-12):
            wanted = max(stats.poisson.ppf(u, rate * surplus), 0.0)
            assert _count(data.distributions, home, u) == wanted


def test_draws_are_as_many_as_the_rates_say():
    """A Poisson count; five standard deviations are exceeded once in 1.7 million seeds."""
    graph = GRAPHS["gaussian"]
    data = color_data(FAST, graph)
    tile = make_tile(FAST, graph, data, 0, np.zeros((1, 5), graph.state_type), 3)
    tile.advance(0, 5000, False)
    surplus = np.ascontiguousarray(data.homes[:, :, GRAIN:]).view(np.float64)[:, :, 0]
    for g, group in enumerate(graph.implicits):
        surplus[g] /= slot_weights(group)[data.variable]
    rates = [
        (1 + how.theta) * group.bounds()[data.variable]
        for group, how in zip(graph.implicits, FAST.split(graph).implicits, strict=True)
    ]
    expected = 5000 * float((np.stack(rates) * surplus).sum())
    assert abs(tile.tally(1)[DRAWS] - expected) < 5 * np.sqrt(expected)


def test_chains_depend_on_no_layout(tmp_path):
    """Draws do not depend on the number of chains, or on the segments of a run."""
    graph = GRAPHS["gaussian"]
    options = {"scan": "chromatic", "seed": 3, "progress": False, "record": ["draws", "energy"]}
    whole = sample(graph, FAST, sweeps=30, chains=20, **options)
    few = sample(graph, FAST, sweeps=30, chains=3, **options)
    np.testing.assert_array_equal(few.draws, whole.draws[:3])
    sample(graph, FAST, sweeps=11, chains=20, checkpoint=tmp_path / "run", **options)
    again = mg.resume(tmp_path / "run", sweeps=19, progress=False)
    np.testing.assert_array_equal(again.draws, whole.draws)
    np.testing.assert_allclose(
        again.energy, graph.energy(whole.draws.reshape(-1, 5)).reshape(20, 30)
    )
    assert len({row.tobytes() for row in whole.draws}) == 20


def test_marginals_are_counted():
    graph = GRAPHS["clamped"]
    run = sample(
        graph, FAST, sweeps=40, chains=3, scan="chromatic", seed=2, progress=False,
        record=["draws", "marginals"],
    )  # fmt: skip
    for i, v in itertools.product(range(5), range(3)):
        assert run.marginals[i][v] == pytest.approx((run.draws[:, :, i] == v).mean(), abs=1e-12)


@numba.njit
def _flat(a, b):
    return 0.1


@numba.njit
def _flat_bound(low_a, high_a, low_b, high_b):
    return 0.1


@pytest.mark.parametrize(
    "factors",
    [
        [mg.Points(np.zeros((4, 1)), mg.PointKernel(_flat, _flat_bound))],
        [mg.Points(np.zeros((4, 1))), mg.Complete(4, 0.1)],
        [mg.Points(np.zeros((4, 1))), mg.Ising([0], [1], 0.5)],
        [mg.Points(np.zeros((4, 1))), mg.Unary([0], [[0.0, -np.inf]])],
        [mg.Points(np.arange(60.0).reshape(4, 15))],
        [mg.Points(np.zeros((4, 1)), weight=1e5)],
    ],
)
def test_other_graphs_are_refused(factors):
    graph = mg.FactorGraph([2] * 4, factors)
    assert not POINTS.fits(mg.PoissonGibbs(), graph)
    with pytest.raises(mg.SampleError, match="chromatic"):
        mg.sample(graph, scan="chromatic", sweeps=1, progress=False)


def test_other_samplers_and_large_domains_are_refused():
    assert not POINTS.fits(mg.Gibbs(), GRAPHS["gaussian"])
    large = mg.FactorGraph([33] * 4, [mg.Points(np.zeros((4, 1)))])
    assert not POINTS.fits(mg.PoissonGibbs(), large)


def test_the_default_on_a_cpu_is_a_fixed_order():
    run = mg.sample(GRAPHS["gaussian"], sweeps=2, progress=False, seed=0)
    assert run.info.scan == "systematic"


def test_it_is_the_default_on_a_gpu():
    backend, graph = BACKENDS["cuda"], GRAPHS["gaussian"]
    complete = mg.FactorGraph([2] * 500, [mg.Complete(500, 0.001)])
    assert backend.choose_scan(mg.PoissonGibbs(), graph, 16, True).scan == "chromatic"
    assert backend.choose_scan(mg.PoissonGibbs(), graph, 16, False).scan == "systematic"
    assert backend.choose_scan(mg.PoissonGibbs(), complete, 16, True).scan == "systematic"
    assert BACKENDS["cpu"].choose_scan(mg.PoissonGibbs(), graph, 16, True).scan == "systematic"
