"""Program of every MPI rank: `python -m tests.running.mpi_program folder case [arguments]`.

Rank k writes its results to `k.json` in the folder.
"""

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

import minigibbs as mg
from minigibbs.running.backends import mpi
from minigibbs.running.executors import worker
from minigibbs.samplers.chromatic.stencil_tiles import StencilTile

CUBE = [(1, 0, 0), (0, 1, 0), (0, 0, 1)]


def graphs():
    """Return lattices, sparse graphs and small tables, some of them with evidence."""
    rng, n = np.random.default_rng(0), 300
    i = rng.integers(0, n, 500)
    j = (i + rng.integers(1, n, 500)) % n
    square = mg.Stencil((24, 70), [(0, 1), (1, 0)], 0.4)
    signs = 0.3 * rng.choice([-1.0, 1.0], (3, 7, 6, 70))
    glass = mg.Stencil((7, 6, 70), CUBE, signs, periodic=(False, True, True))
    line = mg.Stencil((700,), [(1,), (3,)], [0.4, 0.1])
    potts = mg.Stencil((10, 30), [(0, 1), (1, 0)], [0.9, -0.4], (True, False), kind="potts")
    site = rng.permutation(576).reshape(24, 24)  # a lattice whose sites have other numbers
    ends = [np.stack([site, np.roll(site, -1, axis)], axis=2).reshape(-1, 2) for axis in (0, 1)]
    a, b = np.concatenate(ends).T
    table = mg.Table(np.stack([i[:200], j[:200]], axis=1), rng.normal(size=(3, 3)))
    return {
        "square": mg.FactorGraph([2] * 1680, [square]).condition({3: 1, 900: 0}),
        "glass": mg.FactorGraph([2] * 2940, [glass]),
        "line": mg.FactorGraph([2] * 700, [line]),
        "potts": mg.FactorGraph([3] * 300, [potts]),
        "sparse": mg.FactorGraph([2] * n, [mg.Ising(i, j, rng.normal(size=500) * 0.4)]),
        "shuffled": mg.FactorGraph([2] * 576, [mg.Ising(a, b, rng.normal(size=1152) * 0.4)]),
        "tables": mg.FactorGraph([3] * n, [table]).condition({5: 2}),
    }


def digest(run):
    """Return hashes of everything that a run computes."""
    observed = run.observables["e"]
    numbers = np.array([observed.mean, observed.error])
    arrays = [run.state, run.counts, run.energy, run.draws, numbers]
    text = [hashlib.blake2b(np.ascontiguousarray(array).tobytes()).hexdigest() for array in arrays]
    return [one[:12] for one in text] + [run.info.changed]


OPTIONS = {
    "seed": 4,
    "record": ("marginals", "energy", "draws"),
    "observe": {"e": mg.observables.Energy()},
    "progress": False,
}


SPREAD = {"seed": 1, "backend": "mpi", "progress": False}


def everything(backend):
    """Return digests of runs of all graphs; some graphs also with 33 chains."""
    options = {"sweeps": 8, "scan": "chromatic", "backend": backend, **OPTIONS}
    found = {}
    for name, graph in graphs().items():
        for chains in (1, 33) if name in ("square", "sparse", "shuffled") else (1,):
            found[f"{name} {chains}"] = digest(mg.sample(graph, chains=chains, **options))
    dense, sampler = mg.models.ising_rbf(side=6), mg.PoissonGibbs(heavy=1, theta=1.0)
    found["minibatched"] = digest(mg.sample(dense, sampler, chains=1, **options))
    del options["scan"]
    ladders = mg.sample(graphs()["sparse"], mg.Tempering(levels=(0.0, 0.4, 0.7, 1.0)), **options)
    found["ladders"] = [*digest(ladders), ladders.ladder.log_z]
    found["chains"] = digest(mg.sample(graphs()["tables"], scan="shuffled", chains=3, **options))
    return found


def resumed(folder):
    """Continue a run that observes user functions."""
    return digest(mg.resume(folder, sweeps=8, progress=False))


def begun(folder, what="lattice", backend="mpi"):
    """Start a run in a checkpoint: of a lattice that ranks share, or of ladders for all ranks."""
    graph, options = graphs()["glass"], {"backend": backend, "checkpoint": folder, **OPTIONS}
    if what == "lattice":
        return digest(mg.sample(graph, sweeps=8, chains=1, **options))
    return digest(mg.sample(graphs()["sparse"], mg.Tempering(), sweeps=8, chains=5, **options))


def disagreeing(what):
    """Let ranks make different calls."""
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.rank
    if what == "version of minigibbs" and rank:
        mpi.__version__ = "0.0.1"
    graph = mg.models.ising_lattice(70, 0.4 + (rank if what == "graph" else 0), implicit=True)
    if what == "partition":
        graph, parts_of = graphs()["sparse"], mpi.parts_of
        if rank:
            mpi.parts_of = lambda data, ranks: parts_of(data, ranks)._replace(how="METIS")
    options = {"seed": 1 + (rank if what == "seed" else 0), "progress": False}
    if what == "fail" and rank == 0:
        options["checkpoint"] = "/dev/null/nowhere"
    try:
        mg.sample(graph, sweeps=2, backend="mpi", **options)
    except mg.MinigibbsError as error:
        return str(error)
    return "no error"


def seedless():
    """Return the seed of a run without a given seed, which is that of rank 0."""
    run = mg.sample(graphs()["line"], sweeps=2, backend="mpi", progress=False)
    return str(run.info.seed)


def dying():
    """Let a rank fail in the middle of a run."""
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == 1:

        def fail(*_):
            raise MemoryError("no room")

        StencilTile._sweep = fail
    return str(mg.sample(graphs()["line"], sweeps=2, backend="mpi", progress=False))


def failing():
    """Let all segments on another rank than 0 fail."""
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank:
        worker._plan = dying_task
    try:
        mg.sample(graphs()["tables"], scan="shuffled", sweeps=5, chains=3, **SPREAD)
    except mg.MinigibbsError as error:
        return str(error)
    return "no error"


def dying_task(*_):
    """Fail."""
    raise MemoryError("no room")


def killed(folder, victim):
    """Kill a rank in the middle of a run that writes checkpoints."""
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == int(victim):
        sweep, made = StencilTile._sweep, []

        def count(*arguments):
            made.append(1)
            if len(made) > 60:
                os.kill(os.getpid(), signal.SIGKILL)
            return sweep(*arguments)

        StencilTile._sweep = count
    options = {"backend": "mpi", "checkpoint": folder, "every": 0.001, **OPTIONS}
    return digest(mg.sample(graphs()["glass"], sweeps=40, chains=1, **options))


def finished(folder):
    """Finish a run that was cut short."""
    return digest(mg.resume(folder, progress=False))


if __name__ == "__main__":
    folder, case, *arguments = sys.argv[1:]
    found = json.dumps(globals()[case](*arguments))
    from mpi4py import MPI

    Path(folder, f"{MPI.COMM_WORLD.rank}.json").write_text(found, encoding="utf-8")
