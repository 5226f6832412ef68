"""Denoise a picture with a Potts model: unary factors see pixels, pairs want neighbours alike."""

import numpy as np

import minigibbs as mg

SIDE, COLOURS, NOISE = 48, 4, 0.25

rng = np.random.default_rng(0)
row, column = np.mgrid[:SIDE, :SIDE]
truth = ((row // 12) + (column // 16)) % COLOURS
seen = np.where(rng.random(truth.shape) < NOISE, rng.integers(0, COLOURS, truth.shape), truth)

chance = np.full((SIDE * SIDE, COLOURS), NOISE / COLOURS)
chance[np.arange(SIDE * SIDE), seen.ravel()] += 1 - NOISE
site = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
i = np.concatenate([site[:, :-1].ravel(), site[:-1].ravel()])
j = np.concatenate([site[:, 1:].ravel(), site[1:].ravel()])

graph = mg.FactorGraph(
    np.full(SIDE * SIDE, COLOURS),
    [mg.Unary.from_probabilities(site.ravel(), chance), mg.Potts(i, j, 1.2)],
)
run = mg.sample(graph, sweeps=500, warmup=50, seed=1)
cleaned = run.marginals.argmax(axis=1).reshape(SIDE, SIDE)
print(f"pixels right: {np.mean(seen == truth):.3f} seen, {np.mean(cleaned == truth):.3f} cleaned")
print(run.summary())
