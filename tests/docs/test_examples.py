"""The examples run, and say what they should."""

import os
import subprocess
import sys

import pytest

from tests.paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, tmp_path):
    result = subprocess.run(
        [sys.executable, path],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env=os.environ,
        check=True,
    )
    assert "R-hat" in result.stdout or "updates/s" in result.stdout
    if path.stem == "denoise":
        seen, cleaned = (float(word) for word in result.stdout.split()[2:5:2])
        assert cleaned > seen + 0.1
