"""The skeletons of CONTRIBUTING.md run and do what the text says."""

import importlib.util
import re

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.running.backends import BACKENDS
from minigibbs.running.backends.lockstep import LockstepGroup
from minigibbs.samplers import registry
from tests.contract.models import Model
from tests.contract.steps import Whole, check, perform, plan_of
from tests.paths import ROOT
from tests.zoo import ZOO

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
SKELETONS = dict(re.findall(r"```python\n# skeleton: (\w+)\n(.*?)```", TEXT, flags=re.DOTALL))


@pytest.fixture
def skeleton(request, tmp_path):
    """Return the module of a skeleton; compiled functions need a file."""
    path = tmp_path / f"skeleton_{request.param}.py"
    path.write_text(SKELETONS[request.param])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_is_a_skeleton_of_each():
    assert set(SKELETONS) == {"sampler", "layout", "device"}
    for what in ("a sampler", "a factor kind", "a layout", "a device"):
        assert f"## Add {what}\n" in TEXT


@pytest.mark.parametrize("skeleton", ["sampler"], indirect=True)
def test_the_sampler_samples(skeleton):
    """Marginals agree within six standard errors of 4,000 independent draws.

    The runs have 16,000 dependent draws. The false-alarm rate is below 1e-8.
    """
    graph = ZOO["potts"]
    run = mg.sample(graph, skeleton.LazyGibbs(0.2), sweeps=4000, chains=4, seed=1, progress=False)
    exact = mg.infer(graph, exact=True, progress=False).marginals
    found, error = run.marginals, 6.0 * 0.5 / np.sqrt(4000)
    np.testing.assert_allclose(found, exact, atol=error)


@pytest.mark.parametrize("skeleton", ["layout"], indirect=True)
def test_the_layout_passes_the_contract(skeleton, monkeypatch):
    monkeypatch.setattr(registry, "LAYOUTS", (skeleton.APART, *registry.LAYOUTS))
    rng = np.random.default_rng(0)
    graph = mg.FactorGraph([3] * 6, [mg.Unary(range(6), rng.normal(size=(6, 3)))])
    model = Model(graph.condition({2: 1}), graph.condition({2: 1}), mg.Gibbs())
    assert registry.chromatic_layout(model.sampler, model.graph) is skeleton.APART
    plan = plan_of(model, model.graph, 33)
    data = registry.color_data(model.sampler, model.graph)

    def together(which, states):
        return Whole(BACKENDS["cpu"].groups(plan, data, lambda: states))

    def alone(which, states):
        chains = (LockstepGroup(plan, data, states[c : c + 1], c) for c in range(33))
        return Whole(list(chains), own=False)

    found, reference = (perform(place, model.graph, 33) for place in (together, alone))
    check(model.graph, 33, found, reference)


@pytest.mark.parametrize("skeleton", ["device"], indirect=True)
def test_the_device_has_the_chains_of_the_cpu(skeleton):
    try:
        options = {"sweeps": 5, "seed": 1, "record": ["draws"], "progress": False}
        graph = ZOO["potts"]
        there = mg.sample(graph, backend="serial", **options)
        here = mg.sample(graph, scan=there.info.scan, **options)
        np.testing.assert_array_equal(there.draws, here.draws)
    finally:
        del BACKENDS["serial"]
