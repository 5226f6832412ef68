"""Kernels of temperature ladders compile for a device, without one.

The simulator runs kernels as Python. It accepts array sizes and calls that a compiler refuses.
"""

from types import SimpleNamespace

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.running.backends import BACKENDS
from tests.running.test_cuda_ladders import tempering

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from numba import typeof, types
from numba.cuda import dispatcher

from minigibbs.running.backends import cuda_kernels, cuda_ladder_kernels
from minigibbs.running.backends import cuda_level_kernels as levels
from minigibbs.running.backends.cuda_bits import Spins

CAPABILITY = (9, 0)
BYTES, WORDS = (types.Array(kind, 2, "C") for kind in (types.uint8, types.uint32))
LONGS, LONG, DOUBLES = (
    types.Array(kind, axes, "C")
    for kind, axes in ((types.int64, 2), (types.int64, 1), (types.float64, 2))
)
NUMBER = types.int64


def device_type(value):
    """Return the type that a value has on a device."""
    if isinstance(value, np.ndarray):
        return types.Array(typeof(value).dtype, value.ndim, "C")
    if isinstance(value, tuple):
        parts = [device_type(part) for part in value]
        return (
            types.NamedTuple(parts, type(value))
            if hasattr(value, "_fields")
            else types.Tuple(parts)
        )
    return typeof(value)


def compiled(monkeypatch, kernel, *arguments):
    """Return the code of a kernel for a device."""
    from numba import cuda
    from numba.cuda.cudadrv.error import NvvmSupportError

    device = SimpleNamespace(compute_capability=CAPABILITY)
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: device)
    try:
        code, _ = cuda.compile(
            kernel.py_func, types.void(*arguments), cc=CAPABILITY, device=False, abi="numba"
        )
    except NvvmSupportError:
        pytest.skip("the compiler library of CUDA is not installed")
    return code


def ladder(graph):
    return tempering(5, True).prepare(graph, BACKENDS["cuda"].lanes)


def of_bytes():
    """Return the arguments of the kernels of small domains, by name."""
    data = ladder(mg.models.potts_lattice(3, 3, 0.9))
    colors, model = data.model.colors, data.model
    names = ("blocks", "variable", "first", "base", "target", "weight", "start", "table")
    chain = [BYTES, types.Array(types.uint64, 2, "C"), DOUBLES, DOUBLES, LONGS, LONGS]
    chains = types.NamedTuple(chain, cuda_kernels.ChainArrays)
    slots = [LONG, LONG, types.Array(types.float32, 1, "C")]
    kinds = [data.order, *(getattr(model, name) for name in levels.Terms._fields[1:])]
    terms = types.NamedTuple([device_type(one) for one in kinds], levels.Terms)
    rows, order, whole = types.NamedTuple([*slots, NUMBER], levels.Levels), LONG, device_type(data)
    order = device_type(data.order)
    arrays = [device_type(getattr(colors, name)) for name in names]
    return {
        "sweep": (
            levels.sweep_levels(3),
            (*arrays, *[NUMBER] * 4, *slots, NUMBER, WORDS, NUMBER, NUMBER, BYTES),
        ),
        "energies": (levels.add_level_energies, (terms, rows, NUMBER, LONGS, BYTES)),
        "decide": (levels.decide_levels, (whole, chains, LONGS)),
        "clusters": (
            levels.exchange_level_clusters,
            (whole, chains, BYTES, LONGS, NUMBER, NUMBER),
        ),
        "swap": (levels.swap_small_levels, (whole, DOUBLES, order, NUMBER, BYTES, BYTES)),
        "find": (levels.find_best, (LONGS, LONG, LONG)),
        "keep": (levels.keep_best, (LONG, rows, order, BYTES, BYTES)),
        "keys": (levels.read_keys, (DOUBLES, NUMBER, WORDS)),
    }


def of_bits():
    """Return the arguments of the kernels of spins that depend on the shape of a search."""
    spins = ladder(mg.models.ising_lattice(3, 0.4)).model.spins
    arrays = [device_type(getattr(spins, name)) for name in Spins._fields]
    flat, betas = types.Array(types.uint32, 1, "C"), device_type(spins.base)
    stored = types.Array(types.uint8, 1, "C")
    settings = (*[NUMBER] * 3, flat, betas, WORDS, NUMBER, NUMBER, WORDS, flat, stored)
    kind = spins.base.dtype.type
    return {
        "whole words": (cuda_ladder_kernels.sweep_levels(kind, 1), (*arrays, *settings)),
        "shared words": (cuda_ladder_kernels.sweep_levels(kind, 4), (*arrays, *settings)),
        "find": (cuda_ladder_kernels.find_best, (LONGS, *[NUMBER] * 3, LONG, LONG)),
        "keep": (cuda_ladder_kernels.keep_best, (LONG, NUMBER, WORDS, WORDS)),
    }


@pytest.mark.parametrize("kernels", [of_bytes, of_bits])
def test_kernels_of_ladders_compile(kernels, monkeypatch):
    for name, (kernel, arguments) in kernels().items():
        assert ".entry" in compiled(monkeypatch, kernel, *arguments), name
