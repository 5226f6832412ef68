"""The two-dimensional Ising model against Kaufman's and Onsager's solutions.

The specific heat of a 32 x 32 torus is compared with Kaufman's sum for that size. The magnetization
below the critical temperature is compared with Yang's formula for the infinite lattice. The program
writes onsager.png.
"""

import numpy as np

import minigibbs as mg
from minigibbs.results import plots

SIDE = 32
TEMPERATURES = np.array([1.6, 1.8, 2.0, 2.1, 2.2, 2.27, 2.35, 2.5, 2.7, 3.0])
CRITICAL = 2.0 / np.log1p(np.sqrt(2.0))


def log_z(k: float, n: int) -> float:
    """Compute log Z of the n x n torus at coupling k: Kaufman, Phys. Rev. 76, 1232 (1949)."""
    angle = np.pi * np.arange(2 * n) / n
    gamma = np.arccosh(np.cosh(2 * k) / np.tanh(2 * k) - np.cos(angle))
    gamma[0] = 2 * k + np.log(np.tanh(k))  # changes its sign at the critical point
    terms, signs = [], []
    for some in (gamma[1::2], gamma[::2]):
        half = n * np.abs(some) / 2
        for sign in (1.0, -1.0):  # products of 2 cosh and of 2 sinh
            terms.append(np.sum(half + np.log1p(sign * np.exp(-2 * half))))
            signs.append(1.0 if sign > 0 else np.prod(np.sign(some)))
    top = max(terms)
    total = np.sum(np.array(signs) * np.exp(np.array(terms) - top))
    return float(n * n / 2 * np.log(2 * np.sinh(2 * k)) + top + np.log(total / 2))


def heat(temperature: float, n: int = SIDE, step: float = 1e-3) -> float:
    """Compute the specific heat per spin, by the second difference of log Z."""
    k = 1.0 / temperature
    second = log_z(k + step, n) - 2 * log_z(k, n) + log_z(k - step, n)
    return k * k * second / step**2 / n**2


def magnetization(temperature: np.ndarray) -> np.ndarray:
    """Compute Yang's spontaneous magnetization, 0 above the critical temperature."""
    inside = 1.0 - np.sinh(2.0 / np.minimum(temperature, CRITICAL)) ** -4.0
    return np.maximum(inside, 0.0) ** 0.125


def main() -> None:
    """Sample a grid of temperatures, and compare."""
    graphs = {float(t): mg.models.ising_lattice(side=SIDE, beta=1.0 / t) for t in TEMPERATURES}
    observe = {"m": mg.observables.Magnetization(absolute=True), "e": "energy"}
    runs = mg.sample_many(
        graphs, mg.SwendsenWang(), sweeps=1000, warmup=100, seed=2, observe=observe
    )
    heats = runs.estimates(lambda run: mg.observables.specific_heat(run, "e"))
    spins = runs.estimates("m")
    exact = np.array([heat(t) for t in TEMPERATURES])
    print("T      C sampled            Kaufman    |m| sampled          Yang")
    for t, c, truth, m in zip(TEMPERATURES, heats, exact, spins, strict=True):
        yang = f"{magnetization(t):.4f}" if t < 2.1 else "(finite size)"
        print(
            f"{t:.2f}   {c.value:.3f} +- {c.error:.3f}   {truth:10.3f}    "
            f"{m.value:.4f} +- {m.error:.4f}   {yang}"
        )
    scores = [(c.value - truth) / c.error for c, truth in zip(heats, exact, strict=True)]
    cold = TEMPERATURES < 2.1  # there 32 spins are many correlation lengths
    scores += [
        (m.value - magnetization(t)) / m.error
        for t, m in zip(TEMPERATURES[cold], np.array(spins)[cold], strict=True)
    ]
    worst = float(np.abs(scores).max())
    print(
        f"\nlargest deviation: {worst:.1f} standard errors, of {len(scores)} numbers; greatest "
        f"R-hat {max(run.observables['m'].rhat for run in runs):.3f}"
    )
    fine = np.linspace(1.5, 3.1, 200)
    figure, (left, right) = plots.figure(2, 11.0, 4.2)
    left.plot(fine, [heat(t) for t in fine], color="black", linewidth=1, label="Kaufman")
    right.plot(fine, magnetization(fine), color="black", linewidth=1, label="Yang, infinite size")
    for axes, found in ((left, heats), (right, spins)):
        values, errors = ([getattr(one, what) for one in found] for what in ("value", "error"))
        axes.errorbar(TEMPERATURES, values, errors, fmt="o", markersize=4, label=f"{SIDE} x {SIDE}")
        axes.legend(frameon=False)
    left.set(xlabel="temperature", ylabel="specific heat of a spin")
    right.set(xlabel="temperature", ylabel="mean of |m|")
    plots.save(figure, "onsager.png")
    if worst > 4.5:
        raise SystemExit("outside its error bars")


if __name__ == "__main__":
    main()
