"""All temperatures of a tempered run: records, reweighted estimates and their errors, P(q)."""

import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import minigibbs as mg
from minigibbs.results import tempered
from minigibbs.results.tempered import Temperatures
from minigibbs.theory import Enumeration
from tests.hard import HARD
from tests.harness import FALSE_ALARM
from tests.running.test_checkpoint import same_runs
from tests.zoo import ZOO

QUIET = {"progress": False, "seed": 1}
SIGNS = mg.models.spin_glass(side=3, dimensions=2, couplings="signs", seed=1)
GAUSSIAN = mg.models.spin_glass(side=2, dimensions=3, periodic=False, seed=2)
POTTS = mg.models.potts_lattice(side=2, states=3, beta=0.9, periodic=False)
ALL = mg.Record(temperatures=True)
BETAS = (0.0, 0.21, 0.5, 0.83, 1.0)


class Exact:
    """Exact values of one model at any beta, by enumeration."""

    def __init__(self, graph):
        known = Enumeration(graph)
        self.states, self.log_potential = known.states, known.log_potential
        same = (self.states[:, None] == self.states).mean(axis=2)
        self.overlap = 2 * same - 1 if (graph.sizes == 2).all() else same
        self.variables = len(graph)

    def weights(self, beta):
        return np.exp(beta * self.log_potential - self.log_z(beta))

    def log_z(self, beta):
        return logsumexp(beta * self.log_potential)

    def energy(self, beta):
        return -self.weights(beta) @ self.log_potential

    def specific_heat(self, beta):
        square = self.weights(beta) @ self.log_potential**2
        return beta**2 * (square - self.energy(beta) ** 2) / self.variables

    def power(self, beta, power):
        w = self.weights(beta)
        return w @ self.overlap**power @ w

    def binder(self, beta):
        return 1 - self.power(beta, 4) / (3 * self.power(beta, 2) ** 2)


def scores(estimate, expected):
    """Return deviations as standard normal quantiles, without exact values."""
    value, error = np.asarray(estimate.value), np.asarray(estimate.error)
    away = value - np.array(expected)
    known = error > 1e-9
    assert np.abs(away[~known]).max(initial=0) < 1e-8
    return stats.norm.ppf(stats.t.cdf(away[known] / error[known], estimate.blocks - 1))


@pytest.mark.parametrize(
    ("graph", "sampler"),
    [
        (SIGNS, mg.Tempering(levels=8)),
        (GAUSSIAN, mg.Tempering(houdayer=True)),
        (POTTS, mg.Tempering(levels=6, houdayer=True)),
    ],
    ids=["signs", "gaussian", "potts"],
)
def test_estimates_are_those_of_enumeration(graph, sampler):
    """Check temperatures of the ladder and others; FALSE_ALARM for at most 25 numbers together."""
    run = mg.sample(graph, sampler, sweeps=3000, record=ALL, **QUIET)
    found, exact = run.temperatures, Exact(graph)
    names = ["log_z", "energy", "specific_heat"]
    estimates = [found.log_z(BETAS), found.mean("energy", BETAS), found.specific_heat(BETAS)]
    if found.twins == 2:
        names.append("binder")
        estimates.append(found.binder(betas=BETAS))
    for name, estimate in zip(names, estimates, strict=True):
        expected = [getattr(exact, name)(beta) for beta in BETAS]
        limit = stats.norm.isf(FALSE_ALARM / 25 / 2)
        assert np.abs(scores(estimate, expected)).max() < limit, name


def test_overlaps_have_their_distribution():
    """P(q) between two levels; FALSE_ALARM for at most 10 numbers together."""
    run = mg.sample(SIGNS, mg.Tempering(levels=8), sweeps=3000, record=ALL, **QUIET)
    exact, found = Exact(SIGNS), run.temperatures
    edges, density = found.overlap_distribution(0.77)
    w = exact.weights(0.77)
    expected = np.histogram(exact.overlap, edges, weights=np.outer(w, w))[0] / np.diff(edges)
    assert len(expected) == 10  # one bin per overlap of nine spins
    assert abs((density.value * np.diff(edges)).sum() - 1) < 1e-12
    assert np.abs(scores(density, expected)).max() < stats.norm.isf(FALSE_ALARM / 10 / 2)
    few, _ = found.overlap_distribution(bins=4)
    np.testing.assert_allclose(few, [-1, -0.5, 0, 0.5, 1])


def drawn(exact, betas, chains, records, rng, scale=1.0):
    """Draw independent states of two ladders at all temperatures, as a run would record them."""
    slots = []
    for beta in np.tile(betas, 2):
        w = exact.weights(beta)
        slots.append(rng.choice(len(w), (chains, records), p=w))
    states = np.stack(slots, axis=-1)
    levels = len(betas)
    overlaps = exact.overlap[states[..., :levels], states[..., levels:]]
    energy = -scale * exact.log_potential[states]
    return Temperatures(
        betas=np.array(betas),
        twins=2,
        names=(),
        labels=(),
        series=np.concatenate([energy, overlaps], axis=-1),
        variables=exact.variables,
        log_states=float(np.log(len(exact.states))),
    )


def test_intervals_cover_what_they_estimate():
    """The number of 95% intervals of 100 runs that cover is binomial; four quantities."""
    exact, betas, rng = Exact(SIGNS), (0.0, 0.3, 0.6, 1.0), np.random.default_rng(5)
    at, runs = 0.45, 100
    covered = np.zeros(4, int)
    for _ in range(runs):
        found = drawn(exact, betas, 2, 200, rng)
        estimates = [
            (found.log_z([at]), exact.log_z(at)),
            (found.mean("energy", [at]), exact.energy(at)),
            (found.specific_heat([at]), exact.specific_heat(at)),
            (found.binder(betas=[at]), exact.binder(at)),
        ]
        for k, (estimate, expected) in enumerate(estimates):
            low, high = estimate.interval()
            covered[k] += low[0] < expected < high[0]
    # Two sides of four numbers: false-alarm rate 1e-4. The jackknife may cover 1% less.
    assert covered.min() >= stats.binom.ppf(FALSE_ALARM / 8, runs, 0.94)
    assert covered.max() <= stats.binom.isf(FALSE_ALARM / 8, runs, 0.96)


def test_wrong_energies_are_caught():
    """Negative control: records with energies that are 10% too large fail the first test."""
    exact, rng = Exact(SIGNS), np.random.default_rng(6)
    found = drawn(exact, (0.0, 0.3, 0.6, 1.0), 1, 4000, rng, scale=1.1)
    expected = [exact.log_z(beta) for beta in BETAS]
    worst = np.abs(scores(found.log_z(BETAS), expected)).max()
    assert worst > stats.norm.isf(FALSE_ALARM / 25 / 2)


def test_free_energies_solve_their_equations():
    """Equation 11 of MBAR (Shirts and Chodera 2008)."""
    exact, betas = Exact(GAUSSIAN), (0.0, 0.2, 0.7, 1.0)
    found = drawn(exact, betas, 1, 300, np.random.default_rng(7))
    f, energy = -found.log_z().value, found.energy.ravel()
    log_d = logsumexp(f - np.multiply.outer(energy, betas), axis=1) + np.log(600)
    expected = [-logsumexp(-beta * energy - log_d) for beta in betas]
    np.testing.assert_allclose(f - f[0], np.array(expected) - expected[0], atol=1e-9)
    assert f[0] == pytest.approx(-np.log(256))


def test_many_temperatures_of_a_larger_model():
    """Distant temperatures share no energies: independent spins in a field, 60 levels.

    Every energy is minus a binomial count. FALSE_ALARM for 61 numbers together.
    """
    spins, betas, rng = 2000, np.linspace(0.0, 1.0, 60), np.random.default_rng(10)
    share = 1.0 / (1.0 + np.exp(-3.0 * betas))
    ones = rng.binomial(spins, share, size=(2, 200, 60))
    found = Temperatures(betas, 1, (), (), -3.0 * ones, spins, spins * np.log(2.0))
    at = np.append(betas, 0.511)
    expected = spins * np.log1p(np.exp(3.0 * at))
    limit = stats.norm.isf(FALSE_ALARM / 61 / 2)
    assert np.abs(scores(found.log_z(at), expected)).max() < limit
    p = 1.0 / (1.0 + np.exp(-3.0 * at))
    heat = at**2 * 9.0 * p * (1.0 - p)
    assert np.abs(scores(found.specific_heat(at), heat)).max() < limit


def test_temperatures_that_do_not_overlap_are_refused():
    energy = np.repeat(np.array([0.0, -900.0])[None], 50, axis=0) + np.arange(50)[:, None] % 3
    found = Temperatures(np.array([0.0, 1.0]), 1, (), (), energy[None], 9, 6.2)
    with pytest.raises(mg.SampleError, match="do not overlap"):
        found.log_z()


def test_errors_are_those_of_leaving_out_blocks():
    """The linear step is within 2% of solving again without each block."""
    exact, betas, at = Exact(SIGNS), (0.0, 0.4, 1.0), 0.7
    found = drawn(exact, betas, 1, 640, np.random.default_rng(8))
    cuts = np.append(0, np.cumsum(found._cuts.sizes))
    left = []
    for first, last in itertools.pairwise(cuts):
        rest = np.delete(found.series, slice(first, last), axis=1)
        part = Temperatures(found.betas, 2, (), (), rest, 9, found.log_states)
        left.append([part.log_z([at]).value[0], part.specific_heat([at]).value[0]])
    blocks = len(left)
    expected = np.sqrt((blocks - 1) * np.var(left, axis=0))
    errors = [found.log_z([at]).error[0], found.specific_heat([at]).error[0]]
    np.testing.assert_allclose(errors, expected, rtol=0.02)


def test_long_runs_are_thinned(monkeypatch):
    exact = Exact(SIGNS)
    found = drawn(exact, (0.0, 0.5, 1.0), 2, 300, np.random.default_rng(9))
    every = found.log_z([0.7])
    monkeypatch.setattr(tempered, "_MOST_SHARES", 2 * 300 * 3 * 2 * 3 // 4)
    again = Temperatures(found.betas, 2, (), (), found.series, 9, found.log_states)
    fewer = again.log_z([0.7])
    assert again._alone.step == 4
    assert 1.5 < fewer.error[0] / every.error[0] < 2.7  # about 2: 150 records instead of 600


def test_records_are_those_of_the_ladders():
    """The records of the coldest level include the target's energies and observables."""
    run = mg.sample(
        SIGNS,
        mg.Tempering(levels=5),
        sweeps=50,
        record=mg.Record("energy", "draws", temperatures=True),
        observe={"m": "magnetization", "c": mg.observables.Moments()},
        **QUIET,
    )
    found = run.temperatures
    assert found.energy.shape == (5, 8, 50)
    assert found.overlap.shape == (5, 4, 50)
    assert found.observed("c").shape == (5, 8, 50, 4)
    m, spins = found.observed("m"), 2.0 * run.draws - 1
    own, shown = found.energy[-1].reshape(4, 2, 50), m[-1].reshape(4, 2, 50)
    right = np.isclose(own, run.energy[:, None]) & np.isclose(shown, spins.mean(axis=2)[:, None])
    assert right.any(axis=1).all()
    assert "5 temperatures, 8 ladders, 50 records of energy, m, c, overlap" in repr(found)
    assert found.mean("c", [0.3, 1.0]).value.shape == (2, 4)
    assert found.binder("m").value.shape == (5,)


def test_a_resumed_run_has_the_same_records(tmp_path):
    options = {"record": mg.Record("energy", thin=3, temperatures=True), "observe": {"c": "count"}}
    for name in ("ising", "mixed"):
        graph, sampler = ZOO[name], mg.Tempering(levels=4, houdayer=True)
        whole = mg.sample(graph, sampler, sweeps=300, warmup=0, **options, **QUIET)
        folder = tmp_path / name
        half = {"sweeps": 150, "warmup": 0, "checkpoint": folder, "threads": 2}
        mg.sample(graph, sampler, **half, **options, **QUIET)
        resumed = mg.resume(folder, sweeps=150, progress=False)
        same_runs(whole, resumed)
        resumed.save(tmp_path / "run.mgr")
        for run in (resumed, mg.load(folder), mg.load(tmp_path / "run.mgr")):
            np.testing.assert_array_equal(run.temperatures.series, whole.temperatures.series)
            assert run.temperatures.labels == whole.temperatures.labels


def test_until_a_goal_is_met():
    run = mg.sample_until(SIGNS, mg.Tempering(levels=4), ess=200, record=ALL, **QUIET)
    found = run.temperatures
    assert found.series.shape[1] == int(run.clock[0]) // run.info.thin
    assert found.log_z().blocks == len(run.clock)  # from chains, because a goal ended the run


def test_pictures_hold_the_estimates(tmp_path):
    pytest.importorskip("matplotlib")
    run = mg.sample(SIGNS, mg.Tempering(levels=4), sweeps=200, record=ALL, **QUIET)
    found = run.temperatures
    for name in ("energy", "specific_heat", "binder", "log_z", "overlap"):
        (axes,) = found.plot(name).axes
        assert axes.get_ylabel() == name.replace("_", " ")
        np.testing.assert_array_equal(axes.lines[1].get_xdata(), found.betas)
    np.testing.assert_allclose(axes.lines[1].get_ydata(), found.mean("overlap").value)
    (axes,) = found.plot_overlaps([0.3, 1.0], path=tmp_path / "q.svg").axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["beta 0.3", "beta 1"]
    assert (tmp_path / "q.svg").exists()


def test_what_it_cannot_do_is_said():
    run = mg.sample(SIGNS, mg.Tempering(levels=3, houdayer=False), sweeps=40, record=ALL, **QUIET)
    found = run.temperatures
    for call, message in (
        (lambda: found.overlap, "two ladders per chain"),
        (lambda: found.binder(), "two ladders per chain"),
        (lambda: found.mean("m"), "have records of energy; got 'm'"),
        (lambda: found.log_z([1.2]), "from 0 to 1"),
        (lambda: found.log_z("cold"), "from 0 to 1"),
        (lambda: found.log_z([]), "from 0 to 1"),
        (lambda: mg.sample(SIGNS, sweeps=5, record=ALL, **QUIET), "PoissonGibbs has none"),
        (lambda: mg.sample(SIGNS, sweeps=5, **QUIET).temperatures, "kept one temperature"),
        (
            lambda: mg.sample(next(iter(HARD.values())), mg.Tempering(), record=ALL, **QUIET),
            "without hard constraints",
        ),
    ):
        with pytest.raises(mg.SampleError, match=message):
            call()
    both = mg.sample(SIGNS, mg.Tempering(levels=3), sweeps=40, record=ALL, **QUIET).temperatures
    with pytest.raises(mg.SampleError, match="bins must be at least 1, got 0"):
        both.overlap_distribution(bins=0)
    for bins in (10**12, 2**63):
        with pytest.raises(mg.TooLargeError, match="use fewer bins"):
            both.overlap_distribution(bins=bins)
    none = mg.sample(SIGNS, mg.Tempering(levels=3), sweeps=0, record=ALL, **QUIET).temperatures
    with pytest.raises(mg.SampleError, match="no records"):
        none.log_z()
    clamped = mg.sample(
        SIGNS.condition(dict.fromkeys(range(9), 0)), mg.Tempering(), sweeps=3, record=ALL, **QUIET
    )
    with pytest.raises(mg.SampleError, match="kept one temperature"):
        _ = clamped.temperatures


def test_damaged_records_are_refused(tmp_path):
    run = mg.sample(SIGNS, mg.Tempering(levels=3), sweeps=10, record=ALL, **QUIET)
    found = run.temperatures
    for changes, message in (
        ({"betas": found.betas[::-1]}, "betas that rise"),
        ({"twins": 3}, "one or two ladders"),
        ({"series": found.series[:, :-1]}, "doubles in shape"),
        ({"variables": 0}, "a number of variables"),
        ({"names": ("m",)}, "names and labels"),
    ):
        parts = {**vars(found), **changes}
        parts = {name: parts[name] for name in Temperatures.__dataclass_fields__}
        with pytest.raises(ValueError, match=message):
            tempered.check_temperatures(Temperatures(**parts), 4, 10)
    header, arrays = tempered.encode_temperatures(found)
    with pytest.raises(ValueError, match="twins must be int"):
        tempered.decode_temperatures(header | {"twins": True}, arrays)


@pytest.mark.parametrize("variables", [9, 49, 50, 64, 100, 512, 1000])
@pytest.mark.parametrize("low", [-1.0, 0.0])
def test_bins_of_overlaps_hold_as_many_possible_ones_each(variables, low):
    """Before: 50 equal bins of 64 spins held one or two overlaps each, and P(q) oscillated."""
    edges = tempered._between_overlaps(variables, low)
    possible = np.linspace(low, 1.0, variables + 1)
    held = np.histogram(possible, edges)[0]
    assert held.sum() == variables + 1
    assert len(held) <= 50
    assert len(set(held[1:-1])) == 1
    assert abs(held[0] - held[-1]) <= 1
    assert max(held[0], held[-1]) <= held[1]
