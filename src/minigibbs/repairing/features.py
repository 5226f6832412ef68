"""Candidates of cells, and the features that score them.

A feature is (candidate, weight, scale). It adds scale times weight to the log-potential of the
candidate; many candidates share a weight. Counts exclude the cell itself, so that no cell is
evidence for its own value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.repairing.constraints import Denial, Dependency
from minigibbs.repairing.counts import Pairs, joined
from minigibbs.repairing.dependencies import Context
from minigibbs.repairing.table import MISSING, Table
from minigibbs.repairing.typos import similarities

_PER_CONTEXT = 3  # candidates per context
_MOST = 12  # maximum number of candidates of a cell, besides its own value
_FREQUENT = 5  # number of frequent values that are candidates of a missing cell
_SMOOTH = 0.5  # pseudocount, in rows, of shares
_ALIKE = 0.5  # similarity above which a value may be a typo of another one
_MOST_COMPARED = 2_000_000  # maximum number of pairs of texts of a column that are compared


class Prior(NamedTuple):
    """A normal prior of weights."""

    mean: float
    deviation: float


# The prior of each kind of weight, and the scale of its features.
PRIORS = {
    "frequency": Prior(1.0, 0.5),  # log share of the value in its column
    "context": Prior(0.4, 0.5),  # log ratio of the share given another column
    "rule": Prior(1.0, 0.5),  # the same for a stated dependency
    "violation": Prior(-3.0, 1.5),  # share of partners with which a constraint is violated
    "keep": Prior(3.0, 1.5),  # the cell has this value
    "typo": Prior(3.0, 1.5),  # similarity to the text in the cell
    "vote": Prior(0.0, 1.0),  # a row of the group has this value; one weight per source of rows
}


class Place(NamedTuple):
    """The name of a weight: its kind, and its subject."""

    kind: str
    entry: str


@dataclass
class Weights:
    """The indices of weights by name, in order of appearance."""

    places: dict[Place, int] = field(default_factory=dict)

    def number(self, kind: str, entry: str) -> int:
        """Return the index of a weight."""
        return self.places.setdefault(Place(kind, entry), len(self.places))


@dataclass(frozen=True, eq=False)
class Candidates:
    """Cells, their candidates, and the features of the candidates."""

    row: NDArray[np.int64]  # [cell]
    column: NDArray[np.int64]  # [cell]
    cell: NDArray[np.int64]  # [candidate] index of its cell, increasing
    value: NDArray[np.int64]  # [candidate] its code
    own: NDArray[np.bool_]  # [candidate] whether it is the value of the cell
    candidate: NDArray[np.int64]  # [feature]
    weight: NDArray[np.int64]  # [feature]
    scale: NDArray[np.float64]  # [feature]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of candidates of each cell."""
        return np.bincount(self.cell, minlength=len(self.row))

    def scores(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the log-potential of each candidate."""
        each = weights[self.weight] * self.scale
        total: NDArray[np.float64] = np.zeros(len(self.cell))
        np.add.at(total, self.candidate, each)
        return total


class Votes(NamedTuple):
    """A dependency whose rows vote, and the column that names the source of a row."""

    dependency: Dependency
    source: int


@dataclass
class Featurizer:
    """Counts of a reference table, which give the candidates of cells and their features."""

    table: Table
    contexts: list[list[Context]]
    rules: list[Dependency | Denial]
    votes: list[Votes]
    weights: Weights = field(default_factory=Weights)

    def __post_init__(self) -> None:
        self._frequent = [
            np.bincount(column[column != MISSING], minlength=self.table.size(k))
            for k, column in enumerate(self.table.codes.T)
        ]
        self._pairs: dict[tuple[tuple[int, ...], int], Pairs] = {}
        self._near: dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}

    def _given(self, column: int) -> list[tuple[str, tuple[int, ...]]]:
        """Return the predictors of a column, as (kind, columns)."""
        found: list[tuple[str, tuple[int, ...]]] = [
            ("context", (one.given,)) for one in self.contexts[column]
        ]
        for rule in self.rules:
            if isinstance(rule, Dependency) and rule.column == column:
                found = [one for one in found if one[1] != rule.given]
                found.append(("rule", rule.given))
        return found

    def _count(self, given: tuple[int, ...], column: int) -> Pairs:
        if (given, column) not in self._pairs:
            codes = self.table.codes
            key = joined(codes[:, given], [])
            self._pairs[given, column] = Pairs.of(key, codes[:, column], self.table.size(column))
        return self._pairs[given, column]

    def _keys(self, given: tuple[int, ...], cells: Table) -> NDArray[np.int64]:
        """Return the keys of other rows, numbered like those of the reference table."""
        if len(given) == 1:
            return cells.codes[:, given[0]]
        count = len(self.table)
        both = np.concatenate([self.table.codes[:, given], cells.codes[:, given]])
        own, keys = joined(self.table.codes[:, given], []), joined(both, [])
        place = np.full(int(keys.max(initial=0)) + 1, MISSING, dtype=np.int64)
        seen = own != MISSING
        place[keys[:count][seen]] = own[seen]
        return np.where(keys[count:] == MISSING, MISSING, place[keys[count:]])

    def candidates(
        self,
        cells: Table,
        context: Table,
        columns: list[int],
        rows: NDArray[np.int64] | None = None,
        channel: bool = True,
    ) -> Candidates:
        """Return the candidates of cells, with their features.

        Parameters
        ----------
        cells
            The cells to be explained.
        context
            The same rows with repaired cells, which are used to predict other cells of the row.
        columns
            The columns of the cells.
        rows
            The rows; by default all.
        channel
            Whether to use the features of the cell's own value. Without them, the value of a cell
            is predicted from the other cells, as needed to learn weights without labels.
        """
        parts: list[Candidates] = []
        cell, candidate = 0, 0
        every = np.arange(len(cells)) if rows is None else rows
        for column in columns:
            part = self._column(cells, context, column, every, channel)
            if part is not None:
                parts.append(_moved(part, cell, candidate))
                cell, candidate = cell + len(part.row), candidate + len(part.cell)
        return _together(parts)

    def _column(
        self, cells: Table, context: Table, column: int, rows: NDArray[np.int64], channel: bool
    ) -> Candidates | None:
        if self.table.size(column) < 2 and (cells.codes[rows, column] != MISSING).all():
            return None
        own = cells.codes[rows, column]
        given = [(kind, one, self._keys(one, context)[rows]) for kind, one in self._given(column)]
        cell, value = self._proposed(column, own, given, channel)
        if not len(cell):
            return None
        mine = own[cell] == value
        add = _Adder()
        name = self.table.names[column]
        frequent, rows_seen = self._frequent[column], max(int(self._frequent[column].sum()), 1)
        size = self.table.size(column)
        inside = value < size
        count = np.where(inside, frequent[np.where(inside, value, 0)], 0)
        without = np.maximum(count - mine, 0)
        novel = max(int((frequent == 1).sum()), 1)  # Good-Turing mass of unseen values
        base = np.where(without > 0, without, novel) / rows_seen
        add(self.weights.number("frequency", name), np.log(base))
        for kind, one, keys in given:
            pairs = self._count(one, column)
            both = np.maximum(pairs.count(keys[cell], value) - mine, 0)
            present = (own[cell] != MISSING) & (pairs.count(keys[cell], own[cell]) > 0)
            other = np.maximum(pairs.singles(keys[cell]) - present, 0)
            both = np.where(without > 0, both, other)  # for unseen values: other single ones
            total = np.maximum(pairs.total(keys[cell]) - present, 0)
            share = (both + _SMOOTH * base) / (total + _SMOOTH)
            entry = f"{', '.join(self.table.names[k] for k in one)} -> {name}"
            add(self.weights.number(kind, entry), np.log(share / base))
        for rule in self.rules:
            if isinstance(rule, Denial) and column in rule.columns():
                share = rule.violations(context, rows[cell], column, value)
                add(self.weights.number("violation", rule.source), share)
        if channel:
            held = mine.astype(np.float64)
            add(self.weights.number("keep", name), held)
            add(
                self.weights.number("typo", "all columns"),
                self._alike(cells, column, own[cell], value, mine),
            )
        else:
            mine &= without > 0  # values that occur in no other row are mostly errors
        for vote in self.votes:
            if vote.dependency.column == column:
                self._vote(vote, context, rows, cell, value, add)
        return Candidates(rows, np.full(len(rows), column), cell, value, mine, *add.arrays())

    def _proposed(
        self,
        column: int,
        own: NDArray[np.int64],
        given: list[tuple[str, tuple[int, ...], NDArray[np.int64]]],
        channel: bool,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return candidates as (cell, value), sorted.

        With a channel, every present cell has its own value as a candidate. Without one, this holds
        only if other rows propose the value. Otherwise, weights learned from sets that always
        contain the cell's value would be biased against the contexts.
        """
        found, values, ranks = [], [], []
        if channel:
            found.append(np.flatnonzero(own != MISSING))
            values.append(own[own != MISSING])
            ranks.append(np.full(len(found[0]), np.inf))
        for _, one, keys in given:
            key, value, count = self._count(one, column).top(_PER_CONTEXT)
            begin = np.searchsorted(key, keys, side="left")
            number = np.where(keys == MISSING, 0, np.searchsorted(key, keys, side="right") - begin)
            cell = np.repeat(np.arange(len(own)), number)
            place = np.repeat(begin, number) + _inside(number)
            share = count[place] / np.maximum(self._count(one, column).total(keys)[cell], 1)
            found.append(cell)
            values.append(value[place])
            ranks.append(share)
        if channel:
            near, alike = self._neighbors(column)
            at = own != MISSING
            key = near[:, 0]
            begin = np.searchsorted(key, own, side="left")
            number = np.where(at, np.searchsorted(key, own, side="right") - begin, 0)
            cell, place = np.repeat(np.arange(len(own)), number), np.repeat(begin, number)
            place = place + _inside(number)
            found.append(cell)
            values.append(near[place, 1])
            ranks.append(alike[place])
        top = np.argsort(-self._frequent[column], kind="stable")[:_FREQUENT]
        absent = np.flatnonzero((own == MISSING) | (not channel))
        found.append(np.repeat(absent, len(top)))
        values.append(np.tile(top, len(absent)))
        ranks.append(np.zeros(len(absent) * len(top)))
        cell, value, rank = map(np.concatenate, (found, values, ranks))
        order = np.lexsort((-rank, value, cell))
        cell, value, rank = cell[order], value[order], rank[order]
        first = np.ones(len(cell), dtype=np.bool_)
        first[1:] = (cell[1:] != cell[:-1]) | (value[1:] != value[:-1])
        cell, value, rank = cell[first], value[first], rank[first]
        order = np.lexsort((value, -rank, cell))
        cell, value = cell[order], value[order]
        place = np.arange(len(cell)) - np.searchsorted(cell, cell, side="left")
        some = place <= _MOST
        order = np.lexsort((value[some], cell[some]))
        return cell[some][order], value[some][order]

    def _neighbors(self, column: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return pairs of a rare and a similar frequent value, by rare value, and similarities."""
        if column not in self._near:
            frequent = self._frequent[column]
            rare, often = np.flatnonzero(frequent <= 2), np.flatnonzero(frequent >= 3)
            if len(rare) * len(often) > _MOST_COMPARED:
                often = often[np.argsort(-frequent[often], kind="stable")]
                often = np.sort(often[: _MOST_COMPARED // max(len(rare), 1)])
            pairs = np.stack(np.meshgrid(rare, often, indexing="ij"), axis=-1).reshape(-1, 2)
            values = self.table.values[column]
            alike = similarities(pairs, values, values)
            near = alike > _ALIKE
            self._near[column] = pairs[near], alike[near]
        return self._near[column]

    def _alike(
        self,
        cells: Table,
        column: int,
        own: NDArray[np.int64],
        value: NDArray[np.int64],
        mine: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """Return a candidate's similarity to the cell's text, in [0, 1]; 0 if they are equal."""
        other = np.flatnonzero(~mine & (own != MISSING))
        pairs, back = np.unique(
            np.stack([own[other], value[other]], axis=1), axis=0, return_inverse=True
        )
        values = cells.values[column]
        found = np.zeros(len(own))
        excess = (similarities(pairs, values, values) - _ALIKE) / (1.0 - _ALIKE)
        found[other] = np.maximum(excess, 0.0)[back.ravel()]
        return found

    def _vote(
        self,
        vote: Votes,
        context: Table,
        rows: NDArray[np.int64],
        cell: NDArray[np.int64],
        value: NDArray[np.int64],
        add: _Adder,
    ) -> None:
        """Add the votes of the rows in the group, by source."""
        given, column = vote.dependency.given, vote.dependency.column
        reference = joined(self.table.codes[:, given], [])
        cast, source = self.table.codes[:, column], self.table.codes[:, vote.source]
        seen = (reference != MISSING) & (cast != MISSING) & (source != MISSING)
        size = self.table.size(column)
        keys = reference[seen] * size + cast[seen]
        order = np.argsort(keys, kind="stable")
        keys, source = keys[order], source[seen][order]
        mine = self._keys(given, context)[rows][cell]
        wanted = np.where(mine == MISSING, -1, mine * size + value)
        begin = np.searchsorted(keys, wanted, side="left")
        number = np.searchsorted(keys, wanted, side="right") - begin
        candidate = np.repeat(np.arange(len(cell)), number)
        voter = source[np.repeat(begin, number) + _inside(number)]
        names, title = self.table.values[vote.source], self.table.names[column]
        numbers = np.array([self.weights.number("vote", f"{title} by {one}") for one in names])
        add.some(candidate, numbers[voter], np.ones(len(voter)))


class _Adder:
    """A list of features, collected in parts."""

    def __init__(self) -> None:
        self.parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]] = []

    def __call__(self, weight: int, scale: NDArray[np.float64]) -> None:
        candidate = np.flatnonzero(scale)
        self.some(candidate, np.full(len(candidate), weight), scale[candidate])

    def some(
        self, candidate: NDArray[np.int64], weight: NDArray[np.int64], scale: NDArray[np.float64]
    ) -> None:
        self.parts.append((candidate, weight.astype(np.int64), scale.astype(np.float64)))

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        a, b, c = zip(*self.parts, strict=True)
        return np.concatenate(a), np.concatenate(b), np.concatenate(c)


def _inside(number: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 0, 1, ... within runs of these lengths."""
    return np.arange(int(number.sum())) - np.repeat(np.cumsum(number) - number, number)


def _moved(part: Candidates, cell: int, candidate: int) -> Candidates:
    return Candidates(
        part.row,
        part.column,
        part.cell + cell,
        part.value,
        part.own,
        part.candidate + candidate,
        part.weight,
        part.scale,
    )


def _together(parts: list[Candidates]) -> Candidates:
    empty = np.empty(0, dtype=np.int64)
    if not parts:
        nothing = np.empty(0, dtype=np.bool_)
        return Candidates(empty, empty, empty, empty, nothing, empty, empty, np.empty(0))
    names = ("row", "column", "cell", "value", "own", "candidate", "weight", "scale")
    return Candidates(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
