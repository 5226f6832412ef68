"""A million fully connected spins at their critical point.

Every pair of spins is coupled: 499,999,500,000 factors, none of which is stored. The chains start
from the state "all up". Above the critical temperature the magnetization decays to 0 exponentially.
Below it, the magnetization persists. At the critical point (coupling 1/n) it decays by a power law,
sqrt(3 / (2 t)) after t sweeps. In the limit of many spins it satisfies m' = tanh(beta m) - m. The
picture compares this limit with the samples, because a million spins hardly fluctuate.
"""

import matplotlib.pyplot as plt
import numpy as np

import minigibbs as mg

SPINS, SWEEPS = 1_000_000, 30


def magnetization(beta):
    """Return |m| after each sweep; a fully connected model's energy determines it."""
    graph = mg.models.curie_weiss(SPINS, beta)
    up = np.ones(SPINS, int)
    run = mg.sample(
        graph,
        mg.PoissonGibbs(slowdown=1.1),  # relaxes at most 10% slower than plain Gibbs
        sweeps=SWEEPS,
        chains=1,
        start=up,
        record="energy",
        seed=1,
        progress=False,
    )
    print(f"beta {beta}: {run.info.updates / run.info.seconds:,.0f} updates/s")
    return np.sqrt(np.maximum(-2 * run.energy[0] / (beta * SPINS) + 1 / SPINS, 0))


def limit(beta, steps=100):
    """Return the solution of m' = tanh(beta m) - m at the end of every sweep."""
    m, path = 1.0, []
    for _ in range(SWEEPS):
        for _ in range(steps):
            m += (np.tanh(beta * m) - m) / steps
        path.append(m)
    return np.array(path)


# %% Three temperatures
sweeps = np.arange(1, SWEEPS + 1)
figure, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
colors = {0.8: "tab:red", 1.0: "black", 1.2: "tab:blue"}
names = {0.8: "above the critical temperature", 1.0: "critical", 1.2: "below it"}
for beta, color in colors.items():
    sampled, expected = magnetization(beta), limit(beta)
    axes.loglog(sweeps, expected, color=color, alpha=0.4, linewidth=4)
    axes.loglog(sweeps, sampled, ".", color=color, markersize=5, label=names[beta])
    print(f"  after {SWEEPS} sweeps m = {sampled[-1]:.4f}, in the limit {expected[-1]:.4f}")
axes.loglog(sweeps[4:], np.sqrt(1.5 / sweeps[4:]), "k:", label=r"$\sqrt{3 / 2t}$")
axes.set(
    xlabel="sweeps t",
    ylabel="magnetization m",
    ylim=(5e-4, 1.5),
    title="A million spins, each coupled to all others",
)
axes.legend(frameon=False)
figure.savefig("critical_spins.png", dpi=120)
