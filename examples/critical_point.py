"""The critical point of the Ising model, found by finite-size scaling.

Near its critical temperature a lattice has ordered clusters of all sizes. Single updates change
these slowly, and `mg.SwendsenWang()` changes them at once. Binder's ratio U = 1 - <m^4> / (3
<m^2>^2) tends to 2/3 in the ordered phase and to 0 in the disordered phase. It is independent of
the size only at the critical point, so the curves cross there. Onsager's exact value is log(1 +
sqrt(2)) / 2 = 0.4407.
"""

import matplotlib.pyplot as plt
import numpy as np

import minigibbs as mg

SIDES, BETAS = [8, 16, 32], np.linspace(0.42, 0.46, 7)
EXACT, NU = np.log(1 + np.sqrt(2)) / 2, 1.0  # NU determines how the window narrows


def binder(side, beta):
    """Return Binder's ratio, and its standard error from four chains."""
    graph = mg.models.ising_lattice(side, beta)
    run = mg.sample(
        graph,
        mg.SwendsenWang(),
        sweeps=3_000,
        warmup=200,
        chains=4,
        record="draws",
        seed=1,
        progress=False,
    )
    m = 2 * run.draws.mean(axis=2) - 1
    ratios = 1 - (m**4).mean(axis=1) / (3 * (m**2).mean(axis=1) ** 2)
    return ratios.mean(), ratios.std(ddof=1) / 2


# %% One curve per size
curves = {}
for side in SIDES:
    curves[side] = np.array([binder(side, beta) for beta in BETAS])
    print(f"{side:2} x {side:<2}", curves[side][:, 0].round(3))
small, large = (np.polynomial.Polynomial.fit(BETAS, curves[s][:, 0], 3) for s in SIDES[-2:])
roots = (large - small).roots()
inside = [r.real for r in roots if abs(r.imag) < 1e-9 and BETAS[0] < r.real < BETAS[-1]]
crossing = min(inside, key=lambda root: abs(root - BETAS.mean()))
print(f"the two largest cross at {crossing:.4f}; exactly {EXACT:.4f}")

# %% The picture
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
for side, curve in curves.items():
    left.errorbar(BETAS, *curve.T, marker="o", markersize=4, capsize=2, label=f"{side} x {side}")
    scaled = (BETAS - EXACT) * side ** (1 / NU)
    right.errorbar(scaled, *curve.T, marker="o", markersize=4, capsize=2, linestyle="none")
left.axvline(EXACT, color="0.5", linestyle=":", label="exact")
left.set(xlabel=r"$\beta$", ylabel="Binder's ratio", title="Curves of all sizes cross")
left.legend(frameon=False)
right.set(
    xlabel=r"$(\beta - \beta_c) L^{1/\nu}$ with $\nu = 1$",
    ylabel="Binder's ratio",
    title="... and fall on one curve when scaled",
)
figure.savefig("critical_point.png", dpi=120)
