"""States of a small graph with their log-potentials and probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError, SampleError, TooLargeError
from minigibbs.graph.factors.base import finite_range
from minigibbs.graph.graph import FactorGraph, log_potentials
from minigibbs.graph.packing import free_variables
from minigibbs.graph.rounding import warn_of_rounding
from minigibbs.kernels.energy import factor_values
from minigibbs.system.boundary import checked

MOST_STATES = 2**22


def readable_count(count: int) -> str:
    """Format a number that may exceed the range of floats.

    >>> readable_count(2**22), readable_count(2**5000)
    ('4,194,304', '1.41e+1505')
    """
    if count < 1e9:
        return f"{count:,}"
    exponent = math.log10(count)
    return f"{10 ** (exponent % 1):.3g}e+{int(exponent)}"


def softmax(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights exp(logs) that sum to 1 along the last axis."""
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)  # type: ignore[no-any-return]


@checked(SampleError)
@dataclass(frozen=True, eq=False)
class Enumeration:
    """All states of a graph that agree with its evidence, in lexicographic order.

    Parameters
    ----------
    graph : FactorGraph
        A small model.

    Raises
    ------
    TooLargeError
        If there are too many states.

    Examples
    --------
    >>> import minigibbs as mg
    >>> everything = mg.theory.Enumeration(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)]))
    >>> everything.states.tolist(), everything.distribution.round(3)
    ([[0, 0], [0, 1], [1, 0], [1, 1]], array([0.366, 0.134, 0.134, 0.366]))
    """

    graph: FactorGraph

    def __post_init__(self) -> None:
        count = math.prod(int(size) for size in self.graph.sizes[self.free])
        if count > MOST_STATES:
            raise TooLargeError(
                f"this graph has {readable_count(count)} states; enumeration stops at "
                f"{MOST_STATES:,}. Marginals and log Z of larger graphs: "
                "mg.exact_marginals, if the treewidth is small, or mg.sample"
            )

    @cached_property
    def free(self) -> NDArray[np.int32]:
        """The free variables."""
        return free_variables(self.graph.evidence)

    @cached_property
    def states(self) -> NDArray[Any]:
        """[state, variable] all states."""
        ranges = [
            np.arange(size) if fixed < 0 else np.array([fixed])
            for size, fixed in zip(self.graph.sizes, self.graph.evidence, strict=True)
        ]
        grid = np.meshgrid(*ranges, indexing="ij")
        return np.stack([axis.ravel() for axis in grid], axis=1).astype(self.graph.state_type)

    @cached_property
    def strides(self) -> NDArray[np.int64]:
        """The change of a state's number if the value of a variable increases by one."""
        sizes = np.where(self.graph.evidence < 0, self.graph.sizes, 1).astype(np.int64)
        return np.append(np.cumprod(sizes[::-1])[-2::-1], 1)

    @cached_property
    def log_potential(self) -> NDArray[np.float64]:
        """[state] the log-potential of each state."""
        values: NDArray[np.float64] = self.graph.log_potential(self.states)
        return values

    @cached_property
    def distribution(self) -> NDArray[np.float64]:
        """[state] the probability of each state."""
        if self.log_potential.max() == -np.inf:
            raise GraphError(
                "every state has probability 0: the hard constraints of the graph leave none"
            )
        return softmax(log_potentials(self.graph, self.states, 0.0, varying=True))

    @cached_property
    def _shifted(self) -> NDArray[np.float64]:
        """[stored factor, state] every factor, pairs first, shifted to minimum 0."""
        model = self.graph.packed
        values = np.empty((len(model.pair) + len(model.factors), len(self.states)))
        factor_values(model, self.states, values)
        low, _, _ = finite_range(values)
        shifted: NDArray[np.float64] = values - low[:, None]
        return shifted

    @cached_property
    def varying(self) -> NDArray[np.intp]:
        """The numbers of the stored factors that vary, pairs first."""
        return np.flatnonzero(self._shifted.max(axis=1) > self._shifted.min(axis=1))

    @cached_property
    def phi(self) -> NDArray[np.float64]:
        """[factor, state] the varying factors, shifted to minimum 0; -inf for a hard constraint."""
        return self._shifted[self.varying]

    @cached_property
    def spans(self) -> NDArray[np.float64]:
        """[factor] the paper's M, the range of each factor; infinite for a hard constraint."""
        spans: NDArray[np.float64] = self.phi.max(axis=1) - np.minimum(self.phi.min(axis=1), 0.0)
        return spans

    @cached_property
    def adjacent(self) -> list[NDArray[np.int64]]:
        """For each variable the paper's A[i]: the factors that depend on it."""
        found = []
        for i in range(len(self.graph)):
            varies = np.zeros(len(self.phi), dtype=bool)
            if self.graph.evidence[i] < 0:
                lines = self.lines(i)
                along = self.phi[:, lines]
                varies = (along.max(axis=2) > along.min(axis=2)).any(axis=1)
            found.append(np.flatnonzero(varies))
        return found

    def entries(self, i: int) -> NDArray[np.intp]:
        """Return for each entry of a variable's row in the packed graph its row of `phi`."""
        model = self.graph.packed
        row, pairs = model.rows[i], self.varying[self.varying < len(model.pair)]
        own = pairs[(model.pair[pairs] == i).any(axis=1)]
        general = len(model.pair) + model.target[row["pair_end"] : row["end"]]
        return np.searchsorted(self.varying, np.concatenate([own, general]))

    def lines(self, i: int) -> NDArray[np.int64]:
        """Return the numbers of states that differ only in one variable, [line, value].

        Parameters
        ----------
        i : int
            The variable.

        Returns
        -------
        ndarray of int
            One row per joint value of the other variables.
        """
        first = np.flatnonzero(self.states[:, i] == 0)
        numbers: NDArray[np.int64] = (
            first[:, None] + np.arange(self.graph.sizes[i]) * self.strides[i]
        )
        return numbers


@checked(SampleError)
def exact_distribution(graph: FactorGraph) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Compute all states and their probabilities.

    Parameters
    ----------
    graph : FactorGraph
        A small model.

    Returns
    -------
    states : ndarray of int
        [state, variable] in lexicographic order.
    probabilities : ndarray
        [state] the distribution.

    Raises
    ------
    TooLargeError
        If there are too many states.

    Examples
    --------
    >>> import minigibbs as mg
    >>> states, distribution = exact_distribution(mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)]))
    >>> distribution.round(3)
    array([0.366, 0.134, 0.134, 0.366])
    """
    warn_of_rounding(graph)
    everything = Enumeration(graph)
    return everything.states, everything.distribution
