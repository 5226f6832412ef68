"""A dense conditional random field: exact marginals by sampling, and mean field beside them.

    python examples/dense_crf.py [picture.png]

Every two pixels are coupled, by place and colour. Two labels were marked on some pixels by hand;
the field spreads them. Mean field (in NumPy here; what pydensecrf does, without its approximate
filter) is quick, and how far it is off only shows beside marginals that are right. With a name, a
picture of both is drawn (Matplotlib).
"""

import sys

import numpy as np

import minigibbs as mg

HEIGHT, WIDTH, STRENGTH = 36, 48, 0.2

rng = np.random.default_rng(0)
row, column = np.mgrid[:HEIGHT, :WIDTH]
disc = (row - 17) ** 2 + (column - 22) ** 2 < 130
colour = np.where(disc[..., None], [150, 120, 90], [90, 135, 135])
image = np.clip(colour + rng.normal(0, 22, (HEIGHT, WIDTH, 3)), 0, 255)

chance = np.full((2, HEIGHT, WIDTH), 0.5)  # of each label; unmarked pixels say nothing
chance[:, 11:23, 16:28] = [[[0.1]], [[0.9]]]
chance[:, :4, :] = chance[:, :, -6:] = [[[0.9]], [[0.1]]]
unary = -np.log(chance)

graph = mg.models.dense_crf(
    image, unary, compat=3 * STRENGTH, bilateral_compat=10 * STRENGTH, bilateral_sxy=15, srgb=20
)
run = mg.sample(graph, sweeps=200, warmup=50, seed=1, progress=False)
sampled = run.marginals[:, 1].reshape(HEIGHT, WIDTH)


def mean_field(rounds=50):
    """Independent marginals: each label's share by the expected factors, time and again."""
    i, j = np.triu_indices(len(graph), 1)
    coupling = np.zeros((len(graph), len(graph)))
    coupling[i, j] = coupling[j, i] = sum(group.pair_weights(i, j) for group in graph.implicits)
    share = chance.reshape(2, -1)
    for _ in range(rounds):
        logs = -unary.reshape(2, -1) + share @ coupling
        share = np.exp(logs - logs.max(axis=0))
        share = share / share.sum(axis=0)
    return share[1].reshape(HEIGHT, WIDTH)


approximate = mean_field()
error = np.abs(approximate - sampled)
unsure = (sampled > 0.05) & (sampled < 0.95)
print(run.summary())
print(
    f"pixels right: {np.mean((sampled > 0.5) == disc):.3f} sampled, "
    f"{np.mean((approximate > 0.5) == disc):.3f} by mean field"
)
print(
    f"mean field is off by {error.mean():.3f} on average, {error.max():.2f} at most; "
    f"pixels in doubt: {unsure.mean():.1%}, by mean field "
    f"{np.mean((approximate > 0.05) & (approximate < 0.95)):.1%}"
)

if len(sys.argv) > 1:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(13, 3))
    shown = [
        (image / 255, "image"),
        (sampled, "marginals, sampled"),
        (approximate, "mean field"),
        (error, "difference"),
    ]
    for axis, (values, title) in zip(axes, shown, strict=True):
        axis.imshow(values, vmin=0, vmax=0.2 if title == "difference" else 1)
        axis.set_title(title)
        axis.axis("off")
    figure.savefig(sys.argv[1], dpi=120, bbox_inches="tight")
