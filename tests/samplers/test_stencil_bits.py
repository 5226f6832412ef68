"""Stencils as bits: exact, equal for every partition, and never expanded into pairs."""

import itertools
import math

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.exact.enumeration import Enumeration
from minigibbs.graph.factors.stencil import Stencil
from minigibbs.kernels.philox import key_of
from minigibbs.results import modes
from minigibbs.samplers.chromatic.first import _fill
from minigibbs.samplers.chromatic.lattice import lattice_of
from minigibbs.samplers.chromatic.stencil_bits import StencilBits, stencil_bits, threshold
from minigibbs.samplers.chromatic.stencil_tiles import StencilTile, sweep_bits
from minigibbs.samplers.registry import color_data
from tests.harness import FALSE_ALARM, chi_square, sample, state_numbers
from tests.kernels.test_philox import plain_philox
from tests.samplers.test_distribution import exact_starts

SQUARE, CUBE = [(0, 1), (1, 0)], [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
RNG = np.random.default_rng(4)


def lattice(shape, offsets, weights, periodic=True, kind="ising", field=0.0, evidence=None):
    n = int(np.prod(shape))
    groups = [mg.Stencil(shape, offsets, weights, periodic, kind)]
    if field:
        groups.append(mg.Unary(np.arange(n), np.tile([0.0, field], (n, 1))))
    return mg.FactorGraph(np.full(n, 2), groups).condition(evidence or {})


DILUTED = np.array([[[1, 0, -1], [1, 1, 0], [0, -1, 1]], [[1, 1, -1], [-1, 0, 1], [1, 1, 1]]])
GRAPHS = {
    "square": lattice((2, 4), SQUARE, 0.4, (False, True)),
    "open": lattice((3, 3), SQUARE, [0.5, -0.3], False, field=0.4),
    "glass": lattice((2, 2, 2), CUBE, 0.6 * RNG.choice([-1.0, 1.0], (3, 2, 2, 2)), False),
    "diluted": lattice((3, 3), SQUARE, 0.7 * DILUTED, False),
    "potts": lattice((2, 4), SQUARE, [0.8, -0.5], (False, True), "potts"),
    "clamped": lattice((2, 6), SQUARE, 0.5, (False, True), evidence={1: 0, 7: 1}, field=-0.2),
    "triangles": lattice((2, 4), [(0, 1), (1, 0), (1, 1)], 0.3, (False, True)),
    "far": lattice((9,), [(1,), (3,)], [0.4, -0.6], False),
}


def swept(graph, starts, sweeps=1, data=None, seed=7):
    tile = StencilTile(graph, stencil_bits(graph) if data is None else data, 0, starts, seed)
    tile.advance(0, sweeps, False)
    return tile.states()


@pytest.mark.parametrize("name", GRAPHS)
def test_layout(name):
    assert isinstance(color_data(mg.Gibbs(), GRAPHS[name]), StencilBits)
    assert isinstance(color_data(mg.PoissonGibbs(), GRAPHS[name]), StencilBits)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_sweep_keeps_the_distribution(name):
    graph = GRAPHS[name]
    probabilities = Enumeration(graph).distribution
    starts = exact_starts(graph, 20_000, 3)
    ends = swept(graph, starts)
    # false alarm 1e-4
    assert chi_square(state_numbers(graph, ends), probabilities) > FALSE_ALARM
    free = graph.evidence < 0
    assert (ends[:, ~free] == graph.evidence[~free]).all()
    assert (ends[:, free] != starts[:, free]).any(axis=0).all()


@pytest.mark.parametrize("name", ["square", "glass", "clamped"])
def test_the_test_notices_a_wrong_threshold(name):
    graph = GRAPHS[name]
    data = stencil_bits(graph)
    wrong = {}
    for name in ("fine", "coarse"):
        wrong[name] = getattr(data, name) // np.uint64(2) + np.uint64(2**62)  # p / 2 + 1 / 4
        wrong[name].setflags(write=False)  # like the original, or Numba would compile again
    ends = swept(graph, exact_starts(graph, 20_000, 3), data=data._replace(**wrong))
    # an error of this size is missed far less than once in a million seeds
    assert chi_square(state_numbers(graph, ends), Enumeration(graph).distribution) < 1e-6


def neighbors(stencil, site):
    """Return (partner, weight) pairs of a site."""
    at = np.unravel_index(site, stencil.shape)
    for k, offset in enumerate(stencil.offsets):
        for sign in (1, -1):
            there = [a + sign * d for a, d in zip(at, offset, strict=True)]
            inside = True
            for axis, side in enumerate(stencil.shape):
                if stencil.periodic[axis]:
                    there[axis] %= side
                inside &= 0 <= there[axis] < side
            if inside:
                start = at if sign == 1 else tuple(there)
                weight = stencil.weights[k] if stencil.uniform else stencil.weights[k][start]
                yield int(np.ravel_multi_index(there, stencil.shape)), float(weight)


def in_plain_python(graph, state, seed, sweeps, chain=0):
    """Make a sweep by definition: site by site and bit by bit."""
    stencil = graph.lattice
    places, key = lattice_of(stencil), key_of(seed)
    m, state = places.colors, state.astype(int).copy()
    field = 0.0 if len(graph.factors) == 1 else float(graph.factors[1].log_potential[0, 1])
    half = 1.0 if stencil.form == "ising" else 0.5
    for sweep in range(sweeps):
        for color in range(m):
            for site in range(len(state)):
                at = np.unravel_index(site, stencil.shape)
                if int(np.dot(places.factor, at)) % m != color or graph.evidence[site] >= 0:
                    continue
                bit, phase = divmod(int(at[-1]), m)
                first = site - at[-1] + phase + m * 32 * (bit // 32)
                number = 0
                for plane in range(64):
                    counter = (chain, int(first), sweep, 16 + plane // 4)
                    word = plain_philox(counter, (int(key[0]), int(key[1])))[plane % 4]
                    number = 2 * number + (int(word) >> (bit % 32) & 1)
                odds = field + sum(
                    2 * half * w * (2 * state[j] - 1) for j, w in neighbors(stencil, site)
                )
                state[site] = number < threshold(odds)
    return state


@pytest.mark.parametrize(
    "graph",
    [
        lattice((4, 70), SQUARE, 0.4, (True, False), field=0.1),
        lattice((2, 132), SQUARE, 0.4, (False, True)),
        lattice((3, 4, 66), CUBE, 0.5 * RNG.choice([-1, 1], (3, 3, 4, 66)), (False, True, True)),
        lattice((150,), [(1,), (4,)], [0.3, -0.7], False, "potts"),
    ],
    ids=["open rows", "long rows", "glass", "line"],
)
def test_sweeps_are_what_the_definition_says(graph):
    state = np.random.default_rng(2).integers(0, 2, (1, len(graph)), np.uint8)
    expected = in_plain_python(graph, state[0], 7, 2)
    np.testing.assert_array_equal(swept(graph, state, 2)[0], expected)


def test_sites_beyond_32_bits():
    """Words around site 2^32 are drawn as defined; all other words stay 0, and occupy no memory."""
    side, middle, weight, sweep, chain = 128, 2**25, 0.1, 3, 2
    shape = (2 * middle + 2, side)
    graph = mg.FactorGraph(
        np.broadcast_to(2, math.prod(shape)), [mg.Stencil(shape, SQUARE, weight)]
    )
    data, key = stencil_bits(graph), key_of(7)
    x, words = np.zeros(2 * data.lattice.units, np.uint32), data.lattice.words
    above = data.lattice.units + (middle + 1) * words  # of color 1: neighbors of row `middle`
    x[above : above + words] = 2**32 - 1
    begin, end = (middle - 1) * words, (middle + 1) * words  # of color 0
    sweep_bits(data, key, chain, begin, end, sweep, 1, x, np.empty(0, np.uint8))
    for unit in range(begin, end):
        row, word = divmod(unit, words)
        first = row * side + row % 2 + 64 * word
        expected, odds = 0, -4 * weight if row == middle else -8 * weight
        for bit in range(32):
            number = 0
            for plane in range(64):
                draw = 16 + plane // 4 + 256 * (first >> 32)
                counter = (chain, first % 2**32, sweep, draw)
                own = plain_philox(counter, (int(key[0]), int(key[1])))[plane % 4]
                number = 2 * number + (int(own) >> bit & 1)
            expected |= (number < threshold(odds)) << bit
        assert x[unit] == expected
    assert x[begin - 1] == x[end] == 0


def test_first_states_beyond_32_bits():
    key, states, first = key_of(5), np.zeros((2, 2**32 + 3), np.uint8), 2**32 - 1
    _fill(key, first, np.full(4, 2, np.int32), states)
    for i in range(first, first + 4):
        counter = (0, i % 2**32, 0, (2**32 - 1 + 256 * (i >> 32)) % 2**32)
        words = plain_philox(counter, (int(key[0]), int(key[1])))
        np.testing.assert_array_equal(states[:, i], [int(word) >> 31 for word in words[:2]])


def test_thresholds():
    assert threshold(0.0) == 2**63
    assert threshold(-1000.0) == 0
    assert threshold(1000.0) == 2**64 - 1
    for odds in (-30.0, -3.0, 0.5, 2.0):
        share = 1.0 / (1.0 + math.exp(-odds))
        assert threshold(odds) / 2**64 == pytest.approx(share, rel=1e-9)
    assert threshold(-40.0) + threshold(40.0) == 2**64


@pytest.mark.parametrize("name", GRAPHS)
def test_energies_are_counted(name):
    graph = GRAPHS[name]
    states = exact_starts(graph, 5, 1)
    tile = StencilTile(graph, stencil_bits(graph), 0, states, 1)
    np.testing.assert_array_equal(tile.states(), states)
    expected = graph.log_potential(states)
    # sums of some 20 numbers below 1: rounding errors are below 1e-12
    np.testing.assert_allclose(tile.energies() + graph.offset, expected, atol=1e-12)


LARGE = lattice((6, 40, 100), CUBE, 0.25, (True, False, True), evidence={5: 1, 77: 0, 9000: 1})


def test_any_split_gives_the_same_bits():
    start = np.random.default_rng(0).integers(0, 2, (1, len(LARGE)), np.uint8)
    start[:, LARGE.evidence >= 0] = LARGE.evidence[LARGE.evidence >= 0]
    whole = StencilTile(LARGE, stencil_bits(LARGE), 5, start, 3)
    whole.advance(4, 3, True)
    parts = StencilTile(LARGE, stencil_bits(LARGE), 5, start, 3)
    ends = parts._ends().tolist()
    for sweep in range(4, 7):
        for begin, end in itertools.pairwise(ends):
            cuts = sorted({begin, end, *np.random.default_rng(sweep).integers(begin, end, 4)})
            for one, other in reversed(list(itertools.pairwise(cuts))):
                parts.noted += parts._sweep(int(one), int(other), sweep, 1, True)
    np.testing.assert_array_equal(parts.states(), whole.states())
    np.testing.assert_array_equal(parts.counts(3), whole.counts(3))
    np.testing.assert_array_equal(parts.noted, whole.noted)


def test_runs_do_not_depend_on_threads_or_company(monkeypatch):
    monkeypatch.setattr("minigibbs.samplers.chromatic.tile._WORTH", 64)
    options = {
        "sweeps": 6,
        "seed": 1,
        "record": ("draws", "marginals", "energy"),
        "start": "random",
    }
    one = sample(LARGE, chains=1, threads=1, progress=False, **options)
    for chains, threads in ((1, 3), (2, 1), (17, 2)):
        more = sample(LARGE, chains=chains, threads=threads, progress=False, **options)
        np.testing.assert_array_equal(more.draws[0], one.draws[0])
        np.testing.assert_array_equal(more.counts[0], one.counts[0])
        np.testing.assert_array_equal(more.energy[0], one.energy[0])


def test_counts_are_those_of_the_draws():
    run = sample(LARGE, sweeps=9, seed=1, chains=2, record=("draws", "marginals", "energy"))
    share = (run.draws == 1).mean(axis=(0, 1))
    np.testing.assert_allclose(run.marginals[:, 1], share, atol=1e-12)
    energy = np.stack([LARGE.energy(rows) for rows in run.draws])
    np.testing.assert_allclose(run.energy, energy, rtol=1e-12)


def test_runs_never_expand_a_stencil(monkeypatch):
    def expand(stencil):
        raise AssertionError("expanded into pairs")

    monkeypatch.setattr(Stencil, "_expanded", expand)
    monkeypatch.setattr(modes, "_MOST_EXPANDED", 0)
    observe = {"m": mg.observables.Magnetization(), "e": mg.observables.Energy()}
    run = mg.sample(LARGE, sweeps=20, chains=2, observe=observe, progress=False, seed=1)
    assert run.info.scan == "chromatic"
    assert "every update is that of plain Gibbs" in run.info.guarantee
    assert run.summary()
    assert "_packed" not in vars(LARGE)


def test_a_checkpoint_is_resumed(tmp_path):
    options = {"seed": 1, "chains": 2, "record": ("marginals", "draws"), "progress": False}
    whole = mg.sample(LARGE, sweeps=20, **options)
    mg.sample(LARGE, sweeps=20, checkpoint=tmp_path / "run.zarr", **options)
    back = mg.resume(tmp_path / "run.zarr", progress=False)
    np.testing.assert_array_equal(back.draws, whole.draws)
    np.testing.assert_array_equal(back.counts, whole.counts)


def onsager(beta):
    """Return the mean of s_i s_j of nearest neighbors on the infinite square lattice."""
    from scipy.special import ellipk

    k = 2.0 * math.sinh(2.0 * beta) / math.cosh(2.0 * beta) ** 2
    inner = 1.0 + 2.0 / math.pi * (2.0 * math.tanh(2.0 * beta) ** 2 - 1.0) * ellipk(k * k)
    return inner / math.tanh(2.0 * beta) / 2.0


@pytest.mark.parametrize("beta", [0.3, 0.5])
def test_energies_agree_with_onsager(beta):
    """Off criticality a 256 x 256 lattice differs from the infinite one by less than e^-50."""
    graph = mg.models.ising_lattice(256, beta, implicit=True)
    start = np.ones(len(graph), np.uint8)
    run = mg.sample(
        graph,
        sweeps=400,
        warmup=300,
        chains=2,
        seed=6,
        start=start,
        record="energy",
        progress=False,
    )
    mean = -run.energy / (beta * 2 * len(graph))
    blocks = mean.reshape(-1, 40).mean(axis=1)  # 20 blocks, longer than the correlation time
    error = blocks.std(ddof=1) / math.sqrt(len(blocks))
    # Student's t with 19 degrees of freedom: false alarm 1e-4
    assert abs(mean.mean() - onsager(beta)) < 4.9 * error
    assert error < 1e-3
