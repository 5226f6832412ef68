"""Train a dense conditional random field in PyTorch to segment noisy images.

Each pixel has a noisy color. A linear layer converts colors to scores of three labels.
`minigibbs.torch.DenseCRF` couples all pixels of an image, more strongly the closer they are and the
more similar their colors. Scores and the two strengths of the coupling are trained together, by
gradients through the sampled marginals.
"""

# %% Images of random blobs, in three colors with noise
import matplotlib.pyplot as plt
import numpy as np
import torch

from minigibbs.torch import DenseCRF

SIDE, NOISE = 20, 0.9
COLORS = np.array([[1.0, 0.2, 0.2], [0.2, 0.8, 0.2], [0.2, 0.3, 1.0]])
rng = np.random.default_rng(1)
y, x = np.mgrid[:SIDE, :SIDE]
places = np.stack([x, y], -1).reshape(-1, 2)


def make_image():
    """Return labels by the nearest of five random centers, and the observed colors."""
    centers, labels = rng.uniform(0, SIDE, (5, 2)), np.array([0, 1, 2, *rng.integers(0, 3, 2)])
    nearest = ((places[:, None] - centers) ** 2).sum(-1).argmin(1)
    truth = labels[nearest]
    return truth, COLORS[truth] + NOISE * rng.normal(size=(SIDE**2, 3))


def features(colors):
    """Return features of the two kernels: positions, and positions with colors."""
    return [places / 1.5, np.hstack([places / 5, colors / 2.5])]


train = [make_image() for _ in range(12)]
test = [make_image() for _ in range(6)]

# %% First only the scores, then scores and couplings together
torch.manual_seed(1)
scores = torch.nn.Linear(3, 3)
optimizer = torch.optim.Adam(scores.parameters(), lr=0.1)
truth = torch.tensor(np.concatenate([labels for labels, _ in train]))
colors = torch.tensor(np.concatenate([seen for _, seen in train]), dtype=torch.float32)
for _ in range(100):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(scores(colors), truth).backward()
    optimizer.step()

crf = DenseCRF([0.5, 0.5], chains=8, draws=8, warmup=30, seed=1)


def marginals(seen):
    """Return probabilities of the labels of all pixels."""
    return crf(scores(torch.tensor(seen, dtype=torch.float32)), features(seen))


def accuracy(predict):
    """Return the share of test pixels with the correct label."""
    with torch.no_grad():
        right = [(predict(seen).argmax(1).numpy() == labels).mean() for labels, seen in test]
    return float(np.mean(right))


alone = accuracy(lambda seen: scores(torch.tensor(seen, dtype=torch.float32)))
before = accuracy(marginals)
optimizer = torch.optim.Adam(
    [{"params": scores.parameters(), "lr": 0.02}, {"params": crf.parameters(), "lr": 0.25}]
)
for _ in range(3):
    for labels, seen in train:
        found = marginals(seen)[range(SIDE**2), labels]
        optimizer.zero_grad()
        (-torch.log(found + 0.02).mean()).backward()
        optimizer.step()
after = accuracy(marginals)
strengths = ", ".join(f"{weight:.1f}" for weight in crf.weight.tolist())
print(f"right labels: {alone:.1%} by scores alone, {before:.1%} with first couplings,")
print(f"{after:.1%} with trained couplings of strength {strengths}")

# %% A test image: observed colors, labels by scores, and labels by the field
labels, seen = test[0]
with torch.no_grad():
    said = scores(torch.tensor(seen, dtype=torch.float32)).argmax(1).numpy()
    field = marginals(seen).argmax(1).numpy()
figure, axes = plt.subplots(1, 4, figsize=(10, 2.8))
titles = ["seen", f"scores alone ({alone:.0%})", f"trained field ({after:.0%})", "truth"]
for axis, title, shown in zip(
    axes, titles, [seen, COLORS[said], COLORS[field], COLORS[labels]], strict=True
):
    axis.imshow(np.clip(shown, 0, 1).reshape(SIDE, SIDE, 3))
    axis.set_title(title, fontsize=10)
    axis.axis("off")
figure.tight_layout()
figure.savefig("segmentation.png", dpi=120)
