"""Imputation of missing cells: log loss and calibration of scikit-learn and ours; a large table.

A fifth of the cells of samples of known networks, and of a census table, is hidden at random.
IterativeImputer uses one classifier per column. The probabilities of the cells are those of its
last round.
"""

from __future__ import annotations

import time
import warnings

import numpy as np

import minigibbs as mg
from benchmarks.data import DATA, census
from benchmarks.report import Report
from minigibbs.sklearn import CategoricalImputer

ROWS = 5000
HIDDEN = 0.2
ROUNDS = 3  # of the iterative imputer
LARGE = (1_000_000, 10)


def hidden_cells(rows: np.ndarray, seed: int) -> np.ndarray:
    """Return the table with missing cells as NaN."""
    table = rows.astype(float)
    table[np.random.default_rng(seed).random(rows.shape) < HIDDEN] = np.nan
    return table


def frequencies(table: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Return by column the distribution of its values, for every row."""
    found = []
    for column, size in zip(table.T, sizes, strict=True):
        counts = np.bincount(column[~np.isnan(column)].astype(int), minlength=size) + 1.0 / size
        found.append(np.tile(counts / counts.sum(), (len(table), 1)))
    return found


def iterative(table: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Run IterativeImputer with logistic regression on indicators; return last probabilities."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    classifier = make_pipeline(
        OneHotEncoder(handle_unknown="ignore"), LogisticRegression(max_iter=200)
    )
    imputer = IterativeImputer(
        classifier, max_iter=ROUNDS, initial_strategy="most_frequent", random_state=0
    )
    filled, shares = imputer.fit_transform(table), frequencies(table, sizes)
    for one in imputer.imputation_sequence_:  # later rounds replace earlier ones
        share = np.full((len(table), sizes[one.feat_idx]), 1e-6)
        classes = one.estimator.classes_.astype(int)
        share[:, classes] = one.estimator.predict_proba(filled[:, one.neighbor_feat_idx])
        shares[one.feat_idx] = share / share.sum(axis=1, keepdims=True)
    return shares


def ours(table: np.ndarray, sizes: np.ndarray, method: str) -> list[np.ndarray]:
    """Run `CategoricalImputer` on text, because codes are not numbers to be binned."""
    labels = np.full(table.shape, None, dtype=object)
    seen = ~np.isnan(table)
    labels[seen] = [str(int(code)) for code in table[seen]]
    imputer = CategoricalImputer(method, random_state=0).fit(labels)
    shares = imputer.predict_proba(labels)
    found = []
    for name, values, size in zip(imputer.slices_, imputer.categories_, sizes, strict=True):
        whole = np.full((len(table), size), 1e-9)
        whole[:, values.astype(int)] = shares[:, imputer.slices_[name]]
        found.append(whole / whole.sum(axis=1, keepdims=True))
    return found


def exact(graph: mg.FactorGraph, table: np.ndarray) -> list[np.ndarray]:
    """Return the posteriors of the network from which the rows were drawn."""
    answers = mg.infer_many(mg.FactorGraph(graph.sizes, graph.factors), table)
    return np.split(answers.flat, np.cumsum(graph.sizes)[:-1], axis=1)


def measures(shares: list[np.ndarray], rows: np.ndarray, table: np.ndarray) -> tuple[float, float]:
    """Return log loss of the hidden cells, and calibration error of their most probable value."""
    loss, stated, right = [], [], []
    for column, share in enumerate(shares):
        at = np.flatnonzero(np.isnan(table[:, column]))
        truth = rows[at, column].astype(int)
        loss.append(-np.log(np.maximum(share[at, truth], 1e-12)))
        stated.append(share[at].max(axis=1))
        right.append(share[at].argmax(axis=1) == truth)
    confidence, hits = np.concatenate(stated), np.concatenate(right)
    bins = np.minimum((confidence * 15).astype(int), 14)
    gaps = [abs(confidence[bins == b].mean() - hits[bins == b].mean()) for b in np.unique(bins)]
    weights = [np.mean(bins == b) for b in np.unique(bins)]
    return float(np.concatenate(loss).mean()), float(np.dot(gaps, weights))


def compare(report: Report, name: str, rows: np.ndarray, graph: mg.FactorGraph | None) -> None:
    """Compare all methods on one table; `graph` is the network of its distribution, if known."""
    table = hidden_cells(rows, 2)
    sizes = rows.max(axis=0) + 1 if graph is None else np.asarray(graph.sizes)
    measures(ours(table[:500], sizes, "tree"), rows[:500], table[:500])  # compiles
    ways = {
        "column frequencies": lambda: frequencies(table, sizes),
        "IterativeImputer, logistic regression": lambda: iterative(table, sizes),
        "CategoricalImputer, tree": lambda: ours(table, sizes, "tree"),
        "CategoricalImputer, network": lambda: ours(table, sizes, "network"),
    }
    if graph is not None:
        ways = {"true network": lambda: exact(graph, table), **ways}
    results = {}
    for what, work in ways.items():
        begun = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loss, gap = measures(work(), rows, table)
        seconds = time.process_time() - begun
        results[what] = loss
        bar, met = "", None
        if what == "CategoricalImputer, network":
            peers = ("column frequencies", "IterativeImputer, logistic regression")
            peer = min(results[each] for each in peers)
            bar = f"log loss at most {peer:.4f}, calibration error at most 0.02"
            met = loss <= peer and gap <= 0.02
        text = f"log loss {loss:.4f}, calibration error {gap:.4f}, {seconds:.1f} s"
        report.add(f"{name}, {what}", text, bar, met)


def large(report: Report) -> None:
    rows, columns = LARGE
    size = 4
    i = np.arange(columns - 1)
    graph = mg.FactorGraph([size] * columns, [mg.Potts(i, i + 1, 1.5)])
    table = hidden_cells(mg.exact_draws(graph, rows, seed=1), 2)
    begun = time.perf_counter()
    imputer = CategoricalImputer("network", random_state=0).fit(table)
    learned = time.perf_counter() - begun
    filled = imputer.transform(table)
    seconds = time.perf_counter() - begun
    assert not np.isnan(filled).any()
    text = f"{seconds:.0f} s, {learned:.0f} s of them to learn"
    report.add(f"{rows:,} rows, {columns} columns, a fifth missing", text, "600 s", seconds <= 600)


def main() -> None:
    report = Report("imputation", "Missing cells filled in")
    for name in ("alarm", "insurance"):
        stored = DATA / "bnlearn_zeros" / f"{name}.bif.gz"
        if stored.exists():
            graph = mg.read(stored)
            compare(report, name, mg.exact_draws(graph, ROWS, seed=1), graph)
    compare(report, "census", census(ROWS, seed=1), None)
    large(report)
    report.notes.append(
        f"{ROWS:,} rows per table, {HIDDEN:.0%} of the cells hidden. Calibration error: 15 bins of "
        "the stated probability of the most probable value. Seconds are processor time. Census: 14 "
        "columns of the Census-Income table of UCI (Current Population Surveys of 1994 and 1995), "
        "rows drawn at random; age and weeks worked are cut into five quantiles."
    )
    report.write()
