"""Chromatic scans of small domains on a GPU: a group of all chains. See `cuda_small`."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.running.backends.cuda_colors import CudaColors, Launch
from minigibbs.running.backends.device.access import to_device
from minigibbs.running.backends.device.shapes import LIMITS, configure
from minigibbs.samplers.chromatic.small import SmallColors
from minigibbs.samplers.chromatic.small_tails import SmallTailColors

_SHARING = 4  # threads of a chain that share a site's tables
_MANY = 40_000  # chains from which on half as many do


class CudaSmall(CudaColors):
    """Small domains, one byte per chain: x[variable, chain] on the device. See `cuda_small`."""

    kernels_name = "cuda_small"
    sites: SimpleNamespace | None = None  # where all are joined by tables: what they are made of

    def _chain_bytes(self) -> tuple[int, int]:
        """Bytes of all chains, and of what there is once."""
        size = self.chains * len(self.plan.graph)
        return size, 8 * self.slots + self._site_bytes()

    def place(self, states: NDArray[Any] | None, words: NDArray[np.uint64] | None = None) -> None:
        """Begin: with first states [chain, variable], or with random ones made on the device."""
        graph = self.plan.graph
        self.domain = int(graph.sizes.max())
        self._place_small()
        self.device_model = to_device(self.cuda, self.model)
        x = self.cuda.device_array((len(graph), self.chains), self.kind)
        self.device_chains = SimpleNamespace(x=x)
        self.changed = self.cuda.to_device(np.zeros(self.slots, np.int64))
        self.drawn = self.cuda.to_device(np.zeros(self.slots, np.int64))
        if states is None:
            sizes, evidence = (to_device(self.cuda, a) for a in (graph.sizes, graph.evidence))
            first = configure(self.own.first_values, x.size, self.own.THREADS)
            first(sizes, evidence, *self.key, x)
        else:
            self._write(states)
        self._place_records()
        self.launches = self._parts_of_a_sweep()

    def _place_small(self) -> None:
        self.small = [to_device(self.cuda, part) for part in self._arrays()]

    def set_weights(self, data: Any) -> None:
        """Continue with other weights."""
        self.data = data
        if self.sites is not None:
            self._fill_sites()
            return
        self._place_small()
        self.launches = self._parts_of_a_sweep()

    def _place_sites(self) -> None:
        """Make space for the fields and tables of all sites, on both sides, and fill it."""
        sites, most = len(self.data.variable), self.domain
        cells = site_cells(self.data, most)
        shapes = {"fields": (sites, most), "tables": cells.shape}
        self.sites = SimpleNamespace(
            cells=cells,
            variable=to_device(self.cuda, self.data.variable),
            tables=np.empty(cells.shape, self.data.table.dtype),
            **{
                f"device_{name}": self.cuda.device_array(shape, self.data.table.dtype)
                for name, shape in shapes.items()
            },
        )
        self._fill_sites()

    def _fill_sites(self) -> None:
        """Send the weights."""
        own, data = self.sites, self.data
        assert own is not None
        own.device_fields.copy_to_device(data.base.reshape(own.device_fields.shape))
        np.take(data.table, own.cells, out=own.tables, mode="clip")  # unchecked: none is outside
        own.device_tables.copy_to_device(own.tables)

    def _arrays(self) -> list[NDArray[Any]]:
        """What kernels read, with variables instead of places, by which states are stored."""
        data, tails = self.data, isinstance(self.data, SmallTailColors)
        names = (self.own.SmallTails if tails else self.own.Small)._fields
        arrays = {name: getattr(data, name) for name in names}
        arrays["target"] = data.variable[data.target]
        if tails:
            arrays["tail"] = data.tail.copy()
            for name in ("place", "other"):
                signed = data.tail[name]
                arrays["tail"][name] = np.sign(signed) * (data.variable[np.abs(signed) - 1] + 1)
        return list(arrays.values())

    def _parts_of_a_sweep(self) -> list[Launch]:
        """One launch per color, or one for all, with tails or sites that are joined by tables."""
        own, x, changed = self.own, self.device_chains.x, self.changed
        if isinstance(self.data, SmallTailColors):
            walkers = -(-self.chains // own.QUAD)
            alike = bool((self.plan.graph.sizes == self.domain).all())
            whole = self.chains % own.QUAD == 0
            kernel = own.walk_with_tails(self.domain, alike, whole)
            walk, flat = configure(kernel, walkers, own.WALKING), x.reshape(x.size)
            words = flat.view(np.uint32) if whole else self.changed.view(np.uint32)  # not read
            states = (x, flat, words)
            own_arrays = tuple(self.small)
            return [self._again(walk, own_arrays, self.chains, *states, changed, self.drawn)]
        if self._site_bytes():
            threads = _SHARING if self.chains < _MANY else _SHARING // 2
            sites, most = len(self.data.variable), self.domain
            kernel = own.sweep_sites(sites, most, threads)
            run = configure(kernel, threads * self.chains, threads * own.CHAINS)
            self._place_sites()
            assert self.sites is not None
            places = (self.sites.variable, self.sites.device_fields, self.sites.device_tables)
            return [self._again(run, places, self.chains, x, changed)]
        kernel, ends = own.sweep_color(self.domain), self.data.block_ends
        stride = self.data.stride

        def launch(first: int, blocks: int) -> Launch:
            update = self._by_blocks(kernel, blocks, self.chains)
            where = (*self.small, stride, first)
            return self._again(update, where, self.chains, x, changed)

        return [launch(begin, end - begin) for begin, end in pairwise(ends.tolist()) if end > begin]

    def _site_bytes(self) -> int:
        """Bytes of the tables of all sites, where all are joined by tables; else 0."""
        data, sites = self.data, len(self.data.variable)
        if isinstance(data, SmallTailColors):
            return 0
        most = int(self.plan.graph.sizes.max())
        alone = len(data.ends) - 1 == sites > 1 and len(data.target) == sites * (sites - 1)
        alike = alone and (np.diff(data.first) == most).all() and (data.start >= 0).all()
        shared = self.own.shared_bytes(sites, most, _SHARING)
        return 4 * (sites * most) ** 2 if alike and shared <= LIMITS.shared else 0

    def _read(self) -> NDArray[Any]:
        return self._turned(self.device_chains.x)

    def _write(self, states: NDArray[Any]) -> None:
        self._turn(states, self.device_chains.x)


def site_cells(data: SmallColors, most: int) -> NDArray[np.int64]:
    """Where the tables of every place begin: [place, (other place, its value, own value)]."""
    sites, values = len(data.variable), np.arange(most)
    cells = np.full((sites, sites, most, most), len(data.table) - 1)  # which is 0
    owner = np.repeat(np.arange(sites), sites - 1)  # of single places the entries stand in order
    cells[owner, data.target] = data.start[:, None, None] + values[:, None] + values * data.stride
    return cells.reshape(sites, sites * most * most)
