"""Cases by count: forked children that share imports, compiled code and valid files.

Each child has its own folder in memory and its own limits. Its counts are in memory that it shares
with its parent, so nothing is lost when it is killed. A mutant that was tried before is neither
tried nor counted again, and a mutant that is a valid file does not count.
"""

import base64
import gc
import json
import mmap
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.fuzz import mutations
from tests.fuzz.cases import READ, REFUSED, kind, mutant, try_files, valid
from tests.fuzz.limits import limited_memory
from tests.fuzz.seen import Seen

PATIENCE = 120.0  # seconds per case, which may have to compile
FINDINGS = "findings.jsonl"  # all failures; the first of each kind with its files
_SECONDS = 10.0  # approximate seconds of work between two choices of the next reader
_MOST = 20_000  # cases between two choices
_NEW = 0.02  # with a smaller share of new mutants a reader is exhausted
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_NUMBER, _READ, _REFUSED, _WRONG, _SLOWEST, _WHICH = range(6)


@dataclass
class Reading:
    """Outcomes of the cases of one reader."""

    goal: int  # number of cases to try
    read: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    hangs: int = 0
    deaths: int = 0
    seconds: float = 0.0  # of a core
    slowest: float = 0.0
    which: int = -1  # number of the slowest case
    first: int = 0  # number of the first mutant
    following: int = 0  # number of the next mutant
    running: int = 0  # mutants of unfinished children
    made: int = 0  # mutants of finished children, including repeated ones
    exhausted: bool = False  # hardly any mutant is new

    @property
    def cases(self) -> int:
        """Return the number of tried mutants."""
        return self.read + self.refused + len(self.wrong) + self.hangs + self.deaths

    @property
    def new(self) -> float:
        """Return the share of mutants that were new, so far."""
        return max(self.cases / self.made, _NEW) if self.made else 1.0

    @property
    def share(self) -> float:
        """Predict the share of its goal after its children have ended."""
        return (self.cases + self.running * self.new) / self.goal

    @property
    def open(self) -> bool:
        """Return whether it accepts more children."""
        return self.share < 1 and not self.exhausted

    def take(self) -> tuple[int, int]:
        """Return the first mutant and the number of mutants of a child's work."""
        rate = self.made / self.seconds if self.seconds else 20.0
        left = (1 - self.share) * self.goal / self.new
        count = int(min(max(rate * _SECONDS, 20), _MOST, max(self.goal / 50, 100), left + 1))
        first, self.following = self.following, self.following + count
        self.running += count
        return first, count


class Shard:
    """A child that tries the cases of one reader, from one number to another."""

    def __init__(
        self, target: str, seed: int, work: tuple[int, int], seen: Seen, out: Path, folder: Path
    ):
        self.target, self.seed, (self.first, self.count) = target, seed, work
        self.out, self.folder = out, folder
        self._memory = mmap.mmap(-1, 64)
        self.shared = np.frombuffer(self._memory, np.int64)
        self.shared[_NUMBER] = self.first
        self.begun = self._moved = time.monotonic()
        self._seen, self.used = self.first, 0.0
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._live(seen)

    def _live(self, seen: Seen) -> None:
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            log = os.open(self.out / "stderr.log", _APPEND, 0o644)
            os.dup2(log, 2)
            with limited_memory():
                self._try_all(seen)
        except BaseException as error:
            os.write(2, f"{self.target} from {self.first}: {error!r}\n".encode())
            os._exit(1)
        os._exit(0)

    def _try_all(self, seen: Seen) -> None:
        shared, case, kinds = self.shared, self.folder / "case", set()
        for number in range(self.first, self.first + self.count):
            content = mutant(self.target, self.seed, number)
            if seen.add(content):
                begun = time.perf_counter_ns()
                what = try_files(self.target, content, case)
                taken = time.perf_counter_ns() - begun
                if taken > shared[_SLOWEST]:
                    shared[_SLOWEST], shared[_WHICH] = taken, number
                if what == READ:
                    shared[_READ] += 1
                elif what == REFUSED:
                    shared[_REFUSED] += 1
                else:
                    self._note(number, what, {} if kind(what) in kinds else content)
                    kinds.add(kind(what))
                    shared[_WRONG] += 1
            shared[_NUMBER] = number + 1

    def _note(self, number: int, what: str, content: dict[str, bytes]) -> None:
        """Write a failure on one line."""
        files = {name: base64.b64encode(data).decode() for name, data in content.items()}
        line = json.dumps([self.target, self.seed, number, what, files]) + "\n"
        handle = os.open(self.out / FINDINGS, _APPEND, 0o644)
        os.write(handle, line.encode())
        os.close(handle)

    def poll(self) -> str | None:
        """Return None while it runs, "" when it is done, else its failure."""
        done, status, usage = os.wait4(self.pid, os.WNOHANG)
        if done:
            self.used = usage.ru_utime + usage.ru_stime
            code = os.waitstatus_to_exitcode(status)
            return "" if code == 0 else f"died with {code}"
        now = int(self.shared[_NUMBER])
        if now != self._seen:
            self._seen, self._moved = now, time.monotonic()
        elif time.monotonic() - self._moved > PATIENCE:
            self.kill()
            return "hang"
        return None

    def kill(self) -> None:
        """End it, in any state."""
        os.kill(self.pid, signal.SIGKILL)
        _, _, usage = os.wait4(self.pid, 0)
        self.used = usage.ru_utime + usage.ru_stime

    def settle(self, reading: Reading, what: str) -> None:
        """Add its outcome; "cut" if the time was up."""
        shared, ended = self.shared, int(self.shared[_NUMBER])
        before = reading.cases
        reading.read += int(shared[_READ])
        reading.refused += int(shared[_REFUSED])
        reading.seconds += self.used
        if shared[_SLOWEST] * 1e-9 > reading.slowest:
            reading.slowest, reading.which = float(shared[_SLOWEST] * 1e-9), int(shared[_WHICH])
        reading.running -= self.count
        reading.made += ended - self.first
        if shared[_WRONG]:
            reading.wrong += self._wrong(ended)
        new = reading.cases - before
        reading.exhausted |= what == "" and self.count >= 1000 and new < _NEW * self.count
        if what in ("", "cut"):
            return
        reading.made += 1
        if what == "hang":
            reading.hangs += 1
        else:
            reading.deaths += 1
        self._note(ended, what, mutant(self.target, self.seed, ended))

    def _wrong(self, ended: int) -> list[str]:
        """Return failures of its cases, from the written findings."""
        found = [json.loads(line) for line in (self.out / FINDINGS).read_text().splitlines()]
        return [
            f"case {number}: {text}"
            for target, seed, number, text, _ in found
            if (target, seed) == (self.target, self.seed) and self.first <= number < ended
        ]


class Shards:
    """Children on several cores that try a number of cases of each reader."""

    def __init__(self, goals: dict[str, int], seed: int, out: Path, scratch: Path, before: int = 0):
        self.seed, self.out, self.scratch = seed, out, scratch
        self.readings = {target: Reading(goal) for target, goal in goals.items()}
        self._seen = {target: Seen(before + goal + 20 * _MOST) for target, goal in goals.items()}
        self._again: list[tuple[str, int, int]] = []  # unfinished work of children that died
        self.live: list[Shard] = []
        self._made = 0

    def warm(self, meanwhile) -> None:
        """Build valid files, and compile functions that read them, before any child is forked."""
        for target in self.readings:
            meanwhile()
            begun = time.monotonic()
            place = self.scratch / "warm"
            for content in valid(target):
                self._seen[target].add(content)
                what = try_files(target, content, place)
                assert what == READ, f"{target}: valid files are not read: {what}"
                for data in content.values():
                    if data[:2] == b"PK":
                        mutations.prime(data)
            print(f"{target}: ready after {time.monotonic() - begun:.1f} s", flush=True)
        gc.collect()
        gc.freeze()  # children need not scan these objects repeatedly

    def remember(self, done: dict[str, int], cores: int) -> None:
        """Continue another campaign: its mutants are generated again, so that none counts twice."""
        pieces = []
        for target in self.readings.keys() & done.keys():
            reading, number = self.readings[target], done[target]
            reading.first = reading.following = number
            pieces += [(target, k, min(k + _MOST, number)) for k in range(0, number, _MOST)]
        children = [self._remember(pieces[k::cores]) for k in range(cores)]
        ended = [os.waitpid(child, 0)[1] for child in children]
        if any(ended):
            raise SystemExit("the mutants of the campaign before could not be made again")

    def _remember(self, pieces: list[tuple[str, int, int]]) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                for target, first, end in pieces:
                    for number in range(first, end):
                        self._seen[target].add(mutant(target, self.seed, number))
            except BaseException as error:
                os.write(2, f"{error!r}\n".encode())
                os._exit(1)
            os._exit(0)
        return pid

    def fill(self, cores: int) -> None:
        """Start children until all cores have one, or nothing is left to start."""
        while len(self.live) < cores:
            work = self._next()
            if work is None:
                return
            target, *numbers = work
            folder = self.scratch / f"shard-{self._made}"
            folder.mkdir()
            self._made += 1
            self.live.append(
                Shard(target, self.seed, tuple(numbers), self._seen[target], self.out, folder)
            )

    def _next(self) -> tuple[str, int, int] | None:
        """Return work of the reader with the smallest finished share: all advance together."""
        if self._again:
            return self._again.pop()
        open_ = [name for name, one in self.readings.items() if one.open]
        if not open_:
            return None
        target = min(open_, key=lambda name: self.readings[name].share)
        return target, *self.readings[target].take()

    def look(self) -> None:
        """Collect results of children, and restart after the case that killed one."""
        for shard in list(self.live):
            what = shard.poll()
            if what is None:
                continue
            self.live.remove(shard)
            reading = self.readings[shard.target]
            shard.settle(reading, what)
            ended = int(shard.shared[_NUMBER]) + 1
            left = shard.first + shard.count - ended
            if what and left > 0:
                reading.running += left
                self._again.append((shard.target, ended, left))

    def cut(self) -> None:
        """End the children when the time is up, and keep their counts."""
        for shard in self.live:
            shard.kill()
            shard.settle(self.readings[shard.target], "cut")
        self.live = []

    @property
    def done(self) -> bool:
        """Return whether every case was tried."""
        return not (self.live or self._again or any(one.open for one in self.readings.values()))
