"""An RNA family learned and sampled: base pairs from sequences alone.

Bases that pair in a folded RNA change together: if one mutates, its partner follows. A Potts model
has a table of energies for each pair of positions. Learned from the sequences of a family, its
strongest tables show the positions in contact, and its samples are new members of the family. This
family is made up: its fold is the cloverleaf of a transfer RNA, and its sequences are drawn from a
model of that fold. So the answer is known, but the learned model does not use it. The penalty that
suppresses chance correlations also weakens the true ones, so bases pair a little less often in
samples.
"""

import matplotlib.pyplot as plt
import numpy as np

import minigibbs as mg

FOLD = "(((((((..((((........)))).(((((.......))))).....(((((.......))))))))))))."
BASES = "ACGU"
STRENGTH = {"AU": 1.4, "UA": 1.4, "CG": 2.0, "GC": 2.0, "GU": 0.6, "UG": 0.6}

# %% A family with this fold: each position has its favorite bases, and the stems pair
n, opened, stems = len(FOLD), [], []
for place, sign in enumerate(FOLD):
    if sign == "(":
        opened.append(place)
    elif sign == ")":
        stems.append((opened.pop(), place))
favor = np.random.default_rng(1).normal(0.0, 0.7, (n, 4))
paired = np.array([[STRENGTH.get(a + b, 0.0) for b in BASES] for a in BASES])
planted = mg.FactorGraph([4] * n, [mg.Unary(range(n), favor), mg.Table(stems, paired)])
family = mg.exact_draws(planted, 400, seed=1)
print(f"{len(family)} sequences of {n} bases, {len(stems)} pairs in the fold")

# %% Learn the energies of all positions and of all pairs of them
i, j = np.triu_indices(n, 1)
single = mg.Unary(range(n), np.zeros((n, 4)), name="h")
tables = mg.Table(np.c_[i, j], np.zeros((len(i), 4, 4)), name="J")
blank = mg.FactorGraph([4] * n, [single, tables])
options = {"steps": 600, "rate": 0.02, "errors": False, "progress": False}
fit = mg.learn(blank, family, l2={"J": 0.03}, seed=1, **options)
J = fit.parameters["J"]
J = J - J.mean(1, keepdims=True) - J.mean(2, keepdims=True) + J.mean((1, 2), keepdims=True)
score = np.linalg.norm(J, axis=(1, 2))
best = np.argsort(-score)[: len(stems)]
fold = set(stems)
hits = sum((i[k], j[k]) in fold for k in best)
print(f"of the {len(stems)} strongest pairs {hits} are in the fold")

# %% New members of the family
run = mg.sample(fit.graph, sweeps=2000, warmup=200, record="draws", seed=1, progress=False)
new = run.draws.reshape(-1, n)
for name, rows in {"family": family, "samples": new}.items():
    held = [np.mean(paired[rows[:, a], rows[:, b]] > 0) for a, b in stems]
    print(f"{name}: {np.mean(held):.1%} of the fold's pairs are pairs that can bind")
print("a sample:", "".join(BASES[b] for b in new[-1]))
print("the fold:", FOLD)


def frequencies(rows):
    """Return how often two positions have two bases, for all pairs."""
    one = np.eye(4)[rows].reshape(len(rows), -1)
    return (one.T @ one / len(rows)).reshape(n, 4, n, 4)[i, :, j].ravel()


seen, drawn = frequencies(family), frequencies(new)
print(f"frequencies of two bases: correlation {np.corrcoef(seen, drawn)[0, 1]:.3f}")

# %% The picture: the fold above the diagonal, the learned tables below it
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
found = np.full((n, n), np.nan)
found[j, i] = score
image = left.imshow(found, cmap="Greys", vmin=0)
figure.colorbar(image, ax=left, shrink=0.7, label="strength of the learned table")
left.plot(*np.array(stems)[:, ::-1].T, "s", color="tab:green", markersize=4, label="in the fold")
left.plot(i[best], j[best], "o", markerfacecolor="none", color="tab:orange", label="strongest")
left.set(xlabel="position", ylabel="position", title="Above: the fold. Below: what was learned")
left.legend(loc="center right", frameon=False)
right.hexbin(seen, drawn, gridsize=60, bins="log", mincnt=1, cmap="viridis")
right.plot([0, 0.7], [0, 0.7], color="tab:red", linewidth=1)
right.set(xlabel="in the family", ylabel="in samples of the model", aspect="equal")
right.set_title("Frequencies of two bases at two positions")
figure.savefig("rna_family.png", dpi=120)
