"""What fits into memory is asked before any is taken."""

import subprocess
import sys
from pathlib import Path

import pytest

import minigibbs as mg
from minigibbs.system import memory


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (2**20, "1.0 MiB"),
        (2.5 * 2**40, "2.5 TiB"),
        (2**80, "1048576.0 EiB"),
    ],
)
def test_readable(size, text):
    assert memory.readable(size) == text


def test_some_memory_is_available():
    assert 0 < memory.available() < 2**62


def test_a_containers_limit_counts(monkeypatch):
    files = {"/sys/fs/cgroup/memory.max": "5000\n", "/sys/fs/cgroup/memory.current": "2000\n"}

    def content(path):
        if path not in files:
            raise FileNotFoundError(path)
        return files[path].encode()

    monkeypatch.setattr(memory, "_content", content)
    monkeypatch.setattr(memory, "_physical", lambda: 10_000)
    assert memory.available() == 3000
    files["/sys/fs/cgroup/memory.max"] = "max\n"  # no limit
    assert memory.available() == 10_000
    files["/sys/fs/cgroup/memory.max"] = "1000\n"  # already beyond it
    assert memory.available() == 0


LIMITED = """
import resource
from minigibbs.system import memory
before = memory.available()
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 50_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(before > 60_000_000, 40_000_000 < memory.available() <= 50_000_000)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits need Linux")
def test_a_limit_of_the_shell_counts():
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True)
    assert done.stdout == "True True\n", done.stderr


def test_require_says_what_is_needed_and_what_there_is(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 2**20)
    memory.require(2**20, "a thing", "do without")
    with pytest.raises(mg.TooLargeError) as caught:
        memory.require(3 * 2**30, "a thing", "do without")
    assert str(caught.value) == (
        "a thing needs 3.0 GiB, but only 1.0 MiB of memory is available; do without"
    )
    assert isinstance(caught.value, MemoryError)


def test_for_a_few_bytes_the_system_is_not_asked(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 0)
    memory.require(memory.HARMLESS, "a thing", "do without")
    with pytest.raises(mg.TooLargeError):
        memory.require(memory.HARMLESS + 1, "a thing", "do without")


def test_a_model_beyond_any_machine_is_refused_at_once():
    # 4.5e12 pairs at 64 bytes each
    with pytest.raises(mg.TooLargeError, match=r"3,000,000 variables.*needs 261\.9 TiB"):
        mg.models.curie_weiss(3_000_000, 1.0, implicit=False)
