"""Gibbs sweeps of a graph with new parameters at each step.

This is the discrete block of a larger model. A sampler of probabilistic programs passes the current
state and the parameters, and gets the next state.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.interop.common import require_positive
from minigibbs.kernels.random import streams
from minigibbs.learning.chains import RowChains, Threads, seed_of


class ConditionalGibbs:
    """Gibbs sweeps of a graph at given parameters, which preserve its distribution.

    Parameters
    ----------
    graph
        The model, with named factors.
    sweeps
        Number of sweeps per step.
    """

    def __init__(self, graph: FactorGraph, sweeps: int) -> None:
        if graph.implicits:
            raise GraphError(
                f"{graph.implicits[0].kind} factors are implicit and have no parameters; use "
                "graph.stored() if it is small"
            )
        require_positive(sweeps=sweeps)
        self.graph, self.sweeps = graph, int(sweeps)
        self._known = graph.frame.flat(graph.factors)
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._chains: RowChains | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"graph": self.graph, "sweeps": self.sweeps, "_known": self._known}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()

    def read(self, parameters: Mapping[str, ArrayLike]) -> NDArray[np.float64]:
        """Return all parameters as one flat array; those not given are the graph's own."""
        frame = self.graph.frame
        values = frame.read(parameters, self._known)
        frame.require_finite(values)
        return values

    def check(self, state: ArrayLike) -> NDArray[Any]:
        """Return one state of the graph after checking that it agrees with the evidence."""
        given = self.graph.check_states(state)
        evidence = self.graph.evidence
        wrong = np.flatnonzero((evidence != FREE) & (given != evidence))
        if len(wrong):
            variable = int(wrong[0])
            raise GraphError(
                f"{self.graph.domains.describe(variable)}: the graph clamps it to "
                f"{evidence[variable]}, but the state has {given[variable]}"
            )
        return given

    def step(
        self, state: ArrayLike, values: NDArray[np.float64], seed: Sequence[int]
    ) -> NDArray[Any]:
        """Return the state after the sweeps, a function of the arguments alone."""
        given = self.check(state)
        with self._lock:
            if self._chains is None:
                free = free_variables(self.graph.evidence)
                self._chains = RowChains(self.graph, given[None], free, (0,), Threads(1))
            chains = self._chains
            chains.streams[:] = streams(seed_of(tuple(map(int, seed))), 1)
            chains.load(given[None])
            chains.set_weights(values)
            chains.sweep(self.sweeps)
            found: NDArray[Any] = chains.states()[0].copy()
        return found
