"""Every launch is within a device's limits of chains and variables; no GPU is needed.

Groups are placed and advanced on a device that allocates nothing and launches nothing. Launches
have the same shapes as in a real run.
"""

from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.running.backends import cuda as backend
from minigibbs.running.backends import (
    cuda_colors,
    cuda_colors_bits,
    cuda_colors_points,
    cuda_colors_small,
    cuda_colors_stencil,
    cuda_group,
    cuda_ladders,
    cuda_observed,
    cuda_small_ladders,
    cuda_words,
)
from minigibbs.running.backends.device.shapes import LIMITS, launch_shape
from minigibbs.running.backends.lockstep import group_chains
from minigibbs.running.request import Options
from minigibbs.samplers import registry
from tests.contract.models import CHROMATIC, LADDERS, MODELS

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

CHAINS = [1, 31, 32, 33, 65_535, 65_536, 131_072, 2_097_152, 4_194_304]
MODULES = (
    cuda_colors,
    cuda_colors_bits,
    cuda_colors_points,
    cuda_colors_small,
    cuda_colors_stencil,
    cuda_group,
    cuda_ladders,
    cuda_observed,
    cuda_small_ladders,
    cuda_words,
)


class Array:
    """An array on the device: a shape and a type."""

    def __init__(self, shape, dtype):
        self.shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        self.dtype = np.dtype(dtype)

    def __len__(self):
        return self.shape[0]

    @property
    def size(self):
        return int(np.prod(self.shape))

    def _like(self, view):
        return Array(view.shape, view.dtype)

    def _view(self):
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)

    def __getitem__(self, place):
        return self._like(self._view()[place])

    def reshape(self, *shape):
        shape = shape[0] if isinstance(shape[0], tuple) else shape
        assert self.size == np.prod(shape)
        return Array(shape, self.dtype)

    def view(self, dtype):
        ratio = self.dtype.itemsize / np.dtype(dtype).itemsize
        return Array((*self.shape[:-1], int(self.shape[-1] * ratio)), dtype)

    def copy_to_device(self, array):
        assert array.size == self.size

    def copy_to_host(self, array=None):
        return np.zeros(self.shape, self.dtype) if array is None else array


class EmptyDevice:
    """Replacement of `Device`."""

    def free_bytes(self):
        return 1 << 60

    def device_array(self, shape, dtype):
        return Array(shape, dtype)

    def to_device(self, array):
        return Array(array.shape, array.dtype)

    def synchronize(self):
        pass


@pytest.fixture
def launches(monkeypatch):
    """Return a list of the shapes of all launches."""
    made = []

    def configure(kernel, items, threads, shared=0, folded=False, most=None):
        shape = launch_shape(items, threads, shared, folded, most)
        assert most is None or np.prod(shape.grid) <= most
        return lambda *arguments: made.append(shape)

    def to_device(device, value):
        if isinstance(value, tuple):
            parts = [to_device(device, part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return device.to_device(value) if isinstance(value, np.ndarray) else value

    replaced = {
        "load": lambda name: import_module(f"minigibbs.running.backends.{name}"),
        "Device": EmptyDevice,
        "configure": configure,
        "blocks_at_once": lambda *arguments: 264,
        "to_device": to_device,
    }
    for module in MODULES:
        for name, value in replaced.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(cuda_group.CudaGroup, "states", lambda group: None)
    return made


def start_of(graph, chains):
    """Return states that need no memory."""
    return np.broadcast_to(np.zeros(len(graph), graph.state_type), (chains, len(graph)))


@pytest.mark.parametrize("chains", CHAINS)
@pytest.mark.parametrize("name", MODELS)
def test_every_launch_is_within_the_limits(name, chains, launches):
    model = MODELS[name]
    sweep = int((model.graph.evidence < 0).sum())
    if name in CHROMATIC:
        layout = registry.chromatic_layout(model.sampler, model.graph)
        if "cuda" not in layout.devices:
            pytest.skip("has no group there")
        data = layout.lay_out(model.sampler, model.graph)
    else:
        data = model.sampler.prepare(model.graph, backend.WARP)
    if name in LADDERS and chains > 131_072:
        pytest.skip("ladders of millions of chains draw their keys on the host")
    options = Options(
        sampler=model.sampler,
        chains=chains,
        seed=1,
        warmup=0,
        scan=model.scan,
        backend="cuda",
        record=mg.Record("marginals", "draws", "energy", chains=min(chains, 64)),
    )
    plan = options.plan(model.graph, 3, sweep)
    group = place(plan, data, chains)
    group.advance(3 * sweep, True)
    group.rows(0)
    group.counted()
    assert launches
    for shape in launches:
        assert all(1 <= n <= most for n, most in zip(shape.grid, LIMITS.grid, strict=False))
        assert np.prod(shape.block) <= LIMITS.threads


def place(plan, data, chains):
    """Create a group of all chains, whose states need no memory."""
    states = start_of(plan.graph, chains)
    if type(data) in backend.GROUPS:
        group = backend.GROUPS[type(data)](plan, data)
        group.place(None)
    elif isinstance(data, backend.SpinLadder):
        group = cuda_ladders.CudaLadders(plan, data)
        group.place(None)
    else:
        parallel = cuda_small_ladders.in_parallel(data)
        kind = cuda_small_ladders.CudaSmallLadders if parallel else cuda_group.CudaGroup
        group = kind(plan, data)
        group.place(states, np.ones((1, 4), np.uint64))
    return group


@pytest.mark.parametrize("chains", CHAINS)
def test_groups_of_a_cpu_hold_all_chains(chains):
    each = group_chains(SimpleNamespace(chains=chains))
    groups = -(-chains // each)
    assert groups * each >= chains > (groups - 1) * each
    assert each == 1 if chains < 16 else each <= 64 and each % 8 == 0
