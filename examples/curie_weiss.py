"""The Curie-Weiss model: moments of the magnetization against the binomial sum.

Every pair of n spins has the same coupling beta / n. The number k of up spins has the distribution
C(n, k) exp(beta (2k - n)^2 / 2n), up to a constant. So all moments are sums of n + 1 terms. The
program writes curie_weiss.png.
"""

import numpy as np
from scipy.special import gammaln, logsumexp

import minigibbs as mg
from minigibbs.results import plots

N = 1000
BETAS = np.linspace(0.5, 1.5, 11)


def distribution(beta: float) -> tuple[np.ndarray, np.ndarray]:
    """Return magnetizations, and the probability of each."""
    k = np.arange(N + 1)
    m = (2 * k - N) / N
    logs = gammaln(N + 1) - gammaln(k + 1) - gammaln(N - k + 1) + beta * N * m**2 / 2
    return m, np.exp(logs - logsumexp(logs))


def main() -> None:
    """Sample a grid of temperatures, and compare with the sums."""
    graphs = {
        round(float(beta), 2): mg.FactorGraph([2] * N, [mg.Complete(N, beta / N)]) for beta in BETAS
    }
    moments = mg.observables.Moments(mg.observables.Magnetization())
    runs = mg.sample_many(
        graphs, mg.SwendsenWang(), sweeps=1000, warmup=100, seed=1, observe={"m": moments}
    )
    print("beta   |m| sampled          exact     m^2 sampled          exact")
    scores, exact = [], []
    for beta, run in zip(runs.at, runs, strict=True):
        m, probability = distribution(beta)
        truth = np.array([probability @ np.abs(m), probability @ m**2])
        one = run.observables["m"]
        mean, error = one.mean[1:3], one.error[1:3]
        scores.append((mean - truth) / error)
        exact.append(truth[0])
        parts = [f"{a:.4f} +- {e:.4f}  {t:.4f}" for a, e, t in zip(mean, error, truth, strict=True)]
        print(f"{beta:4.2f}   " + "     ".join(parts))
    worst = float(np.abs(scores).max())
    print(f"\nlargest deviation: {worst:.1f} standard errors, of {2 * len(scores)} numbers")
    print(
        f"{sum(run.info.updates for run in runs):,} updates, "
        f"greatest R-hat {max(np.nanmax(run.observables['m'].rhat) for run in runs):.3f}"
    )
    figure, (axes,) = plots.figure(1, 7.0, 4.2)
    axes.plot(runs.at, exact, color="black", linewidth=1, label="binomial sum")
    found = [run.observables["m"] for run in runs]
    axes.errorbar(
        runs.at, [one.mean[1] for one in found], [one.error[1] for one in found],
        fmt="o", markersize=4, capsize=2, label=f"sampled, n = {N:,}",
    )  # fmt: skip
    axes.set(xlabel="beta", ylabel="mean of |m|", title="Curie-Weiss model")
    axes.legend(frameon=False)
    plots.save(figure, "curie_weiss.png")
    if worst > 4.5:
        raise SystemExit("outside its error bars")


if __name__ == "__main__":
    main()
