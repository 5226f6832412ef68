"""Deliberate mistakes, one by one: `make mutants`, or `python -m tests.mutants [part of name]`.

Each mutant is created in a copy of the sources, where its tests run, first without the mistake. A
test that fails without the mistake, or needs a package that is not installed, is ignored. A mutant
without other tests counts as not tried. A mutant that no test detects has survived and is reported,
as is a mutant that can no longer be created. `--out` writes each result immediately. With `--seen`,
mutants that were caught according to such files come last.
"""

import argparse
import json
import math
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.listed import SOURCES, Mutant, listed
from tests.paths import ROOT

PATIENCE = 600  # seconds for the tests of one mutant; a hang counts as caught
PARTS = ("src", "tests", "docs", "examples", "pyproject.toml", "README.md")


def copy_sources(folder: Path) -> None:
    """Copy the files that the tests need, including compiled kernels."""
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part)
        elif source.exists():
            shutil.copy2(source, folder / part)


def run_tests(folder: Path, tests: list[str], patience: float) -> tuple[bool | None, str]:
    """Return whether tests pass in a copy, None if they cannot run, and pytest's last line."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "tests.mutants.absent"]
    environment = {**os.environ, "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}"}
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
    ran = done.returncode == 1 or (done.returncode == 0 and " passed" in last)
    return (done.returncode == 0 if ran else None), last


def try_mutant(folder: Path, mutant: Mutant, patience: float) -> tuple[bool | None, str]:
    """Make a mistake, run its tests, and undo it; return whether they pass, and their output."""
    path = folder / SOURCES / mutant.file
    whole, stat = path.read_text(), path.stat()
    assert whole.count(mutant.old) == 1, f"{mutant.name}: its text is not in {mutant.file} once"
    path.write_text(whole.replace(mutant.old, mutant.new))
    try:
        passed, last = run_tests(folder, mutant.tests, patience)
    finally:
        path.write_text(whole)
        os.utime(
            path, ns=(stat.st_atime_ns, stat.st_mtime_ns)
        )  # compiled code is identified by the time
    return passed, last


CAUGHT, SURVIVED, UNTRIED = "caught", "SURVIVED", "not tried"


class Found:
    """Outcome of each mutant, printed and written immediately."""

    def __init__(self, out: Path | None):
        self.outcomes: dict[str, str] = {}
        self._out, self._lock = out, threading.Lock()

    def note(self, mutant: Mutant, word: str, why: str, took: float) -> None:
        """Print the outcome, and write all outcomes."""
        with self._lock:
            self.outcomes[mutant.name] = word
            more = f" ({why})" if word == UNTRIED else ""
            print(f"{word:<9} {took:4.0f} s  {mutant.file}: {mutant.name}{more}", flush=True)
            if self._out is not None:
                self._out.mkdir(parents=True, exist_ok=True)
                with open(self._out / "mutants.jsonl", "a") as stream:
                    stream.write(json.dumps([mutant.name, mutant.file, word, why]) + "\n")


def sound(folder: Path, mutant: Mutant, patience: float) -> tuple[list[str], str]:
    """Return the tests of a mutant that pass without it, and the output of the others."""
    passed, last = run_tests(folder, mutant.tests, patience)
    if passed:
        return mutant.tests, last
    alone = mutant.tests if len(mutant.tests) > 1 else []
    return [test for test in alone if run_tests(folder, [test], patience)[0]], last


def work(mutants: queue.Queue[Mutant], found: Found, deadline: float) -> None:
    """Try mutants in a private copy, until there are none or the time is up."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_sources(folder)
        while time.monotonic() < deadline:
            try:
                mutant = mutants.get_nowait()
            except queue.Empty:
                return
            begun, word, why = time.monotonic(), UNTRIED, "time is up"
            patience = min(PATIENCE, deadline - begun)
            tests, last = sound(folder, mutant, patience)
            if not tests:
                why = f"without the mistake: {last}"
            elif (left := deadline - time.monotonic()) > 0:
                some = mutant._replace(tests=tests)
                passed, why = try_mutant(folder, some, min(PATIENCE, left))
                late = time.monotonic() >= deadline
                if passed is not None and not late:  # None: a mistake that only breaks an import
                    word = SURVIVED if passed else CAUGHT
            found.note(mutant, word, why, time.monotonic() - begun)


def seen_caught(paths: list[Path]) -> set[str]:
    """Return the mutants that were caught according to files of `--out`."""
    lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return {name for name, _, word, _ in lines if word == CAUGHT}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=math.inf, help="of the whole")
    parser.add_argument("--out", type=Path, help="a folder for mutants.jsonl")
    parser.add_argument("--seen", type=Path, nargs="*", default=[], help="files mutants.jsonl")
    parser.add_argument("--but", action="store_true", help="leave those seen caught out altogether")
    parser.add_argument("parts", nargs="*", help="of names or files; by default all mutants")
    options = parser.parse_args()
    begun, chosen = time.monotonic(), listed()
    if options.parts:
        chosen = [m for m in chosen if any(p in f"{m.file}: {m.name}" for p in options.parts)]
    known = seen_caught(options.seen)
    chosen.sort(key=lambda mutant: mutant.name in known)
    if options.but:
        chosen = [mutant for mutant in chosen if mutant.name not in known]
    waiting: queue.Queue[Mutant] = queue.Queue()
    for mutant in chosen:
        waiting.put(mutant)
    found = Found(options.out)
    with ThreadPoolExecutor(options.jobs) as pool:
        parts = [
            pool.submit(work, waiting, found, begun + options.seconds) for _ in range(options.jobs)
        ]
        for part in parts:
            part.result()
    counts = Counter(found.outcomes.values())
    counts[UNTRIED] += len(chosen) - len(found.outcomes)
    took = (time.monotonic() - begun) / 60
    told = ", ".join(f"{counts[word]} {word}" for word in (CAUGHT, SURVIVED, UNTRIED))
    print(f"{len(chosen)} mutants: {told}; {took:.0f} minutes")
    return 0 if counts[CAUGHT] == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
