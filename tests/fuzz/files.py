"""Unexpected files in place of a run's or a fit's: links, pipes, sockets, folders, a user's files.

Run `python -m tests.fuzz files --count 1000 --seed 0`. A case takes valid files, replaces one of
them or adds one, and reads, resumes or restarts there. It passes if it ends in time with a result
or with an error of this library, and the user's files are unchanged.
"""

import argparse
import contextlib
import os
import random
import signal
import socket
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import minigibbs as mg
from tests.fuzz.cases import READ, REFUSED, outcome, valid
from tests.learning import models

PATIENCE = 60  # seconds per case, compilation included
MINE = b"Dear diary, nothing of this may change.\n"
_QUIET = {"seed": 1, "progress": False}
_GRAPH = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])


def _bound(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)


# Possible objects in place of a file; `mine` is a file of the user.
ODD = {
    "link": lambda path, mine: path.symlink_to(mine),
    "dangling link": lambda path, mine: path.symlink_to(mine.with_name("nowhere")),
    "link to itself": lambda path, mine: path.symlink_to(path.name),
    "link to a device": lambda path, mine: path.symlink_to("/dev/zero"),
    "hard link": lambda path, mine: path.hardlink_to(mine),
    "pipe": lambda path, mine: os.mkfifo(path),
    "socket": lambda path, mine: _bound(path),
    "folder": lambda path, mine: path.mkdir(),
    "nothing": lambda path, mine: None,
    "empty": lambda path, mine: path.touch(),
    "other content": lambda path, mine: path.write_bytes(MINE),
}
# Possible names of a user's own file in the folder.
NAMES = (
    "records-2024.npz",
    "records-20240101.npz",
    "records-99999999.npz",
    "state-00000009.npz",
    "notes.txt",
    ".notes.npz.txt",
    ".state-00000001.npz.notes",
    "a.mgl.0123456789abcdef.npz",
    "a.mgl.lock",
)


def _resume_learning(folder: Path) -> None:
    mg.resume_learning(folder / "a.mgl", steps=1, threads=1, progress=False)


def _learn(folder: Path) -> None:
    graph = models.mixed()
    rows = models.some_rows(graph, 6)
    mg.learn(graph, rows, steps=1, chains=4, errors=False, checkpoint=folder / "a.mgl", **_QUIET)


def _resume(folder: Path) -> None:
    mg.resume(folder, threads=1, max_time=0.02, progress=False)


def _sample(folder: Path) -> None:
    mg.sample(_GRAPH, sweeps=5, chains=1, checkpoint=folder, **_QUIET)


ACTIONS = {
    "load": ("checkpoint", lambda folder: mg.load(folder)),
    "resume": ("checkpoint", _resume),
    "sample": ("checkpoint", _sample),
    "resume_learning": ("learning", _resume_learning),
    "learn": ("learning", _learn),
    "load a run": ("run", lambda folder: mg.load(folder / "a.run")),
    "load a model": ("mg", lambda folder: mg.load(next(folder.glob("*.mg"), folder / "a.mg"))),
}


@cache
def _content(target: str) -> list[dict[str, bytes]]:
    found = valid(target)
    if target == "checkpoint":
        found = [{**files, "lock": b"process 1 on elsewhere\n"} for files in found]
    return found


def run_case(seed: int, number: int, folder: Path) -> tuple[str, str]:
    """Build a case and try it; return its description, and READ, REFUSED or the failure."""
    rng = random.Random(f"files {seed} {number}")
    action = rng.choice(list(ACTIONS))
    target, act = ACTIONS[action]
    place, mine = folder / "case", folder / "mine"
    place.mkdir()
    mine.write_bytes(MINE)
    content = {} if rng.random() < 0.1 else rng.choice(_content(target))
    for name, data in content.items():
        (place / name).write_bytes(data)
    kept = [mine]
    odd, name = rng.choice(list(ODD)), rng.choice([*content, *NAMES])
    if name in content:
        (place / name).unlink()
    ODD[odd](place / name, mine)
    if odd in ("other content", "hard link"):
        kept.append(place / name)
    what = f"{action}, {odd} as {name}"
    found = _in_time(lambda: outcome(lambda: act(place)))
    if found.startswith("FileNotFoundError"):  # as for any missing path
        found = REFUSED
    if name in content and found == READ:
        kept = [mine]  # a damaged file of the run may be overwritten
    for path in kept:
        if not path.is_file() or path.read_bytes() != MINE:
            return what, f"{path.name} of the user has changed"
    return what, found


def _in_time(action) -> str:
    def late(*_):
        raise TimeoutError("a hang")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(PATIENCE)
    try:
        return action()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def campaign(seed: int, first: int, count: int) -> Counter[str]:
    """Try `count` cases; failures are counted by case."""
    found = Counter[str]()
    for number in range(first, first + count):
        with tempfile.TemporaryDirectory() as name:
            what, came = run_case(seed, number, Path(name))
        right = came in (READ, REFUSED)
        found[came if right else f"{came} (case {number}: {what})"] += 1
    return found


def main(arguments: list[str]) -> int:
    """Try a number of cases."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz files", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    found = campaign(options.seed, 0, options.count)
    for what, count in found.most_common():
        print(f"{count:>8,} {what}")
    return 1 if set(found) - {READ, REFUSED} else 0
