"""One true value per group of rows: functional dependencies whose cells have errors.

A share of a value within a group predicts what another row of the group *says*. If the rows of a
group describe one thing, they have one *true* value, and every row is a witness for it. Errors may
repeat within a group, since sources copy from each other. The model of a group with counts n_v:

- its true value t is drawn by the shares b of the values in the column;
- a cell is wrong with a probability that is drawn for the group, from a beta distribution;
- wrong cells are a Polya urn: they repeat earlier ones, or draw a new value by b.

The dependency is functional if this model explains its column better than an urn without a true
value does, as in a column whose values vary within groups.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.repairing.constraints import Dependency
from minigibbs.repairing.counts import Pairs, joined
from minigibbs.repairing.dependencies import Context, strong
from minigibbs.repairing.table import MISSING, Table

_ERRORS = (0.003, 0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.4, 0.49)  # the last: no key
_SPREADS = (8.0, 1e4)  # the last: errors are as frequent in every group
_COPIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_ROUNDS = 3  # of the search over one setting after another
_MOST = 20_000  # maximum number of pairs of a key and a value from which settings are chosen
_NEAR = 0.8  # least share of the best key's gain that other keys of a column have
_EVIDENCE = 3.0  # least log Bayes factor for one true value per group: 20 to 1


class Truth(NamedTuple):
    """The model of the groups of a dependency.

    Attributes
    ----------
    error
        The mean probability that a cell is wrong.
    spread
        Concentration of the groups' probabilities around the mean.
    copy
        Weight of a new wrong value, relative to one earlier wrong cell of the group.
    """

    error: float
    spread: float
    copy: float

    def scores(
        self, count: NDArray[np.int64], total: NDArray[np.int64], base: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the log probability that a value is true, up to a constant of the group.

        Parameters
        ----------
        count
            How often the value occurs in the group.
        total
            The number of cells in the group.
        base
            The share of the value in the column.
        """
        from scipy.special import betaln

        wrong, right = self.error * self.spread, (1.0 - self.error) * self.spread
        others = total - count
        found = np.log(base) + betaln(wrong + others, right + count)
        found -= _urn(self.copy, count, base)
        found += _start(self.copy, others)
        return np.asarray(found)


class Key(NamedTuple):
    """Columns whose groups have one true value in another column, and the model of the groups."""

    kind: str  # "key" if found, "rule" if stated
    given: tuple[int, ...]
    model: Truth


def _urn(copy: float, count: NDArray[np.int64], base: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log weight of drawing a value `count` times from a Polya urn."""
    from scipy.special import gammaln

    return np.asarray(gammaln(copy * base + count) - gammaln(copy * base))


def _start(copy: float, total: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the log normalization of `total` draws from a Polya urn."""
    from scipy.special import gammaln

    return np.asarray(gammaln(copy) - gammaln(copy + total))


class _Groups:
    """Counts of the values in the groups of a key, for choosing the settings of `Truth`."""

    def __init__(self, pairs: Pairs, shares: NDArray[np.float64]) -> None:
        key, value = np.divmod(pairs.keys, pairs.size)
        count = pairs.counts
        if len(key) > _MOST:  # whole groups, evenly spaced
            _, number = np.unique(key, return_inverse=True)
            kept = number % -(-len(key) // _MOST) == 0
            key, value, count = key[kept], value[kept], count[kept]
        self.count, self.base = count, shares[value]
        _, self.first, self.group = np.unique(key, return_index=True, return_inverse=True)
        self.total = np.add.reduceat(count, self.first)
        self.rest = np.maximum(1.0 - np.add.reduceat(self.base, self.first), 1e-12)
        self.scale = float(pairs.counts.sum() / count.sum())

    def varied(self, copy: float) -> float:
        """Return the log likelihood if the values vary within groups."""
        each = np.add.reduceat(_urn(copy, self.count, self.base), self.first)
        return float((each + _start(copy, self.total)).sum())

    def true(self, model: Truth) -> float:
        """Return the log likelihood if every group has one true value."""
        from scipy.special import betaln

        wrong, right = model.error * model.spread, (1.0 - model.error) * model.spread
        each = np.add.reduceat(_urn(model.copy, self.count, self.base), self.first)
        unseen = np.log(self.rest) + betaln(wrong + self.total, right)
        unseen += _start(model.copy, self.total)
        seen = model.scores(self.count, self.total[self.group], self.base)
        most = np.maximum(np.maximum.reduceat(seen, self.first), unseen)
        shares = np.add.reduceat(np.exp(seen - most[self.group]), self.first)
        shares += np.exp(unseen - most)
        return float((each + most + np.log(shares) - betaln(wrong, right)).sum())

    def best(self) -> tuple[Truth, float]:
        """Return the most likely model with true values, and its log likelihood."""
        found, most = Truth(0.1, 8.0, 1.0), -np.inf
        options = {"error": _ERRORS, "copy": _COPIES, "spread": _SPREADS}
        for _ in range(_ROUNDS):
            before = most
            for name, values in options.items():
                for value in values:
                    tried = found._replace(**{name: value})
                    got = self.true(tried)
                    if got > most:
                        found, most = tried, got
            if most == before:
                break
        return found, most


def truth_of(table: Table, given: tuple[int, ...], column: int) -> tuple[Truth, float, float]:
    """Return the model of a dependency, its gain, and the gain if values vary within groups.

    A gain is that of log likelihood over draws by the shares of the column.
    """
    cast = table.codes[:, column]
    pairs = Pairs.of(joined(table.codes[:, given], []), cast, table.size(column))
    if not len(pairs.keys):
        return Truth(0.1, 8.0, 1.0), 0.0, 0.0
    shares = np.bincount(cast[cast != MISSING], minlength=table.size(column)) / len(table)
    groups = _Groups(pairs, shares)
    alone = float((groups.count * np.log(groups.base)).sum())
    model, gain = groups.best()
    varied = max(groups.varied(copy) for copy in _COPIES)
    return model, groups.scale * (gain - alone), groups.scale * (varied - alone)


def keys_of(
    table: Table, contexts: list[list[Context]], stated: list[Dependency]
) -> dict[int, list[Key]]:
    """Return, by column, the columns that name the groups with one true value.

    They are those of stated dependencies, and the contexts with functional dependencies that
    explain the column about as well as the best one. A column that explains another one less well
    acts through the better one.
    """
    found: dict[int, list[Key]] = {}
    for column, some in enumerate(contexts):
        given = dict.fromkeys(rule.given for rule in stated if rule.column == column)
        keys = [Key("rule", one, truth_of(table, one, column)[0]) for one in given]
        tried = [((one.given,), truth_of(table, (one.given,), column)) for one in strong([some])]
        most = max((max(gain, varied) for _, (_, gain, varied) in tried), default=0.0)
        keys += [
            Key("key", one, model)
            for one, (model, gain, varied) in tried
            if one not in given
            and model.error < _ERRORS[-1]
            and gain > varied + _EVIDENCE
            and gain >= _NEAR * most
        ]
        if keys:
            found[column] = keys
    return found
