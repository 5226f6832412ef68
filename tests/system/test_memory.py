"""Available memory is checked before allocation."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
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
    files["/sys/fs/cgroup/memory.max"] = "1000\n"  # already exceeded
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
    # 4.5e12 pairs of 64 bytes each.
    with pytest.raises(mg.TooLargeError, match=r"3,000,000 variables.*needs 261\.9 TiB"):
        mg.models.curie_weiss(3_000_000, 1.0, implicit=False)


def test_reserved_bytes_are_not_available(monkeypatch):
    monkeypatch.setattr(memory, "_physical", lambda: 2**30)
    before = memory.available()
    with memory.reserved(before / 2, "a thing", "do without"):
        assert memory.available() <= before - before // 2
        with pytest.raises(mg.TooLargeError, match="another thing needs"):
            memory.require(before * 0.75, "another thing", "do without")
    memory.require(before * 0.75, "another thing", "do without")


def test_a_reservation_ends_with_an_error(monkeypatch):
    monkeypatch.setattr(memory, "_physical", lambda: 2**30)
    before = memory.available()
    with pytest.raises(ValueError, match="mine"), memory.reserved(2**20, "a thing", "do without"):
        raise ValueError("mine")
    assert memory.available() == before


def test_threads_do_not_reserve_the_same_bytes(monkeypatch):
    """Two threads request 60% of the memory each: one gets it, the other is refused."""
    monkeypatch.setattr(memory, "_physical", lambda: 2**30)
    size, both, found = 0.6 * memory.available(), threading.Barrier(2), []

    def work():
        both.wait()
        try:
            with memory.reserved(size, "a thing", "wait"):
                found.append("reserved")
                both.wait()
        except mg.TooLargeError:
            found.append("refused")
            both.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == ["refused", "reserved"]


@pytest.fixture
def little(monkeypatch):
    """Simulate a machine with 64 MiB left."""
    monkeypatch.setattr(memory, "available", lambda: 2**26)


TOO_LARGE = {
    "chains of learn": (
        lambda: mg.learn(SPINS, [[0, 1, 1]], chains=10**7, progress=False),
        "learning with 10,000,000 chains",
    ),
    "rows of learn": (
        lambda: mg.learn(SPINS, np.broadcast_to(np.int8(0), (10**8, 3)), progress=False),
        "data of shape .* fewer rows",
    ),
    "chains of maximize": (
        lambda: mg.maximize(SPINS, rounds=1, chains=10**7, progress=False),
        "maximize: 10,000,000 chains",
    ),
    "levels": (
        lambda: mg.sample(GRID, mg.Tempering(levels=10**4), sweeps=1, progress=False),
        "10,000 levels .* fewer levels",
    ),
    "bins": (
        lambda: mg.sample(
            SPINS, sweeps=1, observe=mg.observables.Histogram(bins=10**9), progress=False
        ),
        "bins=1,000,000,000 .* fewer bins",
    ),
    "draws": (lambda: mg.exact_draws(SPINS, 10**12), "draws of 3 variables .* count"),
    "marginals of uneven domains": (
        lambda: mg.exact_marginals(mg.FactorGraph([10**5] + [2] * 1000, [])),
        "1,001 variables by 100,000 values",
    ),
    "kernel": (lambda: mg.Kernel((10**9,), np.exp), "displacements .* smaller shape"),
    "grid": (lambda: mg.Grid(0.0, 1.0, 10**9).values, "1,000,000,000 points"),
    "table of a function": (
        lambda: mg.Table.from_function([0, 1], np.add, [mg.Grid(0.0, 1.0, 10**5)] * 2),
        "shape .* grids of fewer points",
    ),
    "a range of sizes": (lambda: mg.FactorGraph(range(10**9), []), "sizes: .* fewer entries"),
    "minibatches": (
        lambda: mg.theory.theorem_1(SPINS, mg.PoissonEstimator(1e9)),
        "minibatches are too many",
    ),
}
SPINS = mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], 0.3, name="J")])
GRID = mg.models.ising_lattice(side=100, beta=0.3)


@pytest.mark.parametrize("case", TOO_LARGE)
def test_too_large_for_memory(case, little):
    call, message = TOO_LARGE[case]
    with pytest.raises(mg.TooLargeError, match=message):
        call()
