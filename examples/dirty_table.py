"""A dirty table repaired: which cells are wrong, and what are the correct values?

A table of customers has a wrong letter in one of sixteen cells. Each cell is a variable, whose
candidates are the values of its column. A rule states how often a value occurs together with
another column's value in other rows. Its weights, one for each pair of columns, are learned from
the cells themselves by pseudo-likelihood. Then every cell is sampled given the others, which gives
a probability for each repair. `hospital/repair.py` does the same for a real table with constraints.
"""

# %% A clean table, and the same with errors
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import minigibbs as mg

rng = np.random.default_rng(3)
TOWNS = ["Arden", "Bexley", "Corby", "Dover", "Elgin", "Frome"]
town = rng.integers(0, len(TOWNS), 240)
clean = pd.DataFrame(
    {
        "zip": [f"{4100 + 31 * k}" for k in town],
        "town": [TOWNS[k] for k in town],
        "state": ["NW" if k < 3 else "SE" for k in town],
        "code": [f"0{k + 2}{k + 5}" for k in town],
    }
)
dirty = clean.copy()
for column in dirty:
    for row in np.flatnonzero(rng.random(len(dirty)) < 1 / 16):
        text = dirty.loc[row, column]
        place = rng.integers(len(text))
        dirty.loc[row, column] = text[:place] + rng.choice(list("xzq79")) + text[place + 1 :]

# %% Cells, their candidates, and the features of candidates
cells = dirty.rename_axis("row").reset_index().melt("row", None, "column", "own")
cells["cell"] = cells["row"].astype(str) + "." + cells["column"]
often = cells.groupby(["column", "own"]).size().rename("count").reset_index()
values = often[often["count"] > 2].rename(columns={"own": "value"})[["column", "value"]]
own = cells.rename(columns={"own": "value"})[["column", "value", "cell", "row"]]
others = cells[["cell", "row", "column"]].merge(values, on="column")
candidates = pd.concat([own, others])[["cell", "row", "column", "value"]].drop_duplicates()

spoken = []
for column in dirty:
    for other in dirty.columns.drop(column):
        counts = pd.crosstab(dirty[other], dirty[column])
        share = counts.div(counts.sum(axis=1), axis=0).stack().rename("share").reset_index()
        share = share.set_axis(["given", "value", "share"], axis=1)
        rows = dirty[[other]].rename(columns={other: "given"}).rename_axis("row").reset_index()
        found = rows.merge(share[share["share"] > 0], on="given")
        spoken.append(found.assign(column=column, why=f"{column} by {other}"))
spoken = pd.concat(spoken).merge(candidates, on=["row", "column", "value"])

# %% Learn the dependencies between columns, then sample the cells
as_it_was = candidates.merge(own)
rules = [
    mg.Rule(spoken, ["cell"], ["value"], name="goes", weight="why", scale="share"),
    mg.Rule(as_it_was, ["cell"], ["value"], name="as it was", start=1.0, fixed=True),
]
seen = candidates.merge(own.assign(seen=True), how="left")
seen["seen"] = seen["seen"].notna()
model = mg.from_frames(seen, rules, name="cell", observed="seen")
fit = mg.learn(model.graph, method="pseudo", l2=1.0, seed=1, errors=False, progress=False)
free = mg.from_frames(candidates, rules, name="cell")
learned = free.graph.with_parameters({"goes": fit.parameters["goes"]})
run = mg.sample(learned, sweeps=300, warmup=50, seed=1, progress=False)

best = pd.DataFrame(free.best(run)).rename(columns={"name": "cell", "value": "after"})
best = best.merge(cells, on="cell")
right = clean.rename_axis("row").reset_index().melt("row", None, "column", "right")
best = best.merge(right, on=["row", "column"])
changed, wrong = best["after"] != best["own"], best["own"] != best["right"]
rightly = changed & (best["after"] == best["right"])
print(f"{wrong.sum()} wrong cells; {changed.sum()} repaired, {rightly.sum()} of them rightly")

# %% The confidence of repairs
bins = np.linspace(0.0, 1.0, 21)
figure, axes = plt.subplots(figsize=(7, 4))
kinds = {"rightly repaired": rightly, "wrongly repaired": changed & ~rightly}
kinds |= {"missed": wrong & ~changed, "left alone, rightly": ~wrong & ~changed}
chance = [best.loc[which, "probability"] for which in kinds.values()]
names = [f"{kind} ({which.sum()})" for kind, which in kinds.items()]
axes.hist(chance, bins, stacked=True, label=names, color=["#2a7", "#c33", "#e90", "#bbb"])
axes.set(xlabel="probability of the best value", ylabel="cells", yscale="log", xlim=(0.5, 1.0))
axes.set_title("960 cells of a dirty table: what is sure is right")
axes.legend(frameon=False)
figure.savefig("dirty_table.png", dpi=120, bbox_inches="tight")
