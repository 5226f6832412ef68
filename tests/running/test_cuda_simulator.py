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
from tests.running.simulate_cuda import flatten
from tests.settings import IMPLICIT_CASES, LAYOUT_CASES, SETTINGS
from tests.zoo import ZOO

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

CHAINS, UPDATES, WARMUP, THIN, EVERY, SEED = 6, 24, 5, 8, 4, 3
# Samplers, layouts and implicit groups, and then scans and factor kinds.
SIMULATED = {name: (s.sampler, s.graph, "shared") for name, s in SETTINGS.items()}
SIMULATED |= {f"layout-{name}": (c.sampler, c.graph, "shared") for name, c in LAYOUT_CASES.items()}
SIMULATED |= {name: (c.sampler, c.graph, "shared") for name, c in IMPLICIT_CASES.items()}
SIMULATED |= {
    "own-scan": (mg.Gibbs(fields=False), ZOO["potts"], "random"),
    "systematic": (mg.PoissonGibbs(heavy=1), ZOO["potts"], "systematic"),
    "evidence": (mg.Gibbs(fields=False), ZOO["evidence"], "shared"),
}
# Options of a case, where they differ: chains, how many are kept, the variables whose draws are
# kept (None for all), whether energies are, and the bytes of kept states before they are moved.
COMMON = {"chains": CHAINS, "kept": CHAINS, "variables": None, "energy": True, "buffer": 1 << 20}
OPTIONS = {name: {"energy": False} for name in IMPLICIT_CASES}
OPTIONS |= {
    "chosen": {"variables": [3, 0], "kept": 3},
    "chosen-no-energy": {"variables": [2], "kept": 4, "energy": False, "buffer": 2 * 4},
    "chosen-one-by-one": {"variables": [1, 2], "buffer": 1},
    "groups": {"chains": 13, "kept": 3},
    "small-groups": {"chains": 7, "kept": 5},
}
SIMULATED |= {
    name: (mg.Gibbs(fields=False), ZOO["potts"], "shared")
    for name in OPTIONS.keys() - IMPLICIT_CASES.keys()
}


def options_of(name):
    return COMMON | OPTIONS.get(name, {})


def plan_for(sampler, graph, scan):
    order = free_variables(graph.evidence)
    return Plan(graph, sampler, order, UPDATES, WARMUP, scan, frozenset(), THIN, None)


def write_case(folder, name):
    """Everything that the simulator needs to know."""
    (sampler, graph, scan), settings = SIMULATED[name], options_of(name)
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
    for name in SIMULATED:
        write_case(folder, name)
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    script = Path(__file__).with_name("simulate_cuda.py")
    command = [sys.executable, "-W", "ignore", str(script), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.mark.parametrize("name", SIMULATED)
def test_the_simulated_chains_are_those_of_the_cpu(name, simulated):
    (sampler, graph, scan), settings = SIMULATED[name], options_of(name)
    chains, kept = settings["chains"], settings["kept"]
    record = ("draws", "energy") if settings["energy"] else ("draws",)
    expected = mg.sample(
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
