"""Sixteen thousand chains on a GPU: a quench, watched as a distribution.

A hot lattice is suddenly cooled below its critical temperature. Each chain chooses a sign, up or
down, or is stuck at a wall between domains. Sixteen thousand chains show the distribution of the
magnetization at every time. Without a GPU the script runs 512 chains on the CPU, as for the picture
shown here.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

import minigibbs as mg

SIDE, BETA, STEPS, SWEEPS = 24, 0.6, 40, 4

graph = mg.models.ising_lattice(SIDE, BETA)
options = {"record": "marginals", "seed": 1, "progress": False}


# %% On a GPU if there is one
def start():
    """Return the first sweep of all chains, and their device."""
    try:
        run = mg.sample(graph, sweeps=1, chains=16_384, backend="cuda", **options)
        return run, "cuda"
    except mg.MinigibbsError as error:
        print(f"No GPU here ({error}); 512 chains on the CPU instead.")
    return mg.sample(graph, sweeps=1, chains=512, scan="shared", **options), "cpu"


run, backend = start()
chains = run.info.chains
distributions, edges = [], np.linspace(-1, 1, 42)
begun = time.perf_counter()
for step in range(STEPS):
    magnetization = 2 * run.state.mean(axis=1) - 1
    distributions.append(np.histogram(magnetization, edges)[0] / chains)
    run = mg.sample(
        graph, sweeps=SWEEPS, chains=chains, start=run, backend=backend, **options | {"seed": step}
    )
seconds = time.perf_counter() - begun
updates = chains * STEPS * SWEEPS * SIDE**2
print(f"{chains:,} chains on {backend}: {updates:,} updates in {seconds:.1f} s")
print(f"{updates / seconds:.3g} updates/s, every call included")
walls = np.mean(np.abs(magnetization) < 0.7)
print(f"after {STEPS * SWEEPS} sweeps {walls:.1%} of the chains are still divided by a wall")

# %% The picture
figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
shown = np.log10(np.maximum(np.array(distributions).T, 0.5 / chains))
image = axes.imshow(
    shown, origin="lower", aspect="auto", extent=(0, STEPS * SWEEPS, -1, 1), cmap="magma"
)
axes.set(
    xlabel="sweeps since the quench",
    ylabel="magnetization",
    title=f"A quench, seen by {chains:,} chains",
)
figure.colorbar(image, label="log10 of the share of chains")
figure.savefig("many_chains.png", dpi=120)
