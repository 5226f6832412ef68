"""The default scan, by sampler, graph and number of chains, as `mg.explain` states it."""

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.samplers.registry import CUDA, choose_scan

LATTICE = mg.models.ising_lattice(16, 0.3)
ZEROS = mg.FactorGraph(
    [2] * 200, [mg.Table([[k, k + 1] for k in range(199)], [[0.0, -np.inf], [0, 0]])]
)
# A graph, a sampler, the scan of few chains, and the scan of many chains.
CASES = {
    "lattice": (LATTICE, mg.PoissonGibbs(), "chromatic", "chromatic"),
    "potts": (mg.models.potts_lattice(16, 4, 0.5), mg.PoissonGibbs(), "chromatic", "chromatic"),
    "clamped to a few": (
        LATTICE.condition(dict.fromkeys(range(200), 1)),
        mg.PoissonGibbs(),
        "systematic",
        "chromatic",
    ),
    "the paper's sampler": (LATTICE, mg.Gibbs(), "random", "random"),
    "small colors": (
        mg.models.ising_lattice(8, 0.3),
        mg.PoissonGibbs(),
        "systematic",
        "chromatic",
    ),
    "dense": (mg.models.ising_rbf(8), mg.PoissonGibbs(), "systematic", "chromatic"),
    "guaranteed": (mg.models.ising_rbf(8), mg.PoissonGibbs(slowdown=1.1), "random", "random"),
    "implicit": (
        mg.FactorGraph([2] * 500, [mg.Complete(500, 0.001)]),
        mg.PoissonGibbs(),
        "systematic",
        "systematic",
    ),
    "hard constraints": (ZEROS, mg.PoissonGibbs(), "systematic", "systematic"),
}


@pytest.mark.parametrize("name", CASES)
def test_choice(name):
    graph, sampler, few, many = CASES[name]
    for chains, scan in ((1, few), (15, few), (16, many), (70, many)):
        chosen = choose_scan(sampler, graph, chains)
        assert chosen.scan == scan
        assert chosen.why
        run = mg.sample(graph, sampler, sweeps=1, chains=chains, progress=False)
        assert run.info.scan == scan


ON_A_GPU = {
    "small colors": ("chromatic", "chromatic"),
    "clamped to a few": ("systematic", "chromatic"),
    "dense": ("systematic", "chromatic"),
    "the paper's sampler": ("shared", "shared"),
    "guaranteed": ("shared", "shared"),
    "implicit": ("systematic", "systematic"),
    "hard constraints": ("systematic", "systematic"),
}


@pytest.mark.parametrize("name", ON_A_GPU)
def test_choice_on_a_gpu(name):
    """As in `benchmarks/results/gpu_defaults.md`: threads read the same factors in any case."""
    graph, sampler, *_ = CASES[name]
    for chains, scan in zip((1, 1 << 17), ON_A_GPU[name], strict=True):
        assert choose_scan(sampler, graph, chains, device=CUDA).scan == scan


def test_lengths_in_updates_have_no_chromatic_scan():
    assert mg.sample(LATTICE, updates=10, progress=False).info.scan == "systematic"
    assert mg.sample(LATTICE, mg.Gibbs(), updates=10, progress=False).info.scan == "random"


def test_explain_says_which_and_why():
    told = str(mg.explain(LATTICE, costs={"read": 1.0, "draw": 10.0}))
    assert "It scans in order of colors: its 2 colors have 128 variables each" in told
