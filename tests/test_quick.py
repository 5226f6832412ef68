"""The tests of `make quick` include every package and every sampler."""

import os
import subprocess
import sys

import pytest

from minigibbs.samplers import SAMPLERS
from tests.conftest import PACKAGES
from tests.paths import ROOT
from tests.settings import SETTINGS, SWEEPS


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_every_package_has_a_folder_of_tests(name):
    """The first test of each file in the folder is quick."""
    assert list((ROOT / "tests" / name).glob("test_*.py"))


def test_every_sampler_has_golden_draws_or_a_file_of_its_own():
    """Tests of golden draws are quick, and so is the first test of every file."""
    pinned = {type(one.sampler) for one in (*SETTINGS.values(), *SWEEPS.values())}
    for name, kind in SAMPLERS.items():
        own = ROOT / "tests" / "samplers" / f"test_{name.replace('-', '_')}.py"
        assert kind in pinned or own.exists(), name


def test_the_first_test_of_a_file_is_quick():
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "quick"]
    files = ["tests/system/test_watch.py", "tests/test_imports.py"]
    plain = {name: text for name, text in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(
        [*command, *files], cwd=ROOT, env=plain, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    chosen = [line for line in done.stdout.splitlines() if "::" in line]
    assert len(chosen) == 1
    assert chosen[0].startswith("tests/system/test_watch.py::")
