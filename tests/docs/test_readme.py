"""The README's examples run as printed, and the names in them exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

README = (ROOT / "README.md").read_text()


BLOCKS = re.findall(r"```python\n(.*?)```(?:\n```text\n(.*?)```)?", README, re.DOTALL)


@pytest.mark.parametrize(("code", "shown"), BLOCKS)
def test_python_examples_run_as_printed(code, shown):
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    if shown:
        assert result.stdout == shown
    else:
        assert all(word in result.stdout for word in ("R-hat", "Marginal(", "reached by"))
    assert result.stderr == ""


@pytest.mark.parametrize("line", re.findall(r"^minigibbs .*$", README, re.MULTILINE))
def test_command_lines_run(line):
    program = Path(sys.executable).parent / "minigibbs"
    words = line.split("#")[0].split()[1:]
    result = subprocess.run(
        [program, *words], capture_output=True, text=True, check=True, timeout=120
    )
    assert result.stdout


@pytest.mark.parametrize("target", re.findall(r"^make (\w+)", README, re.MULTILINE))
def test_make_targets_exist(target):
    assert re.search(rf"^{target}:.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("link", re.findall(r"\]\((?!https?:)([^)]+)\)", README))
def test_links_lead_somewhere(link):
    assert (ROOT / link).exists()
