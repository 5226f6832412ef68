"""What every set of chains can do, whatever its layout, its device and its task.

The groups of a run implement this contract: chains of one variable at a time, chromatic scans and
temperature ladders, on a CPU and on a GPU. So do the chains of learning. `tests/contract` checks
every layout of `samplers.registry` against it, on every device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from numpy.typing import NDArray

State = dict[str, NDArray[Any]]  # everything that chains need to continue, but for past records


class Ensemble(ABC):
    """Chains of one model that advance together.

    Attributes
    ----------
    chains : int
        How many chains there are.
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
            To be read. Clamped variables have their values.
        """

    @abstractmethod
    def load(self, states: NDArray[Any]) -> None:
        """Continue from other states.

        Random numbers continue, so that chains do not repeat what they drew before. What a sampler
        carries beside the state begins anew.

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
            Whether to count and record what the plan asks for.
        """

    @abstractmethod
    def state(self) -> State:
        """Return what the chains need to continue.

        Returns
        -------
        dict of arrays
            The chains' own arrays where they are in this process, else copies. Copy them before
            the chains advance.
        """

    @abstractmethod
    def restore(self, state: State) -> None:
        """Continue from what `state` returned, in this process or in another.

        Parameters
        ----------
        state : dict of arrays
            Of chains with the same plan.
        """
