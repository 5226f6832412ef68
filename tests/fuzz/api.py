"""Calls of the public API with wrong arguments: `python -m tests.fuzz api --cases 5000 --seed 3`.

Every public function, constructor and method is called with valid arguments, some of which are
replaced by values from a large pool. A call is text, so that a finding is its own reproducer: paste
it after `from tests.fuzz.values import *`. Calls run in a child process with limited memory. A
child that spends too long on one call is killed and counts as a hang.
"""

import argparse
import inspect
import json
import os
import random
import select
import signal
import tempfile
import time
import traceback
import types
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import minigibbs as mg
from tests.fuzz.limits import limited_memory, seconds_used
from tests.fuzz.values import (
    ALWAYS,
    INSTANCES,
    OPTIONAL,
    POOL,
    RESULTS,
    VALID,
    by_annotation,
    names,
)

OK, WARNED, REFUSED, SYSTEM = "ok", "warning", "our error", "error of the file system"
ESTIMATOR = "error of scikit-learn"  # its contract requires its own errors for tables
ABSENT = "not installed"  # the argument is an object of a library that is not installed
HARMLESS = (OK, WARNED, REFUSED, SYSTEM, ESTIMATOR, ABSENT)
PATIENCE = 60.0  # processor seconds per call, compilation included
_WALL = 600.0  # seconds per call, on a shared machine
# Methods that only the library calls, with its own results: the interface of extensions.
HOOKS = frozenset(
    "account bind carry_over check_domains count energies energy_cost entries from_dict "
    "implicit_energies ladder distribution lines local lower of pair_weights pieces prepare "
    "resolve totals varying weight_of with_flat with_numbers workspace".split()
)
# Instances of classes that calls and bridges return, and that are not names of `mg`.
_HIDDEN = (
    "seen reader annealer temperatures ladder population imputer repairer machine restricted"
).split()


class Target(NamedTuple):
    """A public callable: the text of its call, and the names and annotations of its parameters."""

    name: str
    parameters: dict[str, inspect.Parameter]


@cache
def targets() -> dict[str, Target]:
    """Return every public function, constructor and method by its name."""
    found: dict[str, Target] = {}
    for name, public in _public():
        if inspect.isclass(public):
            for title, function in _methods(name, public):
                _add(found, title, function)
        else:
            _add(found, name, public)
    return found


def _public() -> Iterator[tuple[str, object]]:
    for name in mg.__all__:
        public = getattr(mg, name)
        if inspect.ismodule(public):
            own = getattr(public, "__all__", None) or [
                key
                for key, value in vars(public).items()
                if getattr(value, "__module__", "") == public.__name__ and key[0] != "_"
            ]
            yield from ((f"mg.{name}.{key}", getattr(public, key)) for key in own)
        elif callable(public):
            yield f"mg.{name}", public
    for name in _HIDDEN:
        if name in names():
            yield type(names()[name]).__name__, type(names()[name])
    for name in names():
        if name.startswith("fit_"):
            yield name, names()[name]


def _methods(name: str, public: type) -> Iterator[tuple[str, object]]:
    """Yield the constructor, and the methods of the instance that represents the class."""
    if issubclass(public, BaseException) or public.__module__.split(".")[0] != "minigibbs":
        return
    if name not in RESULTS:
        yield name, public
    for key in dir(public):
        owner = next(base for base in public.__mro__ if key in vars(base))
        member = vars(owner)[key]
        if key.startswith("_") or key in HOOKS or not owner.__module__.startswith("minigibbs"):
            continue
        if isinstance(member, classmethod | staticmethod):
            yield f"{name}.{key}", getattr(public, key)
        elif isinstance(member, types.FunctionType) and name in INSTANCES:
            yield f"{INSTANCES[name]}.{key}", member


def _add(found: dict[str, Target], title: str, function: object) -> None:
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        return
    parameters = dict(inspect.signature(function).parameters)
    parameters.pop("self", None)
    if parameters:
        found[title] = Target(title, parameters)


def call(seed: int, number: int) -> str:
    """Return the text of a call, determined by a seed and a number."""
    rng = random.Random(f"api {seed} {number}")
    known = list(targets().values())
    target = rng.choices(known, [len(one.parameters) for one in known])[0]
    always = ALWAYS.get(target.name, {})
    wrong = set(
        rng.sample(list(target.parameters), min(len(target.parameters), rng.choice(_HOW_MANY)))
    )
    arguments = []
    for name, parameter in target.parameters.items():
        needed = parameter.default is parameter.empty and parameter.kind not in _STARRED
        if name not in wrong and name not in always and not needed and rng.random() < 0.7:
            continue
        value = rng.choice(_choices(target, name, parameter, always, name in wrong))
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments += _options(target, rng, name in wrong)
            continue
        starred = parameter.kind is parameter.VAR_POSITIONAL
        arguments.append(value if starred else f"{name}={value}")
    return f"{target.name}({', '.join(arguments)})"


def _options(target: Target, rng: random.Random, wrong: bool) -> list[str]:
    """Return an option of the function that receives further keyword arguments."""
    passed = targets().get(_PASSED.get(target.name, ""))
    known = {k: v for k, v in passed.parameters.items() if k not in _OWN} if passed else _READING
    name = rng.choice([*known, "unknown"])
    if name in target.parameters:
        return []
    value = rng.choice(POOL if wrong else VALID.get(name) or ["1.0"])
    return [f"{name}={value}"]


_PASSED = {"mg.sample_many": "mg.sample"}
_OWN = ("graph", "checkpoint")
_READING = ("floor", "beta", "hard")
_HOW_MANY = (0, 1, 1, 1, 1, 2)
_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _choices(target, name, parameter, always, wrong) -> list[str]:
    if wrong:
        return POOL
    if name in always:
        return [always[name]]
    known = VALID.get(f"{target.name}.{name}") or VALID.get(name)
    return known or by_annotation(str(parameter.annotation))


def outcome(text: str) -> str:
    """Return the outcome of a call: one of `HARMLESS`, or the foreign error and its place."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            eval(text, names())
        except mg.MinigibbsError:
            return REFUSED
        except OSError:
            return SYSTEM
        except BaseException as error:
            if _of_estimators(error):
                return ESTIMATOR
            if isinstance(error, NameError) and error.name in OPTIONAL:
                return ABSENT
            return f"foreign: {type(error).__name__} in {_place(error)}: {_line(error)}"
    return WARNED if caught else OK


def _of_estimators(error: BaseException) -> bool:
    """Return whether scikit-learn refused a table or a fitted state, or our reader did likewise."""
    last = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    theirs = "sklearn" in last.parts and ("minigibbs" not in last.parts or last.stem == "reading")
    return isinstance(error, ValueError | TypeError | AttributeError) and theirs


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:150].encode("ascii", "backslashreplace").decode()


def _place(error: BaseException) -> str:
    """Return the last function of this library that the error passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "minigibbs" in frame.filename] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}"


class Results:
    """Counts of outcomes, and a reproducer for each kind of failure."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.found: dict[str, list[str]] = defaultdict(list)
        self.slow: list[tuple[float, str]] = []

    def add(self, text: str, what: str, seconds: float) -> None:
        self.counts[what if what in HARMLESS else what.split(":")[0]] += 1
        if what not in HARMLESS:
            self.found[what].append(text)
            print(f"{what}\n    {text}", flush=True)
        if seconds > 5.0:
            self.slow.append((seconds, text))

    @property
    def harm(self) -> int:
        """Count the calls that ended in anything but a result or an error of this library."""
        return sum(map(len, self.found.values()))

    def table(self) -> str:
        """Format the counts, then each kind of failure with its shortest reproducer."""
        lines = [f"{count:>8,} {what}" for what, count in self.counts.most_common()]
        for what, texts in sorted(self.found.items(), key=lambda item: -len(item[1])):
            lines += [f"WRONG {len(texts)} x {what}", f"    {min(texts, key=len)}"]
        lines += [f"SLOW {seconds:.0f} s: {text}" for seconds, text in self.slow]
        return "\n".join(lines)


def run(texts: list[str], patience: float = PATIENCE) -> Results:
    """Make calls in child processes, and start a new child after every hang and crash."""
    results, done = Results(), 0
    names()  # before children are forked, which share them
    while done < len(texts):
        with tempfile.TemporaryDirectory() as folder:
            done = _watch(texts, done, folder, patience, results)
    return results


def _watch(texts, first, folder, patience, results) -> int:
    """Run calls in one child until all are done, or one hangs; return the number of the next."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _child(texts, first, folder, writing)
    os.close(writing)
    number, since, busy = first, time.monotonic(), 0.0
    with open(reading, buffering=1) as stream:
        while True:
            ready = select.select([stream], [], [], patience)[0]
            if (
                not ready
                and seconds_used(pid) - busy < patience
                and time.monotonic() - since < _WALL
            ):
                continue  # the machine is loaded
            line = stream.readline() if ready else ""
            if not line:
                break
            what, now = json.loads(line), time.monotonic()
            results.add(texts[number], what, now - since)
            number, since, busy = number + 1, now, seconds_used(pid)
        if not ready:
            os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    if number < len(texts):
        died = f"crash: {os.waitstatus_to_exitcode(status)}"
        results.add(texts[number], died if ready else f"hang: over {patience:.0f} s", 0.0)
        number += 1
    return number


def _child(texts, first, folder, writing) -> None:
    """Make calls one after the other, and report each."""
    try:
        os.chdir(folder)
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        with limited_memory():
            for text in texts[first:]:
                os.write(writing, (json.dumps(outcome(text)) + "\n").encode())
    finally:
        os._exit(0)


def main(arguments: list[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz api", description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", default="", help="part of the names of what is called")
    options = parser.parse_args(arguments)
    texts, number = [], options.first
    while len(texts) < options.cases:
        text = call(options.seed, number)
        number += 1
        if options.only in text:
            texts.append(text)
    began, results = time.monotonic(), run(texts)
    print(results.table())
    seconds = time.monotonic() - began
    print(f"{len(texts):,} calls of {len(targets())} names, seed {options.seed}, {seconds:.0f} s")
    return 1 if results.harm else 0
