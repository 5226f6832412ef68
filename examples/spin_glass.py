"""A spin glass by parallel tempering.

In a cube of spins with random couplings +1 and -1 no state satisfies all pairs, and very many
states are about equally good. The overlap q of two independent copies of the glass measures the
spins in which they agree. Its distribution shows how many different states there are. Single
updates freeze in one of them. Copies on a temperature ladder visit all of them: q and -q are
equally likely, as required by symmetry.
"""

import matplotlib.pyplot as plt
import numpy as np

import minigibbs as mg

SIDE, BETA, SWEEPS = 6, 1.4, 15_000

# %% The glass: a periodic cube, each spin coupled to six neighbors
site = np.arange(SIDE**3).reshape(SIDE, SIDE, SIDE)
i = np.concatenate([site.ravel()] * 3)
j = np.concatenate([np.roll(site, -1, axis=axis).ravel() for axis in range(3)])
coupling = np.random.default_rng(3).choice([-1.0, 1.0], size=len(i))
glass = mg.FactorGraph([2] * SIDE**3, [mg.Ising(i, j, BETA * coupling)])


def overlaps(sampler):
    """Return the overlaps of chains 0 and 1, 2 and 3, at every record, and the run."""
    record = mg.Record("draws", "energy", thin=10)
    run = mg.sample(
        glass, sampler, sweeps=SWEEPS, warmup=2_000, chains=4, record=record, seed=2, progress=False
    )
    spins = 2.0 * run.draws - 1.0
    print(f"{type(sampler).__name__}: {run.info.seconds:.0f} s, {run.info.updates:,} updates")
    return (spins[::2] * spins[1::2]).mean(axis=2), run


frozen, _ = overlaps(mg.Gibbs())
tempered, run = overlaps(mg.Tempering())
print(f"round trips of the ladder: {run.ladder.round_trips}")
print(f"log Z = {run.ladder.log_z:.2f}; mean overlap {tempered.mean():+.3f}, 0 by symmetry")

# %% The picture
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
bins = np.linspace(-1, 1, 41)
left.hist(frozen.ravel(), bins, density=True, color="tab:red", alpha=0.6, label="Gibbs: frozen")
left.hist(tempered.ravel(), bins, density=True, color="tab:blue", alpha=0.6, label="tempering")
left.set(
    xlabel="overlap q of two copies", ylabel="density", title="The distribution of the overlap"
)
left.legend(frameon=False)
right.plot(frozen[0], color="tab:red", label="Gibbs")
right.plot(tempered[0], color="tab:blue", alpha=0.6, linewidth=0.7, label="tempering")
right.set(
    xlabel="record",
    ylabel="overlap of chains 0 and 1",
    title="Overlap during the run",
    ylim=(-1.05, 1.05),
)
right.legend(frameon=False)
figure.savefig("spin_glass.png", dpi=120)
