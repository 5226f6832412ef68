"""Kernels compiled by one process are read by the next one; skipped without a GPU."""

import os
import subprocess
import sys

import pytest

from tests.gpu.test_device import device_is_there
from tests.paths import ROOT

pytestmark = pytest.mark.skipif(not device_is_there(), reason="there is no GPU")

PROGRAM = """
import hashlib, time
begun = time.perf_counter()
import minigibbs as mg
from minigibbs.running.backends.device.stored import StoredKernels
options = {"chains": 64, "seed": 1, "backend": "cuda", "progress": False}
seen = hashlib.sha256()
for graph, sampler in (
    (mg.models.ising_lattice(12, 0.3), None),
    (mg.models.potts_lattice(6, 3, 0.5), None),
    (mg.models.ising_rbf(6), mg.PoissonGibbs(heavy=1, theta=0.5)),
    (mg.models.spin_glass(4), mg.Tempering(levels=(0.0, 0.5, 1.0))),
):
    run = mg.sample(graph, sampler, sweeps=20, **options)
    seen.update(run.state.tobytes())
    print(f"{time.perf_counter() - begun:.2f} s", end=" ")
stored = StoredKernels.compiled, StoredKernels.loaded
print()
print(seen.hexdigest())
print(*stored)
"""


def test_the_second_process_compiles_nothing(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    outputs = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PROGRAM],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.splitlines())
        print(outputs[-1])
    (_, states, first), (_, again, second) = outputs
    assert states == again
    compiled, loaded = map(int, first.split())
    assert compiled > 5
    assert loaded == 0
    assert second.split() == ["0", str(compiled)]
