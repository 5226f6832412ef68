"""A run that is killed repeatedly; `test_checkpoint.py` starts this as a program.

It forks a child for every attempt, so that attempts need no imports, and kills it with SIGKILL
after a random time. It prints the number of killed attempts, how many of these had made progress,
and whether the result equals that of an undisturbed run. Only children use a GPU, because a process
that has used one cannot be forked.
"""

import json
import os
import random
import signal
import sys
import time

import numpy as np

import minigibbs as mg
from tests.harness import sample, sample_until
from tests.learning import models
from tests.settings import SETTINGS
from tests.zoo import ATTRACTIVE, IMPLICIT, ZOO

ARRAYS = ("clock", "counts", "kept_draws", "energy", "error")
TALLIES = ("factor_evaluations", "minibatch_draws", "acceptance", "changed", "updates", "warmup")
MOMENTS = ("data_moments", "model_moments", "deviations")
OBSERVED = {
    "m": "magnetization",
    "distribution": mg.observables.Histogram(bins=4),
    "own": lambda x: x[0],
}
GRAPHS = {
    **ATTRACTIVE,
    **IMPLICIT,
    **ZOO,
    "lattice": mg.models.ising_lattice(side=10, beta=0.4),
    "potts-lattice": mg.models.potts_lattice(side=8, states=5, beta=0.8),
}
SAMPLERS = {
    "default": mg.PoissonGibbs(),
    "min-gibbs": mg.MinGibbs(batch=60),
    "fields": mg.Gibbs(fields=True),
    "block-gibbs": mg.BlockGibbs(blocks=[[0, 1], [2]]),
    "swendsen-wang": mg.SwendsenWang(),
    "exact": mg.ExactSampler(),
    "tempering": mg.Tempering(levels=6),
    "tempering-3": mg.Tempering(levels=(0.0, 0.3, 1.0), houdayer=False),
}
FREED = 10.0  # seconds until the lock of a killed run must be free
NOTICED = 60.0  # seconds within which a child must write


class Sampling:
    """A run of `mg.sample` or `mg.sample_until`."""

    def __init__(self, model, sampler, options):
        self.graph, self.options = GRAPHS[model], dict(options)
        found = SAMPLERS.get(sampler) or SETTINGS[sampler].sampler
        self.options |= {"sampler": found, "progress": False}
        if "backend" not in self.options:
            self.options["threads"] = 2
        self.options.pop("noticed", None)
        if self.options.pop("reference", False):
            self.options["reference"] = np.full((len(self.graph), self.graph.sizes.max()), 0.5)
        if self.options.pop("observe", False):
            self.options["observe"] = OBSERVED

    def start(self, **more):
        """Sample for a fixed length, or until a goal is met."""
        begin = sample_until if "ess" in self.options else sample
        return begin(self.graph, **self.options, **more)

    def attempt(self, folder):
        """Resume the run, or start it."""
        own = {"own": OBSERVED["own"]} if "observe" in self.options else None
        options = {"executor": self.options.get("executor"), "observe": own}
        end = time.monotonic() + FREED
        while True:
            try:
                return mg.resume(folder, progress=False, **options)
            except mg.SampleError as error:
                if self.progress(folder):  # a run that has begun can be resumed
                    print(repr(error), file=sys.stderr, flush=True)
                if "in use" not in str(error) or time.monotonic() > end:
                    break
            time.sleep(0.05)  # workers of the killed run have not ended yet, and hold its lock
        return self.start(checkpoint=folder, every=0.01)  # killed before the first checkpoint

    def scale(self, seconds):
        """Scale the length of a run to seconds by a short run, because a GPU's speed is unknown."""
        for _ in range(2):  # the first one compiles
            begun = time.monotonic()
            self.start()
        times = max(1, round(seconds / (time.monotonic() - begun)))
        for name in ("sweeps", "thin"):
            self.options[name] *= times

    @staticmethod
    def same(run, other):
        """Return whether two runs are bit-identical."""
        same = all(np.array_equal(getattr(run, n), getattr(other, n)) for n in ARRAYS)
        same = same and all(getattr(run.info, n) == getattr(other.info, n) for n in TALLIES)
        same = (
            same and run.ladder == other.ladder and set(run.observables) == set(other.observables)
        )
        for name in run.observables:
            a, b = run.observables[name], other.observables[name]
            same = same and np.array_equal(a.series, b.series)
        return same

    @staticmethod
    def progress(folder):
        """Return the name of the checkpoint's newest generation."""
        if not os.path.isdir(folder):
            return ""
        return max((name for name in os.listdir(folder) if name.startswith("state-")), default="")


class Learning:
    """A fit of `mg.learn`."""

    def __init__(self, model, sampler, options):
        self.options = dict(options)
        self.options.pop("record", None)
        lattice = mg.models.ising_lattice(side=4, beta=0.3)
        pairs = lattice.factors[0].scope
        grid = mg.FactorGraph([2] * 16, [mg.Ising(pairs[:, 0], pairs[:, 1], 0.1, name="J")])
        self.graph = grid if model == "grid" else models.mixed()
        missing = self.options.pop("missing", 0.0)
        self.rows = models.some_rows(self.graph, 60, missing=missing)
        given = None if sampler is None else SAMPLERS[sampler]
        self.options |= {"sampler": given, "progress": False, "threads": 2, "l2": 0.1}

    def start(self, **more):
        """Learn from the beginning."""
        return mg.learn(self.graph, self.rows, **self.options, **more)

    def attempt(self, path):
        """Resume the fit, or start it."""
        try:
            return mg.resume_learning(path, progress=False, threads=2)
        except FileNotFoundError:  # killed before the first checkpoint
            return self.start(checkpoint=path, every=0.01)

    @staticmethod
    def same(fit, other):
        """Return whether two fits are bit-identical, except for the elapsed seconds."""
        same = all(np.array_equal(getattr(fit, n), getattr(other, n)) for n in MOMENTS)
        same = same and (fit.steps, fit.ended) == (other.steps, other.ended)
        same = same and all(
            np.array_equal(values, other.parameters[name])
            for name, values in fit.parameters.items()
        )
        names = set(fit.history) - {"seconds"}
        return same and all(
            np.array_equal(fit.history[n], other.history[n], equal_nan=True) for n in names
        )

    @staticmethod
    def progress(path):
        """Return when the checkpoint was written."""
        try:
            return str(os.stat(path).st_mtime_ns)
        except FileNotFoundError:
            return ""


def child(action):
    """Run a function in a child process; return the child's process number."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return pid


def in_a_child(job, seconds, path):
    """Make an undisturbed run in a child, long enough for kills; return its output.

    Children must not share a device, or processes that start others.
    """

    def work():
        if seconds:
            job.scale(seconds)
        run = job.start()
        run.save(path)
        with open(f"{path}.json", "w") as stream:
            told = {name: job.options[name] for name in ("sweeps", "thin") if seconds}
            json.dump([told, run.info.seconds], stream)

    _, status = os.waitpid(child(work), 0)
    if status:
        raise SystemExit("the undisturbed run failed")
    with open(f"{path}.json") as stream:
        told, taken = json.load(stream)
    job.options |= told
    return mg.load(path), taken


def wait(job, folder, before, rng, most, noticed):
    """Sleep for a random time; if a start takes long, usually until something was written."""
    if noticed and rng.random() < 0.8:
        end = time.monotonic() + NOTICED
        while job.progress(folder) == before and time.monotonic() < end:
            time.sleep(0.02)
    time.sleep(rng.random() * most)


def main(model, sampler, options, kills, folder):
    learning, device = "steps" in options, options.get("backend") == "cuda"
    noticed = device or options.get("noticed", False)
    job = (Learning if learning else Sampling)(model, sampler, options)
    if device or "executor" in options:
        most = 0.5 * kills if device else 0.0
        undisturbed, seconds = in_a_child(job, most, f"{folder}.whole")
    else:
        undisturbed = job.start()
        seconds = undisturbed.seconds if learning else undisturbed.info.seconds
    rng, killed, progressed, out = random.Random(options["seed"]), 0, 0, f"{folder}.run"
    generations = set()
    while not os.path.exists(out):
        before = job.progress(folder)
        pid = child(lambda: job.attempt(folder).save(out))
        spared = killed == kills
        if not spared:
            wait(job, folder, before, rng, seconds * (1 if noticed else 5) / kills, noticed)
            os.kill(pid, signal.SIGKILL)
            killed += 1
            if os.path.exists(out):
                os.remove(out)
        _, status = os.waitpid(pid, 0)
        generations.add(job.progress(folder))
        progressed += not spared and job.progress(folder) != before
        if os.waitstatus_to_exitcode(status) == 1:
            break
    same = os.path.exists(out) and bool(job.same(mg.load(out), undisturbed))
    counts = {"killed": killed, "progressed": progressed, "generations": len(generations - {""})}
    print(json.dumps({**counts, "same": same, "seconds": seconds}))


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
