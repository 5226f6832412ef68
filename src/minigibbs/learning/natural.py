"""Natural steps for tables that join pairs of variables: as if variables were independent.

Where every variable has fields of its own and pairs have tables of their own, the Fisher
information of independent variables is known: the gradient of a table, less what the fields
explain, over the probabilities of its values. Such a step is in proportion to what an entry's
moments tell, and fields need not make up for it. Plain steps are held back by the directions in
which all tables of a variable act as a field; those of Adam are as long for noise as for what is
told.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.parameters import Frame
from minigibbs.kernels.layout import TABLE
from minigibbs.kernels.statistics import center_tables

_COUNT = 0.05  # of a row: how much each variable's chances are mixed with equal ones
MANY = 10_000  # numbers from which on steps are natural by default, where they can be


def natural_steps_exist(graph: FactorGraph) -> bool:
    """Whether all that is learned is a table of each pair and fields of every variable."""
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
    """The variables of the learned factors of one variable, in the order of factors."""
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
    """The Fisher information of independent variables whose values are as frequent as in data."""

    def __init__(self, frame: Frame, shares: NDArray[np.float64], chains: int) -> None:
        """`shares` of the values of all variables; no step is longer than one chain's worth."""
        sizes = frame.sizes.astype(np.int64)
        self.first = np.append(frame.structure.first, sizes.sum())
        self.share = (shares + _COUNT / np.repeat(sizes, sizes)) / (1.0 + _COUNT)
        self.pair = _scopes(frame, 2)
        self.place = frame.ties.factor[_of(frame, 2)]
        self.field = np.empty(len(sizes), dtype=np.int64)
        self.field[_single(frame)] = frame.ties.factor[_of(frame, 1)]
        self.scale = np.zeros(frame.size)  # what no factor uses stays as it is
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
        """The gradient, that of tables without what the fields explain."""
        center_tables(self.pair, self.place, self.field, self.first, self.share, gradient)
        return gradient

    def independent(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The numbers with fields that give the shares, if no table joined anything."""
        values = values.copy()
        values[self._fields] = np.log(self.share)
        return values
