"""Marginals of draws with less variance: exact marginals of blocks given the other variables.

The mean over draws of P(x_i | all variables outside the block of i) has the same expectation as
the mean of the indicator of a value, and at most its variance if draws are independent
(Rao-Blackwell). Blocks are those of `BlockGibbs`. Its sums over a block are followed by a pass from
the last variable to the first, which computes the joint distribution of every clique.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.jit import entry, kernel
from minigibbs.kernels.layout import Chain
from minigibbs.samplers.block_gibbs.program import BlockData
from minigibbs.samplers.block_gibbs.sampler import BlockGibbs, advance_digits, sum_out


class ConditionalMarginals:
    """Sums of the conditional marginals of one chain's draws.

    Parameters
    ----------
    graph
        The model. Draws are its states.
    data
        The covers, from `conditional_program`.
    """

    def __init__(self, graph: FactorGraph, data: BlockData) -> None:
        self._model, self._data = graph.packed, data
        self.count = 0  # draws so far
        first, fixed = graph.packed.first.astype(np.int64), graph.evidence != FREE
        self._first, self._shares = first, np.zeros(int(graph.sizes.sum(dtype=np.int64)))
        self._shares[first[fixed] + graph.evidence[fixed]] = 1.0
        self._shares[first[graph.sizes == 1]] = 1.0
        self._totals = np.zeros(len(self._shares))
        self._numbers = np.zeros(data.numbers)
        self._chain = Chain(
            np.zeros(len(graph), graph.state_type),
            np.zeros(4, np.uint64),
            np.empty(0),
            np.empty(0),
            np.zeros(2 * data.widest, np.int64),
            np.zeros(5, np.int64),
        )

    def add(self, draws: NDArray[np.unsignedinteger]) -> None:
        """Add draws [draw, variable]; they use the covers in turn."""
        _add_draws(
            self._data,
            self._model,
            self._chain,
            np.ascontiguousarray(draws),
            self.count,
            self._first,
            self._numbers,
            self._shares,
            self._totals,
        )
        self.count += len(draws)

    @property
    def means(self) -> NDArray[np.float64]:
        """[sum of sizes] mean conditional marginals of all draws so far."""
        return self._totals / max(self.count, 1)


def conditional_program(graph: FactorGraph, width: int = 1) -> BlockData:
    """Compile the covers of a graph by blocks of bounded treewidth."""
    return BlockGibbs(width).tables(graph)


@entry
def _add_draws(data, model, chain, draws, number, begin, numbers, shares, totals):
    """Add the conditional marginals of draws to the totals."""
    for k in range(len(draws)):
        for v in range(len(chain.x)):
            chain.x[v] = draws[k, v]
        chosen = (number + k) % len(data.cover_end)
        for block in range(data.cover_end[chosen - 1] if chosen > 0 else 0, data.cover_end[chosen]):
            first, last = data.block_end[block - 1] if block > 0 else 0, data.block_end[block]
            sum_out(data, model, chain, first, last, numbers)
            for s in range(last - 1, first - 1, -1):
                _share_out(data, data.steps[s], numbers, chain.scratch, begin, shares)
        for place in range(len(totals)):
            totals[place] += shares[place]


@kernel
def _share_out(data, step, numbers, digits, begin, shares):
    """Turn a step's table into probabilities of its clique; write its variable's marginal."""
    size, rows = np.int64(step.size), step.entries // step.size
    above, place = data.numbers - rows, begin[step.variable]
    if step.target >= 0:
        _collect(data, step, data.steps[step.target], numbers, digits, above, rows)
    else:
        numbers[above] = 1.0
    for value in range(size):
        shares[place + value] = 0.0
    for row in range(rows):
        at, top, total = step.table + row * size, -np.inf, 0.0
        for value in range(size):
            top = max(top, numbers[at + value])
        for value in range(size):
            numbers[at + value] = np.exp(numbers[at + value] - top) if top > -np.inf else 0.0
            total += numbers[at + value]
        scale = numbers[above + row] / total if total > 0.0 else 0.0
        for value in range(size):
            numbers[at + value] *= scale
            shares[place + value] += numbers[at + value]


@kernel
def _collect(data, step, target, numbers, digits, above, rows):
    """Sum the probabilities of the target's clique over variables that the step does not have."""
    for row in range(rows):
        numbers[above + row] = 0.0
    at, place, own = target.table, above, data.strides[step.stride_start]
    for _ in range(target.entries // target.size):
        for value in range(target.size):
            numbers[place + value * own] += numbers[at + value]
        at += target.size
        place = advance_digits(data, target, digits, data.strides, step.stride_start, place)
