"""Repair a table: a frame with errors in, a repaired frame out, with a probability for each cell.

    python examples/hospital/repair.py                                  # a small made-up table
    python examples/hospital/repair.py dirty.csv constraints.txt [clean.csv]

Cells are variables, whose candidates are values that occur with the rest of their row. Two kinds of
factors favor a candidate: its frequency together with the other cells of the row, and its agreement
with the constraints, which couple cells that must be equal. Their weights are tied by columns, and
learned from the cells without violations.

Constraints have HoloClean's syntax, one per line:
t1&t2&EQ(t1.Zip,t2.Zip)&IQ(t1.City,t2.City) states that rows of one zip code are in one city.
"""

import re
import sys
import warnings

import numpy as np
import pandas as pd

import minigibbs as mg

RARE = 0.05  # smallest share of a candidate given another cell of its row
CANDIDATES = 8  # maximum number per cell, in addition to its present value
KEEP = 2.0  # log odds that a cell is correct, before other evidence
OFTEN = 0.5  # least probability of a repair


def read_constraints(text):
    """Return pairs of columns (those that agree, the one that then must not differ)."""
    lines = [line for line in text.split() if line]
    return [
        (re.findall(r"EQ\(t1\.(\w+)", line), re.findall(r"IQ\(t1\.(\w+)", line)[0])
        for line in lines
    ]


def suspect_cells(table, constraints):
    """Mark the cells that take part in a violation."""
    suspect = pd.DataFrame(False, index=table.index, columns=table.columns)
    for same, differ in constraints:
        violated = table.groupby(same)[differ].transform("nunique") > 1
        for column in (*same, differ):
            suspect[column] |= violated
    return suspect


def shares(table, given, column):
    """Return how often each value of a column occurs with each entry of other columns, by row."""
    key = table[given].agg("\x1f".join, axis=1) if len(given) > 1 else table[given[0]]
    pairs = pd.DataFrame({"key": key, "value": table[column]})
    counts = pairs.groupby(["key", "value"]).size().rename("count").reset_index()
    counts["total"] = counts.groupby("key")["count"].transform("sum")
    rows = pd.DataFrame({"row": table.index, "key": key, "own": table[column]})
    found = rows.merge(counts, on="key")
    own = found["own"] == found["value"]  # a cell is no evidence for itself
    found["share"] = (found["count"] - own) / (found["total"] - 1).clip(lower=1)
    return found[["row", "value", "share"]]


def features(table, constraints, columns):
    """Return a frame (row, column, value, share, feature), and one for constraints."""
    spoken = []
    for column in columns:
        for other in columns:
            if other != column:
                found = shares(table, [other], column)
                spoken.append(found.assign(column=column, why=f"{column} by {other}", rule="goes"))
    for same, differ in constraints:
        found = shares(table, same, differ)
        why = f"{', '.join(same)} -> {differ}"
        spoken.append(found.assign(column=differ, why=why, rule="keeps"))
    return pd.concat(spoken, ignore_index=True)


def candidates(table, spoken, columns):
    """Return a frame (cell, row, column, value): the value and the candidates of each cell."""
    best = spoken.groupby(["row", "column", "value"])["share"].max().reset_index()
    best = best[best["share"] >= RARE].sort_values("share", ascending=False, kind="stable")
    best = best.groupby(["row", "column"]).head(CANDIDATES)
    own = table[columns].rename_axis("row").reset_index().melt("row", None, "column", "value")
    whole = pd.concat([own, best[["row", "column", "value"]]]).drop_duplicates()
    cell = whole["row"].astype(str) + "." + whole["column"]
    return whole.assign(cell=cell).reset_index(drop=True)


def joined(table, suspect, constraints):
    """Return pairs of uncertain cells that a constraint requires to be equal, in chains."""
    pairs = []
    for same, differ in constraints:
        some = table[suspect[differ]]
        key = some[same].agg("\x1f".join, axis=1) if len(same) > 1 else some[same[0]]
        rows = pd.DataFrame({"row": some.index, "key": key.to_numpy()})
        rows["next"] = rows.groupby("key")["row"].shift(-1)
        rows = rows.dropna()
        pairs.append(
            pd.DataFrame(
                {
                    "a": rows["row"].astype(str) + "." + differ,
                    "b": rows["next"].astype(int).astype(str) + "." + differ,
                    "why": f"{', '.join(same)} -> {differ}",
                }
            )
        )
    return pd.concat(pairs, ignore_index=True)


def repair(table, constraints, sweeps=200, seed=1):
    """Return the repaired table, and a frame (row, column, before, after, probability)."""
    columns = sorted({c for same, differ in constraints for c in (*same, differ)})
    suspect = suspect_cells(table, constraints)
    spoken = features(table, constraints, columns)
    cells = candidates(table, spoken, columns)
    own = table.to_numpy()[cells["row"], table.columns.get_indexer(cells["column"])]
    unsure = suspect.to_numpy()[cells["row"], suspect.columns.get_indexer(cells["column"])]
    cells["own"] = cells["value"].to_numpy() == own
    cells["seen"] = cells["own"] & ~unsure
    spoken = spoken.merge(cells[["row", "column", "value", "cell"]])
    rules = [
        mg.Rule(
            spoken[spoken["rule"] == rule],
            ["cell"],
            ["value"],
            name=rule,
            weight="why",
            scale="share",
        )
        for rule in ("goes", "keeps")
    ]
    kept = cells[cells["own"] & unsure]
    rules.append(mg.Rule(kept, ["cell"], ["value"], name="as it was", start=KEEP, fixed=True))
    pairs = joined(table, suspect, constraints)
    rules.append(mg.Rule(pairs, ["a", "b"], same=True, name="agree", start=0.5, fixed=True))
    model = mg.from_frames(cells, rules, name="cell", observed="seen")
    print(model.graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = mg.learn(model.graph, method="pseudo", l2=1.0, seed=seed, errors=False)
    run = mg.sample(fit.graph, sweeps=sweeps, warmup=sweeps // 4, seed=seed, progress=False)
    print(run.summary())
    best = pd.DataFrame(model.best(run))
    place = best["name"].str.split(".", n=1, expand=True)
    best["row"], best["column"] = place[0].astype(int), place[1]
    best["before"] = table.to_numpy()[best["row"], table.columns.get_indexer(best["column"])]
    best["after"] = np.where(best["probability"] >= OFTEN, best["value"], best["before"])
    repaired = table.copy()
    for column, some in best.groupby("column"):
        repaired.loc[some["row"], column] = some["after"].to_numpy()
    return repaired, best[["row", "column", "before", "after", "probability"]], model.weights(fit)


def made_up(rows=400, seed=0):
    """Return a clean table of shops, and the same with errors in one of twenty cells."""
    rng = np.random.default_rng(seed)
    cities = {f"{10000 + 7 * k}": f"city{'abcdefghij'[k % 10]}{k}" for k in range(20)}
    shop = rng.integers(0, 60, rows)
    zips = np.array(list(cities))[shop % 20]
    clean = pd.DataFrame(
        {
            "Shop": [f"shop {k}" for k in shop],
            "Zip": zips,
            "City": [cities[z] for z in zips],
            "Phone": [f"555-{1000 + 13 * k}" for k in shop],
        }
    )
    dirty = clean.copy()
    for column in dirty.columns:
        for row in np.flatnonzero(rng.random(rows) < 0.05):
            text = dirty.loc[row, column]
            place = int(rng.integers(len(text)))
            dirty.loc[row, column] = f"{text[:place]}x{text[place + 1 :]}"
    lines = "t1&t2&EQ(t1.{0},t2.{0})&IQ(t1.{1},t2.{1})"
    wanted = [
        ("Shop", "Zip"),
        ("Shop", "Phone"),
        ("Zip", "City"),
        ("Shop", "City"),
        ("Phone", "Shop"),
    ]
    return dirty, clean, "\n".join(lines.format(*pair) for pair in wanted)


def read_clean(path, columns):
    """Return the correct values, from one row per cell."""
    cells = pd.read_csv(path, dtype=str, keep_default_na=False)
    cells["tid"] = cells["tid"].astype(int)
    clean = cells.pivot(index="tid", columns="attribute", values="correct_val")
    return clean[columns].reset_index(drop=True)


def scores(dirty, repaired, clean):
    """Return precision among the changed cells, and recall among the errors."""
    changed, wrong = repaired != dirty, dirty != clean
    right = (changed & (repaired == clean)).to_numpy().sum()
    return right / max(changed.to_numpy().sum(), 1), right / max(wrong.to_numpy().sum(), 1)


def main(arguments):
    """Repair the tables that are named, or one that is made up."""
    clean = None
    if arguments:
        dirty = pd.read_csv(arguments[0], dtype=str, keep_default_na=False)
        with open(arguments[1]) as stream:
            text = stream.read()
        if len(arguments) > 2:
            clean = read_clean(arguments[2], dirty.columns)
    else:
        dirty, clean, text = made_up()
    repaired, cells, weights = repair(dirty, read_constraints(text))
    changed = cells[cells["before"] != cells["after"]]
    print(changed.head(8).to_string(index=False, max_colwidth=30))
    print(pd.DataFrame(weights).sort_values("weight").tail(3).to_string(index=False))
    if clean is not None:
        precision, recall = scores(dirty, repaired, clean)
        print(f"{len(changed)} cells repaired: precision {precision:.3f} recall {recall:.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
