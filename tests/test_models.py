"""Models by name: the paper's constants, and partition functions with closed forms."""

import itertools
import json
import math

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

import minigibbs as mg
from minigibbs import models
from minigibbs.models import GENERATORS
from tests.paths import DATA


@pytest.fixture(scope="module")
def analytic():
    """Return the folder of exact values, if it was downloaded."""
    folder = DATA / "analytic"
    if not folder.is_dir():
        pytest.skip("the folder of exact values is not here")
    return folder


def all_states(n, size):
    return np.array(np.unravel_index(np.arange(size**n), (size,) * n), dtype=np.uint8).T


def log_partition(graph, size):
    return logsumexp(graph.log_potential(all_states(len(graph), size)))


def transfer_matrix(side, states, bond):
    """Return ln Z of a torus: the logarithm of the trace of a power of the row-to-row matrix."""
    rows = list(itertools.product(range(states), repeat=side))
    matrix = np.array(
        [
            [
                math.exp(sum(bond(a[k], a[(k + 1) % side]) + bond(a[k], b[k]) for k in range(side)))
                for b in rows
            ]
            for a in rows
        ]
    )
    return math.log(np.trace(np.linalg.matrix_power(matrix, side)))


@pytest.mark.parametrize(
    ("graph", "local", "total", "domain"),
    [(models.ising_rbf(), 2.21, 416.1, 2), (models.potts_rbf(), 5.09, 957.1, 10)],
    ids=["ising", "potts"],
)
def test_the_papers_constants(graph, local, total, domain):
    stats = graph.stats
    assert round(stats.local_energy, 2) == local
    assert round(stats.total_energy, 1) == total
    assert (stats.variables, stats.max_degree, stats.max_domain) == (400, 399, domain)
    group = graph.factors[0]
    assert len(group) == 400 * 399 // 2
    # exp(-1.5 d^2) underflows to 0 between opposite corners, and such factors are dropped
    assert stats.factors == np.count_nonzero(next(reversed(group.arrays().values()))) > 79_000


def test_rbf_couplings_fall_with_the_distance():
    graph = models.potts_rbf(side=3, states=2, beta=2.0, gamma=0.5)
    group = graph.factors[0]
    pairs = {tuple(p): w for p, w in zip(group.scope.tolist(), group.weight, strict=True)}
    assert len(pairs) == 36
    assert pairs[0, 1] == pytest.approx(2 * math.exp(-0.5))
    assert pairs[0, 3] == pytest.approx(2 * math.exp(-0.5))
    assert pairs[0, 4] == pytest.approx(2 * math.exp(-1.0))
    assert pairs[0, 8] == pytest.approx(2 * math.exp(-4.0))


@pytest.mark.parametrize("large", ["beta", "gamma"])
def test_constants_may_be_large_integers(large):
    as_float = mg.models.ising_rbf(side=3, **{large: 2.0**63})
    graph = mg.models.ising_rbf(side=3, **{large: 2**63})
    np.testing.assert_array_equal(graph.factors[0].coupling, as_float.factors[0].coupling)


@pytest.mark.parametrize("side", [3, 4, 7])
@pytest.mark.parametrize(
    "make", [models.ising_lattice, lambda s, b, p=True: models.potts_lattice(s, 3, b, p)]
)
def test_lattices(make, side):
    torus, sheet = make(side, 0.3), make(side, 0.3, False)
    degree = torus.packed.rows["end"] - torus.packed.rows["start"]
    assert (degree == 4).all()
    assert torus.stats.factors == 2 * side**2
    assert len(np.unique(np.sort(torus.factors[0].scope, axis=1), axis=0)) == 2 * side**2
    assert sheet.stats.factors == 2 * side * (side - 1)
    degree = sheet.packed.rows["end"] - sheet.packed.rows["start"]
    assert sorted(set(degree.tolist())) == [2, 3, 4]
    assert np.count_nonzero(degree == 2) == 4


@pytest.mark.parametrize("side", [3, 4])
@pytest.mark.parametrize("beta", [0.3, 0.44068679350977147, -0.2])
def test_ising_torus_partition_function(side, beta):
    want = transfer_matrix(side, 2, lambda a, b: beta if a == b else -beta)
    # both sides are sums of positive terms in double precision
    assert log_partition(models.ising_lattice(side, beta), 2) == pytest.approx(want, rel=1e-12)


def test_potts_torus_partition_function():
    want = transfer_matrix(3, 3, lambda a, b: 0.8 * (a == b))
    assert log_partition(models.potts_lattice(3, 3, 0.8), 3) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("beta", [0.1, 0.3, 0.44068679350977147, 0.6])
def test_ising_torus_against_kaufman(analytic, beta):
    exact = json.loads((analytic / "ising2d_torus_exact.json").read_text())["lnZ_and_energy"]
    want, graph = exact[f"4x4 beta={beta}"], models.ising_lattice(4, beta)
    assert log_partition(graph, 2) == pytest.approx(want["lnZ"], rel=1e-10)
    assert graph.stats.local_energy == pytest.approx(want["L"], rel=1e-12)
    assert graph.stats.total_energy == pytest.approx(want["Psi"], rel=1e-12)
    assert graph.stats.max_degree == want["Delta"]


def curie_weiss_log_partition(n, beta):
    """Return the graph, and ln Z as a binomial sum: states with k spins up have one energy."""
    graph = models.curie_weiss(n, beta)
    up = np.arange(n + 1)
    energies = graph.log_potential((np.arange(n) < up[:, None]).astype(int))
    return graph, logsumexp(energies + gammaln(n + 1) - gammaln(up + 1) - gammaln(n - up + 1))


@pytest.mark.parametrize("beta", [0.5, 1.1])
def test_curie_weiss_partition_function(beta):
    n, up = 50, np.arange(51)
    _, got = curie_weiss_log_partition(n, beta)
    binomial = [math.log(math.comb(n, k)) for k in up]
    want = logsumexp(beta / n * ((2 * up - n) ** 2 - n) / 2 + binomial)
    # 1,225 terms of about 0.01: the rounding error is far below 1e-10
    assert got == pytest.approx(want, rel=1e-10)


@pytest.mark.parametrize("beta", [0.5, 0.9, 1.1])
def test_curie_weiss_against_published_values(analytic, beta):
    exact = json.loads((analytic / "curie_weiss_exact.json").read_text())["values"]
    want = exact[f"N=50 beta={beta} h=0.0"]
    graph, got = curie_weiss_log_partition(50, beta)
    assert got == pytest.approx(want["lnZ"], rel=1e-10)
    assert graph.stats.local_energy == pytest.approx(want["L"], rel=1e-12)
    assert graph.stats.total_energy == pytest.approx(want["Psi"], rel=1e-12)
    assert graph.stats.max_degree == want["Delta"]


def test_long_range_ising_couplings():
    group = models.long_range_ising(7, alpha=1.5, beta=0.4).factors[0]
    assert group.scope.tolist() == [list(pair) for pair in itertools.combinations(range(7), 2)]
    want = [0.4 / (j - i) ** 1.5 for i, j in group.scope.tolist()]
    np.testing.assert_allclose(group.coupling, want, rtol=1e-14)


CONNECTED = {
    "ising": lambda **given: models.ising_rbf(side=3, beta=0.7, gamma=0.4, **given),
    "potts": lambda **given: models.potts_rbf(side=2, states=3, beta=-1.2, gamma=0.4, **given),
    "curie-weiss": lambda **given: models.curie_weiss(n=6, beta=0.9, **given),
    "long-range": lambda **given: models.long_range_ising(n=7, alpha=1.5, beta=0.4, **given),
}


@pytest.mark.parametrize("name", CONNECTED)
def test_implicit_models_are_the_stored_ones(name):
    stored, implicit = CONNECTED[name](), CONNECTED[name](implicit=True)
    assert not stored.implicits
    assert implicit.implicits
    states = all_states(len(stored), int(stored.sizes[0]))
    # sums of at most 36 terms below 1
    np.testing.assert_allclose(
        implicit.log_potential(states), stored.log_potential(states), atol=1e-12
    )
    np.testing.assert_allclose(implicit.local_energies, stored.local_energies, rtol=1e-12)
    assert implicit.stats.factors == stored.stats.factors


@pytest.mark.parametrize("name", ["curie-weiss", "long-range"])
def test_models_are_implicit_beyond_two_million_pairs(name):
    def make(n, **given):
        small = {"curie-weiss": {"beta": 0.5}, "long-range": {"alpha": 2.0, "beta": 0.5}}[name]
        known = {"curie-weiss": models.curie_weiss, "long-range": models.long_range_ising}
        return known[name](n, **small, **given)

    assert len(make(2048).factors[0].scope) == 2048 * 2047 // 2
    assert make(2049).implicits
    assert not make(2049, implicit=False).implicits
    assert make(100_000).stats.max_degree == 99_999


@pytest.mark.parametrize("make", [models.ising_rbf, models.potts_rbf])
def test_grids_are_implicit_beyond_two_million_pairs(make):
    assert not make(side=45).implicits
    assert make(side=46).implicits
    assert make(side=1000).stats.variables == 10**6


def test_a_million_spins_are_sampled():
    graph = models.curie_weiss(10**6, 0.9)
    run = mg.sample(graph, updates=1000, chains=1, record=(), progress=False, seed=1)
    assert run.info.factor_evaluations < 100 * 1000  # not a million each


def test_implicit_is_true_false_or_none():
    with pytest.raises(mg.GraphError, match="implicit must be True or False, got 'yes'"):
        models.curie_weiss(5, 1.0, implicit="yes")


def test_random_tables_are_reproducible():
    settings = {"variables": 8, "factors": 6, "arity": 3, "states": 2, "unary": 0.5}
    first, again = (models.random_tables(**settings, seed=4) for _ in range(2))
    other = models.random_tables(**settings, seed=5)
    for a, b, c in zip(first.factors, again.factors, other.factors, strict=True):
        np.testing.assert_array_equal(a.scope, b.scope)
        np.testing.assert_array_equal(a.log_potential, b.log_potential)
        assert (a.log_potential != c.log_potential).all()


def test_random_tables_have_the_shape_asked_for():
    graph = models.random_tables(variables=9, factors=5, arity=3, states=4, unary=1.0)
    table, unary = graph.factors
    assert graph.sizes.tolist() == [4] * 9
    assert table.log_potential.shape == (5, 4, 4, 4)
    assert unary.log_potential.shape == (9, 4)
    assert models.random_tables(factors=0).factors == ()


def test_random_tables_scale():
    small, large = models.random_tables(scale=1.0), models.random_tables(scale=3.0)
    np.testing.assert_allclose(large.factors[0].log_potential, 3 * small.factors[0].log_potential)


def test_every_generator_is_known_by_name():
    assert set(GENERATORS) == {
        "ising-rbf",
        "potts-rbf",
        "ising-lattice",
        "potts-lattice",
        "spin-glass",
        "sherrington-kirkpatrick",
        "curie-weiss",
        "long-range-ising",
        "random-tables",
    }
    assert mg.models.curie_weiss is GENERATORS["curie-weiss"]


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_lattices_of_any_dimension(dimensions, periodic):
    """Pairs equal those of a list of tuples: a site, and its neighbor one step along an axis."""
    side = 3
    expected = set()
    for site in np.ndindex((side,) * dimensions):
        for axis in range(dimensions):
            step = np.array(site)
            step[axis] += 1
            if periodic or step[axis] < side:
                other = tuple(step % side)
                pair = (np.ravel_multi_index(s, (side,) * dimensions) for s in (site, other))
                expected.add(frozenset(int(one) for one in pair))
    graph = mg.models.ising_lattice(side, 0.3, periodic, dimensions=dimensions)
    found = [frozenset(pair) for pair in graph.factors[0].scope.tolist()]
    assert len(found) == len(set(found))
    assert set(found) == expected
    stencil = mg.models.potts_lattice(side, 2, 0.3, periodic, True, dimensions)
    stored = mg.models.potts_lattice(side, 2, 0.3, periodic, False, dimensions)
    states = np.random.default_rng(1).integers(0, 2, (20, side**dimensions))
    np.testing.assert_allclose(stencil.log_potential(states), stored.log_potential(states))


def test_glasses_have_the_couplings_that_were_asked_for():
    glass = mg.models.spin_glass(6, beta=0.5, couplings="signs", seed=3).factors[0].coupling
    assert set(glass.tolist()) == {-0.5, 0.5}
    assert abs(glass.mean()) < 5 * 0.5 / len(glass) ** 0.5  # false alarms below 1e-6
    again, other = (mg.models.spin_glass(6, seed=s).factors[0].coupling for s in (0, 1))
    np.testing.assert_array_equal(again, mg.models.spin_glass(6).factors[0].coupling)
    assert (again != other).all()
    dense = mg.models.sherrington_kirkpatrick(300, beta=2.0).factors[0].coupling
    assert dense.std() * 300**0.5 == pytest.approx(2.0, rel=0.03)  # six standard errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dimensions": 0}, "dimensions must be an integer of at least 1"),
        ({"dimensions": 100}, "dimensions must be at most"),
        ({"couplings": "uniform"}, "couplings"),
        ({"side": 2}, "side must be an integer of at least 3"),
    ],
)
def test_glasses_that_cannot_be_built(options, message):
    with pytest.raises(mg.GraphError, match=message):
        mg.models.spin_glass(**({"side": 4} | options))


def test_implicit_lattices_of_too_many_dimensions_are_refused():
    with pytest.raises(mg.GraphError, match="dimensions must be at most"):
        mg.models.ising_lattice(3, 0.5, implicit=True, dimensions=2**63)
