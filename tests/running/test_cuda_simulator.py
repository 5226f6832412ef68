"""Whole runs in Numba's CUDA simulator: the chains equal the CPU's, without a GPU."""

import csv
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.formats import uai
from minigibbs.results import report, tables
from minigibbs.samplers.encoding import describe_sampler
from tests import settings
from tests.harness import sample
from tests.running.simulate_cuda import flatten, pair_and_share
from tests.settings import IMPLICIT_CASES, LAYOUT_CASES
from tests.zoo import ZOO

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

CHAINS, UPDATES, WARMUP, THIN, SEED = 6, 24, 5, 8, 3
# Samplers, layouts and implicit groups, then scans and factor kinds.
CASES = {name: (s.sampler, s.graph, "shared") for name, s in settings.SETTINGS.items()}
CASES |= {f"layout-{name}": (c.sampler, c.graph, "shared") for name, c in LAYOUT_CASES.items()}
CASES |= {name: (c.sampler, c.graph, "shared") for name, c in IMPLICIT_CASES.items()}
PLAIN = (mg.Gibbs(fields=False), ZOO["potts"])
CASES |= {
    "own-scan": (*PLAIN, "random"),
    "shuffled": (*PLAIN, "shuffled"),
    "systematic": (mg.PoissonGibbs(heavy=1), ZOO["potts"], "systematic"),
    "evidence": (mg.Gibbs(fields=False), ZOO["evidence"], "shared"),
    "tables": (mg.MGPMH(batch=4), ZOO["tables"], "shared"),
    "logical": (mg.MinGibbs(batch=10), ZOO["logical"], "shared"),
    "mixed": (mg.PoissonGibbs(heavy=1), ZOO["mixed"], "shared"),
}
# Settings of a case that differ: chains, how many are recorded individually, the variables whose
# draws are recorded (None for all), and the bytes of kept states that are buffered.
COMMON = {"chains": CHAINS, "kept": CHAINS, "variables": None, "energy": True, "buffer": 1 << 20}
OBSERVE = {"energy": "energy", "order": "potts-order", "ones": "count"}
SETTINGS = {
    "chosen": {"variables": [3, 0], "kept": 3},
    "chosen-no-energy": {"variables": [2], "kept": 4, "energy": False, "buffer": 2 * 4},
    "chosen-one-by-one": {"variables": [1, 2], "buffer": 1},
    "groups": {"chains": 13, "kept": 3},
    "groups-apart": {"chains": 13, "kept": 3, "count_every": 1},  # counted by a separate kernel
    "small-groups": {"chains": 7, "kept": 5, "count_every": 1},
    "observed": {"chains": 7, "kept": 3, "observe": OBSERVE, "deep": 1},
    "observed-moments": {"chains": 7, "kept": 3, "observe": OBSERVE, "most_series": 0},
}
CASES |= dict.fromkeys(SETTINGS, (*PLAIN, "shared"))


def settings_of(name):
    return COMMON | SETTINGS.get(name, {})


def kept(settings):
    return ("marginals", "draws", "energy") if settings["energy"] else ("marginals", "draws")


def write_case(folder, name, file=None, **changes):
    """Write everything that the simulator needs."""
    file = file or name
    (sampler, graph, scan), settings = CASES[name], settings_of(name)
    arrays: list[np.ndarray] = []
    case = {
        "model": flatten(graph.packed, arrays),
        "data": flatten(sampler.prepare(graph), arrays),
        "offset": graph.offset,
        "sampler": describe_sampler(sampler),
        "buffer": settings["buffer"],
        "segment": 7,  # divides neither a path nor a record
        "die_after": None,
        "resume": None,
        "own": settings.get("observe") is not None,
        "count_every": settings.get("count_every", 1 << 10),
        "deep": settings.get("deep", 1 << 10),  # the limit of a grid's third axis
        "most_series": settings.get("most_series", 1 << 27),
        "record": kept(settings),
        "record_options": {
            "thin": THIN,
            "chains": settings["kept"],
            "variables": settings["variables"],
        },
        "options": {
            "updates": UPDATES,
            "warmup": WARMUP,
            "chains": settings["chains"],
            "seed": SEED,
            "scan": scan,
            "observe": settings.get("observe"),
        },
    }
    options = case["options"] | changes.pop("options", {})
    (folder / f"{file}.json").write_text(json.dumps({**case, **changes, "options": options}))
    np.savez(folder / f"{file}.npz", *arrays)
    mg.write(graph, folder / f"{file}.mg")


def simulate(folder):
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    script = Path(__file__).with_name("simulate_cuda.py")
    command = [sys.executable, "-W", "ignore", str(script), str(folder)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated")
    for name in CASES:
        write_case(folder, name)
    done = simulate(folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return {name: mg.load(folder / f"{name}.run") for name in CASES}


def on_the_cpu(name, **changes):
    """Make the same chains on the CPU, with every update recorded."""
    (sampler, graph, scan), settings = CASES[name], settings_of(name)
    return sample(
        graph,
        sampler,
        updates=changes.get("updates", UPDATES),
        warmup=WARMUP,
        chains=settings["chains"],
        seed=SEED,
        scan=scan,
        thin=1,
        record=kept(settings),
        progress=False,
    )


def expected_rows(name):
    """Average the observables of the CPU's chains over rows of chains: [row, record, number]."""
    settings, graph = settings_of(name), CASES[name][1]
    draws = on_the_cpu(name).draws[:, THIN - 1 :: THIN]
    flat = draws.reshape(-1, draws.shape[2])
    share = np.stack([np.bincount(x, minlength=graph.sizes.max()).max() / len(x) for x in flat])
    values = int(graph.sizes.max())
    columns = [
        graph.energy(flat),
        (values * share - 1) / (values - 1),
        (flat == 1).sum(axis=1),
    ]
    columns += list(np.array([pair_and_share(x) for x in flat], dtype=float).T)
    whole = np.stack(columns, axis=1).reshape(*draws.shape[:2], -1)
    chains, rows = settings["chains"], settings["kept"]
    ends = [k * chains // rows for k in range(rows + 1)]
    return np.stack([whole[a:b].mean(axis=0) for a, b in itertools.pairwise(ends)])


def test_observables_are_means_over_the_chains_of_a_row(simulated):
    observed, expected = simulated["observed"].observed, expected_rows("observed")
    assert observed.names == ("energy", "order", "ones", "own")
    assert observed.chains == 3
    np.testing.assert_allclose(observed.series, expected, rtol=1e-12)


def test_running_moments_are_those_of_the_same_series(simulated):
    observed, expected = simulated["observed-moments"].observed, expected_rows("observed-moments")
    assert observed.series is None
    np.testing.assert_array_equal(observed.count, expected.shape[1])
    np.testing.assert_allclose(observed.row_means, expected.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(observed.moments[:, 1] / expected.shape[1], expected.var(axis=1))


@pytest.mark.parametrize("name", sorted(set(CASES) - {"shuffled"}))  # with one order for all
def test_the_simulated_chains_are_those_of_the_cpu(name, simulated):
    """Paths have 10 steps here: chains must not depend on the split into launches."""
    graph, settings, found = CASES[name][1], settings_of(name), simulated[name]
    chains, rows = settings["chains"], settings["kept"]
    expected = on_the_cpu(name)
    heads = [k * chains // rows for k in range(rows)]  # first chain of each row, which is recorded
    variables = slice(None) if settings["variables"] is None else settings["variables"]
    recorded = expected.draws[heads, THIN - 1 :: THIN]
    np.testing.assert_array_equal(found.draws, recorded[:, :, variables])
    np.testing.assert_array_equal(found.state, expected.draws[:, -1])
    every = graph.stats.variables  # a sweep
    counted = expected.draws[:, every - 1 :: every]
    if UPDATES % every:  # the last state is counted as well
        counted = np.concatenate([counted, expected.draws[:, -1:]], axis=1)
    values = [
        (counted[:, :, i] == value).sum(axis=1)
        for i, size in enumerate(graph.sizes)
        for value in range(size)
    ]
    np.testing.assert_array_equal(found.counts, np.add.reduceat(np.transpose(values), heads))
    np.testing.assert_array_equal(found.visits, np.diff([*heads, chains]) * counted.shape[1])
    if settings["energy"]:
        energy = expected.energy[heads, THIN - 1 :: THIN]
        np.testing.assert_allclose(found.energy, energy, rtol=1e-12, atol=1e-12)
    assert found.info.changed > 0  # something changed: constant chains would prove nothing


@pytest.mark.parametrize("name", [name for name in CASES if settings_of(name)["variables"] is None])
def test_the_energies_are_those_of_the_draws(name, simulated):
    """Energies include the graph's constant, which kernels omit."""
    graph, found = CASES[name][1], simulated[name]
    want = graph.energy(found.draws.reshape(-1, len(graph))).reshape(found.energy.shape)
    np.testing.assert_allclose(found.energy, want, rtol=1e-12, atol=1e-12)
    assert graph.offset != 0 or name not in ("spins", "mixed", "min-gibbs", "evidence")


@pytest.mark.parametrize("name", ["groups", "small-groups", "mixed"])
def test_all_outputs_of_a_gpu_run_agree(name, simulated, tmp_path):
    """CSV, pandas, .MAR, summary and report agree with `run.marginals`."""
    run, sizes = simulated[name], simulated[name].domains.sizes
    flat = np.concatenate([row[:size] for row, size in zip(run.marginals, sizes, strict=True)])
    assert np.add.reduceat(flat, np.cumsum(sizes) - sizes) == pytest.approx(np.ones(len(sizes)))
    tables.write_csv(run, tmp_path / "run.csv")
    lines = list(csv.DictReader((tmp_path / "run.csv").read_text().splitlines()))
    np.testing.assert_array_equal([float(line["probability"]) for line in lines], flat)
    frame = run.to_pandas()
    np.testing.assert_array_equal(frame["probability"], flat)
    for column in ("standard_error", "low", "high"):
        written = [float(line[column]) for line in lines]
        np.testing.assert_allclose(written, frame[column], rtol=1e-3)
    uai.write_marginals(run, tmp_path / "run.MAR")
    read = uai.read_marginals(tmp_path / "run.MAR")
    np.testing.assert_allclose(np.concatenate(read), flat, atol=1e-6)
    best = int(run.marginals[0].argmax())
    assert f"{run.marginals[0, best]:.1%}" in report.render(run)


def test_the_summary_compares_the_rows_of_a_gpu_run(simulated):
    """R-hat is computed by hand; rows of several chains vary less than chains do."""
    run = simulated["groups"]
    first = run.early_counts / run.early_visits[:, None]
    last = (run.counts - run.early_counts) / (run.visits - run.early_visits)[:, None]
    share = np.concatenate([first, last])
    between, within = share.var(axis=0, ddof=1), (share * (1 - share)).mean(axis=0)
    want = np.sqrt(1 + (13 / 3) * between / within).max()
    assert run.summary().value_rhat == pytest.approx(want)


@pytest.mark.parametrize("houdayer", [False, True])
def test_a_simulated_ladder_is_that_of_the_cpu(tmp_path, monkeypatch, houdayer):
    sampler = mg.Tempering(mg.Gibbs(), (0.0, 0.5, 1.0), houdayer=houdayer)
    monkeypatch.setitem(CASES, "ladder", (sampler, ZOO["potts"], None))
    length = {"sweeps": 6, "warmup": 2}
    write_case(
        tmp_path,
        "ladder",
        options={"updates": None, **length},
        record_options={"thin": 2, "chains": CHAINS, "variables": None},
    )
    done = simulate(tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    found = mg.load(tmp_path / "ladder.run")
    options = {"chains": CHAINS, "seed": SEED, "thin": 2, "progress": False}
    record = ("marginals", "draws", "energy")
    expected = sample(ZOO["potts"], sampler, **length, **options, record=record)
    np.testing.assert_array_equal(found.draws, expected.draws)
    np.testing.assert_allclose(found.energy, expected.energy)
    np.testing.assert_array_equal(found.state, expected.state)
    assert found.ladder.levels == expected.ladder.levels
    assert found.ladder.round_trips == expected.ladder.round_trips
    assert found.ladder.log_z == pytest.approx(expected.ladder.log_z)
    assert len(np.unique(found.draws, axis=1)) > 1


RESUMED = [(name, after) for name in ("evidence", "shuffled", "logical") for after in (1, 3, 6)]
RESUMED += [("own-scan", 4), ("observed", 3), ("observed-moments", 4)]


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """Return runs that were killed after some segments and resumed, and undisturbed runs."""
    folder = tmp_path_factory.mktemp("resumed")
    for part in ("1-killed", "2-resumed", "3-whole"):  # in the order in which they run
        (folder / part).mkdir()
    for name, after in RESUMED:
        case, checkpoint = f"{name}-{after}", str(folder / f"{name}-{after}.zarr")
        saving = {"checkpoint": checkpoint, "every": 0, "updates": 45}
        write_case(folder / "1-killed", name, case, options=saving, die_after=after)
        write_case(folder / "2-resumed", name, case, resume=checkpoint)
        write_case(folder / "3-whole", name, options={"updates": 45})
    done = simulate(folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.mark.parametrize(("name", "after"), RESUMED)
def test_a_killed_gpu_run_resumes_to_the_same_bits(name, after, resumed):
    a = mg.load(resumed / "3-whole" / f"{name}.run")
    b = mg.load(resumed / "2-resumed" / f"{name}-{after}.run")
    for array in ("clock", "counts", "visits", "kept_draws", "energy", "state"):
        np.testing.assert_array_equal(getattr(a, array), getattr(b, array))
    for array in ("series", "count", "moments", "sums") if a.observed is not None else ():
        ours, theirs = getattr(a.observed, array), getattr(b.observed, array)
        np.testing.assert_array_equal(ours, theirs)
    assert a.info.factor_evaluations == b.info.factor_evaluations
    assert a.info.changed == b.info.changed
    looked_at = mg.load(resumed / f"{name}-{after}.zarr")  # needs no GPU
    for array in ("counts", "visits", "kept_draws", "energy", "state"):
        np.testing.assert_array_equal(getattr(a, array), getattr(looked_at, array))
