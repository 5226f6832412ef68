"""Chromatic scans: exact, equal in every layout, and equal to a plain Python implementation."""

import itertools

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.exact.enumeration import Enumeration
from minigibbs.kernels.philox import key_of
from minigibbs.samplers.chromatic import tile
from minigibbs.samplers.chromatic.general_tiles import GeneralColors
from minigibbs.samplers.chromatic.places import lay_entries, order_places
from minigibbs.samplers.chromatic.small import SmallColors
from minigibbs.samplers.chromatic.small_tails import SmallTailColors
from minigibbs.samplers.chromatic.spin_tails import SpinTailColors
from minigibbs.samplers.chromatic.spins import SpinColors, spin_colors
from minigibbs.samplers.registry import color_data, make_tile
from tests.harness import FALSE_ALARM, chi_square, sample, state_numbers
from tests.kernels.test_philox import bits_at
from tests.samplers.test_distribution import exact_starts

RNG = np.random.default_rng(5)


def spins(n, m, seed, scale=0.5, evidence=None):
    rng = np.random.default_rng(seed)
    i = rng.integers(0, n, m)
    j = (i + rng.integers(1, n, m)) % n
    factors = [
        mg.Ising(i, j, rng.normal(size=m) * scale),
        mg.Unary(np.arange(0, n, 2), rng.normal(size=(len(range(0, n, 2)), 2))),
    ]
    return mg.FactorGraph([2] * n, factors, evidence=evidence)


def small(sizes, m, seed, evidence=None, pairs=True, tables=True):
    rng, n, factors = np.random.default_rng(seed), len(sizes), []
    if pairs:
        i = rng.integers(0, n, m)
        factors.append(mg.Potts(i, (i + rng.integers(1, n, m)) % n, rng.normal(size=m) * 0.7))
    for a in range(m if tables else 0):
        b = (a + 1 + a % (n - 1)) % n
        if a % n != b:
            shape = (sizes[a % n], sizes[b])
            factors.append(mg.Table([[a % n, b]], rng.normal(size=shape) * 0.6, weight=0.8))
    factors.append(mg.Unary([0], rng.normal(size=sizes[0])))
    return mg.FactorGraph(sizes, factors, evidence=evidence)


def general(seed):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(2, 3, 2))
    table[0, 0, 0] = table[1, 2, 1] = -np.inf
    return mg.FactorGraph(
        [2, 3, 2, 3], [mg.Table([[0, 1, 2]], table), mg.Potts([1, 2], [3, 3], 0.7)]
    )


GRAPHS = {
    "spins": (spins(6, 9, 1), SpinColors),
    "strong spins": (spins(6, 9, 2, scale=40.0), SpinColors),
    "potts": (small([3] * 5, 7, 3, tables=False), SmallColors),
    "tables": (small([3, 2, 4, 2], 6, 4), SmallColors),
    "general": (general(6), GeneralColors),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_layouts(name):
    graph, kind = GRAPHS[name]
    assert isinstance(color_data(mg.Gibbs(), graph), kind)


def swept(graph, sampler, starts, seed=7, sweeps=1):
    options = {"scan": "chromatic", "record": (), "progress": False, "seed": seed}
    run = sample(graph, sampler, sweeps=sweeps, chains=len(starts), start=starts, **options)
    return run.state


@pytest.mark.parametrize("name", GRAPHS)
def test_a_sweep_keeps_the_distribution(name):
    """A sweep from exact starts preserves the distribution: chi-square test, false alarm 1e-4."""
    graph, _ = GRAPHS[name]
    starts = exact_starts(graph, 40_000, seed=11)
    ends = swept(graph, mg.Gibbs(), starts)
    distribution = Enumeration(graph).distribution
    assert chi_square(state_numbers(graph, ends), distribution) > FALSE_ALARM
    if name != "strong spins":
        assert (ends != starts).any(axis=1).mean() > 0.3


TAILED = mg.PoissonGibbs(heavy=1, theta=0.3)


TAILS = {
    "spins": (lambda scale: spins(6, 12, 1, scale=scale), SpinTailColors),
    "potts": (lambda scale: pairs([3] * 5, 12, scale), SmallTailColors),
    "mixed sizes": (lambda scale: pairs([3, 2, 4, 2, 1], 10, scale), SmallTailColors),
}


def pairs(sizes, m, scale):
    """Return Potts pairs of both signs."""
    rng, n = np.random.default_rng(3), len(sizes)
    i = rng.integers(0, n, m)
    weight = rng.normal(size=m) * scale
    return mg.FactorGraph(sizes, [mg.Potts(i, (i + rng.integers(1, n, m)) % n, weight)])


@pytest.mark.parametrize("name", TAILS)
def test_a_sweep_with_a_tail_keeps_the_distribution(name):
    """The same with minibatched factors: many draws, since few factors are heavy."""
    made, kind = TAILS[name]
    graph = made(0.5)
    assert isinstance(color_data(TAILED, graph), kind)
    starts = exact_starts(graph, 40_000, seed=11)
    ends = swept(graph, TAILED, starts)
    assert chi_square(state_numbers(graph, ends), Enumeration(graph).distribution) > FALSE_ALARM
    assert (ends != starts).any(axis=1).mean() > 0.3


@pytest.mark.parametrize("name", TAILS)
def test_a_slightly_wrong_tail_is_caught(name):
    made, _ = TAILS[name]
    graph, wrong = made(0.5), made(0.55 if name == "spins" else 0.6)
    ends = swept(wrong, TAILED, exact_starts(graph, 40_000, seed=11))
    assert chi_square(state_numbers(graph, ends), Enumeration(graph).distribution) < FALSE_ALARM


DENSE = {"spins": mg.models.ising_rbf(12), "potts": mg.models.potts_rbf(12)}


@pytest.mark.parametrize("name", DENSE)
def test_draws_are_as_many_as_the_split_says(name):
    """A Poisson count; five standard deviations are exceeded once in 1.7 million seeds."""
    graph, sampler = DENSE[name], mg.PoissonGibbs(heavy=6)
    split = sampler.split(graph, tile.LANES)
    run = sample(graph, sampler, sweeps=200, chains=20, seed=1, scan="chromatic", progress=False)
    expected = 20 * 200 * float(((1 + split.theta) * split.tail).sum())
    assert expected > 1000
    assert abs(run.info.minibatch_draws - expected) < 5 * np.sqrt(expected)


def test_a_slightly_wrong_weight_is_caught():
    graph, wrong = GRAPHS["spins"][0], spins(6, 9, 1, scale=0.55)
    starts = exact_starts(graph, 40_000, seed=11)
    ends = swept(wrong, mg.Gibbs(), starts)
    assert chi_square(state_numbers(graph, ends), Enumeration(graph).distribution) < FALSE_ALARM


def sweep_matrix(graph):
    """Return the matrix of a chromatic sweep: single-site updates, color by color."""
    everything = Enumeration(graph)
    energy, count = everything.log_potential, len(everything.log_potential)
    states = np.array(list(itertools.product(*(range(s) for s in graph.sizes))))
    numbers = state_numbers(graph, states.astype(graph.state_type))
    assert (numbers == np.arange(count)).all()
    matrix = np.eye(count)
    for v in np.argsort(graph.colors.color, kind="stable"):
        one = np.zeros((count, count))
        for k, state in enumerate(states):
            line = [
                int(state_numbers(graph, np.array([[*state[:v], u, *state[v + 1 :]]]))[0])
                for u in range(graph.sizes[v])
            ]
            weights = np.exp(energy[line] - energy[line].max())
            one[k, line] = weights / weights.sum()
        matrix = matrix @ one
    return matrix, everything.distribution


@pytest.mark.parametrize("name", ["spins", "potts", "tables"])
def test_transitions_are_products_of_single_site_ones(name):
    """From one fixed state, the distribution after a sweep is a row of the product of updates."""
    graph = {"spins": spins(4, 5, 8), "potts": small([3] * 3, 3, 3, tables=False)}.get(
        name, small([3, 2, 2], 3, 4)
    )
    matrix, distribution = sweep_matrix(graph)
    np.testing.assert_allclose(distribution @ matrix, distribution, atol=1e-12)
    start = np.zeros((40_000, len(graph)), graph.state_type)
    ends = swept(graph, mg.Gibbs(), start, seed=3)
    assert chi_square(state_numbers(graph, ends), matrix[0]) > FALSE_ALARM


def plain_spin(energies, bits):
    """Choose a spin: the less likely value, if the bits are below its share."""
    d = (energies[1] - energies[0]) / np.log(2)
    against = (bits >> 1) / 2**31 < 1 / (1 + 2.0 ** abs(d))
    return int((d > 0) != against)


def plain_small(energies, bits):
    """Choose a value of a small domain: the first whose cumulative sum is larger."""
    weights = np.exp(energies - energies.max())
    return int((np.cumsum(weights)[:-1] <= (bits >> 1) / 2**31 * weights.sum()).sum())


def plain_sweep(graph, x, chain, sweep, key, choose, order):
    """Make a chromatic sweep of one chain in Python, with energies of whole states."""
    x = x.copy()
    for v in order:
        states = np.repeat(x[None], graph.sizes[v], axis=0)
        states[:, v] = np.arange(graph.sizes[v])
        x[v] = choose(graph.log_potential(states), bits_at(key, chain, int(v), sweep, 0))
    return x


CASES = {
    "spins of degrees 0 to 20": (spins(40, 170, 1, scale=0.2), plain_spin),
    "sparse spins, some clamped": (
        spins(30, 30, 2, evidence=[1, 0, *[-1] * 26, 1, 0]),
        plain_spin,
    ),
    "potts of degrees 0 to 20": (small([4] * 40, 200, 3, tables=False), plain_small),
    "tables and pairs, some clamped": (
        small([3, 2, 5, 4, 2, 3], 12, 4, evidence=[-1, 1, -1, -1, -1, 2]),
        plain_small,
    ),
    "tables alone": (small([4, 3, 2, 5], 9, 9, pairs=False), plain_small),
    "one variable": (mg.FactorGraph([2], [mg.Unary([0], [0.0, 0.4])]), plain_spin),
}


@pytest.mark.parametrize("chains", [1, 20])
@pytest.mark.parametrize("name", CASES)
def test_as_the_contract_says(name, chains):
    """Every value of every sweep equals a Python implementation: single and vectorized chains."""
    graph, choose = CASES[name]
    color = graph.colors.color
    order = [v for v in np.argsort(color, kind="stable") if color[v] >= 0]
    record = {"record": "draws", "progress": False, "scan": "chromatic"}
    first = sample(graph, sweeps=0, chains=chains, seed=9, **record).state
    run = sample(graph, "gibbs", sweeps=3, chains=chains, seed=9, **record)
    for chain in (0, chains - 1):
        x = first[chain]
        for sweep in range(3):
            x = plain_sweep(graph, x, chain, sweep, key_of(9), choose, order)
            assert (run.draws[chain, sweep] == x).all(), (chain, sweep)


def large(name):
    if name == "spins":
        return spins(5000, 9000, 3, scale=0.4)
    if name == "tail":
        return mg.models.ising_rbf(12)
    if name == "small tail":
        return mg.models.potts_rbf(12)
    if name == "potts":
        return small([4] * 3000, 5000, 3, tables=False)
    if name == "tables":
        return small([3, 5, 2, 4] * 60, 700, 3)
    if name == "stencil":
        return mg.FactorGraph([2] * 4096, [mg.Stencil((64, 64), [(0, 1), (1, 0)], [0.3, -0.3])])
    rng = np.random.default_rng(1)
    scope = np.stack([rng.choice(60, 3, replace=False) for _ in range(80)])
    return mg.FactorGraph([3] * 60, [mg.Table(scope, rng.normal(size=(3, 3, 3)))])


def sampler_for(name):
    """Return a sampler with few heavy pairs if there is a tail, so that it draws from the tail."""
    return mg.PoissonGibbs(heavy=4) if "tail" in name else mg.PoissonGibbs()


@pytest.mark.parametrize("name", ["spins", "potts", "tables", "general", "tail", "small tail"])
def test_every_layout_draws_the_same(name, monkeypatch):
    """One chain, 20 or 70 vectorized chains, and several threads are bit-identical."""
    graph = large(name)
    options = {
        "sampler": sampler_for(name),
        "sweeps": 6,
        "seed": 4,
        "scan": "chromatic",
        "progress": False,
        "record": ("draws", "marginals", "energy"),
    }
    wide = sample(graph, chains=70, **options)
    for chains in (1, 20):
        run = sample(graph, chains=chains, **options)
        assert (run.draws == wide.draws[:chains]).all()
        assert (run.counts == wide.counts[:chains]).all()
        np.testing.assert_allclose(run.energy, wide.energy[:chains], rtol=1e-10)
    monkeypatch.setattr(tile, "_WORTH", 1)
    for chains in (1, 70):
        run = sample(graph, chains=chains, threads=3 * chains, **options)
        assert (run.draws == wide.draws[:chains]).all()
        assert (run.counts == wide.counts[:chains]).all()
        assert run.info.changed == pytest.approx(
            sample(graph, chains=chains, threads=1, **options).info.changed
        )


@pytest.mark.parametrize("name", ["spins", "potts", "tables", "general", "tail", "small tail"])
def test_records_agree_with_the_draws(name):
    graph, chains = large(name), 18
    run = sample(
        graph,
        sampler_for(name),
        sweeps=300,  # more than a byte can count
        chains=chains,
        seed=2,
        scan="chromatic",
        record=("draws", "marginals", "energy"),
        progress=False,
    )
    np.testing.assert_allclose(graph.energy(run.draws[3]), run.energy[3], rtol=1e-9)
    first, sizes = graph.packed.first, graph.sizes
    for v in (0, len(graph) // 2, len(graph) - 1):
        counts = run.counts[5, first[v] : first[v] + sizes[v]] // len(graph)
        assert (counts == np.bincount(run.draws[5, :, v], minlength=sizes[v])).all()
    assert (run.visits == run.clock).all()
    moved = (run.draws[:, 1:] != run.draws[:, :-1]).mean()
    assert run.info.changed == pytest.approx(moved, rel=0.1)


def test_rare_values_come_as_often_as_they_should():
    """A Poisson count of 128 from 1.28e8 draws of probability 1e-6, single or vectorized.

    The bounds are exceeded with probability 1e-7.
    """
    field = np.log(1e6 - 1)
    for sign in (1, -1):
        energy = [0.0, sign * field]
        graph = mg.FactorGraph([2] * 10_000, [mg.Unary(np.arange(10_000), energy)])
        data = spin_colors(graph)
        for chains in (1, 64):
            starts = np.full((chains, len(graph)), sign > 0, graph.state_type)
            one = make_tile(mg.Gibbs(), graph, data, 0, starts, 5)
            one.advance(0, 12_800 // chains, True)
            counts = one.counts(12_800 // chains).reshape(chains, -1, 2).sum(axis=(0, 1))
            assert 75 < counts[0 if sign > 0 else 1] < 190


def test_single_precision_is_for_weak_factors():
    assert spin_colors(spins(6, 9, 1)).weight.dtype == np.float32
    assert spin_colors(spins(6, 9, 1, scale=40.0)).weight.dtype == np.float64
    huge = mg.FactorGraph([2, 2, 2], [mg.Ising([0, 1], [1, 2], [1e90, -1e90])])
    state = swept(huge, mg.Gibbs(), np.zeros((20, 3), np.uint8), sweeps=20)
    assert (state[:, 0] == state[:, 1]).all()
    assert (state[:, 1] != state[:, 2]).all()


def test_large_couplings_that_cancel_leave_their_difference():
    """Couplings of +-1e7 cancel, and a field of 0.5 remains: single precision would lose it."""
    graph = mg.FactorGraph(
        [2, 2, 2], [mg.Ising([0, 0], [1, 2], [1e7, -1e7]), mg.Unary([0], [0.0, 0.5])]
    )
    data = color_data(mg.Gibbs(), graph)
    place = int(np.flatnonzero(data.variable == 0)[0])
    assert data.base[place] == pytest.approx(0.5 / np.log(2), abs=1e-6)
    assert data.weight.dtype == np.float64


GOLDEN = {
    "spins": "000101111000000101001110010010000011",
    "potts": "331220001103103311101021301010132110",
    "tables": "230322100002110312100111100023121101",
    "general": "020221021122100021212220201010102012",
}


def golden(name):
    run = sample(
        large(name),
        "gibbs",
        sweeps=4,
        chains=3,
        seed=1,
        scan="chromatic",
        record=(),
        progress=False,
    )
    return "".join(str(int(v)) for v in run.state[:, :12].ravel())


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_draws(name):
    assert golden(name) == GOLDEN[name]


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (mg.MinGibbs(2.0), "MinGibbs"),
        (mg.MGPMH(2.0), "MGPMH"),
        (mg.Gibbs(textbook=True), "textbook=True"),
        (mg.Gibbs(fields=True), "fields=True"),
    ],
)
def test_others_are_refused_by_name(sampler, message):
    with pytest.raises(mg.SampleError, match=message):
        mg.sample(spins(4, 4, 1), sampler, sweeps=1, scan="chromatic", progress=False)


def test_lengths_are_sweeps():
    with pytest.raises(mg.SampleError, match="give sweeps, of 4 updates each"):
        mg.sample(spins(4, 4, 1), updates=10, scan="chromatic", progress=False)


def test_implicit_factors_are_refused():
    graph = mg.FactorGraph([2] * 4, [mg.Complete(4, 0.1)])
    with pytest.raises(mg.SampleError, match="stored factors"):
        mg.sample(graph, sweeps=1, scan="chromatic", progress=False)


def test_everything_clamped():
    graph = spins(5, 6, 1, evidence=[1, 0, 1, 0, 0])
    for chains in (2, 20):
        run = sample(
            graph,
            sweeps=10,
            chains=chains,
            scan="chromatic",
            progress=False,
            record=("draws", "marginals", "energy"),
            reference=np.full((5, 2), 0.5),
        )
        assert (run.draws == graph.evidence).all()
        assert run.marginals[:, 1].tolist() == [1, 0, 1, 0, 0]
        assert run.error[0, -1] == pytest.approx(np.sqrt(0.5))


def test_evaluations_are_counted():
    graph = spins(5000, 9000, 3)
    run = sample(graph, sweeps=10, chains=20, scan="chromatic", progress=False, record=())
    entries = int((graph.packed.rows["pair_end"] - graph.packed.rows["start"]).sum())
    assert run.info.factor_evaluations == 10 * 20 * entries


@pytest.mark.parametrize("chains", [1, 20])
@pytest.mark.parametrize("name", ["spins", "tables", "tail", "small tail", "stencil"])
def test_counts_go_beyond_32_bits(name, chains):
    """Counters that start near 2^32 lose nothing in any number of further sweeps."""
    graph, sampler = large(name), sampler_for(name)
    data, starts = color_data(sampler, graph), np.zeros((chains, len(graph)), graph.state_type)
    begun, swept = tile.MANY - 60, 1000
    counted = []
    for near in (0, begun):
        one = make_tile(sampler, graph, data, 0, starts, 5)
        one.advance(0, 1, True)  # a stencil allocates its counters on first use
        for counters in one.ones if name == "stencil" else one.counters():
            counters.many[:], counters.flushed = near, near
        one.advance(1, swept - 1, True)
        counted.append(one.counts(near + swept))
    more = counted[1] - counted[0]
    free = np.repeat(graph.evidence < 0, graph.sizes)
    if graph.sizes.max() == 2:  # only value 1 is counted; value 0 is the difference
        assert (more[:, free].reshape(chains, -1, 2) == [0, begun]).all()
    else:
        assert (more[:, free] == begun).all()
    assert counted[1].max() > tile.MANY


@pytest.mark.parametrize("values", [2, 3])
def test_energies_are_right_for_every_sampler_of_one_graph(values):
    """Samplers that evaluate different factors exactly order the variables differently."""
    rng = np.random.default_rng(4)
    i, j = np.triu_indices(24, 1)
    keep = rng.random(len(i)) < 0.4
    pairs = mg.Potts(i[keep], j[keep], rng.exponential(0.1, keep.sum()))
    graph = mg.FactorGraph([values] * 24, [pairs])
    for sampler in (mg.Gibbs(), mg.PoissonGibbs(theta=1.0, heavy=1), mg.Gibbs()):
        options = {"scan": "chromatic", "record": ("draws", "energy"), "progress": False}
        run = sample(graph, sampler, sweeps=3, chains=1, seed=1, **options)
        np.testing.assert_allclose(run.energy[0], graph.energy(run.draws[0]), rtol=1e-6)


@pytest.mark.parametrize("chains", [1, 20])
@pytest.mark.parametrize("pairs", [False, True])
def test_large_constants_do_not_hide_smaller_factors(chains, pairs):
    """Single precision would round 3e9 + 1 to 3e9; constants cancel in conditionals."""
    fields = np.array([[0.0, 0.8, -0.6], [0.3, 0.0, 0.0]])
    factors = [mg.Unary([0, 1], fields), mg.Unary([0, 1], np.full((2, 3), -3e9))]
    if pairs:
        factors.append(mg.Table([[0, 1]], np.full((3, 3), 2e9) + np.eye(3)))
    graph = mg.FactorGraph([3, 3], factors)
    run = sample(
        graph, mg.Gibbs(), scan="chromatic", sweeps=40_000 // chains, chains=chains, seed=1
    )
    # 40,000 nearly independent sweeps: standard error 0.0025, bound 6 of them
    assert np.abs(run.marginals - mg.exact_marginals(graph)).max() < 0.015


@pytest.mark.parametrize("seed", range(4))
def test_entries_are_where_the_blocks_say(seed):
    """Entry k of the variable in lane l is at entry + k * count + l, for any degrees and sizes."""
    rng = np.random.default_rng(seed)
    n = 300
    graph = mg.FactorGraph(
        rng.integers(2, 4, n), [mg.Potts(range(0, n - 1, 2), range(1, n, 2), 0.5)]
    ).condition({5: 1})
    degree = rng.choice([0, 1, 2, 2, 2, 70], n)
    begin = np.cumsum(degree) - degree
    values = rng.permutation(int(degree.sum()))
    places = order_places(graph, degree)
    laid, same = lay_entries(places, begin, (values, values), (np.int64, np.float32))
    seen = 0
    for block in places.blocks:
        for lane in range(block["count"]):
            own = places.variable[block["first"] + lane]
            for k in range(block["degree"]):
                seen += 1
                assert laid[block["entry"] + k * block["count"] + lane] == values[begin[own] + k]
    assert seen == len(laid) == len(same) == degree.sum() - degree[5]
    assert same.dtype == np.float32
    assert (same == laid).all()
