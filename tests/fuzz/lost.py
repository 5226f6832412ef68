"""Lost workers by count: `python -m tests.fuzz lost --count 100 --out DIR`.

Runs on processes and on Dask continue while their workers are killed one by one, between segments
that return. Every run must end bit-identical to an undisturbed run.
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from minigibbs.running.executors import remote
from tests.harness import sample
from tests.running.killed import ARRAYS
from tests.zoo import ZOO

OPTIONS = {
    "updates": 1_500_000,
    "thin": 5000,
    "scan": "shuffled",
    "seed": 7,
    "record": ("marginals", "draws", "energy"),
    "progress": False,
}
_BETWEEN = 6  # returned segments between two kills
_RUN = 5  # kills per run


class Killer:
    """A killer of workers, after some segments have returned."""

    def __init__(self, workers, rng, kills):
        self.workers, self.rng, self.left, self.killed = workers, rng, kills, 0
        self._returned, self._absorb = 0, remote.absorb

    def __enter__(self):
        remote.absorb, self._seconds = self._count, remote.SEGMENT_SECONDS
        remote.SEGMENT_SECONDS = 0.02
        return self

    def __exit__(self, *_):
        remote.absorb, remote.SEGMENT_SECONDS = self._absorb, self._seconds

    def _count(self, *arguments):
        self._absorb(*arguments)
        self._returned += 1
        if self.left and self._returned % _BETWEEN == 0:
            pids = self.workers()
            if pids:
                try:
                    os.kill(self.rng.choice(pids), signal.SIGKILL)
                except ProcessLookupError:  # the process was ending
                    return
                self.left -= 1
                self.killed += 1


@contextmanager
def processes():
    """Return the processes of a run."""
    yield (
        {"executor": "processes", "threads": 2},
        lambda: [child.pid for child in multiprocessing.active_children()],
    )


@contextmanager
def dask():
    """Return two Dask workers, which their nannies restart."""
    import distributed

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "silence_logs": 50}
    with (
        distributed.LocalCluster(dashboard_address=None, **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):

        def workers():
            found = [nanny.process.pid for nanny in cluster.workers.values() if nanny.process]
            return [pid for pid in found if pid]

        yield {"executor": client}, workers


KINDS = {"processes": processes, "Dask": dask}


def same(run, whole):
    """Return whether two runs are bit-identical."""
    return all(np.array_equal(getattr(run, name), getattr(whole, name)) for name in ARRAYS)


def main(arguments: list[str]) -> int:
    """Kill a number of workers of each kind."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz lost", description=__doc__)
    parser.add_argument("--count", type=int, default=50, help="workers of each kind")
    parser.add_argument("--seconds", type=float, default=600.0, help="of each kind, at the most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    options = parser.parse_args(arguments)
    whole, rng = sample(ZOO["potts"], **OPTIONS), random.Random(options.seed)
    found = {}
    for kind in options.kinds:
        lost = runs = differences = 0
        deadline = time.monotonic() + options.seconds
        with KINDS[kind]() as (how, workers):
            while lost < options.count and time.monotonic() < deadline:
                with Killer(workers, rng, min(_RUN, options.count - lost)) as killer:
                    run = sample(ZOO["potts"], **OPTIONS, **how)
                lost, runs = lost + killer.killed, runs + 1
                differences += not same(run, whole)
                found[kind] = {"lost": lost, "runs": runs, "differences": differences}
                print(f"{kind}: {found[kind]}", flush=True)
                if options.out:
                    options.out.mkdir(parents=True, exist_ok=True)
                    (options.out / "lost.json").write_text(json.dumps(found))
    return 1 if any(one["differences"] for one in found.values()) else 0
