"""A Boltzmann machine on small images: digits learned, generated, and completed.

A restricted Boltzmann machine has one unit per pixel and some hidden units. Pixels are coupled only
to hidden units, which learn the dependencies between pixels. Here they learn from 2,000 digits of 8
x 8 pixels, of which one in twenty is wrong. The images are made up, so the probability of each is
known, and no model can do better than that on average. The machine is small enough that its own
probabilities are exact, too: the sum over all states is computed by elimination. So the score is
that of the model, not of a sampler. It is close to the best, but some digits are generated more
often than others: during learning, chains seldom change from one digit to another. The upper half
of a digit is evidence, and the rest is inferred.
"""

import matplotlib.pyplot as plt
import numpy as np

import minigibbs as mg

FONT = """0E11131519110E 040C040404040E 0E11010204081F 1F02040201110E 02060A121F0202
          1F101E0101110E 0608101E11110E 1F010204080808 0E11110E11110E 0E11110F01020C"""
SIDE, HIDDEN, WRONG, n = 8, 16, 0.05, 64

# %% Digits of 5 x 7 pixels in a frame, and copies with some wrong pixels
digits = np.zeros((10, SIDE, SIDE), int)
for digit, code in enumerate(FONT.split()):
    for row, byte in enumerate(bytes.fromhex(code)):
        digits[digit, row, 1:6] = [byte >> 4 - k & 1 for k in range(5)]
digits = digits.reshape(10, n)
rng = np.random.default_rng(1)
copies = digits[rng.integers(10, size=3000)]
copies = np.where(rng.random(copies.shape) < WRONG, 1 - copies, copies)
images, unseen = copies[:2000], copies[2000:]

# %% Learn the machine: every pixel is coupled to every hidden unit, all have fields
pixel, unit = np.meshgrid(np.arange(n), n + np.arange(HIDDEN), indexing="ij")
start = 0.1 * rng.normal(size=pixel.size)  # equal initial units would remain equal
fields = np.zeros((n + HIDDEN, 2))
fields[:n, 1] = np.log((images.mean(0) + 0.01) / (1.01 - images.mean(0)))
joined = mg.Ising(pixel.ravel(), unit.ravel(), start, name="W")
alone = mg.Unary(range(n + HIDDEN), fields, name="b")
graph = mg.FactorGraph([2] * (n + HIDDEN), [joined, alone])
options = {"rate": 0.01, "decay": 1000, "sweeps": 5, "chains": 200, "l2": 1e-4, "errors": False}
fit = mg.learn(graph, images, columns=range(n), steps=4000, seed=1, progress=False, **options)
W, b = fit.parameters["W"].reshape(n, HIDDEN), fit.parameters["b"]


# %% Exact log-likelihoods of held-out images
def machine(rows):
    """Return the machine's log-likelihood: hidden units are summed out, the rest is log Z."""
    pull, seen = (2 * rows - 1) @ W, b[np.arange(n), rows].sum(1)
    return seen + np.logaddexp(b[n:, 1] + pull, b[n:, 0] - pull).sum(1) - mg.infer(fit.graph).log_z


def truth(rows):
    """Return the true log-likelihood: one of ten digits, each pixel wrong at random."""
    off = (rows[:, None] != digits).sum(2)
    return np.logaddexp.reduce(off * np.log(WRONG) + (n - off) * np.log(1 - WRONG), 1) - np.log(10)


share = np.where(unseen, images.mean(0), 1 - images.mean(0)).clip(1e-3)
print("mean log-likelihood of an unseen image, all exact:")
print(f"  pixels alone {np.log(share).sum(1).mean():.2f}")
print(f"  the machine {machine(unseen).mean():.2f}")
print(f"  what made them {truth(unseen).mean():.2f}, the best there is")

# %% New images, drawn exactly; and digits whose upper half is observed
new = mg.exact_draws(fit.graph, 1000, seed=2)[:, :n]
nearest = (new[:, None] != digits).sum(2)
count = np.bincount(nearest.argmin(1), minlength=10)
print(f"1,000 new images: {np.mean(nearest.min(1)):.1f} pixels off the nearest digit,", end=" ")
print(f"unseen ones {(unseen[:, None] != digits).sum(2).min(1).mean():.1f}")
print(f"how many of each digit: {', '.join(map(str, count))}")
half = n // 2
completed = []
for digit in digits:
    found = mg.infer(fit.graph.condition(dict(enumerate(digit[:half].tolist()))))
    completed.append([found.marginal(k).probability[1] for k in range(half, n)])
completed = np.hstack([digits[:, :half], completed])
right = ((completed > 0.5) == digits)[:, half:].mean()
print(f"pixels of the lower halves that are right: {right:.1%}")

# %% The picture
rows = {
    "learned from": images[:10],
    "drawn anew": new[:10],
    "half seen": np.where(np.arange(n) < half, digits, np.nan),
    "completed": completed,
}
figure, axes = plt.subplots(5, 10, figsize=(9, 5), layout="constrained")
for line, (name, pictures) in zip(axes, rows.items(), strict=False):
    for axis, picture in zip(line, pictures, strict=True):
        axis.imshow(picture.reshape(SIDE, SIDE), cmap="Greys", vmin=0, vmax=1)
    line[0].set_ylabel(name, rotation=0, ha="right", va="center")
strongest = np.argsort(-np.linalg.norm(W, axis=0))
for axis, k in zip(axes[4], strongest, strict=False):
    axis.imshow(W[:, k].reshape(SIDE, SIDE), cmap="PuOr", vmin=-abs(W).max(), vmax=abs(W).max())
axes[4, 0].set_ylabel("weights", rotation=0, ha="right", va="center")
for axis in axes.flat:
    axis.set(xticks=[], yticks=[], facecolor="0.85")
figure.savefig("rbm_digits.png", dpi=120)
