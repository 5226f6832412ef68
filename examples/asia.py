"""A Bayesian network with hard constraints: the chest clinic.

Lauritzen and Spiegelhalter's network (1988) has a node that is "tuberculosis or cancer" by
definition, so many states have probability 0. Single-site updates may not connect all possible
states, and the summary of a run warns about this. `mg.infer` gives exact answers.
"""

import matplotlib.pyplot as plt
import numpy as np

import minigibbs as mg

# %% The network: one table per node given its parents, with "no" before "yes"
names = ["asia", "tuberculosis", "smoker", "cancer", "bronchitis", "either", "x-ray", "dyspnoea"]


def table(child, parents, yes):
    """Return P(child | parents), from the probabilities of "yes"."""
    yes = np.asarray(yes, float)
    return mg.Table.from_probabilities([[*parents, child]], [np.stack([1 - yes, yes], axis=-1)])


factors = [
    table("asia", [], 0.01),
    table("tuberculosis", ["asia"], [0.01, 0.05]),
    table("smoker", [], 0.5),
    table("cancer", ["smoker"], [0.01, 0.1]),
    table("bronchitis", ["smoker"], [0.3, 0.6]),
    table("either", ["tuberculosis", "cancer"], [[0, 1], [1, 1]]),
    table("x-ray", ["either"], [0.05, 0.98]),
    table("dyspnoea", ["bronchitis", "either"], [[0.1, 0.7], [0.8, 0.9]]),
]
network = mg.FactorGraph([2] * 8, factors, names=names, labels=["no", "yes"])

# %% The evidence, step by step
cases = {
    "nothing is known": {},
    "short of breath": {"dyspnoea": "yes"},
    "... back from Asia": {"dyspnoea": "yes", "asia": "yes"},
    "... and a dark x-ray": {"dyspnoea": "yes", "asia": "yes", "x-ray": "yes"},
}
shown = ["tuberculosis", "cancer", "bronchitis"]
chances = np.zeros((len(cases), len(shown)))
for row, (case, evidence) in enumerate(cases.items()):
    answer = mg.infer(network.condition(evidence))
    chances[row] = [answer.marginal(name).probability[1] for name in shown]
    print(f"{case:22} {answer.method}, P(evidence) = {np.exp(answer.log_z):.2g}:", chances[row])
run = mg.sample(network.condition(evidence), sweeps=2_000, seed=1, progress=False)
print("a plain run:", *run.summary().warnings, sep="\n  ")

# %% The picture
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for column, name in enumerate(shown):
    places = np.arange(len(cases)) + 0.27 * (column - 1)
    bars = axes.barh(places, chances[:, column], height=0.25, label=name)
    axes.bar_label(bars, fmt="%.2f", padding=3)
axes.set_yticks(range(len(cases)), cases)
axes.invert_yaxis()
axes.set(
    xlabel="probability", xlim=(0, 1), title="The chest clinic: exact answers with hard constraints"
)
axes.legend(frameon=False)
figure.savefig("asia.png", dpi=120)
