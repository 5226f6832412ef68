"""Cases by count: forked children that share imports, compiled code and valid files.

Each child has its own folder in memory and its own limits. What it counts lies in memory that it
shares with its parent, so that nothing is lost when it is killed.
"""

import json
import mmap
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.fuzz.cases import READ, REFUSED, keep, run_case, try_files, valid
from tests.fuzz.limits import limited_memory

PATIENCE = 30.0  # seconds for a case
_SECONDS = 15.0  # of work, about, between two looks at which reader is next
_NUMBER, _READ, _REFUSED, _WRONG, _SLOWEST, _WHICH = range(6)


@dataclass
class Reading:
    """What came of one reader's cases."""

    read: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    hangs: int = 0
    deaths: int = 0
    seconds: float = 0.0  # of a core
    slowest: float = 0.0
    following: int = 0  # the next case
    running: int = 0  # cases that children have been given and have not ended

    @property
    def cases(self) -> int:
        """Cases that were tried."""
        return self.read + self.refused + len(self.wrong) + self.hangs + self.deaths


class Shard:
    """A child that tries the cases of one reader, from one number to another."""

    def __init__(self, target: str, seed: int, first: int, count: int, out: Path, folder: Path):
        self.target, self.seed, self.first, self.count = target, seed, first, count
        self.out, self.folder = out, folder
        self._memory = mmap.mmap(-1, 64)
        self.shared = np.frombuffer(self._memory, np.int64)
        self.shared[_NUMBER] = first
        self.begun = self._moved = time.monotonic()
        self._seen, self.used = first, 0.0
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._live()

    def _live(self) -> None:
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            log = os.open(self.out / "stderr.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 2)
            with limited_memory():
                self._try_all()
        except BaseException as error:
            os.write(2, f"{self.target} from {self.first}: {error!r}\n".encode())
            os._exit(1)
        os._exit(0)

    def _try_all(self) -> None:
        shared, case = self.shared, self.folder / "case"
        for number in range(self.first, self.first + self.count):
            begun = time.perf_counter_ns()
            what = run_case(self.target, self.seed, number, case)
            taken = time.perf_counter_ns() - begun
            if taken > shared[_SLOWEST]:
                shared[_SLOWEST], shared[_WHICH] = taken, number
            if what == READ:
                shared[_READ] += 1
            elif what == REFUSED:
                shared[_REFUSED] += 1
            else:
                self._note(number, what)
                shared[_WRONG] += 1
            shared[_NUMBER] = number + 1

    def _note(self, number: int, what: str) -> None:
        keep(self.target, self.folder / "case", what, self.out / "kept")
        line = json.dumps([self.target, self.seed, number, what]) + "\n"
        with open(self.out / "wrong.jsonl", "a") as stream:
            stream.write(line)

    def poll(self) -> str | None:
        """None while it runs; "" when it is done, else what became of it."""
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
        """End it, wherever it is."""
        os.kill(self.pid, signal.SIGKILL)
        _, _, usage = os.wait4(self.pid, 0)
        self.used = usage.ru_utime + usage.ru_stime

    def settle(self, reading: Reading, what: str) -> None:
        """Add what it did; "cut" where time was up."""
        shared, ended = self.shared, int(self.shared[_NUMBER])
        reading.read += int(shared[_READ])
        reading.refused += int(shared[_REFUSED])
        reading.seconds += self.used
        reading.slowest = max(reading.slowest, shared[_SLOWEST] * 1e-9)
        reading.running -= self.count
        if shared[_WRONG]:
            lines = (self.out / "wrong.jsonl").read_text().splitlines()
            found = [json.loads(line) for line in lines]
            reading.wrong += [
                f"case {number}: {text}"
                for target, seed, number, text in found
                if (target, seed) == (self.target, self.seed) and self.first <= number < ended
            ]
        if what in ("", "cut"):
            return
        keep(self.target, self.folder / "case", f"{what} case {ended}", self.out / "kept")
        if what == "hang":
            reading.hangs += 1
        else:
            reading.deaths += 1
        with open(self.out / "wrong.jsonl", "a") as stream:
            stream.write(json.dumps([self.target, self.seed, ended, what]) + "\n")


class Shards:
    """Children on so many cores, that try so many cases of each reader."""

    def __init__(self, targets: list[str], seed: int, cases: int, out: Path, scratch: Path):
        self.seed, self.cases, self.out, self.scratch = seed, cases, out, scratch
        self.readings = {target: Reading() for target in targets}
        self._again: list[tuple[str, int, int]] = []  # what children left behind when they died
        self.live: list[Shard] = []
        self._made = 0

    def warm(self, meanwhile) -> None:
        """Make valid files, and compile what reading them needs, before any child is forked."""
        for target in self.readings:
            meanwhile()
            begun = time.monotonic()
            place = self.scratch / "warm"
            for content in valid(target):
                what = try_files(target, content, place)
                assert what == READ, f"{target}: valid files are not read: {what}"
            print(f"{target}: ready after {time.monotonic() - begun:.1f} s", flush=True)

    def fill(self, cores: int) -> None:
        """Start children until all cores have one, or nothing is left to start."""
        while len(self.live) < cores:
            work = self._next()
            if work is None:
                return
            target, first, count = work
            folder = self.scratch / f"shard-{self._made}"
            folder.mkdir()
            self._made += 1
            self.live.append(Shard(target, self.seed, first, count, self.out, folder))

    def _next(self) -> tuple[str, int, int] | None:
        """The reader that has had the least time, among those that are not done."""
        if self._again:
            return self._again.pop()
        open_ = [name for name, one in self.readings.items() if one.following < self.cases]
        if not open_:
            return None
        target = min(open_, key=lambda name: self._time(name))
        reading = self.readings[target]
        rate = reading.cases / reading.seconds if reading.seconds else 20.0
        count = min(max(int(rate * _SECONDS), 20), self.cases - reading.following)
        first, reading.following = reading.following, reading.following + count
        reading.running += count
        return target, first, count

    def _time(self, target: str) -> float:
        """Seconds of cores that a reader has had, children that are at work included."""
        live = [time.monotonic() - one.begun for one in self.live if one.target == target]
        return self.readings[target].seconds + sum(live) + 1e-3 * len(live)

    def look(self) -> None:
        """Take in what children have done, and start anew behind what killed one."""
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
        """Time is up: end the children, and keep what they have counted."""
        for shard in self.live:
            shard.kill()
            shard.settle(self.readings[shard.target], "cut")
        self.live = []

    @property
    def done(self) -> bool:
        """Whether every case was tried."""
        left = any(one.following < self.cases for one in self.readings.values())
        return not (self.live or self._again or left)
