"""One program in many environments: it gives the correct answer or refuses clearly.

Run `python -m tests.fuzz environments [name ...]`. The program samples, reads the summary and
writes its draws to a file. Its answer is correct if the draws equal those of the plain environment.
A clear refusal ends with an error of this library.
"""

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tests.paths import ROOT

PATIENCE = 300  # seconds, compilation included
RIGHT, REFUSED = "right", "refused"
PROGRAM = """
import pathlib, sys
import minigibbs as mg
graph = mg.models.ising_lattice(side=3, beta=0.3)
run = mg.sample(graph, mg.Gibbs(), sweeps=20, chains=2, seed=1, record="draws")
text = str(run.summary())
draws = run.draws.tobytes().hex()
with open(sys.argv[1], "w") as stream:
    stream.write(draws if "Gibbs" in text else text)
"""


class Environment(NamedTuple):
    """The environment of the program."""

    variables: Mapping[str, str | None] = MappingProxyType({})  # None: not set
    flags: tuple[str, ...] = ()  # of Python
    before: Callable[[], object] | None = None  # called in the child before Python starts
    cache: Callable[[Path], object] | None = None  # applied to a warm cache of compiled code


def _limit(kind: int, amount: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (amount, resource.getrlimit(kind)[1]))


def _leave() -> None:
    """Change to a folder that has been removed."""
    gone = tempfile.mkdtemp()
    os.chdir(gone)
    os.rmdir(gone)


def _each(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        for path in [*folder.rglob("*.nbi"), *folder.rglob("*.nbc")]:
            path.write_bytes(change(path.read_bytes()))

    return damage


def _flipped(content: bytes) -> bytes:
    changed = bytearray(content)
    changed[len(changed) // 2] ^= 0xFF
    return bytes(changed)


def _folders(folder: Path) -> None:
    for path in folder.rglob("*.nbi"):
        path.unlink()
        path.mkdir()


ENVIRONMENTS = {
    "plain": Environment(),
    "cache truncated": Environment(cache=_each(lambda content: content[: len(content) // 2])),
    "cache empty": Environment(cache=_each(lambda content: b"")),
    "cache of garbage": Environment(cache=_each(lambda content: b"\x80\x05garbage" * 40)),
    "cache with a flipped byte": Environment(cache=_each(_flipped)),
    "cache of folders": Environment(cache=_folders),
    "cache gone": Environment(cache=shutil.rmtree),
    "cache not writable": Environment({"NUMBA_CACHE_DIR": "/proc/nowhere"}),
    "cache disk full": Environment(cache=shutil.rmtree, before=_limit(resource.RLIMIT_FSIZE, 2048)),
    "-O": Environment(flags=("-O",)),
    "-OO": Environment(flags=("-OO",)),
    "-X dev": Environment(flags=("-X", "dev")),
    "-bb": Environment(flags=("-bb",)),
    "-B": Environment(flags=("-B",)),
    "no working directory": Environment(before=_leave),
    "LANG=C": Environment({"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"}),
    "ASCII output": Environment({"PYTHONIOENCODING": "ascii", "PYTHONCOERCECLOCALE": "0"}),
    "LC_ALL=tr_TR": Environment({"LC_ALL": "tr_TR.UTF-8"}),
    "no HOME": Environment({"HOME": None}),
    "HOME that is not there": Environment({"HOME": "/nowhere"}),
    "HOME and cache are files": Environment({"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null"}),
    "no PATH": Environment({"PATH": None}),
    "TMPDIR that is not there": Environment({"TMPDIR": "/nowhere"}),
    "TERM=dumb": Environment({"TERM": "dumb"}),
    "no TERM": Environment({"TERM": None}),
    "COLUMNS=1": Environment({"COLUMNS": "1", "LINES": "1"}),
    "NO_COLOR": Environment({"NO_COLOR": "1"}),
    "FORCE_COLOR": Environment({"FORCE_COLOR": "1"}),
    "stdin closed": Environment(before=lambda: os.close(0)),
    "stdout closed": Environment(before=lambda: os.close(1)),
    "stderr closed": Environment(before=lambda: os.close(2)),
    "SIGINT ignored": Environment(before=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)),
    "SIGTERM ignored": Environment(before=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN)),
    "4 GB of addresses": Environment(before=_limit(resource.RLIMIT_AS, 4 << 30)),
    "64 open files": Environment(before=_limit(resource.RLIMIT_NOFILE, 64)),
    "stack of 1 MB": Environment(before=_limit(resource.RLIMIT_STACK, 1 << 20)),
    "one core": Environment(before=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})),
    "umask 077": Environment(before=lambda: os.umask(0o077)),
    "NUMBA_DISABLE_JIT": Environment({"NUMBA_DISABLE_JIT": "1"}),
    "NUMBA_NUM_THREADS=1": Environment({"NUMBA_NUM_THREADS": "1"}),
    "NUMBA_BOUNDSCHECK": Environment({"NUMBA_BOUNDSCHECK": "1"}, cache=shutil.rmtree),
    "OMP_NUM_THREADS=1": Environment({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}),
    "PYTHONHASHSEED": Environment({"PYTHONHASHSEED": "4294967295"}),
    "PYTHONWARNINGS=error": Environment({"PYTHONWARNINGS": "error::UserWarning:minigibbs"}),
    "PYTHONMALLOC=debug": Environment({"PYTHONMALLOC": "debug"}),
    "another time zone": Environment({"TZ": "Pacific/Kiritimati"}),
}


def _path() -> str:
    """Return our sources, then packages that were added to the path of this process."""
    given = os.environ.get("PYTHONPATH", "")
    packages = [str(Path(one).absolute()) for one in given.split(os.pathsep) if one]
    return os.pathsep.join([str(ROOT / "src"), str(ROOT), *packages])


def start(environment: Environment, cache: Path | None) -> tuple[str, str]:
    """Run the program; return its answer, and its stderr followed by its exit code."""
    variables = {**os.environ, "PYTHONPATH": _path()}
    if cache is not None:
        variables["NUMBA_CACHE_DIR"] = str(cache)
    for name, value in environment.variables.items():
        variables.pop(name, None)
        if value is not None:
            variables[name] = value
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer"
        done = subprocess.run(
            [sys.executable, *environment.flags, "-c", PROGRAM, str(answer)],
            env=variables,
            preexec_fn=environment.before,
            capture_output=True,
            timeout=PATIENCE,
        )
        text = done.stderr.decode(errors="replace")
        found = answer.read_text() if answer.exists() and done.returncode == 0 else ""
        return found, f"{text.strip()[-400:]} (exit code {done.returncode})"


def try_environment(name: str, expected: str, warm: Path | None) -> str:
    """Return RIGHT, REFUSED, or the failure; a copy of the cache `warm` is damaged."""
    environment = ENVIRONMENTS[name]
    with tempfile.TemporaryDirectory() as folder:
        cache = None
        if environment.cache is not None and warm is not None:
            cache = Path(folder) / "cache"
            shutil.copytree(warm, cache)
            environment.cache(cache)
        try:
            answer, said = start(environment, cache)
        except subprocess.TimeoutExpired:
            return f"a hang: no answer in {PATIENCE} s"
    if answer == expected:
        return RIGHT
    last = said.splitlines()[-1]
    return REFUSED if last.startswith("minigibbs.errors.") else f"{answer[:40]!r}; {said}"


def main(arguments: list[str]) -> int:
    """Try environments, by default all."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz environments", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(ENVIRONMENTS)}")
    names = parser.parse_args(arguments).names or list(ENVIRONMENTS)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        warm = Path(folder)
        expected, said = start(Environment(), warm)
        assert expected, said
        for name in names:
            found = try_environment(name, expected, warm)
            wrong += found not in (RIGHT, REFUSED)
            print(f"{name:<28} {found}", flush=True)
    print(f"{len(names)} environments: {wrong} went wrong")
    return 1 if wrong else 0
