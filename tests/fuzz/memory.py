"""Memory bombs: `python -m tests.fuzz memory [--quick] [name ...]`.

Every bomb of `tests.fuzz.bombs` runs in a child process with limited memory. It must be refused
with an error of this library, soon and before much memory is allocated, or succeed within the
limit. Times are processor times of the child, so that other work on the machine does not count.
"""

import argparse
import json
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.limits import limited_memory

MORE = 3 * 2**30  # bytes of address space of a child beyond its parent's
REFUSED_BYTES = 400 * 2**20  # limit of a refused call, including its arguments
REFUSED_SECONDS = 10.0  # processor time before a refusal
DONE_SECONDS = 60  # processor time of a successful call; then the child is killed
PATIENCE = 300.0  # elapsed seconds, if the processor is idle or loaded by other work
SKIPPED = "skipped"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one bomb."""

    name: str
    what: str  # "done", "refused", or the failure
    text: str
    seconds: float
    size: int  # memory of the child in bytes

    @property
    def right(self) -> bool:
        """Return whether the call was refused soon and cheaply, or succeeded."""
        if self.what == "refused":
            return self.seconds <= REFUSED_SECONDS and self.size <= REFUSED_BYTES
        return self.what in ("done", SKIPPED)


def explode(name: str) -> Outcome:
    """Run one bomb in a child."""
    reader, writer = os.pipe()
    before = _resident()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # idle threads of linear algebra
        child = os.fork()
    if child == 0:
        os.close(reader)
        _run(name, writer)
    os.close(writer)
    end = time.monotonic() + PATIENCE
    found, status, usage = os.wait4(child, os.WNOHANG)
    while found == 0 and time.monotonic() < end:
        time.sleep(0.01)
        found, status, usage = os.wait4(child, os.WNOHANG)
    if found == 0:
        os.kill(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
    hung = found == 0 or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    what, why = json.loads(text) if text else (f"died with {status}", "")
    seconds, size = usage.ru_utime + usage.ru_stime, max(usage.ru_maxrss * 1024 - before, 0)
    return Outcome(name, "hang" if hung else what, why, seconds, size)


def _run(name: str, writer: int) -> None:
    """Run the bomb in the child, report its outcome, and exit."""
    import minigibbs as mg
    from tests.fuzz.bombs import BOMBS

    resource.setrlimit(resource.RLIMIT_CPU, (DONE_SECONDS, DONE_SECONDS + 1))
    try:
        with limited_memory(MORE), open(os.devnull, "w") as quiet:
            os.dup2(quiet.fileno(), 2)
            BOMBS[name]()
        found = ("done", "")
    except mg.MissingDependencyError as error:
        found = (SKIPPED, str(error))
    except mg.MinigibbsError as error:
        found = ("refused", f"{type(error).__name__}: {error}")
    except BaseException as error:
        found = (f"{type(error).__name__} in {_place(error)}", str(error))
    os.write(writer, json.dumps([found[0], found[1][:2000]]).encode())
    os._exit(0)


def _place(error: BaseException) -> str:
    """Return the last line of this library that an error passed."""
    trace, place = error.__traceback__, "the bomb"
    while trace is not None:
        path = Path(trace.tb_frame.f_code.co_filename)
        if "minigibbs" in path.parts:
            place = f"{path.name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(arguments: Sequence[str]) -> int:
    """Run bombs and print one line for each; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz memory", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="those that compile nothing")
    parser.add_argument("names", nargs="*", help="some of the bombs")
    options = parser.parse_args(arguments)
    import minigibbs as mg
    from tests.fuzz.bombs import BOMBS, QUICK

    for name in dir(mg):  # imported once instead of in every child
        getattr(mg, name)
    names = options.names or list(QUICK if options.quick else BOMBS)
    outcomes = []
    for name in names:
        one = explode(name)
        outcomes.append(one)
        mark = "" if one.right else "WRONG "
        print(
            f"{mark}{one.name}: {one.what}, {one.seconds:.1f} s, {one.size / 2**20:.0f} MiB"
            f"{': ' if one.text else ''}{one.text}",
            flush=True,
        )
    wrong = sum(not one.right for one in outcomes)
    print(f"{len(outcomes)} bombs: {wrong} went wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
