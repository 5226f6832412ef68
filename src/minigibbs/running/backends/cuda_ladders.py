"""Temperature ladders of spins on a GPU: a group of all ladders. See `cuda_ladder_kernels`.

The states at the target temperature are the chains of the run. They are copied to the layout of
chromatic scans (`cuda_colors_bits`), which counts, measures and records them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.random import streams
from minigibbs.running.backends.cuda_colors import WORD, Launch
from minigibbs.running.backends.cuda_colors_bits import CudaBits
from minigibbs.running.backends.cuda_group import LevelGroup, row_ends, without_size_warnings
from minigibbs.running.backends.device.access import load, to_device
from minigibbs.running.backends.device.launch import Again
from minigibbs.running.backends.device.shapes import configure
from minigibbs.running.group import State
from minigibbs.running.plan import Plan
from minigibbs.samplers.chromatic.places import BLOCK_SIZE
from minigibbs.samplers.chromatic.spin_energy import SpinEnergy
from minigibbs.samplers.tempering.ladder import (
    BLOCKS,
    EMPTY,
    KEY_0,
    KEY_1,
    LENGTH,
    ROUNDS,
    SWAPS,
    TRIPS,
    noted,
)
from minigibbs.samplers.tempering.sampler import nearest_slots
from minigibbs.samplers.tempering.spins import SpinLadder

_ADDING = 1 << 17  # threads that sum energies
_PART = 8  # least number of pairs per thread
_FEW = (1 << 14, 1 << 16)  # words per color below which four, or two, threads share each


class CudaLadders(LevelGroup, CudaBits):
    """All ladders of a plan: words x[place, group of 32 ladders, level] on the device."""

    def __init__(self, plan: Plan, ladder: SpinLadder) -> None:
        self.ladder, self.compiled = ladder, load("cuda_ladder_kernels")
        self.quads = -(-len(ladder.beta) // 4)  # quads of levels of one twin
        self.stride = 4 * self.quads
        self.columns = self.stride * ladder.twins  # columns of a group of ladders
        self.groups = -(-plan.chains // WORD)
        self._begun = 0  # index of the sweep that was the first round
        self._best: list[list[Again]] = []  # launches that keep the best states, by parity
        super().__init__(plan, ladder.model.spins._replace(variable=ladder.model.variable))

    @property
    def walking(self) -> bool:
        """True: states are copied to words of 32 chains, and from there to be counted."""
        return True

    def _chain_bytes(self) -> tuple[int, int]:
        """Return the bytes of all chains, and of arrays that exist once."""
        shown, once = super()._chain_bytes()
        levels, twins = len(self.ladder.beta), self.ladder.twins
        words = len(self.data.variable) * self.groups * self.columns
        words += 2 * len(self.data.variable) * self.groups * levels * (twins - 1)
        sums = 8 * twins * levels * (2 * BLOCKS + 2) + 16 * twins * self.columns
        return shown + 4 * words + sums * WORD * self.groups, once

    def _energy_parts(self) -> SpinEnergy:
        model = self.ladder.model
        field = model.unit * model.field.astype(np.float64)
        weight = model.unit * model.weight.astype(np.float64)
        return SpinEnergy(model.constant, field, model.pair, weight)

    def _parts_of_a_sweep(self) -> list[Launch]:
        """Return a function that makes a round: sweeps, clusters, energies, exchanges."""
        self._place_ladders()
        self._make_launches()

        def run(number: int, chains: int) -> None:
            if chains == 0:  # only compile
                for sweep in self._sweeps:
                    sweep.launch(*sweep.before, 0, 0, *(sweep.after or ())[1:])
                return
            self._round(number - self._begun)

        return [run]

    def _place_ladders(self) -> None:
        """Place the model, the ladders and their sums on the device."""
        ladder, cuda, m = self.ladder, self.cuda, len(self.data.variable)
        model, levels, twins = ladder.model, len(ladder.beta), ladder.twins
        chains = WORD * self.groups
        self._streams = streams(self.plan.seed, chains)
        self.keys = to_device(cuda, self._draw_keys())
        self.level_spins = [
            to_device(cuda, getattr(model.spins, name)) for name in self.own.Spins._fields
        ]
        betas = np.zeros((twins, self.stride), model.spins.base.dtype)
        betas[:, :levels] = ladder.beta
        self.betas = to_device(cuda, betas.ravel())
        apart = int(ladder.shift) or 16 * ladder.twin_words  # Philox calls of one twin
        first = apart * np.arange(twins)[:, None] + np.arange(self.quads)
        self.first_quad = to_device(cuda, first.ravel().astype(np.uint32))
        self.beta = to_device(cuda, ladder.beta)
        self.words_of = cuda.device_array(m * self.groups * self.columns, np.uint32)
        self.levels_of = self.words_of.reshape(m, self.groups * self.columns)
        field = model.field if model.field.any() else np.empty(0, np.int64)
        self.terms_of = [to_device(cuda, part) for part in (model.pair, model.weight, field)]
        across = (self.groups * self.columns, WORD)
        self.totals = [cuda.device_array(across, np.int64) for _ in range(2)]
        self.masks = [cuda.device_array(across[0], np.uint32) for _ in range(2)]
        self.labels = [cuda.device_array((twins, levels, chains), np.uint8) for _ in range(2)]
        self.trips = cuda.device_array((twins, chains), np.int64)
        self.accepted = cuda.device_array((twins, levels - 1, chains), np.float64)
        self.logs = cuda.device_array((BLOCKS, twins, levels - 1, 2, chains), np.float64)
        self._clear()
        if twins == 2:
            rank = np.empty(m, np.int32)
            rank[model.raster] = np.arange(m, dtype=np.int32)
            places = (model.raster, rank, model.start, rank[model.target])
            self.around = [to_device(cuda, part) for part in places]
            scratch = (self.groups * levels, m)
            self.scratch = [cuda.device_array(scratch, np.uint32) for _ in range(2)]

    def _make_launches(self) -> None:
        """Prepare the launches of a round."""
        own, model, ladder = self.compiled, self.ladder.model, self.ladder
        m, levels, twins = len(self.data.variable), len(ladder.beta), ladder.twins
        kind, ends = model.spins.base.dtype.type, model.spins.block_ends
        columns = self.groups * self.columns // own.QUAD
        settings = (self.columns // own.QUAD, self.first_quad, self.betas, self.keys)
        self._sweeps = []
        for first, end in pairwise(ends.tolist()):
            if end > first:
                items = (end - first) * BLOCK_SIZE * columns
                parts = _parts_of_words(items)
                launch = configure(own.sweep_levels(kind, parts), parts * items, own.THREADS)
                before = (*self.level_spins, first, end, *settings)
                after = (self.chains, self.levels_of, self.words_of, self.words_of.view(np.uint8))
                self._sweeps.append(Again(launch, before, after))
        terms = max(len(model.weight), m if model.field.any() else 0, 1)
        columns = self.levels_of.shape[1]
        self._energy_threads = max(min(_ADDING // columns, -(-terms // _PART)), 1)
        add = configure(own.add_energies, self._energy_threads * columns, own.THREADS)
        self._adding = [Again(add, (*self.terms_of, self.levels_of), (one,)) for one in self.totals]
        pairs = twins * (levels - 1) * WORD * self.groups
        self._deciding = configure(own.exchange_levels, pairs, own.THREADS)
        self._decide: dict[tuple[int, int], Again] = {}
        swaps = m * self.groups * twins * (levels // 2 + 1)
        self._swapping = configure(own.swap_levels, swaps, own.THREADS)
        self._swap: dict[tuple[int, int], Again] = {}
        if twins == 2:
            grow = configure(own.grow_clusters, self.groups * levels * own.GROWING, own.GROWING)
            before = (*self.around, self.keys, levels, self.stride, self.columns)
            self._growing = Again(grow, before, (self.levels_of, *self.scratch))

    def _round(self, number: int) -> None:
        """Launch round `number`."""
        ladder, side = self.ladder, number % 2
        for k in range(ladder.sweeps):
            for sweep in self._sweeps:
                sweep(number * ladder.sweeps + k)
        if ladder.twins == 2 and number % ladder.clusters == ladder.clusters - 1:
            self._growing(number)
        self._adding[side](self._energy_threads)
        for keep in self._best[side] if self._best else ():
            keep()
        if number == BLOCKS * self.block_rounds:
            halve = configure(self.compiled.halve_blocks, self.logs.size // BLOCKS, 128)
            halve(self.logs)
            self.block_rounds *= 2
        key = (side, number // self.block_rounds)
        if key not in self._decide:
            before = (
                self.beta, self.stride, self.columns, self.keys,
                ladder.model.constant, ladder.model.unit, key[1],
            )  # fmt: skip
            after = (
                self.totals[side], self.totals[1 - side], self.accepted, self.logs,
                self.labels[side], self.labels[1 - side], self.trips,
                self.masks[side], self.masks[1 - side],
            )  # fmt: skip
            self._decide[key] = Again(self._deciding, before, after)
        self._decide[key](number)
        swap = (side, id(self.copy))
        if swap not in self._swap:
            where = (self.masks[side], self.stride, self.columns, len(ladder.beta))
            shown = (side + 1) % ladder.twins
            rest = (shown, self.levels_of, self.x, self.copy)
            self._swap[swap] = Again(self._swapping, where, rest)
        self._swap[swap](side)

    def _keep_copy(self) -> None:
        """Do nothing: the last kernel of a round writes the copy."""

    def keep_best(self) -> None:
        """Keep the best state of all levels of every chain from now on."""
        own, ladders, device = self.compiled, WORD * self.groups, self.cuda
        best = device.to_device(np.full(ladders, np.iinfo(np.int64).min))
        chosen = device.to_device(np.full(ladders, -1, np.int64))
        self._kept = device.to_device(self.x.copy_to_host())
        find = configure(own.find_best, ladders, own.THREADS)
        keep = configure(own.keep_best, self._kept.size, own.THREADS)
        copying = Again(keep, (chosen, self.columns, self.levels_of, self._kept), None)
        shape = (self.columns, self.stride, len(self.ladder.beta))
        self._best = [
            [Again(find, (total, *shape, best, chosen), None), copying] for total in self.totals
        ]

    def best_states(self) -> NDArray[Any]:
        """Return the best states since `keep_best`: [chain, variable]."""
        with without_size_warnings():
            return self._unpacked(self._kept)

    def _keep_levels(self, record: int) -> None:
        """Copy all levels to the host, and record those of the recorded chains.

        Energies on the device precede the last exchange, whose masks are still available.
        """
        model, side, n = self.ladder.model, (self.rounds - 1) % 2, len(self.places)
        totals, masks = (own[side].copy_to_host() for own in (self.totals, self.masks))
        shape = (self.groups, self.columns, WORD)
        sums = model.constant + model.unit * totals.reshape(shape).astype(np.float64)
        bits = np.arange(WORD, dtype=np.uint32)
        swapped = (masks.reshape(*shape[:2], 1) >> bits & np.uint32(1)).astype(bool)
        columns = self._columns(np.arange(self.ladder.twins * len(self.ladder.beta)))
        words = self._by_column(self)
        for row, chain in enumerate(row_ends(self.plan)[:-1].tolist()):
            group, bit = divmod(chain, WORD)
            own, lower = sums[group, :, bit], np.flatnonzero(swapped[group, :, bit])
            own[lower], own[lower + 1] = own[lower + 1], own[lower]
            states = np.empty((len(columns), n), self.kind)
            states[:, self.places < 0] = np.maximum(self.plan.graph.evidence, 0)[self.places < 0]
            mine = words[:, group, columns] >> np.uint32(bit) & np.uint32(1)
            states[:, self.data.variable] = mine.T
            self.levels.keep(record, row, states, own[columns])

    def _write(self, states: NDArray[Any]) -> None:
        """Copy states [chain, variable] to all levels and to the chains."""
        super()._write(states)
        spread = configure(self.compiled.spread_states, self.levels_of.size, 128)
        spread(self.x, self.columns, self.levels_of)

    def load(self, states: NDArray[Any]) -> None:
        """Restart the ladders at states [chain, variable]; keys are drawn from their streams."""
        with without_size_warnings():
            self._clear()
            self.keys.copy_to_device(self._draw_keys())
            self._begun = self._sweep
            self._write(states)

    def follow(self, before: Any) -> None:
        """Continue ladders whose graph has other weights; see `Tempering.carry_over`."""
        self._sweep, self.warmed = before._sweep, before.warmed
        self._streams[:] = before._streams
        self.load(before.states())
        old, new = self._by_column(before), self._by_column(self)
        place = np.empty(len(self.places), np.int64)
        place[before.data.variable] = np.arange(len(before.data.variable))
        slots = nearest_slots(before.ladder, self.ladder)
        source, target = before._columns(slots), self._columns(np.arange(len(slots)))
        new[:, :, target] = old[place[self.data.variable]][:, :, source]
        self.words_of.copy_to_device(new.ravel())
        self._begun = self._sweep - before.rounds % 2

    @staticmethod
    def _by_column(group: CudaLadders) -> NDArray[np.uint32]:
        """Return the words of all levels on the host: [place, group of 32 ladders, column]."""
        words: NDArray[np.uint32] = group.words_of.copy_to_host()
        return words.reshape(len(group.data.variable), group.groups, group.columns)

    def _columns(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the columns of (twin, level) indices."""
        levels = len(self.ladder.beta)
        columns: NDArray[np.int64] = slots // levels * self.stride + slots % levels
        return columns

    @property
    def rounds(self) -> int:
        """Number of rounds since the ladders began."""
        return self._sweep - self._begun

    def _draw_keys(self) -> NDArray[np.uint32]:
        """Draw the keys of all ladders from the next word of each stream: [2, chain]."""
        word = _next_words(self._streams)
        halves = [word & np.uint64(0xFFFFFFFF), word >> np.uint64(32)]
        return np.array(halves).astype(np.uint32)

    def _clear(self) -> None:
        """Clear all statistics of the ladders."""
        for array in (*self.totals, *self.masks, *self.labels, self.trips, self.accepted):
            array.copy_to_device(np.zeros(array.shape, array.dtype))
        self.logs.copy_to_device(np.full(self.logs.shape, EMPTY))
        self.block_rounds = 1  # rounds of a block

    def _evaluations(self, draws: int) -> int:
        ladder = self.ladder
        each = ladder.sweeps * len(ladder.place) * len(ladder.model.spins.weight)
        return self._sweep * self.chains * each

    def state(self) -> State:
        """Return copies of the device's arrays, with statistics in the CPU's format."""
        words: NDArray[np.uint32] = self.words_of.copy_to_host()
        even = np.zeros(len(words) + len(words) % 2, np.uint32)
        even[: len(words)] = words
        return super().state() | {
            "stream": self._streams[: self.chains].copy(),
            "carried": self._carried(),
            "replicas": even.view(np.uint64)[None],
        }

    def _carried(self) -> NDArray[np.float64]:
        """Return all ladders' statistics [chain, number]; see `samplers.tempering.ladder`."""
        ladder, chains = self.ladder, self.chains
        levels, twins = len(ladder.beta), ladder.twins
        pairs, slots = levels - 1, levels * twins
        found = np.zeros((chains, noted(levels, twins)))
        found[:, ROUNDS], found[:, LENGTH] = self.rounds, self.block_rounds
        found[:, TRIPS] = self.trips.copy_to_host().sum(axis=0)[:chains]
        found[:, [KEY_0, KEY_1]] = self.keys.copy_to_host()[:, :chains].T
        accepted = self.accepted.copy_to_host().sum(axis=0)
        found[:, SWAPS : SWAPS + pairs] = accepted[:, :chains].T
        first = SWAPS + pairs + slots
        label = self.labels[self.rounds % 2].copy_to_host()[:, :, :chains]
        found[:, first : first + slots] = label.reshape(slots, chains).T
        logs = np.logaddexp.reduce(self.logs.copy_to_host()[..., :chains], axis=1)
        found[:, first + 2 * slots + twins :] = logs.reshape(-1, chains).T
        return found

    def restore(self, state: State) -> None:
        """Restore a state returned by `state`."""
        super().restore(state)
        words = np.ascontiguousarray(state["replicas"][0]).view(np.uint32)
        self.words_of.copy_to_device(words[: self.words_of.size])
        notes, chains, ladder = state["carried"], self.chains, self.ladder
        levels, twins = len(ladder.beta), ladder.twins
        pairs, slots = levels - 1, levels * twins
        self.block_rounds = int(notes[0, LENGTH])
        self._begun = self._sweep - int(notes[0, ROUNDS])
        self._streams[:chains] = state["stream"]
        first = SWAPS + pairs + slots

        def put(array: Any, values: NDArray[Any]) -> None:
            """Store the sum over twins at the first twin."""
            whole = np.zeros(array.shape, array.dtype)
            whole[..., :chains] = values
            array.copy_to_device(whole)

        trips, accepted = np.zeros((twins, chains), np.int64), np.zeros((twins, pairs, chains))
        trips[0], accepted[0] = notes[:, TRIPS], notes[:, SWAPS : SWAPS + pairs].T
        put(self.keys, notes[:, [KEY_0, KEY_1]].T)
        put(self.trips, trips)
        put(self.accepted, accepted)
        label = notes[:, first : first + slots].T.reshape(twins, levels, chains)
        put(self.labels[self.rounds % 2], label)
        logs = np.full((BLOCKS, twins, pairs, 2, chains), EMPTY)
        logs[:, 0] = notes[:, first + 2 * slots + twins :].T.reshape(BLOCKS, pairs, 2, chains)
        put(self.logs, logs)


def _parts_of_words(items: int) -> int:
    """Return the number of threads that share a word if each of `items` words had one thread."""
    return 1 if items >= _FEW[1] else 2 if items >= _FEW[0] else 4


def _next_words(rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Advance each stream [chain, 4] and return its word; see `kernels.random.next_word`."""
    with np.errstate(over="ignore"):
        words: NDArray[np.uint64] = _rotated(rows[:, 0] + rows[:, 3], 23) + rows[:, 0]
    shifted = rows[:, 1] << np.uint64(17)
    rows[:, 2] ^= rows[:, 0]
    rows[:, 3] ^= rows[:, 1]
    rows[:, 1] ^= rows[:, 2]
    rows[:, 0] ^= rows[:, 3]
    rows[:, 2] ^= shifted
    rows[:, 3] = _rotated(rows[:, 3], 45)
    return words


def _rotated(words: NDArray[np.uint64], left: int) -> NDArray[np.uint64]:
    return (words << np.uint64(left)) | (words >> np.uint64(64 - left))
