"""Campaigns by count over many cores: `python -m tests.fuzz parallel api --cores 16 --out FILE`.

The campaigns are api, signals, budgets, extremes and environments. Cases are numbered, and children
are forked after all imports and compilation. Each child tries a few cases. A child that takes too
long for one case is killed with its process group and counts as a hang. The counts of all outcomes
are written to one JSON file every few seconds, so that nothing is lost when the time is up. Only
Python, NumPy, SciPy, Numba and the requirements of minigibbs are needed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.fuzz.campaign import machine
from tests.fuzz.limits import limited_memory, seconds_used

_WRITE = 5.0  # seconds between two writes of the results
_BUSY = 5.0  # factor of a case's patience on a loaded machine
_MOST_FINDINGS = 200  # findings that are written; all are counted


class Outcome(NamedTuple):
    """The outcome of a case, its name in the counts, and whether it is a finding."""

    counted: str
    fine: bool
    case: str = ""  # a description, from which it can be repeated
    said: str = ""


class Kind(NamedTuple):
    """A campaign: the function of a case, and the settings of its children."""

    case: Callable[[int], Outcome]
    share: float  # children per core
    patience: float  # seconds per case, in processor time if other work slows it down
    chunk: int  # cases per child
    goal: int  # default number of cases
    limited: bool = False  # whether children have limited memory
    load: bool = False  # whether one process per core loads the machine


def api(seed: int) -> Kind:
    """Make calls of the public API."""
    from tests.fuzz import api as calls

    calls.names()  # before children are forked, which share them

    def case(number: int) -> Outcome:
        text = calls.call(seed, number)
        what = calls.outcome(text)
        fine = what in calls.HARMLESS
        return Outcome(what if fine else what.split(":")[0], fine, text, what)

    return Kind(case, 1.0, 2 * calls.PATIENCE, 250, 100_000, limited=True)


def signals(seed: int) -> Kind:
    """Send signals at random moments."""
    from tests.fuzz import signals as sent

    sent.warm()

    def case(number: int) -> Outcome:
        name, which, delay = sent.chosen(seed, number)
        what = sent.try_case(name, which, delay)
        text = f"{name}, signal {int(which)} after {delay:.3f} s"
        return Outcome(what.split(":")[0], what in sent.RIGHT, text, what)

    return Kind(case, 0.75, 120.0, 20, 1000)


def budgets(seed: int) -> Kind:
    """Test time limits with all cores loaded."""
    from tests.fuzz import budgets as limits

    limits.prepare()
    limits.fill(limits.PAIRS, os.cpu_count() or 1)

    def case(number: int) -> Outcome:
        call, model, limit = limits.chosen(seed, number)
        seconds, after, said = limits.timed(call, model, limit)
        late = seconds > limits.allowed(limit)
        what = "late" if late else "refused" if said else "in time"
        text = f"{call}: {model}, {limit:g} s: {seconds:.1f} s, {after:.1f} s of the processor"
        return Outcome(what, not late, text, said)

    return Kind(case, 0.25, 300.0, 1, 200, load=True)


def extremes(seed: int) -> Kind:
    """Compare extreme numbers with rational arithmetic."""
    from tests.fuzz.cases import EXTREMES, HARMLESS, run_case

    def case(number: int) -> Outcome:
        what = run_case(EXTREMES, seed, number, Path("case"))
        fine = what in HARMLESS
        text = f'run_case("extremes", {seed}, {number}, Path("case"))'
        return Outcome(what if fine else what.split(":")[0], fine, text, what)

    return Kind(case, 1.0, 300.0, 10, 5000)


def environments(seed: int) -> Kind:
    """Run one program in many environments; the seed has no effect."""
    from tests.fuzz import environments as tried

    warm = Path(tempfile.mkdtemp(prefix="minigibbs-warm-"))
    expected, said = tried.start(tried.Environment(), warm)
    assert expected, said
    names = list(tried.ENVIRONMENTS)

    def case(number: int) -> Outcome:
        name = names[number]
        what = tried.try_environment(name, expected, warm)
        fine = what in (tried.RIGHT, tried.REFUSED)
        return Outcome(what if fine else "wrong", fine, name, what)

    return Kind(case, 0.5, 2.0 * tried.PATIENCE, 1, len(names))


KINDS = {one.__name__: one for one in (api, signals, budgets, extremes, environments)}


class Child:
    """A forked process that tries some cases and reports each on a pipe."""

    def __init__(self, kind: Kind, numbers: list[int]):
        self.numbers, self._kind, self.done = numbers, kind, 0
        self._moved, self._used, self._text = time.monotonic(), 0.0, b""
        self.folder = tempfile.mkdtemp(prefix="minigibbs-case-")
        self.reading, writing = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.reading)
            self._live(writing)
        os.close(writing)

    def _live(self, writing: int) -> None:
        try:
            os.setsid()
            os.chdir(self.folder)
            silent = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(silent, stream)
            warnings.simplefilter("ignore")
            if self._kind.limited:
                with limited_memory():
                    self._try_all(writing)
            else:
                self._try_all(writing)
        except BaseException as error:
            os.write(writing, json.dumps(("broken", False, "", repr(error))).encode() + b"\n")
        os._exit(0)

    def _try_all(self, writing: int) -> None:
        for number in self.numbers:
            os.write(writing, json.dumps(self._kind.case(number)).encode() + b"\n")

    def look(self) -> tuple[list[Outcome], bool]:
        """Return its new reports, and whether it ended; a case that does not end is a hang."""
        data = os.read(self.reading, 1 << 16) if self._ready() else None
        lines, now = [], time.monotonic()
        if data:
            *whole, self._text = (self._text + data).split(b"\n")
            lines = [Outcome(*json.loads(line)) for line in whole]
            self.done += len(lines)
            self._moved = now
            self._used = seconds_used(self.pid)
        stuck = data is None and self._stuck(now - self._moved)
        if not stuck and data != b"":
            return lines, False
        code = self.end()
        if self.done < len(self.numbers):
            what = "hang" if stuck else "crash"
            text = f"case {self.numbers[self.done]}"
            lines.append(Outcome(what, False, text, f"{what}: exit code {code}"))
            self.done += 1
        return lines, True

    def _stuck(self, waited: float) -> bool:
        """Return whether a case has computed or waited for too long."""
        patience = self._kind.patience
        computed = seconds_used(self.pid) - self._used if waited > patience else 0.0
        return computed > patience or waited > _BUSY * patience

    def _ready(self) -> bool:
        return bool(select.select([self.reading], [], [], 0)[0])

    def end(self) -> int:
        """Kill it and all processes that it started; return its exit code."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.reading)
        shutil.rmtree(self.folder, ignore_errors=True)
        return code


class Counts:
    """Outcomes by name, and the findings."""

    def __init__(self, name: str, options: argparse.Namespace):
        self.counts: Counter[str] = Counter()
        self.findings: list[dict[str, str]] = []
        self.found, self._began = 0, time.monotonic()
        self._about: dict[str, Any] = {"campaign": name, "seed": options.seed}
        self._about |= {"first": options.first, "cores_used": options.cores} | machine()
        self._out = options.out

    def add(self, outcome: Outcome) -> None:
        """Count an outcome; a finding is also shown."""
        self.counts[outcome.counted] += 1
        if outcome.fine:
            return
        self.found += 1
        print(f"{outcome.counted}: {outcome.case}: {outcome.said}", flush=True)
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append({"case": outcome.case, "said": outcome.said[:400]})

    def write(self) -> None:
        """Write the file atomically."""
        seconds = round(time.monotonic() - self._began, 1)
        about = {**self._about, "seconds": seconds, "cases": self.counts.total()}
        about |= {"findings": self.found, "outcomes": dict(self.counts.most_common())}
        beside = self._out.with_name(self._out.name + ".part")
        beside.write_text(json.dumps({**about, "found": self.findings}, indent=1) + "\n")
        beside.replace(self._out)


def work(kind: Kind, options: argparse.Namespace, counts: Counts, deadline: float) -> None:
    """Try cases on the chosen number of cores until all are tried or the time is up."""
    todo = list(range(options.first, options.first + (options.cases or kind.goal)))
    if kind.load:
        random.Random(options.seed).shuffle(todo)
    pieces = [todo[k : k + kind.chunk] for k in range(0, len(todo), kind.chunk)]
    pieces.reverse()
    children: list[Child] = []
    written = 0.0
    try:
        while (pieces or children) and time.monotonic() < deadline:
            while pieces and len(children) < max(1, round(kind.share * options.cores)):
                children.append(Child(kind, pieces.pop()))
            for child in list(children):
                outcomes, ended = child.look()
                for outcome in outcomes:
                    counts.add(outcome)
                if ended:
                    children.remove(child)
                    if child.numbers[child.done :]:
                        pieces.append(child.numbers[child.done :])
            if time.monotonic() - written > _WRITE:
                counts.write()
                written = time.monotonic()
            time.sleep(0.02)
    finally:
        for child in children:
            child.end()


def main(arguments: list[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz parallel", description=__doc__)
    parser.add_argument("campaign", choices=list(KINDS))
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=570.0, help="of the whole command")
    parser.add_argument("--cases", type=int, help="how many, unless time is up before")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="the JSON file")
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + options.seconds - 2.0
    options.out = options.out.absolute()
    counts = Counts(options.campaign, options)
    warnings.simplefilter("ignore")
    kind = KINDS[options.campaign](options.seed)
    from tests.fuzz.budgets import busy

    with busy(options.cores if kind.load else 0):
        work(kind, options, counts, deadline)
    counts.write()
    listed = ", ".join(f"{count:,} {what}" for what, count in counts.counts.most_common())
    print(f"{options.campaign}: {counts.counts.total():,} cases: {listed}")
    return 1 if counts.found else 0
