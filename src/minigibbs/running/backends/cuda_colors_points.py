"""Scans of points on a GPU: a group of all chains, one block of threads each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.factors.implicit.points import Points
from minigibbs.kernels.decay import GAUSSIAN
from minigibbs.running.backends.cuda_colors import CudaColors, Launch
from minigibbs.running.backends.device.access import to_device
from minigibbs.running.backends.device.shapes import LIMITS, configure
from minigibbs.running.backends.packed_points import pack_points
from minigibbs.samplers.chromatic.points import PointColors

_FEW_CHAINS = 528  # blocks of threads that leave half of a device idle


class CudaPoints(CudaColors):
    """Points, one block of threads per chain: x[chain, place] on the device. See `cuda_points`.

    After each launch the states are transposed to x[variable, chain] for records and counts.
    """

    kernels_name = "cuda_points"
    data: PointColors

    @property
    def features(self) -> int:
        """Largest number of features of a point."""
        groups = self.plan.graph.implicits
        return max(int(group.features.shape[1]) for group in groups if isinstance(group, Points))

    def _chain_bytes(self) -> tuple[int, int]:
        """Return the bytes of all chains, and of arrays that exist once."""
        return 2 * self.chains * len(self.plan.graph), 16 * self.slots

    def place(self, states: NDArray[Any] | None, words: NDArray[np.uint64] | None = None) -> None:
        """Place initial states [chain, variable] on the device, or draw them there."""
        graph, data = self.plan.graph, self.data
        self.domain = int(graph.sizes.max())
        self.device_data = to_device(self.cuda, data._replace(homes=data.homes.reshape(-1)))
        self.packed = to_device(self.cuda, pack_points(data, self.features))
        self.device_model = to_device(self.cuda, self.model)
        turned = self.cuda.device_array((len(graph), self.chains), self.kind)
        self.device_chains = SimpleNamespace(x=turned)
        self.x = self.cuda.device_array((self.chains, len(graph)), self.kind)
        self.changed = self.cuda.to_device(np.zeros(self.slots, np.int64))
        self.drawn = self.cuda.to_device(np.zeros(self.slots, np.int64))
        if states is None:
            sizes, evidence = (to_device(self.cuda, a) for a in (graph.sizes, graph.evidence))
            first = configure(self.own.first_places, self.x.size, self.own.THREADS)
            first(sizes, evidence, self.device_data.variable, *self.key, self.x)
            self._to_variables()
        else:
            self._write(states)
        self._place_records()
        self.launches = self._parts_of_a_sweep()

    def _parts_of_a_sweep(self) -> list[Launch]:
        """Return the one launch of a sweep."""
        threads = self.own.THREADS if self.chains > _FEW_CHAINS else 2 * self.own.THREADS
        plain = bool((self.data.codes == GAUSSIAN).all())
        groups = len(self.data.codes)
        sizes, chunk = (groups, self.domain, self.features), self.own.CHUNK
        while self.own.shared_bytes(*sizes, chunk) > LIMITS.shared:
            chunk //= 2
        near = self.own.near_bytes(self.x.shape[1], self.domain)
        if self.own.shared_bytes(*sizes, chunk) + near > self.own.NEAR_BYTES:
            near = 0
        kernel = self.own.sweep_points(*sizes, plain, threads, chunk, near > 0)
        run = configure(kernel, self.chains * threads, threads, shared=near)
        data, x, counted = self.device_data, self.x, (self.changed, self.drawn)
        pace = self.cuda.to_device(np.zeros(2 * self.own.PACES, np.uint32))
        return [self._again(run, (data, self.packed), self.chains, x, *counted, pace)]

    def _launch(self, updates: int) -> None:
        """Make this number of updates of every chain, and transpose the states."""
        super()._launch(updates)
        self._to_variables()

    def _to_variables(self) -> None:
        """Transpose the states of the device."""
        side = self.own.TILE
        items = (self.x.shape[1], self.chains)
        turned = configure(self.own.to_variables, items, (side, side))
        turned(self.x, self.device_data.variable, self.device_chains.x)

    def _evaluations(self, draws: int) -> int:
        return draws

    def _read(self) -> NDArray[Any]:
        return self._turned(self.device_chains.x)

    def _write(self, states: NDArray[Any]) -> None:
        self._turn(states, self.device_chains.x)
        write = configure(self.own.to_places, self.x.size, self.own.THREADS)
        write(self.device_chains.x, self.device_data.variable, self.x)
