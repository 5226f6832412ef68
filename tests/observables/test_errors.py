"""Error bars cover the true values, and derived quantities have correct errors."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

import minigibbs as mg
from minigibbs.results.observed import Blocks, Observed, of_series
from minigibbs.running import request as asked

QUIET = {"progress": False, "seed": 5}
PAIR = mg.FactorGraph([2, 2, 2], [mg.Ising([0, 1], [1, 2], [0.4, 0.7])])


def autoregressive(rng, memory, rows, records):
    """Draw stationary Gaussian series of mean 0, variance 1 and correlations memory^t."""
    series = np.empty((rows, records))
    series[:, 0] = rng.normal(size=rows)
    noise = rng.normal(size=(rows, records)) * math.sqrt(1 - memory**2)
    for k in range(1, records):
        series[:, k] = memory * series[:, k - 1] + noise[:, k]
    return series


def covered(estimate, truth=0.0):
    low, high = estimate.interval(0.9)
    return low <= truth <= high


def coverage(memory, error_of, runs=400):
    rng = np.random.default_rng(11)
    return sum(covered(error_of(autoregressive(rng, memory, 4, 1000))) for _ in range(runs))


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9, 0.97])
def test_intervals_cover_the_mean(memory):
    """Test 90% intervals; with blocks of 10 autocorrelation times errors are up to 5% too small.

    So the true coverage is at least 88%. A count below the 1e-5 quantile of its distribution is a
    false alarm once in 100,000 times for each memory.
    """
    count = coverage(memory, lambda series: of_series("a", series).estimate)
    assert count >= binom.ppf(1e-5, 400, 0.88)
    assert count <= binom.ppf(1 - 1e-5, 400, 0.92)


def test_errors_of_independent_records_would_cover_too_little():
    """Negative control: an estimate without correlations fails the test above."""

    def naive(series):
        error = series.std() / math.sqrt(series.size)
        return mg.observables.Estimate(series.mean(), error, series.size)

    assert coverage(0.9, naive) < binom.ppf(1e-5, 400, 0.88)


def batched(series):
    """Convert a series to running moments and batch sums."""
    from minigibbs.kernels.observe import BATCHES, accumulate

    rows = len(series)
    count = np.zeros(rows, np.int64)
    moments, sums = np.zeros((rows, 2, 1)), np.zeros((rows, BATCHES, 1))
    for row in range(rows):
        accumulate(series[row, :, None], count[row : row + 1], moments[row], sums[row])
    return Observed(("a",), (("",),), None, count, moments, sums)


@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_intervals_from_batches_cover_as_well(memory):
    """Autocorrelation times from batches of 8 records are less accurate: coverage is 85%."""
    count = coverage(memory, lambda s: batched(s).blocks.jackknife(lambda mean: mean[0]))
    assert count >= binom.ppf(1e-5, 400, 0.85)
    assert count <= binom.ppf(1 - 1e-5, 400, 0.93)


def test_times_and_sample_sizes_are_known_for_a_gaussian_series():
    """The time is (1 + a) / (1 - a) = 9 records for a = 0.8, estimated to about 10%."""
    series = autoregressive(np.random.default_rng(1), 0.8, 4, 5000)
    whole = of_series("a", series)
    assert whole.autocorrelation_time == pytest.approx(9.0, rel=0.25)
    assert whole.ess == pytest.approx(20_000 / 9.0, rel=0.25)
    assert whole.variance == pytest.approx(1.0, rel=0.15)
    light = batched(series)
    assert light.times[0] == pytest.approx(9.0, rel=0.35)
    assert light.rhat[0] == pytest.approx(whole.rhat, abs=0.01)
    stuck = series + 3.0 * np.arange(4)[:, None]
    assert of_series("a", stuck).rhat > 1.5
    assert batched(stuck).rhat[0] > 1.5


def test_the_jackknife_of_a_linear_function_is_the_plain_error():
    rng = np.random.default_rng(0)
    sums, sizes = rng.normal(size=(12, 2)), np.full(12, 1)
    blocks = Blocks(sums, sizes)
    plain = sums.std(axis=0, ddof=1) / math.sqrt(12)
    np.testing.assert_allclose(blocks.jackknife(lambda mean: mean).error, plain)
    both = blocks.jackknife(lambda mean: 3.0 * mean[0] - mean[1])
    expected = (3.0 * sums[:, 0] - sums[:, 1]).std(ddof=1) / math.sqrt(12)
    assert both.error == pytest.approx(expected)
    assert blocks.bootstrap(lambda mean: mean).error == pytest.approx(plain, rel=0.15)


def test_one_block_has_no_error():
    alone = Blocks(np.ones((1, 1)), np.ones(1, np.int64))
    assert math.isnan(alone.jackknife(lambda mean: mean[0]).error)
    assert math.isnan(alone.bootstrap(lambda mean: mean[0]).error)
    with pytest.raises(mg.SampleError, match="jackknife or bootstrap"):
        alone.estimate(lambda mean: mean, "guess")


def exactly(graph, function, scale=1.0):
    """Return the mean of a function by enumeration, with all energies multiplied by `scale`."""
    states = np.stack(np.meshgrid(*map(np.arange, graph.sizes), indexing="ij"), -1)
    states = states.reshape(-1, len(graph))
    weight = np.exp(scale * graph.log_potential(states))
    return float((weight * function(states)).sum() / weight.sum())


def m_of(states):
    return 2.0 * states.mean(axis=1) - 1.0


DERIVED = {
    "binder": (
        mg.observables.binder,
        lambda: (
            1
            - exactly(PAIR, lambda s: m_of(s) ** 4) / 3 / exactly(PAIR, lambda s: m_of(s) ** 2) ** 2
        ),
    ),
    "susceptibility": (
        mg.observables.susceptibility,
        lambda: (
            3 * (exactly(PAIR, lambda s: m_of(s) ** 2) - exactly(PAIR, lambda s: abs(m_of(s))) ** 2)
        ),
    ),
    "specific heat": (
        lambda run: mg.observables.specific_heat(run, "e"),
        lambda: (
            (exactly(PAIR, lambda s: PAIR.energy(s) ** 2) - exactly(PAIR, PAIR.energy) ** 2) / 3
        ),
    ),
}
WITHIN = norm.isf(1e-5 / 2)  # largest error in standard errors; false alarm once in 100,000 times


@pytest.mark.parametrize("moments", [False, True], ids=["series", "moments"])
@pytest.mark.parametrize("name", DERIVED)
def test_derived_quantities_are_those_of_the_model(name, moments, monkeypatch):
    """Draws are independent, and 128 blocks give errors that are accurate to about 6%."""
    observe = {"m": "magnetization", "e": "energy"}
    if moments:
        monkeypatch.setattr(asked, "_MOST_SERIES", 0)
        observe = {
            "m": mg.observables.Moments(),
            "e": mg.observables.Moments(mg.observables.Energy()),
        }
    run = mg.sample(
        PAIR,
        mg.ExactSampler(),
        sweeps=4000,
        record=mg.Record("energy", thin=1),
        observe=observe,
        **QUIET,
    )
    function, truth = DERIVED[name]
    found = function(run)
    assert abs(found.value - truth()) < WITHIN * found.error
    assert 0 < found.error < 0.05


@pytest.mark.parametrize("scale", [0.7, 1.0, 1.3])
def test_reweighting_gives_the_means_of_the_other_model(scale):
    observe = {"m2": mg.observables.Magnetization(2), "e": "energy"}
    record = mg.Record("energy", thin=1)
    run = mg.sample(PAIR, mg.ExactSampler(), sweeps=4000, record=record, observe=observe, **QUIET)
    found = mg.observables.reweight(run, "m2", scale)
    truth = exactly(PAIR, lambda s: m_of(s) ** 2, scale)
    assert abs(found.value - truth) < WITHIN * found.error
    several = mg.observables.reweight(run, "m2", [1.0, scale], energy="e")
    assert several.value[1] == pytest.approx(found.value)
    assert several.value[0] == pytest.approx(run.observables["m2"].mean)
    if scale != 1.0:  # negative control: without weights the value differs
        other = run.observables["m2"]
        assert abs(other.mean - truth) > WITHIN * other.error


def test_reweighting_too_far_is_refused():
    graph = mg.models.ising_lattice(side=12, beta=0.3)
    run = mg.sample(graph, sweeps=200, record="energy", observe={"m": "magnetization"}, **QUIET)
    with pytest.raises(mg.SampleError, match="worth"):
        mg.observables.reweight(run, "m", 2.0)
    fewer = mg.sample(graph, sweeps=200, record=mg.Record("energy", thin=2), **QUIET)
    with pytest.raises(mg.SampleError, match="did not observe"):
        mg.observables.reweight(fewer, "m", 1.01)


def test_derived_quantities_say_what_they_need(monkeypatch):
    graph = mg.models.ising_lattice(side=4, beta=0.3)
    waves = mg.observables.Correlations((4, 4))
    run = mg.sample(
        graph, sweeps=50, record="energy", observe={"c": waves, "m": "magnetization"}, **QUIET
    )
    with pytest.raises(mg.SampleError, match="needs a StructureFactor"):
        mg.observables.correlation_length(run, "m")
    with pytest.raises(mg.SampleError, match="gives 2 numbers"):
        mg.observables.binder(run, "c")
    with pytest.raises(mg.SampleError, match="no energy"):
        mg.observables.specific_heat(run, "c")
    with pytest.raises(mg.SampleError, match="kept no draws"):
        mg.observables.overlap(run)
    monkeypatch.setattr(asked, "_MOST_SERIES", 0)
    light = mg.sample(graph, sweeps=50, observe={"m": "magnetization"}, **QUIET)
    with pytest.raises(mg.SampleError, match="kept moments and no series"):
        mg.observables.binder(light)


def test_the_correlation_length_of_a_line_is_known():
    """For a ring of spins, S(k) and the second-moment correlation length have closed forms.

    With t = tanh(K) the length is sqrt(t) / (1 - t), up to terms of order t^64.
    """
    side, coupling = 64, 0.6
    ring = mg.FactorGraph([2] * side, [mg.Ising(range(side), [*range(1, side), 0], coupling)])
    waves = mg.observables.StructureFactor((side,))
    run = mg.sample(ring, mg.ExactSampler(), sweeps=2000, observe={"s": waves}, **QUIET)
    found = mg.observables.correlation_length(run, "s", side=side)
    t = math.tanh(coupling)
    assert abs(found.value - math.sqrt(t) / (1 - t)) < WITHIN * found.error
    with pytest.raises(mg.SampleError, match="are not a square"):
        mg.observables.correlation_length(
            mg.sample(
                mg.FactorGraph([2] * 12, []),
                sweeps=5,
                observe={"s": mg.observables.StructureFactor((12,))},
                **QUIET,
            ),
            "s",
        )


def test_overlaps_pair_the_chains():
    run = mg.sample(PAIR, sweeps=30, chains=5, record="draws", **QUIET)
    found = mg.observables.overlap(run)
    spins = 2.0 * run.draws.astype(float) - 1.0
    expected = [(spins[0] * spins[1]).mean(axis=1), (spins[2] * spins[3]).mean(axis=1)]
    np.testing.assert_allclose(found.series, expected)
    with pytest.raises(mg.SampleError, match="two chains"):
        mg.observables.overlap(mg.sample(PAIR, sweeps=3, chains=1, record="draws", **QUIET))


@pytest.mark.parametrize("scale", [[], math.nan, math.inf, [1.0, math.nan], "1", None, [[1.0]]])
def test_reweighting_needs_finite_scales(scale):
    run = mg.sample(PAIR, sweeps=20, record="energy", observe={"m": "magnetization"}, **QUIET)
    with pytest.raises(mg.SampleError, match=r"scale must be a (finite )?number"):
        mg.observables.reweight(run, "m", scale)


def test_an_estimate_that_is_nan_comes_with_a_warning():
    """The mean has a square root, but the mean without the last block has none."""
    blocks = Blocks(np.array([[1.0], [-1.5], [2.0]]), np.ones(3, np.int64))

    def root(mean):
        return math.sqrt(mean[0]) if mean[0] >= 0 else math.nan

    with pytest.warns(UserWarning, match="is NaN: the function has no value"):
        found = blocks.estimate(root)
    assert found.value == pytest.approx(math.sqrt(0.5))
    assert math.isnan(found.error)
    with pytest.warns(UserWarning, match="is NaN"):
        assert math.isnan(blocks.estimate(lambda mean: math.nan, "bootstrap").value)


@pytest.mark.parametrize("memory", [0.99, 0.997])
def test_intervals_of_slow_chains_cover(memory):
    """Chains have 5 to 50 autocorrelation times: their blocks are dependent, chains are not.

    90% intervals by four chains have the stated coverage. A count below the 1e-5 quantile for 88%,
    or above that for 92%, is a false alarm once in 100,000 times. Blocks cover 80%.
    """
    count = coverage(memory, lambda series: of_series("a", series).estimate)
    assert binom.ppf(1e-5, 400, 0.88) <= count <= binom.ppf(1 - 1e-5, 400, 0.92)


def test_derived_quantities_of_slow_chains_cover():
    """The blocks of a slow series are too short to estimate the error of its variance."""

    def variance(series):
        moments = np.stack([series, series**2], axis=-1)
        blocks = of_series("a", moments, ("1", "2")).data.blocks
        return blocks.estimate(lambda mean: mean[1] - 1.0)

    count = coverage(0.99, variance)
    assert count >= binom.ppf(1e-5, 400, 0.85)  # from four chains of a skewed quantity


def test_chains_that_differ_have_the_error_of_chains():
    """Each chain has a different mean, of which its blocks have no information."""
    rng = np.random.default_rng(1)
    series = rng.normal(size=(4, 1000)) + np.array([[-1.0], [-0.5], [0.5], [1.0]])
    found = of_series("a", series).estimate
    assert found.blocks == 4
    assert found.error == pytest.approx(series.mean(axis=1).std(ddof=1) / 2, rel=1e-6)
    alike = of_series("a", rng.normal(size=(4, 1000))).estimate
    assert alike.blocks > 32


def test_chains_that_differ_by_more_than_their_blocks_have_the_error_of_chains():
    """Blocks that are numerous and look independent do not show how chains differ."""
    rng, count = np.random.default_rng(2), np.ones(160, np.int64)
    values, rows = rng.normal(size=(4, 40)), np.repeat(np.arange(4), 40)
    alike = Blocks(values.reshape(-1, 1), count, rows).estimate(lambda mean: mean[0])
    assert alike.blocks == 160
    values += np.array([[-1.0], [-0.5], [0.5], [1.0]])
    found = Blocks(values.reshape(-1, 1), count, rows).estimate(lambda mean: mean[0])
    assert found.blocks == 4
    assert found.error == pytest.approx(values.mean(axis=1).std(ddof=1) / 2, rel=1e-6)
