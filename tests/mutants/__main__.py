"""Deliberate mistakes, one by one: `make mutants`, or `python -m tests.mutants [part of name]`.

Each is made in a copy of the sources, where the tests that should object are run. A mutant that no
test objects to has survived, and is reported; so is one that cannot be made any more. The tests are
run on the unchanged copy first: a test that fails there says nothing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.listed import SOURCES, Mutant, listed
from tests.paths import ROOT

PATIENCE = 600  # seconds for the tests of one mutant; one that hangs is caught as well
MOST_PATIENCE = 3600  # for all tests together, which compile everything
PARTS = ("src", "tests", "docs", "examples", "pyproject.toml", "README.md")


def copy_sources(folder: Path) -> None:
    """A copy of what the tests need, compiled kernels included."""
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part)
        else:
            shutil.copy2(source, folder / part)


def run_tests(folder: Path, tests: list[str], patience: float = PATIENCE) -> tuple[bool, str]:
    """Whether tests pass in a copy, and what pytest says at the end."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    try:
        done = subprocess.run(
            [*command, *(f"tests/{test}" for test in tests)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=patience,
        )
    except subprocess.TimeoutExpired:
        return False, "a test that does not end"
    last = (done.stdout.strip().splitlines() or [done.stderr[-200:]])[-1]
    if done.returncode not in (0, 1):  # 1: tests ran, and some failed
        raise RuntimeError(f"pytest could not run {tests}: {last}")
    return done.returncode == 0, last


def try_mutant(folder: Path, mutant: Mutant) -> bool:
    """Make a mistake, run its tests, and take it back; whether it was caught."""
    path = folder / SOURCES / mutant.file
    whole, stat = path.read_text(), path.stat()
    assert whole.count(mutant.old) == 1, f"{mutant.name}: its text is not in {mutant.file} once"
    path.write_text(whole.replace(mutant.old, mutant.new))
    try:
        passed, _ = run_tests(folder, mutant.tests)
    finally:
        path.write_text(whole)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # compiled code goes by the time
    return not passed


def work(mutants: list[Mutant], number: int, jobs: int) -> list[str]:
    """Try every so-manyth mutant in a copy of one's own; returns those that survived."""
    survived = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_sources(folder)
        own = mutants[number::jobs]
        passed, last = run_tests(
            folder, sorted({test for one in own for test in one.tests}), MOST_PATIENCE
        )
        if not passed:
            raise RuntimeError(f"tests fail without any mistake: {last}")
        for mutant in own:
            begun = time.monotonic()
            caught = try_mutant(folder, mutant)
            took = time.monotonic() - begun
            word = "caught" if caught else "SURVIVED"
            print(f"{word:<8} {took:4.0f} s  {mutant.file}: {mutant.name}", flush=True)
            if not caught:
                survived.append(mutant.name)
    return survived


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("parts", nargs="*", help="of names or files; by default all mutants")
    options = parser.parse_args()
    chosen = [
        mutant
        for mutant in listed()
        if not options.parts
        or any(part in f"{mutant.file}: {mutant.name}" for part in options.parts)
    ]
    begun = time.monotonic()
    jobs = max(1, min(options.jobs, len(chosen)))  # a job without mutants runs all tests
    with ThreadPoolExecutor(jobs) as pool:
        parts = [pool.submit(work, chosen, k, jobs) for k in range(jobs)]
        survived = [name for part in parts for name in part.result()]
    took = (time.monotonic() - begun) / 60
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mutants caught in {took:.0f} minutes")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
