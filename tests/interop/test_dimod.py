"""dimod: its conformance tests, comparison with its exact solvers, and models of every kind."""

import unittest

import numpy as np
import pytest

import minigibbs as mg
from tests.harness import chi_square

dimod = pytest.importorskip("dimod")
pytest.importorskip("dimod.testing")
from minigibbs.interop.dimod import MiniGibbsAnnealer, MiniGibbsSampler  # noqa: E402


@dimod.testing.load_sampler_bqm_tests(MiniGibbsSampler)
class TestConformance(unittest.TestCase):
    def test_sampler_api(self):
        dimod.testing.assert_sampler_api(MiniGibbsSampler())


@dimod.testing.load_sampler_bqm_tests(MiniGibbsAnnealer)
class TestConformanceOfTheAnnealer(unittest.TestCase):
    def test_sampler_api(self):
        dimod.testing.assert_sampler_api(MiniGibbsAnnealer())


LABELS = ["a", 0, (1, "b"), frozenset({2}), "0", -1.5]


def random_bqm(vartype, kind=dimod.BinaryQuadraticModel, seed=3):
    """Return a model of six variables with mixed labels, one of them isolated, and an offset."""
    rng = np.random.default_rng(seed)
    bqm = kind(vartype)
    for label in LABELS:
        bqm.add_variable(label, rng.normal())
    for i, j in [(0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (4, 3)]:
        bqm.add_quadratic(LABELS[i], LABELS[j], rng.normal())
    bqm.offset = 0.75
    return bqm


def random_dqm(seed=4):
    rng = np.random.default_rng(seed)
    dqm = dimod.DiscreteQuadraticModel()
    for label, cases in zip(LABELS[:5], [3, 2, 3, 1, 4], strict=True):
        dqm.set_linear(dqm.add_variable(cases, label), rng.normal(size=cases))
    for i, j in [(1, 0), (1, 2), (4, 3)]:
        u, v = LABELS[i], LABELS[j]
        cases = [(a, b) for a in range(dqm.num_cases(u)) for b in range(dqm.num_cases(v))]
        dqm.set_quadratic(u, v, {case: rng.normal() for case in cases[::2]})
    dqm.set_quadratic("a", LABELS[2], {(k, k): -0.5 for k in range(3)})  # Potts
    dqm.offset = -1.25
    return dqm


def exact(sampleset, variables):
    """Return states in the order of some variables, and their energies."""
    order = [sampleset.variables.index(v) for v in variables]
    return sampleset.record.sample[:, order], sampleset.record.energy


@pytest.mark.parametrize("kind", [dimod.Float64BQM, dimod.Float32BQM, dimod.DictBQM])
@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
def test_energies_of_all_states_of_a_bqm(vartype, kind):
    bqm = random_bqm(vartype, kind)
    graph = mg.from_bqm(bqm, beta=0.6)
    states, energies = exact(dimod.ExactSolver().sample(bqm), bqm.variables)
    tolerance = 1e-5 if kind is dimod.Float32BQM else 1e-12
    np.testing.assert_allclose(
        graph.energy((states > 0).astype(int)), 0.6 * energies, atol=tolerance
    )
    low, high = sorted(bqm.vartype.value)
    assert graph.domains.values(2) == (low, high)
    assert graph.condition({"a": high}).evidence[0] == 1


def test_an_offset_is_not_rounded_with_the_other_biases():
    bqm = dimod.DictBQM({"a": 1, "b": 2}, {}, 0.5, "BINARY")
    assert mg.from_bqm(bqm).energy([0, 0]) == 0.5


def test_names_of_labels_of_any_kind():
    names = mg.from_bqm(random_bqm("SPIN")).names
    assert names == ("a", "0 (int)", "(1, 'b')", "frozenset({2})", "0", "-1.5")


def test_energies_of_all_states_of_a_dqm():
    dqm = random_dqm()
    graph = mg.from_dqm(dqm, beta=1.7)
    assert sorted(group.kind for group in graph.factors if len(group)).count("potts") == 1
    states, energies = exact(dimod.ExactDQMSolver().sample_dqm(dqm), dqm.variables)
    assert len(states) == 3 * 2 * 3 * 1 * 4
    np.testing.assert_allclose(graph.energy(states), 1.7 * energies, atol=1e-12)


def test_labels_of_cases():
    dqm = dimod.CaseLabelDQM()
    dqm.add_variable(["red", "blue"], label="color", shared_labels=True)
    dqm.add_variable(3, label="size")
    dqm.set_linear("size", [0.0, 1.0, 2.0])
    graph = mg.from_dqm(dqm)
    assert graph.domains.values(0) == ("red", "blue")
    assert graph.domains.values(1) == (0, 1, 2)


SWEEPS = 400


def boltzmann(sampleset, variables, sizes, beta):
    """Return the probabilities of all numbered states, from the energies of an exact solver."""
    states, energies = exact(sampleset, variables)
    weights = np.exp(-beta * (energies - energies.min()))
    return (weights / weights.sum())[np.argsort(numbered(states, sizes))]


def numbered(states, sizes):
    values = states > 0 if set(np.unique(states)) <= {-1, 1} else states
    return np.ravel_multi_index(tuple(values.astype(int).T), sizes)


def assert_long_enough(graph):
    """Check that a chain from a uniform start has converged, so that the tests' null is exact."""
    step = mg.theory.transition(graph, mg.Gibbs())
    distribution = np.full(len(step.distribution), 1 / len(step.distribution))
    distribution = distribution @ np.linalg.matrix_power(step.matrix, SWEEPS * len(graph))
    assert (
        np.abs(distribution - step.distribution).sum() < 1e-3
    )  # with 1,500 reads, chi-square detects 0.1


def reads_of(sample, model):
    return sample(model, num_reads=1500, num_sweeps=SWEEPS, beta=0.7, sampler="gibbs", seed=5)


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
def test_reads_follow_the_boltzmann_distribution(vartype):
    """Chi-square test at 1e-4; another temperature is the control."""
    bqm, sizes = random_bqm(vartype), (2,) * 6
    assert_long_enough(mg.from_bqm(bqm, beta=0.7))
    reads = reads_of(MiniGibbsSampler().sample, bqm)
    dimod.testing.assert_response_energies(reads, bqm)
    numbers = numbered(exact(reads, bqm.variables)[0], sizes)
    everything = dimod.ExactSolver().sample(bqm)
    assert chi_square(numbers, boltzmann(everything, bqm.variables, sizes, 0.7)) > 1e-4
    assert chi_square(numbers, boltzmann(everything, bqm.variables, sizes, 0.5)) < 1e-4


def test_reads_of_a_dqm_follow_the_boltzmann_distribution():
    dqm = random_dqm()
    sizes = tuple(dqm.num_cases(v) for v in dqm.variables)
    assert_long_enough(mg.from_dqm(dqm, beta=0.7))
    reads = reads_of(MiniGibbsSampler().sample_dqm, dqm)
    dimod.testing.asserts.assert_sampleset_energies_dqm(reads, dqm)
    everything = dimod.ExactDQMSolver().sample_dqm(dqm)
    assert reads.vartype is everything.vartype
    numbers = numbered(exact(reads, dqm.variables)[0], sizes)
    assert chi_square(numbers, boltzmann(everything, dqm.variables, sizes, 0.7)) > 1e-4
    assert chi_square(numbers, boltzmann(everything, dqm.variables, sizes, 0.5)) < 1e-4


def test_the_same_seed_gives_the_same_reads():
    sampler, bqm = MiniGibbsSampler(), random_bqm("SPIN")
    first, second = (sampler.sample(bqm, num_reads=9, num_sweeps=3, seed=1) for _ in range(2))
    np.testing.assert_array_equal(first.record.sample, second.record.sample)
    other = sampler.sample(bqm, num_reads=9, num_sweeps=3, seed=2)
    assert (other.record.sample != first.record.sample).any()
    assert first.info["seed"] == 1
    assert first.info["sampler"] == "PoissonGibbs()"
    assert set(first.info["timing"]) == {"preprocessing_ns", "sampling_ns", "postprocessing_ns"}
    assert all(time > 0 for time in first.info["timing"].values())


def test_initial_states_of_other_variables_are_refused():
    bqm = dimod.BinaryQuadraticModel({"a": -1.0}, {"ab": 1.0}, 0.0, "SPIN")
    with pytest.raises(mg.SampleError, match="initial_states and initial_states_generator: mis"):
        MiniGibbsSampler().sample(bqm, initial_states={"c": 1})


def test_initial_states():
    """At a very low temperature a chain stays in its initial local minimum."""
    bqm = dimod.BinaryQuadraticModel({"a": 0.01}, {"ab": -1.0, "bc": -1.0}, 0.0, "SPIN")
    sampler = MiniGibbsSampler()
    starts = [{"c": 1, "a": 1, "b": 1}, {"a": -1, "b": -1, "c": -1}]
    reads = sampler.sample(bqm, initial_states=starts, beta=300.0, num_sweeps=5, seed=1)
    assert [sample["a"] for sample in reads.samples(sorted_by=None)] == [1, -1]
    tiled = sampler.sample(
        bqm, initial_states=starts, initial_states_generator="tile", num_reads=4, beta=300.0
    )
    assert tiled.record.sample[:, 0].tolist() == [1, -1, 1, -1]


@pytest.mark.parametrize("sampler", ["gibbs", mg.Gibbs(fields=True)])
def test_other_samplers(sampler):
    reads = MiniGibbsSampler().sample(random_bqm("BINARY"), sampler=sampler, num_sweeps=5, seed=1)
    assert len(reads) == 1
    assert reads.info["sampler"].startswith("Gibbs")


def test_empty_models():
    sampler = MiniGibbsSampler()
    reads = sampler.sample(dimod.BinaryQuadraticModel({}, {}, 1.5, "SPIN"), num_reads=3)
    assert reads.record.energy.tolist() == [1.5] * 3
    dqm = dimod.DiscreteQuadraticModel()
    dqm.offset = 2.5
    reads = sampler.sample_dqm(dqm, num_reads=2)
    assert reads.record.energy.tolist() == [2.5] * 2
    for convert, model in ((mg.from_bqm, dimod.BQM("SPIN")), (mg.from_dqm, dqm)):
        with pytest.raises(mg.GraphError, match="no variables"):
            convert(model)


def test_options_of_other_samplers_are_named_in_a_warning():
    with pytest.warns(dimod.exceptions.SamplerUnknownArgWarning, match="annealing_time"):
        MiniGibbsSampler().sample(random_bqm("SPIN"), num_sweeps=1, annealing_time=20)


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
@pytest.mark.parametrize("beta_range", [None, (0.1, 20.0), (0.0, 20.0)])
def test_the_annealer_finds_the_least_energy(vartype, beta_range):
    for seed in range(4):
        bqm = random_bqm(vartype, seed=seed)
        reads = MiniGibbsAnnealer().sample(bqm, num_reads=3, beta_range=beta_range, seed=1)
        least = dimod.ExactSolver().sample(bqm).first
        dimod.testing.assert_response_energies(reads, bqm)
        assert reads.record.energy.tolist() == pytest.approx([least.energy] * 3)
        assert reads.vartype is bqm.vartype
        assert reads.info["seed"] == 1


def test_the_annealer_takes_discrete_models():
    dqm = random_dqm()
    reads = MiniGibbsAnnealer().sample_dqm(dqm, num_reads=3, seed=1)
    dimod.testing.asserts.assert_sampleset_energies_dqm(reads, dqm)
    least = dimod.ExactDQMSolver().sample_dqm(dqm).first.energy
    assert reads.record.energy.tolist() == pytest.approx([least] * 3)
    empty = dimod.DiscreteQuadraticModel()
    empty.offset = 2.5
    assert MiniGibbsAnnealer().sample_dqm(empty).record.energy.tolist() == [2.5]


def test_a_hot_range_is_used():
    """With only hot temperatures and few sweeps, reads are local minima, not always global ones.

    All 40 spins of the chain are equal at minimum energy. A climb can only move its domain walls.
    """
    chain = dimod.BQM({}, {(k, k + 1): -1.0 for k in range(39)}, 0.0, "SPIN")
    options = {"num_reads": 10, "num_sweeps": 2, "seed": 1}
    hot = MiniGibbsAnnealer().sample(chain, beta_range=(1e-4, 1e-3), **options)
    cold = MiniGibbsAnnealer().sample(chain, num_reads=10, seed=1)
    assert hot.record.energy.mean() > cold.record.energy.mean()
    assert cold.record.energy.tolist() == [-39.0] * 10


NAN = float("nan")
BAD = {
    "no model": (lambda: mg.from_bqm({"a": 1}), ["BinaryQuadraticModel", "dict"]),
    "a quadratic model of integers": (
        lambda: mg.from_bqm(dimod.QuadraticModel.from_bqm(random_bqm("SPIN"))),
        ["BinaryQuadraticModel", "got QuadraticModel"],
    ),
    "a bqm for a dqm": (lambda: mg.from_dqm(random_bqm("SPIN")), ["DiscreteQuadraticModel"]),
    "NaN bias": (
        lambda: mg.from_bqm(dimod.BQM({"a": NAN}, {}, 0, "SPIN")),
        ["variable 'a'", "nan"],
    ),
    "infinite interaction": (
        lambda: mg.from_bqm(dimod.BQM({}, {"ab": float("inf")}, 0, "BINARY")),
        ["'a'", "'b'", "inf"],
    ),
    "NaN offset": (lambda: mg.from_bqm(dimod.BQM({"a": 1}, {}, NAN, "SPIN")), ["offset", "nan"]),
    "negative beta": (lambda: mg.from_bqm(random_bqm("SPIN"), beta=-1), ["beta", "-1"]),
    "beta as text": (lambda: mg.from_dqm(random_dqm(), beta="1"), ["beta", "'1'"]),
    "no sweeps": (
        lambda: MiniGibbsSampler().sample(random_bqm("SPIN"), num_sweeps=0),
        ["num_sweeps", "at least 1", "got 0"],
    ),
    "a range that falls": (
        lambda: MiniGibbsAnnealer().sample(random_bqm("SPIN"), beta_range=(2.0, 1.0)),
        ["beta_range", "hottest", "(2.0, 1.0)"],
    ),
    "no searches": (
        lambda: MiniGibbsAnnealer().sample(random_bqm("SPIN"), num_reads=0),
        ["num_reads", "at least 1", "got 0"],
    ),
    "no rounds": (
        lambda: MiniGibbsAnnealer().sample_dqm(random_dqm(), num_sweeps=0),
        ["num_sweeps", "at least 1", "got 0"],
    ),
    "no reads": (
        lambda: MiniGibbsSampler().sample_dqm(random_dqm(), num_reads=0),
        ["num_reads", "at least 1", "got 0"],
    ),
    "negative seed": (
        lambda: MiniGibbsSampler().sample(random_bqm("SPIN"), seed=-1),
        ["seed", "-1"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    make, pieces = BAD[case]
    with pytest.raises(mg.MinigibbsError) as caught:
        make()
    missing = [piece for piece in pieces if piece not in str(caught.value)]
    assert not missing, f"{missing} not in {caught.value}"


def test_a_chromatic_scan():
    bqm = dimod.BinaryQuadraticModel({0: 0.1}, {(0, 1): -8.0, (1, 2): 8.0}, "SPIN")
    for reads in (3, 20):
        samples = MiniGibbsSampler().sample(
            bqm, num_reads=reads, num_sweeps=50, scan="chromatic", seed=1
        )
        values = samples.record.sample
        assert (values[:, 0] == values[:, 1]).all()
        assert (values[:, 1] == -values[:, 2]).all()
