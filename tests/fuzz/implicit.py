"""The default sampler and its ladders have the correct distribution on random implicit graphs.

The enumerated graph is the same graph with explicit factors.
"""

import random
from dataclasses import dataclass

import numpy as np

import minigibbs as mg
from minigibbs.samplers.base import Sampler
from tests.fuzz import graphs
from tests.harness import begun
from tests.settings import nothing

MOST_STATES = 300
KERNELS = ("gaussian", "laplace", "power")


@dataclass(frozen=True)
class Carrying:
    """A sampler, and the running sums of its chains in a state."""

    sampler: Sampler

    def carry(self, graph, states, seed):
        return nothing(graph, states, seed) if self.sampler.sweeps else self._sums(graph, states)

    def _sums(self, graph, states):
        return begun(graph, self.sampler, states)


def check(rng: random.Random) -> None:
    """Sample a random graph with a sampler that draws from it; raise an error for a failure."""
    tame = rng.random() < 0.6
    graph, sampler = random_graph(rng, tame), random_sampler(rng)
    try:
        sampler = sampler.settled(graph)
        graphs.check_run(graph, sampler, rng)
        graphs.check_distribution(graph, Carrying(sampler), rng, tame)
    except mg.MinigibbsError:
        raise
    except Exception as error:
        kinds = ", ".join(f"{type(g).__name__} {g.arrays()}" for g in graph.factors)
        error.add_note(f"{sampler} on sizes {graph.sizes.tolist()}: {kinds}")
        raise


def random_sampler(rng) -> Sampler:
    kind = rng.choice(("default", "default", "drawn", "theta", "guarantee", "ladder", "clusters"))
    if kind == "ladder":
        return mg.Tempering(levels=(0.0, rng.uniform(0.2, 0.8), 1.0))
    if kind == "clusters":
        return mg.SwendsenWang()
    if kind == "drawn":
        return mg.PoissonGibbs(heavy=rng.choice((0, 1, 5)))
    if kind == "guarantee":
        return mg.PoissonGibbs(slowdown=rng.uniform(1.1, 3.0))
    return mg.PoissonGibbs(theta=rng.uniform(0.1, 5.0)) if kind == "theta" else mg.PoissonGibbs()


def random_graph(rng: random.Random, tame: bool) -> mg.FactorGraph:
    """Return up to seven variables, one to three implicit groups, and explicit ones."""
    spins = rng.random() < 0.5
    sizes, states = [], 1
    for _ in range(rng.randrange(2, 8)):
        size = 2 if spins else rng.choice((2, 2, 3, 4, 20))
        if len(sizes) < 2 or states * size <= MOST_STATES:
            sizes.append(size)
            states *= size
    makers = [
        rng.choice((kernel, complete, low_rank, points)) for _ in range(rng.choice((1, 1, 2, 3)))
    ]
    form = ("ising", "potts") if spins else ("potts",)
    groups = [make(rng, len(sizes), rng.choice(form), tame) for make in makers]
    stored = [rng.choice((graphs.unary, graphs.potts)) for _ in range(rng.choice((0, 0, 1, 2)))]
    groups += [make(rng, sizes, tame) for make in stored]
    graph = mg.FactorGraph(sizes, groups)
    clamped = {i: rng.randrange(size) for i, size in enumerate(sizes) if rng.random() < 0.15}
    return graph.condition(clamped) if clamped else graph


def kernel(rng, n, form, tame):
    """Return random weights by displacement, on a line or, if the number has a divisor, a grid."""
    sides = [side for side in (2, 3) if n % side == 0 and n > side]
    shape = (rng.choice(sides), n // sides[0]) if sides and rng.random() < 0.5 else (n,)
    if int(np.prod(shape)) != n:
        shape = (n,)
    by = {}

    def one(*step):
        opposite = tuple(-s for s in step)
        key = max(step, opposite)
        return by.setdefault(key, graphs.weight(rng, tame))

    steps = np.vectorize(one, otypes=[float])
    return mg.Kernel(shape, lambda *step: steps(*step), kind=form)


def complete(rng, n, form, tame):
    return mg.Complete(n, graphs.weight(rng, tame), form)


def low_rank(rng, n, form, tame):
    rank = rng.choice((1, 1, 2, 5))
    a = np.array([[graphs.weight(rng, tame) for _ in range(rank)] for _ in range(n)])
    if rng.random() < 0.5:
        return mg.LowRank(a, kind=form)
    b = np.array([[graphs.weight(rng, tame) for _ in range(rank)] for _ in range(n)])
    return mg.LowRank(a, b, kind=form)


def points(rng, n, form, tame):
    """Return points that may coincide or be far apart, in up to nine dimensions."""
    dims, spread = rng.choice((1, 2, 3, 8, 9)), rng.choice((0.0, 0.3, 2.0, 1e6))
    rows = [[rng.gauss(0, 1) * spread for _ in range(dims)] for _ in range(n)]
    norms = rng.choice((None, "sums", [rng.uniform(0.2, 5.0) for _ in range(n)]))
    own = {"norms": norms, "exponent": rng.uniform(0.5, 6.0)}
    return mg.Points(rows, rng.choice(KERNELS), graphs.weight(rng, tame), form, **own)
