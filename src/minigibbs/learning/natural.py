"""Natural gradient steps for tables of pairs, with the Fisher information of independent variables.

If every variable has its own fields and every pair its own table, that information is known. The
natural gradient of a table is its gradient, minus the part that the fields explain, divided by the
probabilities of its values. Such a step is proportional to the information about an entry, and
fields need not compensate for it. Plain steps are limited by the directions in which all tables of
a variable act as a field. Adam's steps are as long for noise as for signal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.parameters import Frame
from minigibbs.kernels.layout import TABLE
from minigibbs.kernels.statistics import center_tables

_COUNT = 0.05  # weight of a uniform row in each variable's shares
MANY = 10_000  # parameters from which on natural steps are the default, if possible


def natural_steps_exist(graph: FactorGraph) -> bool:
    """Return whether the parameters are exactly tables of pairs and fields of all variables."""
    frame = graph.frame
    if graph.implicits or frame.fixed.any() or (frame.ties.pair >= 0).any():
        return False
    factors, ties = frame.structure.factors, frame.ties
    learned = ties.factor >= 0
    arity = (factors["scope_end"] - factors["scope_start"])[learned]
    own = ties.entries[learned] & (factors["form"][learned] == TABLE)
    plain = own & (arity <= 2) & (ties.factor_scale[learned] == 1.0)
    if not plain.all() or not frame.apart:
        return False
    return np.array_equal(np.sort(_single(frame)), np.arange(len(graph)))


def _single(frame: Frame) -> NDArray[np.int64]:
    """Return the variables of the learned factors of one variable, in the order of factors."""
    return _scopes(frame, 1)[:, 0]


def _scopes(frame: Frame, arity: int) -> NDArray[np.int64]:
    """[factor, slot] the variables of the learned factors of one arity."""
    factors = frame.structure.factors[_of(frame, arity)]
    places = factors["scope_start"][:, None] + np.arange(arity)
    return frame.structure.slots["variable"][places].astype(np.int64)


def _of(frame: Frame, arity: int) -> NDArray[np.intp]:
    factors = frame.structure.factors
    size = factors["scope_end"] - factors["scope_start"]
    return np.flatnonzero((frame.ties.factor >= 0) & (size == arity))


class Natural:
    """Fisher information of independent variables with the marginals of the data."""

    def __init__(self, frame: Frame, shares: NDArray[np.float64], chains: int) -> None:
        """Prepare with the `shares` of all values; probabilities below 1 / chains are clipped."""
        sizes = frame.sizes.astype(np.int64)
        self.first = np.append(frame.structure.first, sizes.sum())
        self.share = (shares + _COUNT / np.repeat(sizes, sizes)) / (1.0 + _COUNT)
        self.pair = _scopes(frame, 2)
        self.place = frame.ties.factor[_of(frame, 2)]
        self.field = np.empty(len(sizes), dtype=np.int64)
        self.field[_single(frame)] = frame.ties.factor[_of(frame, 1)]
        self.scale = np.zeros(frame.size)  # parameters without factors do not change
        where = np.repeat(self.field - self.first[:-1], sizes) + np.arange(len(self.share))
        self.scale[where] = 1.0 / self.share
        self._fields = where
        for i, j in np.unique(sizes[self.pair], axis=0).tolist():
            some = (sizes[self.pair] == [i, j]).all(axis=1)
            own = [self.first[self.pair[some, k]][:, None] + np.arange((i, j)[k]) for k in (0, 1)]
            chance = self.share[own[0]][:, :, None] * self.share[own[1]][:, None, :]
            entries = self.place[some][:, None] + np.arange(i * j)
            least = 1.0 / max(chains, 1)
            self.scale[entries] = 1.0 / np.maximum(chance.reshape(len(entries), -1), least)

    def centered(self, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the gradient; that of tables without the part that the fields explain."""
        center_tables(self.pair, self.place, self.field, self.first, self.share, gradient)
        return gradient

    def independent(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the parameters with fields that reproduce the shares if tables are 0."""
        values = values.copy()
        values[self._fields] = np.log(self.share)
        return values
