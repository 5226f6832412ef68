"""Chromatic scans on a GPU: what groups of all chains have in common, whatever their values are.

`cuda_colors_bits` has spins, `cuda_colors_stencil` spins on a lattice, `cuda_colors_small` small
domains, `cuda_colors_points` points.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.layout import CHANGES, DRAWS, EVALUATIONS
from minigibbs.kernels.philox import key_of
from minigibbs.running.backends.cuda_group import COUNT_EVERY, CudaGroup, without_size_warnings
from minigibbs.running.backends.device.access import load
from minigibbs.running.backends.device.launch import Again
from minigibbs.running.backends.device.shapes import configure
from minigibbs.running.group import State
from minigibbs.running.plan import Plan
from minigibbs.samplers.chromatic.places import BLOCK_SIZE

WORD = 32  # chains in a word
_MOST_SWEEPS = 16  # between two counts of the marginals

Launch = Callable[[int, int], None]  # launch(sweep, chains); chains=0 only compiles


class CudaColors(CudaGroup):
    """All chains of a plan, color by color; the draws are those of the CPU."""

    kernels_name: ClassVar[str]
    launches: list[Launch]
    slots: ClassVar[int] = 4096  # where threads add up what they count
    changed: Any  # [slot] updates that changed a value
    drawn: Any  # [slot] factors drawn

    def __init__(self, plan: Plan, data: Any) -> None:
        self.own = load(self.kernels_name)
        self.key = [int(word) for word in key_of(plan.seed)]
        super().__init__(plan, data)
        self.within = False
        sweep = plan.graph.free or COUNT_EVERY
        self.every = sweep * min(-(-COUNT_EVERY // sweep), _MOST_SWEEPS)
        self._sweep = 0

    @abstractmethod
    def _parts_of_a_sweep(self) -> list[Launch]:
        """What is launched, one after the other, to make a sweep."""

    def mark(self, counting: Any, first: Any, sizes: Any, marks: Any) -> None:
        """Set a bit of marks[word, first + value] for every chain that has it, by `cuda_counts`."""
        run = configure(counting.mark_values, marks.shape[0] * len(first), counting.THREADS)
        run(self.device_chains.x, first, sizes, marks)

    @abstractmethod
    def _read(self) -> NDArray[Any]:
        """All states on the host: [chain, variable]."""

    @abstractmethod
    def _write(self, states: NDArray[Any]) -> None:
        """Put states [chain, variable] on the device."""

    def load(self, states: NDArray[Any]) -> None:
        """Restart the chains at states [chain, variable]; sweeps are numbered as before."""
        with without_size_warnings():
            self._write(states)

    def states(self) -> NDArray[Any]:
        """All states on the host: [chain, variable]."""
        with without_size_warnings():
            return self._read()

    def follow(self, before: Any) -> None:
        """Continue the chains of a group whose graph has other weights."""
        self._sweep, self.warmed = before._sweep, before.warmed
        self.load(before.states())

    @property
    def swept(self) -> int:
        """How many sweeps were made, those of the warm-up included."""
        return self._sweep

    @swept.setter
    def swept(self, sweeps: int) -> None:
        self._sweep = sweeps

    def _again(
        self, launch: Any, before: tuple[Any, ...], chains: int, *after: Callable[[], Any] | Any
    ) -> Launch:
        """A launch that is made in every sweep: before its number stand these, and the seed.

        Behind it stand how many chains there are, or 0 to compile, and the rest, of which the last
        may be a function that gives one of a few arrays.
        """
        ready: dict[int, Again] = {}

        def run(sweep: int, some: int) -> None:
            last = after[-1]() if callable(after[-1]) else after[-1]
            rest = (*after[:-1], last)
            if some == 0:
                launch(*before, *self.key, sweep, 0, *rest)
                return
            if id(last) not in ready:
                ready[id(last)] = Again(launch, (*before, *self.key), (chains, *rest))
            ready[id(last)](sweep)

        return run

    def _by_blocks(self, kernel: Any, blocks: int, columns: int) -> Any:
        """A kernel with blocks of places along its first axis, and their columns folded."""
        threads = self.own.THREADS
        items = (blocks * threads, -(-BLOCK_SIZE * columns // threads))
        return configure(kernel, items, threads, folded=True)

    def compile(self) -> None:
        """Compile the kernel that advances."""
        for launch in self.launches[:1]:
            launch(0, 0)
        self.cuda.synchronize()

    def _launch(self, updates: int) -> None:
        """Make this number of updates of every chain; returns before they are made."""
        for _ in range(updates // self.unit):
            for launch in self.launches:
                launch(self._sweep, self.chains)
            self._sweep += 1

    def state(self) -> State:
        """Copies of the device's arrays."""
        self._flush()
        tally = np.zeros((1, CHANGES + 1), np.int64)
        noted = self.changed.copy_to_host().sum()
        tally[0, CHANGES] = self._changes(int(noted))
        tally[0, DRAWS] = self.drawn.copy_to_host().sum()
        tally[0, EVALUATIONS] = self._evaluations(int(tally[0, DRAWS]))
        return {
            "x": self._read(),
            "stream": np.ones((1, 4), np.uint64),  # none is needed
            "carried": np.empty((self.chains, 0)),
            "replicas": np.empty((self.chains, 0), self.kind),
            "tally": tally,
            "noted": np.array([noted]),
            "order": np.empty(0, np.int32),
            "position": np.zeros(1, np.int64),
            "path": self.scan.stream,
            "walked": np.zeros(1, np.int64),
            "counted": self._counted.copy(),
            "counts": self._host_counts(),
            "clock": np.array([self._clock]),
            "warmed": np.array([self.warmed]),
            **self.observer.state(),
        }

    def _evaluations(self, draws: int) -> int:
        """The number of evaluated factors, without those that were drawn."""
        return self._sweep * self.chains * len(self.data.target)

    def _changes(self, noted: int) -> int:
        """How many updates changed a value, from the number of those that were noted."""
        return noted

    def restore(self, state: State) -> None:
        """Take up a state."""
        self._write(state["x"])
        self.observer.restore(state)
        changed = np.zeros(self.slots, np.int64)
        changed[0] = state["noted"][0]
        self.changed.copy_to_device(changed)
        changed[0] = state["tally"][0, DRAWS]
        self.drawn.copy_to_device(changed)
        self._counted[:] = state["counted"]
        self.counts = self.cuda.to_device(np.ascontiguousarray(state["counts"]))
        self._clock, self.warmed = int(state["clock"][0]), int(state["warmed"][0])
        self._sweep = (self._clock + self.warmed) // self.unit
        self.filled, self.flushed = 0, self.records
