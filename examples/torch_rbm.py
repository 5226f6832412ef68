"""A restricted Boltzmann machine trained by a PyTorch optimizer.

The data are the 14 pictures of bars and stripes on 3 x 3 pixels. The gradient of the partition
function comes from `minigibbs.torch.Expectations`. It is computed exactly, which is possible for so
small a machine, and from persistent chains, as for large machines. Such chains lag behind
parameters that change fast, so that steps are small: with a rate of 0.05 instead of 0.02, the
likelihood falls below that of the untrained machine before it recovers.
"""

# %% Bars and stripes, as spins
import matplotlib.pyplot as plt
import numpy as np
import torch

import minigibbs as mg
from minigibbs.torch import Expectations

SIDE, HIDDEN, STEPS = 3, 8, 300
VISIBLE = SIDE**2
lines = 2 * (np.arange(2**SIDE)[:, None] >> np.arange(SIDE) & 1) - 1
bars = np.repeat(lines[:, None, :], SIDE, axis=1)
data = np.unique(np.concatenate([bars, bars.transpose(0, 2, 1)]).reshape(-1, VISIBLE), axis=0)
seen = torch.tensor(data, dtype=torch.float64)
best = -np.log(len(data))

# %% The machine: couplings between pixels and hidden spins, a field on every spin
i, j = np.divmod(np.arange(VISIBLE * HIDDEN), HIDDEN)
graph = mg.FactorGraph(
    [2] * (VISIBLE + HIDDEN),
    [
        mg.Ising(i, VISIBLE + j, 0.0, name="W"),
        mg.Unary(range(VISIBLE + HIDDEN), [[0.0, 0.0]] * (VISIBLE + HIDDEN), name="h"),
    ],
)


def free_energy(w, b):
    """Return the mean of log sum over hidden spins of exp(log-potential), over the data."""
    inputs = seen @ w + b[VISIBLE:]
    return (seen @ b[:VISIBLE] + torch.logaddexp(inputs, -inputs).sum(1)).mean()


# %% Training: the model's moments are constants of each step
def train(model):
    """Return the likelihood at every tenth step, and the learned graph."""
    torch.manual_seed(1)
    w = (0.1 * torch.randn(VISIBLE, HIDDEN, dtype=torch.float64)).requires_grad_()
    b = torch.zeros(VISIBLE + HIDDEN, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([w, b], lr=0.02, weight_decay=1e-3)
    slower = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, STEPS)
    curve, learned = [], graph
    for step in range(STEPS + 1):
        given = {"W": w.reshape(-1), "h": torch.stack([-b, b], 1)}
        if step % 10 == 0:
            numbers = {name: value.detach().numpy() for name, value in given.items()}
            learned = graph.with_parameters(numbers)
            curve.append(free_energy(w, b).item() - mg.log_partition(learned))
        with torch.no_grad():
            moments = model(given).mean
        loss = sum((given[name] * moments[name]).sum() for name in given) - free_energy(w, b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        slower.step()
    return curve, learned


models = {
    "exact moments": Expectations(graph, exact=True),
    "512 chains": Expectations(graph, exact=False, chains=512, sweeps=20, draws=1, seed=1),
}
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for name, model in models.items():
    curve, learned = train(model)
    print(f"{name}: log-likelihood {curve[0]:.2f} at first, {curve[-1]:.2f} trained")
    left.plot(np.arange(len(curve)) * 10, curve, label=name)
print(f"at best: {best:.2f}")

# %% The curves, and pictures that the machine of the chains generates
left.axhline(best, color="gray", linestyle="--")
left.set(xlabel="step", ylabel="log-likelihood of a picture")
left.legend()
draws = mg.exact_draws(learned, 24, seed=1)[:, :VISIBLE].reshape(24, SIDE, SIDE)
tiles = np.pad(draws * 1.0, ((0, 0), (1, 1), (1, 1)), constant_values=0.5)
wall = tiles.reshape(4, 6, SIDE + 2, SIDE + 2).transpose(0, 2, 1, 3)
right.imshow(wall.reshape(4 * (SIDE + 2), -1), cmap="gray")
right.set_title("drawn by the machine")
right.axis("off")
figure.savefig("torch_rbm.png", dpi=120)
