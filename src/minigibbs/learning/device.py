"""Chains of learning on a GPU: weights are sent, counts of values are returned.

They are the chromatic groups of `running`. Layout and random bits are those of vectorized chains on
the CPU, so a seed gives the same chains on both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.engine.ensemble import State
from minigibbs.errors import LearnError
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.parameters import Frame
from minigibbs.learning.chains import Chains, Threads, refill, seed_of
from minigibbs.learning.lockstep import LearnedLayout, sweeps_of
from minigibbs.running.backends import BACKENDS
from minigibbs.running.backends.cuda import GROUPS
from minigibbs.running.backends.cuda_group import without_size_warnings
from minigibbs.running.backends.device.access import load, to_device
from minigibbs.running.backends.device.shapes import configure
from minigibbs.running.request import unrecorded
from minigibbs.samplers.gibbs.sampler import Gibbs
from minigibbs.samplers.registry import CHROMATIC, CUDA, learned_layout

# Largest number of counts of values and pairs of values: half a gigabyte while they are listed.
_MOST_COUNTED = 1 << 22


class DeviceChains(Chains):
    """All chains of the model, stored together on the device."""

    def __init__(self, graph: FactorGraph, states: NDArray[Any], seed: tuple[int, ...]) -> None:
        if learned_layout(graph) is None:
            raise LearnError(
                'backend="cuda" is for graphs without evidence whose variables have few values, '
                "joined by pairs and by tables of two that are learned by their entries; use "
                'backend="cpu"'
            )
        BACKENDS[CUDA].check()
        self.graph, self.layout = graph, LearnedLayout(graph)
        self._states, self._seed = np.ascontiguousarray(states), seed_of(seed)
        self._group: Any = None
        self._here = True  # whether the host's states are current
        self._counts: Counts | None = None
        self._swept = 0  # sweeps before the group was created

    def states(self) -> NDArray[Any]:
        """Return the chains' states on the host, read-only; see `load`."""
        if not self._here:
            self._states[:] = self._group.states()
            self._here = True
        states = self._states.view()
        states.flags.writeable = False
        return states

    def load(self, states: NDArray[Any]) -> None:
        """Copy states to the device."""
        self._states[:] = states
        self._here = True
        if self._group is not None:
            self._group.load(self._states)

    def summed(
        self, frame: Frame, weights: NDArray[np.float64] | None, threads: Threads
    ) -> NDArray[np.float64]:
        """Return the statistics of all chains, from counts made on the device."""
        if weights is not None or self._group is None or not Counts.possible(frame, self._group):
            return super().summed(frame, weights, threads)
        with without_size_warnings():
            counts = self._counter(frame).count()
        return frame.from_counts(counts, len(self))

    def marks(self, frame: Frame) -> Any:
        """Return the chains' values on the device: bits [word of 32 chains, value].

        The array, of int32, is reused by the next call.
        """
        with without_size_warnings():
            return self._counter(frame).mark().view(np.int32)

    def _counter(self, frame: Frame) -> Counts:
        if self._counts is None or self._counts.frame is not frame:
            self._counts = Counts(frame, self._group)
        return self._counts

    def set_weights(self, values: NDArray[np.float64]) -> None:
        """Copy the weights to the device."""
        laid = self.layout.at(values)
        with without_size_warnings():
            if self._group is None:
                self._group = self._placed(laid)
            else:
                self._group.set_weights(laid)

    def _placed(self, laid: Any) -> Any:
        plan = unrecorded(self.graph, Gibbs(), len(self), self._seed, CUDA, CHROMATIC)
        group: Any = GROUPS[type(laid)](plan, laid)
        group.place(self._states)
        group.swept = self._swept
        return group

    def sweep(self, sweeps: int, chosen: NDArray[np.integer] | None = None) -> None:
        """Sweep on the device."""
        assert chosen is None
        self._group.advance(sweeps * self.unit)
        self._here = False

    def state(self) -> State:
        """Return the states, and the number of sweeps made."""
        swept = self._swept if self._group is None else self._group.swept
        return {"states": self.states(), "swept": np.array([swept])}

    def restore(self, state: State) -> None:
        """Restore a state returned by `state`."""
        states = self._states.copy()
        refill(states, state["states"], self.graph)
        self.load(states)
        self._swept = sweeps_of(state)
        if self._group is not None:
            self._group.swept = self._swept


class Counts:
    """Joint counts of values over the chains of a group, by `cuda_counts`."""

    @staticmethod
    def possible(frame: Frame, group: Any) -> bool:
        """Return whether the device can count these statistics, and has space for it."""
        if not frame.countable or frame.counted_size > _MOST_COUNTED:
            return False
        size = 12 * frame.counted_size + group.chains * int(frame.sizes.sum(dtype=np.int64)) // 8
        return bool(2 * size < group.free_bytes)

    def __init__(self, frame: Frame, group: Any) -> None:
        self.own, self.group, self.cuda = load("cuda_counts"), group, group.cuda
        self.frame = frame
        counted, first = frame.counted, frame.structure.first.astype(np.int32)
        sizes = frame.sizes.astype(np.int32)
        shape = (-(-group.chains // self.own.WORD), int(frame.sizes.sum(dtype=np.int64)))
        self.marks = self.cuda.device_array(shape, np.uint32)
        self.counts = self.cuda.device_array(len(counted.one), np.int32)
        self.one, self.other, self.first, self.sizes = (
            to_device(self.cuda, array) for array in (counted.one, counted.other, first, sizes)
        )

    def mark(self) -> Any:
        """Set a bit for each value of each chain."""
        self.group.mark(self.own, self.first, self.sizes, self.marks)
        return self.marks

    def count(self) -> NDArray[np.int32]:
        """Count on the device, and copy the counts to the host."""
        self.mark()
        count = configure(self.own.count_marks, self.counts.size, self.own.THREADS)
        count(self.marks, self.one, self.other, self.counts)
        counts: NDArray[np.int32] = self.counts.copy_to_host()
        return counts
