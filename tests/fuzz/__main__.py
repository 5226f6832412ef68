"""Fuzzing by time: `make fuzz`, or `python -m tests.fuzz --seconds 60 --seed 3 [target ...]`.

Every target gets its share of the time, in a child process with limited memory. A child that makes
no progress is killed and counts as a hang. Harmful files are stored in `tests/fuzz/kept`, where the
tests find them. A harmful graph is identified by its seed and number. Campaigns by count over many
cores: `python -m tests.fuzz campaign --help`. Other campaigns are separate commands: `python -m
tests.fuzz api`, `signals`, `budgets`, `memory`, `files`, `environments` and `tables`. These over
many cores: `python -m tests.fuzz parallel --help`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz import budgets, environments, files, kills, lost, memory, parallel, signals, tables
from tests.fuzz import campaign as counted
from tests.fuzz.cases import CHECKS, HARMLESS, TARGETS, keep, run_case, valid
from tests.fuzz.limits import limited_memory

PATIENCE = dict.fromkeys(CHECKS, 300.0)  # seconds per case, compilation included
USUAL_PATIENCE = 30.0


def child(target: str, seed: int, first: int, seconds: float, folder: Path) -> None:
    """Try one case after the other, and write each result immediately."""
    if target not in CHECKS:
        valid(target)
    run_case(target, seed, first, folder / "case")  # imports and compiles
    end, number = time.monotonic() + seconds, first
    with limited_memory(), open(folder / "outcomes", "a", buffering=1) as outcomes:
        while time.monotonic() < end:
            (folder / "number").write_text(str(number))
            what = run_case(target, seed, number, folder / "case")
            if what not in HARMLESS and target not in CHECKS:
                keep(target, folder / "case", what)
            outcomes.write(json.dumps([number, what]) + "\n")
            number += 1


def campaign(target: str, seed: int, seconds: float) -> Counter[str]:
    """Try cases for a number of seconds; return the count of each outcome."""
    deadline, first, found = time.monotonic() + seconds, 0, Counter[str]()
    while time.monotonic() < deadline - 1:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            left = deadline - time.monotonic()
            arguments = [target, str(seed), str(first), str(left), name]
            command = [sys.executable, "-m", "tests.fuzz", "--child", *arguments]
            process = subprocess.Popen(command)
            stuck = not watch(process, folder, PATIENCE.get(target, USUAL_PATIENCE))
            outcomes = _outcomes(folder)
            for number, what in outcomes:
                found[what if what in HARMLESS else f"{what} (case {number})"] += 1
            if not stuck and process.returncode == 0:
                break
            number = int((folder / "number").read_text()) if outcomes else first
            what = "hang" if stuck else f"died with {process.returncode}"
            found[f"{what} (case {number})"] += 1
            if target not in CHECKS and (folder / "case").exists():
                keep(target, folder / "case", what)
            first = number + 1
    return found


def watch(process: subprocess.Popen, folder: Path, patience: float) -> bool:
    """Wait for a child; if it takes too long for one case, kill it and return False."""
    before, since = None, time.monotonic()
    while process.poll() is None:
        time.sleep(0.2)
        path = folder / "number"
        now = path.read_text() if path.exists() else None
        if now != before:
            before, since = now, time.monotonic()
        elif time.monotonic() - since > (patience if now else 600.0):
            process.kill()
            process.wait()
            return False
    return True


def _outcomes(folder: Path) -> list[tuple[int, str]]:
    path = folder / "outcomes"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main_api(arguments: list[str]) -> int:
    """Run the command `api`, whose values take seconds to build."""
    from tests.fuzz import api

    return api.main(arguments)


def main() -> int:
    commands = {
        "api": main_api,
        "campaign": counted.main,
        "parallel": parallel.main,
        "add": counted.main_add,
        "keep": counted.main_keep,
        "lost": lost.main,
        "signals": signals.main,
        "budgets": budgets.main,
        "memory": memory.main,
        "files": files.main,
        "environments": environments.main,
        "tables": tables.main,
    }
    if len(sys.argv) > 1 and sys.argv[1] in commands:
        return commands[sys.argv[1]](sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="of all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("targets", nargs="*", help=f"some of {', '.join(TARGETS)}, kills")
    options = parser.parse_args()
    if options.child:
        target, seed, first, seconds, folder = options.child
        child(target, int(seed), int(first), float(seconds), Path(folder))
        return 0
    targets = options.targets or [*TARGETS, "kills"]
    wrong = 0
    for target in targets:
        share = options.seconds / len(targets)
        if target == "kills":
            found = kills.campaign(options.seed, share)
        else:
            found = campaign(target, options.seed, share)
        harmless = dict.fromkeys((*HARMLESS, *kills.RIGHT))
        bad = {what: count for what, count in found.items() if what not in harmless}
        wrong += sum(bad.values())
        good = ", ".join(f"{found[what]:,} {what}" for what in harmless if what in found)
        print(f"{target:<12} {sum(found.values()):>8,} cases: {good}", flush=True)
        for what, count in bad.items():
            print(f"  WRONG {count} x {what}", flush=True)
    print(f"seed {options.seed}: {wrong} went wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
