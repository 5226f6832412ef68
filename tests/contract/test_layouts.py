"""Every layout, ladder and variant of the registry satisfies one contract on every device."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.running.backends import BACKENDS
from minigibbs.running.backends.lockstep import LockstepGroup
from minigibbs.samplers import registry
from minigibbs.samplers.chromatic.spin_energy import spin_energy
from minigibbs.samplers.chromatic.spin_tails import SpinTailColors
from minigibbs.samplers.chromatic.spins import SpinColors
from minigibbs.samplers.encoding import describe_sampler
from minigibbs.samplers.tempering.spins import SpinLadder
from tests.contract.models import CHROMATIC, LADDERS, MODELS, VARIANTS
from tests.contract.steps import Whole, check, perform, plan_of
from tests.running.simulate_cuda import flatten

CHAINS = [1, 31, 32, 33]
MOST = CHAINS[-1]
CPU = BACKENDS["cpu"]


def layout_of(name):
    model = MODELS[name]
    return registry.chromatic_layout(model.sampler, model.graph)


def data_of(model, graph, lanes=1):
    """Return the data that sweeps read."""
    if model.scan == "chromatic":
        return registry.color_data(model.sampler, graph)
    return model.sampler.prepare(graph, lanes)


def device_data(model, graph):
    """Return the data that a GPU reads: ladders have a layout of their own there.

    Other samplers get the split of one lane, because they are compared with the CPU's chains.
    """
    ladder = isinstance(model.sampler, mg.Tempering)
    return data_of(model, graph, BACKENDS["cuda"].lanes if ladder else 1)


def energy_parts(model, graph):
    """Return pairs and fields of the energy of spins on a device."""
    data = data_of(model, graph)
    spins = isinstance(data, SpinColors | SpinTailColors)
    return spin_energy(graph, data.variable) if spins else None


def placing(model, chains, one_by_one):
    """Return a function that creates chains of the model on the CPU."""
    graphs = {"graph": model.graph, "other": model.other}
    plans = {which: plan_of(model, graph, chains) for which, graph in graphs.items()}
    data = {which: data_of(model, graph) for which, graph in graphs.items()}

    def place(which, states):
        plan = plans[which]
        if not one_by_one or model.scan != "chromatic":
            return Whole(CPU.groups(plan, data[which], lambda: states))
        alone = (LockstepGroup(plan, data[which], states[c : c + 1], c) for c in range(len(states)))
        return Whole(list(alone), own=False)

    return place


@cache
def reference(name):
    """Run a model's chains on the CPU individually. No chain depends on the number of chains."""
    model = MODELS[name]
    return perform(placing(model, MOST, True), model.graph, MOST)


def test_every_layout_has_a_model():
    found = {layout_of(name).name for name in CHROMATIC}
    missing = {layout.name for layout in registry.LAYOUTS} - found
    assert not missing, f"add models of {missing} to tests/contract/models.py"
    bits = {isinstance(data_of(one, one.graph), SpinLadder) for one in LADDERS.values()}
    assert bits == {True, False}
    variants = {f"variant {variant.name}" for variant, _ in registry.VARIANTS}
    assert variants == VARIANTS.keys()


def test_two_sets_of_weights_have_one_layout():
    for name, model in CHROMATIC.items():
        assert layout_of(name) is registry.chromatic_layout(model.sampler, model.other)


# Chains in separate groups do not depend on the number of chains.
ON_THE_CPU = [
    (name, chains) for name in MODELS for chains in (CHAINS if name in CHROMATIC else [MOST])
]


@pytest.mark.parametrize(("name", "chains"), ON_THE_CPU)
def test_on_the_cpu(name, chains):
    model = MODELS[name]
    found = perform(placing(model, chains, False), model.graph, chains)
    check(model.graph, chains, found, reference(name))


def on_a_gpu(name):
    return name not in CHROMATIC or "cuda" in layout_of(name).devices


SIMULATED = [
    (name, chains) for name in MODELS if on_a_gpu(name) for chains in MODELS[name].simulated
]


def write_case(folder, name, chains):
    model, arrays = MODELS[name], []
    case = {
        "sampler": describe_sampler(model.sampler),
        "scan": model.scan,
        "chains": chains,
        **{
            which: {
                "model": flatten(graph.packed, arrays),
                "rest": flatten(graph.rest.packed, arrays),
                "data": flatten(device_data(model, graph), arrays),
                "energy": flatten(energy_parts(model, graph), arrays),
                "offset": graph.offset,
            }
            for which, graph in (("graph", model.graph), ("other", model.other))
        },
    }
    file = folder / f"{len(list(folder.glob('*.json')))}.json"
    file.write_text(json.dumps(case))
    np.savez(file.with_suffix(".npz"), *arrays)
    for which, graph in (("graph", model.graph), ("other", model.other)):
        mg.write(graph, file.with_suffix(f".{which}.mg"))
    return file.with_suffix(".out.npz")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    folder = tmp_path_factory.mktemp("contract")
    files = {case: write_case(folder, *case) for case in SIMULATED}
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    script = Path(__file__).with_name("simulate.py")
    command = [sys.executable, "-W", "ignore", str(script), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    return files


@pytest.mark.parametrize(("name", "chains"), SIMULATED)
def test_on_a_simulated_gpu(name, chains, simulated):
    with np.load(simulated[name, chains]) as arrays:
        found = dict(arrays)
    check(MODELS[name].graph, chains, found, reference(name))


@pytest.mark.parametrize("name", ["lattice", "potts", "ladder of bits", "variant small"])
def test_a_mistake_would_be_noticed(name):
    """Permuted chains, states that were not saved, and stale weights are detected."""
    found, graph = reference(name), MODELS[name].graph
    shifted = found | {"warmed": np.roll(found["warmed"], 1, axis=0)}
    stale = found | {"restored": found["recorded"]}
    with pytest.raises(AssertionError):
        check(graph, MOST, shifted, found)
    with pytest.raises(AssertionError):
        check(graph, MOST, stale, found, bits=False)
    for name in ("counts", "energy"):
        with pytest.raises(AssertionError):
            check(graph, MOST, found | {name: found[name] + 1}, found, bits=False)
