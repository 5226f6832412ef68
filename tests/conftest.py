"""Settings and fixtures of all tests."""

import gc
import json
import os
import signal
import sys

import pytest

# Numba writes a message for each type that it tries in vain, and would color each.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

from minigibbs.explanation import costs
from tests.explanation.test_explain import COSTS
from tests.paths import ROOT

# Tests send Ctrl-C. Under `nohup`, or in a background job, this process and every program that a
# test starts would ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Bytecode is stored, even if the environment disables it. Otherwise every worker rewrites the
# assertions of all tests, and every program that a test starts compiles all of its imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect tests without garbage collection, which leaves them out from then on.

    Ten thousand tests and all modules stay until the end. To examine them again and again took a
    fifth of the time of the collection, and 6% of that of the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


PACKAGES = {path.parent.name for path in (ROOT / "src" / "minigibbs").glob("*/__init__.py")}


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(items):
    """Mark the first test of every file that tests a package as quick; see CONTRIBUTING.md.

    Tests of runs in the CUDA simulator share one long fixture, and are excluded.
    """
    seen = set()
    for item in items:
        known = item.path in seen or item.path.parent.name not in PACKAGES
        if not (known or isinstance(item, pytest.DoctestItem) or "simulated" in item.fixturenames):
            seen.add(item.path)
            item.add_marker("quick")


@pytest.fixture(autouse=True, scope="session")
def _known_costs(tmp_path_factory):
    """Provide known costs: no test, and no program that it starts, measures the machine."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / "minigibbs").mkdir()
    known = {"machine": costs._machine(), "costs": COSTS}
    (folder / "minigibbs" / "costs.json").write_text(json.dumps(known))
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before
