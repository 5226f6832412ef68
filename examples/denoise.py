"""A picture denoised by a Potts model.

Unary factors represent the observed color of each pixel, and pairs favor equal neighbors. The
marginals of the model give each pixel's most probable color and its uncertainty.
"""

import matplotlib.pyplot as plt
import numpy as np

import minigibbs as mg

SIDE, COLORS, NOISE = 48, 4, 0.25

rng = np.random.default_rng(0)
row, column = np.mgrid[:SIDE, :SIDE]
truth = ((row // 12) + (column // 16)) % COLORS
seen = np.where(rng.random(truth.shape) < NOISE, rng.integers(0, COLORS, truth.shape), truth)

# %% The model
chance = np.full((SIDE * SIDE, COLORS), NOISE / COLORS)
chance[np.arange(SIDE * SIDE), seen.ravel()] += 1 - NOISE
site = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
i = np.concatenate([site[:, :-1].ravel(), site[:-1].ravel()])
j = np.concatenate([site[:, 1:].ravel(), site[1:].ravel()])

graph = mg.FactorGraph(
    np.full(SIDE * SIDE, COLORS),
    [mg.Unary.from_probabilities(site.ravel(), chance), mg.Potts(i, j, 1.2)],
)
run = mg.sample(graph, sweeps=2_000, warmup=50, seed=1, progress=False)
cleaned = run.marginals.argmax(axis=1).reshape(SIDE, SIDE)
print(f"pixels right: {np.mean(seen == truth):.3f} seen, {np.mean(cleaned == truth):.3f} cleaned")
print(run.summary())

# %% The picture
figure, axes = plt.subplots(1, 4, figsize=(12, 3.3), layout="constrained")
sure = run.marginals.max(axis=1).reshape(SIDE, SIDE)
shown = {"truth": truth, "seen": seen, "cleaned": cleaned, "how sure": sure}
for panel, (title, values) in zip(axes, shown.items(), strict=True):
    unit = title == "how sure"
    panel.imshow(values, cmap="gray" if unit else "viridis", vmin=0, vmax=1 if unit else COLORS - 1)
    panel.set_title(title)
    panel.axis("off")
figure.savefig("denoise.png", dpi=120)
