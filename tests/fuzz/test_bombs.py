"""A part of the campaign of memory bombs; `python -m tests.fuzz memory` runs them all."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.bombs import BOMBS
from tests.fuzz.memory import REFUSED_BYTES, REFUSED_SECONDS, Outcome


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits need Linux")
def test_quick_bombs_are_refused():
    command = [sys.executable, "-m", "tests.fuzz", "memory", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 went wrong" in done.stdout


def test_what_counts_as_wrong():
    assert len(BOMBS) >= 60
    assert Outcome("a", "refused", "", 1.0, 2**20).right
    assert Outcome("a", "done", "", 50.0, 2**30).right
    assert not Outcome("a", "refused", "", 2 * REFUSED_SECONDS, 2**20).right
    assert not Outcome("a", "refused", "", 1.0, 2 * REFUSED_BYTES).right
    for what in ("hang", "died with 9", "MemoryError in a.py:1"):
        assert not Outcome("a", what, "", 1.0, 2**20).right
