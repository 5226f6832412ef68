"""A run that is killed again and again: what `test_checkpoint.py` starts as a program.

It forks a child for every attempt, so that none pays for imports, and kills it with SIGKILL after
a random time. It prints how many were killed, how many of those had made progress, and whether
the result is that of an undisturbed run.
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
from tests.zoo import ATTRACTIVE, ZOO

ARRAYS = ("clock", "counts", "draws", "energy", "error")
TALLIES = ("factor_evaluations", "minibatch_draws", "acceptance", "changed", "updates", "warmup")


def attempt(graph, options, folder, out):
    """Go on with the run, or start it; a child's whole life."""
    try:
        run = mg.resume(folder, progress=False, executor=options.get("executor"))
    except mg.SampleError:  # killed before the first checkpoint
        run = start(graph, checkpoint=folder, every=0.01, **options)
    run.save(out)


def start(graph, **options):
    """Sample for a fixed length, or until a goal is met."""
    return sample_until(graph, **options) if "ess" in options else sample(graph, **options)


def main(model, sampler, options, kills, folder):
    graph = ZOO[model] if model in ZOO else ATTRACTIVE[model]
    sampler = {
        "default": mg.PoissonGibbs(),
        "min-gibbs": mg.MinGibbs(batch=60),
        "fields": mg.Gibbs(fields=True),
        "block-gibbs": mg.BlockGibbs(blocks=[[0, 1], [2]]),
        "swendsen-wang": mg.SwendsenWang(),
        "exact": mg.Exact(),
        "tempering": mg.Tempering(levels=6),
    }[sampler]
    options = {**options, "sampler": sampler, "progress": False, "threads": 2}
    if options.pop("reference", False):
        options["reference"] = np.full((len(graph), graph.sizes.max()), 0.5)
    undisturbed = start(graph, **options)
    rng, killed, out = random.Random(options["seed"]), 0, f"{folder}.run"
    generations = set()
    while not os.path.exists(out):
        child = os.fork()
        if child == 0:
            try:
                attempt(graph, options, folder, out)
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
            os._exit(0)
        if killed < kills:
            time.sleep(rng.random() * undisturbed.info.seconds * 5 / kills)
            os.kill(child, signal.SIGKILL)
            killed += 1
            if os.path.exists(out):
                os.remove(out)
        os.waitpid(child, 0)
        if os.path.isdir(folder):
            generations |= {name for name in os.listdir(folder) if name.startswith("state-")}
    run = mg.load(out)
    same = all(np.array_equal(getattr(run, n), getattr(undisturbed, n)) for n in ARRAYS)
    same = same and all(getattr(run.info, n) == getattr(undisturbed.info, n) for n in TALLIES)
    print(json.dumps({"killed": killed, "same": same, "generations": len(generations)}))


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
