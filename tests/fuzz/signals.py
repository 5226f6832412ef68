"""Signals at random moments: `python -m tests.fuzz signals --cases 100 --seed 0`.

Every entry point is interrupted by SIGINT or SIGTERM while it works. Calls run in children that are
forked after compilation; commands run as programs. A call that has started to build a result must
return it, and a program must report this by its exit code.

Outcomes are "result", "nothing yet" (the signal came before there was anything to return) and
"finished" (the call ended first). Everything else is a finding.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import minigibbs as mg
from minigibbs.engine import driver
from minigibbs.inference import maximize as searching
from minigibbs.learning import ascent, climb
from minigibbs.running import loop

RIGHT = ("result", "nothing yet", "finished")
PATIENCE = 15.0  # seconds from a signal to the end, on a loaded machine
QUIET = {"progress": False, "seed": 1}


def _glass() -> mg.FactorGraph:
    rng = np.random.default_rng(1)
    i, j = np.triu_indices(60, 1)
    return mg.FactorGraph([2] * 60, [mg.Ising(i, j, rng.normal(0, 0.3, len(i)))])


def _lattice() -> mg.FactorGraph:
    return mg.models.ising_lattice(side=16, beta=0.05)


def _learned() -> tuple[mg.FactorGraph, Any]:
    graph = mg.FactorGraph([2] * 40, [mg.Ising(range(39), range(1, 40), 0.0, name="J")])
    return graph, np.random.default_rng(1).integers(0, 2, (20_000, 40))


def _finite(array: Any) -> bool:
    return bool(np.isfinite(np.asarray(array)).all())


def _fit(**options: Any) -> bool:
    graph, rows = _learned()
    fit = mg.learn(graph, rows, **options, **QUIET)
    return _finite(fit.parameters["J"])


def _structure(method: str) -> bool:
    _, rows = _learned()
    found = mg.learn_structure(rows, method, bootstrap=10**6, restarts=10**6, **QUIET)
    return found.graph is not None and found.ended in ("converged", "interrupted", "terminated")


def _fitted(folder: Path) -> None:
    _, rows = _learned()
    i, j = np.triu_indices(40, 1)
    model = mg.FactorGraph([2] * 40, [mg.Ising(i, j, 0.0, name="J")])
    mg.learn(model, rows, steps=2, **QUIET).save(folder / "fit.mgf")


def _likelihood(folder: Path) -> bool:
    _, rows = _learned()
    return _finite(mg.load(folder / "fit.mgf").log_likelihood(rows, standard_error=1e-9).mean)


def _run(run: mg.Run) -> bool:
    return run.counts is not None and _finite(run.counts)


# By name: works for seconds, and returns whether its result is valid.
CALLS: dict[str, Callable[[Path], bool]] = {
    "sample": lambda _: _run(mg.sample(_lattice(), sweeps=10**7, **QUIET)),
    "sample, draws": lambda _: _run(
        mg.sample(_lattice(), mg.Gibbs(), sweeps=10**6, scan="random", **QUIET)
    ),
    "sample_until": lambda _: _run(mg.sample_until(_glass(), ess=10**7, **QUIET)),
    "sample, tempering": lambda _: _run(mg.sample(_glass(), mg.Tempering(), sweeps=10**7, **QUIET)),
    "sample, checkpoint": lambda folder: (
        _run(mg.sample(_lattice(), sweeps=10**7, checkpoint=folder / "run", every=0.1, **QUIET))
        and _run(mg.load(folder / "run"))
    ),
    "sample_many": lambda _: all(
        map(_run, mg.sample_many([_lattice()] * 10**4, sweeps=20_000, **QUIET))
    ),
    "infer, log Z": lambda _: _finite(
        mg.infer(_lattice(), "60s", exact=False, standard_error=1e-9, **QUIET).marginals
    ),
    "infer, tempering": lambda _: _finite(
        mg.infer(_glass(), "60s", exact=False, standard_error=1e-9, **QUIET).marginals
    ),
    "infer, exact": lambda _: _finite(
        mg.infer(mg.models.ising_lattice(side=21, beta=0.3, periodic=False), "600s").marginals
    ),
    "maximize": lambda _: _finite(mg.maximize(_glass(), "60s", chains=2, **QUIET).energy),
    "learn, pcd": lambda _: _fit(steps=10**6),
    "learn, checkpoint": lambda folder: _fit(steps=10**6, checkpoint=folder / "fit", every=0.1),
    "learn, pseudo": lambda _: _fit(method="pseudo", steps=10**6),
    "learn, start": lambda _: _fit(start="pseudo", steps=10**6),
    "learn, exact": lambda _: _fit(method="exact", steps=10**6),
    "learn_structure, tree": lambda _: _structure("tree"),
    "learn_structure, network": lambda _: _structure("network"),
    "log_likelihood": _likelihood,
    "resume": lambda folder: _run(mg.resume(folder / "run", max_time="60s", progress=False)),
    "explain": lambda _: bool(str(mg.explain(mg.models.ising_lattice(side=500, beta=0.3)))),
}
# Prerequisites of a call, created before signals can arrive.
PREPARATIONS: dict[str, Callable[[Path], Any]] = {
    "resume": lambda folder: mg.sample_until(
        _lattice(), ess=10**9, max_time=3.0, checkpoint=folder / "run", every=0.1, **QUIET
    ),
    "log_likelihood": _fitted,
}
LATTICE = "ising-lattice:side=16,beta=0.2"
PROGRAMS: dict[str, list[str]] = {
    "minigibbs sample": ["sample", LATTICE, "--sweeps", str(10**8), "-q", "--out", "m.csv"],
    "minigibbs infer": [
        "infer",
        LATTICE,
        "--no-exact",
        "--max-time",
        "60s",
        "-q",
        "--out",
        "m.csv",
    ],
    "minigibbs maximize": ["maximize", LATTICE, "--max-time", "60s", "-q", "--out", "m.csv"],
    "minigibbs explain": ["explain", "ising-lattice:side=500,beta=0.3"],
    "minigibbs --help": ["--help"],
}


def _mark(path: Path) -> None:
    """Write a file once a task has something to return: from then on it must return a result.

    A run has a result after its first recorded update, any other task after its first segment.
    """

    def marked(task: Any, watch: Any) -> str:
        segment = task.segment

        def marking() -> str:
            ended = segment()
            if not isinstance(task, loop.Loop) or all(group.clock for group in task.groups):
                path.touch()
                task.segment = segment
            return str(ended)

        task.segment = marking
        return driver.drive(task, watch)

    for module in (loop, ascent, climb, searching):
        module.drive = marked  # type: ignore[attr-defined]


def _child(name: str, folder: Path) -> None:
    """Make a call, and record its outcome; never return."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    said = "lost its result"
    try:
        PREPARATIONS.get(name, lambda _: None)(folder)
        _mark(folder / "begun")
        (folder / "called").touch()
        said = "result" if CALLS[name](folder) else "unsound result"
    except KeyboardInterrupt:
        said = "interrupted"
    except BaseException as error:
        said = f"{type(error).__name__}: {str(error)[:80]}"
    (folder / "said").write_text(said)
    os._exit(0)


def call_case(name: str, number: int, delay: float) -> str:
    """Interrupt a call after some seconds; return the outcome."""
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        child = os.fork()
        if child == 0:
            _child(name, folder)
        while not (folder / "called").exists():
            if os.waitpid(child, os.WNOHANG)[0]:
                said = (folder / "said").read_text()
                return "finished" if (folder / "called").exists() else f"not prepared: {said}"
            time.sleep(0.005)
        time.sleep(delay)
        begun = (folder / "begun").exists()
        if os.waitpid(child, os.WNOHANG)[0]:
            return "finished"
        os.kill(child, number)
        status = _wait(child)
        if status is None:
            return f"no end within {PATIENCE:g} s"
        if not (folder / "said").exists():
            killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM
            what = "nothing yet" if killed and number == signal.SIGTERM else f"status {status}"
        else:
            said = (folder / "said").read_text()
            what = "nothing yet" if said == "interrupted" else said
        return "lost its result" if begun and what == "nothing yet" else what


def _wait(child: int) -> int | None:
    """Return a child's status, or None if it hangs and was killed."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def program_case(name: str, number: int, delay: float) -> str:
    """Interrupt a program after some seconds; return the outcome."""
    with tempfile.TemporaryDirectory() as where:
        program = subprocess.Popen(
            [sys.executable, "-m", "minigibbs", *PROGRAMS[name]],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=where,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        time.sleep(delay)
        program.send_signal(number)
        try:
            _, said = program.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            program.kill()
            program.communicate()
            return f"no end within {PATIENCE:g} s"
        if "Traceback" in said and "entry.py" in said:  # not while Python itself starts
            return "traceback"
        code, kept = program.returncode, (Path(where) / "m.csv").exists()
        if code == 0:
            return "finished"
        usual = (130, -signal.SIGINT) if number == signal.SIGINT else (143, -signal.SIGTERM)
        if code not in (*usual, 1 if "Traceback" in said else 130):
            return f"exit code {code}"
        return "result" if kept else "nothing yet"


def try_case(name: str, number: int, delay: float) -> str:
    """Interrupt a call or a program after some seconds; return the outcome."""
    return (call_case if name in CALLS else program_case)(name, number, delay)


def chosen(seed: int, case: int, only: str = "") -> tuple[str, int, float]:
    """Return the entry point, the signal and the delay of a case."""
    rng = random.Random(f"signals {seed} {case}")
    names = [name for name in (*CALLS, *PROGRAMS) if only in name]
    number = rng.choice([signal.SIGINT, signal.SIGTERM])
    return names[case % len(names)], number, 3.0 * rng.random() ** 2


def campaign(seed: int, cases: int, only: str = "") -> Counter[tuple[str, str]]:
    """Send signals; return the count of each outcome by entry point."""
    found = Counter[tuple[str, str]]()
    for case in range(cases):
        name, number, delay = chosen(seed, case, only)
        found[name, try_case(name, number, delay)] += 1
    return found


def warm() -> None:
    """Compile the functions of the calls in this process, so that children have them.

    Programs that a shell starts in the background ignore SIGINT, and so do their children: the
    handler is reset.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    graph, rows = _learned()
    mg.sample(_lattice(), sweeps=2, **QUIET)
    mg.sample(_lattice(), mg.Gibbs(), sweeps=2, scan="random", **QUIET)
    mg.sample_until(_glass(), ess=10, max_time=1, **QUIET)
    mg.infer(_lattice(), 1, exact=False, **QUIET)
    mg.infer(mg.models.ising_lattice(side=6, beta=0.3, periodic=False))
    mg.maximize(_glass(), 0.5, **QUIET)
    for method in ("pcd", "pseudo"):
        mg.learn(graph, rows[:100], method, steps=2, **QUIET)
    for method in ("tree", "network"):
        mg.learn_structure(rows[:100], method, restarts=1, **QUIET)


def main(arguments: list[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz signals", description=__doc__)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="entry points whose names hold this text")
    options = parser.parse_args(arguments)
    import warnings

    warnings.simplefilter("ignore")
    warm()
    found = campaign(options.seed, options.cases, options.only)
    for name in (*CALLS, *PROGRAMS):
        own = {what: count for (one, what), count in found.items() if one == name}
        if own:
            print(f"{name:<20} {', '.join(f'{c} {w}' for w, c in sorted(own.items()))}")
    wrong = sum(count for (_, what), count in found.items() if what not in RIGHT)
    print(f"{sum(found.values())} signals, {wrong} findings")
    return 1 if wrong else 0
