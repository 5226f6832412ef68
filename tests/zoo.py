"""Tiny graphs for the tests of every sampler: one or more per factor kind."""

import numpy as np

import minigibbs as mg


def _potts():
    return mg.FactorGraph(
        [3, 3, 3, 3],
        [
            mg.Potts([0, 1, 2, 3, 0], [1, 2, 3, 0, 2], [0.9, -0.7, 0.4, 1.1, -0.3]),
            mg.Unary([0, 2], [[0.0, 0.5, -0.4], [0.3, 0.0, 0.9]]),
        ],
    )


def _ising():
    i, j = np.triu_indices(5, 1)
    rng = np.random.default_rng(1)
    return mg.FactorGraph([2] * 5, [mg.Ising(i, j, rng.normal(0, 0.5, len(i)))])


def _tables():
    rng = np.random.default_rng(2)
    return mg.FactorGraph(
        [2, 3, 4, 3],
        [
            mg.Table([[0, 1, 2]], rng.normal(0, 0.8, (1, 2, 3, 4))),
            mg.Table([[1, 3], [3, 1]], rng.normal(0, 0.8, (3, 3)), weight=[1.0, -0.6]),
            mg.Table([[2, 0]], rng.normal(0, 0.8, (1, 4, 2))),
            mg.Unary([3], rng.normal(0, 0.8, (1, 3))),
        ],
    )


def _logical():
    return mg.FactorGraph(
        [2] * 5,
        [
            mg.Logical(
                "imply", [[0, 1, 2], [2, 3, 4]], [1.2, -0.6], negated=[[0, 1, 0], [0, 0, 1]]
            ),
            mg.Logical("and", [[0, 3, 4]], 0.9, negated=[[0, 0, 1]]),
            mg.Logical("or", [[1, 2, 4]], [-0.8]),
            mg.Logical("equal", [[0, 2, 4], [1, 3, 4]], [0.7, -0.9], negated=[[0, 1, 0]]),
            mg.Logical("istrue", [[0], [3]], [0.4, -0.5]),
        ],
    )


def _mixed():
    """Return a graph with every kind, mixed domains, and variables without factors."""
    rng = np.random.default_rng(3)
    return mg.FactorGraph(
        [2, 2, 3, 5, 1, 2],
        [
            mg.Ising([0], [1], 0.6),
            mg.Potts([0, 2, 3], [2, 3, 1], [0.8, -0.9, 0.5]),
            mg.Table([[2, 3]], rng.normal(0, 0.5, (1, 3, 5))),
            mg.Logical("imply", [[1, 0]], 0.7),
            mg.Unary([3], [rng.normal(0, 0.5, 5)]),
        ],
    )


def _evidence():
    """Return a graph with evidence on every kind of factor."""
    rng = np.random.default_rng(4)
    graph = mg.FactorGraph(
        [2, 2, 3, 3, 2, 2],
        [
            mg.Ising([0, 1], [1, 4], [0.6, -0.5]),
            mg.Potts([2, 0, 3], [3, 2, 5], [0.8, -0.9, 0.5]),
            mg.Table([[2, 3, 0]], rng.normal(0, 0.7, (1, 3, 3, 2))),
            mg.Logical("imply", [[1, 4, 5], [4, 5, 1]], [0.7, 0.9]),
            mg.Logical("equal", [[0, 1, 5]], 0.5),
            mg.Unary([3, 2], rng.normal(0, 0.5, (2, 3))),
        ],
    )
    return graph.condition({3: 1, 4: 1})


def _large():
    """Return a graph of domains so large that only touched values are evaluated."""
    rng = np.random.default_rng(5)
    return mg.FactorGraph(
        [20, 3, 18],
        [
            mg.Potts([0, 1, 0, 2], [1, 2, 2, 0], [2.0, -1.5, 1.2, -0.4]),
            mg.Unary([0], rng.normal(0, 0.8, (1, 20))),
        ],
    )


def _kernel(periodic):
    def weight(r, c):
        return 0.9 * np.exp(-0.5 * (r**2 + c**2)) * np.where(np.abs(r) == 1, -1.0, 1.0)

    return mg.FactorGraph(
        [3] * 6,
        [
            mg.Kernel((2, 3), weight, periodic=periodic),
            mg.Unary([1], [[0.0, 0.4, -0.3]]),
            mg.Potts([0], [5], 0.5),
        ],
    )


def _low_rank():
    a = np.random.default_rng(6).normal(0, 0.5, (5, 2))
    b = np.random.default_rng(7).normal(0, 0.5, (5, 2))
    return mg.FactorGraph([2] * 5, [mg.LowRank(a, b)])


def _several():
    """Return a graph of a lattice, a Hopfield term, equal pairs and stored factors."""
    rng = np.random.default_rng(10)
    return mg.FactorGraph(
        [3, 2, 3, 18],
        [
            mg.Kernel((2, 2), lambda r, c: 0.6 - 0.3 * c * c),
            mg.Unary([3], rng.normal(0, 0.5, (1, 18))),
            mg.LowRank(rng.normal(0, 0.6, (4, 2)), kind="potts"),
            mg.Potts([0, 1], [3, 2], [0.8, -0.4]),
            mg.Complete(4, -0.3, kind="potts"),
        ],
    )


def _points(kernel, weight, kind="potts", norms=None, values=3, n=5, **options):
    """Return a graph of points on a plane, two of which coincide, with a unary factor."""
    rng = np.random.default_rng(11)
    places = rng.normal(0, 1.0, (n, 2))
    places[-1] = places[0]
    group = mg.Points(places, kernel, weight, kind, norms, **options)
    return mg.FactorGraph([values] * n, [group, mg.Unary([1], rng.normal(0, 0.5, (1, values)))])


# Implicit factors, for samplers that draw from them.
IMPLICIT = {
    "kernel": _kernel(periodic=False).condition({3: 1}),
    "kernel-periodic": _kernel(periodic=True),
    "ring": mg.FactorGraph(
        [2] * 7, [mg.Kernel((7,), lambda d: 0.3 / d**2, kind="ising", periodic=True)]
    ),
    "ring-3": mg.FactorGraph([3] * 3, [mg.Kernel((3,), lambda d: -0.8 / d**2, periodic=True)]),
    "ring-2": mg.FactorGraph([3] * 2, [mg.Kernel((2,), [0.0, 1.1], periodic=True)]),
    "line-3": mg.FactorGraph([3] * 3, [mg.Kernel((3,), lambda d: 0.9 / np.abs(d))]),
    "line-2": mg.FactorGraph([2] * 2, [mg.Kernel((2,), [0.6, 0.0, 0.6], kind="ising")]),
    "kernel-ising": mg.FactorGraph([2] * 7, [mg.Kernel((7,), lambda d: 0.8 / d**2, kind="ising")]),
    "kernel-3d": mg.FactorGraph(
        [2] * 8, [mg.Kernel((2, 2, 2), lambda a, b, c: 0.3 + 0.2 * a * a - 0.4 * b * b * c * c)]
    ),
    "complete": mg.FactorGraph([2] * 6, [mg.Complete(6, 0.25)]),
    "complete-potts": mg.FactorGraph(
        [20, 18, 3], [mg.Complete(3, -1.5, kind="potts"), mg.Potts([0], [1], 2.0)]
    ),
    "low-rank": _low_rank(),
    "points": _points("gaussian", 0.8),
    "points-ising": _points("laplace", 0.5, "ising", values=2, n=7),
    "points-repel": _points("power", -0.9, exponent=2.0).condition({2: 1}),
    "points-norms": _points("gaussian", 2.0, norms="sums"),
    "points-large": mg.FactorGraph(
        [20, 3, 18],
        [mg.Points([[0.0], [0.5], [1.0]], "laplace", 1.4), mg.Complete(3, -0.5, "potts")],
    ),
    "points-two": mg.FactorGraph(
        [2, 2], [mg.Points([[0.0, 1.0], [1.0, 1.0]], "power", 0.9, "ising")]
    ),
    "points-dense": mg.FactorGraph(
        [2] * 8,
        [
            mg.Points(np.linspace(0, 1, 8 * 9).reshape(8, 9), "gaussian", 0.15),
            mg.Points(np.linspace(0, 9, 8)[:, None], "gaussian", 0.5, "ising"),
        ],
    ),
    "several": _several(),
    "two-alike": mg.FactorGraph([2] * 5, [mg.Complete(5, 0.3), mg.Complete(5, -0.1)]),
}


def _strong():
    """Return a graph with a local field of 800, and ties that weak factors decide."""
    rng = np.random.default_rng(8)
    return mg.FactorGraph(
        [3, 3, 3, 2],
        [
            mg.Potts([0, 1, 2], [1, 2, 0], [400.0, 400.0, -400.0]),
            mg.Potts([0, 1], [3, 3], [0.4, -0.3]),
            mg.Table([[1, 2]], rng.normal(0, 0.4, (1, 3, 3))),
            mg.Unary([0], rng.normal(0, 0.4, (1, 3))),
        ],
    )


def glass(n, beta, seed=0):
    """Return the Sherrington-Kirkpatrick model: Gaussian couplings of variance beta^2 / n."""
    i, j = np.triu_indices(n, 1)
    rng = np.random.default_rng(seed)
    field = mg.Unary(np.arange(n), rng.normal(0, 0.3, (n, 2)))
    return mg.FactorGraph(
        np.full(n, 2), [mg.Ising(i, j, rng.normal(0, beta / np.sqrt(n), len(i))), field]
    )


GLASS = glass(60, 0.5)  # many weak couplings that cancel


def _strong_rank():
    """Return a graph of two patterns, one overwhelming; the other and stored pairs decide ties."""
    patterns = np.array([[12.7, 0.3], [12.7, -0.4], [-12.7, 0.5], [0.0, 0.6], [0.0, -0.7]])
    return mg.FactorGraph([2] * 5, [mg.LowRank(patterns), mg.Ising([0, 1], [3, 4], [0.3, -0.2])])


STRONG_RANK = _strong_rank()
STRONG = _strong()  # too large for exp; for samplers that sum logarithms

# Two-valued variables, repeated pairs, fields, evidence, and a variable with one value.
SPINS = mg.FactorGraph(
    [2, 2, 2, 1, 2, 2, 2],
    [
        mg.Potts(
            [0, 1, 2, 0, 2, 4, 0], [1, 2, 4, 4, 3, 5, 1], [0.9, -0.7, 0.4, 1.1, 0.8, 0.6, 0.3]
        ),
        mg.Ising([1, 6, 6], [6, 0, 5], [-0.4, 0.5, 0.7]),
        mg.Unary([0, 4, 0], [[0.0, 0.5], [0.3, 0.0], [0.1, -0.6]]),
    ],
).condition({5: 1})

ZOO = {
    "potts": _potts(),
    "ising": _ising(),
    "tables": _tables(),
    "logical": _logical(),
    "mixed": _mixed(),
    "evidence": _evidence(),
    "large": _large(),
}


def _fields():
    """Return a graph of attractive pairs, strong and weak, between domains of different sizes."""
    return mg.FactorGraph(
        [3, 2, 4, 1],
        [
            mg.Potts([0, 1, 2, 0, 2], [1, 2, 0, 2, 3], [0.9, 0.3, 1.4, 0.1, 0.8]),
            mg.Unary([0], [[0.0, 0.5, -0.4]]),
            mg.Unary([2], [[0.3, 0.0, 0.9, -0.7]]),
        ],
    )


def _held():
    """Return a graph of free and unequal clamped variables that attract; one value repels."""
    graph = mg.FactorGraph(
        [3] * 6,
        [
            mg.Potts([0, 1, 2, 3, 4], [1, 2, 3, 4, 5], [0.7, 0.4, 1.1, 0.6, 0.3]),
            mg.Potts([0, 2], [5, 5], [-0.8, 0.5]),
            mg.Table([[3, 5]], np.random.default_rng(9).normal(0, 0.5, (1, 3, 3))),
            mg.Unary([1], [[0.0, 0.6, -0.2]]),
        ],
    )
    return graph.condition({4: 1, 5: 2})


# Attractive pairs, and factors of one free variable; at most 16 pairs.
ATTRACTIVE = {
    "ising": mg.FactorGraph([2] * 4, [mg.Ising([0, 1, 2, 3], [1, 2, 3, 0], [0.4, 0.1, 0.7, 0.2])]),
    "fields": _fields(),
    "held": _held(),
    "strong": mg.FactorGraph(
        [2] * 3, [mg.Ising([0, 1], [1, 2], [300.0, 0.3]), mg.Unary([0, 2], [0.0, 0.4])]
    ),
    "alone": mg.FactorGraph([5], [mg.Unary([0], [[0.0, 0.1, 0.8, -0.4, 0.3]])]),
    "nothing": mg.FactorGraph([2, 3], []),
    "line": mg.FactorGraph(
        [3] * 4, [mg.Kernel((4,), lambda d: 0.8 / d**2), mg.Unary([1], [[0.0, 0.4, -0.3]])]
    ),
    "grid": mg.FactorGraph(
        [2] * 6,
        [mg.Kernel((2, 3), lambda r, c: 0.5 * np.exp(-0.5 * (r**2 + c**2)), kind="ising")],
    ).condition({3: 1}),
    "ring": mg.FactorGraph(
        [2] * 5, [mg.Kernel((5,), lambda d: 0.6 / d**2, kind="ising", periodic=True)]
    ),
    "ring-even": mg.FactorGraph([3] * 4, [mg.Kernel((4,), lambda d: 1.3 / d**2, periodic=True)]),
    "torus": mg.FactorGraph(
        [2] * 4, [mg.Kernel((2, 2), lambda r, c: 0.4 + 0.9 * (r**2 < c**2), periodic=True)]
    ),
    "complete": mg.FactorGraph([2] * 5, [mg.Complete(5, 0.2), mg.Unary([0], [0.0, 0.4])]),
    "complete-strong": mg.FactorGraph(
        [4, 2, 3], [mg.Complete(3, 0.8, kind="potts"), mg.Potts([0], [1], 0.3)]
    ),
}
