"""Population annealing: log Z and marginals compared with enumeration, families, resampling."""

import importlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

import minigibbs as mg
from minigibbs.inference.population import _Annealing, _next_step, systematic
from minigibbs.theory import Enumeration
from tests.hard import HARD
from tests.harness import FALSE_ALARM
from tests.zoo import IMPLICIT

SIGNS = mg.models.spin_glass(side=3, dimensions=2, couplings="signs", seed=1)
POTTS = mg.models.potts_lattice(side=2, states=3, beta=0.9, periodic=False)
FIELDS = mg.FactorGraph(
    [2, 3, 2, 2],
    [
        mg.Table([0, 1], [[0.3, -0.4, 0.0], [0.1, 0.9, -1.2]]),
        mg.Potts([1, 2], [3, 3], [0.0, 0.8]),
        mg.Unary([1], [[0.0, 0.5, -0.7]]),
    ],
).condition({2: 1})
STENCIL = mg.models.ising_lattice(side=3, beta=0.3, implicit=True)
MODELS = {"signs": SIGNS, "potts": POTTS, "fields": FIELDS, "stencil": STENCIL}


def annealed(graph, seed=1, population=500, chains=4, **options):
    settings = {name: options.pop(name) for name in ("sweeps", "overlap") if name in options}
    sampler = mg.PopulationAnnealing(population=population, **settings)
    options = {"exact": False, "progress": False, "chains": chains} | options
    return mg.infer(graph, "100s", sampler=sampler, seed=seed, **options)


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_enumeration(name):
    """Pool log Z and every marginal over 20 seeds; FALSE_ALARM for all numbers of a model."""
    graph = MODELS[name]
    exact = mg.infer(graph)
    answers = [annealed(graph, seed) for seed in range(20)]
    log_z = np.array([answer.log_z - exact.log_z for answer in answers])
    given = np.array([answer.shares.given - exact.shares.given for answer in answers])
    away = np.column_stack([log_z, given])
    moving = away.std(axis=0) > 1e-12  # a clamped variable has one value
    scores = away[:, moving].mean(axis=0) / (away[:, moving].std(axis=0, ddof=1) / np.sqrt(20))
    assert np.abs(scores).max() < stats.t.isf(FALSE_ALARM / 2 / moving.sum(), 19)
    assert np.abs(away[:, ~moving]).max(initial=0) < 1e-12


def test_errors_are_as_large_as_the_spread():
    """Compare predicted variances with the variances over 40 seeds, with 39 degrees of freedom.

    Systematic resampling varies less than the predicted variance assumes. Errors may therefore be
    up to twice too large, but not too small.
    """
    answers = [annealed(SIGNS, seed, population=200) for seed in range(40)]
    log_z = np.array([answer.log_z for answer in answers])
    ratio = log_z.var(ddof=1) / np.mean([answer.log_z_error**2 for answer in answers])
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 39) / 39
    assert low / 4 < ratio < high
    given = np.array([answer.shares.given for answer in answers])
    errors = np.mean([answer.shares.errors**2 for answer in answers], axis=0)
    ratio = (given.var(axis=0, ddof=1) / errors).mean()
    assert low / 4 < ratio < high


def test_weights_that_are_off_are_caught(monkeypatch):
    """Negative control: resampling with weights of a step that is 5% too long must fail."""
    exact = mg.infer(SIGNS)
    wrong = _Annealing._energies
    monkeypatch.setattr(_Annealing, "_energies", lambda self: 1.05 * wrong(self))
    log_z = np.array([annealed(SIGNS, seed).log_z - exact.log_z for seed in range(20)])
    score = log_z.mean() / (log_z.std(ddof=1) / np.sqrt(20))
    assert abs(score) > stats.t.isf(FALSE_ALARM / 2 / 10, 19)


def resampled(count=300, size=200, hot=0.4):
    """Return scores of features after resampling from exact draws at one temperature to another.

    The mean weight times the share of resampled states with a feature has the exact expectation.
    """
    known, rng = Enumeration(SIGNS), np.random.default_rng(4)
    logs = known.log_potential - known.log_potential.max()
    first, last = np.exp(hot * logs), np.exp(logs)
    features = np.column_stack([np.ones(len(logs)), logs, logs**2, known.states[:, [0, 4]]])
    sequence, settings = np.random.SeedSequence(3), mg.PopulationAnnealing(overlap=1e-9)
    found = np.empty((count, features.shape[1]))
    with ThreadPoolExecutor(1) as pool:
        task = _Annealing(SIGNS, settings, 1, size, sequence, pool)
        for k in range(count):
            which = rng.choice(len(first), size, p=first / first.sum())
            for tile, begin, end in zip(task._tiles, task._cuts, task._cuts[1:], strict=False):
                tile.load(known.states[which[begin:end]].astype(SIGNS.state_type))
            task._beta, task._log_z[:] = hot, 0.0
            task._cool(task._energies())
            assert task._beta == 1.0
            index = np.ravel_multi_index(tuple(task._states().T), SIGNS.sizes)
            weight = np.exp(task._log_z[0] - (1.0 - hot) * known.log_potential.max())
            found[k] = weight * features[index].mean(axis=0)
    away = found.mean(axis=0) - last @ features / first.sum()
    return away / (found.std(axis=0, ddof=1) / np.sqrt(count))


def test_resampling_from_exact_starts():
    """Sums over the resampled states are unbiased; FALSE_ALARM for five features together."""
    assert np.abs(resampled()).max() < stats.norm.isf(FALSE_ALARM / 10)


def test_resampling_with_wrong_weights_is_caught(monkeypatch):
    module = importlib.import_module("minigibbs.inference.population")
    monkeypatch.setattr(module, "systematic", lambda weights, u: systematic(weights**0.8, u))
    assert np.abs(resampled()).max() > stats.norm.isf(FALSE_ALARM / 10)


def test_what_is_noted_at_every_temperature():
    """Check log Z and energies at the intermediate temperatures, of 20 populations of 500."""
    answer, known = annealed(SIGNS, chains=20), Enumeration(SIGNS)
    found = answer.population
    for k, beta in enumerate(found.betas):
        logs = beta * known.log_potential
        top = logs.max()
        weights = np.exp(logs - top)
        log_z = top + np.log(weights.sum())
        energy = -(weights @ known.log_potential) / weights.sum()
        # A score beyond 6 at one of about 20 numbers has probability 4e-8 if errors are right.
        assert abs(found.log_z[k] - log_z) <= 6 * found.log_z_error[k] + 1e-12
        assert abs(found.energy[k] - energy) <= 6 * found.energy_error[k]
    assert found.betas[0] == 0.0
    assert found.betas[-1] == 1.0
    assert (np.diff(found.betas) > 0).all()
    assert (np.diff(found.families) <= 0).all()
    assert found.family_size[0] == pytest.approx(1.0)
    assert found.log_z_error[0] == 0.0
    assert (answer.log_z, answer.log_z_error) == (found.log_z[-1], found.log_z_error[-1])


def test_weights_and_families_of_the_final_states():
    answer = annealed(FIELDS, population=100)
    found = answer.population
    assert found.size == 104  # a multiple of 8
    assert len(found.states) == len(found.family) == 416
    assert found.weights.sum() == pytest.approx(1.0)
    one = found.weights @ (found.states == 1)
    np.testing.assert_allclose(one, answer.marginals[:, 1], atol=1e-12)
    shares = [np.bincount(own) / 104 for own in found.family.reshape(4, 104)]
    assert sum(map(np.count_nonzero, shares)) == found.families[-1]
    assert found.family_size[-1] == pytest.approx(np.mean([104 * (s @ s) for s in shares]))
    assert "416 replicas" in repr(found)


def test_a_seed_fixes_the_answer_on_any_number_of_threads():
    """Golden draws: the temperatures and a checksum of the population."""
    one, two = (annealed(SIGNS, seed=3, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one.population.states, two.population.states)
    assert one.log_z == two.log_z
    bits = np.packbits(one.population.states)
    checksum = int((np.arange(1, len(bits) + 1) * bits.astype(np.int64)).sum())
    assert (len(one.population.betas), checksum) == GOLDEN


GOLDEN = (10, 317979676)


def test_few_families_are_warned_of():
    cold = mg.models.spin_glass(side=4, dimensions=2, seed=3, beta=6.0)
    answer = annealed(cold, population=40, sweeps=1)
    assert "few families survive" in answer.warnings[0]
    assert f"{answer.population.families[-1]:,} of 160 replicas" in str(answer)
    assert not annealed(SIGNS, population=2000).warnings
    small = annealed(mg.FactorGraph([2] * 3, []), population=20).warnings
    assert "the population is small: 96 of 96 replicas" in small[0]


def test_populations_grow_until_errors_are_small():
    quick = annealed(SIGNS, population=None, standard_error=0.02)
    better = annealed(SIGNS, population=None, standard_error=0.006)
    assert quick.population.size < better.population.size
    assert better.shares.errors.max() < 0.006


def test_systematic_resampling():
    """Every index occurs floor or ceil of its expectation, and on average its expectation."""
    weights = np.array([0.5, 2.0, 0.0, 1.5, 0.0])
    expected = 5 * weights / weights.sum()
    offsets = (np.arange(4000) + 0.5) / 4000
    counts = np.array([np.bincount(systematic(weights, u), minlength=5) for u in offsets])
    assert (np.abs(counts - expected) < 1).all()
    np.testing.assert_allclose(counts.mean(axis=0), expected, atol=1e-3)
    assert (np.diff(systematic(weights, 0.3)) >= 0).all()
    assert systematic(weights, np.nextafter(1.0, 0.0)).max() == 3


def test_steps_overlap_as_requested():
    energies = np.random.default_rng(1).normal(0, 3, 2000)
    step = _next_step(energies, 1.0, 0.8)
    weights = np.exp(-step * energies)
    assert np.minimum(1, weights / weights.mean()).mean() == pytest.approx(0.8, abs=1e-6)
    assert _next_step(np.zeros(9), 0.7, 0.99) == 0.7
    coarse, fine = (annealed(SIGNS, overlap=overlap).population for overlap in (0.7, 0.95))
    assert len(coarse.betas) < len(fine.betas)


def test_nothing_to_sample():
    answer = annealed(SIGNS.condition(dict.fromkeys(range(9), 0)), population=8)
    assert answer.log_z == pytest.approx(-SIGNS.energy(np.zeros(9, int)))
    assert answer.marginals[:, 0].tolist() == [1.0] * 9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mg.PopulationAnnealing(population=1), "population must be at least 2, got 1"),
        (lambda: mg.PopulationAnnealing(sweeps=0), "sweeps must be at least 1, got 0"),
        (lambda: mg.PopulationAnnealing(overlap=1.0), "overlap must be between 0 and 1, got 1.0"),
        (lambda: annealed(IMPLICIT["kernel"]), "stored pairs"),
        (lambda: annealed(next(iter(HARD.values()))), "without hard constraints"),
        (lambda: annealed(SIGNS, observe="energy"), "takes no observe="),
        (lambda: annealed(SIGNS, population=10**13), "use a smaller population"),
        (lambda: mg.sample(SIGNS, mg.PopulationAnnealing()), "sampler must be"),
    ],
)
def test_what_it_cannot_do_is_said(call, message):
    with pytest.raises((mg.SampleError, mg.TooLargeError), match=message):
        call()
