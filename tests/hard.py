"""Tiny graphs with hard constraints and connected possible states, for tests of samplers."""

import numpy as np

import minigibbs as mg

ZERO = -np.inf
NOT_BOTH = [[0.0, 0.0], [0.0, ZERO]]


def differ(values):
    """Return a table that forbids two variables to have the same value."""
    return np.where(np.eye(values) > 0, ZERO, 0.0)


def _apart():
    """Return a ring in which no two neighbors may both be 1, with additional weak factors."""
    ring = [[k, (k + 1) % 5] for k in range(5)]
    weak = mg.Ising([0, 1, 2], [2, 3, 4], [0.4, -0.3, 0.5])
    return mg.FactorGraph(
        [2] * 5, [mg.Table(ring, NOT_BOTH), weak, mg.Unary([0, 3], [[0.0, 0.8], [0.0, -0.4]])]
    )


def _tables():
    """Return a graph of tables with three variables, hard constraints, and weights around 1."""
    rng = np.random.default_rng(2)
    energy = rng.normal(0, 0.8, (2, 2, 3, 4))
    energy[0, 1, 2, :2] = energy[0, 0, 0, 3] = energy[1, :, 1, 0] = ZERO
    return mg.FactorGraph(
        [2, 3, 4, 3, 2],
        [
            mg.Table([[0, 1, 2], [4, 3, 2]], energy, weight=[0.7, 1.3]),
            mg.Table([[1, 3]], rng.normal(0, 0.8, (1, 3, 3))),
            mg.Potts([1, 0, 2], [3, 4, 3], [0.6, -0.5, 0.3]),
            mg.Unary([3], [[0.2, -0.1, ZERO]]),
        ],
    )


def _colors():
    """Return a path of four colors whose neighbors differ; some colors are less probable."""
    rng = np.random.default_rng(4)
    near = mg.Table([[0, 1], [1, 2], [2, 3]], differ(4))
    far = mg.Potts([0, 1, 0], [2, 3, 3], [0.5, -0.4, 0.3])
    return mg.FactorGraph([4] * 4, [near, far, mg.Unary(range(4), rng.normal(0, 0.6, (4, 4)))])


def _large():
    """Return a graph of large domains with forbidden values, and pairs without constraints."""
    rng = np.random.default_rng(5)
    energy = rng.normal(0, 0.6, (2, 20))
    energy[0, ::3] = energy[1, 1::2] = ZERO
    pairs = mg.Potts([0, 0, 1], [1, 2, 2], [1.1, -0.8, 0.7])
    return mg.FactorGraph([20, 20, 3], [mg.Unary([0, 1], energy), pairs])


def _clamped():
    """Return a graph whose evidence and hard constraints forbid values of free variables."""
    implies = mg.Table([[0, 1], [1, 2], [2, 3]], [[0.3, 0.0], [ZERO, 0.5]])
    pairs = mg.Ising([1, 2, 3], [4, 4, 4], [0.5, -0.4, 0.3])
    return mg.FactorGraph([2] * 5, [implies, pairs]).condition({1: 1})


HARD = {
    "apart": _apart(),
    "tables": _tables(),
    "colors": _colors(),
    "large": _large(),
    "clamped": _clamped(),
}


def random_hard(rng, variables=6, factors=6, share=0.5, most=3):
    """Return a random graph with many hard constraints: often of low treewidth, or impossible."""
    sizes = rng.integers(1, most + 1, variables)
    groups = []
    for _ in range(factors):
        scope = rng.choice(variables, rng.integers(1, 4), replace=False)
        energy = rng.normal(0, 1.0, sizes[scope])
        energy[rng.random(energy.shape) < share] = ZERO
        groups.append(mg.Table([scope], energy))
    groups.append(mg.Potts([0], [1], 0.7))
    return mg.FactorGraph(sizes, groups)
