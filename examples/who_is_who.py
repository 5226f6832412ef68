"""Entity resolution in a table of people: a probability for every pair of records.

A made-up table has several records of each person: misspelled, moved, married, with empty fields, a
few with a namesake in the same home. The value of a record's variable is the person to whom it
belongs. Records attract or repel depending on how well their fields agree. The initial weights are
Fellegi and Sunter's log-odds. They are then learned, since pairs of records are not independent.
"""

import difflib

import matplotlib.pyplot as plt
import numpy as np

import minigibbs as mg

# %% Tables of people, with errors
FIRST = "Anna Bruno Clara David Emma Felix Greta Henry Irene Jonas Karla Louis Maria Oscar".split()
LAST = "Adler Baker Carter Dreyer Fisher Gruber Hansen Keller Larsen Miller Norton Parker".split()
FIELDS = ["first", "last", "born", "street"]


def table(people, seed):
    """Return records, each a list of FIELDS, and the person to whom each belongs."""
    rng, records, truth, first, last = np.random.default_rng(seed), [], [], "", ""
    for person in range(people):
        born = f"{rng.integers(1, 29):02}.{rng.integers(1, 13):02}.{rng.integers(30, 100)}"
        alone = person % 8 != 1  # otherwise living with the previous person
        first = rng.choice(FIRST) if alone or rng.random() < 0.7 else first
        for entry in range(rng.choice([1, 1, 2, 2, 3])):
            if rng.random() < (0.1 if entry else alone):
                street = f"{rng.choice(LAST)} Rd {rng.integers(40)}"
            last = rng.choice(LAST) if rng.random() < (0.05 if entry else alone) else last
            record = [first, last, born, street]
            for field, word in enumerate(record):
                at, wrong = rng.integers(1, len(word)), rng.choice(["", word[-1], "e", "a", "7"])
                if rng.random() < 0.15:
                    record[field] = word[:at] + wrong + word[at + 1 :]
            record[0] = record[0][0] + "." if rng.random() < 0.15 else record[0]
            records.append(["" if rng.random() < 0.12 else word for word in record])
            truth.append(person)
    return records, np.array(truth)


# %% The agreement of records, and the model
def agreement(a, b):
    """Return 0 for equal, 1 for one wrong letter or an initial, 2 for different, 3 for unknown."""
    alike = sum(block.size for block in difflib.SequenceMatcher(None, a, b).get_matching_blocks())
    close = max(len(a), len(b)) - alike < 2 or ("." in (a[1:2], b[1:2]) and a[:1] == b[:1])
    return 3 if not (a and b) else 0 if a == b else 1 if close else 2


def model(records):
    """Build a Potts factor for each pair of records and each field; its weight is 0 if unknown."""
    i, j = np.triu_indices(len(records), 1)
    kinds = np.array([[*map(agreement, records[a], records[b])] for a, b in np.c_[i, j]]).T
    free = {"weight": np.zeros(4), "fixed": [False, False, False, True]}
    groups = [mg.Potts(i, j, name=f, tied=k, **free) for f, k in zip(FIELDS, kinds, strict=True)]
    return mg.FactorGraph([len(records)] * len(records), groups), i, j, kinds


known, answer = table(100, seed=1)
graph, i, j, kinds = model(known)
same = answer[i] == answer[j]
often = [1 + np.array([(kinds[:, k] == s).sum(1) for s in range(4)]) for k in (same, ~same)]
odds = np.log(often[0] / often[1] * np.sum(~same) / np.sum(same)).T * [1, 1, 1, 0]
graph = graph.with_parameters(dict(zip(FIELDS, odds, strict=True)))
fit = mg.learn(graph, answer[None], l2=0.05, chains=16, steps=300, seed=1, progress=False)
for field, (equal, close, other, _) in fit.parameters.items():
    print(f"{field:7s} weight if equal {equal:+.1f}, close {close:+.1f}, different {other:+.1f}")

# %% Three other tables, sampled by tempering, since groups of records seldom merge
said, true, tempering = [], [], mg.Tempering(levels=16)
for seed in [3, 4, 2]:
    records, truth = table(30, seed)
    graph, i, j, _ = model(records)
    graph = graph.with_parameters(fit.parameters)
    run = mg.sample(graph, tempering, sweeps=1000, record="draws", seed=1, progress=False)
    each = (run.draws[..., i] == run.draws[..., j]).mean(axis=1)
    print(f"{len(records)} records: chains differ by {np.ptp(each, axis=0).max():.2f} at most")
    p, t = each.mean(axis=0), truth[i] == truth[j]
    said, true = np.append(said, p), np.append(true, t).astype(bool)
print(f"precision {np.mean(true[said > 0.5]):.0%}, recall {np.mean(said[true] > 0.5):.0%} of pairs")
for k in [said < 0.02, abs(said - 0.5) <= 0.48, said > 0.98]:
    print(f"{k.sum():5,} pairs at {said[k].mean():.1%} on average: {true[k].mean():.1%} are one")

# %% A picture of the last table
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5.6), layout="constrained")
left.imshow((run.draws[..., None] == run.draws[..., None, :]).mean(axis=(0, 1)), cmap="Blues")
for corner, size in zip(*np.unique(truth, return_index=True, return_counts=True)[1:], strict=True):
    left.add_patch(plt.Rectangle((corner - 0.5, corner - 0.5), size, size, fill=False))
unsure = np.flatnonzero(abs(p - 0.5) < 0.48)
left.plot(j[unsure], i[unsure], "o", markerfacecolor="none", color="tab:orange")
left.set(title="Records of one person? Squares: the truth; circles: uncertain", xlabel="record")
shown = unsure[np.unique(p[unsure].round(2), return_index=True)[1]]
lines = ["\n".join(", ".join(w or "?" for w in records[r]) for r in pair) for pair in np.c_[i, j]]
right.barh(range(len(shown)), p[shown], color=np.where(t[shown], "tab:green", "tab:red"))
right.set_yticks(range(len(shown)), [lines[k] for k in shown], fontsize=8)
right.set(xlim=(0, 1), xlabel="probability", title="Uncertain pairs (green: one person; red: two)")
figure.savefig("who_is_who.png", dpi=120)
