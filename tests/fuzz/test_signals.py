"""A part of the campaigns of signals and of time limits."""

import ast
import subprocess
import sys

import pytest

from tests.fuzz import budgets
from tests.paths import ROOT


@pytest.mark.parametrize("only", ["maximize", "learn, start"])
def test_calls_keep_their_results(only):
    """The test runs in its own process, because a campaign forks, and sends signals."""
    command = [sys.executable, "-m", "tests.fuzz", "signals", "--cases", "3", "--only", only]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 signals, 0 findings" in done.stdout


def test_a_call_that_cannot_be_prepared_ends():
    program = (
        "from tests.fuzz import signals\n"
        "signals.PREPARATIONS['sample'] = lambda _: 1 / 0\n"
        "print(signals.call_case('sample', 2, 0.1))\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.stdout.startswith("not prepared: ZeroDivisionError"), done.stderr


def test_limits_are_measured():
    """No time is asserted here: the campaign does that, with all cores loaded."""
    program = (
        "from tests.fuzz import budgets\n"
        "print(budgets.timed('maximize', 'lattice 32', 0.2))\n"
        "print(budgets.timed('maximize', 'dense CRF 20 x 30', 0.0))\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = [ast.literal_eval(line) for line in done.stdout.splitlines()]
    assert [said for *_, said in found] == ["", ""]
    assert all(0 < seconds < 600 and 0 <= after < 600 for seconds, after, _ in found)


def test_a_limit_has_some_slack():
    assert budgets.allowed(1.0) == 3.0
    assert budgets.allowed(100.0) == 125.0
