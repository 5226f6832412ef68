"""Log-likelihoods of rows under a model: exact if elimination fits, else with an error."""

from __future__ import annotations

import math
import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError, TooLargeError
from minigibbs.exact.elimination import log_partition
from minigibbs.graph.data import Data
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.energy import add_stored
from minigibbs.kernels.jit import entry
from minigibbs.results.annealed import annealed_log_z
from minigibbs.samplers.gibbs.sampler import sum_unary
from minigibbs.system.watch import Watch


class LogLikelihood(NamedTuple):
    """The mean log-likelihood of rows, in nats.

    Attributes
    ----------
    mean : float
        Weighted mean per row.
    error : float
        Standard error of the estimate of log Z; 0 if exact.
    rows : ndarray
        [row] log-likelihood of each row.
    method : str
        "exact", or "annealing" for annealed importance sampling.

    Examples
    --------
    >>> found = LogLikelihood(-1.5, 0.0, np.array([-1.0, -2.0]), "exact")
    >>> found.mean
    -1.5
    >>> print(found)
    -1.5000 nats per row, 2 rows, exact
    """

    mean: float
    error: float
    rows: NDArray[np.float64]
    method: str

    def __str__(self) -> str:
        error = f" +- {self.error:.2g}" if self.error else ""
        return f"{self.mean:.4f}{error} nats per row, {len(self.rows):,} rows, {self.method}"


def log_likelihood(
    graph: FactorGraph, data: Data, error: float, seed: int, watch: Watch
) -> LogLikelihood:
    """Compute the log-likelihoods of rows; missing values are summed out."""
    inside = unnormalized(graph, data)
    spread, method = 0.0, "exact"
    try:
        log_z = log_partition(graph, progress=False)
    except TooLargeError:
        method = "annealing"
        log_z, spread, _ = annealed_log_z(graph, error, seed, os.cpu_count() or 1, watch)
    rows = inside - log_z
    mean = float(data.weight @ rows / data.weight.sum())
    return LogLikelihood(mean, spread, rows, method)


def unnormalized(graph: FactorGraph, data: Data) -> NDArray[np.float64]:
    """Return [row] the log of the sum of exp(log-potential) over the row's missing values."""
    if data.seen is None:
        return np.asarray(graph.log_potential(data.rows), dtype=np.float64).reshape(len(data))
    found = np.empty(len(data))
    patterns, which = np.unique(data.seen, axis=0, return_inverse=True)
    which = which.ravel()
    for number, pattern in enumerate(patterns):
        some = np.flatnonzero(which == number)
        hidden = np.flatnonzero((pattern == 0) & (graph.evidence == FREE)).astype(np.int32)
        if not graph.implicits and not len(graph.hard) and _independent(graph, hidden):
            states = np.ascontiguousarray(data.rows[some])
            states[:, hidden] = 0
            out = np.asarray(graph.log_potential(states), dtype=np.float64).reshape(len(some))
            model = graph.packed
            unary = sum_unary(model)
            if not len(unary):
                unary = np.zeros(int(model.rows["domain"].sum()))
            _sum_hidden(model, unary, hidden, states, np.zeros(int(graph.sizes.max())), out)
            found[some] = out
            continue
        rows, place = np.unique(data.rows[some], axis=0, return_inverse=True)
        values = np.array([_by_elimination(graph, row, pattern) for row in rows])
        found[some] = values[place.ravel()]
    return found


def _independent(graph: FactorGraph, hidden: NDArray[np.int32]) -> bool:
    """Return whether no factor joins two of the hidden variables."""
    is_hidden = np.zeros(len(graph), dtype=np.int64)
    is_hidden[hidden] = 1
    model = graph.packed
    if len(model.pair) and (is_hidden[model.pair].sum(axis=1) > 1).any():
        return False
    counted = np.concatenate([[0], np.cumsum(is_hidden[model.slots["variable"]])])
    ends, starts = model.factors["scope_end"], model.factors["scope_start"]
    return not (counted[ends] - counted[starts] > 1).any()


def _by_elimination(
    graph: FactorGraph, row: NDArray[np.generic], pattern: NDArray[np.uint8]
) -> float:
    values = np.where(pattern != 0, row.astype(np.int32), FREE)
    try:
        clamped = FactorGraph(graph.domains, graph.factors, evidence=values)
        return float(log_partition(clamped, progress=False))
    except TooLargeError as error:
        raise LearnError(
            f"hidden and missing values cannot be summed out exactly: {error}"
        ) from error


@entry
def _sum_hidden(model, unary, hidden, states, weights, out):
    """Add log(sum of weights / weight of value 0) of independent hidden variables to each row."""
    for row in range(len(states)):
        x = states[row]
        for k in range(len(hidden)):
            i = hidden[k]
            size = model.rows[i].domain
            for value in range(size):
                weights[value] = unary[model.first[i] + value]
            add_stored(model, x, i, weights)
            top = weights[0]
            for value in range(1, size):
                top = max(top, weights[value])
            total = 0.0
            for value in range(size):
                total += math.exp(weights[value] - top)
            out[row] += top + math.log(total) - weights[0]
