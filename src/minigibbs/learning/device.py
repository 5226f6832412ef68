"""Chains of learning on a GPU: weights go there, states come back, and are counted by bits here.

They are the chromatic groups of `running`, with the layout and the random bits of chains in
lockstep, so that a seed gives the same chains on both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.philox import key_of
from minigibbs.learning.chains import Chains, refill, seed_of
from minigibbs.learning.lockstep import Layout, lockstep_fits
from minigibbs.running.backends.cuda import CudaBackend, without_size_warnings
from minigibbs.running.request import Options
from minigibbs.samplers.chromatic.small import SmallColours
from minigibbs.samplers.gibbs.sampler import Gibbs


class DeviceChains(Chains):
    """All chains of the model, side by side on the device."""

    def __init__(self, graph: FactorGraph, states: NDArray[Any], seed: tuple[int, ...]) -> None:
        if not lockstep_fits(graph):
            raise LearnError(
                'backend="cuda" is for graphs without evidence whose variables have few values, '
                "joined by pairs and by tables of two that are learned by their entries; use "
                'backend="cpu"'
            )
        CudaBackend().check()
        self.graph, self.swept = graph, 0
        self.layout = Layout(graph)
        self._states, self._key = np.ascontiguousarray(states), key_of(seed_of(seed))
        self._group: Any = None
        self._here = True  # whether the host's states are those of the chains

    @property
    def states(self) -> NDArray[Any]:  # type: ignore[override]
        """The chains' states on the host, to be read or, before an advance, to be changed."""
        if not self._here:
            self._states[:] = self._group.states()
            self._here = True
        return self._states

    def take(self, values: NDArray[np.float64]) -> None:
        """Send the weights."""
        laid = self.layout.at(values)
        with without_size_warnings():
            if self._group is None:
                self._group = self._placed(laid)
            else:
                self._group.take(laid)

    def _placed(self, laid: Any) -> Any:
        from minigibbs.running.backends.cuda_colours import CudaBits, CudaSmall

        options = Options(
            sampler=Gibbs(),
            chains=len(self._states),
            seed=0,
            record=(),
            scan="chromatic",
            backend="cuda",
        )
        plan = options.plan(self.graph, 0, len(self.graph))
        kind = CudaSmall if isinstance(laid, SmallColours) else CudaBits
        group = kind(plan, laid)
        group.key = [int(word) for word in self._key]
        group.place(self._states)
        return group

    def advance(self, sweeps: int, chosen: NDArray[np.integer] | None = None) -> None:
        """Sweep on the device; states that were looked at may have been changed, and go there."""
        assert chosen is None
        with without_size_warnings():
            if self._here:
                self._group.load(self._states)
            self._group.sweep(self.swept, sweeps)
        self.swept, self._here = self.swept + sweeps, False

    def save(self) -> dict[str, NDArray[Any]]:
        """States, and how many sweeps were made."""
        return {"states": self.states, "swept": np.array([self.swept])}

    def restore(self, saved: dict[str, NDArray[Any]]) -> None:
        """Take them up."""
        refill(self.states, saved["states"], self.graph)
        self.swept = int(saved["swept"][0])
