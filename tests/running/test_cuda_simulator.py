"""The CUDA driver in Numba's simulator: the same chains as on the CPU, without a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.graph.packing import free_variables
from minigibbs.kernels.random import streams
from minigibbs.running.plan import Plan
from minigibbs.running.request import start_states
from tests.harness import sample
from tests.running.simulate_cuda import flatten
from tests.zoo import IMPLICIT, ZOO

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

CHAINS, UPDATES, WARMUP, THIN, EVERY, SEED = 6, 24, 5, 8, 4, 3
CASES = {
    "gibbs": (mg.Gibbs(fields=False), ZOO["potts"], "shared"),
    "gibbs-own-scan": (mg.Gibbs(fields=False), ZOO["potts"], "random"),
    "fields": (mg.Gibbs(fields=True), ZOO["potts"], "shared"),
    "spins": (mg.PoissonGibbs(heavy=1), ZOO["ising"], "shared"),
    "small": (mg.PoissonGibbs(heavy=1), ZOO["potts"], "systematic"),
    "mixed": (mg.PoissonGibbs(heavy=1), ZOO["mixed"], "shared"),
    "evidence": (mg.Gibbs(fields=False), ZOO["evidence"], "shared"),
    "large": (mg.PoissonGibbs(heavy=1), ZOO["large"], "shared"),
    "mgpmh": (mg.MGPMH(batch=4), ZOO["tables"], "shared"),
    "min-gibbs": (mg.MinGibbs(batch=10), ZOO["logical"], "shared"),
    "double-min": (mg.DoubleMinGibbs(batch=4, second_batch=20), ZOO["potts"], "shared"),
    "local": (mg.LocalMinibatchGibbs(batch=2), ZOO["potts"], "shared"),
    "kernel": (mg.PoissonGibbs(), IMPLICIT["kernel"], "shared"),
}
# Settings of a case, where they differ: chains, how many are kept, the variables whose draws are
# kept (None for all), whether energies are, and the bytes of kept states before they are moved.
COMMON = {"chains": CHAINS, "kept": CHAINS, "variables": None, "energy": True, "buffer": 1 << 20}
SETTINGS = {
    "chosen": {"variables": [3, 0], "kept": 3},
    "chosen-no-energy": {"variables": [2], "kept": 4, "energy": False, "buffer": 2 * 4},
    "chosen-one-by-one": {"variables": [1, 2], "buffer": 1},
    "groups": {"chains": 13, "kept": 3},
    "small-groups": {"chains": 7, "kept": 5},
    "kernel": {"energy": False},
}
CASES |= {
    "chosen": CASES["gibbs"],
    "chosen-no-energy": CASES["gibbs"],
    "chosen-one-by-one": CASES["gibbs"],
    "groups": CASES["gibbs"],
    "small-groups": CASES["gibbs"],
}


def settings_of(name):
    return COMMON | SETTINGS.get(name, {})


def plan_for(sampler, graph, scan):
    order = free_variables(graph.evidence)
    return Plan(graph, sampler, order, UPDATES, WARMUP, scan, frozenset(), THIN, None)


def write_case(folder, name):
    """Everything that the simulator needs to know."""
    (sampler, graph, scan), settings = CASES[name], settings_of(name)
    chains, variables = settings["chains"], settings["variables"]
    data = sampler.prepare(graph)
    space = sampler.workspace(graph, data)
    arrays: list[np.ndarray] = []
    parts = {
        "model": graph.packed,
        "data": data,
        "states": start_states(graph, "random", chains, SEED),
        "streams": streams(SEED, chains),
        "scan": plan_for(sampler, graph, scan).make_scan(SEED),
        "variables": None if variables is None else np.array(variables, np.int32),
    }
    described = {key: flatten(part, arrays) for key, part in parts.items()}
    options = {
        "carried": space.carried,
        "scratch": space.scratch,
        "weights": space.weights,
        "thin": THIN,
        "records": UPDATES // THIN,
        "kept": settings["kept"],
        "marginals": True,
        "draws": True,
        "energy": settings["energy"],
    }
    case = {"parts": described, "options": options, "every": EVERY, "buffer": settings["buffer"]}
    case |= {"warmup": WARMUP, "updates": UPDATES}
    (folder / f"{name}.json").write_text(json.dumps(case))
    np.savez(folder / f"{name}.npz", *arrays)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated")
    for name in CASES:
        write_case(folder, name)
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    script = Path(__file__).with_name("simulate_cuda.py")
    command = [sys.executable, "-W", "ignore", str(script), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.mark.parametrize("name", CASES)
def test_the_simulated_chains_are_those_of_the_cpu(name, simulated):
    (sampler, graph, scan), settings = CASES[name], settings_of(name)
    chains, kept = settings["chains"], settings["kept"]
    record = ("draws", "energy") if settings["energy"] else ("draws",)
    expected = sample(
        graph,
        sampler,
        updates=UPDATES,
        warmup=WARMUP,
        chains=chains,
        seed=SEED,
        scan=scan,
        thin=1,
        record=record,
        progress=False,
    )
    heads = [k * chains // kept for k in range(kept)]  # of the groups: the chains that are kept
    variables = slice(None) if settings["variables"] is None else settings["variables"]
    with np.load(simulated / f"{name}.out.npz") as found:
        recorded = expected.draws[heads, THIN - 1 :: THIN]
        np.testing.assert_array_equal(found["draws"], recorded[:, :, variables])
        np.testing.assert_array_equal(found["states"], expected.draws[:, -1])
        counted = expected.draws[:, EVERY - 1 :: EVERY]
        values = [
            (counted[:, :, i] == value).sum(axis=1)
            for i, size in enumerate(graph.sizes)
            for value in range(size)
        ]
        by_group = np.add.reduceat(np.transpose(values), heads)
        np.testing.assert_array_equal(found["counts"], by_group)
        if "energy" in record:
            energy = expected.energy[heads, THIN - 1 :: THIN] - graph.offset
            np.testing.assert_allclose(found["energy"], energy, rtol=1e-12, atol=1e-12)
        assert found["tally"][-1] > 0  # something changed: the comparison is not of still chains
