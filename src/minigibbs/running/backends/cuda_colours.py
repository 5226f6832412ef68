"""Spins by colours on a GPU: a group of all chains, 32 of them in a word. See `cuda_bits`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.kernels.layout import CHANGES
from minigibbs.kernels.philox import key_of
from minigibbs.running.backends.cuda import (
    LANES,
    CudaGroup,
    blocks_along,
    load,
    row_ends,
    to_device,
)
from minigibbs.running.group import State
from minigibbs.running.plan import Plan
from minigibbs.samplers.chromatic.places import BLOCK_SIZE
from minigibbs.samplers.chromatic.spin_energy import spin_energy
from minigibbs.samplers.chromatic.spins import SpinColours

_NOTING = 8448  # blocks of threads that note what has changed, at the most
_SLOTS = 4096  # where they add up how much
_ADDING = 1 << 17  # threads that add up energies
_MOST_RECORDS = 4096  # that wait on the device
_BUFFER_BYTES = 1 << 28
_READ_BYTES = 1 << 28  # of states on their way to the host
_WALKERS = 1 << 14  # threads that keep a device busy, each with chains of its own
_FEW_WORDS = 1 << 14  # and threads that update a word of a colour each


class CudaBits(CudaGroup):
    """All chains of a plan; x[place, word] on the device."""

    def __init__(self, plan: Plan, data: SpinColours) -> None:
        self.bits = load("cuda_bits")
        self.words = -(-plan.chains // self.bits.WORD)
        self.key = [int(word) for word in key_of(plan.seed)]
        self.places = np.full(len(plan.graph), -1, dtype=np.int32)
        self.places[data.variable] = np.arange(len(data.variable), dtype=np.int32)
        super().__init__(plan, data)
        self.every = self.unit  # a sweep: what changes in it is noted
        self._sweep = 0

    def _chain_bytes(self) -> tuple[int, int]:
        """Bytes of all chains, and of what there is once."""
        planes = self.bits.PLANES if "marginals" in self.plan.kept else 0
        size = 4 * len(self.data.variable) * self.words * (2 + planes)
        return size, 0

    def place(self, states: NDArray[Any] | None, words: NDArray[np.uint64] | None = None) -> None:
        """Begin: with first states [chain, variable], or with random ones made on the device."""
        self._place_model()
        m = len(self.data.variable)
        self.x = self.cuda.device_array((m, self.words), np.uint32)
        self.before = self.cuda.device_array(m * self.words, np.uint32)
        self.launches = self._parts_of_a_sweep()
        self.flat = self.x.reshape(self.x.size)
        self.note = self.bits.note_bits[min(_NOTING, self._blocks(self.x.size)), self.bits.THREADS]
        self.last_word = 0xFFFFFFFF >> (self.bits.WORD * self.words - self.chains)
        planes = self.bits.PLANES if self.marginals else 0
        self.planes = self.cuda.to_device(np.zeros((planes, m * self.words), np.uint32))
        self.changed = self.cuda.to_device(np.zeros(_SLOTS, np.int64))
        self.no_planes = self.cuda.to_device(np.zeros((0, 1), np.uint32))
        self.noted, self.counting = 0, False  # counts since the planes were empty
        if states is None:
            first = self.bits.first_bits[self._blocks(m * self.words), self.bits.THREADS]
            first(self.spins[1], *self.key, self.x)
        else:
            self._write(states)
        self._place_records()
        self._place_energies()
        self._settle()

    def _place_model(self) -> None:
        spins = tuple(getattr(self.data, name) for name in self.bits.Spins._fields)
        fixed = np.maximum(self.plan.graph.evidence, 0).astype(self.kind)
        self.spins = [to_device(self.cuda, part) for part in spins]
        self.device_model = to_device(self.cuda, self.model)
        self.device_places = to_device(self.cuda, self.places)
        self.device_fixed = to_device(self.cuda, fixed)
        self.device_ends = to_device(self.cuda, row_ends(self.plan))

    def _parts_of_a_sweep(self) -> list[Callable[[int, int], None]]:
        """Launches that make sweep number so and so of so many chains; of none, to compile.

        Where chains fill the device by themselves, and a colour does not, each thread goes through
        all colours.
        """
        kind, ends, bits = self.data.base.dtype.type, self.data.block_ends, self.bits
        walkers, colours = 2 * self.words, len(ends) - 1
        scarce = len(self.data.variable) * self.words < _FEW_WORDS * colours
        if walkers >= _WALKERS and scarce:
            halves = self.x.view(np.uint16)
            walk = bits.walk(kind)[-(-walkers // bits.WALKING), bits.WALKING]
            return [lambda s, c: walk(*self.spins, *self.key, s, min(c, 1), halves)]
        lanes = 1 if self.chains == 1 else bits.QUAD if self.chains <= 2 * bits.QUAD else bits.HALF
        kernel, threads = bits.sweep_colour(kind, lanes), BLOCK_SIZE
        if self.words > 1:
            threads = bits.THREADS
        across = -(-BLOCK_SIZE * self.words // threads)

        def launch(first: int, blocks: int) -> Callable[[int, int], None]:
            update = kernel[(blocks, across), threads]
            return lambda s, c: update(*self.spins, first, *self.key, s, c, self.x)

        return [launch(begin, end - begin) for begin, end in pairwise(ends.tolist()) if end > begin]

    def _blocks(self, items: int) -> int:
        return -(-items // int(self.bits.THREADS))

    def compile(self) -> None:
        """Compile the kernel that advances."""
        for launch in self.launches[:1]:
            launch(0, 0)
        self.cuda.synchronize()

    def _launch(self, updates: int) -> None:
        """Make so many updates of every chain; returns before they are made."""
        for _ in range(updates // self.unit):
            for launch in self.launches:
                launch(self._sweep, self.chains)
            self._sweep += 1
            self._note()

    def advance(self, updates: int, recording: bool) -> None:
        """Make so many updates of every chain."""
        self.counting = recording and self.marginals
        super().advance(updates, recording)

    def _settle(self) -> None:
        """Compare with the present states from now on."""
        self.before.copy_to_device(self.flat)

    def _count(self, counts: Any) -> None:
        """Nothing is left to do: `_note` has counted."""

    def _note(self) -> None:
        """Note what the last sweep has changed, and count its values where that is wanted."""
        planes = self.planes if self.counting else self.no_planes
        self.note(self.flat, self.words, self.last_word, self.before, planes, self.changed)
        self.noted += self.counting
        if self.noted == self.bits.MOST_COUNTED:
            self._flush_counts()

    def _flush_counts(self) -> None:
        """Add what the planes hold to the counts."""
        if self.noted and self.marginals:
            m = len(self.data.variable)
            grid = (self._blocks(m), blocks_along(self.kept, 1))
            planes = self.planes.reshape(self.bits.PLANES, m, self.words)
            flush = self.bits.flush_counts[grid, (self.bits.THREADS, 1)]
            flush(
                planes,
                self.spins[1],
                self.device_first,
                self.device_ends,
                self.noted,
                self.counts,
            )
            self.bits.clear[self._blocks(self.planes.size), self.bits.THREADS](
                self.planes.reshape(self.planes.size)
            )
        self.noted = 0

    def _plan_records(self) -> int:
        """Choose what is held of the kept chains; returns the bytes that all records take."""
        self.held = [self.plan.drawn] if self.draws else []
        record = 8 * self.kept + self.kind.itemsize * self.kept * len(self.plan.drawn)
        room = max(min(_BUFFER_BYTES // record, self.plan.records, _MOST_RECORDS), 1)
        self.room = room if self.draws or self.energy else 0
        heads = np.unique(row_ends(self.plan)[:-1] // self.bits.WORD)
        self.head_words = heads if self.energy else heads[:0]
        self.parts = -(-_ADDING // max(len(heads), 1))
        adding = 8 * self.parts * self.bits.WORD * len(self.head_words)
        values = self.plan.values if self.marginals else 0
        return int(self.room * record + adding + 8 * self.kept * (values + 1))

    def _place_energies(self) -> None:
        """Put what energies are made of on the device."""
        if not self.energy:
            return
        found = spin_energy(self.plan.graph, self.data.variable)
        arrays = (found.pair, found.weight, found.field if found.field.any() else np.empty(0))
        self.energy_arrays = [to_device(self.cuda, array) for array in arrays]
        self.constant = found.constant
        self.device_words = to_device(self.cuda, self.head_words)
        shape = (self.parts, len(self.head_words), self.bits.WORD)
        self.part_sums = self.cuda.device_array(shape, np.float64)
        self.device_energy = self.cuda.device_array((self.room, self.kept), np.float64)

    def _keep_energies(self) -> None:
        if self.energy:
            grid = self._blocks(self.parts * len(self.head_words))
            self.bits.part_energies[grid, self.bits.THREADS](
                *self.energy_arrays, self.x, self.device_words, self.part_sums
            )
            self.bits.sum_energies[self.kept, self.bits.THREADS](
                self.part_sums,
                self.device_heads,
                self.device_words,
                self.filled,
                self.device_energy,
            )

    def _kept_energies(self) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.device_energy[: self.filled].copy_to_host()
        return found + self.constant

    def _keep_states(self, held: Any, buffer: Any) -> None:
        grid = (-(-self.kept // LANES), blocks_along(len(held), 4))
        self.bits.keep_bits[grid, (LANES, 4)](
            self.x,
            self.device_places,
            self.device_fixed,
            self.device_heads,
            held,
            self.filled,
            buffer,
        )

    def _host_counts(self) -> NDArray[np.int64]:
        self._flush_counts()
        counts: NDArray[np.int64] = self.counts.copy_to_host()
        clamped = np.flatnonzero(self.places < 0)
        if len(clamped) and counts.size:
            place = self.model.first[clamped] + self.plan.graph.evidence[clamped]
            counts[:, place] = (np.diff(row_ends(self.plan)) * self._counted[0])[:, None]
        return counts

    def _read(self) -> NDArray[Any]:
        """All states on the host: [chain, variable]."""
        states = np.empty((self.chains, len(self.places)), self.kind)
        step = max(_READ_BYTES // max(states[:1].nbytes, 1), 1)
        for first in range(0, self.chains, step):
            piece = states[first : first + step]
            device = self.cuda.device_array(piece.shape, self.kind)
            grid = (self._blocks(piece.shape[1]), blocks_along(len(piece), 1))
            self.bits.read_bits[grid, (self.bits.THREADS, 1)](
                self.x, self.device_places, self.device_fixed, first, device
            )
            device.copy_to_host(piece)
        return states

    def _write(self, states: NDArray[Any]) -> None:
        """Put states [chain, variable] on the device."""
        packed = np.packbits(states[:, self.data.variable].T, axis=1, bitorder="little")
        words = np.zeros((len(packed), 4 * self.words), np.uint8)
        words[:, : packed.shape[1]] = packed
        self.x.copy_to_device(np.ascontiguousarray(words).view(np.uint32))

    def state(self) -> State:
        """Copies of the device's arrays."""
        self._flush()
        tally = np.zeros((1, CHANGES + 1), np.int64)
        tally[0, CHANGES] = self.changed.copy_to_host().sum()
        return {
            "x": self._read(),
            "stream": np.ones((1, 4), np.uint64),  # none is needed
            "carried": np.empty((self.chains, 0)),
            "replicas": np.empty((self.chains, 0), self.kind),
            "tally": tally,
            "order": self.plan.order[:0],
            "position": np.zeros(1, np.int64),
            "path": self.scan.stream,
            "walked": np.zeros(1, np.int64),
            "counted": self._counted.copy(),
            "counts": self._host_counts(),
            "clock": np.array([self._clock]),
            "warmed": np.array([self.warmed]),
        }

    def restore(self, state: State) -> None:
        """Take up a state."""
        self._write(state["x"])
        self._settle()
        changed = np.zeros(_SLOTS, np.int64)
        changed[0] = state["tally"][0, CHANGES]
        self.changed.copy_to_device(changed)
        self._counted[:] = state["counted"]
        self.counts = self.cuda.to_device(np.ascontiguousarray(state["counts"]))
        self._clock, self.warmed = int(state["clock"][0]), int(state["warmed"][0])
        self._sweep = (self._clock + self.warmed) // self.unit
        self.filled, self.flushed = 0, self.records
