"""Compiled GPU kernels on disk: their identity, and the effect of damage. No GPU is needed."""

import errno
import subprocess
import sys
from types import SimpleNamespace
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba import types

from minigibbs.system import files

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from minigibbs.kernels.layout import Chain
from minigibbs.running.backends import cuda_bits, cuda_kernels
from minigibbs.running.backends.device import stored

WORDS = types.Array(types.uint32, 1, "C")


class Kernel:
    """A stub of a compiled kernel."""

    def __init__(self, states):
        self.states = states
        self.codegen = CONTEXT.codegen()

    def _reduce_states(self):
        return self.states

    @classmethod
    def _rebuild(cls, **states):
        return cls(states)


def context(architecture):
    """Return a stub target that only states its architecture."""
    magic = SimpleNamespace(magic_tuple=lambda: ((13, 0), architecture))
    return SimpleNamespace(codegen=lambda: magic)


CONTEXT = context((9, 0))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def kernels(function=None, **options):
    return stored.StoredKernels(function or cuda_bits.clear.py_func, options, Kernel)


def test_a_stored_kernel_is_loaded_for_the_same_types_alone(folder):
    assert kernels().load_overload((WORDS,), CONTEXT) is None
    kernels().save_overload((WORDS,), Kernel({"cubin": b"code"}))
    assert kernels().load_overload((WORDS,), CONTEXT).states == {"cubin": b"code"}
    assert kernels().load_overload((WORDS, WORDS), CONTEXT) is None
    assert kernels(max_registers=48).load_overload((WORDS,), CONTEXT) is None
    assert kernels(cuda_bits.sum_energies.py_func).load_overload((WORDS,), CONTEXT) is None
    assert kernels().load_overload((WORDS,), context((8, 0))) is None


@pytest.mark.parametrize("what", ["SOURCES", "_versions"])
def test_kernels_of_other_sources_or_versions_are_compiled_anew(folder, monkeypatch, what):
    kernels().save_overload((WORDS,), Kernel({}))
    monkeypatch.setattr(stored, what, (lambda: ("0.1",)) if what == "_versions" else (("a", 1, 2),))
    assert kernels().load_overload((WORDS,), CONTEXT) is None
    kernels().save_overload((WORDS,), Kernel({"new": 1}))  # replaces the file
    assert kernels().load_overload((WORDS,), CONTEXT).states == {"new": 1}
    assert len(list(folder.rglob("*.cuda"))) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: b"\x80\x05garbage" * 20,
        lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
    ],
    ids=["truncated", "empty", "garbage", "a flipped byte"],
)
def test_damaged_files_are_compiled_anew(folder, damage):
    kernels().save_overload((WORDS,), Kernel({"cubin": b"code"}))
    (path,) = folder.rglob("*.cuda")
    path.write_bytes(damage(path.read_bytes()))
    assert kernels().load_overload((WORDS,), CONTEXT) is None
    kernels().save_overload((WORDS,), Kernel({"cubin": b"code"}))
    assert kernels().load_overload((WORDS,), CONTEXT).states == {"cubin": b"code"}


def test_a_full_disk_costs_the_file_alone(folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_whole", full)
    kernels().save_overload((WORDS,), Kernel({}))
    assert not list(folder.rglob("*.cuda"))


def test_a_folder_that_cannot_be_made_is_done_without(monkeypatch):
    def refused(function):
        raise RuntimeError("no locator available")

    monkeypatch.setattr(stored, "FunctionCache", refused)
    kernels().save_overload((WORDS,), Kernel({}))
    assert kernels().load_overload((WORDS,), CONTEXT) is None


def makers():
    """Return kernels that are made with captured values and functions."""
    return {
        "advance": cuda_kernels.advance(2),
        "advance, more rows": cuda_kernels.advance(3),
        "sweep_color": cuda_bits.sweep_color(np.float32, 16),
        "sweep_color, one lane": cuda_bits.sweep_color(np.float32, 1),
        "sweep_color, double": cuda_bits.sweep_color(np.float64, 16),
    }


def test_captured_values_tell_kernels_apart():
    found = {name: repr(stored.identity(kernel)) for name, kernel in makers().items()}
    assert len(set(found.values())) == len(found)


def test_identities_are_the_same_in_every_process():
    """Numba's own key contains random numbers if a kernel captures a function."""
    code = (
        "from tests.running.test_cuda_stored import makers, stored\n"
        "for kernel in makers().values(): print(repr(stored.identity(kernel)))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for _ in range(2)
    }
    (text,) = found
    assert text.splitlines() == [repr(stored.identity(kernel)) for kernel in makers().values()]


class Own(NamedTuple):
    """Data of a user's own sampler."""

    weight: object


def own():
    """Function of a user."""


def generated():
    """Return a function without a module, as Numba generates for some of its own."""
    exec("def function(): ...", made := {})
    made["function"].__module__ = None
    return made["function"]


@pytest.mark.parametrize(
    "value",
    [
        own,
        generated(),
        numba.njit(own),
        Own,
        types.NamedTuple((WORDS,), Own),
        types.Tuple((types.NamedTuple((WORDS,), Own), WORDS)),
        np.zeros(3),
        object(),
    ],
    ids=["function", "generated", "compiled", "class", "data", "data within", "array", "object"],
)
def test_what_a_user_wrote_is_never_stored(folder, value):
    """Its source is not compared, so the old version of an edited function would run."""
    with pytest.raises(stored.UnstoredError):
        stored.identity(value)
    if isinstance(value, types.Type):
        kernels().save_overload((value,), Kernel({}))
        assert not list(folder.rglob("*.cuda"))


def test_data_of_this_package_has_an_identity():
    fields = tuple(WORDS for _ in Chain._fields)
    assert "Chain" in repr(stored.identity(types.NamedTuple(fields, Chain)))


def test_a_real_kernel_survives_the_disk(folder, monkeypatch):
    """The kernel is compiled for a simulated card, by numba-cuda's own classes."""
    from numba.cuda import dispatcher
    from numba.cuda.cudadrv import devices

    card = SimpleNamespace(compute_capability=(9, 0))
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: card)
    monkeypatch.setattr(devices, "get_context", lambda *_: SimpleNamespace(device=card))
    clear = cuda_bits.clear
    generator = type(clear.targetctx.codegen())
    monkeypatch.setattr(generator, "magic_tuple", lambda self: ((13, 0), (9, 0)))
    kernel = dispatcher._Kernel(clear.py_func, (WORDS,), **clear.targetoptions)
    text = kernel._codelibrary.get_asm_str(cc=(9, 0, "a"))
    own = stored.StoredKernels(clear.py_func, {}, dispatcher._Kernel)
    assert own.load_overload((WORDS,), clear.targetctx) is None
    own.save_overload((WORDS,), kernel)
    again = own.load_overload((WORDS,), clear.targetctx)
    assert again._codelibrary.get_asm_str(cc=(9, 0, "a")) == text
    assert again.signature == kernel.signature
