"""A photograph segmented by a fully connected random field, with its uncertainty.

All pairs of pixels are coupled, more strongly the closer they are and the more similar their
colors: almost five million pairs, none of which is stored. A few strokes mark the person and the
background. Samples of the field extend the strokes to the picture and show where the field is
uncertain. A single best segmentation cannot show this. The photograph (Grace Hopper, by the US
Navy) is part of Matplotlib.
"""

import matplotlib.cbook
import matplotlib.pyplot as plt
import numpy as np

import minigibbs as mg

BLOCK = 10

# %% The photograph, as means over blocks of pixels, and strokes (rows, columns, label)
with matplotlib.cbook.get_sample_data("grace_hopper.jpg") as file:
    pixels = plt.imread(file, format="jpg").astype(float)
height, width = pixels.shape[0] // BLOCK, pixels.shape[1] // BLOCK
pixels = pixels[: height * BLOCK, : width * BLOCK]
image = pixels.reshape(height, BLOCK, width, BLOCK, 3).mean(axis=(1, 3))
strokes = [
    (slice(5, 7), slice(21, 30), 1),
    (slice(12, 24), slice(21, 30), 1),
    (slice(38, 59), slice(10, 42), 1),
    (slice(2, 27), slice(1, 6), 0),
    (slice(29, 37), slice(1, 4), 0),
    (slice(31, 34), slice(8, 12), 0),
    (slice(2, 27), slice(43, 50), 0),
]
chance = np.full((2, height, width), 0.5)
for rows, columns, label in strokes:
    chance[label, rows, columns], chance[1 - label, rows, columns] = 0.98, 0.02

# %% The field, and samples of it
graph = mg.models.dense_crf(
    image,
    probabilities=chance,
    sxy=1.5,
    compat=0.8,
    bilateral_sxy=10,
    srgb=13,
    bilateral_compat=2.7,
)
pairs = len(graph) * (len(graph) - 1) // 2
run = mg.sample(graph, sweeps=6_000, warmup=1_000, chains=4, seed=1, progress=False)
person = run.marginals[:, 1].reshape(height, width)
uncertainty = np.minimum(person, 1 - person)
summary = run.summary()
print(f"{len(graph):,} pixels, {pairs:,} pairs")
uncertain = np.mean(uncertainty > 0.05)
print(f"person: {np.mean(person > 0.5):.1%} of the pixels; uncertain: {uncertain:.1%}")
print(f"largest R-hat {summary.value_rhat:.3f}, {len(summary.warnings)} warnings")

# %% The picture
figure, axes = plt.subplots(1, 4, figsize=(12, 3.9), layout="constrained")
axes[0].imshow(image / 255)
for rows, columns, label in strokes:
    corner = (columns.start - 0.5, rows.start - 0.5)
    size = (columns.stop - columns.start, rows.stop - rows.start)
    color = "tab:cyan" if label else "tab:red"
    axes[0].add_patch(plt.Rectangle(corner, *size, fill=False, edgecolor=color, linewidth=2))
axes[1].imshow(np.where((person > 0.5)[..., None], image / 255, 1.0))
axes[2].imshow(person, cmap="gray", vmin=0, vmax=1)
axes[3].imshow(uncertainty, cmap="magma", vmin=0, vmax=0.5)
titles = ["photograph and strokes", "more likely person", "probability of person", "uncertainty"]
for panel, title in zip(axes, titles, strict=True):
    panel.set_title(title)
    panel.axis("off")
figure.savefig("photograph.png", dpi=120)
