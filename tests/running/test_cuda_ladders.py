"""Temperature ladders in Numba's CUDA simulator: the chains equal the CPU's bit by bit."""

import itertools
import json

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.running.backends import BACKENDS
from minigibbs.samplers.encoding import describe_sampler
from tests.harness import sample
from tests.running.simulate_cuda import flatten
from tests.running.test_cuda_simulator import simulate
from tests.samplers.test_small_ladders import mixed_domains

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

SWEEPS, WARMUP, SEED = 9, 2, 3
EVERYTHING = ["marginals", "draws", "energy"]
LATTICE = mg.models.ising_lattice(side=3, beta=0.4)


def glass(seed=0):
    """Return nine spins on a torus, with fields and couplings of all sizes."""
    rng = np.random.default_rng(seed)
    site = np.arange(9).reshape(3, 3)
    first, second = (
        np.tile(site.ravel(), 2),
        np.r_[np.roll(site, 1, 0), np.roll(site, 1, 1)].ravel(),
    )
    pairs = mg.Ising(first, second, rng.normal(0, 1, 18))
    return mg.FactorGraph([2] * 9, [pairs, mg.Unary([0, 4], rng.normal(0, 1, (2, 2)))])


def tempering(levels, houdayer):
    return mg.Tempering(levels=tuple(np.linspace(0, 1, levels)), houdayer=houdayer)


CASES = {  # graph, sampler, chains
    "one": (LATTICE, tempering(2, False), 1),
    "clusters": (glass(), tempering(5, True), 3),
    "groups": (glass(1), tempering(3, True), 34),
    "words": (LATTICE, tempering(33, True), 1),
    "clamped": (glass(2).condition({1: 1, 5: 0}), tempering(4, False), 3),
    "double": (mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], 90.0)]), tempering(3, True), 2),
    "single": (
        mg.FactorGraph([2, 1, 2], [mg.Potts([0, 1], [1, 2], [0.4, 0.9])]),
        tempering(3, False),
        2,
    ),
    "bytes": (mixed_domains(), tempering(4, False), 5),
    "bytes-clusters": (mixed_domains(), tempering(5, True), 3),
    "bytes-pairs": (mg.models.potts_lattice(3, 3, 0.9), tempering(3, True), 6),
}

KILLED = ("clusters", "bytes-clusters")  # cases of which a checkpoint is resumed
FEW = {"groups": (0, 0), "clamped": (0, 1 << 16)}  # one thread per word, and two; others have four
BEST = ("clusters", "bytes-clusters", "clamped")  # cases of which the best states are kept


def write_case(folder, name, file=None, **changes):
    graph, sampler, chains = CASES[name]
    arrays: list[np.ndarray] = []
    case = {
        "model": flatten(graph.packed, arrays),
        "data": flatten(sampler.prepare(graph, BACKENDS["cuda"].lanes), arrays),
        "offset": graph.offset,
        "sampler": describe_sampler(sampler),
        "buffer": 1 << 20,
        "segment": 4 * len(graph),
        "die_after": None,
        "resume": None,
        "own": False,
        "most_series": 1 << 20,
        "few": FEW.get(name, (1 << 14, 1 << 16)),
        "record": EVERYTHING,
        "record_options": {"chains": chains, "temperatures": True},
        "options": {
            **_options(name),
            "observe": {"ones": "count"},
        },
    }
    (folder / f"{file or name}.json").write_text(json.dumps(case | changes))
    np.savez(folder / f"{file or name}.npz", *arrays)
    mg.write(graph, folder / f"{file or name}.mg")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ladders")
    for name in CASES:
        write_case(folder, name)
    for name in KILLED:
        checkpoint = {**_options(name), "observe": {"ones": "count"}}
        checkpoint |= {"checkpoint": str(folder / f"{name}.zarr"), "every": 0.0}
        write_case(folder, name, f"a-{name}-killed", options=checkpoint, die_after=2)
        write_case(folder, name, f"{name}-resumed", resume=str(folder / f"{name}.zarr"))
    for name in BEST:
        options = {**_options(name), "warmup": 0, "observe": {}}
        write_case(folder, name, f"{name}-best", options=options, best=True)
        write_case(folder, name, f"{name}-maximum", maximize=(3, 7))
    done = simulate(folder)
    assert done.returncode == 0, done.stderr[-4000:]
    names = [*CASES, *(f"{name}-resumed" for name in KILLED)]
    found = {name: mg.load(folder / f"{name}.run") for name in names}
    for name in BEST:
        run, best = mg.load(folder / f"{name}-best.run"), np.load(folder / f"{name}-best.best.npy")
        found[f"{name}-best"] = (run, best)
        found[f"{name}-maximum"] = np.load(folder / f"{name}-maximum.best.npy")
    return found


def _options(name):
    sweeps = (
        4 if name == "words" or name.startswith("bytes") else SWEEPS
    )  # 66 replicas, half of the simulator's time
    return {"sweeps": sweeps, "warmup": WARMUP, "chains": CASES[name][2], "seed": SEED}


def on_the_cpu(name):
    graph, sampler, _ = CASES[name]
    observe = {"ones": "count"}
    record = mg.Record(*EVERYTHING, temperatures=True)
    more = {"record": record, "observe": observe, "progress": False}
    return sample(graph, sampler, **_options(name), **more)


@pytest.mark.parametrize("name", CASES)
def test_simulated_ladders_are_those_of_the_cpu(name, simulated):
    """States and the statistics of ladders agree: exchanges, round trips, log Z."""
    found, expected = simulated[name], on_the_cpu(name)
    np.testing.assert_array_equal(found.draws, expected.draws)
    np.testing.assert_array_equal(found.state, expected.state)
    np.testing.assert_allclose(found.energy, expected.energy, rtol=1e-12, atol=1e-9)
    ones, wanted = found.observables["ones"], expected.observables["ones"]
    np.testing.assert_array_equal(ones.series, wanted.series)
    assert found.ladder.round_trips == expected.ladder.round_trips
    assert found.ladder.rounds == expected.ladder.rounds
    np.testing.assert_allclose(found.ladder.swap_rates, expected.ladder.swap_rates, rtol=1e-12)
    np.testing.assert_allclose(found.ladder.log_z, expected.ladder.log_z, rtol=1e-12)
    levels, cold = found.temperatures, expected.temperatures
    np.testing.assert_allclose(levels.series, cold.series, rtol=1e-12, atol=1e-9)
    assert (levels.names, levels.labels, levels.twins) == (cold.names, cold.labels, cold.twins)
    share = (found.draws == 1).mean(axis=(0, 1))
    np.testing.assert_allclose(found.marginals[:, 1], share, atol=1e-12)


@pytest.mark.parametrize("name", KILLED)
def test_a_killed_run_continues_with_the_same_bits(name, simulated):
    found, expected = simulated[f"{name}-resumed"], simulated[name]
    np.testing.assert_array_equal(found.draws, expected.draws)
    np.testing.assert_array_equal(found.state, expected.state)
    assert found.ladder == expected.ladder
    np.testing.assert_array_equal(found.temperatures.series, expected.temperatures.series)


@pytest.mark.parametrize("name", BEST)
def test_the_best_states_of_all_levels_are_kept(name, simulated):
    """Their energies are the lowest that any temperature had in any round."""
    run, best = simulated[f"{name}-best"]
    lowest = run.temperatures.energy.min(axis=(0, 2)).reshape(len(best), -1).min(axis=1)
    graph = CASES[name][0]
    np.testing.assert_allclose([graph.energy(state) for state in best], lowest, atol=1e-9)


@pytest.mark.parametrize("name", BEST)
def test_a_search_on_a_gpu(name, simulated):
    """Three ladders find the best of at most 3,600 states in a few rounds."""
    graph, found = CASES[name][0], simulated[f"{name}-maximum"]
    free = np.flatnonzero(graph.evidence < 0)
    states = np.tile(np.maximum(graph.evidence, 0), (int(graph.sizes[free].prod()), 1))
    states[:, free] = list(itertools.product(*(range(size) for size in graph.sizes[free])))
    lowest = graph.energy(states).min()
    assert graph.energy(found).min() == pytest.approx(lowest, abs=1e-9)
