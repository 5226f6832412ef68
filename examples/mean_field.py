"""How wrong is mean field?

Mean field treats the variables of a model as independent, each in the average field of the others.
It is fast, but does not estimate its error. This example has 144 spins with random fields. On a
grid, where each spin has four neighbors, `mg.infer` computes the exact marginals. Mean field is
overconfident, increasingly so with the coupling, until it breaks the symmetry between up and down.
With the same total coupling spread over all other spins it is nearly correct.
"""

import matplotlib.pyplot as plt
import numpy as np

import minigibbs as mg

SIDE, TOTALS, SHOWN = 12, np.linspace(0.2, 1.6, 8), 1.2  # TOTALS: the sum of a spin's couplings
spins = SIDE**2
fields = np.random.default_rng(1).normal(0, 0.3, spins)

# %% Two ways to distribute a spin's coupling
site = np.arange(spins).reshape(SIDE, SIDE)
grid = np.zeros((spins, spins))
grid[site[:, 1:], site[:, :-1]] = grid[site[1:], site[:-1]] = 1 / 4
grid += grid.T
everyone = (1 - np.eye(spins)) / (spins - 1)


def mean_field(coupling, rounds=2_000):
    """Return probabilities of "up" in the average fields of the others, at convergence."""
    m = np.zeros(spins)
    for _ in range(rounds):
        m = 0.5 * m + 0.5 * np.tanh(fields + coupling @ m)
    return (1 + m) / 2


def right(graph, exact):
    """Return correct probabilities of "up": exact on the grid, else by clusters of spins."""
    if exact:
        return mg.infer(graph).marginals[:, 1]
    run = mg.sample(graph, mg.SwendsenWang(), sweeps=3_000, warmup=100, seed=1, progress=False)
    return run.marginals[:, 1]


# %% The error of mean field
errors, scatter = {}, {}
for name, shape in {"a grid: 4 neighbors": grid, "everyone: 143 neighbors": everyone}.items():
    errors[name] = []
    for total in TOTALS:
        truth = right(mg.ising_from_matrix(total * shape, fields), exact=shape is grid)
        guess = mean_field(total * shape)
        errors[name].append(np.abs(guess - truth).mean())
        if np.isclose(total, SHOWN):
            scatter[name] = truth, guess
    print(f"{name}: off by", np.round(errors[name], 3), "on average")

# %% The picture
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
axes[0].plot([0, 1], [0, 1], color="0.7", linewidth=1)
for name, (truth, guess) in scatter.items():
    axes[0].plot(truth, guess, ".", label=name)
axes[0].set(
    xlabel="probability of up, true",
    ylabel="probability of up, mean field",
    title=f"Every spin, at a total coupling of {SHOWN}",
    aspect="equal",
)
axes[0].legend(frameon=False)
for name, line in errors.items():
    axes[1].plot(TOTALS, line, "o-", label=name)
axes[1].set(
    xlabel="total coupling of a spin",
    ylabel="error of a marginal, mean over spins",
    title="Mean field errs where neighbors are few",
)
axes[1].legend(frameon=False)
figure.savefig("mean_field.png", dpi=120)
