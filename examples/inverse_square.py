"""The Ising chain with couplings 1/r^2: its transition temperature against the published one.

The magnetization of this chain jumps at the transition, as in the theory of Kosterlitz and
Thouless: there 2 <m^2> / T is 1 for the infinite chain and 1 + 1 / (log N + c) for N spins. Chains
of three sizes are sampled near the transition by O(N) cluster moves, and reweighted to temperatures
around it. The transition is the temperature at which that form fits. Fukui and Todo, J. Comput.
Phys. 228, 2629 (2009), found T = 1.52780(9). The program writes inverse_square.png.
"""

import numpy as np
from scipy.optimize import minimize_scalar

import minigibbs as mg
from minigibbs.results import plots

PUBLISHED = 1.52780
SAMPLED = 1.53  # the temperature at which chains are sampled
SIZES = (512, 2048, 8192)
GRID = np.linspace(1.50, 1.56, 61)


def chain(n: int) -> mg.FactorGraph:
    """Build a ring of n spins; the coupling is the sum of 1/r^2 over all images of the ring."""

    def coupling(r: np.ndarray) -> np.ndarray:
        sine = np.sin(np.pi * np.where(r == 0, 0.5 * n, r) / n)
        return np.where(r == 0, 0.0, (np.pi / n / sine) ** 2 / SAMPLED)

    return mg.FactorGraph([2] * n, [mg.Kernel((n,), coupling, periodic=True, kind="ising")])


def misfit(jump: np.ndarray, error: np.ndarray) -> float:
    """Return the smallest chi-square of 1 + 1 / (log N + c), over c."""

    def chi_square(c: float) -> float:
        return float(np.sum(((jump - 1.0 - 1.0 / (np.log(SIZES) + c)) / error) ** 2))

    return float(minimize_scalar(chi_square, bounds=(-2.0, 50.0), method="bounded").fun)


def main() -> None:
    """Sample, reweight, fit, and compare."""
    runs = mg.sample_many(
        {n: chain(n) for n in SIZES},
        mg.SwendsenWang(),
        sweeps=3000,
        warmup=200,
        seed=3,
        observe={"m2": mg.observables.Magnetization(2), "e": "energy"},
        record=mg.Record("marginals", thin=2),
    )
    scales = SAMPLED / GRID
    found = runs.estimates(lambda run: mg.observables.reweight(run, "m2", scales, energy="e"))
    jump = np.array([2.0 * one.value / GRID for one in found])  # [size, temperature]
    error = np.array([2.0 * one.error / GRID for one in found])
    misfits = np.array([misfit(*pair) for pair in zip(jump.T, error.T, strict=True)])
    best = int(misfits.argmin())
    inside = GRID[misfits <= misfits[best] + 1.0]
    transition, width = GRID[best], max((inside[-1] - inside[0]) / 2, GRID[1] - GRID[0])
    rhat = max(run.observables["m2"].rhat for run in runs)
    print(f"sizes {SIZES}, greatest R-hat {rhat:.3f}; chi-square {misfits[best]:.1f}")
    print(f"transition at T = {transition:.4f} +- {width:.4f}; published: {PUBLISHED:.4f}")
    figure, (left, right) = plots.figure(2, 11.0, 4.2)
    for n, values, errors in zip(SIZES, jump, error, strict=True):
        left.errorbar(
            GRID[::5], values[::5], errors[::5], fmt="o-", markersize=3, label=f"N = {n:,}"
        )
    left.axvline(PUBLISHED, color="black", linewidth=1, label="published")
    left.set(xlabel="temperature", ylabel="2 <m^2> / T")
    left.legend(frameon=False)
    right.plot(GRID, misfits)
    right.axvline(PUBLISHED, color="black", linewidth=1)
    right.axvspan(transition - width, transition + width, alpha=0.2)
    right.set(xlabel="temperature", ylabel="misfit (chi-square)", ylim=(0, misfits[best] + 12))
    plots.save(figure, "inverse_square.png")
    if abs(transition - PUBLISHED) > 3 * width:
        raise SystemExit("outside its error bars")


if __name__ == "__main__":
    main()
