"""Temperature ladders of small domains on a GPU: a group of all ladders. See `cuda_level_kernels`.

States, statistics and streams are those of `CudaGroup`, so that they are saved and resumed alike.
Only the sweeps are launched differently: with one thread per chain and level.
"""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.running.backends.cuda_group import WARP, LevelGroup, row_ends, without_size_warnings
from minigibbs.running.backends.device.access import load, to_device
from minigibbs.running.backends.device.launch import Again
from minigibbs.running.backends.device.shapes import configure
from minigibbs.running.group import State
from minigibbs.running.plan import Plan
from minigibbs.samplers.chromatic.places import BLOCK_SIZE
from minigibbs.samplers.tempering.ladder import ROUNDS
from minigibbs.samplers.tempering.sampler import ladder_slots
from minigibbs.samplers.tempering.small import SerialLadder

_ADDING = 1 << 17  # threads that sum energies
_PART = 16  # least number of terms per thread
_CLUSTER_BYTES = 1 << 30  # bytes of scratch for clusters that grow at the same time


def in_parallel(data: Any) -> bool:
    """Return whether a ladder's levels are updated by one thread each.

    Parameters
    ----------
    data : NamedTuple
        A sampler's data. Ladders with hard constraints have one thread per chain.
    """
    return isinstance(data, SerialLadder) and not data.hard


class CudaSmallLadders(LevelGroup):
    """All ladders of a plan: replicas[value, chain] as bytes on the device."""

    _rounds: int | None = None  # of the ladders since they began; None if only the device knows

    def __init__(self, plan: Plan, data: SerialLadder) -> None:
        self.compiled = load("cuda_level_kernels")
        super().__init__(plan, data)
        self.within = False
        self._best: list[Again] = []  # launches that keep the best states

    def _chain_bytes(self) -> tuple[int, int]:
        """Return the bytes of all chains, and of arrays that exist once."""
        chains, once = super()._chain_bytes()
        each = 8 * self.space.scratch * self.chains
        levels = len(self.data.beta)
        self.together = min(max(_CLUSTER_BYTES // max(each, 1), 1), levels)  # levels of clusters
        return chains + self.together * each + 8 * len(self.data.place) * self.chains, once

    def place(self, states: NDArray[Any], words: NDArray[np.uint64]) -> None:
        """Place initial states [chain, variable] and streams [chain, 4] on the device."""
        super().place(states, words)
        self._make_launches()

    def _make_launches(self) -> None:
        """Prepare the launches of a round."""
        own, data, device = self.compiled, self.data, self.cuda
        slots, chains, replicas = len(data.place), self.device_chains, self.device_replicas
        self.keys = device.device_array((2, self.chains), np.uint32)
        self.total = device.to_device(np.zeros((slots, self.chains), np.int64))
        beta = np.tile(data.beta, data.twins).astype(np.float32)
        parts = (to_device(device, part) for part in (data.place, data.replica, beta))
        self._levels = levels = own.Levels(*parts, data.stride)
        self._sweeps = self._color_launches(levels)
        self._adding = self._energy_launch(levels)
        decide = configure(own.decide_levels, self.chains, own.ALONE)
        self._deciding = Again(decide, (self.device_data, chains, self.total), None)
        self._order = order = to_device(device, data.order)
        items = len(order) * data.twins * (len(data.beta) // 2 + 1) * self.chains
        swap = configure(own.swap_small_levels, items, own.THREADS)
        before = (self.device_data, chains.carried, order)
        self._swapping = Again(swap, before, (replicas, chains.x))
        rows = self.together * self.space.scratch if data.twins == 2 else 0
        scratch = device.to_device(np.zeros((rows, self.chains), np.int64))
        grow = configure(own.exchange_level_clusters, self.together * self.chains, own.ALONE)
        ladders = (self.device_data, chains, replicas, scratch)
        self._growing = Again(grow, ladders, (self.together,))
        self._reading = configure(own.read_keys, self.chains, own.THREADS)

    def _energy_launch(self, levels: Any) -> Again:
        """Return the launch that adds the energies of all slots."""
        own, model, slots = self.compiled, self.data.model, len(self.data.place)
        arrays = [self.data.order, *(getattr(model, name) for name in own.Terms._fields[1:])]
        terms = own.Terms(*(to_device(self.cuda, array) for array in arrays))
        count = len(model.pair) + len(model.scope)
        parts = max(min(_ADDING // (slots * self.chains), -(-count // _PART)), 1)
        add = configure(own.add_level_energies, parts * slots * self.chains, own.THREADS)
        return Again(add, (terms, levels, parts, self.total, self.device_replicas), None)

    def _color_launches(self, levels: Any) -> list[Again]:
        """Return one launch per color."""
        own, colors = self.compiled, self.data.model.colors
        kernel = own.sweep_levels(int(self.plan.graph.sizes.max()))
        names = ("blocks", "variable", "first", "base", "target", "weight", "start", "table")
        arrays = tuple(to_device(self.cuda, getattr(colors, name)) for name in names)
        threads = min(own.THREADS, -(-self.chains // WARP) * WARP)
        tiles, slots = -(-self.chains // threads), len(self.data.place)
        launches = []
        for first, end in pairwise(colors.block_ends.tolist()):
            if end > first:
                items = ((end - first) * BLOCK_SIZE * tiles * threads, slots)
                before = (
                    *arrays, colors.stride, first, end, tiles, levels.place, levels.replica,
                    levels.beta, levels.stride, self.keys,
                )  # fmt: skip
                after = (self.chains, self.device_replicas)
                launches.append(Again(configure(kernel, items, threads), before, after))
        return launches

    def _begin(self) -> None:
        super()._begin()
        self._rounds = None

    def restore(self, state: State) -> None:
        """Restore a state returned by `state`."""
        super().restore(state)
        self._rounds = None

    def follow(self, before: Any) -> None:
        """Continue ladders whose graph has other weights; see `Tempering.carry_over`."""
        super().follow(before)
        self._rounds = None

    def _launch(self, updates: int) -> None:
        """Make this number of updates of every chain; return before they are done."""
        if not self.scan.variables or not len(self.data.order):
            super()._launch(updates)  # every variable has one value
            return
        if updates == 0:
            for sweep in self._sweeps:
                sweep.launch(*sweep.before, 0, 0, self.device_replicas)
            return
        if self._rounds is None:
            self._reading(self.device_chains.carried, self.data.own, self.keys)
            made = self.device_chains.carried[self.data.own + ROUNDS, :1].copy_to_host()
            self._rounds = int(made[0])
        for _ in range(updates // self.unit):
            self._round(self._rounds)
            self._rounds += 1

    def _round(self, number: int) -> None:
        """Launch round `number`."""
        data = self.data
        for k in range(data.sweeps):
            for sweep in self._sweeps:
                sweep(number * data.sweeps + k)
        if data.twins == 2 and number % data.clusters == data.clusters - 1:
            for first in range(0, len(data.beta), self.together):
                self._growing(first)
        self._adding()
        for keep in self._best:
            keep()
        self._deciding()
        self._swapping(number)

    def keep_best(self) -> None:
        """Keep the best state of all levels of every chain from now on."""
        own, device, x = self.compiled, self.cuda, self.device_chains.x
        best = device.to_device(np.full(self.chains, np.iinfo(np.int64).min))
        chosen = device.to_device(np.full(self.chains, -1, np.int64))
        self._kept = device.to_device(x.copy_to_host())
        find = configure(own.find_best, self.chains, own.ALONE)
        keep = configure(own.keep_best, len(self._order) * self.chains, own.THREADS)
        arrays = (chosen, self._levels, self._order, self.device_replicas, self._kept)
        self._best = [Again(find, (self.total, best, chosen), None), Again(keep, arrays, None)]

    def best_states(self) -> NDArray[Any]:
        """Return the best states since `keep_best`: [chain, variable]."""
        with without_size_warnings():
            return self._turned(self._kept)

    def _keep_levels(self, record: int) -> None:
        """Copy all levels to the host, and record those of the recorded chains."""
        chains = self.device_chains
        arrays = (chains.x, chains.carried, self.device_replicas)
        x, carried, replicas = (array.copy_to_host() for array in arrays)
        for row, chain in enumerate(row_ends(self.plan)[:-1].tolist()):
            one: Any = SimpleNamespace(x=x[:, chain], carried=carried[:, chain])
            states, energies = ladder_slots(self.data, one, replicas[:, chain])
            self.levels.keep(record, row, states, energies)
