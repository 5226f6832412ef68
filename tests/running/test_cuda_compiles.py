"""Kernels compile for a device, though there is none: the simulator takes more than it does."""

from types import SimpleNamespace

import numpy as np
import pytest
from numba import typeof, types

import minigibbs as mg
from minigibbs.samplers.chromatic import colour_data
from tests.running.test_cuda_colours import complete, glass, ring

numba_cuda = pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from numba import cuda  # noqa: E402 - of numba-cuda
from numba.cuda import dispatcher  # noqa: E402

from minigibbs.running.backends import cuda_bits, cuda_kernels, cuda_small  # noqa: E402

CAPABILITY = (9, 0)
N = types.int64
BYTES, WORDS = np.zeros((4, 1), np.uint8), np.zeros((4, 2), np.uint32)
LONGS, FLOATS = np.zeros(4, np.int64), np.zeros(4)


def of(data, names):
    return [getattr(data, name) for name in names]


def cases():
    lattice = colour_data(mg.Gibbs(), mg.models.ising_lattice(4, 0.3))
    strong = colour_data(mg.Gibbs(), glass(8, 300.0))
    tails = colour_data(
        mg.PoissonGibbs(heavy=2), mg.models.ising_rbf(side=3, beta=1.0, implicit=False)
    )
    spins, strong_spins = of(lattice, cuda_bits.Spins._fields), of(strong, cuda_bits.Spins._fields)
    table, nothing = np.zeros(64, np.uint32), np.zeros(0, np.uint32)
    for kind, data in ((np.float32, spins), (np.float64, strong_spins)):
        blocks, _, base, _, weight = data
        find = cuda_bits.find_thresholds(kind)
        yield f"thresholds {kind.__name__}", find, [blocks, base, weight, table]
        for lanes, x in ((1, BYTES), (4, BYTES), (16, WORDS)):
            span = [N, N, N, N, N, N, x, x.reshape(-1)]
            name = f"a colour, {lanes} chains {kind.__name__}"
            yield name, cuda_bits.sweep_colour(kind, lanes), [*data, *span]
        halves = WORDS.view(np.uint16)
        yield f"walk {kind.__name__}", cuda_bits.walk(kind), [*data, N, N, N, N, halves]
    many = [*spins, table, N, N, N, N, N, N, WORDS, nothing]
    yield "patterns", cuda_bits.sweep_patterns, many
    walked = [*of(tails, cuda_bits.TailSpins._fields), N, N, N, N, WORDS.view(np.uint16), LONGS]
    yield "tails", cuda_bits.walk_with_tails(np.float32), walked
    for x in (BYTES, WORDS):
        pairs = [np.zeros((4, 2), np.uint32), FLOATS, FLOATS, x, LONGS, np.zeros((4, 2, 1))]
        for lanes in (1, 32):
            name = f"energies of {lanes} chains {x.dtype}"
            yield name, cuda_bits.part_energies(lanes), pairs
        yield f"counts {x.dtype}", cuda_bits.count_bits, [x, N, x]
        flat = x.reshape(-1)
        yield f"changes {x.dtype}", cuda_bits.count_changes, [flat, flat, N, N, N, LONGS]
        places, fixed = np.zeros(4, np.int32), np.zeros(4, np.uint8)
        yield f"read {x.dtype}", cuda_bits.read_bits, [x, places, fixed, N, BYTES]
    small = colour_data(mg.Gibbs(), ring(6, 4))
    arrays = of(small, cuda_small.Small._fields)
    states = np.zeros((6, 4), np.uint8)
    yield "small", cuda_small.sweep_colour(4), [*arrays, N, N, N, N, N, N, states, LONGS]
    sites = colour_data(mg.Gibbs(), complete(5, 3))
    fields = [sites.variable, np.zeros((5, 3), np.float32), np.zeros((5, 45), np.float32)]
    yield "sites", cuda_small.sweep_sites(5, 3, 4), [*fields, N, N, N, N, states, LONGS]
    graph = mg.models.potts_rbf(side=3, states=4, beta=1.0, implicit=False)
    potts = colour_data(mg.PoissonGibbs(heavy=2), graph)
    arrays = of(potts, cuda_small.SmallTails._fields)
    span = [N, N, N, N, states, LONGS, LONGS]
    yield "small tails", cuda_small.walk_with_tails(4), [*arrays, *span]
    yield "turn", cuda_kernels.turn, [states, N, states, types.boolean]


CASES = {name: (kernel, arguments) for name, kernel, arguments in cases()}


@pytest.fixture(autouse=True)
def a_device(monkeypatch):
    """Functions of a kernel are compiled for the current device, which is not there."""
    device = SimpleNamespace(compute_capability=CAPABILITY)
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: device)


@pytest.mark.parametrize("name", CASES)
def test_kernels_compile(name):
    kernel, arguments = CASES[name]
    signature = tuple(a if isinstance(a, types.Type) else typeof(a) for a in arguments)
    text, _ = cuda.compile_ptx(kernel.py_func, signature, cc=CAPABILITY)
    assert ".entry" in text


def test_one_that_cannot_is_noticed():
    def shape(x, n):
        cuda.shared.array(n, np.float32)[0] = x[0]

    with pytest.raises(Exception, match="array"):
        cuda.compile_ptx(shape, (types.float32[:], types.int64), cc=CAPABILITY)
