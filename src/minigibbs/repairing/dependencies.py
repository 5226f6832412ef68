"""Approximate functional dependencies of a table, found by agreement within groups."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from minigibbs.repairing.counts import Pairs
from minigibbs.repairing.table import MISSING, Table

_COVERED = 0.3  # least share of cells in groups of two or more
_EXPLAINED = 0.3  # least share that a dependency removes of the errors of guessing by frequency
_CONTEXTS = 8  # maximum number of contexts of a column


class Context(NamedTuple):
    """A column that predicts another one."""

    given: int
    column: int
    explained: float  # share removed of the errors made by guessing the most frequent value


def contexts_of(table: Table) -> list[list[Context]]:
    """Return, by column, the columns that predict it best, the strongest first.

    A cell is predicted by the majority of the other cells in its group. A column in which nearly
    all values are distinct predicts nothing, since most of its groups have one row.
    """
    found: list[list[Context]] = []
    for column in range(len(table.names)):
        target = table.codes[:, column]
        seen = target != MISSING
        if table.size(column) < 2:
            found.append([])
            continue
        base = np.bincount(target[seen]).max() / max(int(seen.sum()), 1)
        some = []
        for given in range(len(table.names)):
            if given == column or table.size(given) < 2:
                continue
            pairs = Pairs.of(table.codes[:, given], target, table.size(column))
            accuracy, covered = pairs.loo_accuracy()
            explained = covered * (accuracy - base) / max(1.0 - base, 1e-9)
            if covered >= _COVERED and explained > 0.0:
                some.append(Context(given, column, explained))
        some.sort(key=lambda one: -one.explained)
        found.append(some[:_CONTEXTS])
    return found


def nearly_best(table: Table, contexts: list[list[Context]], given: set[int]) -> list[Context]:
    """Return the strong contexts that predict a column about as well as its best one does.

    Only the columns in `given` count. The errors of a context may exceed those of the best one by
    one standard deviation of the difference. A larger excess shows that the dependency is not
    functional: a city with two hospitals determines a phone number worse than the name does.
    """
    found = []
    for some in contexts:
        usable = [one for one in strong([some]) if one.given in given]
        if not usable:
            continue
        target = table.codes[:, usable[0].column]
        counts = np.bincount(target[target != MISSING])
        wrong = [(1.0 - one.explained) * float(counts.sum() - counts.max()) for one in usable]
        least = min(wrong)
        found += [
            one
            for one, errors in zip(usable, wrong, strict=True)
            if errors - least <= np.sqrt(errors + least)
        ]
    return found


def strong(contexts: list[list[Context]]) -> list[Context]:
    """Return the contexts that are approximate functional dependencies."""
    return [one for some in contexts for one in some if one.explained >= _EXPLAINED]
