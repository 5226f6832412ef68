"""Compiled code on disk: damage and full disks cost only time."""

import errno
import os
import subprocess
import sys

import numba
import pytest

from minigibbs.kernels import jit


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def doubling():
    def twice(x):
        return 2 * x

    return jit.entry(twice)


def files(folder, ending):
    return list(folder.rglob(f"*{ending}"))


DAMAGE = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "garbage": lambda content: b"\x80\x05garbage" * 20,
    "a flipped byte": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("ending", [".nbi", ".nbc"])
def test_damaged_files_are_compiled_anew(folder, ending, damage):
    """These once raised UnpicklingError or EOFError at every start, or crashed in machine code."""
    assert doubling()(3) == 6
    assert files(folder, ending)
    for path in files(folder, ending):
        path.write_bytes(DAMAGE[damage](path.read_bytes()))
    assert doubling()(3) == 6
    again = doubling()
    assert again(3) == 6
    assert again.stats.cache_hits


def test_a_full_disk_costs_the_cache_alone(folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(jit._CacheFile, "_open_for_write", full)
    assert doubling()(3) == 6
    assert not files(folder, ".nbc")


def test_damage_that_cannot_be_removed_costs_the_cache_alone(folder):
    assert doubling()(3) == 6
    for path in files(folder, ".nbi"):
        path.unlink()
        path.mkdir()
    assert doubling()(3) == 6


def test_a_cache_that_cannot_be_made_is_done_without(monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", "/proc/nowhere")
    assert doubling()(3) == 6


def test_compiled_code_is_loaded_without_the_compiler(tmp_path):
    """Numba's functions and `scipy.linalg` take as long to import as all else in a process."""
    script = """
import sys
import minigibbs as mg
mg.models.ising_lattice(4, 0.2).packed
print([name for name in ("numba.np.arraymath", "scipy.linalg") if name in sys.modules])
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    printed = [
        subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for _ in range(2)
    ]
    assert printed == ["['numba.np.arraymath', 'scipy.linalg']", "[]"]
