"""A fully connected 200 x 200 Ising model, couplings 1/r^3: 800 million factors, none stored."""

import numpy as np

import minigibbs as mg

SIDE = 200


def weight(r, c):
    """The coupling at displacement (r, c)."""
    return 0.06 * (r**2 + c**2) ** -1.5


graph = mg.FactorGraph(np.full(SIDE**2, 2), [mg.Kernel((SIDE, SIDE), weight, kind="ising")])
print(graph.stats)
run = mg.sample(graph, sweeps=300, warmup=100, seed=1, record=("marginals", "draws"))
spins = 2.0 * run.draws.astype(np.float64) - 1.0
print("magnetisation per site:", np.abs(spins.mean(axis=2)).mean(axis=1).round(3))
print(run.summary())
