"""Pseudo-likelihood of data, and its gradient."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.graph.data import Data
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.pseudo import add_pseudo
from minigibbs.learning.chains import Threads
from minigibbs.system.watch import current

_PIECES = 16  # into which rows are split, for any number of threads
_MOST = 2**25  # most values of the gradients of all pieces
_ROWS = 64  # least rows of a piece


class PseudoLikelihood:
    """Mean over rows of the sum over variables of log p(variable | all others).

    In rows with missing values, only variables whose neighbors are all observed count.
    """

    def __init__(self, graph: FactorGraph, data: Data, threads: Threads) -> None:
        self.graph, self.data, self.threads = graph, data, threads
        self.moving = graph.frame.moving()
        pieces = min(_PIECES, max(len(data) // _ROWS, 1), max(_MOST // graph.frame.size, 1))
        self._cuts = np.linspace(0, len(data), pieces + 1).astype(int).tolist()
        self.counted = 0  # terms in the last evaluation

    def of(
        self, values: NDArray[np.float64], slope: bool = True
    ) -> tuple[float, NDArray[np.float64]]:
        """Return the value, and the gradient if requested.

        Raise `StopError` if the present call must end.
        """
        frame, data, pieces = self.graph.frame, self.data, len(self._cuts) - 1
        model = self.moving.set(values)
        slopes = np.zeros((pieces, frame.size if slope else 0))
        results = np.zeros((pieces, 2))
        none = np.empty((0, 0), dtype=np.uint8)
        watch = current()

        def work(piece: int) -> None:
            watch.check()
            part = slice(self._cuts[piece], self._cuts[piece + 1])
            add_pseudo(
                model,
                frame.ties,
                frame.origin,
                data.rows[part],
                none if data.seen is None else data.seen[part],
                data.weight[part],
                slopes[piece],
                np.zeros(2 * int(frame.sizes.max())),
                results[piece],
            )

        self.threads(work, pieces)
        total, counted = results.sum(axis=0)
        self.counted = int(counted)
        if not self.counted:
            raise LearnError(
                "no variable of the data has all its neighbors observed, so there is no "
                "pseudo-likelihood, which held_out= needs as well; use "
                'method="pcd" without held_out=, and fit.log_likelihood(rows) for held-out rows'
            )
        rows = float(data.weight.sum())
        return float(total) / rows, slopes.sum(axis=0) / rows
