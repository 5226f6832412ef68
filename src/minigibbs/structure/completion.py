"""Completion of tables: missing cells are drawn from a model."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.data import Data
from minigibbs.graph.graph import FactorGraph
from minigibbs.learning.chains import Threads
from minigibbs.learning.placing import row_chains
from minigibbs.structure.table import Codes

_SWEEPS = 5  # Gibbs sweeps over the missing cells per completion


class Completion:
    """The rows of a table with missing cells, and their current completion."""

    def __init__(self, table: Codes, seed: int, threads: int | None) -> None:
        self.table, self.seed, self.threads = table, seed, threads
        self.rows = np.flatnonzero(table.missing.any(axis=0))
        codes = np.ascontiguousarray(table.codes[:, self.rows].T)
        self.seen = (codes != table.sizes).astype(np.uint8)
        self.codes = np.where(self.seen != 0, codes, 0)
        self._drawn = 0

    def draw(self, graph: FactorGraph) -> Codes:
        """Return the table with missing cells drawn from the model by Gibbs sampling.

        Chains continue from the last completion.
        """
        with closing(Threads(self.threads)) as pool:
            kind = graph.state_type
            data = Data(self.codes.astype(kind), self.seen, np.ones(len(self.rows)))
            chains = row_chains(graph, data, self.seed + self._drawn, pool)
            if self._drawn:
                chains.load(self.codes.astype(kind))
            chains.set_weights(graph.frame.flat(graph.factors))
            chains.sweep(_SWEEPS)
            self.codes = chains.states().astype(self.codes.dtype)
        self._drawn += 1
        whole: NDArray[np.generic] = self.table.codes.copy()
        whole[:, self.rows] = self.codes.T
        return replace(self.table, codes=whole)
