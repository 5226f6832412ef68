"""Observables of chromatic runs in Numba's CUDA simulator equal those of the CPU."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.observables.reading import encode
from tests.harness import sample
from tests.running import test_cuda_colors as colors
from tests.running.test_cuda_simulator import simulate

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

of = mg.observables
SWEEPS, SEED = 9, 5
SPINS = {
    "m": of.Magnetization(),
    "m3": of.Magnetization(power=3, absolute=True),
    "order": of.PottsOrder(),
    "zeros": of.Count(0),
    "both": of.JointEvent({0: 1, 1: 0}),
    "moments": of.Moments(of.Magnetization()),
    "distribution": of.Histogram(of.Magnetization(), bins=3),
    "e": of.Energy(),
    "e2": of.Moments(of.Energy()),
}
LATTICE = SPINS | {
    "same": of.Agreement([0, 1, 1, 0] * 4),
    "waves": of.StructureFactor((4, 4), largest=2),
    "pairs": of.Correlations((4, 4)),  # no function of sums over variables
}
VALUES = {"order": of.PottsOrder(), "twos": of.Count(2), "e": of.Energy()}
CLOSE = ("e", "e2", "waves")  # sums of floats, in another order
GRID = mg.models.ising_lattice(side=4, beta=0.4)
PAIR = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.4)])
POTTS = mg.models.potts_lattice(side=3, states=3, beta=0.8)
CLAMPED = colors.glass(6, 0.5).condition({1: 1, 4: 0})
MARGINALS = {"record": ["marginals"]}
CASES = {  # graph, chains, observables, and other options
    "one": (GRID, 1, LATTICE, {}),
    "one-counted": (GRID, 1, LATTICE, MARGINALS),
    "few": (GRID, 5, SPINS, {"thin": 2}),
    "few-counted": (GRID, 5, SPINS, {"thin": 2, **MARGINALS}),
    "words": (GRID, 35, {"m": SPINS["m"], "zeros": SPINS["zeros"]}, {}),
    "as-they-are": (GRID, 3, SPINS, {"large": 0}),  # no snapshots
    "clamped": (CLAMPED, 5, SPINS, MARGINALS),
    "variable": (PAIR.condition({1: 0}), 1, {"m": SPINS["m"], "e": SPINS["e"]}, {}),
    "walk": (colors.glass(6, 0.5), 17, {"m": SPINS["m"], "e": SPINS["e"]}, {"walkers": 1}),
    "potts": (POTTS, 3, VALUES, {"part": 4}),
    "potts-clamped": (POTTS.condition({0: 2, 5: 1}), 1, VALUES, {"record": ["draws"]}),
}
RESUMED = {
    "few": 3,
    "few-counted": 4,
    "words": 2,
    "potts": 3,
}  # segments after which they are killed


def write_case(folder, name, **changes):
    graph, chains, observe, settings = CASES[name]
    known = dict(colors.CASES)
    colors.CASES[name], arrays = (graph, mg.Gibbs(), chains, settings.get("walkers", 1000)), {}
    options = {
        "sweeps": SWEEPS,
        "warmup": 2,
        "chains": chains,
        "seed": SEED,
        "scan": "chromatic",
        "observe": {key: encode(one, 1, arrays) for key, one in observe.items()},
    }
    try:
        colors.write_case(
            folder,
            name,
            record=settings.get("record", []),
            record_options={"chains": chains, "thin": settings.get("thin", 1)},
            options=options | changes.pop("options", {}),
            observe_arrays={key: array.tolist() for key, array in arrays.items()},
            segment=2 * len(graph),
            **{key: settings[key] for key in ("large", "part") if key in settings},
            **changes,
        )
    finally:
        colors.CASES.clear()
        colors.CASES.update(known)


def measured(name):
    graph, chains, observe, settings = CASES[name]
    return sample(
        graph,
        mg.Gibbs(),
        sweeps=SWEEPS,
        warmup=2,
        chains=chains,
        seed=SEED,
        scan="chromatic",
        record=mg.Record("marginals", thin=settings.get("thin", 1)),
        observe=observe,
        progress=False,
    )


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("observed")
    for name in CASES:
        write_case(folder, name)
    done = simulate(folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return {name: mg.load(folder / f"{name}.run") for name in CASES}


@pytest.mark.parametrize("name", sorted(set(CASES) - {"potts-clamped"}))
def test_observables_are_those_of_the_cpu(name, simulated):
    """Integers are divided once, so every order of the sums gives the same bits."""
    found, expected = simulated[name], measured(name)
    np.testing.assert_array_equal(found.state, expected.state)
    for key in CASES[name][2]:
        ours, theirs = found.observables[key].series, expected.observables[key].series
        if key in CLOSE:
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
        else:
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", [name for name in CASES if "clamped" not in name])
def test_observables_move(name, simulated):
    """Every observable varies; otherwise equal series would prove nothing."""
    for key in set(CASES[name][2]) - {"both", "distribution"}:
        series = simulated[name].observables[key].series
        assert len(np.unique(series)) > 1, key


def test_clamped_values_are_counted_once(simulated):
    found = simulated["potts-clamped"]
    twos = (found.draws == 2).sum(axis=2)
    np.testing.assert_array_equal(found.observables["twos"].series, twos)
    share = np.stack([(found.draws == value).sum(axis=2) for value in range(3)]).max(axis=0) / 9
    np.testing.assert_allclose(found.observables["order"].series, (3 * share - 1) / 2, atol=1e-12)


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resumed")
    for part in ("1-killed", "2-resumed"):  # in the order in which they run
        (folder / part).mkdir()
    for name, after in RESUMED.items():
        checkpoint = str(folder / f"{name}.zarr")
        saving = {"checkpoint": checkpoint, "every": 0}
        write_case(folder / "1-killed", name, options=saving, die_after=after)
        write_case(folder / "2-resumed", name, resume=checkpoint)
    done = simulate(folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return {name: mg.load(folder / "2-resumed" / f"{name}.run") for name in RESUMED}


@pytest.mark.parametrize("name", RESUMED)
def test_a_killed_run_resumes_to_the_same_observables(name, resumed, simulated):
    ours, theirs = resumed[name].observed, simulated[name].observed
    for array in ("series", "count", "moments", "sums"):
        np.testing.assert_array_equal(getattr(ours, array), getattr(theirs, array))
