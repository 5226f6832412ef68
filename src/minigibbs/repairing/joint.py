"""Probabilities of candidates; cells that a dependency connects are answered together.

Where a row contradicts a dependency, the cell that names the group may be wrong, or the cell that
depends on it. `mg.infer` therefore answers the uncertain cells of a row as one model. Its variables
are these cells, and its tables score pairs of candidates by the dependencies between them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors import Factors, Table, Unary
from minigibbs.graph.graph import FactorGraph
from minigibbs.inference.infer import infer
from minigibbs.repairing.features import Candidates, Edge, Featurizer
from minigibbs.repairing.table import MISSING
from minigibbs.repairing.table import Table as Cells

_CLEAR = 0.999  # probability of its own value from which a cell counts as certain
_STATES = 6  # maximum number of candidates of a cell that is answered with other cells
_LEFT = 1e-6  # least share of the values that are no candidates
_CELLS = 6  # maximum number of cells of a row that are answered together


class Link(NamedTuple):
    """A dependency between two cells of each row."""

    edge: Edge
    given: NDArray[np.int64]  # [row] index of the cell that names the group
    column: NDArray[np.int64]  # [row] index of the cell that depends on it


class States(NamedTuple):
    """Candidates, and for cells that name groups a further state: some other value."""

    cell: NDArray[np.int64]  # [state] increasing
    value: NDArray[np.int64]  # [state] its code; MISSING for some other value
    score: NDArray[np.float64]  # [state] log-potential, given the other cells of the row
    candidate: NDArray[np.int64]  # [state] index of the candidate, -1 for some other value


def probabilities(
    featurizer: Featurizer,
    found: Candidates,
    weights: NDArray[np.float64],
    cells: Cells,
    context: Cells,
) -> NDArray[np.float64]:
    """Return the probability of each candidate.

    The sum over the candidates of a cell is below 1 if some other value is probable.

    Parameters
    ----------
    featurizer
        Counts of the table.
    found
        The cells with their candidates and features.
    weights
        The weights of the features.
    cells
        The given rows.
    context
        The rows with repaired cells, from which the features were computed.
    """
    if not len(found.cell):
        return np.empty(0)
    links = _links(featurizer, found, len(cells))
    states, named = _states(featurizer, found, weights, cells, context, links)
    shares = _normalized(states, len(found.row))
    own = np.zeros(len(found.row))
    held = states.candidate >= 0
    mine = held & found.own[states.candidate]
    own[states.cell[mine]] = shares[mine]
    unsure = own < _CLEAR
    if unsure.any():
        joint = _chosen(found, unsure, own, links)
        _answer(featurizer, found, weights, cells, context, links, joint, states, named, shares)
    result = np.zeros(len(found.cell))
    result[states.candidate[held]] = shares[held]
    return result


def _links(featurizer: Featurizer, found: Candidates, rows: int) -> list[Link]:
    """Return the dependencies of single columns between cells with candidates."""
    place: dict[int, NDArray[np.int64]] = {}
    for column in np.unique(found.column).tolist():
        mine = np.flatnonzero(found.column == column)
        place[column] = np.full(rows, -1)
        place[column][found.row[mine]] = mine
    return [
        Link(edge, place[edge.given[0]], place[column])
        for column in place
        for edge in featurizer.edges(column)
        if edge.model is not None and len(edge.given) == 1 and edge.given[0] in place
    ]


def _states(
    featurizer: Featurizer,
    found: Candidates,
    weights: NDArray[np.float64],
    cells: Cells,
    context: Cells,
    links: list[Link],
) -> tuple[States, dict[int, NDArray[np.float64]]]:
    """Return the states of all cells, and by link what the dependent cell says for each state."""
    naming = {link.edge.given[0] for link in links}
    roots = naming - set(featurizer.keys)
    own = cells.codes[found.row, found.column]
    free = np.flatnonzero(np.isin(found.column, list(roots)) & (own != MISSING))
    empty = np.flatnonzero(own == MISSING)
    added = len(free) + len(empty)
    cell = np.concatenate([found.cell, free, empty])
    value = np.concatenate([found.value, np.full(added, MISSING)])
    unlisted = _unlisted(featurizer, found, weights)[empty]
    score = np.concatenate([found.scores(weights), np.zeros(len(free)), unlisted])
    for column in roots:
        mine = np.flatnonzero(found.column[free] == column)
        codes = own[free[mine]]
        base = featurizer.base(column, codes, np.ones(len(mine), dtype=np.bool_))[1]
        number = featurizer.weights.number("frequency", featurizer.table.names[column])
        score[len(found.cell) + mine] = weights[number] * np.log(base)
    candidate = np.concatenate([np.arange(len(found.cell)), np.full(added, -1)])
    order = np.argsort(cell, kind="stable")
    cell, value, score, candidate = cell[order], value[order], score[order], candidate[order]
    said: dict[int, NDArray[np.float64]] = {}
    for number, link in enumerate(links):
        some = np.flatnonzero(found.column[cell] == link.edge.given[0])
        row = found.row[cell[some]]
        said[number] = np.zeros(len(cell))
        said[number][some] = _ratio(
            featurizer,
            link.edge,
            weights,
            cells,
            row,
            value[some],
            context.codes[row, link.edge.column],
        )
        score = score + said[number]
    return States(cell, value, score, candidate), said


def _unlisted(
    featurizer: Featurizer, found: Candidates, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the log-potential of the values of each cell that are not among its candidates.

    They have what the candidates leave of the column and of the groups of each predictor.
    """
    table, cells = featurizer.table, len(found.row)
    scores, left, base = np.zeros(cells), np.ones(cells), np.zeros(len(found.cell))
    for column in np.unique(found.column).tolist():
        number = featurizer.weights.number("frequency", table.names[column])
        mine, some = found.column == column, found.weight == number
        cell = found.cell[found.candidate[some]]
        base[found.candidate[some]] = np.exp(found.scale[some])
        left -= np.bincount(cell, np.exp(found.scale[some]), cells)
        value = np.arange(table.size(column))
        every = featurizer.base(column, value, np.zeros(len(value), dtype=np.bool_))[1]
        whole = float((every ** weights[number]).sum())
        rest = whole - np.bincount(cell, np.exp(weights[number] * found.scale[some]), cells)
        scores[mine] += np.log(np.maximum(rest[mine], _LEFT * whole))
    left = np.maximum(left, _LEFT)
    for column in np.unique(found.column).tolist():
        mine = found.column == column
        for edge in featurizer.edges(column):
            number = featurizer.number(edge)
            some = found.weight == number
            shares = base[found.candidate[some]] * np.exp(found.scale[some] / edge.share)
            rest = 1.0 - np.bincount(found.cell[found.candidate[some]], shares, cells)
            ratio = np.log(np.maximum(rest, _LEFT * left) / left)
            scores[mine] += weights[number] * edge.share * ratio[mine]
    return scores


def _ratio(
    featurizer: Featurizer,
    edge: Edge,
    weights: NDArray[np.float64],
    cells: Cells,
    row: NDArray[np.int64],
    key: NDArray[np.int64],
    value: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return the log-potential of a pair of values of two cells; 0 if one of them is missing.

    A value that no other row has belongs to no group, so that a key that is no candidate can
    explain it only by a group that no row has.
    """
    given = edge.given[0]
    shown, own = cells.codes[row, given], cells.codes[row, edge.column]
    ratio = featurizer.ratio(edge, key, (key == shown) & (key != MISSING), value, own)
    weight = weights[featurizer.number(edge)] * edge.share
    lone = (featurizer.base(edge.column, value, own == value)[0] == 0) & (shown != MISSING)
    known = featurizer.base(given, shown, np.ones(len(shown), dtype=np.bool_))[1]
    number = featurizer.weights.number("frequency", featurizer.table.names[given])
    unseen = weights[number] * np.minimum(np.log(featurizer.novel(given) / known), 0.0)
    other = np.where(lone, unseen, 0.0)
    return np.where(value == MISSING, 0.0, np.where(key == MISSING, other, weight * ratio))


def _normalized(states: States, cells: int) -> NDArray[np.float64]:
    """Return the probabilities of the states of independent cells."""
    first = np.searchsorted(states.cell, np.arange(cells))
    scores = states.score - np.maximum.reduceat(states.score, first)[states.cell]
    shares = np.exp(scores)
    return np.asarray(shares / np.add.reduceat(shares, first)[states.cell])


def _chosen(
    found: Candidates, unsure: NDArray[np.bool_], own: NDArray[np.float64], links: list[Link]
) -> NDArray[np.bool_]:
    """Return the cells to answer together: the least certain ones of each row."""
    order = np.lexsort((own, ~unsure, found.row))
    row = found.row[order]
    rank = np.arange(len(row)) - np.searchsorted(row, row, side="left")
    joint = np.zeros(len(found.row), dtype=np.bool_)
    joint[order[rank < _CELLS]] = True
    return joint & unsure


def _answer(
    featurizer: Featurizer,
    found: Candidates,
    weights: NDArray[np.float64],
    cells: Cells,
    context: Cells,
    links: list[Link],
    joint: NDArray[np.bool_],
    states: States,
    said: dict[int, NDArray[np.float64]],
    shares: NDArray[np.float64],
) -> None:
    """Replace the probabilities of the states of the joint cells by those of one model."""
    alone = states.score.copy()
    back = np.full(len(found.cell), -1)
    held = states.candidate >= 0
    back[states.candidate[held]] = np.flatnonzero(held)
    both, linked = [], np.zeros(len(joint), dtype=np.bool_)
    for position, link in enumerate(links):
        rows = np.flatnonzero((link.given >= 0) & (link.column >= 0))
        rows = rows[joint[link.given[rows]] & joint[link.column[rows]]]
        both.append(rows)
        paired = np.zeros(len(joint), dtype=np.bool_)
        paired[link.given[rows]] = True
        linked |= paired
        alone -= np.where(paired[states.cell], said[position], 0.0)
        paired[:] = False
        paired[link.column[rows]] = True
        linked |= paired
        feature = found.weight == featurizer.number(link.edge)
        feature &= paired[found.cell[found.candidate]]
        at = back[found.candidate[feature]]
        np.subtract.at(alone, at, weights[found.weight[feature]] * found.scale[feature])
    kept = _kept(states, found, joint, linked, alone)
    number = np.cumsum(joint) - 1
    sizes = np.bincount(number[states.cell[kept]])
    inside = np.zeros(len(states.cell), dtype=np.int64)
    inside[kept] = np.arange(len(kept)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first = np.zeros(len(joint), dtype=np.int64)
    first[joint] = np.cumsum(sizes) - sizes
    factors: list[Factors] = []
    for size in np.unique(sizes).tolist():
        mine = np.flatnonzero(sizes == size)
        begin = (np.cumsum(sizes) - sizes)[mine]
        factors.append(Unary(mine, alone[kept[begin[:, None] + np.arange(size)]]))
    for link, rows in zip(links, both, strict=True):
        factors += _pairs(
            featurizer, weights, cells, link, rows, states, kept, first, number, sizes
        )
    answer = infer(FactorGraph(sizes, factors), progress=False)
    shares[joint[states.cell]] = 0.0
    shares[kept] = answer.shares.pooled


def _kept(
    states: States,
    found: Candidates,
    joint: NDArray[np.bool_],
    linked: NDArray[np.bool_],
    alone: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Return the states of the joint cells that matter: of linked cells the best by either score.

    The value in the cell, and some other value, are always among them.
    """
    some = np.flatnonzero(joint[states.cell])
    cell, candidate = states.cell[some], states.candidate[some]
    kept = ~linked[cell] | (candidate < 0) | found.own[candidate]
    for score in (states.score[some], alone[some]):
        order = np.lexsort((-score, cell))
        rank = np.arange(len(some)) - np.searchsorted(cell[order], cell[order], side="left")
        kept[order[rank < _STATES // 2]] = True
    return some[kept]


def _pairs(
    featurizer: Featurizer,
    weights: NDArray[np.float64],
    cells: Cells,
    link: Link,
    rows: NDArray[np.int64],
    states: States,
    kept: NDArray[np.int64],
    first: NDArray[np.int64],
    number: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> list[Factors]:
    """Return the tables of a link, one group per shape."""
    found: list[Factors] = []
    a, b = link.given[rows], link.column[rows]
    shapes = np.stack([sizes[number[a]], sizes[number[b]]], axis=1)
    for m, n in np.unique(shapes, axis=0).tolist():
        mine = np.flatnonzero((shapes == (m, n)).all(axis=1))
        key = states.value[kept[first[a[mine]][:, None] + np.arange(m)]]
        value = states.value[kept[first[b[mine]][:, None] + np.arange(n)]]
        shape = (len(mine), m, n)
        each = [
            np.broadcast_to(one, shape).ravel()
            for one in (rows[mine][:, None, None], key[:, :, None], value[:, None, :])
        ]
        tables = _ratio(featurizer, link.edge, weights, cells, *each).reshape(shape)
        scope = np.stack([number[a[mine]], number[b[mine]]], axis=1)
        found.append(Table(scope, tables))
    return found
