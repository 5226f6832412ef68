"""Contract of every set of chains, for any layout, device and task.

The groups of a run implement this contract: chains of single-variable updates, chromatic scans and
temperature ladders, on a CPU and on a GPU. The chains of learning implement it, too.
`tests/contract` checks every layout of `samplers.registry` against it, on every device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

State = dict[str, NDArray[Any]]  # everything that chains need to continue, except past records
Schema = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]  # shapes and types of these arrays


class Ensemble(ABC):
    """Chains of one model that advance together.

    Attributes
    ----------
    chains : int
        Number of chains.
    unit : int
        Updates that are made together: 1, or those of a whole sweep.
    """

    chains: int
    unit: int = 1

    @abstractmethod
    def states(self) -> NDArray[Any]:
        """Return the current states.

        Returns
        -------
        array [chain, variable]
            Read-only by convention. Clamped variables have their values.
        """

    @abstractmethod
    def load(self, states: NDArray[Any]) -> None:
        """Continue from other states.

        Random numbers continue, so that chains do not repeat earlier draws. Auxiliary state of a
        sampler is initialized again.

        Parameters
        ----------
        states : array [chain, variable]
            One state per chain.
        """

    @abstractmethod
    def advance(self, updates: int, recording: bool = False) -> None:
        """Advance every chain.

        The result does not depend on how updates are distributed over calls.

        Parameters
        ----------
        updates : int
            Updates per chain, a multiple of `unit`.
        recording : bool, default False
            Whether to count and record as the plan requires.
        """

    @abstractmethod
    def state(self) -> State:
        """Return everything that the chains need to continue.

        Returns
        -------
        dict of arrays
            Arrays of the chains if they are in this process, else copies. Copy them before the
            chains advance.
        """

    def schema(self) -> Schema:
        """Return the shape and type of each array of `state`.

        They do not change while the chains advance. So a state from a file can be compared with
        the schema of new chains before it is restored.

        Returns
        -------
        dict
            A tuple `(shape, dtype)` per array.
        """
        return {name: (array.shape, array.dtype) for name, array in self.state().items()}

    @abstractmethod
    def restore(self, state: State) -> None:
        """Continue from the result of `state`, in this process or another.

        Parameters
        ----------
        state : dict of arrays
            State of chains with the same plan, and therefore with the same `schema`.
        """
