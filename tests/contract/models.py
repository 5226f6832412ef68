"""Models for the contract: at least one for each layout, ladder and variant of the registry.

A layout that is added to the registry needs a model here that gets it. `test_layouts` says so.
"""

from typing import NamedTuple

import numpy as np

import minigibbs as mg
from minigibbs.samplers import Sampler
from tests.settings import LAYOUT_CASES


class Model(NamedTuple):
    """A model in two sets of weights, and how it is sampled."""

    graph: mg.FactorGraph
    other: mg.FactorGraph
    sampler: Sampler
    scan: str | None = "chromatic"  # None for samplers that sweep
    simulated: tuple[int, ...] = (33,)  # chains in the simulator, which is slow


def lattice(beta):
    return mg.models.ising_lattice(side=4, beta=beta)


def stencil(beta):
    """The same by displacements, with couplings of both signs."""
    return mg.FactorGraph([2] * 16, [mg.Stencil((4, 4), [(0, 1), (1, 0)], [beta, -beta])])


def glass(scale, evidence=None):
    """Fields, couplings of both signs, and clamped variables."""
    rng, (i, j) = np.random.default_rng(0), np.triu_indices(6, 1)
    pairs = mg.Ising(i, j, scale * rng.normal(size=len(i)))
    fields = mg.Unary([0, 3], scale * rng.normal(size=(2, 2)))
    return mg.FactorGraph([2] * 6, [pairs, fields]).condition(evidence or {})


def tables(scale):
    """Domains of different sizes, joined by tables of two and by pairs."""
    rng = np.random.default_rng(1)
    parts = [
        mg.Table([[0, 1]], scale * rng.normal(size=(1, 2, 4))),
        mg.Table([[1, 2]], scale * rng.normal(size=(1, 4, 3))),
        mg.Potts([0, 2, 3], [2, 3, 4], scale * rng.normal(size=3)),
    ]
    return mg.FactorGraph([2, 4, 3, 3, 2], parts).condition({4: 1})


def triples(scale):
    """Factors of three variables, for which there is no vectorized layout."""
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


def ladder(levels, houdayer):
    return mg.Tempering(levels=tuple(np.linspace(0.0, 1.0, levels)), houdayer=houdayer)


def two(make, one=1.0, other=0.6, **more):
    return {"graph": make(one, **more), "other": make(other, **more)}


HEAVY = mg.PoissonGibbs(heavy=2)
CHROMATIC = {
    "stencil": Model(**two(stencil, 0.4, 0.3), sampler=mg.Gibbs()),
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
    "ladder of copies": Model(**two(tables), sampler=ladder(3, False), scan=None, simulated=(5,)),
}
# Their update depends on the weights, so that these stay the same.
VARIANTS = {
    f"variant {name}": Model(case.graph, case.graph, case.sampler, "shared", (5,))
    for name, case in LAYOUT_CASES.items()
}
MODELS = CHROMATIC | LADDERS | VARIANTS
