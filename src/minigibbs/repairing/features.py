"""Candidates of cells, and the features that score them.

A feature is (candidate, weight, scale). It adds scale times weight to the log-potential of the
candidate; many candidates share a weight. Counts exclude the cell itself, so that no cell is
evidence for its own value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.repairing.constraints import Denial, Dependency
from minigibbs.repairing.counts import Pairs, joined
from minigibbs.repairing.dependencies import Context, strong
from minigibbs.repairing.table import MISSING, Table
from minigibbs.repairing.truths import Key, Truth
from minigibbs.repairing.typos import similarities

_PER_CONTEXT = 3  # candidates per context
_MOST = 12  # maximum number of candidates of a cell, besides its own value
_FREQUENT = 5  # number of frequent values that are candidates of a missing cell
_SMOOTH = 0.5  # pseudocount, in rows, of shares
_ALIKE = 0.5  # similarity above which a value may be a typo of another one
_RARE = 2  # maximum number of rows of a value that may be a typo
_MOST_COMPARED = 2_000_000  # maximum number of pairs of texts of a column that are compared


class Prior(NamedTuple):
    """A normal prior of weights."""

    mean: float
    deviation: float


# The prior of each kind of weight, and the scale of its features.
PRIORS = {
    "frequency": Prior(1.0, 0.5),  # log share of the value in its column
    "context": Prior(0.4, 0.5),  # log ratio of the share given another column
    "key": Prior(1.0, 0.5),  # log ratio of the probability to be true in a group
    "rule": Prior(1.0, 0.5),  # the same for a stated dependency
    "witness": Prior(1.0, 0.5),  # its change by the value in the cell
    "violation": Prior(-3.0, 1.5),  # share of partners with which a constraint is violated
    "keep": Prior(3.0, 1.5),  # the cell has this value
    "swap": Prior(1.0, 0.5),  # log share of the cell's value, as an error that is no typo
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


class Edge(NamedTuple):
    """A predictor of a column."""

    kind: str  # "context", "key" or "rule"
    given: tuple[int, ...]
    model: Truth | None  # of the groups; None for a context
    column: int
    share: float  # of its kind's predictors of the column


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
    keys: Mapping[int, Sequence[Key]] = field(default_factory=dict)
    weights: Weights = field(default_factory=Weights)

    def __post_init__(self) -> None:
        self._frequent = [
            np.bincount(column[column != MISSING], minlength=self.table.size(k))
            for k, column in enumerate(self.table.codes.T)
        ]
        self._pairs: dict[tuple[tuple[int, ...], int], Pairs] = {}
        self._tops: dict[tuple[tuple[int, ...], int], tuple[NDArray[np.int64], ...]] = {}
        self._near: dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}

    def edges(self, column: int) -> list[Edge]:
        """Return the predictors of a column.

        A column that names groups has strong contexts only, and none that depends on its groups:
        such a context speaks through the dependency.
        """
        if column in self.keys:
            share = 1.0 / len(self.keys[column])
            return [Edge(*one, column, share) for one in self.keys[column]]
        contexts = self.contexts[column]
        named = self.named(column)
        if named:
            contexts = [one for one in strong([contexts]) if one.given not in named]
        return [Edge("context", (one.given,), None, column, 1.0) for one in contexts]

    def _frequent_of(self, column: int, value: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how often values occur in a column."""
        inside = (value >= 0) & (value < self.table.size(column))
        return np.where(inside, self._frequent[column][np.where(inside, value, 0)], 0)

    def named(self, column: int) -> list[int]:
        """Return the columns that depend on the groups of a column."""
        return [
            other for other, keys in self.keys.items() if any(k.given == (column,) for k in keys)
        ]

    def _proposing(self, column: int) -> list[tuple[int, ...]]:
        """Return the columns whose values propose candidates."""
        found = [one.given for one in self.keys.get(column, ())]
        found += [(one.given,) for one in self.contexts[column]]
        return list(dict.fromkeys(found))

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
        some = self._proposing(column) if channel else [one.given for one in self.edges(column)]
        given = [(one, self._keys(one, context)[rows]) for one in some]
        cell, value = self._proposed(column, own, given, channel)
        if not len(cell):
            return None
        mine = own[cell] == value
        add = _Adder()
        name = self.table.names[column]
        without, base = self.base(column, value, mine)
        add(self.weights.number("frequency", name), np.log(base))
        for edge in self.edges(column):
            keys = self._keys(edge.given, context)[rows]
            same = keys == self._keys(edge.given, cells)[rows]
            ratio = self.ratio(edge, keys[cell], same[cell], value, own[cell])
            add(self.number(edge), edge.share * ratio)
            if edge.model is not None and channel:
                add(
                    self.weights.number("witness", self._entry(edge)),
                    edge.share * self._witness(edge, keys[cell], same[cell], value, own[cell]),
                )
        for rule in self.rules:
            if isinstance(rule, Denial) and column in rule.columns():
                share = rule.violations(context, rows[cell], column, value)
                add(self.weights.number("violation", rule.source), share)
        if channel:
            alike = self._alike(cells, column, own[cell], value, mine)
            if column in self.keys:  # a value that other rows have as well is no typo
                alike[self._frequent_of(column, own[cell]) > _RARE] = 0.0
            add(self.weights.number("typo", "all columns"), alike)
            if column not in self.keys:
                add(self.weights.number("keep", name), mine.astype(np.float64))
            if column not in self.keys and self.named(column):
                present = own[cell] != MISSING
                shown = self.base(column, own[cell], present)[1]
                swap = np.where(mine | ~present, 0.0, (1.0 - alike) * np.log(shown))
                add(self.weights.number("swap", name), swap)
        else:
            mine &= without > 0  # values that occur in no other row are mostly errors
        for vote in self.votes:
            if vote.dependency.column == column:
                self._vote(vote, context, rows, cell, value, add)
        return Candidates(rows, np.full(len(rows), column), cell, value, mine, *add.arrays())

    def base(
        self, column: int, value: NDArray[np.int64], mine: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return counts of values in a column without the cell itself, and their shares."""
        rows = max(int(self._frequent[column].sum()), 1)
        without = np.maximum(self._frequent_of(column, value) - mine, 0)
        return without, np.where(without > 0, without / rows, self.novel(column))

    def novel(self, column: int) -> float:
        """Return the share of values that no row has: Good-Turing's, of values that one row has."""
        frequent = self._frequent[column]
        return max(int((frequent == 1).sum()), 1) / max(int(frequent.sum()), 1)

    def ratio(
        self,
        edge: Edge,
        keys: NDArray[np.int64],
        same: NDArray[np.bool_],
        value: NDArray[np.int64],
        own: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Return the log ratio of the probabilities of values in a group and in the column.

        Parameters
        ----------
        edge
            The predictor of the column.
        keys
            The groups.
        same
            Whether the group is that of the given row, whose cell is not counted.
        value
            The values.
        own
            The values of the cells, -1 if missing.
        """
        pairs = self._count(edge.given, edge.column)
        mine = own == value
        without, base = self.base(edge.column, value, mine)
        present = same & (own != MISSING) & (pairs.count(keys, own) > 0)
        total = np.maximum(pairs.total(keys) - present, 0)
        both = np.maximum(pairs.count(keys, value) - (mine & present), 0)
        if edge.model is None:
            other = np.maximum(pairs.singles(keys) - present, 0)
            both = np.where(without > 0, both, other)  # for unseen values: other single ones
            return np.asarray(np.log((both + _SMOOTH * base) / (total + _SMOOTH) / base))
        scores = edge.model.scores(both, total, base)
        rest, norm = np.ones(len(keys)), np.full(len(keys), -np.inf)
        listed = np.zeros(len(keys), dtype=np.bool_)
        for leading, count in self._leading(edge, keys):
            count = count - (present & (leading == own))
            share = self.base(edge.column, leading, leading == own)[1]
            held = count > 0
            rest -= np.where(held, share, 0.0)
            norm = np.logaddexp(
                norm, np.where(held, edge.model.scores(count, total, share), -np.inf)
            )
            listed |= held & (leading == value)
        unseen = edge.model.scores(np.zeros_like(total), total, np.maximum(rest, 1e-12))
        norm = np.logaddexp(norm, unseen)
        norm = np.where(listed | (both == 0), norm, np.logaddexp(norm, scores))
        return np.asarray(np.minimum(scores - norm, 0.0) - np.log(base))

    def _leading(
        self, edge: Edge, keys: NDArray[np.int64]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Return the most frequent values of groups, as (values, counts), the first ones first."""
        place = edge.given, edge.column
        if place not in self._tops:
            self._tops[place] = self._count(*place).top(_PER_CONTEXT)
        key, value, count = self._tops[place]
        if not len(key):
            return []
        begin = np.searchsorted(key, keys, side="left")
        end = np.searchsorted(key, keys, side="right")
        found = []
        for number in range(_PER_CONTEXT):
            at = begin + number
            inside = at < end
            at = np.where(inside, at, 0)
            found.append((np.where(inside, value[at], MISSING), np.where(inside, count[at], 0)))
        return found

    def _witness(
        self,
        edge: Edge,
        keys: NDArray[np.int64],
        same: NDArray[np.bool_],
        value: NDArray[np.int64],
        own: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Return how the value in a cell changes the log probabilities of its candidates."""
        assert edge.model is not None
        pairs, mine, known = self._count(edge.given, edge.column), own == value, own != MISSING
        without, base = self.base(edge.column, value, mine)
        present = same & known & (pairs.count(keys, own) > 0)
        total = np.maximum(pairs.total(keys) - present, 0)
        count = np.maximum(pairs.count(keys, value) - (mine & present), 0)
        alone = edge.model.scores(count, total, base)
        whole = np.where(mine & (without > 0), base * (without + 1) / np.maximum(without, 1), base)
        return edge.model.scores(count + mine, total + known, whole) - alone

    def number(self, edge: Edge) -> int:
        """Return the index of the weight of a predictor."""
        return self.weights.number(edge.kind, self._entry(edge))

    def _entry(self, edge: Edge) -> str:
        return Dependency(edge.given, edge.column).text(self.table.names)

    def _proposed(
        self,
        column: int,
        own: NDArray[np.int64],
        given: list[tuple[tuple[int, ...], NDArray[np.int64]]],
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
        for one, keys in given:
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
            rare, often = np.flatnonzero(frequent <= _RARE), np.flatnonzero(frequent > _RARE)
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
