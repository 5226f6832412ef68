"""The default scan: by the sampler and the graph alone, and said by `mg.explain`."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.samplers.chromatic.scans import default_scan

LATTICE = mg.models.ising_lattice(16, 0.3)
ZEROS = mg.FactorGraph(
    [2] * 200, [mg.Table([[k, k + 1] for k in range(199)], [[0.0, -np.inf], [0, 0]])]
)
CASES = {
    "lattice": (LATTICE, mg.PoissonGibbs(), "chromatic"),
    "potts": (mg.models.potts_lattice(16, 4, 0.5), mg.PoissonGibbs(), "chromatic"),
    "clamped to a few": (
        LATTICE.condition(dict.fromkeys(range(200), 1)),
        mg.PoissonGibbs(),
        "random",
    ),
    "the paper's sampler": (LATTICE, mg.Gibbs(), "random"),
    "small colours": (mg.models.ising_lattice(8, 0.3), mg.PoissonGibbs(), "random"),
    "dense": (mg.models.ising_rbf(8), mg.PoissonGibbs(), "random"),
    "implicit": (mg.FactorGraph([2] * 500, [mg.Complete(500, 0.001)]), mg.PoissonGibbs(), "random"),
    "zeros": (ZEROS, mg.PoissonGibbs(), "random"),
}


@pytest.mark.parametrize("name", CASES)
def test_choice(name):
    graph, sampler, scan = CASES[name]
    chosen = default_scan(sampler, graph)
    assert chosen.scan == scan
    assert chosen.why
    for chains in (1, 20):
        run = mg.sample(graph, sampler, sweeps=1, chains=chains, progress=False)
        assert run.info.scan == scan


def test_updates_are_in_random_order():
    assert mg.sample(LATTICE, updates=10, progress=False).info.scan == "random"


def test_explain_says_which_and_why():
    told = str(mg.explain(LATTICE, costs={"read": 1.0, "draw": 10.0}))
    assert "It scans in order of colours: its 2 colours have 128 variables each" in told
