"""Chains on a real GPU against the CPU, by `make test-gpu`; skipped without a GPU."""

import csv
import importlib.util
import itertools
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import chi2

import minigibbs as mg
from tests.hard import HARD
from tests.harness import sample
from tests.settings import CASES, EXACT, SETTINGS
from tests.zoo import ZOO


def device_is_there():
    try:
        from minigibbs.running.backends.cuda_group import load_kernels

        load_kernels()
    except mg.MinigibbsError:
        return False
    return True


pytestmark = pytest.mark.skipif(not device_is_there(), reason="there is no GPU")

CHAINS = 40
TAILS = mg.PoissonGibbs(heavy=1, theta=0.5)


def integers(kind):
    """Return a graph with weights whose sums are exact in every order."""
    i, j = np.triu_indices(8, 1)
    weight = np.where((i + j) % 3 == 0, 1.0, 0.5)
    return mg.FactorGraph(np.full(8, 2 if kind == "ising" else 5), [mg.Potts(i, j, weight)])


def both(graph, sampler, **options):
    options = {
        "updates": 800,
        "chains": CHAINS,
        "seed": 3,
        "thin": 8,
        "scan": "shared",
        "record": ("marginals", "draws"),
        "progress": False,
        **options,
    }
    return (
        sample(graph, sampler, **options),
        sample(graph, sampler, backend="cuda", record_chains=options["chains"], **options),
    )


@pytest.mark.parametrize("kind", ["ising", "potts"])
@pytest.mark.parametrize(
    "sampler",
    [mg.Gibbs(fields=False), mg.Gibbs(textbook=True), mg.Gibbs(fields=True), TAILS],
    ids=["gibbs", "textbook", "fields", "poisson-gibbs"],
)
def test_the_same_chains_bit_for_bit_on_exact_weights(sampler, kind):
    cpu, gpu = both(integers(kind), sampler)
    np.testing.assert_array_equal(cpu.draws, gpu.draws)


@pytest.mark.parametrize("scan", ["random", "systematic", "shared"])
def test_the_same_chains_for_every_scan_that_is_the_same(scan):
    cpu, gpu = both(integers("potts"), mg.Gibbs(fields=False), scan=scan)
    np.testing.assert_array_equal(cpu.draws, gpu.draws)


# Exact samplers have a test of their distribution below; the simulator compares all with the CPU.
INEXACT = sorted(set(SETTINGS) - set(EXACT) - {"double-min"})  # sums logarithms


@pytest.mark.parametrize("name", ["gibbs", "gibbs-fields", *INEXACT])
def test_nearly_all_chains_are_the_same_elsewhere(name):
    """A last bit of exp or log may rarely change a chain, but not its distribution."""
    cpu, gpu = both(ZOO["potts"], SETTINGS[name].sampler)
    assert (cpu.draws == gpu.draws).all(axis=(1, 2)).mean() > 0.5


@pytest.mark.parametrize("model", ["tables", "logical", "mixed", "evidence", "large"])
def test_every_factor_kind(model):
    cpu, gpu = both(ZOO[model], TAILS)
    assert (cpu.draws == gpu.draws).all(axis=(1, 2)).mean() > 0.5


@pytest.mark.parametrize("name", CASES)
def test_every_layout_and_implicit_group(name):
    cpu, gpu = both(CASES[name].graph, CASES[name].sampler)
    assert (cpu.draws == gpu.draws).all(axis=(1, 2)).mean() > 0.5


@pytest.mark.parametrize("name", sorted(set(EXACT) - {"gibbs-fields"}))
def test_distribution(name):
    """Test the last states of independent chains by chi-square; false alarms: 1 in 10,000."""
    graph, chains = ZOO["potts"], 20_000
    run = sample(
        graph,
        EXACT[name].sampler,
        backend="cuda",
        chains=chains,
        record_chains=chains,
        sweeps=300,
        thin=300,
        record="draws",
        seed=11,
        progress=False,
    )
    states, distribution = mg.exact_distribution(graph)
    sizes = graph.sizes.astype(int)
    numbers = np.ravel_multi_index(run.draws[:, -1].astype(int).T, sizes)
    counts = np.bincount(numbers, minlength=len(states))
    expected = chains * distribution
    statistic = ((counts - expected) ** 2 / expected)[expected > 5].sum()
    cells = int((expected > 5).sum())
    assert statistic < chi2.isf(1e-4, cells - 1)
    off = chains * np.roll(distribution, 1)  # a wrong distribution must fail
    assert ((counts - off) ** 2 / off)[off > 5].sum() > chi2.isf(1e-4, cells - 1)


def test_marginals_and_diagnostics_of_a_run():
    graph = mg.models.ising_lattice(side=4, beta=0.2)
    run = sample(graph, backend="cuda", chains=4096, sweeps=2000, seed=1, progress=False)
    exact = mg.exact_marginals(graph)
    assert np.abs(run.marginals - exact).max() < 0.01  # seven standard errors
    assert run.counts.shape == (64, 32)
    assert run.energy.shape == (64, 1000)
    assert run.info.updates == 4096 * 2000 * 16
    assert run.info.backend == "cuda"
    assert 0.99 < run.summary().energy_rhat < 1.02


@pytest.mark.parametrize("record", [("draws",), ("marginals", "draws", "energy")])
def test_draws_of_chosen_variables_are_those_of_all(record):
    graph, chosen = integers("potts"), [5, 0]
    options = {"sweeps": 50, "chains": 1000, "record_chains": 300, "seed": 3, "record": record}
    whole = sample(graph, backend="cuda", progress=False, **options)
    some = sample(graph, backend="cuda", progress=False, record_variables=chosen, **options)
    np.testing.assert_array_equal(some.draws, whole.draws[:, :, chosen])
    assert some.drawn.tolist() == chosen
    assert (some.draws != some.draws[:, :1]).any()
    if "energy" in record:
        np.testing.assert_array_equal(some.energy, whole.energy)
        np.testing.assert_array_equal(some.energy, [graph.energy(x) for x in whole.draws])
        np.testing.assert_array_equal(some.counts, whole.counts)


@pytest.mark.parametrize(
    ("states", "chains", "kept"),
    [(5, 1000, 7), (5, 1000, 300), (5, 2_200_000, 68_000), (20_000, 1000, 7)],
)
def test_counts_are_those_of_the_chains_from_a_kept_one_to_the_next(states, chains, kept):
    """Groups are larger or smaller than a warp, more than a grid is high, with large domains."""
    graph = mg.FactorGraph([states] * 3, [mg.Potts([0, 1, 2], [1, 2, 0], 1.0)])
    options = {"backend": "cuda", "updates": 3, "thin": 3, "seed": 3, "progress": False}
    counts = sample(graph, chains=chains, record_chains=kept, record="marginals", **options).counts
    draws = sample(graph, chains=chains, record_chains=chains, record="draws", **options).draws
    heads = np.arange(kept) * chains // kept
    group = np.searchsorted(heads, np.arange(chains), side="right") - 1
    expected = np.zeros((kept, 3 * states), np.int64)  # the state at the end is counted
    for variable in range(3):
        np.add.at(expected, (group, variable * states + draws[:, 0, variable].astype(int)), 1)
    np.testing.assert_array_equal(counts, expected)


def ring(n, states):
    """Return a model without minibatched factors, which chromatic scans update by blocks."""
    i = np.arange(n)
    return mg.FactorGraph([states] * n, [mg.Potts(i, (i + 1) % n, 0.5)])


SMALL = {
    "potts-8": ring(8, 3),
    "potts-100": ring(100, 3),
    "potts-10-values": ring(8, 10),
    "spins-8": ring(8, 2),
}


@pytest.mark.parametrize(
    ("name", "chains"),
    [
        ("potts-8", 131_072),
        ("potts-8", 2_097_152),
        ("potts-100", 131_072),
        ("potts-10-values", 131_072),
        ("spins-8", 2_097_120),
        ("spins-8", 4_194_304),
    ],
)
def test_default_calls_of_small_models_with_many_chains(name, chains):
    """Blocks exceed the second axis of a grid; marginals are equal by symmetry."""
    graph = SMALL[name]
    run = sample(graph, backend="cuda", chains=chains, sweeps=20, seed=1, progress=False)
    assert run.info.scan == "chromatic"
    share = np.stack([np.bincount(run.state[:, i], minlength=graph.sizes[0]) for i in (0, 7)])
    expected = chains / graph.sizes[0]
    assert np.abs(share - expected).max() < 6 * expected**0.5  # false alarms: 1 in 10 million
    last = run.state[-1000:].astype(int)  # chains of the last blocks have changed, too
    assert len(np.unique(last, axis=0)) > 100


@pytest.mark.parametrize("scan", ["shared", "random"])
def test_marginals_of_few_variables_are_counted_every_sweep(scan):
    """The kernel that advances counts them, even if launches and records split sweeps."""
    graph = integers("potts")
    options = {"updates": 800, "chains": 100, "seed": 3, "scan": scan, "progress": False}
    record = {"record": ("marginals", "draws"), "thin": 8, "record_chains": 100}
    run = sample(graph, mg.Gibbs(), backend="cuda", **options, **record)
    assert (run.visits == 100).all()
    values = [(run.draws[:, :, i] == v).sum(axis=1) for i in range(8) for v in range(5)]
    np.testing.assert_array_equal(run.counts, np.transpose(values))


def test_two_variables_of_a_million_chains():
    graph, chains = mg.models.ising_lattice(side=20, beta=0.2), 10**6
    options = {"backend": "cuda", "chains": chains, "sweeps": 20, "seed": 1, "progress": False}
    run = sample(graph, record="draws", record_chains=chains, record_variables=["x7", 3], **options)
    assert run.draws.shape == (chains, 20, 2)
    last = run.draws[:, -1].mean(axis=0)  # chains are independent
    assert np.abs(last - 0.5).max() < 4.5 * 0.5 / chains**0.5  # false alarms: 1 in 70,000


def test_too_many_chains_are_refused_before_anything_is_placed():
    graph = mg.models.ising_lattice(side=300, beta=0.2)
    with pytest.raises(mg.TooLargeError, match="chains would fit"):
        sample(graph, backend="cuda", chains=30_000_000, sweeps=1, progress=False)


def test_a_run_saves_and_loads(tmp_path):
    run = sample(ZOO["potts"], backend="cuda", chains=256, sweeps=20, seed=1, progress=False)
    run.save(tmp_path / "run")
    np.testing.assert_array_equal(mg.load(tmp_path / "run").counts, run.counts)


def test_all_outputs_of_a_run_agree(tmp_path):
    """CSV, .MAR, summary, report and, if installed, pandas agree with `run.marginals`."""
    from minigibbs.formats import uai
    from minigibbs.results import tables

    graph = mg.models.potts_lattice(side=4, states=3, beta=0.5)
    run = sample(graph, backend="cuda", chains=1000, sweeps=200, seed=1, progress=False)
    np.testing.assert_allclose(run.marginals.sum(axis=1), 1.0)
    tables.write_csv(run, tmp_path / "run.csv")
    lines = list(csv.DictReader((tmp_path / "run.csv").read_text().splitlines()))
    written = np.array([float(line["probability"]) for line in lines])
    np.testing.assert_array_equal(written.reshape(16, 3), run.marginals)
    uai.write_marginals(run, tmp_path / "run.MAR")
    np.testing.assert_allclose(uai.read_marginals(tmp_path / "run.MAR"), run.marginals, atol=1e-6)
    assert (run.standard_errors < 0.05).all()
    if importlib.util.find_spec("pandas"):
        frame = run.to_pandas()
        np.testing.assert_array_equal(frame["probability"], run.marginals.ravel())
        np.testing.assert_array_equal(frame["standard_error"], run.standard_errors.ravel())
    assert run.summary().standard_error == run.standard_errors.max()
    run.report(tmp_path / "report.html")


KILLED = """
import os, signal, sys
import minigibbs as mg
from minigibbs.running.group import Group

from minigibbs.running.backends.cuda_group import CudaGroup

CudaGroup.segment_seconds = 0.001  # many short segments
original, left = Group.run_segment, [int(sys.argv[2])]

def run_segment(group):
    made = original(group)
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return made

Group.run_segment = run_segment
graph = mg.models.potts_lattice(side=8, states=3, beta=0.7)
mg.sample(graph, sweeps=4000, warmup=2, chains=2000, seed=5, scan=sys.argv[3], backend="cuda",
          record=("marginals", "draws", "energy"), checkpoint=sys.argv[1], every=0, progress=False)
"""


@pytest.mark.parametrize("scan", ["shared", "random"])
def test_a_killed_run_resumes_to_the_same_bits(scan, tmp_path):
    """A run of 256,000 updates per chain has several paths of a scan, and is killed on the way.

    The simulator's tests kill shuffled scans, which differ only on the host.
    """
    graph = mg.models.potts_lattice(side=8, states=3, beta=0.7)
    options = {"sweeps": 4000, "warmup": 2, "chains": 2000, "seed": 5, "scan": scan}
    record = ("marginals", "draws", "energy")
    whole = sample(graph, backend="cuda", record=record, progress=False, **options)
    folder = str(tmp_path / "run")
    command = [sys.executable, "-W", "ignore", "-c", KILLED, folder, "60", scan]
    assert subprocess.run(command, timeout=300).returncode == -9
    so_far = mg.load(folder)
    assert 0 < so_far.info.updates < whole.info.updates
    again = mg.resume(folder, progress=False)
    for name in ("clock", "counts", "visits", "kept_draws", "energy", "state"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(again, name))
    assert whole.info.factor_evaluations == again.info.factor_evaluations


def test_a_long_shared_scan_is_the_cpus(tmp_path):
    """After 65,536 updates a new path is generated; chains stay equal to those of the CPU."""
    cpu, gpu = both(integers("ising"), mg.Gibbs(fields=False), updates=150_000, thin=1000, chains=8)
    np.testing.assert_array_equal(cpu.draws, gpu.draws)


def test_until_and_going_on(tmp_path):
    graph = mg.models.ising_lattice(side=8, beta=0.2)
    options = {"backend": "cuda", "chains": 512, "seed": 1, "progress": False}
    run = mg.sample_until(graph, ess=4000, **options)
    assert run.info.ended == "converged"
    more = mg.sample(graph, sweeps=10, start=run, **options)
    assert more.state.shape == run.state.shape == (512, 64)


@pytest.mark.parametrize("graph", [ZOO["potts"], ZOO["ising"], *HARD.values()])
def test_ladders_follow_the_distribution(graph):
    """Test a thousand ladders after 200 rounds by chi-square of all marginals, at 1e-5 in total."""
    levels = tuple(np.linspace(0.0, 1.0, 6))
    run = mg.sample(
        graph,
        mg.Tempering(levels=levels, houdayer=False),
        sweeps=200,
        chains=1000,
        seed=5,
        backend="cuda",
        progress=False,
    )
    exact = mg.exact_marginals(graph)
    last = np.stack([run.state[:, i] for i in range(len(graph))], axis=1)
    for i, size in enumerate(graph.sizes):
        counts = np.bincount(last[:, i], minlength=size)
        possible = exact[i, :size] > 0
        assert not counts[~possible].any()
        wanted = 1000 * exact[i, :size][possible]
        if possible.sum() > 1:
            value = ((counts[possible] - wanted) ** 2 / wanted).sum()
            assert chi2.sf(value, possible.sum() - 1) > 1e-6
    log_z = mg.log_partition(graph)
    assert abs(run.ladder.log_z - log_z) < 8 * run.ladder.log_z_error + 1e-9


def test_a_ladder_is_that_of_the_cpu():
    """Sums of the weights are exact; few exponentials are rounded differently on a GPU."""
    sampler = mg.Tempering(mg.Gibbs(), (0.0, 0.5, 1.0), houdayer=True)
    options = {"sweeps": 60, "chains": 40, "seed": 3, "progress": False, "record": "draws"}
    here = mg.sample(integers("potts"), sampler, **options)
    there = mg.sample(integers("potts"), sampler, **options, backend="cuda")
    same = (here.state == there.state).all(axis=1).mean()
    assert same > 0.9  # exponentials may differ in the last bit, rarely with an effect


def test_a_resumed_ladder_is_the_same(tmp_path):
    sampler = mg.Tempering(levels=(0.0, 0.3, 1.0), houdayer=False)
    options = {"chains": 50, "seed": 3, "warmup": 0, "progress": False, "backend": "cuda"}
    whole = mg.sample(ZOO["potts"], sampler, sweeps=400, **options)
    folder = tmp_path / "run"
    mg.sample(ZOO["potts"], sampler, sweeps=150, checkpoint=folder, **options)
    resumed = mg.resume(folder, sweeps=250, progress=False)
    np.testing.assert_array_equal(whole.state, resumed.state)
    np.testing.assert_array_equal(whole.counts, resumed.counts)
    assert whole.ladder == resumed.ladder


def up_and_first(x):
    """User function with loops, and a tuple of several types."""
    ones = 0
    for i in range(len(x)):
        ones += x[i] == 1
    return ones / len(x), x[0] == x[1]


OBSERVED = {
    "energy": mg.observables.Energy(),
    "m": mg.observables.Magnetization(),
    "moments": mg.observables.Moments(),
    "distribution": mg.observables.Histogram(bins=5),
    "order": mg.observables.PottsOrder(),
    "ones": mg.observables.Count(1),
    "both": mg.observables.JointEvent({0: 1, 5: 0}),
    "same": mg.observables.Agreement(np.arange(36) % 2),
    "pairs": mg.observables.Correlations((6, 6), periodic=False),
    "waves": mg.observables.StructureFactor((6, 6), 3),
    "own": up_and_first,
    "own distribution": mg.observables.Histogram(lambda x: x[0] + 0.5 * x[1], 0.0, 2.0, 4),
}


@pytest.mark.parametrize("rows", [CHAINS, 7])
def test_observables_are_those_of_the_cpu(rows):
    """Every chain is measured; a row is the mean over its chains."""
    graph = mg.models.ising_lattice(side=6, beta=0.25)
    options = {"chains": CHAINS, "seed": 3, "sweeps": 20, "scan": "shared", "progress": False}
    record = {"cpu": mg.Record("draws", thin=2), "cuda": mg.Record("draws", thin=2, chains=rows)}
    cpu = mg.sample(
        graph, mg.Gibbs(fields=False), record=record["cpu"], observe=OBSERVED, **options
    )
    gpu = mg.sample(
        graph,
        mg.Gibbs(fields=False),
        record=record["cuda"],
        observe=OBSERVED,
        backend="cuda",
        **options,
    )
    heads = [k * CHAINS // rows for k in range(rows)]
    np.testing.assert_array_equal(gpu.draws, cpu.draws[heads])  # guards the line below
    ends = [*heads, CHAINS]
    series = cpu.observed.series
    means = [series[a:b].mean(axis=0) for a, b in itertools.pairwise(ends)]
    np.testing.assert_allclose(gpu.observed.series, means, rtol=1e-12, atol=1e-12)


def test_an_observable_that_allocates_is_refused():
    graph = mg.models.ising_lattice(side=4, beta=0.25)
    with pytest.raises(mg.SampleError, match="cannot be measured"):
        mg.sample(graph, observe={"a": lambda x: np.ones(3)}, backend="cuda", progress=False)
