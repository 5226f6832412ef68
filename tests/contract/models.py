"""Models of the contract: at least one for each layout, ladder and variant of the registry.

A new layout in the registry needs a model here that uses it. `test_layouts` checks this.
"""

from typing import NamedTuple

import numpy as np

import minigibbs as mg
from minigibbs.samplers import Sampler
from tests.settings import LAYOUT_CASES


class Model(NamedTuple):
    """A model with two sets of weights, and its sampler."""

    graph: mg.FactorGraph
    other: mg.FactorGraph
    sampler: Sampler
    scan: str | None = "chromatic"  # None for samplers of whole sweeps
    simulated: tuple[int, ...] = (33,)  # numbers of chains in the simulator, which is slow


def lattice(beta):
    return mg.models.ising_lattice(side=4, beta=beta)


def stencil(beta):
    """Return the lattice by displacements, with couplings of both signs."""
    return mg.FactorGraph([2] * 16, [mg.Stencil((4, 4), [(0, 1), (1, 0)], [beta, -beta])])


def spins_on(shape, offsets, weights, periodic=True, field=0.0):
    """Return spins of a lattice, with the same field at each site."""
    sites = int(np.prod(shape))
    factors = [mg.Stencil(shape, offsets, weights, periodic)]
    if field:
        factors.append(mg.Unary(np.arange(sites), np.tile([0.0, field], (sites, 1))))
    return mg.FactorGraph([2] * sites, factors)


def wide(beta):
    """Return rows that fill their words, with neighbors of two strengths in four colors."""
    return spins_on(
        (4, 128), [(0, 1), (1, 0), (1, 1), (1, -1)], [beta, beta, -0.5 * beta, 0.5 * beta]
    )


def cube(scale):
    """Return a glass of +-J couplings in three dimensions."""
    signs = np.random.default_rng(4).choice([-scale, scale], (3, 4, 4, 64))
    return spins_on((4, 4, 64), [(1, 0, 0), (0, 1, 0), (0, 0, 1)], signs)


def diluted(scale):
    """Return couplings of both signs and 0, open sides, partial words, a field, evidence."""
    weights = scale * np.random.default_rng(5).choice([-1.0, 0.0, 1.0], (3, 3, 4, 70))
    offsets, periodic = [(1, 0, 0), (0, 1, 0), (0, 0, 1)], [False, True, False]
    graph = spins_on((3, 4, 70), offsets, weights, periodic, 0.3 * scale)
    return graph.condition({0: 1, 69: 0, 71: 1, 400: 1, 839: 0})


def opened(beta):
    """Return rows that fill their words but end, and a displacement beyond the lattice's side."""
    return spins_on((5, 64), [(0, 1), (1, 0), (7, 3)], [beta, -beta, beta], False, -0.2)


def potts_stencil(beta):
    """Return a Potts model by displacements."""
    return mg.FactorGraph([3] * 24, [mg.Stencil((4, 6), [(0, 1), (1, 0)], beta, kind="potts")])


def glass(scale, evidence=None):
    """Return spins with fields, couplings of both signs, and clamped variables."""
    rng, (i, j) = np.random.default_rng(0), np.triu_indices(6, 1)
    pairs = mg.Ising(i, j, scale * rng.normal(size=len(i)))
    fields = mg.Unary([0, 3], scale * rng.normal(size=(2, 2)))
    return mg.FactorGraph([2] * 6, [pairs, fields]).condition(evidence or {})


def tables(scale):
    """Return domains of different sizes, coupled by tables of two and by pairs."""
    rng = np.random.default_rng(1)
    parts = [
        mg.Table([[0, 1]], scale * rng.normal(size=(1, 2, 4))),
        mg.Table([[1, 2]], scale * rng.normal(size=(1, 4, 3))),
        mg.Potts([0, 2, 3], [2, 3, 4], scale * rng.normal(size=3)),
    ]
    return mg.FactorGraph([2, 4, 3, 3, 2], parts).condition({4: 1})


def triples(scale):
    """Return factors of three variables, for which there is no vectorized layout."""
    rng = np.random.default_rng(2)
    table = scale * rng.normal(size=(3, 2, 3, 2))
    return mg.FactorGraph([2, 3, 2, 3, 2], [mg.Table([[0, 1, 2], [2, 3, 4], [4, 1, 0]], table)])


def points(scale):
    rng = np.random.default_rng(3)
    places = rng.uniform(0, 2, (8, 3))
    groups = [
        mg.Unary(np.arange(8), scale * rng.normal(size=(8, 3))),
        mg.Points(places, weight=1.5 * scale, norms="sums"),
        mg.Points(places[:, :2], weight=-0.6 * scale),
    ]
    return mg.FactorGraph([3] * 8, groups).condition({4: 1})


def ladder(levels, houdayer, inner=None):
    return mg.Tempering(inner, tuple(np.linspace(0.0, 1.0, levels)), houdayer)


def two(make, one=1.0, other=0.6, **more):
    return {"graph": make(one, **more), "other": make(other, **more)}


HEAVY = mg.PoissonGibbs(heavy=2)
CHROMATIC = {
    "stencil": Model(**two(stencil, 0.4, 0.3), sampler=mg.Gibbs()),
    "stencil, whole rows": Model(**two(wide, 0.3, 0.2), sampler=mg.Gibbs(), simulated=(3,)),
    "stencil, glass": Model(**two(cube, 0.4, 0.3), sampler=mg.Gibbs(), simulated=(1,)),
    "stencil, diluted": Model(**two(diluted), sampler=mg.Gibbs(), simulated=(3,)),
    "stencil, open": Model(**two(opened, 0.4, 0.3), sampler=mg.Gibbs(), simulated=(2,)),
    "stencil, potts": Model(**two(potts_stencil, 0.8, 0.5), sampler=mg.Gibbs()),
    "lattice": Model(**two(lattice, 0.4, 0.3), sampler=mg.Gibbs(), simulated=(1, 33)),
    "glass": Model(**two(glass), sampler=mg.PoissonGibbs()),
    "clamped": Model(**two(glass, evidence={1: 1, 4: 0}), sampler=mg.Gibbs()),
    "double": Model(**two(glass, 200.0, 150.0), sampler=mg.Gibbs()),
    "potts": Model(
        **two(lambda beta: mg.models.potts_lattice(side=3, states=3, beta=beta), 0.8, 0.5),
        sampler=mg.Gibbs(),
        simulated=(1, 33),
    ),
    "tables": Model(**two(tables), sampler=mg.PoissonGibbs()),
    "spins with tails": Model(
        **two(lambda beta: mg.models.ising_rbf(side=3, beta=beta, implicit=False)), sampler=HEAVY
    ),
    "potts with tails": Model(
        **two(lambda beta: mg.models.potts_rbf(side=3, states=4, beta=beta, implicit=False)),
        sampler=HEAVY,
    ),
    "points": Model(**two(points), sampler=mg.PoissonGibbs(theta=0.7), simulated=(3,)),
    "triples": Model(**two(triples), sampler=mg.Gibbs()),
    "triples with tails": Model(**two(triples), sampler=mg.PoissonGibbs(heavy=1)),
}
LADDERS = {
    "ladder of bits": Model(**two(glass), sampler=ladder(5, False), scan=None),
    "twin ladders of bits": Model(
        **two(glass, evidence={1: 1}), sampler=ladder(3, True), scan=None, simulated=(33,)
    ),
    "ladder of bytes": Model(**two(tables), sampler=ladder(3, False), scan=None, simulated=(5,)),
    "twin ladders of bytes": Model(
        **two(tables), sampler=ladder(4, True), scan=None, simulated=(33,)
    ),
    "ladder of copies": Model(
        **two(tables), sampler=ladder(3, False, mg.PoissonGibbs()), scan=None, simulated=(5,)
    ),
}
# Their updates depend on the weights, so the weights stay the same.
VARIANTS = {
    f"variant {name}": Model(case.graph, case.graph, case.sampler, "shared", (5,))
    for name, case in LAYOUT_CASES.items()
}
MODELS = CHROMATIC | LADDERS | VARIANTS
