"""Learning of feature weights, and the probabilities of candidates."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors import Logical
from minigibbs.graph.graph import FactorGraph
from minigibbs.learning.api import learn
from minigibbs.repairing.constraints import Denial, Dependency
from minigibbs.repairing.counts import joined
from minigibbs.repairing.dependencies import Context, contexts_of, nearly_best, strong
from minigibbs.repairing.features import PRIORS, Candidates, Featurizer, Votes
from minigibbs.repairing.joint import probabilities
from minigibbs.repairing.table import MISSING, Table
from minigibbs.repairing.truths import keys_of

_TRAINED = 200  # maximum number of cells per column for learning weights without labels
_MOST_TRAINED = 3000  # maximum number of such cells of all columns
_MOST_LABELED = 4000
_PASSES = 2  # passes of `answer`; the second uses repaired cells as context
_SOUND = 0.1  # largest error rate, by labels, of a column that names groups or sources
_SOURCES = 200  # maximum number of values of a column that may name sources
_STEPS = 60
CERTAIN = 0.5  # a cell is changed if another value is at least so probable


@dataclass
class Model:
    """The learned model of a table.

    Attributes
    ----------
    featurizer
        Counts of the table, contexts and rules.
    weights
        The weights by index; `featurizer.weights` has their names.
    found
        The approximate functional dependencies of the table.
    columns
        The columns whose cells may be wrong.
    """

    featurizer: Featurizer
    weights: NDArray[np.float64]
    found: list[Context]
    columns: list[int]

    def answer(self, cells: Table) -> tuple[Candidates, NDArray[np.float64]]:
        """Return the candidates of all cells, and their probabilities."""
        context = cells
        for number in range(_PASSES):
            found = self.featurizer.candidates(cells, context, self.columns)
            weights = _longer(self.weights, len(self.featurizer.weights.places))
            probability = probabilities(self.featurizer, found, weights, cells, context)
            if number + 1 < _PASSES:
                context = replace(cells, codes=chosen(cells.codes, found, probability))
        return found, probability


def fit(
    table: Table,
    rules: list[Dependency | Denial],
    labels: Mapping[tuple[int, int], int],
    automatic: bool,
    columns: list[int],
    seed: int,
) -> Model:
    """Learn the weights for a table.

    Parameters
    ----------
    table
        The table with errors.
    rules
        The stated rules.
    labels
        True codes by (row, column).
    automatic
        Whether to use other columns that predict a column.
    columns
        The columns whose cells may be wrong.
    seed
        Seed that selects the cells from which weights are learned.
    """
    contexts = contexts_of(table) if automatic else [[] for _ in table.names]
    known = _known(table, labels)
    stated = [rule for rule in rules if isinstance(rule, Dependency)]
    sound = _sound(table, labels)
    depending = stated + [
        Dependency((one.given,), one.column)
        for one in nearly_best(table, contexts, sound)
        if all((rule.given, rule.column) != ((one.given,), one.column) for rule in stated)
    ]
    expanded = _expanded(table, depending, labels)
    votes = _votes(table, depending, expanded, sound)
    keys = keys_of(table, contexts, stated)  # corrected rows must not tip the choice of a model
    featurizer = Featurizer(known, contexts, rules, votes, keys)
    rng = np.random.default_rng(seed)
    parts: list[tuple[Candidates, NDArray[np.int64]]] = []
    supervised = {one.dependency.column for one in votes if expanded} | set(keys)
    supervised |= {
        c for c in range(len(table.names)) if not featurizer.edges(c) and featurizer.named(c)
    }
    plain = [column for column in columns if column not in supervised]
    rows = rng.permutation(len(table))[: min(_TRAINED, _MOST_TRAINED // max(len(columns), 1))]
    free = featurizer.candidates(known, known, plain, np.sort(rows), channel=False)
    parts.append((free, np.where(free.own, free.cell, -1)))
    if expanded:
        some = featurizer.candidates(table, known, columns, np.unique([r for r, _ in expanded]))
        truth = np.array(
            [expanded.get((int(r), int(c)), -2) for r, c in zip(some.row, some.column, strict=True)]
        )
        parts.append((some, np.where(some.value == truth[some.cell], some.cell, -1)))
    featurizer.candidates(table, known, columns, np.arange(min(len(table), 1)))  # numbers weights
    weights = _learned(featurizer, parts)
    return Model(featurizer, weights, strong(contexts), columns)


def _known(table: Table, labels: Mapping[tuple[int, int], int]) -> Table:
    """Return the table with the labels in place of its entries."""
    codes = table.codes.copy()
    for (row, column), code in labels.items():
        codes[row, column] = code
    return replace(table, codes=codes)


def _sound(table: Table, labels: Mapping[tuple[int, int], int]) -> set[int]:
    """Return columns with few errors by the labels: they may name groups and sources."""
    wrong, whole = np.zeros(len(table.names)), np.zeros(len(table.names))
    for (row, column), code in labels.items():
        whole[column] += 1
        wrong[column] += table.codes[row, column] != code
    return set(np.flatnonzero(wrong <= _SOUND * whole).tolist())


def _expanded(
    table: Table, depending: list[Dependency], labels: Mapping[tuple[int, int], int]
) -> dict[tuple[int, int], int]:
    """Return labels, and the values that uncontradicted dependencies derive for other rows."""
    if not labels:
        return {}
    known = _known(table, labels)
    found: dict[tuple[int, int], int] = {}
    rows = sorted({row for row, _ in labels})
    for rule in depending:
        key = joined(known.codes[:, rule.given], [])
        truth: dict[int, int] = {}
        contradicted = False
        for row in rows:
            code = labels.get((row, rule.column))
            if code is not None and key[row] != MISSING:
                contradicted |= truth.setdefault(int(key[row]), code) != code
        if contradicted:
            continue
        for row in np.flatnonzero(np.isin(key, list(truth))).tolist():
            found.setdefault((row, rule.column), truth[int(key[row])])
    found.update(labels)
    return found


def _votes(
    table: Table,
    depending: list[Dependency],
    expanded: Mapping[tuple[int, int], int],
    sound: set[int],
) -> list[Votes]:
    """Return dependencies with sources: columns that predict which rows are right."""
    found: dict[int, Votes] = {}
    best: dict[int, float] = {}
    for rule in depending:
        cast = table.codes[:, rule.column]
        truth = np.array([expanded.get((row, rule.column), MISSING) for row in range(len(table))])
        labeled = (truth != MISSING) & (cast != MISSING)
        if not labeled.any():
            continue
        right = cast[labeled] == truth[labeled]
        for source in sorted(sound):
            size = table.size(source)
            if source == rule.column or source in rule.given or not 1 < size <= _SOURCES:
                continue
            gain = _gain(table.codes[labeled, source], right, size)
            if gain > best.get(rule.column, 0.0):
                best[rule.column], found[rule.column] = gain, Votes(rule, source)
    return list(found.values())


def _gain(source: NDArray[np.int64], right: NDArray[np.bool_], size: int) -> float:
    """Return the BIC gain from predicting correctness by the source."""
    seen = source != MISSING
    source, right = source[seen], right[seen]
    if not len(right):
        return 0.0
    whole = np.bincount(source, minlength=size)
    hits = np.bincount(source[right], minlength=size)
    free = int((whole > 0).sum()) - 1
    alone = _log_likelihood(np.array([right.sum()]), np.array([len(right)]))
    return _log_likelihood(hits, whole) - alone - 0.5 * free * math.log(len(right))


def _log_likelihood(hits: NDArray[Any], whole: NDArray[Any]) -> float:
    share = hits / np.maximum(whole, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = hits * np.log(share), (whole - hits) * np.log1p(-share)
    return float(sum(np.nan_to_num(one, nan=0.0, posinf=0.0, neginf=0.0).sum() for one in terms))


def _learned(
    featurizer: Featurizer,
    parts: list[tuple[Candidates, NDArray[np.int64]]],
) -> NDArray[np.float64]:
    """Return the weights of maximum posterior probability, given the values of some cells."""
    places = featurizer.weights.places
    start = np.array([PRIORS[place.kind].mean for place in places])
    kinds = np.array([place.kind for place in places])
    sizes: list[NDArray[np.int64]] = []
    values, scope, weight, scale, evidence, count = [], [], [], [], [], 0
    for some, right in parts:
        usable = np.flatnonzero((right >= 0) & (some.sizes[some.cell] > 1))
        if not len(usable):
            continue
        cells = some.cell[usable]
        number = np.full(len(some.row), -1)
        number[cells] = np.arange(len(cells)) + count
        count += len(cells)
        first = np.searchsorted(some.cell, np.arange(len(some.row)))
        inside = np.arange(len(some.cell)) - first[some.cell]
        kept = number[some.cell[some.candidate]] >= 0
        candidate = some.candidate[kept]
        sizes.append(some.sizes[cells])
        evidence.append(inside[usable])
        scope.append(number[some.cell[candidate]])
        values.append(inside[candidate])
        weight.append(some.weight[kept])
        scale.append(some.scale[kept])
    if not sizes:
        return start
    flat = [np.concatenate(one) for one in (scope, values, weight, scale)]
    groups, found = [], {}
    for kind in dict.fromkeys(kinds.tolist()):
        numbers = np.flatnonzero(kinds == kind)
        mine = np.isin(flat[2], numbers)
        if mine.any():
            used, tied = np.unique(flat[2][mine], return_inverse=True)
            found[kind] = used
            groups.append(
                Logical(
                    "and",
                    flat[0][mine][:, None],
                    start[used],
                    values=flat[1][mine][:, None],
                    name=kind,
                    tied=tied,
                    scale=flat[3][mine],
                )
            )
    graph = FactorGraph(np.concatenate(sizes), groups, evidence=np.concatenate(evidence))
    prior = {kind: tuple(PRIORS[kind]) for kind in found}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learned = learn(
            graph, method="pseudo", prior=prior, steps=_STEPS, errors=False, progress=False
        )
    for kind, used in found.items():
        start[used] = learned.parameters[kind]
    return start


def chosen(
    codes: NDArray[np.int64],
    found: Candidates,
    probability: NDArray[np.float64],
    certainty: float = CERTAIN,
) -> NDArray[np.int64]:
    """Return a copy of the codes with the most probable values; missing cells are always filled."""
    result = codes.copy()
    top = best(found, probability)
    changed = (codes[found.row, found.column] == MISSING) | (probability[top] >= certainty)
    result[found.row[changed], found.column[changed]] = found.value[top[changed]]
    return result


def best(found: Candidates, probability: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the index of the most probable candidate of each cell."""
    order = np.lexsort((probability, found.cell))
    return order[np.cumsum(found.sizes) - 1]


def _longer(weights: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    return np.concatenate([weights, np.zeros(length - len(weights))])
